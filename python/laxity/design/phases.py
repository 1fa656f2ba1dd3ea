"""Runs of a host with seeds and phases of its tasks that are not those of its file."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from laxity import substrates
from laxity.progress import silent
from laxity.resolved import task_paths
from laxity.results.design import Simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity.resolved import Resolved
    from laxity.resolved_schema import Domain, ResolvedHost, Task
    from laxity.results.run import Run
    from laxity.workers.workers import Workers


def runs(
    host: Resolved,
    seeds: Sequence[int],
    jobs_max: int,
    *,
    any_phase: bool,
    workers: Workers | None = None,
) -> list[Run]:
    """Runs the host once with each seed, from which the offsets of its tasks are drawn too.

    Each run is as long as about `jobs_max` jobs take, or as the file says. Unless deadlines are to
    hold for any phase, a task that is in step with its domain's budget stays so: that is what its
    guarantee rests on.
    """
    duration_ns = _duration_ns(host.host, jobs_max)
    changed = [
        host.changed(
            [
                *offsets(host.host, seed, duration_ns, any_phase=any_phase),
                f"seed={seed}",
                f"duration={duration_ns} ns",
            ]
        )
        for seed in seeds
    ]
    return substrates.of("sim").run_many(changed, say=silent, workers=workers)


def offsets(host: ResolvedHost, seed: int, duration_ns: int, *, any_phase: bool) -> list[str]:
    """Overrides with offsets of all tasks that are drawn from a seed, as `runs` has them."""
    phases = random.Random(seed)  # noqa: S311 - no secret
    return [
        f"{path}.offset={_phase_ns(domain, task, duration_ns, phases, any_phase=any_phase)} ns"
        for path, domain, task in task_paths(host)
    ]


def simulated(results: Sequence[Run]) -> Simulated:
    """What these runs of one host have found together."""
    return Simulated(
        seeds=tuple(run.seed for run in results),
        duration_ns=results[0].duration_ns,
        jobs=sum(run.jobs for run in results),
        missed=sum(run.missed for run in results),
        miss_ratio_max=max(worst(run)[0] for run in results),
    )


def worst(run: Run) -> tuple[float, str]:
    """The task of which the greatest part of the jobs missed: that part, and its name."""
    found = [(task.miss_ratio, task.name) for domain in run.domains for task in domain.tasks]
    return max(found, default=(0.0, ""), key=lambda each: each[0])


def _duration_ns(host: ResolvedHost, jobs_max: int) -> int:
    all_tasks = [task for _, _, task in task_paths(host)]
    if not all_tasks:
        return int(host["duration_ns"])
    jobs_per_ns = sum(1 / task["period_ns"] for task in all_tasks)
    longest_ns = max(task["period_ns"] for task in all_tasks)
    # Each task has a few jobs, whatever its period.
    wanted_ns = max(int(jobs_max / jobs_per_ns), 4 * longest_ns)
    return int(min(host["duration_ns"], wanted_ns))


def _phase_ns(
    domain: Domain, task: Task, duration_ns: int, phases: random.Random, *, any_phase: bool
) -> int:
    server_ns, period_ns = domain["parameters"]["period_ns"], task["period_ns"]
    # The first job comes before the run's end.
    first_ns = min(period_ns, duration_ns)
    in_step = (
        not any_phase
        and server_ns > 0
        and period_ns % server_ns == 0
        and task["offset_ns"] % server_ns == 0
    )
    if in_step:
        return phases.randrange(-(-first_ns // server_ns)) * int(server_ns)
    return phases.randrange(first_ns)
