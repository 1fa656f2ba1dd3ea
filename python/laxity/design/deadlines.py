"""Budgets, periods, priorities and CPUs with which every deadline is guaranteed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from laxity.design import phases, reasons
from laxity.design.answered import answered
from laxity.design.conflict import fewest, reliefs
from laxity.design.overload import load_of
from laxity.design.placement import SEARCHED_MAX, Learned, Outcome, Placed, placed
from laxity.design.question import Question, demands_of, needs_of
from laxity.errors import InputError, core_errors
from laxity.resolved import task_paths
from laxity.results.check import Check
from laxity.results.design import Demand, Design
from laxity.results.records import decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity.design.question import Answer, Opened
    from laxity.design.question import Demand as Demanded
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.workers.workers import Workers

SEEDS = 3
"""Seeds of the runs that check a result; none is the file's own."""

JOBS_MAX = 100_000
"""Jobs of each of these runs, at most; the run is as long as these take, or as the file says."""


def find_design(
    host: Resolved,
    *,
    growth: float | None = None,
    most_room: bool = False,
    any_phase: bool = False,
    looking: Say,
    workers: Workers | None = None,
) -> Design:
    """Finds values for what the host file leaves open, with which every deadline is guaranteed.

    The budgets together are least; with `growth`, least so that every cost may be this factor
    greater; with `most_room`, every cost may be the greatest factor greater. With `any_phase` the
    guarantee is for whatever offsets the tasks have. The result is analysed, and simulated with
    seeds and phases that it was not chosen by, before it is returned. Raises HostError
    if the file is wrong, or what it asks is not for analysis, and InputError if the result does not
    stand its checks.
    """
    looking("looking for values")
    question = Question(host, growth=growth, most_room=most_room, any_phase=any_phase)
    learned = Learned(looking)
    result = placed(question, learned, values_only=False)
    if result.verdict != "holds":
        return _without(question, result, learned)
    written = answered(host, result.cpus, result.found["values"])
    return _checked(written, result.found, any_phase, looking, workers)


def _without(question: Question, result: Placed, learned: Learned) -> Design:
    """Why nothing holds, or that nothing was found."""
    opened = question.opened()
    cpus = opened["host"]["cpus"]
    last = _impossible(result.found) if result.found else None
    if result.verdict == Outcome.UNKNOWN.value:
        found = _of_demands(question, opened, demands_of(opened))
        found = replace(
            found, verdict="unknown", load=load_of(opened["host"]), conflict=(), given=()
        )
        said = reasons.of_nothing(last, result.tried, result.failed_on)
    elif last is not None and not result.cpus:
        found, said = last, reasons.of_conflict(last, cpus)
    else:
        demands, is_minimal = fewest(question, learned)
        learned.left = SEARCHED_MAX
        found = replace(
            _of_demands(question, opened, demands),
            is_minimal=is_minimal,
            reliefs=tuple(reliefs(question, demands, learned)),
        )
        said = reasons.of_conflict(found, cpus, is_placed=True)
    return replace(found, reasons=tuple(said))


def _impossible(found: Answer) -> Design:
    """The conflict of one placement, as analysis found it."""
    blank: dict[str, object] = {"host": None, "cpu_share": None, "guaranteed": 0, "reasons": []}
    return decoded({**found, **blank, "is_minimal": True}, Design)


def _of_demands(question: Question, opened: Opened, demands: Sequence[Demanded]) -> Design:
    """Some demands that no placement holds."""
    policies = tuple(opened["policies"])
    growth = question.growth or 1.0
    conflict = tuple(
        Demand(of["name"], task["name"], task["cost_ns"], task["period_ns"], task["deadline_ns"])
        for of in opened["host"]["domains"]
        for task in of["tasks"]
        if (of["name"], task["name"]) in demands
    )
    given = tuple(domain for domain, task in demands if task is None)
    needs = needs_of(opened)
    computed = sum(demand.cost_ns / demand.period_ns for demand in conflict)
    return Design(
        verdict=Outcome.IMPOSSIBLE.value,
        policy=policies[0] if len(policies) == 1 else "?",
        host=None,
        cpu_share=None,
        load=growth * computed + sum(needs[domain, None] for domain in given),
        guaranteed=0,
        reasons=(),
        room_factor=question.growth,
        policies=policies,
        conflict=conflict,
        given=given,
    )


def _checked(
    host: Resolved,
    found: Answer,
    any_phase: bool,
    looking: Say,
    workers: Workers | None,
) -> Design:
    """The result, after analysis and simulation of the host file that was written."""
    # An offset of 1 ns is in step with no budget.
    overrides = [f"{path}.offset=1 ns" for path, _, _ in task_paths(host.host) if any_phase]
    with core_errors():
        check = Check.from_json(json.loads(host.file.check(overrides)), "")
    tasks = [task for domain in check.domains for task in domain.tasks]
    guaranteed = sum(task.guaranteed for task in tasks)
    if guaranteed < len(tasks):
        late = next(task.name for task in tasks if not task.guaranteed)
        raise InputError(
            f"the values that were found do not hold once written: {late} is not guaranteed",
            "give domains with several VCPUs an affinity, and priorities to all or to none",
        )
    looking("simulating with other seeds and phases")
    first = host.host["seed"] + 1
    runs = phases.runs(
        host, range(first, first + SEEDS), JOBS_MAX, any_phase=any_phase, workers=workers
    )
    simulated = phases.simulated(runs)
    design = decoded(
        {
            **found,
            "host": host.text.decode(),
            "guaranteed": guaranteed,
            "reasons": [],
            "simulated": vars(simulated),
        },
        Design,
    )
    if simulated.missed:
        raise InputError(
            f"simulation contradicts the analysis: {simulated.missed} of {simulated.jobs} jobs "
            "missed deadlines that analysis guarantees, so nothing is claimed",
            "please report it, with the host file",
        )
    return replace(design, reasons=tuple(reasons.of_design(design, any_phase=any_phase)))
