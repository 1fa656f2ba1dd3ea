"""Values with which few deadlines are missed in simulation, where not all need be guaranteed.

Analysis provides for the worst case. The values that it finds for lower costs are less, and may
still be enough in most cases. For the analysis all costs are lowered by one factor, the lowest with
which the values that result keep to the limit in simulation of the full costs. Each budget is then
lowered by itself as far as simulation allows.

All choices are made by runs with the same seeds and phases. What is chosen is then run with others.
A seed with which it breaks the limit joins those that choices are made by, and all begins anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from laxity.design import phases, reasons
from laxity.design.answered import answered
from laxity.design.overload import load, load_of, overload
from laxity.design.placement import Learned, placed
from laxity.design.question import Question
from laxity.errors import core_errors
from laxity.resolved import task_paths
from laxity.results.check import Check
from laxity.results.design import Design, DomainDesign
from laxity.text import time

if TYPE_CHECKING:
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.resolved_schema import Domain, ResolvedHost
    from laxity.results.run import Run
    from laxity.workers.workers import Workers

SEEDS = 8
"""Runs by which a choice is made, at first."""

CHECKS = 16
"""Runs that check what was chosen."""

CHOICE_JOBS_MAX, CHECK_JOBS_MAX = 5_000, 20_000
"""Jobs of each of these runs, at most."""

ATTEMPTS_MAX = 5
"""Times that a choice is checked; after that nothing was found."""

FACTOR_MIN, FACTOR_STEPS = 0.25, 8
"""The lowest factor of costs, and the steps in which it is found."""

BUDGET_STEPS = 6
"""Steps in which each budget is lowered."""

GRAINS = 1_000
"""Budgets are whole multiples of about this part of their period."""

SPARE = 0.02
"""What budgets have beyond the needs of their tasks before they are lowered: a part of these."""

LOWERED_MAX = 16
"""Budgets that are lowered by themselves, the greatest first."""


@dataclass(frozen=True)
class Values:
    """Values for what a host file leaves open."""

    written: Resolved
    """The file with them in it."""
    open: tuple[str, ...]
    """The paths of what was open."""

    @cached_property
    def cpu_share(self) -> float:
        """The part of all CPUs' time that the budgets reserve."""
        host = self.written.host
        return sum(_share(domain) for domain in host["domains"]) / host["cpus"]

    @property
    def open_budgets(self) -> list[Domain]:
        """The domains whose budgets were open, the greatest part of a CPU first."""
        domains = [
            domain
            for domain in self.written.host["domains"]
            if f"domain.{domain['name']}.budget" in self.open and domain["tasks"]
        ]
        return sorted(domains, key=lambda domain: -_share(domain))

    def with_budgets(self, budgets_ns: dict[str, int]) -> Values:
        """The same with other budgets for some domains."""
        budgets = [
            f"domain.{domain}.budget={time(budget_ns, digits=9)}"
            for domain, budget_ns in budgets_ns.items()
        ]
        return replace(self, written=answered(self.written, budgets)) if budgets else self


@dataclass(frozen=True)
class Tighter:
    """A budget that would be too little."""

    domain: str
    budget_ns: int
    task: str
    miss_ratio: float


def find_design(
    host: Resolved,
    missed_max: float,
    *,
    any_phase: bool = False,
    looking: Say,
    workers: Workers | None = None,
) -> Design:
    """Finds values with which no task misses more than a part of its deadlines in any run.

    The budgets together are about the least that were found. What is returned has kept to the limit
    with seeds and phases that it was not chosen by. Raises as `deadlines.find_design` does.
    """
    search = _Search(host, missed_max, any_phase, looking, workers)
    for _ in range(ATTEMPTS_MAX):
        chosen = search.chosen()
        if chosen is None:
            return _nothing(search)
        checks = search.fresh_seeds()
        looking(f"checking with {len(checks)} seeds that the choice was not made by")
        runs = search.runs(chosen.written, checks, CHECK_JOBS_MAX)
        broken = [run.seed for run in runs if phases.worst(run)[0] > missed_max]
        if not broken:
            return _holds(search, chosen, runs)
        search.seeds += broken
    return _nothing(search)


