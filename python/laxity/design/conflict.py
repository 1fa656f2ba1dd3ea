"""The fewest demands that no placement holds, and the lower costs that would be enough."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from laxity.design.overload import too_much
from laxity.design.placement import Outcome, placed
from laxity.design.question import demands_of, needs_of
from laxity.resolved import task_paths
from laxity.results.design import Relief

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.design.placement import Learned
    from laxity.design.question import Demand, Question

RELIEF_STEPS = 7
"""Steps of the search for the least relief: one part in a hundred."""


def fewest(question: Question, learned: Learned) -> tuple[tuple[Demand, ...], bool]:
    """Demands that hold on no placement, and whether it is known that none can be left out.

    A deletion filter (Chinneck and Dravnieks, 1991), which first leaves out halves and quarters of
    the demands, until each was tried and none can be left out. `question` is impossible.
    """
    opened = question.opened()
    kept = too_much(needs_of(opened), opened["host"]["cpus"]) or demands_of(opened)
    size = -(-len(kept) // 2)
    while True:
        before, start, verdicts = len(kept), 0, set()
        while start < len(kept):
            without = kept[:start] + kept[start + size :]
            verdict = _verdict(replace(question, demands=tuple(without)), learned)
            verdicts.add(verdict)
            if verdict == Outcome.IMPOSSIBLE.value:
                kept = without
            else:
                start += size
        if size == 1 and len(kept) == before:
            return tuple(kept), Outcome.UNKNOWN.value not in verdicts
        size = -(-size // 2)


def _verdict(question: Question, learned: Learned) -> str:
    if not question.demands:
        return "holds"
    if learned.left <= 0:
        return Outcome.UNKNOWN.value
    learned.looking(f"{len(question.demands)} demands that may be in conflict")
    learned.left -= len({domain for domain, _ in question.demands})
    return placed(question, learned, values_only=True).verdict


def reliefs(question: Question, demands: Iterable[Demand], learned: Learned) -> list[Relief]:
    """Lower costs of one task with which everything holds on some placement, the smallest first."""
    costs = {
        (domain["name"], task["name"]): (path, task["cost_ns"])
        for path, domain, task in task_paths(question.opened()["host"])
    }
    found = []
    for demand in demands:
        if demand not in costs:
            continue
        path, cost_ns = costs[demand]

        def at(
            factor: float, demand: Demand = demand, path: str = path, cost_ns: int = cost_ns
        ) -> tuple[int, str] | None:
            if learned.left <= 0:
                return None
            lower_ns = max(math.ceil(cost_ns * factor), 1)
            lower = replace(question, overrides=(*question.overrides, f"{path}.cost={lower_ns} ns"))
            learned.looking(f"{demand[0]}/{demand[1]} with {100 * factor:.3g} % of its cost")
            result = placed(lower, learned, values_only=True, changed=demand)
            return (lower_ns, result.found["policy"]) if result.verdict == "holds" else None

        held, failed = 0.0, 1.0
        relief = at(held)
        for _ in range(RELIEF_STEPS if relief else 0):
            factor = (held + failed) / 2
            less = at(factor)
            if less:
                held, relief = factor, less
            else:
                failed = factor
        if relief:
            cost_ns, policy = relief
            found.append(Relief(demand[0], demand[1] or "", cost_ns, 1 - held, policy))
    return sorted(found, key=lambda relief: relief.part)
