"""What the experiments of RT-Xen share (sections 5.3 to 5.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity_reproduce import published, statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity import _core
    from laxity.resolved_schema import Task

    from laxity_reproduce.lab import Lab

FACTS = published.facts("rt_xen")

POLICIES: list[str] = FACTS["policies"]

SERVERS = [policy for policy in POLICIES if policy not in ("credit", "sedf")]
"""Those that RT-Xen adds."""

PATTERNS: list[str] = list(FACTS["table_3"]["period_ms"])
"""The patterns of the domains' shares; a host file each."""

DOMAINS: list[int] = FACTS["table_3"]["domain"]

EVENT_DRIVEN = "host.quantum=0 ns"

TAIL = 0.025
"""What the central 95 % leave on either side."""


def under(policy: str) -> list[str]:
    """Overrides for a policy as the paper ran it.

    The quantum is RT-Xen's. SEDF, left as Xen had it, runs a VCPU for up to its whole slice
    (section 5.3).
    """
    overrides = [f"host.policy={policy}"]
    return [*overrides, EVENT_DRIVEN] if policy == "sedf" else overrides


def drawn_tasks(lab: Lab, host: _core.HostFile, seed: int) -> dict[str, list[Task]]:
    """The task set that `seed` draws: each domain's tasks, by name, as resolved."""
    domains = lab.resolved(host, [f"seed={seed}"])["domains"]
    return {domain["name"]: domain["tasks"] for domain in domains}


def given_tasks(domain: str, tasks: Iterable[Task]) -> str:
    """The override that gives a domain these tasks."""
    entries = (
        f'{{ name = "{task["name"]}", cost = "{task["cost_ns"]} ns",'
        f' period = "{task["period_ns"]} ns" }}'
        for task in tasks
    )
    return f"domain.{domain}.tasks=[{', '.join(entries)}]"


def interval_text(low: float, high: float, unit: str = "") -> str:
    """For people."""
    return f"{low:.3g} to {high:.3g}{unit}"


def largest_load(shares: dict[int, float]) -> dict[int, float]:
    """The probability of each load to be the largest one that passes.

    One task set is drawn for each load, as in the paper; `shares` are their probabilities to pass.
    Load 0 stands for none.
    """
    distribution: dict[int, float] = {}
    none_above = 1.0
    for load in sorted(shares, reverse=True):
        distribution[load] = none_above * shares[load]
        none_above *= 1 - shares[load]
    distribution[0] = none_above
    return distribution


def central(distribution: dict[int, float]) -> statistics.Interval:
    """The central 95 % of a distribution over loads."""
    below = 0.0
    inside = []
    for load in sorted(distribution):
        upto = below + distribution[load]
        if upto > TAIL and below < 1 - TAIL and distribution[load] > 0:
            inside.append(load)
        below = upto
    return statistics.Interval(min(inside), max(inside))
