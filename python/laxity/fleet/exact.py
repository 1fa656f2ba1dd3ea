"""Placements by a constraint solver: with the fewest moves, or the proof that there is none.

The solver is OR-Tools' CP-SAT. What guests need by themselves must fit each host; analysis then
looks at the placement, and each set of guests that it refuses becomes a constraint (logic-based
Benders decomposition, Hooker and Ottosson, 2003), until all hosts hold or no placement is left.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from laxity.design.placement import Outcome
from laxity.fleet.held import STEPS
from laxity.fleet.problem import Placement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from laxity.fleet.cuts import Cuts
    from laxity.fleet.held import Holding
    from laxity.fleet.problem import Problem
    from laxity.progress import Say

VARIABLES_MAX = 40_000
"""Problems with more are not given to the solver."""

ROUNDS_MAX = 400
"""Placements of the solver that analysis looks at, at most."""

SOLVER_WORK = 20.0
"""The solver's limit for a question, in its own units of work: no machine's speed matters."""

PARTS = 1_000_000
"""The solver counts in whole parts of a CPU, rounded down: analysis decides."""


def fits(problem: Problem) -> bool:
    """Whether a problem is small enough for the solver."""
    variables = 0
    for guest in problem.guests:
        hosts = len(problem.allowed(guest))
        variables += hosts + hosts * hosts * problem.protected(guest)
    return variables <= VARIABLES_MAX


def place(
    problem: Problem,
    holding: Holding,
    cuts: Cuts,
    looking: Say,
    *,
    near: Placement | None = None,
    fewest: bool = True,
    work: float = SOLVER_WORK,
    rounds: int = ROUNDS_MAX,
    staying: Collection[int] = (),
) -> Placement | Outcome:
    """Places all guests, with the fewest moves if asked; `near` is where the search begins.

    `work` limits the solver, in its own units of work; analysis looks at `rounds` placements.
    Guests in `staying`, and their standbys, stay where `near` has them.
    """
    for attempt in range(1, rounds + 1):
        looking(f"solving: attempt {attempt}, {len(cuts)} sets of guests cannot be together")
        model = _Model(problem, holding, cuts)
        if near is not None:
            model.keep(staying, near)
        found = model.solve(near=near, fewest=fewest, work=work)
        if isinstance(found, Outcome):
            return found
        if not cuts.learn(found.loads()):
            return found
        work -= model.work
        if work <= 0:
            break
    return Outcome.UNKNOWN


class _Model:
    """A fleet in the solver's words."""

    def __init__(self, problem: Problem, holding: Holding, cuts: Cuts) -> None:
        from ortools.sat.python import cp_model  # noqa: PLC0415 - only where it is needed

        self._cp = cp_model
        self._model = cp_model.CpModel()
        self._problem, self._holding = problem, holding
        new = self._model.new_bool_var
        allowed = {guest: problem.allowed(guest) for guest in problem.guests}
        self._on = {
            (guest, host): new(f"{guest} on {host}")
            for guest, hosts in allowed.items()
            for host in hosts
        }
        self._standby = {
            (guest, host): new(f"standby of {guest} on {host}")
            for guest, hosts in allowed.items()
            if problem.protected(guest)
            for host in hosts
        }
        self._taken = {
            (guest, host, failed): new(f"{guest} from {failed} to {host}")
            for guest, host in self._standby
            for failed in allowed[guest]
            if failed != host
        }
        self._may_have: dict[int, list[int]] = defaultdict(list)
        for guest, host in self._on:
            self._may_have[host].append(guest)
        failures: dict[int, set[int]] = defaultdict(set)
        for _, host, other in self._taken:
            failures[host].add(other)
        self._failures: dict[int, list[int | None]] = {
            host: [*sorted(failures[host])] or [None] for host in range(len(problem.file.hosts))
        }
        """The hosts whose failure may bring guests to a host; None alone if no failure does."""
        self._place(allowed)
        self._keep_apart()
        for host, of_host in self._failures.items():
            for failed in of_host:
                self._fit(host, failed)
        self._cut(cuts)
        self.work = 0.0

    def solve(self, *, near: Placement | None, fewest: bool, work: float) -> Placement | Outcome:
        """A placement with the fewest moves, or with any number; `self.work` is what it took."""
        if fewest:
            self._move_least()
        if near is not None:
            self._begin(near)
        solver = self._cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        # The solver's own handler leaves SIGINT at its default, and Ctrl-C would end us untidied.
        solver.parameters.catch_sigint_signal = False
        solver.parameters.max_deterministic_time = work
        status = solver.solve(self._model)
        self.work = solver.response_proto.deterministic_time
        if status == self._cp.INFEASIBLE:
            return Outcome.IMPOSSIBLE
        if status != self._cp.OPTIMAL and (fewest or status != self._cp.FEASIBLE):
            return Outcome.UNKNOWN
        count = len(self._problem.file.guests)
        hosts: list[int | None] = [None] * count
        standbys: list[int | None] = [None] * count
        for places, variables in ((hosts, self._on), (standbys, self._standby)):
            for (guest, host), variable in variables.items():
                if solver.boolean_value(variable):
                    places[guest] = host
        return Placement(tuple(hosts), tuple(standbys))

    def keep(self, guests: Collection[int], near: Placement) -> None:
        """Guests and their standbys stay where they are."""
        for guest in guests:
            for place, variables in ((near.hosts, self._on), (near.standbys, self._standby)):
                host = place[guest]
                if host is not None and (guest, host) in variables:
                    self._model.add(variables[guest, host] == 1)

    def _move_least(self) -> None:
        """What is somewhere today stays there, as far as that can be."""
        today = self._problem.today()
        moves: list[Any] = []
        for there, variables in ((today.hosts, self._on), (today.standbys, self._standby)):
            for guest in self._problem.guests:
                place = there[guest]
                if place is not None:
                    stays = variables.get((guest, place))
                    moves.append(1 if stays is None else 1 - stays)
        self._model.minimize(sum(moves))

    def _begin(self, near: Placement) -> None:
        """The search begins at a placement."""
        for (guest, host), variable in self._on.items():
            self._model.add_hint(variable, near.hosts[guest] == host)
        for (guest, host), variable in self._standby.items():
            self._model.add_hint(variable, near.standbys[guest] == host)

    def _place(self, allowed: dict[int, tuple[int, ...]]) -> None:
        """Every guest is on one host, and every standby on another."""
        for guest, hosts in allowed.items():
            self._model.add_exactly_one(self._on[guest, host] for host in hosts)
            if self._problem.protected(guest):
                self._model.add_exactly_one(self._standby[guest, host] for host in hosts)
        for (guest, host), standby in self._standby.items():
            self._model.add_at_most_one(self._on[guest, host], standby)
        for (guest, host, failed), taken in self._taken.items():
            both = self._on[guest, failed], self._standby[guest, host]
            self._model.add_bool_or([~both[0], ~both[1], taken])
            self._model.add_implication(taken, both[0])
            self._model.add_implication(taken, both[1])

    def _keep_apart(self) -> None:
        for guest, others in self._problem.apart().items():
            for other in others:
                for host in range(len(self._problem.file.hosts)):
                    here = self._on.get((other, host))
                    for mine in (self._on.get((guest, host)), self._standby.get((guest, host))):
                        if here is not None and mine is not None:
                            self._model.add_at_most_one(here, mine)

    def _there(self, guest: int, host: int, failed: int | None) -> Iterator[Any]:
        """The ways in which a guest runs on a host; at most one of them is true."""
        if (guest, host) in self._on:
            yield self._on[guest, host]
        if failed is not None and (guest, host, failed) in self._taken:
            yield self._taken[guest, host, failed]

    def _fit(self, host: int, failed: int | None) -> None:
        """What guests need by themselves, and what they are promised of the link."""
        parts: list[list[Any]] = [[] for _ in range(1 + len(STEPS))]
        promised = []
        for guest in self._may_have[host]:
            needs = self._holding.needs(host, guest)
            minimum = self._problem.minimum(guest)
            for there in self._there(guest, host, failed):
                if needs is None:
                    self._model.add(there == 0)
                else:
                    for of_need, need in zip(parts, needs, strict=True):
                        # VCPUs that count as nothing are left out.
                        if need * PARTS >= 1:
                            of_need.append(int(need * PARTS) * there)
                if minimum:
                    promised.append(minimum * there)
        for of_need in parts:
            self._model.add(sum(of_need) <= self._problem.file.hosts[host].cpus * PARTS)
        self._model.add(sum(promised) <= self._problem.link(host))

    def _cut(self, cuts: Cuts) -> None:
        running = set(self._problem.guests)
        for like, guests in cuts:
            if not guests <= running:
                continue
            for host, of_host in enumerate(self._problem.file.hosts):
                if of_host.like != like:
                    continue
                for failed in self._failures[host]:
                    there = [
                        t for guest in sorted(guests) for t in self._there(guest, host, failed)
                    ]
                    self._model.add(sum(there) <= len(guests) - 1)
