"""What the tasks of a host need, and those that need more than there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def is_too_much(demands: list[Demand]) -> bool:
        needed = sum(demand.cost_ns / demand.period_ns for demand in demands)
        return needed * (1 - missed_max) > host["cpus"]

    demands = [
        Demand(
            domain["name"], task["name"], task["cost_ns"], task["period_ns"], task["deadline_ns"]
        )
        for _, domain, task in task_paths(host)
    ]
    if not is_too_much(demands):
        return ()
    for demand in sorted(demands, key=lambda demand: demand.cost_ns / demand.period_ns):
        fewer = [each for each in demands if each is not demand]
        if is_too_much(fewer):
            demands = fewer
    return tuple(demands)
