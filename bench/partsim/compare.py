"""Jobs of both simulators, one beside the other."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import laxity
from laxity import tracefile

from bench.partsim.trace import Job

if TYPE_CHECKING:
    from bench.partsim.sets import Set


@dataclass(frozen=True)
class Outcome:
    """What became of one job within the run."""

    arrival_ns: int
    end_ns: int | None
    """None if it had not ended when the run did."""
    missed: bool
    """Its deadline was in the run, and the job had not ended by then."""


@dataclass(frozen=True)
class Difference:
    """A job of which the simulators say different things."""

    task: str
    job: int
    ours: Outcome | None
    theirs: Outcome | None
    """None if there is no such job."""


@dataclass
class Compared:
    """One set, or several together."""

    jobs: int = 0
    agreed: int = 0
    late: int = 0
    """Jobs that missed their deadlines in Laxity."""
    unfinished: int = 0
    """Jobs that had not ended when the run did, in Laxity."""
    said: int = 0
    """Missed deadlines that PARTSim's trace has a line for."""
    unsaid: int = 0
    """Missed deadlines of jobs that PARTSim took up after their deadlines, and did not report."""
    differences: list[Difference] = field(default_factory=list)

    def add(self, other: Compared) -> None:
        """Counts another set's jobs, too."""
        self.jobs += other.jobs
        self.agreed += other.agreed
        self.late += other.late
        self.unfinished += other.unfinished
        self.said += other.said
        self.unsaid += other.unsaid
        self.differences += other.differences


@dataclass(frozen=True)
class Run:
    """One of Laxity."""

    jobs: dict[str, list[Outcome]]
    """The jobs of each task, in the order in which they arrived."""
    records: list[dict[str, Any]]
    """The trace, as in `tracefile.table`."""


def laxity_run(set: Set) -> Run:
    """Laxity's jobs, from its trace; the misses are those that its result counts, too."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.laxtrace"
        run = laxity.Host.parse(set.host()).run(trace=path)
        records = tracefile.table(path).to_pylist()
    arrivals: dict[str, list[int]] = {task.name: [] for task in set.tasks}
    ends: dict[str, list[int]] = {task.name: [] for task in set.tasks}
    for record in records:
        if record["kind"] in {"release", "complete"}:
            of_task = (arrivals if record["kind"] == "release" else ends)[record["task"]]
            if record["job"] != len(of_task):
                raise ValueError(f"{record['task']}: jobs are not in order in Laxity's trace")
            of_task.append(record["time_ns"])
    found = {
        task.name: outcomes(
            set,
            task.deadline_ns,
            [
                Job(arrival, end)
                for arrival, end in zip_longest(arrivals[task.name], ends[task.name])
            ],
        )
        for task in set.tasks
    }
    counted = {task.name: task.missed for domain in run.domains for task in domain.tasks}
    if counted != {task: sum(job.missed for job in jobs) for task, jobs in found.items()}:
        raise ValueError("Laxity's result and its trace have different misses")
    return Run(found, records)


def outcomes(set: Set, deadline_ns: int, jobs: list[Job]) -> list[Outcome]:
    """What became of a task's jobs by the end of the run; those that arrive then do not count."""
    found = []
    for job in jobs:
        if job.arrival >= set.duration_ns:
            continue
        end = job.end if job.end is not None and job.end <= set.duration_ns else None
        deadline = job.arrival + deadline_ns
        missed = deadline <= set.duration_ns and (end is None or end > deadline)
        found.append(Outcome(job.arrival, end, missed))
    return found


def compared(set: Set, ours: dict[str, list[Outcome]], theirs: dict[str, list[Job]]) -> Compared:
    """Each job of both, by its task and its number."""
    total = Compared()
    for task in set.tasks:
        of_ours = ours[task.name]
        jobs = theirs.get(task.name, [])
        of_theirs = outcomes(set, task.deadline_ns, jobs)
        previous_end: int | None = 0
        for number in range(max(len(of_ours), len(of_theirs))):
            one = of_ours[number] if number < len(of_ours) else None
            other = of_theirs[number] if number < len(of_theirs) else None
            # PARTSim takes up a job when it arrives, or when the one before it ends if that is
            # later, and looks at its deadline unless that is past.
            said = other is not None and _said(set, task.deadline_ns, jobs[number])
            unsaid = False
            if other is not None and other.missed and not said:
                deadline = other.arrival_ns + task.deadline_ns
                unsaid = previous_end is None or previous_end > deadline
            total.jobs += 1
            total.late += one is not None and one.missed
            total.unfinished += one is not None and one.end_ns is None
            total.said += said
            total.unsaid += unsaid
            if one is not None and one == other and one.missed == (said or unsaid):
                total.agreed += 1
            else:
                total.differences.append(Difference(task.name, number, one, other))
            previous_end = None if other is None else other.end_ns
    return total


def _said(set: Set, deadline_ns: int, job: Job) -> bool:
    """The trace has a line, for a deadline that is in the run."""
    return job.said_missed and job.arrival + deadline_ns <= set.duration_ns
