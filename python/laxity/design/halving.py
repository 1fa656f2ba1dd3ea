"""The change to a host with which it carries most, told apart by simulation.

All changes are tried shortly, the better half for longer, and so on (successive halving, Jamieson
and Talwalkar, 2016). Before each further round the best change of each kind is also joined with the
best of all, so that pairs and triples of changes are tried only where their parts are good. All of
a round have the same seed, and so the same packets and phases (common random numbers). The best of
the last round are then tried with other seeds and for longer, and what carries most of these with
other seeds again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity import extras, substrates
from laxity.design import phases
from laxity.errors import HostError, InputError
from laxity.progress import silent
from laxity.resolved import ending, task_paths
from laxity.results.acceptance import limits_of
from laxity.text import percent
from laxity.voice.scoring import SCORED, scored_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.workers.workers import Workers

ROUNDS = (
    (1, 1, (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)),
    (2, 1, (0.75, 1.0, 1.25, 1.5, 1.75, 2.0)),
    (4, 3, (0.4, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
)
"""Seconds and seeds of the runs of a load, and loads as factors of what was carried in the round
before; at first of what the file asks for."""

GREATER, SMALLER = (1.2, 1.5, 2.0, 3.0, 4.0), (0.1, 0.2, 0.4, 0.6, 0.8)
"""Where all loads of a round hold, or none does: as factors of the greatest, or of the least."""

WIDENED_MAX = 3
"""How often a change's loads are made greater, or smaller, in a round."""

KEPT = 2
"""One in this many goes on to the next round."""

SEEDS, SECONDS = 3, 10
"""Runs that check what was found: with seeds that it was not chosen by, and longer."""

JOBS = 4
"""Jobs of each task in a run, at least, if the file's duration is enough for them."""

LOWER = 0.9
"""A load that fails there is lowered by this factor."""

ATTEMPTS_MAX, HALF = 10, 0.5
"""After so many attempts it is halved."""


@dataclass(frozen=True)
class Change:
    """A change to a host."""

    what: str
    overrides: tuple[str, ...]
    kinds: frozenset[str] = frozenset()
    """What it changes; changes that have one in common are not joined."""

    def joined(self, other: Change) -> Change:
        """Both changes together."""
        return Change(
            f"{self.what}; {other.what}",
            (*self.overrides, *other.overrides),
            self.kinds | other.kinds,
        )


@dataclass(frozen=True)
class Load:
    """What a host carries more or less of: a whole number."""

    own: int
    """What the file asks for."""
    most: int
    """The greatest that can be asked for."""
    overrides: Callable[[int], list[str]]
    """The overrides with which a host has a load."""
    said: Callable[[int], str]
    """A load in words, such as `300 streams`."""


