"""Demands of a fleet file that cannot hold together, as few as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity.fleet.problem import Asked, Problem

ORDER = ("apart", "hosts", "minimum", "protected", "guest")
"""The demands that are tried first are those that are easiest to give up."""


def minimal(
    problem: Problem, is_impossible: Callable[[Problem], bool | None]
) -> tuple[Problem, bool]:
    """The problem with a minimal set of demands that is impossible still, and whether it is known.

    A deletion filter (Chinneck and Dravnieks, 1991), which drops many demands at a time at first.
    Without any one of the demands that are left, no impossibility was proved; it is known that the
    set is minimal if `is_impossible` was never None there: neither proved nor refuted.
    """
    size = max(len(problem.asked) // 2, 1)
    is_known = True
    while True:
        asked = sorted(problem.asked, key=lambda demand: (ORDER.index(demand.what), demand))
        for begin in range(0, len(asked), size):
            dropped = [demand for demand in asked[begin : begin + size] if demand in problem.asked]
            if not dropped:
                continue
            fewer = problem.with_only(problem.asked.difference(dropped))
            answer = is_impossible(fewer)
            if answer:
                problem = fewer
            elif answer is None and size == 1:
                is_known = False
        if size == 1:
            return problem, is_known
        size = max(size // 2, 1)


def said(demand: Asked, names: list[str]) -> str:
    """A demand in words; `names` are those of all guests."""
    one = names[demand.guests[0]]
    return {
        "guest": f"{one} runs",
        "protected": f"{one} has a standby",
        "hosts": f"{one} is on one of its hosts",
        "minimum": f"{one} gets its minimum of the link",
        "apart": f"{one} and {names[demand.guests[-1]]} share no host",
    }[demand.what]
