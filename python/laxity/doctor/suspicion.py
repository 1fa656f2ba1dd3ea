"""What a rule suspects, and what rules ask of a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.policies import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from laxity.resolved_schema import Domain, ResolvedHost, Task

ANALYSIS = "docs/explanation/analysis.md"
POLICIES = "docs/explanation/policies.md"
RT_XEN = "RT-Xen, EMSOFT 2011"
DAVIS_BURNS = "Davis and Burns, RTSS 2005"
SOFT_REAL_TIME = "Supporting Soft Real-Time Tasks in the Xen Hypervisor, VEE 2010"
TELEPHONY = "Enterprise Telephony on Virtualized Multi-Core Platforms, IPTComm 2009"
LINUX_BANDWIDTH = "Linux, Documentation/scheduler/sched-bwc.rst"
LINUX_CGROUPS = "Linux, Documentation/admin-guide/cgroup-v2.rst, section CPU"
LINUX_FEATURES = "Linux, kernel/sched/features.h"
HIGH_AVAILABILITY = "High-Availability for IP Telephony using Virtual Machines, IMSAA 2010"


@dataclass(frozen=True)
class Suspicion:
    """Something that may go wrong, and a change that should help."""

    where: str
    """The key of the host file that it is about: `domain.control.budget`."""
    what: str
    """A sentence."""
    remedy: tuple[str, ...]
    """Changes of the host file, each as `--set` takes it; made together."""
    reference: str
    """The paper or the page that states it."""


if TYPE_CHECKING:
    Rule = Callable[[ResolvedHost], Iterable[Suspicion]]


def uses(host: ResolvedHost, parameter: str) -> bool:
    """Whether the host's policy goes by that parameter."""
    return TABLE[host["policy"]].uses(parameter)


def utilization(tasks: Iterable[Task]) -> float:
    """The part of one CPU that tasks need."""
    return sum(float(task["cost_ns"] / task["period_ns"]) for task in tasks)


def demand(domain: Domain) -> float:
    """The part of one CPU that a domain's tasks and its kernel's ticks need, of all its VCPUs."""
    tick = domain["tick"]
    ticks = tick["cost_ns"] / tick["period_ns"] * len(domain["vcpus"]) if tick else 0.0
    return utilization(domain["tasks"]) + float(ticks)


def share(domain: Domain) -> float:
    """The part of one CPU that the budget of each of the domain's VCPUs is; 0 without a budget."""
    parameters = domain["parameters"]
    period_ns = parameters["period_ns"]
    return float(parameters["budget_ns"] / period_ns) if period_ns else 0.0


def with_tasks(host: ResolvedHost) -> Iterator[Domain]:
    """The domains that have deadlines."""
    return (domain for domain in host["domains"] if domain["tasks"])


def with_budgets(host: ResolvedHost) -> Iterator[Domain]:
    """The domains that have deadlines, and a budget that is less than the whole CPU."""
    if uses(host, "budget"):
        yield from (domain for domain in with_tasks(host) if 0 < share(domain) < 1)


def rounded_up_ns(ns: float) -> int:
    """A time in three digits, not shorter."""
    step_ns = int(10 ** max(0, len(str(int(ns))) - 3))
    return -(-int(ns) // step_ns) * step_ns


def has_busy(host: ResolvedHost) -> bool:
    """Whether a domain takes all the CPU time that it can get."""
    return any(domain["cpu_bound"] for domain in host["domains"])
