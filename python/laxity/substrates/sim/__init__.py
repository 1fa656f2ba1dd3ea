"""The simulator: a deterministic model of a host, which needs nothing installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from laxity.substrates.substrate import Substrate, option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from laxity.errors import InputError
    from laxity.progress import Progress, Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.substrates.sim.estimate import Estimate
    from laxity.sweep import Rows
    from laxity.workers.workers import Workers


@dataclass(frozen=True)
class Sim(Substrate):
    """Simulates hosts on this machine's CPUs."""

    name: ClassVar[str] = "sim"
    label: ClassVar[str] = "the simulator"
    summary: ClassVar[str] = "the simulator"
    setting: ClassVar[str] = ""
    is_model: ClassVar[bool] = True
    traces: ClassVar[bool] = True

    long: bool = option(
        True,
        "--long",
        "Also run what is estimated to take more than an hour.",
        command_line=False,
    )

    @property
    def repeatable(self) -> bool:
        """See Substrate."""
        return True

    @property
    def repeats(self) -> str:
        """See Substrate."""
        return "the same file and seed give the same results, on every machine"

    @property
    def words(self) -> tuple[str, ...]:
        """See Substrate: it is the default, and its results do not depend on its option."""
        return ()

    def refusals(self, host: Resolved) -> list[InputError]:
        """See Substrate: the simulator models all that a host file can say."""
        del host
        return []

    def excess(self, hosts: Sequence[Resolved]) -> InputError | None:
        """See Substrate: more memory than is free, or more time than an hour unless `long`."""
        from laxity.substrates.sim.estimate import Resources

        return self.estimate(hosts).excess(Resources.free(), long=self.long)

    def run(
        self,
        host: Resolved,
        *,
        trace: Path | None = None,
        keep: Path | None = None,
        seen: Path | None = None,
        say: Say,
        progress: Progress | None = None,
    ) -> Run:
        """See Substrate; nothing is left but the trace."""
        del keep
        import msgspec

        from laxity.errors import core_errors
        from laxity.results.jobs import responses_of_core
        from laxity.results.run import Run
        from laxity.results.schema import RunResult
        from laxity.results.streams import streams_of_core

        self._begin([host], say, trace)
        with core_errors():
            result, times, streams = host.complete.run(
                None if trace is None else str(trace),
                _of(progress, host),
                None if seen is None else str(seen),
            )
        found = msgspec.json.decode(result, type=RunResult)
        responses, counted = responses_of_core(found, times)
        return Run.of(found, host.origin(), responses, trace, streams_of_core(streams), counted)

    def run_many(
        self,
        hosts: Sequence[Resolved],
        *,
        keep: Callable[[Resolved], Path | None] = lambda _: None,
        say: Say,
        progress: Progress | None = None,
        streams: bool = False,
        workers: Workers | None = None,
    ) -> list[Run]:
        """See Substrate; on all CPUs. The runs have no response times."""
        del keep
        import msgspec

        from laxity.results.run import Run
        from laxity.results.schema import RunResult
        from laxity.results.streams import streams_of_core
        from laxity.substrates.sim.many import results

        self._begin(hosts, say, workers=workers)
        run_many = partial(hosts[0].file.run_many, streams=streams)
        found = results(run_many, [host.overrides for host in hosts], progress, workers)
        runs = (run for _, of_part in found for run in of_part)
        return [
            Run.of(
                msgspec.json.decode(result, type=RunResult),
                host.origin(),
                streams=streams_of_core(of_run),
            )
            for (result, of_run), host in zip(runs, hosts, strict=True)
        ]

    def rows(
        self,
        hosts: Sequence[Resolved],
        *,
        say: Say,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> Iterator[Rows]:
        """See Substrate; on all CPUs, in columns from the start: there may be a million runs."""
        from laxity.results.records import decoded
        from laxity.results.schema import Profile
        from laxity.substrates.sim.many import results
        from laxity.sweep import Rows

        self._begin(hosts, say, workers=workers)
        # One run for each profile of costs that is swept over.
        first_with = {
            tuple(each for each in host.overrides if each.startswith(_COSTS)): host
            for host in hosts
        }
        used = [profile for host in first_with.values() for profile in host.host["profiles"]]
        profiles = tuple(dict.fromkeys(decoded(used, tuple[Profile, ...])))
        overrides = [host.overrides for host in hosts]
        for first, found in results(hosts[0].file.sweep, overrides, progress, workers):
            yield Rows.of_columns(first, *found, profiles)

    def estimate(self, hosts: Sequence[Resolved]) -> Estimate:
        """Returns what the runs of these hosts take together; all of them are checked."""
        import msgspec

        from laxity.errors import core_errors
        from laxity.substrates.sim.estimate import Estimate

        match hosts:
            case [host]:
                found = host.complete.estimate()
            case _:
                with core_errors():
                    found = hosts[0].file.estimate([host.overrides for host in hosts])
        return msgspec.json.decode(found, type=Estimate)

    def _begin(
        self,
        hosts: Sequence[Resolved],
        say: Say,
        trace: Path | None = None,
        workers: Workers | None = None,
    ) -> None:
        """Says what takes a while; InputError for what takes too much."""
        from laxity.substrates.sim.estimate import SAID_NS, Resources

        estimate, resources = self.estimate(hosts), Resources.free(trace, workers)
        if excess := estimate.excess(resources, long=self.long):
            raise excess
        if estimate.time_ns(resources) >= SAID_NS:
            say(estimate.say(resources))


SUBSTRATE = Sim

_COSTS = ("host.costs=", "host.network=")
"""Overrides that choose profiles of costs."""


def _of(progress: Progress | None, host: Resolved) -> Callable[[int], None] | None:
    if progress is None:
        return None
    duration_ns = host.host["duration_ns"]
    return lambda done_ns: progress(done_ns, duration_ns)
