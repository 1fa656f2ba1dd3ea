"""SimSo as a second opinion: flat task sets, job by job, to the nanosecond.

One domain owns the whole CPU, so its guest's scheduler alone orders the jobs, under every policy
that does not make a domain wait for budget after it has idled (polling and sporadic servers do).
SimSo is told that a millisecond of its has one cycle, and both stand for a nanosecond here: then
all that it computes are whole numbers, and nothing is rounded.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass

import laxity
import pytest

pytestmark = pytest.mark.slow

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of setuptools' pkg_resources, which SimSo imports
    pytest.importorskip("simso", reason="SimSo is not installed (pip install --group bench)")
    from simso.configuration import Configuration
    from simso.core import Model

SEEDS = range(50)
DURATION_NS = 2_000_000_000
MICROSECOND_NS = 1_000
POLICIES = ("deferrable", "periodic", "credit", "sedf")
SCHEDULERS = {
    "rate-monotonic": "simso.schedulers.RM_mono",
    "edf": "simso.schedulers.EDF_mono",
}


@dataclass(frozen=True)
class Task:
    cost_ns: int
    period_ns: int
    deadline_ns: int
    offset_ns: int

    def deadlines_ns(self) -> range:
        return range(self.offset_ns + self.deadline_ns, DURATION_NS, self.period_ns)


def draw(seed: int) -> list[Task]:
    """A set of 2 to 12 tasks, of a load of 0.4 to 1.2: some are late, some ever later.

    Periods differ, and so do absolute deadlines: where two are equal, SimSo lets the job go first
    that came first, and Laxity the task that stands first in the file.
    """
    choose = random.Random(seed)  # noqa: S311
    while True:
        count = choose.randint(2, 12)
        load = choose.uniform(0.4, 1.2)
        tasks = []
        for _ in range(count):
            cost_ns = choose.randint(100, 10_000) * MICROSECOND_NS + choose.randint(0, 999)
            period_ns = max(round(cost_ns * count / load * choose.uniform(0.5, 2)), cost_ns)
            tasks.append(
                Task(
                    cost_ns=cost_ns,
                    period_ns=period_ns,
                    deadline_ns=choose.choice([period_ns, choose.randint(cost_ns, period_ns)]),
                    offset_ns=choose.choice([0, choose.randint(0, period_ns)]),
                )
            )
        deadlines_ns = [deadline for task in tasks for deadline in task.deadlines_ns()]
        if len({task.period_ns for task in tasks}) == count and len(set(deadlines_ns)) == len(
            deadlines_ns
        ):
            return tasks


def laxity_responses(tasks: list[Task], scheduler: str, policy: str) -> list[list[int]]:
    host = f"""
        duration = "{DURATION_NS} ns"
        [host]
        cpus = 1
        policy = "{policy}"
        [[domain]]
        name = "all"
        scheduler = "{scheduler}"
        budget = "1 s"
        period = "1 s"
        priority = 1
    """
    for number, task in enumerate(tasks):
        host += f"""
        [[domain.tasks]]
        name = "task-{number}"
        cost = "{task.cost_ns} ns"
        period = "{task.period_ns} ns"
        deadline = "{task.deadline_ns} ns"
        offset = "{task.offset_ns} ns"
        """
    responses = laxity.Host.parse(host).run().responses
    return [responses["all", f"task-{number}"].tolist() for number in range(len(tasks))]


def simso_responses(tasks: list[Task], scheduler: str) -> list[list[int]]:
    configuration = Configuration()
    configuration.cycles_per_ms = 1
    configuration.duration = DURATION_NS + 1  # so that it serves what happens at the very end
    configuration.etm = "wcet"
    for number, task in enumerate(tasks):
        configuration.add_task(
            name=f"task-{number}",
            identifier=number,
            period=task.period_ns,
            activation_date=task.offset_ns,
            wcet=task.cost_ns,
            deadline=task.deadline_ns,
            abort_on_miss=False,
        )
    configuration.add_processor(name="cpu", identifier=0)
    configuration.scheduler_info.clas = SCHEDULERS[scheduler]
    configuration.check_all()
    model = Model(configuration)
    model.run_model()
    return [
        [
            job.end_date - round(job.activation_date)
            for job in task.jobs
            if job.end_date is not None
            and job.end_date <= DURATION_NS
            and job.absolute_deadline <= DURATION_NS
        ]
        for task in model.task_list
    ]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_job_completes_when_simso_completes_it(scheduler: str, seed: int) -> None:
    tasks = draw(seed)
    policy = POLICIES[seed % len(POLICIES)]
    expected = simso_responses(tasks, scheduler)
    assert sum(map(len, expected)) > len(tasks)
    found = laxity_responses(tasks, scheduler, policy)
    assert found == expected, f"seed {seed}, {scheduler} guest, {policy}: {tasks}"


def test_some_of_the_sets_have_late_jobs() -> None:
    late = 0
    for seed in SEEDS:
        tasks = draw(seed)
        responses = laxity_responses(tasks, "rate-monotonic", "deferrable")
        late += any(
            response > task.deadline_ns
            for task, of_task in zip(tasks, responses, strict=True)
            for response in of_task
        )
    assert len(SEEDS) / 4 <= late <= len(SEEDS) * 3 / 4
