"""Host files: load one, then check it, run it, compare policies on it, sweep over it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity import _core, files
from laxity.errors import HostError, InputError, core_errors
from laxity.estimate import SAID_NS, Estimate, Machine
from laxity.results.check import Budget, Check
from laxity.results.comparison import Comparison
from laxity.results.jobs import Counts
from laxity.results.origin import Origin
from laxity.results.run import Run
from laxity.results.schema import profiles_of
from laxity.results.streams import KeptStream, streams_of_core
from laxity.sweep import Plan, Sweep
from laxity.telephony.scoring import judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from laxity.fidelity import Fidelity
    from laxity.results.jobs import Counted, Responses, Times
    from laxity.substrates.linux.scene import MediaProgram
    from laxity.substrates.xen.executors import Place, Say

    Progress = Callable[[int, int], None]
    """Is called a few times a second with how much is done, of how much."""

SCHEDULER_S = ("s-base", "s-a", "s-ab", "s-al", "s-all", "s-aill", "s-allc")
"""Scheduler S, with more and more of its parts."""
CALLS_AT_A_TIME = 4
"""Runs whose packets of voice are in memory at a time."""
BY_WEIGHT = ("credit", *SCHEDULER_S)
"""Domains have weights and caps, and VCPUs have no budget and go to other CPUs."""
POLICIES = ("deferrable", "periodic", "polling", "sporadic", "credit", "sedf", *SCHEDULER_S)
"""All policies, in the order of tables."""


_COSTS = ("host.costs=", "host.network=")
"""Overrides that choose profiles."""


class Host:
    """A host file. Its methods take overrides and leave the host itself as it is.

    `set` is what `--set` is on the command line: "domain.control.budget=3 ms", or several of these;
    `policy`, `seed` and `duration` ("5 s") are short for overrides of `host.policy`, `seed` and
    `duration`. All raise HostError if the file or an override is wrong, before anything runs.
    """

    def __init__(self, text: bytes, name: str) -> None:
        """Parses the text; what it says is checked when it is used."""
        with core_errors():
            self._file = _core.HostFile(text, name)
        self.text = text
        self.name = name
        self.long = True
        """Whether to simulate what is estimated to take more than an hour. The command line does
        not, unless `--long` says so."""
        self.say: Say | None = None
        """Is told beforehand what takes a while."""

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

    def resolved(self, set: str | Iterable[str] = ()) -> dict[str, Any]:
        """Returns the host that results: complete, drawn tasks included, all times in ns."""
        with core_errors():
            resolved: dict[str, Any] = json.loads(self._file.host(overrides_of(set)))
        return resolved

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
        """The smallest budget of each domain at its period, by the periodic resource model."""
        overrides = overrides_of(set, policy=policy, seed=seed)
        given = [
            domain["parameters"]["budget_ns"] for domain in self.resolved(overrides)["domains"]
        ]
        with core_errors():
            smallest = json.loads(self._file.minimum_budgets(overrides))
        return [Budget(**budget, given_ns=ns) for budget, ns in zip(smallest, given, strict=True)]

    def run(
        self,
        *,
        seed: int | None = None,
        policy: str | None = None,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        trace: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Run:
        """Runs the host in the simulator; writes a trace to a file, if `trace` names one."""
        overrides = overrides_of(set, policy=policy, seed=seed, duration=duration)
        self._begin([overrides], None if trace is None else Path(trace))
        resolved = self.resolved(overrides)
        with core_errors():
            result, times, streams = self._file.run(
                overrides,
                None if trace is None else str(trace),
                _of(progress, resolved["duration_ns"]),
            )
        responses, counted = _responses(resolved, times)
        return Run.from_json(
            json.loads(result),
            self.origin(overrides),
            responses,
            None if trace is None else Path(trace),
            streams_of_core(streams),
            counted,
        )

    def run_on_xen(
        self,
        place: Place | None = None,
        *,
        seed: int | None = None,
        policy: str | None = None,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        scheduler: str | None = None,
        keep: str | Path | None = None,
        say: Say | None = None,
    ) -> Run:
        """Runs the host on real Xen, by default in an emulated machine that repeats to the byte.

        `scheduler` is one of Xen's own (credit, credit2, rtds, null) in place of Laxity's. With
        `keep` the console's log, the trace and all else that the machine left are kept in that
        directory, which must not be there. `say` is told what is going on.

        Raises InputError for what Xen cannot run, LabError if the machine fails.
        """
        from laxity.substrates.xen import boot as xen  # noqa: PLC0415 - only this needs it

        overrides = overrides_of(set, policy=policy, seed=seed, duration=duration)
        return xen.run(
            self,
            overrides,
            place,
            scheduler=scheduler,
            keep=None if keep is None else Path(keep),
            say=say,
        )

    def run_on_linux(
        self,
        *,
        seed: int | None = None,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        policy: str | None = None,
        media_server: MediaProgram = "laxity",
        say: Say | None = None,
    ) -> Run:
        """Runs the host's calls on this machine, as root: real packets, real SIP, real processes.

        `media_server` is whose it is: Laxity's own model, or rtpengine. Nothing of the run is left
        behind. Raises InputError for what Linux cannot do, or what this machine lacks.
        """
        from laxity.substrates.linux import run  # noqa: PLC0415 - only this needs it

        overrides = overrides_of(set, policy=policy, seed=seed, duration=duration)
        return run.run(self, overrides, media_server, say or (lambda _: None))

    def fidelity(
        self,
        place: Place | None = None,
        *,
        seed: int | None = None,
        policy: str | None = None,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        keep: str | Path,
        say: Say | None = None,
    ) -> Fidelity:
        """Runs the host in the simulator and on real Xen: how far are they apart?

        See `run_on_xen`; `keep`, a new directory, gets both traces.
        """
        from laxity import fidelity  # noqa: PLC0415 - only this needs it

        overrides = overrides_of(set, policy=policy, seed=seed, duration=duration)
        return fidelity.measure(self, overrides, place, Path(keep), say)

    def trace_metadata(self, overrides: Iterable[str], substrate: str) -> dict[str, Any]:
        """Returns what a trace says of its run before its first record."""
        with core_errors():
            metadata: dict[str, Any] = json.loads(
                self._file.trace_metadata(list(overrides), substrate)
            )
        return metadata

    def measured(
        self,
        overrides: Iterable[str],
        substrate: str,
        completions: list[list[bytes]],
        measured: dict[str, Any],
        trace: Path | None,
        beside: dict[str, Any] | None = None,
        streams: tuple[KeptStream, ...] = (),
    ) -> Run:
        """A run that was not simulated, by the rules of those that are.

        `completions` has for each domain and task when its jobs completed, ns from the start as
        int64 bytes; `measured` what `HostFile.result_of_jobs` of crates/laxity-py takes; `beside`
        what is known of the result without jobs, and `streams` packets of voice.
        """
        listed = list(overrides)
        resolved = self.resolved(listed)
        with core_errors():
            result, times, _ = self._file.result_of_jobs(
                listed, substrate, completions, json.dumps(measured)
            )
        content = json.loads(result) | (beside or {})
        if content["telephony"] is not None:
            content["telephony"] |= {"limits": resolved["calls"]["acceptance"]}
        responses, counted = _responses(resolved, times)
        return Run.from_json(
            content,
            self.origin(listed),
            responses,
            trace,
            streams,
            counted,
        )

    def policies(self, set: str | Iterable[str] = ()) -> list[str]:
        """The policies that the file has parameters for."""
        overrides = overrides_of(set)
        self.resolved(overrides)
        return [policy for policy in POLICIES if self._lacks_for(policy, overrides) is None]

    def compare(
        self,
        policies: Iterable[str] | None = None,
        *,
        seed: int | None = None,
        seeds: int = 1,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        progress: Progress | None = None,
    ) -> Comparison:
        """Runs the host under each policy; by default all that the file has parameters for.

        With several seeds: the host's own and those that follow. The voice of calls is scored.
        """
        overrides = overrides_of(set, seed=seed, duration=duration)
        names, notes = self._compared(policies, overrides)
        of_runs = self._with_seeds(names, overrides, seeds)
        if self.resolved(of_runs[0])["calls"] is None:
            runs = self.run_many(of_runs, progress)
        else:
            runs = []
            # The packets of all runs at once may be too many.
            for start in range(0, len(of_runs), CALLS_AT_A_TIME):
                part = of_runs[start : start + CALLS_AT_A_TIME]
                runs += judged(self.run_many(part, streams=True))
                if progress is not None:
                    progress(len(runs), len(of_runs))
            runs = [replace(run, streams=()) for run in runs]
        return Comparison(tuple(runs), self._origin_of(names, overrides), notes)

    def _with_seeds(
        self, policies: Iterable[str], overrides: list[str], seeds: int
    ) -> list[list[str]]:
        """Of each run of a comparison."""
        if seeds < 1:
            raise InputError(f"policies are compared with at least one seed, not {seeds}")
        first = self.resolved(overrides)["seed"]
        return [
            [*overrides, f"host.policy={policy}", *([f"seed={number}"] if seeds > 1 else [])]
            for policy in policies
            for number in range(first, first + seeds)
        ]

    def compare_on_xen(
        self,
        policies: Iterable[str] | None = None,
        place: Place | None = None,
        *,
        seed: int | None = None,
        seeds: int = 1,
        duration: str | None = None,
        set: str | Iterable[str] = (),
        keep: str | Path | None = None,
        say: Say | None = None,
    ) -> Comparison:
        """Runs the host on real Xen under each policy, one boot after the other.

        See `run_on_xen`; `keep` gets a directory for each policy, with several seeds for each run.
        """
        overrides = overrides_of(set, seed=seed, duration=duration)
        names, notes = self._compared(policies, overrides)
        of_runs = self._with_seeds(names, overrides, seeds)
        hosts = [self.resolved(of_run) for of_run in of_runs]
        _refuse_unless_changeable(names, place)
        runs = [
            self.run_on_xen(
                place,
                set=of_run,
                keep=None
                if keep is None
                else Path(keep)
                / (host["policy"] if seeds == 1 else f"{host['policy']}-{host['seed']}"),
                say=say,
            )
            for of_run, host in zip(of_runs, hosts, strict=True)
        ]
        origin = replace(self._origin_of(names, overrides), options=runs[0].origin.options)
        return Comparison(tuple(runs), origin, notes)

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
        for policy in POLICIES if policies is None else names:
            why = self._lacks_for(policy, overrides)
            if why is not None:
                lacks.setdefault(why, []).append(policy)
        said = "Not compared: " if policies is None else ""
        return names, tuple(f"{said}{', '.join(of)}: {why}" for why, of in lacks.items())

    def _origin_of(self, policies: list[str], overrides: list[str]) -> Origin:
        """Of a comparison."""
        return self.origin([*overrides, f"host.policy={'|'.join(policies)}"])

    def sweep(
        self,
        set: str | Iterable[str],
        *,
        seed: int | None = None,
        duration: str | None = None,
        seeds: int = 1,
        policies: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> Sweep:
        """Runs the host at each point of ranges and lists in `set`: "draw.load=0.3..1.0:0.05".

        With several seeds: the host's own and those that follow. Raises InputError for a range that
        is wrong.
        """
        if seeds < 1:
            raise InputError(f"a sweep has at least one seed, not {seeds}")
        settings, names = overrides_of(set, seed=seed, duration=duration), list(policies)
        plan = Plan.parse(settings, names, seeds)
        first = self.resolved(next(plan.overrides())[:-1])["seed"]
        plan = replace(plan, seeds=range(first, first + seeds))
        overrides = list(plan.overrides())
        self._begin(overrides)
        with core_errors():
            found = self._file.sweep(overrides, _of(progress, len(overrides)))
        # One run for each profile that is swept over.
        first_with = {
            tuple(each for each in run if each.startswith(_COSTS)): run for run in overrides
        }
        used = [
            profile for run in first_with.values() for profile in self.resolved(run)["profiles"]
        ]
        profiles = tuple(dict.fromkeys(profiles_of(used)))
        policy_axis = [f"host.policy={'|'.join(names)}"] if names else []
        origin = self.origin([*settings, *policy_axis])
        return Sweep.collect(plan, found, origin, profiles)

    def run_many(
        self,
        overrides: Sequence[Sequence[str]],
        progress: Progress | None = None,
        *,
        streams: bool = False,
    ) -> list[Run]:
        """One run for each list of overrides, on all CPUs; without response times.

        All are checked before any runs. With `streams` the runs have the packets of their sampled
        streams, which are large.
        """
        lists = [list(each) for each in overrides]
        self._begin(lists)
        with core_errors():
            results = self._file.run_many(lists, _of(progress, len(overrides)), streams)
        return [
            Run.from_json(
                json.loads(result), self.origin(list(of_run)), streams=streams_of_core(kept)
            )
            for (result, kept), of_run in zip(results, overrides, strict=True)
        ]

    def estimate(self, overrides: Sequence[Sequence[str]]) -> Estimate:
        """What a run for each list of overrides takes together; all of them are checked."""
        with core_errors():
            return Estimate(**json.loads(self._file.estimate([list(each) for each in overrides])))

    def _begin(self, overrides: Sequence[Sequence[str]], trace: Path | None = None) -> None:
        """Says what takes a while; InputError for what takes too much."""
        estimate, machine = self.estimate(overrides), Machine.this(trace)
        estimate.refuse_beyond(machine, long=self.long)
        if self.say is not None and estimate.time_ns(machine) >= SAID_NS:
            self.say(estimate.say(machine))

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

    def origin(self, overrides: Iterable[str]) -> Origin:
        """What a result of this file with these overrides was made from."""
        return Origin(self.text, self.name, tuple(overrides))


def overrides_of(
    set: str | Iterable[str],
    *,
    policy: str | None = None,
    seed: int | None = None,
    duration: str | None = None,
) -> list[str]:
    """All as `--set` takes them; what has an option of its own comes last and so counts."""
    settings = [set] if isinstance(set, str) else list(set)
    named = {"host.policy": policy, "seed": seed, "duration": duration}
    return [*settings, *(f"{key}={value}" for key, value in named.items() if value is not None)]


def _refuse_unless_changeable(policies: list[str], place: Place | None) -> None:
    """Raises InputError for policies that a real host's running Xen cannot have in turn."""
    from laxity.substrates.xen.executors import RealHost  # noqa: PLC0415 - as above
    from laxity.substrates.xen.plan import SWITCHABLE  # noqa: PLC0415 - only this needs it

    others = [policy for policy in policies if policy not in SWITCHABLE]
    if isinstance(place, RealHost) and others and len(policies) > 1:
        raise InputError(
            f"a running Xen cannot change its policy to or from {', '.join(others)}",
            f"add --policy {','.join(sorted(SWITCHABLE))}, or leave --at out: the emulated "
            "machine boots for each policy",
        )


def _of(progress: Progress | None, total: int) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(done, total)


def _responses(
    resolved: dict[str, Any], times: list[list[_core.Times]]
) -> tuple[Responses, Counted]:
    responses: Responses = {}
    counted: Counted = {}
    for domain, of_domain in zip(resolved["domains"], times, strict=True):
        for task, (response_ns, jobs) in zip(domain["tasks"], of_domain, strict=True):
            found, key = _int64(response_ns), (domain["name"], task["name"])
            if jobs is None:
                responses[key] = found
            else:
                counted[key] = Counts(found, _int64(jobs))
    return responses, counted


def _int64(content: bytes) -> Times:
    return np.frombuffer(content, "<i8").astype(np.int64)
