"""Budgets, periods, priorities and CPUs with which every deadline is guaranteed."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laxity import substrates
from laxity.design import placement, reasons
from laxity.design.answered import answered
from laxity.errors import InputError, core_errors
from laxity.progress import silent
from laxity.results.check import Check
from laxity.results.design import Design, Simulated
from laxity.results.records import decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.resolved_schema import Domain, ResolvedHost, Task
    from laxity.workers.workers import Workers

SEEDS = 3
"""Seeds of the runs that check a result; none is the file's own."""

JOBS_MAX = 100_000
"""Jobs of each of these runs, at most; the run is as long as these take, or as the file says."""


def find_design(
    host: Resolved,
    *,
    most_room: bool = False,
    any_phase: bool = False,
    looking: Say,
    workers: Workers | None = None,
) -> Design:
    """Finds values for what the host file leaves open, with which every deadline is guaranteed.

    The budgets together are least; with `most_room`, every cost may be the greatest factor greater.
    With `any_phase` the guarantee is for whatever offsets the tasks have. The result is analysed,
    and simulated with seeds and phases that it was not chosen by, before it is returned. Raises
    InputError if the question makes no sense for the host, and HostError if the file is wrong.
    """
    with core_errors():
        opened = json.loads(host.file.open(host.overrides, any_phase))

    def answer(cpus: Iterable[str]) -> dict[str, Any]:
        with core_errors():
            found = host.file.design([*host.overrides, *cpus], most_room, any_phase)
        return dict(json.loads(found))

    looking("looking for values")
    found, cpus = placement.placed(opened, answer, looking)
    if found["verdict"] == "refused":
        raise InputError(found["message"], found["help"])
    if found["verdict"] == "impossible":
        return _impossible(found)
    written = answered(host, cpus, found["values"])
    return _checked(written, found, any_phase, looking, workers)


def _impossible(found: dict[str, Any]) -> Design:
    blank: dict[str, Any] = {"host": None, "cpu_share": None, "guaranteed": 0, "reasons": []}
    design = decoded({**found, **blank}, Design)
    return replace(design, reasons=tuple(reasons.of_conflict(design)))


def _checked(
    host: Resolved,
    found: dict[str, Any],
    any_phase: bool,
    looking: Say,
    workers: Workers | None,
) -> Design:
    """The result, after analysis and simulation of the host file that was written."""
    # An offset of 1 ns is in step with no budget.
    overrides = [f"{path}.offset=1 ns" for path, _, _ in _tasks(host.host) if any_phase]
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
    simulated = simulate(host, any_phase=any_phase, workers=workers)
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


def simulate(host: Resolved, *, any_phase: bool, workers: Workers | None = None) -> Simulated:
    """Runs the host with seeds and phases of the tasks that are not the file's.

    Unless a guarantee is for any phase, a task that is in step with its domain's budget stays so:
    that is what its guarantee rests on.
    """
    first = host.host["seed"] + 1
    seeds = tuple(range(first, first + SEEDS))
    duration_ns = _duration_ns(host.host)
    runs = []
    for seed in seeds:
        phases = random.Random(seed)  # noqa: S311 - no secret
        offsets = [
            f"{path}.offset={_phase_ns(domain, task, phases, any_phase=any_phase)} ns"
            for path, domain, task in _tasks(host.host)
        ]
        runs.append(host.changed([*offsets, f"seed={seed}", f"duration={duration_ns} ns"]))
    results = substrates.of("sim").run_many(runs, say=silent, workers=workers)
    jobs, missed = sum(run.jobs for run in results), sum(run.missed for run in results)
    return Simulated(seeds, duration_ns, jobs, missed)


def _tasks(host: ResolvedHost) -> Iterator[tuple[str, Domain, Task]]:
    """Each task's path, its domain and itself."""
    for domain in host["domains"]:
        for task in domain["tasks"]:
            yield f"domain.{domain['name']}.tasks.{task['name']}", domain, task


def _duration_ns(host: ResolvedHost) -> int:
    tasks = [task for _, _, task in _tasks(host)]
    if not tasks:
        return int(host["duration_ns"])
    jobs_per_ns = sum(1 / task["period_ns"] for task in tasks)
    longest_ns = max(task["period_ns"] for task in tasks)
    # Each task has a few jobs, whatever its period.
    wanted_ns = max(int(JOBS_MAX / jobs_per_ns), 4 * longest_ns)
    return int(min(host["duration_ns"], wanted_ns))


def _phase_ns(domain: Domain, task: Task, phases: random.Random, *, any_phase: bool) -> int:
    server_ns, period_ns = domain["parameters"]["period_ns"], task["period_ns"]
    in_step = (
        not any_phase
        and server_ns > 0
        and period_ns % server_ns == 0
        and task["offset_ns"] % server_ns == 0
    )
    if in_step:
        return phases.randrange(period_ns // server_ns) * int(server_ns)
    return phases.randrange(period_ns)
