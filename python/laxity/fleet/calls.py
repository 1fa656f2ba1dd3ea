"""Guests with calls: what they need, and whether a host with them holds, by simulation.

No analysis knows what calls need. A guest's budget and period are the least ones with which its
calls are accepted beside the worst neighbours: others that take all the rest of its CPUs, and come
first. What was found holds beside gentler neighbours too, as far as simulation can tell; each host
that is looked at is simulated all the same, once for each of its guests with calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from laxity import _core, substrates
from laxity.design.halving import can_be_heard
from laxity.errors import HostError, InputError, core_errors
from laxity.progress import silent
from laxity.resolved import Resolved, ending
from laxity.voice.scoring import SCORED, scored_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laxity.fleet.problem import FleetFile
    from laxity.progress import Say
    from laxity.workers.workers import Workers

PERIODS_NS = (2_000_000, 5_000_000, 10_000_000, 20_000_000)
"""Periods that are tried where the file gives none."""

STEPS = 50
"""Budgets that are tried are so many parts of the period."""

SECONDS, SEEDS = 3, 2
"""Runs that find a budget."""

CONFIRMING_SECONDS, CONFIRMING_SEEDS = 10, 3
"""Runs that confirm it, with other seeds and the opinion score."""

JUDGING_SECONDS, JUDGING_SEEDS = 5, 2
"""Runs that judge a host, with seeds that no budget was found by."""


@dataclass(frozen=True)
class Need:
    """What a guest with calls needs."""

    budget_ns: int
    period_ns: int

    def overrides(self, guest: str, factor: float) -> list[str]:
        """The same in a fleet file, with a budget that is a factor greater."""
        budget_ns = min(round(self.budget_ns * factor), self.period_ns)
        return [
            f"guest.{guest}.budget={budget_ns / 1000:.15g} us",
            f"guest.{guest}.period={self.period_ns / 1000:.15g} us",
        ]


def open_callers(file: FleetFile) -> list[int]:
    """The guests with calls whose budgets are to be found."""
    return [n for n, guest in enumerate(file.guests) if guest.streams and guest.budget]


def needs(
    core: _core.FleetFile, file: FleetFile, looking: Say, workers: Workers | None
) -> dict[int, Need | None]:
    """What each of these guests needs on its hosts; None if whole CPUs are enough on none."""
    found: dict[int, Need | None] = {}
    known: dict[tuple[str, ...], Need | None] = {}
    for guest in open_callers(file):
        of_guest = file.guests[guest]
        if any(file.hosts[host].policy for host in of_guest.hosts):
            raise InputError(
                f"the policy of a host that may have {of_guest.name} is open, and {of_guest.name} "
                "has calls, whose need is found under a policy",
                'write policy = "deferrable", say, or the budget and period of the guest',
            )
    for guest in open_callers(file):
        of_guest = file.guests[guest]
        looking(f"what the calls of {of_guest.name} need")
        likes = sorted({file.hosts[host].like for host in of_guest.hosts})
        texts = [core.host_with_calls(like, [guest], guest) for like in likes]
        key = tuple(text.replace(f'"{of_guest.name}"', '"caller"') for text in texts)
        if key not in known:
            worst = [_Worst(text, file.hosts[n].cpus) for text, n in zip(texts, likes, strict=True)]
            given = of_guest.period_ns
            periods_ns = PERIODS_NS if given is None else (given,)
            known[key] = _need(worst, periods_ns, of_guest.vcpus, workers)
        found[guest] = known[key]
    return found


class _Worst:
    """A host with one guest, and neighbours that leave it nothing but its budget."""

    def __init__(self, text: str, cpus: int) -> None:
        self._host = _resolved(text, "fleet.toml", ())
        self._cpus = cpus

    def can_have(self, need: Need, vcpus: int) -> bool:
        """Whether the guest can be there, which the CPUs that it names may forbid."""
        try:
            (run,) = self.runs(need, vcpus, [1], 1)
            return bool(run.host)
        except HostError:
            # The guest's file was read for its largest host before, and is right there.
            return False

    def runs(self, need: Need, vcpus: int, seeds: Iterable[int], seconds: int) -> list[Resolved]:
        """The host, to be run once with each of these seeds."""
        of_guest = need.budget_ns * -(-vcpus // self._cpus)
        rest_ns = need.period_ns - of_guest
        values = [
            f"domain.0.budget={need.budget_ns} ns",
            f"domain.0.period={need.period_ns} ns",
            "domain.0.priority=2",
            *(
                f'domain.{1 + cpu}={{ name = "neighbour-of-all-{cpu}", budget = "{rest_ns} ns", '
                f'period = "{need.period_ns} ns", priority = 1, affinity = [{cpu}], '
                'workload = { kind = "cpu-bound" } }'
                for cpu in range(self._cpus)
                if rest_ns > 0
            ),
        ]
        host = self._host.changed([*values, f"duration={seconds} s"])
        return [host.changed([f"seed={seed}"]) for seed in seeds]


def _need(
    worst: Sequence[_Worst], periods_ns: Sequence[int], vcpus: int, workers: Workers | None
) -> Need | None:
    """The least part of a CPU with which all hosts hold that can, and the longest such period."""

    def need(period_ns: int, steps: int) -> Need:
        return Need(period_ns * steps // STEPS, period_ns)

    def held(asked: Sequence[Need], seeds: range, seconds: int, *, heard: bool) -> list[bool]:
        runs = [
            run
            for each in asked
            for host in worst
            for run in host.runs(each, vcpus, seeds, seconds)
        ]
        answers = _accepted(runs, workers, heard=heard)
        count = len(worst) * len(seeds)
        return [all(answers[n * count : (n + 1) * count]) for n in range(len(asked))]

    # With all of a CPU, the period does not matter. Hosts on which not even that is enough have no
    # say: guests with calls are simulated wherever they are placed.
    whole = need(periods_ns[0], STEPS)
    worst = [host for host in worst if host.can_have(whole, vcpus)]
    alone = [host.runs(whole, vcpus, [1], 1)[0] for host in worst]
    enough = _accepted(alone, workers, heard=False)
    worst = [host for host, is_enough in zip(worst, enough, strict=True) if is_enough]
    if not worst:
        return None
    # For each period, a number of steps that is too little and one that is enough.
    bounds = dict.fromkeys(periods_ns, (0, STEPS + 1))
    while left := {p: b for p, b in bounds.items() if b[1] - b[0] > 1}:
        middle = {period: (low + high) // 2 for period, (low, high) in left.items()}
        asked = [need(period, steps) for period, steps in middle.items()]
        answers = held(asked, range(1, 1 + SEEDS), SECONDS, heard=False)
        for (period, steps), is_enough in zip(middle.items(), answers, strict=True):
            low, high = bounds[period]
            bounds[period] = (low, steps) if is_enough else (steps, high)
    found = [(high, -period) for period, (_, high) in bounds.items() if high <= STEPS]
    if not found:
        return None
    least, period = min(found)
    other_seeds = range(1 + SEEDS, 1 + SEEDS + CONFIRMING_SEEDS)
    for steps in range(least, STEPS + 1):
        each = need(-period, steps)
        if held([each], other_seeds, CONFIRMING_SECONDS, heard=can_be_heard())[0]:
            return each
    return None


class Judge:
    """Simulates hosts that have guests with calls."""

    def __init__(
        self, core: _core.FleetFile, file: FleetFile, workers: Workers | None = None
    ) -> None:
        """Has judged nothing yet."""
        self._core, self._file, self._workers = core, file, workers
        self.refused = 0
        """The hosts that did not hold in simulation, though analysis had values for them."""

    def holds(
        self, asked: Sequence[tuple[int, frozenset[int], tuple[tuple[str, str], ...]]]
    ) -> list[bool]:
        """Whether calls are accepted and no deadline is missed on hosts with guests and values."""
        runs: list[Resolved] = []
        of_runs: list[int] = []
        for number, (host, guests, values) in enumerate(asked):
            for caller in self.callers(guests):
                text = self.text(host, guests, caller, values)
                one = _resolved(text, f"{self._file.hosts[host].name}.toml", ())
                one = one.changed(ending(one.host, JUDGING_SECONDS * 10**9))
                first = one.host["seed"] + SEEDS + CONFIRMING_SEEDS + 1
                runs += [one.changed([f"seed={first + n}"]) for n in range(JUDGING_SEEDS)]
                of_runs += [number] * JUDGING_SEEDS
        answers = _accepted(runs, self._workers, heard=False)
        failed = {
            number for number, is_accepted in zip(of_runs, answers, strict=True) if not is_accepted
        }
        self.refused += len(failed)
        return [number not in failed for number in range(len(asked))]

    def callers(self, guests: Iterable[int]) -> list[int]:
        """Those of some guests that have calls, the one with most streams first."""
        with_calls = [guest for guest in guests if self._file.guests[guest].streams]
        return sorted(with_calls, key=lambda guest: (-self._file.guests[guest].streams, guest))

    def text(
        self, host: int, guests: Iterable[int], caller: int, values: Iterable[tuple[str, str]]
    ) -> str:
        """The host file in which one guest has its calls; the others take all of their budgets."""
        with core_errors():
            text = self._core.host_with_calls(host, sorted(guests), caller)
            return _core.HostFile(text.encode(), "fleet.toml").with_values(list(values))


def _resolved(text: str, name: str, overrides: Iterable[str]) -> Resolved:
    with core_errors():
        return Resolved(_core.HostFile(text.encode(), name), text.encode(), name, overrides)


def _accepted(hosts: Sequence[Resolved], workers: Workers | None, *, heard: bool) -> list[bool]:
    """Whether each run kept to all limits of its calls, and missed no deadline."""
    answers: list[bool] = []
    # Runs at once are of one file.
    for _, of_file in groupby(hosts, key=lambda host: id(host.file)):
        runs = substrates.of("sim").run_many(
            list(of_file), say=silent, streams=heard, workers=workers
        )
        if heard:
            runs = scored_many(runs, most=SCORED)
        answers += (run.passed for run in runs)
    return answers
