"""Budgets, periods, priorities and CPUs with which every deadline is guaranteed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laxity.design import phases, placement, reasons
from laxity.design.answered import answered
from laxity.errors import InputError, core_errors
from laxity.resolved import task_paths
from laxity.results.check import Check
from laxity.results.design import Design
from laxity.results.records import decoded

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    seeds and phases that it was not chosen by, before it is returned. Raises InputError if the
    question makes no sense for the host, and HostError if the file is wrong.
    """
    looking("looking for values")
    found, cpus = values(
        host, growth=growth, most_room=most_room, any_phase=any_phase, looking=looking
    )
    if found["verdict"] == "impossible":
        with core_errors():
            opened = json.loads(host.file.open(host.overrides, any_phase))
        return _impossible(found, opened["host"]["cpus"])
    written = answered(host, cpus, found["values"])
    return _checked(written, found, any_phase, looking, workers)


def values(
    host: Resolved,
    overrides: Iterable[str] = (),
    *,
    growth: float | None = None,
    most_room: bool = False,
    any_phase: bool = False,
    values_only: bool = False,
    looking: Say,
) -> tuple[dict[str, Any], list[str]]:
    """The analysis' answer for a host with overrides, and overrides for the CPUs that it chose.

    With `values_only` the answer has no reasons, which take as long as the values. Raises as
    `find_design` does.
    """
    asked = [*host.overrides, *overrides]
    with core_errors():
        opened = json.loads(host.file.open(asked, any_phase))

    def answer(cpus: Iterable[str]) -> dict[str, Any]:
        with core_errors():
            found = host.file.design([*asked, *cpus], growth, most_room, any_phase, values_only)
        return dict(json.loads(found))

    found, cpus = placement.placed(opened, answer, looking)
    if found["verdict"] == "refused":
        raise InputError(found["message"], found["help"])
    return found, cpus


def _impossible(found: dict[str, Any], cpus: int) -> Design:
    blank: dict[str, Any] = {"host": None, "cpu_share": None, "guaranteed": 0, "reasons": []}
    design = decoded({**found, **blank}, Design)
    return replace(design, reasons=tuple(reasons.of_conflict(design, cpus)))


def _checked(
    host: Resolved,
    found: dict[str, Any],
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
