"""What analysis is asked of a host, and which of its demands count."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laxity.errors import core_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.resolved import Resolved

Answer = dict[str, Any]

Demand = tuple[str, str | None]
"""A domain and its task; no task stands for the budget and the period that the file gives it."""


@dataclass(frozen=True)
class Question:
    """A question for the values with which a host holds."""

    host: Resolved
    overrides: tuple[str, ...] = ()
    growth: float | None = None
    most_room: bool = False
    any_phase: bool = False
    demands: tuple[Demand, ...] | None = None
    """Those that count: domains that have none of them are left out. None: all."""

    def opened(self) -> Answer:
        """What the file leaves open; see `open` of crates/laxity-py."""
        overrides = [*self.host.overrides, *self.overrides]
        with core_errors():
            found = self.host.file.open(overrides, self.any_phase, self.demands)
        return dict(json.loads(found))

    def answer(self, cpus: Iterable[str] = (), *, values_only: bool) -> Answer:
        """The design with overrides of CPUs; with `values_only` without its reasons."""
        question = {
            "growth": self.growth,
            "most_room": self.most_room,
            "any_phase": self.any_phase,
            "values_only": values_only,
        }
        overrides = [*self.host.overrides, *self.overrides, *cpus]
        with core_errors():
            found = self.host.file.design(overrides, json.dumps(question), self.demands)
        return dict(json.loads(found))


def demands_of(opened: Answer) -> list[Demand]:
    """All demands of a host: the tasks first, so that budgets that are too much are blamed."""
    domains = list(zip(opened["host"]["domains"], opened["domains"], strict=False))
    tasks = [(of["name"], task["name"]) for of, _ in domains for task in of["tasks"]]
    return [*tasks, *((of["name"], None) for of, open_ in domains if open_["is_given"])]


def needs_of(opened: Answer) -> dict[Demand, float]:
    """What each demand needs at least, in CPUs: the tasks of a domain share what is given to it."""
    domains = list(zip(opened["host"]["domains"], opened["domains"], strict=False))
    needs: dict[Demand, float] = {
        (of["name"], task["name"]): task["cost_ns"] / task["period_ns"]
        for of, open_ in domains
        for task in of["tasks"]
        if not open_["is_given"]
    }
    return needs | {
        (of["name"], None): open_["needed"] for of, open_ in domains if open_["is_given"]
    }
