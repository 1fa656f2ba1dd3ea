"""GENERATED"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from laxity.results.check import DomainCheck


@dataclass(frozen=True)
class Distribution:
    """Quantiles, ns, by nearest rank; None where there are no values."""

    p50: int | None
    p99: int | None
    max: int | None


@dataclass(frozen=True)
class TaskResult:
    """A task's jobs."""

    name: str
    jobs: int
    """Those whose deadline fell within the run."""
    missed: int
    """Those of them that were not complete at their deadline."""
    miss_ratio: float
    unfinished: int
    """Those of `missed` that were not even complete when the run ended; in the distributions they
    stand with the time that they had by then."""
    response_ns: Distribution
    """From arrival to completion, of all jobs."""
    lateness_ns: Distribution
    """From deadline to completion, of the missed jobs."""
    relative_error: float | None = None
    """The medians and 99 % quantiles may be longer than they were by this part of the response
    time; None if they are exact. They are not for tasks of `Run.counted`."""


@dataclass(frozen=True)
class Waits:
    """Times from when a VCPU could run to when it did: its scheduling latency."""

    count: int
    total_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        """The mean."""
        return self.total_ns / self.count


@dataclass(frozen=True)
class DomainResult:
    """A domain's jobs and CPU time."""

    name: str
    jobs: int
    missed: int
    miss_ratio: float
    cpu_ns: int
    """CPU time of its VCPUs, the scheduler's own costs not counted."""
    reserved: float | None
    """CPUs that the budgets of its VCPUs reserve; None under a policy that knows no budgets."""
    stalled_ns: int
    """What of it went into fetching what was not in a cache."""
    cache_misses: int
    """Lines that were fetched."""
    waits: Waits | None
    """How long its VCPUs waited for a CPU; None where that was not measured."""
    tasks: tuple[TaskResult, ...]


@dataclass(frozen=True)
class Overhead:
    """What the scheduler itself cost; None where that was not measured."""

    schedule_calls: int | None
    context_switches: int | None
    schedule_ns: int | None
    context_switch_ns: int | None
    loss_ratio: float | None
    """Both times, of the time of all CPUs."""


@dataclass(frozen=True)
class Profile:
    """A profile of costs, whose numbers are of one machine."""

    of: str
    """`scheduling` or `packets`."""
    name: str
    source: str
    """Where its numbers come from: measured, fitted or estimated, and on which machine."""


def profiles_of(content: Iterable[Mapping[str, str]]) -> tuple[Profile, ...]:
    """From the list in a result."""
    return tuple(Profile(**profile) for profile in content)


@dataclass(frozen=True)
class Engine:
    """What the run cost whoever ran it."""

    events: int
    wall_ns: int
    """The only part of a result that two runs do not share."""


@dataclass(frozen=True)
class Machine:
    """What the bytes of a run on the emulated machine depend on, beside the host file.

    Each part is a digest: see `laxity schema result`.
    """

    fingerprint: str
    """Of all the others."""
    qemu: str
    firmware: str
    xen: str
    kernel: str
    dom0: str
    programs: str


def _domain(content: Mapping[str, Any]) -> DomainResult:
    tasks = tuple(
        TaskResult(
            **{
                **task,
                "response_ns": Distribution(**task["response_ns"]),
                "lateness_ns": Distribution(**task["lateness_ns"]),
            }
        )
        for task in content["tasks"]
    )
    waits = content["waits"] and Waits(**content["waits"])
    # Older results do not say what is reserved.
    return DomainResult(**{"reserved": None, **content, "waits": waits, "tasks": tasks})


def _domain_json(domain: DomainResult | DomainCheck) -> dict[str, Any]:
    content = asdict(domain)
    tasks = list(content["tasks"])
    for task in tasks:
        if task.get("relative_error", 0) is None:
            del task["relative_error"]
    return {**content, "tasks": tasks}