@dataclass(frozen=True)
class Trials:
    """Runs of one host with changes and loads, and what all of them must keep to."""

    host: Resolved
    load: Load
    missed_max: float
    """The part of its deadlines that each task may miss in each run."""
    any_phase: bool = False
    """Tasks that are in step with their domain's budget do not stay so."""
    looking: Say = silent
    workers: Workers | None = None

    @property
    def seed(self) -> int:
        """The first seed of choices."""
        return int(self.host.host["seed"])

    def changed(self, change: Change, load: int, seconds: int, seed: int) -> Resolved:
        """The host with a change and a load, for so long; what comes later does not come.

        Its tasks begin at times that are drawn from the seed.
        """
        changed = self.host.changed([*change.overrides, *self.load.overrides(load)])
        tasks = [task for _, _, task in task_paths(self.host.host)]
        longest_ns = max((task["period_ns"] for task in tasks), default=0)
        most_ns = min(JOBS * longest_ns, self.host.host["duration_ns"])
        duration_ns = max(seconds * 10**9, most_ns)
        ends = [*ending(self.host.host, duration_ns), f"seed={seed}"]
        if not tasks:
            return changed.changed(ends)
        drawn = phases.offsets(changed.host, seed, duration_ns, any_phase=self.any_phase)
        return changed.changed([*ends, *drawn])

    def held(self, hosts: Sequence[Resolved], *, heard: bool = False) -> list[bool]:
        """Whether each kept to all limits; with `heard`, to that of the opinion score, too."""
        runs = substrates.of("sim").run_many(hosts, say=silent, streams=heard, workers=self.workers)
        if heard:
            runs = scored_many(runs, most=SCORED)
        return [next(self.broken(run), None) is None for run in runs]

    def broken(self, run: Run) -> Iterator[str]:
        """The limits that a run did not keep to, in words."""
        miss_ratio, task = phases.worst(run)
        if miss_ratio > self.missed_max:
            yield f"{task} misses {percent(miss_ratio)} of its deadlines"
        for limit in limits_of(run.telephony) if run.telephony is not None else ():
            if not limit.held:
                yield f"{limit.name} is not within its limit"
        for domain in run.denied:
            yield f"{domain} gets less than its agreement's minimum"

    def broken_by(self, change: Change, load: int) -> list[str]:
        """The limits that the host with a change and a load does not keep to."""
        host = self.changed(change, load, self.confirming_s, self.seed)
        (run,) = substrates.of("sim").run_many([host], say=silent, streams=False)
        return list(self.broken(run))

    @property
    def confirming_s(self) -> int:
        """How long a run is that confirms: it has the host's failure."""
        network = self.host.host["network"]
        protect = network and network.get("protect")
        whole_s = -(-self.host.host["duration_ns"] // 10**9)
        return max(SECONDS, whole_s) if protect and protect["failure"] else SECONDS


@dataclass(frozen=True)
class Found:
    """What the search found."""

    winner: Change
    most: int
    """The load that the winner carries with seeds that it was not chosen by; 0 if none."""
    others: tuple[tuple[Change, int], ...]
    """The other changes and what each carried in short runs, the most first."""


def search(trials: Trials, changes: Sequence[Change]) -> Found:
    """Finds which of the changes carries most; those that the host file does not allow are out."""
    left = [change for change in changes if is_possible(trials.host, change.overrides)]
    carried = dict.fromkeys(left, trials.load.own)
    known: list[Change] = []
    for number, (seconds, seeds, factors) in enumerate(ROUNDS):
        if number:
            joint = [
                change for change in joined(left) if is_possible(trials.host, change.overrides)
            ]
            # What is joined carries about as much as the better of its parts.
            carried |= dict.fromkeys(joint, carried[left[0]])
            left += joint
        trials.looking(f"trying {len(left)} changes for {seconds} s each")
        loads = {change: _loads(trials, max(carried[change], 1), factors) for change in left}
        carried |= carried_by(trials, loads, seconds, seeds)
        left.sort(key=lambda change: -carried[change])
        kept = max(1, -(-len(left) // KEPT))
        known += [change for change in left if change not in known]
        left = left[:kept]
    winner, most = best(trials, [(change, carried[change]) for change in left])
    others = sorted(known, key=lambda change: -carried[change])
    return Found(
        winner, most, tuple((change, carried[change]) for change in others if change is not winner)
    )


def can_be_heard() -> bool:
    """Whether what scores voice is installed."""
    try:
        extras.require("pesq")
    except InputError:
        return False
    return True


def is_possible(host: Resolved, overrides: Iterable[str]) -> bool:
    """Whether the host file allows overrides: it may have values that contradict them."""
    try:
        return bool(host.changed(overrides).host)
    except HostError:
        return False


def joined(best_first: Sequence[Change]) -> list[Change]:
    """The best of these changes joined with the best of each other kind."""
    changes = [change for change in best_first if change.kinds]
    if not changes:
        return []
    first, joint, kinds = changes[0], [], set(changes[0].kinds)
    for change in changes[1:]:
        if not change.kinds & kinds:
            joint.append(first.joined(change))
            kinds |= change.kinds
    known = {change.overrides for change in best_first}
    return [change for change in joint if change.overrides not in known]


def _loads(trials: Trials, around: int, factors: Sequence[float]) -> list[int]:
    return sorted({min(max(1, round(around * factor)), trials.load.most) for factor in factors})


def carried_by(
    trials: Trials, loads: dict[Change, list[int]], seconds: int, seeds: int
) -> dict[Change, int]:
    """The greatest load of each change up to which all loads held with all seeds; 0 if none did.

    Where the greatest of a change's loads holds, greater ones are tried, and smaller ones where the
    least fails.
    """
    carried = dict.fromkeys(loads, 0)
    for _ in range(1 + WIDENED_MAX):
        held = _which_held(trials, loads, seconds, seeds)
        further: dict[Change, list[int]] = {}
        for change, of_change in loads.items():
            failed = [load for load in of_change if not held[change, load]]
            holding = [load for load in of_change if not failed or load < failed[0]]
            if holding:
                carried[change] = holding[-1]
            if not failed and of_change[-1] < trials.load.most:
                further[change] = _loads(trials, of_change[-1], GREATER)
            elif not holding and not carried[change] and of_change[0] > 1:
                further[change] = _loads(trials, of_change[0], SMALLER)
        if not further:
            break
        loads = further
    return carried


def _which_held(
    trials: Trials, loads: dict[Change, list[int]], seconds: int, seeds: int
) -> dict[tuple[Change, int], bool]:
    """Whether each load of each change held with all seeds."""
    asked = [(change, load) for change, of_change in loads.items() for load in of_change]
    results = trials.held(
        [
            trials.changed(change, load, seconds, trials.seed + number)
            for change, load in asked
            for number in range(seeds)
        ]
    )
    return {of: all(results[index * seeds : (index + 1) * seeds]) for index, of in enumerate(asked)}


def best(trials: Trials, carried: Sequence[tuple[Change, int]]) -> tuple[Change, int]:
    """The change that carries most in longer runs, and how much with seeds that chose nothing.

    `carried` has what each carried in short runs: none carries more than that.
    """
    first = trials.seed + max(seeds for _, seeds, _ in ROUNDS)
    at_most = dict(carried)
    is_longer: set[Change] = set()
    chosen, most, tries = carried[0][0], 0, 0
    while at_most:
        # What was tried for longer comes before what carried as much in a short run.
        change = max(at_most, key=lambda each: (at_most[each], each in is_longer))
        load = at_most[change]
        if load <= most:
            break
        said = trials.load.said(load)
        if change not in is_longer:
            trials.looking(f"{change.what}: {said} for longer")
            at_most[change] = _confirmed(trials, change, load, most, first)
            is_longer.add(change)
            continue
        trials.looking(f"confirming {said}")
        tries += 1
        del at_most[change]
        load = _confirmed(trials, change, load, most, first + SEEDS * tries)
        if load:
            chosen, most = change, load
    return chosen, most


def _confirmed(trials: Trials, change: Change, load: int, most: int, first: int) -> int:
    """The load that holds for longer, with seeds from the first on, and sounds well enough.

    0 if it is not more than `most`.
    """
    heard = trials.host.has_streams and can_be_heard()
    seconds, attempt = trials.confirming_s, 0
    while load > most:
        seeds = [trials.changed(change, load, seconds, first + number) for number in range(SEEDS)]
        if all(trials.held(seeds, heard=heard)):
            return load
        attempt += 1
        load = int(load * (LOWER if attempt < ATTEMPTS_MAX else HALF))
    return 0
