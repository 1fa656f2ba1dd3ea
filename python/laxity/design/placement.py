"""CPUs for domains: worst fit first, and a constraint solver where that fails.

The solver is OR-Tools' CP-SAT. Each set of demands that analysis finds too much for one CPU becomes
a constraint on their domains, for that CPU alone where domains of given CPUs are on it, and the
solver places all anew (logic-based Benders decomposition, Hooker and Ottosson, 2003), until all
CPUs hold or no placement is left. What was learned of some demands holds for all sets that have
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from laxity.design.overload import EPSILON
from laxity.design.question import Answer, demands_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity.design.question import Demand, Opened, Question
    from laxity.progress import Say

PLACEMENTS_MAX = 50
"""Placements of the solver that are tried, at most."""

PLACED_MAX = 300
"""Domains that the solver places in all attempts together: an attempt designs all of them."""

SEARCHED_MAX = 1_000
"""Domains in all designs by which the fewest demands in conflict are found, or their reliefs."""

PARTS = 1_000_000
"""The solver counts in whole parts of a CPU."""

SOLVER_WORK = 2.0
"""The solver's limit, in its own units of work: its answer depends on no machine's speed."""

SOLVER_GAP = 0.02
"""The fullest CPU may be so much fuller than need be: what holds is for analysis to say."""


class Outcome(Enum):
    """Why there is no placement."""

    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Cut:
    """Demands that do not hold with their domains on some CPUs."""

    demands: frozenset[Demand]
    cpus: dict[str, int]
    """A CPU for each of their domains that can be placed."""
    is_proved: bool
    """Whether the file gives the CPUs of their other domains."""


@dataclass
class Learned:
    """What was found of placements of a host, and how much may still be searched."""

    looking: Say
    cuts: list[Cut] = field(default_factory=list)
    left: int = SEARCHED_MAX
    """Domains in designs."""


@dataclass(frozen=True)
class Placed:
    """What came of placing."""

    verdict: str
    """`holds`, or the value of an outcome."""
    found: Answer = field(default_factory=Answer)
    """The design for the last placement; empty if none was needed."""
    cpus: tuple[str, ...] = ()
    """Overrides of the CPUs of that placement."""
    tried: int = 0
    """Placements that analysis looked at."""
    failed_on: tuple[int, ...] = ()
    """The CPUs on which the last of them failed."""


def placed(
    question: Question, learned: Learned, *, values_only: bool, changed: Demand | None = None
) -> Placed:
    """Places domains whose CPUs are open, so that everything holds.

    Domains with several VCPUs stay on all CPUs that they may run on. `impossible` is proved for all
    placements; `unknown` is what came to an end after `PLACEMENTS_MAX` or `PLACED_MAX`. Nothing is
    taken as learned of a demand that is `changed`. Raises HostError if no analysis covers the host.
    """
    opened = question.opened()
    host = _Host(opened)
    if host.cpus == 1:
        found = question.answer(values_only=values_only)
        return Placed(found["verdict"], found, tried=1)
    if host.cannot_hold():
        return Placed(Outcome.IMPOSSIBLE.value)
    known = set(demands_of(opened)) - {changed}
    cuts = [cut for cut in learned.cuts if cut.demands <= known]
    count = max(len(host.names), 1)
    result = Placed(Outcome.UNKNOWN.value)
    places: list[int] | Outcome = host.solve(cuts) if cuts else host.worst_fit()
    for attempt in range(1, 2 + min(PLACEMENTS_MAX, max(PLACED_MAX // count, 1))):
        if isinstance(places, Outcome):
            break
        if attempt > 1:
            learned.looking(f"placing, attempt {attempt}")
        cpus = host.overrides(places)
        learned.left -= count
        found = question.answer(cpus, values_only=values_only or attempt > 1)
        if found["verdict"] == "holds":
            if attempt > 1 and not values_only:
                found = question.answer(cpus, values_only=False)
            return Placed("holds", found, cpus, attempt)
        new, failed_on = host.cuts(found, places)
        learned.cuts += new
        cuts += new
        result = Placed(Outcome.UNKNOWN.value, found, cpus, attempt, failed_on)
        places = host.solve(cuts, places)
    return replace(result, verdict=places.value) if isinstance(places, Outcome) else result


class _Host:
    """The domains of a host on several CPUs, and what each takes."""

    def __init__(self, opened: Opened) -> None:
        self.cpus = opened["host"]["cpus"]
        # Helpers follow the file's domains. Nothing of theirs is open.
        domains = list(zip(opened["domains"], opened["host"]["domains"], strict=False))
        free = [(of, open_) for open_, of in domains if open_["affinity"] and len(of["vcpus"]) == 1]
        self.names = [of["name"] for of, _ in free]
        self._paths = [open_["path"] for _, open_ in free]
        self._shares = [open_["share"] or 0.0 for _, open_ in free]
        self._needed = [open_["needed"] for _, open_ in free]
        self._needed_by_all = sum(open_["needed"] for open_, _ in domains)
        self._vcpus = {of["name"]: [vcpu["cpu"] for vcpu in of["vcpus"]] for _, of in domains}
        # The CPU of a VCPU that may be on several is neither given nor chosen.
        self._roaming = {
            of["name"]
            for _, of in domains
            if of["name"] not in self.names and any(len(v["affinity"]) > 1 for v in of["vcpus"])
        }
        self._hopeless = any(
            open_["share"] is None and self._is_spread(of["name"]) for open_, of in domains
        )
        self._used, self._needed_there = [0.0] * self.cpus, [0.0] * self.cpus
        for open_, of in domains:
            name = of["name"]
            if name not in self.names:
                for cpu in self._vcpus[name]:
                    count = len(of["vcpus"])
                    self._used[cpu] += (open_["share"] or 0.0) / count
                    if name not in self._roaming:
                        self._needed_there[cpu] += open_["needed"] / count

    def _is_spread(self, name: str) -> bool:
        """Whether each VCPU of a domain has a CPU for itself: by itself it has no better place."""
        return len(set(self._vcpus[name])) == len(self._vcpus[name])

    def cannot_hold(self) -> bool:
        """Whether all need more than there is, or a domain does not even hold by itself."""
        return self._hopeless or self._needed_by_all > self.cpus + EPSILON

    def overrides(self, places: Sequence[int]) -> tuple[str, ...]:
        """The CPUs of the domains that can be placed."""
        return tuple(
            f"{path}.affinity=[{cpu}]" for path, cpu in zip(self._paths, places, strict=True)
        )

    def worst_fit(self) -> list[int]:
        """A CPU for each domain that can be placed."""
        return worst_fit(self._shares, self._used)

    def cuts(self, found: Answer, places: Sequence[int]) -> tuple[list[Cut], tuple[int, ...]]:
        """What a placement that does not hold shows, and the CPUs on which it does not."""
        demands: set[Demand] = {(each["domain"], each["task"]) for each in found["conflict"]}
        demands |= {(domain, None) for domain in found["given"]}
        blamed = {domain for domain, _ in demands}
        cpus = {name: cpu for name, cpu in zip(self.names, places, strict=True) if name in blamed}
        others = blamed.difference(cpus)
        is_proved = not others & self._roaming or (
            len(blamed) == 1 and all(map(self._is_spread, blamed))
        )
        refused = [cpus]
        if not others and len(set(cpus.values())) == 1:
            # All CPUs are alike.
            refused = [dict.fromkeys(cpus, cpu) for cpu in range(self.cpus)]
        new = [Cut(frozenset(demands), each, is_proved) for each in refused]
        there = {*cpus.values(), *(cpu for name in others for cpu in self._vcpus[name])}
        return new, tuple(sorted(there))

    def solve(self, cuts: Sequence[Cut], near: Sequence[int] = ()) -> list[int] | Outcome:
        """CPUs such that no cut is broken."""
        if all(cut.cpus for cut in cuts):
            index = {name: number for number, name in enumerate(self.names)}
            refused = [{index[name]: cpu for name, cpu in cut.cpus.items()} for cut in cuts]
            needed = self._needed, self._needed_there
            places = solve(self._shares, self._used, refused, near, needed)
        else:
            places = Outcome.IMPOSSIBLE  # A conflict is among domains whose CPUs are given.
        if places is Outcome.IMPOSSIBLE and not all(cut.is_proved for cut in cuts):
            return Outcome.UNKNOWN
        return places


def worst_fit(shares: Sequence[float], used: Sequence[float]) -> list[int]:
    """A CPU for each share: the greatest first, each on the CPU that is used least."""
    load = list(used)
    places = [0] * len(shares)
    for index in sorted(range(len(shares)), key=lambda index: -shares[index]):
        cpu = min(range(len(load)), key=lambda cpu: load[cpu])
        places[index] = cpu
        load[cpu] += shares[index]
    return places


def solve(
    shares: Sequence[float],
    used: Sequence[float],
    refused: Sequence[dict[int, int]],
    near: Sequence[int] = (),
    needed: tuple[Sequence[float], Sequence[float]] | None = None,
) -> list[int] | Outcome:
    """A CPU for each share, such that the fullest is about least full.

    No CPU has more than it has time for of what is `needed`, by each share and by what is there
    already: by default the shares and what is `used`. In no set of `refused` all are on those CPUs.
    The search begins at the placement `near`.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415 - only where worst fit fails

    model = cp_model.CpModel()
    cpus = range(len(used))
    on = [[model.new_bool_var(f"{index} on {cpu}") for cpu in cpus] for index in range(len(shares))]
    for of_domain in on:
        model.add_exactly_one(of_domain)

    # The solver's expressions have no type of their own.
    def load(parts: Sequence[float], there: Sequence[float], cpu: int) -> Any:  # noqa: ANN401
        own = (int(part * PARTS) * on[index][cpu] for index, part in enumerate(parts))
        return sum(own) + int(there[cpu] * PARTS)

    fullest = model.new_int_var(0, int((sum(shares) + max(used)) * PARTS), "fullest")
    for cpu in cpus:
        model.add(load(shares, used, cpu) <= fullest)
        model.add(load(*(needed or (shares, used)), cpu) <= PARTS)
    for together in refused:
        model.add_bool_or([~on[index][cpu] for index, cpu in together.items()])
    model.minimize(fullest)
    for of_domain, cpu in zip(on, near, strict=False):
        model.add_hint(of_domain[cpu], value=True)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    # The solver's own handler leaves SIGINT at its default, and Ctrl-C would end us untidied.
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = SOLVER_WORK
    solver.parameters.relative_gap_limit = SOLVER_GAP
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Outcome.IMPOSSIBLE if status == cp_model.INFEASIBLE else Outcome.UNKNOWN
    return [next(cpu for cpu in cpus if solver.boolean_value(of_domain[cpu])) for of_domain in on]
