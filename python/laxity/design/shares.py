"""Weights, caps and CPUs with which few deadlines are missed, under policies without budgets.

No budget is reserved there whose CPU time could be least, and no analysis guarantees a deadline.
The aim is room: the greatest factor that all costs may have, so that the limit still holds in
simulation. See `halving` for the search.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from laxity.design import halving, phases, reasons
from laxity.design.answered import answered
from laxity.design.ladders import open_values
from laxity.design.misses import guaranteed_tasks
from laxity.design.overload import load_of, overload
from laxity.errors import InputError, core_errors
from laxity.policies import BY_WEIGHT
from laxity.resolved import task_paths
from laxity.results.design import Choice, Design

if TYPE_CHECKING:
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.resolved_schema import Task
    from laxity.workers.workers import Workers

PARTS = 1_000
"""Factors of costs are whole numbers of these parts."""

CHECKS, JOBS_MAX = 8, 20_000
"""Runs of the file that is answered, and jobs of each, at most."""


def is_for(host: Resolved) -> bool:
    """Whether the host's policy goes by weights; an open one does if a weight is open, or a cap."""
    with core_errors():
        paths = host.file.open_paths(host.overrides)
        opened = json.loads(host.file.placeholders(host.overrides))
    if "host.policy" in paths:
        return any(path.endswith((".weight", ".cap", ".laxity")) for path in paths)
    return opened["policy"] in BY_WEIGHT


def find_design(
    host: Resolved, missed_max: float, looking: Say, workers: Workers | None = None
) -> Design:
    """Finds values with which all costs may be greatest, each task missing no more than a part.

    Raises InputError if the file leaves nothing open, has no tasks, or leaves open what nothing is
    known for.
    """
    opened = open_values(host)
    if not opened.ladders:
        raise InputError(
            "the file leaves nothing open that this policy goes by",
            'write weight = "?", cap, affinity or policy, for instance',
        )
    first = host.changed(opened.first)
    tasks = {path: task for path, _, task in task_paths(first.host)}
    if not tasks:
        raise InputError("the host has no tasks, so no deadline can be missed", "write tasks")
    load = halving.Load(
        PARTS,
        min(PARTS * _most_ns(task) // task["cost_ns"] for task in tasks.values()),
        overrides=lambda parts: [
            f"{path}.cost={max(task['cost_ns'] * parts // PARTS, 1)} ns"
            for path, task in tasks.items()
        ],
        said=lambda parts: f"costs of {parts / PARTS:g} times",
    )
    # Where weights decide, nothing is in step with a budget.
    trials = halving.Trials(
        first, load, missed_max, any_phase=True, looking=looking, workers=workers
    )
    found = halving.search(trials, list(opened.changes))
    overrides = opened.with_change(found.winner)
    written = answered(host, overrides)
    design = Design(
        verdict="unknown",
        policy=written.host["policy"],
        host=None,
        cpu_share=None,
        load=load_of(first.host),
        guaranteed=0,
        reasons=(),
        room_factor=found.most / PARTS or None,
        missed_max=missed_max,
        choices=tuple(
            Choice(change.what, parts / PARTS)
            for change, parts in ((found.winner, found.most), *found.others)
        ),
    )
    said = tuple(reasons.of_choices(design, halving.SEEDS))
    if found.most < PARTS:
        conflict = overload(first.host, missed_max)
        if conflict:
            needed = sum(demand.cost_ns / demand.period_ns for demand in conflict)
            # They need more than there is; whether they could be fewer was not tried.
            design = replace(
                design, verdict="impossible", load=needed, conflict=conflict, is_minimal=False
            )
        why = reasons.of_too_many_misses(design, first.host["cpus"])
        broken = trials.broken_by(found.winner, PARTS)
        return replace(design, reasons=(*why, *reasons.of_broken(broken), *said))
    looking(f"checking with {CHECKS} other seeds")
    last = trials.seed + halving.SEEDS * (len(design.choices) + 2)
    runs = phases.runs(
        written, range(last, last + CHECKS), JOBS_MAX, any_phase=True, workers=workers
    )
    design = replace(design, simulated=phases.simulated(runs))
    broken = [limit for run in runs for limit in trials.broken(run)]
    if broken:
        return replace(design, reasons=(*reasons.of_broken(broken[:1]), *said))
    if design.policy not in BY_WEIGHT:
        # An open policy may be one with budgets, which analysis covers.
        design = replace(design, guaranteed=guaranteed_tasks(written, any_phase=True))
    return replace(design, verdict="holds", host=written.text.decode(), reasons=said)


def _most_ns(task: Task) -> int:
    """The greatest cost that a task can have."""
    return min(task["deadline_ns"], task["period_ns"])