class _Search:
    """Choices for one host, each by the same seeds."""

    def __init__(
        self,
        host: Resolved,
        missed_max: float,
        any_phase: bool,
        looking: Say,
        workers: Workers | None,
    ) -> None:
        self.host = host
        self.missed_max = missed_max
        self.any_phase = any_phase
        self.looking = looking
        self._workers = workers
        with core_errors():
            # What is open has harmless values here; the tasks are the file's.
            self.opened: ResolvedHost = json.loads(host.file.placeholders(host.overrides))
        self.seeds: list[int] = []
        self._next_seed = self.opened["seed"] + 1
        self._by_factor: dict[float, Values | None] = {}
        self.seeds += self.fresh_seeds(SEEDS)

    def fresh_seeds(self, count: int = CHECKS) -> list[int]:
        """Seeds that nothing was run with."""
        first, self._next_seed = self._next_seed, self._next_seed + count
        return list(range(first, self._next_seed))

    def runs(self, host: Resolved, seeds: list[int], jobs_max: int) -> list[Run]:
        return phases.runs(host, seeds, jobs_max, any_phase=self.any_phase, workers=self._workers)

    def worst(self, host: Resolved) -> tuple[float, str]:
        """The greatest part of a task's jobs that missed with the seeds of choices; the task."""
        runs = self.runs(host, self.seeds, CHOICE_JOBS_MAX)
        return max((phases.worst(run) for run in runs), key=lambda each: each[0])

    def holds(self, host: Resolved) -> bool:
        return self.worst(host)[0] <= self.missed_max

    def of_factor(self, factor: float) -> Values | None:
        """What analysis guarantees if all costs are lower by a factor; None if nothing."""
        if factor not in self._by_factor:
            self._by_factor[factor] = self._analysed(factor)
        return self._by_factor[factor]

    def _analysed(self, factor: float) -> Values | None:
        self.looking(f"looking for values for {100 * factor:.3g} % of the costs")
        costs = [
            f"{path}.cost={max(round(task['cost_ns'] * factor), 1)} ns"
            for path, _, task in task_paths(self.opened)
            if factor < 1
        ]
        question = Question(self.host, tuple(costs), any_phase=self.any_phase)
        result = placed(question, Learned(self.looking), values_only=True)
        if result.verdict != "holds":
            return None
        values_found = Values(
            written=answered(self.host, result.cpus, result.found["values"]),
            open=tuple(path for path, _ in result.found["values"]),
        )
        if factor == 1:
            return values_found
        # Lower costs let budgets be less than what the full costs need in the long run.
        return values_found.with_budgets(
            {
                domain["name"]: least_ns
                for domain in values_found.open_budgets
                if (least_ns := _least_ns(domain)) > domain["parameters"]["budget_ns"]
            }
        )

    def chosen(self) -> Values | None:
        """The values that hold with the seeds of choices, and reserve least; None if none do."""
        best = None
        factor, low, high = 1.0, FACTOR_MIN, 1.0
        for _ in range(FACTOR_STEPS):
            found = self.of_factor(factor)
            if found is None:
                high = factor
            elif self.holds(found.written):
                best, high = found, factor
            else:
                low = factor
            factor = (low + high) / 2
        return None if best is None else self._lowered(best)

    def _lowered(self, found: Values) -> Values:
        """The same with each open budget as little as holds, the greatest first."""
        for domain in found.open_budgets[:LOWERED_MAX]:
            self.looking(f"lowering the budget of {domain['name']}")
            enough, too_little = _grains(domain)
            for _ in range(BUDGET_STEPS):
                grains = (enough + too_little) // 2
                if grains in (enough, too_little):
                    break
                trial = found.with_budgets({domain["name"]: grains * _grain_ns(domain)})
                if self.holds(trial.written):
                    found, enough = trial, grains
                else:
                    too_little = grains
        return found

    def tighter(self, found: Values) -> list[Tighter]:
        """For each open budget, a lower one with which the limit is broken, where one is found."""
        all_found = []
        for domain in found.open_budgets[:LOWERED_MAX]:
            enough, least = _grains(domain)
            # Steps of one part in a hundred, then in ten.
            for part in (0.01, 0.03, 0.1):
                grains = max(enough - max(round(enough * part), 1), least, 1)
                if grains >= enough:
                    break
                budget_ns = grains * _grain_ns(domain)
                trial = found.with_budgets({domain["name"]: budget_ns})
                miss_ratio, task = self.worst(trial.written)
                if miss_ratio > self.missed_max:
                    all_found.append(Tighter(domain["name"], budget_ns, task, miss_ratio))
                    break
        return all_found


