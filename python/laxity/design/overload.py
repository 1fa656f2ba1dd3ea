"""What the tasks of a host need, and those that need more than there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.design.placement import too_much
from laxity.resolved import task_paths
from laxity.results.design import Demand

if TYPE_CHECKING:
    from laxity.resolved_schema import Domain, ResolvedHost


def load(domain: Domain) -> float:
    """The part of one CPU that the tasks of a domain need."""
    return sum(task["cost_ns"] / task["period_ns"] for task in domain["tasks"])


def load_of(host: ResolvedHost) -> float:
    """The part of all CPUs' time that all tasks need."""
    return sum(load(domain) for domain in host["domains"]) / host["cpus"]


def overload(host: ResolvedHost, missed_max: float) -> tuple[Demand, ...]:
    """Tasks that need more time than all CPUs have, none of which can be left out; or none."""
    demands = {
        (domain["name"], task["name"]): Demand(
            domain["name"], task["name"], task["cost_ns"], task["period_ns"], task["deadline_ns"]
        )
        for _, domain, task in task_paths(host)
    }
    needs = {of: demand.cost_ns / demand.period_ns for of, demand in demands.items()}
    return tuple(demands[of] for of in too_much(needs, host["cpus"] / (1 - missed_max)))
