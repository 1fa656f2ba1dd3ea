"""Host files: load one, then check it, run it, compare policies on it, sweep over it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import _core, files, substrates
from laxity.errors import HostError, InputError, core_errors
from laxity.policies import GLOBAL, MODELS, POLICIES, SCHEDULER_S
from laxity.progress import silent
from laxity.resolved import Resolved, overrides_of
from laxity.results.check import Budget, Check
from laxity.substrates.substrate import refuse
from laxity.telephony import SEEDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.fidelity import Fidelity
    from laxity.progress import Progress, Say
    from laxity.resolved_schema import ResolvedHost
    from laxity.results.comparison import Comparison
    from laxity.results.design import Design
    from laxity.results.run import Run
    from laxity.substrates.substrate import Substrate
    from laxity.sweep import Sweep
    from laxity.telephony.capacity import Capacity
    from laxity.workers.workers import Workers

COMPARED_MAX = 100_000
"""Runs of a comparison, whose results are in memory together."""

GROWTH_MAX = 16
"""The greatest factor by which costs may be asked to grow: the search for most room ends there."""

CALLS_AT_A_TIME = 4
"""Runs whose packets of voice are in memory at a time."""


class Host:
    """A host file. Its methods take overrides and leave the host itself as it is.

    `set` is what `--set` is on the command line: "domain.control.budget=3 ms", or several of these;
    `policy`, `seed` and `duration` ("5 s") are short for overrides of `host.policy`, `seed` and
    `duration`. `on` is the substrate that runs the host: its name, or the substrate itself with
    options, such as `Xen(mode="live")`. `say` is told what is going on, `progress` how much is
    done. `workers` are what `laxity.workers.opened` gives, and simulate in place of this process,
    with the same results. All raise HostError if the file or an override is wrong, and InputError
    if the substrate cannot run the host, before anything runs; LabError if the machine fails that
    runs it.
    """

    def __init__(self, text: bytes, name: str) -> None:
        """Parses the text; what it says is checked when it is used."""
        with core_errors():
            self._file = _core.HostFile(text, name)
        self.text = text
        self.name = name

    @classmethod
    def load(cls, path: str | Path) -> Host:
        """Reads a host file; `-` is the standard input.

        Raises HostError if it is not one, InputError if it cannot be read.
        """
        path = Path(path)
        text = files.read(path, files.HOST_BYTES_MAX, "a host file, such as host.toml")
        return cls(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str = "host.toml") -> Host:
        """Takes the text of a host file; `name` is what messages call it."""
        return cls(text.encode(), name)

    def __repr__(self) -> str:
        """Names the file."""
        return f"<laxity.Host {self.name}>"

    def resolve(self, set: str | Iterable[str] = ()) -> Resolved:
        """Returns the host with overrides, as substrates take it."""
        return Resolved(self._file, self.text, self.name, overrides_of(set))

    def resolved(self, set: str | Iterable[str] = ()) -> ResolvedHost:
        """Returns the host that results: complete, drawn tasks included, all times in ns."""
        return self.resolve(set).host

    def check(
        self,
        *,
        policy: str | None = None,
        seed: int | None = None,
        set: str | Iterable[str] = (),
    ) -> Check:
        """Analyses: will every deadline hold? A seed matters for tasks that are drawn."""
        overrides = overrides_of(set, policy=policy, seed=seed)
        settings = [word for override in overrides for word in ("--set", override)]
        command = shlex.join(["laxity", "run", self.name, *settings])
        with core_errors():
            return Check.from_json(json.loads(self._file.check(overrides)), command)

    def minimum_budgets(
        self,
        *,
        policy: str | None = None,
        seed: int | None = None,
        set: str | Iterable[str] = (),
    ) -> list[Budget]:
        """The smallest budget of each domain at its period that `check` accepts."""
        overrides = overrides_of(set, policy=policy, seed=seed)
        given = [
            domain["parameters"]["budget_ns"] for domain in self.resolved(overrides)["domains"]
        ]
        with core_errors():
            smallest = json.loads(self._file.minimum_budgets(overrides))
        return [Budget(**budget, given_ns=ns) for budget, ns in zip(smallest, given, strict=True)]

    def design(
        self,
        *,
        policy: str | None = None,
        set: str | Iterable[str] = (),
        growth: float | None = None,
        most_room: bool = False,
        any_phase: bool = False,
        missed_max: float | None = None,
        looking: Say = silent,
        workers: Workers | None = None,
    ) -> Design:
        """Finds values for what the file leaves open, with which every deadline is guaranteed.

        With `growth` every cost may then be this factor greater, with `most_room` as much greater
        as can be. With `missed_max`, a part of each task's jobs, no more than these miss their
        deadlines in simulation; under a policy that goes by weights, every cost may then be as much
        greater as can be. For a host with calls: the change that lets it carry most streams, while
        no task misses more than that, or any deadline. See `find_design` of each kind, and
        `find_remedy`; `looking` is told what is being tried.
        """
        from laxity.design import calls, deadlines, misses, shares

        host = self.resolve(overrides_of(set, policy=policy))
        has_room = most_room or growth is not None
        if missed_max is not None and has_room:
            raise InputError(
                "a limit of missed deadlines is for the aim of least CPU time, or of most streams",
                "leave --room and --growth out",
            )
        if most_room and growth is not None:
            raise InputError("--room and --growth are two aims", "leave one of them out")
        if growth is not None and not 1 <= growth <= GROWTH_MAX:
            raise InputError(
                f"every cost cannot be {growth:g} times what it is",
                f"write a factor from 1 to {GROWTH_MAX}, such as 1.2",
            )
        if calls.has_calls(host):
            if has_room:
                raise InputError(
                    "room to grow is for tasks: of a host with calls, most streams are the aim",
                    "leave --room and --growth out",
                )
            return calls.find_remedy(
                host, looking, workers, missed_max=missed_max, any_phase=any_phase
            )
        if missed_max is not None and shares.is_for(host):
            return shares.find_design(host, missed_max, looking, workers)
        if missed_max is not None:
            return misses.find_design(
                host, missed_max, any_phase=any_phase, looking=looking, workers=workers
            )
        return deadlines.find_design(
            host,
            growth=growth,
            most_room=most_room,
            any_phase=any_phase,
            looking=looking,
            workers=workers,
        )

    def run(
        self,
        *,
        on: str | Substrate = "sim",
        seed: int | None = None,
        policy: str | None = None,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        trace: str | Path | None = None,
        keep: str | Path | None = None,
        seen: str | Path | None = None,
        say: Say = silent,
        progress: Progress | None = None,
    ) -> Run:
        """Runs the host.

        A trace is written to the file `trace`, if the substrate traces. `keep`, a directory that is
        not there yet, gets all else that the substrate leaves, such as the log of a machine. The
        simulator releases jobs of one instant in the order of the host file, or that in which VCPUs
        wake for them in the trace `seen`, and lets idle guests take the ticks for which they wake
        there.
        """
        place = substrates.of(on)
        host = self.resolve(overrides_of(set, policy=policy, seed=seed, duration=duration))
        refuse(place, [host])
        return place.run(
            host,
            trace=None if trace is None else Path(trace),
            keep=None if keep is None else Path(keep),
            seen=None if seen is None else Path(seen),
            say=say,
            progress=progress,
        )

    def fidelity(
        self,
        a: str | Substrate = "sim",
        b: str | Substrate = "xen",
        *,
        seed: int | None = None,
        policy: str | None = None,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        keep: str | Path,
        say: Say = silent,
        progress: Progress | None = None,
    ) -> Fidelity:
        """Runs the host on two substrates: how far is the first from the second?

        `keep`, a directory that is not there yet, gets both traces and what the substrates leave.
        """
        from laxity import fidelity

        host = self.resolve(overrides_of(set, policy=policy, seed=seed, duration=duration))
        return fidelity.measure(host, substrates.of(a), substrates.of(b), Path(keep), say, progress)

    def policies(self, set: str | Iterable[str] = ()) -> list[str]:
        """Laxity's policies but the global ones that the file has parameters for, and its own."""
        overrides = overrides_of(set)
        own = self.resolved(overrides)["policy"]
        return [
            policy
            for policy in POLICIES
            if (policy == own or policy not in (*MODELS, *GLOBAL))
            and self._lacks_for(policy, overrides) is None
        ]

    def compare(
        self,
        policies: Iterable[str] | None = None,
        *,
        on: str | Substrate = "sim",
        seed: int | None = None,
        seeds: int = 1,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        keep: str | Path | None = None,
        say: Say = silent,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> Comparison:
        """Runs the host under each policy; by default all that the file has parameters for.

        With several seeds: the host's own and those that follow. The voice of calls is scored.
        `keep` gets a directory for each policy, with several seeds for each run.
        """
        from laxity.results.comparison import Comparison
        from laxity.voice import scoring

        overrides = overrides_of(set, seed=seed, duration=duration)
        names, notes = self._compared(policies, overrides)
        hosts = self._with_seeds(names, overrides, seeds)
        place = substrates.of(on)
        refuse(place, hosts, workers)
        hosts[0].require_scorer()

        def kept(host: Resolved) -> Path | None:
            if keep is None:
                return None
            policy, number = host.host["policy"], host.host["seed"]
            return Path(keep) / (policy if seeds == 1 else f"{policy}-{number}")

        if hosts[0].host["calls"] is None:
            runs = place.run_many(hosts, keep=kept, say=say, progress=progress, workers=workers)
        else:
            runs = []
            # The packets of all runs at once may be too many.
            for start in range(0, len(hosts), CALLS_AT_A_TIME):
                part = hosts[start : start + CALLS_AT_A_TIME]
                done = place.run_many(part, keep=kept, say=say, streams=True, workers=workers)
                runs += scoring.judged(done)
                if progress is not None:
                    progress(len(runs), len(hosts))
            runs = [replace(run, streams=()) for run in runs]
        compared = self.resolve([*overrides, f"host.policy={'|'.join(names)}"])
        return Comparison(tuple(runs), compared.origin(place.words), notes)

    def _with_seeds(self, policies: list[str], overrides: list[str], seeds: int) -> list[Resolved]:
        """Returns the host of each run of a comparison."""
        if seeds < 1:
            raise InputError(f"policies are compared with at least one seed, not {seeds}")
        if seeds > COMPARED_MAX // len(policies):
            raise InputError(
                f"{seeds:,} seeds under each policy are more than the {COMPARED_MAX:,} runs that a "
                "comparison keeps in memory",
                f"give at most {COMPARED_MAX // len(policies):,} seeds, or use laxity sweep",
            )
        first = self.resolved(overrides)["seed"]
        return [
            self.resolve(
                [*overrides, f"host.policy={policy}", *([f"seed={number}"] if seeds > 1 else [])]
            )
            for policy in policies
            for number in range(first, first + seeds)
        ]

    def _compared(
        self, policies: Iterable[str] | None, overrides: list[str]
    ) -> tuple[list[str], tuple[str, ...]]:
        """The policies to compare, each once, and what is to be said of the choice."""
        names = self.policies(overrides) if policies is None else list(policies)
        if not names:
            raise InputError(
                "there is no policy to compare", f"the policies are {', '.join(POLICIES)}"
            )
        if len(dict.fromkeys(names)) < len(names):
            raise InputError("a policy is given twice", "write each policy once")
        lacks: dict[str, list[str]] = {}
        laxitys = [policy for policy in POLICIES if policy not in (*MODELS, *GLOBAL)]
        for policy in laxitys if policies is None else names:
            why = self._lacks_for(policy, overrides)
            if why is not None:
                lacks.setdefault(why, []).append(policy)
        said = "Not compared: " if policies is None else ""
        return names, tuple(f"{said}{', '.join(of)}: {why}" for why, of in lacks.items())

    def sweep(
        self,
        set: str | Iterable[str],
        *,
        on: str | Substrate = "sim",
        seed: int | None = None,
        duration: str | None = None,
        seeds: int = 1,
        policies: Iterable[str] = (),
        into: Path | None = None,
        say: Say = silent,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> Sweep:
        """Runs the host at each point of ranges and lists in `set`: "draw.load=0.3..1.0:0.05".

        With several seeds: the host's own and those that follow. With `into`, the rows are in that
        Parquet file and not in memory. Raises InputError for a range that is wrong.
        """
        from laxity.sweep import Grid, Sweep

        if seeds < 1:
            raise InputError(f"a sweep has at least one seed, not {seeds}")
        settings, names = overrides_of(set, seed=seed, duration=duration), list(policies)
        grid = Grid.parse(settings, names, seeds)
        first = self.resolved(next(grid.overrides())[:-1])["seed"]
        grid = replace(grid, seeds=range(first, first + seeds))
        hosts = [self.resolve(overrides) for overrides in grid.overrides()]
        place = substrates.of(on)
        refuse(place, hosts, workers)
        rows = place.rows(hosts, say=say, progress=progress, workers=workers)
        policy_axis = [f"host.policy={'|'.join(names)}"] if names else []
        swept = self.resolve([*settings, *policy_axis])
        return Sweep.collect(grid, rows, swept.origin(place.words), into)

    def capacity(
        self,
        *,
        on: str | Substrate = "sim",
        policy: str | None = None,
        seed: int | None = None,
        seeds: int = SEEDS,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        remedies: bool = False,
        say: Say = silent,
        looking: Say = silent,
    ) -> Capacity:
        """Finds how many streams, or calls an hour, the host carries; see `find_capacity`.

        With `remedies`, also the changes that let it carry more, by simulation; see `find_remedy`.
        `looking` is told what load is being tried.
        """
        from laxity.design import calls
        from laxity.telephony import capacity

        host = self.resolve(overrides_of(set, policy=policy, seed=seed, duration=duration))
        if remedies:
            calls.checked(host)
        found = capacity.find_capacity(host, substrates.of(on), seeds, say, looking)
        if not remedies:
            return found
        return replace(found, remedies=calls.find_remedy(host, looking).remedies)

    def _lacks_for(self, policy: str, overrides: list[str]) -> str | None:
        """What the file lacks that the policy goes by; None if it has all."""
        try:
            host = self.resolved([*overrides, f"host.policy={policy}"])
        except HostError as error:
            first, *others = error.problems
            more = f", and {len(others)} more like it" if others else ""
            return f"{first.message}{more}"
        # Without a laxity scheduler S would run; it would have nothing to go by.
        if policy in SCHEDULER_S and not any(
            domain["parameters"]["laxity_ns"] for domain in host["domains"]
        ):
            return 'no domain has a `laxity`; give one, such as domain.NAME.laxity="10 us"'
        return None
