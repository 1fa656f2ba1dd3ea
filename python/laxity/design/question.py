"""What analysis is asked of a host, and which of its demands count."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from laxity.errors import core_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.resolved import Resolved
    from laxity.resolved_schema import ResolvedHost

Demand = tuple[str, str | None]
"""A domain and its task; no task stands for the budget and the period that the file gives it."""


class OpenDomain(TypedDict):
    """What the file leaves open of a domain."""

    path: str
    affinity: bool
    """Whether its CPUs are open."""
    is_given: bool
    """Whether the file gives its budget and period."""
    needed: float
    """The part of a CPU that it needs at least."""
    share: float | None
    """The least part of a CPU with which it holds by itself; None if there is none."""


class Opened(TypedDict):
    """What the file leaves open; see `open` of crates/laxity-py."""

    host: ResolvedHost
    """The host with placeholders."""
    policies: list[str]
    """Those that may be chosen."""
    domains: list[OpenDomain]


class Conflicting(TypedDict):
    """A demand that cannot hold beside others, as far as it is read here."""

    domain: str
    task: str


class Answer(TypedDict, total=False):
    """A design, as far as it is read here, or why there is none (crates/laxity-design)."""

    verdict: str
    policy: str
    values: list[tuple[str, str]]
    """With the verdict `holds`: the values, each with its path, as TOML."""
    conflict: list[Conflicting]
    given: list[str]
    """The domains of other budgets in the conflict."""


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

    def opened(self) -> Opened:
        """What the file leaves open."""
        overrides = [*self.host.overrides, *self.overrides]
        with core_errors():
            found: Opened = json.loads(self.host.file.open(overrides, self.any_phase, self.demands))
        return found

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
            found: Answer = json.loads(
                self.host.file.design(overrides, json.dumps(question), self.demands)
            )
        return found


def demands_of(opened: Opened) -> list[Demand]:
    """All demands of a host: the tasks first, so that budgets that are too much are blamed."""
    domains = list(zip(opened["host"]["domains"], opened["domains"], strict=False))
    tasks = [(of["name"], task["name"]) for of, _ in domains for task in of["tasks"]]
    return [*tasks, *((of["name"], None) for of, open_ in domains if open_["is_given"])]


def needs_of(opened: Opened) -> dict[Demand, float]:
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