def _share(domain: Domain) -> float:
    parameters = domain["parameters"]
    period_ns = parameters["period_ns"]
    return len(domain["vcpus"]) * parameters["budget_ns"] / period_ns if period_ns else 0.0


def _grain_ns(domain: Domain) -> int:
    """A round number of ns that is about one part in `GRAINS` of the period."""
    grain_ns = 1
    while grain_ns * 10 * GRAINS <= domain["parameters"]["period_ns"]:
        grain_ns *= 10
    return grain_ns


def _least_ns(domain: Domain) -> int:
    """A budget with which the tasks and a little scheduling are served in the long run."""
    period_ns, grain_ns = domain["parameters"]["period_ns"], _grain_ns(domain)
    least_ns = load(domain) / len(domain["vcpus"]) * period_ns * (1 + SPARE)
    return min(-(-int(least_ns) // grain_ns) * grain_ns, period_ns)


def _grains(domain: Domain) -> tuple[int, int]:
    """A budget in grains, and one that is too little, since the tasks need more."""
    parameters, grain_ns = domain["parameters"], _grain_ns(domain)
    needed_ns = load(domain) / len(domain["vcpus"]) * parameters["period_ns"]
    return -(-parameters["budget_ns"] // grain_ns), int(needed_ns / grain_ns) - 1


def _holds(search: _Search, found: Values, runs: list[Run]) -> Design:
    host = found.written
    design = Design(
        verdict="holds",
        policy=host.host["policy"],
        host=host.text.decode(),
        cpu_share=found.cpu_share,
        load=load_of(host.host),
        guaranteed=guaranteed_tasks(host, any_phase=search.any_phase),
        reasons=(),
        domains=tuple(
            DomainDesign(
                name=domain["name"],
                budget_ns=domain["parameters"]["budget_ns"],
                period_ns=domain["parameters"]["period_ns"],
                priority=domain["parameters"]["priority"],
                share=_share(domain),
                load=load(domain),
            )
            for domain in host.host["domains"]
        ),
        missed_max=search.missed_max,
        simulated=phases.simulated(runs),
    )
    guaranteed = search.of_factor(1.0)
    said = reasons.of_misses(
        design,
        [
            (each.domain, each.budget_ns, each.task, each.miss_ratio)
            for each in search.tighter(found)
        ],
        None if guaranteed is None else guaranteed.cpu_share,
        len(search.seeds),
    )
    return replace(design, reasons=tuple(said))


def guaranteed_tasks(host: Resolved, *, any_phase: bool) -> int:
    """The tasks whose deadlines analysis guarantees all the same."""
    offsets = [f"{path}.offset=1 ns" for path, _, _ in task_paths(host.host) if any_phase]
    with core_errors():
        check = Check.from_json(json.loads(host.file.check(offsets)), "")
    return sum(task.guaranteed for domain in check.domains for task in domain.tasks)


def _nothing(search: _Search) -> Design:
    host = search.opened
    demands = overload(host, search.missed_max)
    with core_errors():
        is_open = "host.policy" in search.host.file.open_paths(search.host.overrides)
    design = Design(
        verdict="impossible" if demands else "unknown",
        policy="?" if is_open else host["policy"],
        host=None,
        cpu_share=None,
        load=sum(demand.cost_ns / demand.period_ns for demand in demands) or load_of(host),
        guaranteed=0,
        reasons=(),
        missed_max=search.missed_max,
        conflict=demands,
        is_minimal=False if demands else None,
    )
    return replace(design, reasons=tuple(reasons.of_too_many_misses(design, host["cpus"])))
