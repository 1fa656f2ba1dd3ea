"""Runs hosts by the hundred, and tells how far they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from laxity import _core
from laxity.errors import core_errors
from laxity.substrates.sim.many import results

from laxity_reproduce import published

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laxity.resolved_schema import ResolvedHost
    from laxity.workers.workers import Workers

    Progress = Callable[[int, int], None]
    """Is called a few times a second with how much is done, of how much."""

PROGRESS_STEPS = 1000


class Outcome(NamedTuple):
    """What experiments use of a run's result. Lists are by domain."""

    jobs: list[int]
    missed: list[int]
    cpu_ns: list[int]
    schedule_calls: int
    context_switches: int
    schedule_ns: int
    context_switch_ns: int
    loss_ratio: float

    @property
    def miss_percent(self) -> float:
        """The part of all domains' jobs that missed their deadlines."""
        return 100 * sum(self.missed) / sum(self.jobs)

    @property
    def domain_miss_percent(self) -> list[float]:
        """For each domain; 0 for one without jobs."""
        return [
            100 * missed / jobs if jobs else 0.0
            for missed, jobs in zip(self.missed, self.jobs, strict=True)
        ]


def outcome(text: str) -> Outcome:
    """From the JSON of a result."""
    result = json.loads(text)
    domains, overhead = result["domains"], result["overhead"]
    return Outcome(
        jobs=[domain["jobs"] for domain in domains],
        missed=[domain["missed"] for domain in domains],
        cpu_ns=[domain["cpu_ns"] for domain in domains],
        schedule_calls=overhead["schedule_calls"],
        context_switches=overhead["context_switches"],
        schedule_ns=overhead["schedule_ns"],
        context_switch_ns=overhead["context_switch_ns"],
        loss_ratio=overhead["loss_ratio"],
    )


class Lab:
    """The hosts of one paper, how many task sets to draw, and whether in a hurry."""

    def __init__(
        self,
        paper: str,
        *,
        seeds: int,
        quick: bool,
        progress: Progress | None,
        workers: Workers | None = None,
    ) -> None:
        """`seeds` task sets are drawn, from the seeds 1, 2, 3 and so on."""
        self.paper = paper
        self.seeds = range(1, seeds + 1)
        self.quick = quick
        self.known: dict[Any, Any] = {}
        """What was measured for one experiment, for those after it."""
        self._progress = progress
        self._workers = workers
        self._from = self._upto = 0.0

    def part(self, start: float, end: float) -> None:
        """What comes next takes the whole from `start` to `end`, as parts of 1."""
        self._from, self._upto = start, end

    def host(self, name: str) -> _core.HostFile:
        """A host file of the paper."""
        return _core.HostFile(published.host_file(self.paper, name), f"{name}.toml")

    def runs(
        self, host: _core.HostFile, overrides: Sequence[Sequence[str]], share: float = 1.0
    ) -> list[Outcome]:
        """What experiments on tasks use of `results`."""
        return [outcome(result) for result in self.results(host, overrides, share)]

    def results(
        self, host: _core.HostFile, overrides: Sequence[Sequence[str]], share: float = 1.0
    ) -> list[str]:
        """Runs the host once with each list of overrides: the results, as JSON.

        Takes `share` of the rest of the part.
        """
        tell = self.teller(len(overrides), share)
        found = results(
            host.run_many,
            [list(each) for each in overrides],
            lambda done, _: tell(done),
            self._workers,
        )
        return [result for _, of_part in found for result, _ in of_part]

    def teller(self, total: int, share: float = 1.0) -> Callable[[int], None]:
        """Takes `share` of the rest of the part; is to be told how many of `total` are done."""
        start, self._from = self._from, self._from + share * (self._upto - self._from)
        end = self._from

        def tell(done: int) -> None:
            if self._progress is not None:
                at = start + (end - start) * done / total
                self._progress(int(at * PROGRESS_STEPS), PROGRESS_STEPS)

        return tell

    def resolved(self, host: _core.HostFile, overrides: Sequence[str]) -> ResolvedHost:
        """The host that results, in base units."""
        with core_errors():
            resolved: ResolvedHost = json.loads(host.complete(list(overrides)).json())
        return resolved
