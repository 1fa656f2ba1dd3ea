"""What the tasks of a host need, and those that need more than there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from laxity.resolved import task_paths
from laxity.results.design import Demand

if TYPE_CHECKING:
    from laxity.resolved_schema import Domain, ResolvedHost


EPSILON = 1e-9

T = TypeVar("T")


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


def too_much(needs: dict[T, float], have: float) -> list[T]:
    """Demands that need more than there is, none of which can be left out; none if all fit."""
    total = sum(needs.values())
    if total <= have + EPSILON:
        return []
    kept = dict(needs)
    for demand in sorted(needs, key=lambda demand: needs[demand]):
        if total - needs[demand] > have + EPSILON:
            total -= kept.pop(demand)
    return list(kept)
