"""Which part of a run its timeline shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from laxity import _core, plots, tracefile
from laxity.errors import core_errors
from laxity.host import BY_WEIGHT

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.results import Run

PERIODS = 10
"""Of the smallest server, as a first guess at a good window."""

INTERVALS = (50, 100)
"""How many stretches of running a picture should show, of the VCPUs that have a lane."""

CREDIT_PERIOD_NS = 30_000_000
"""Xen's accounting period, for VCPUs without a period of their own."""

GUESSES_MAX = 6

COMPLETE = tracefile.KINDS.index("complete") + 1


def chosen_window(run: Run, trace: Path) -> tuple[int, int]:
    """From and to, ns: around the first missed deadline, or else the start.

    As wide as shows some 50 to 100 intervals.
    """
    metadata = tracefile.metadata(trace)
    has_servers = metadata["policy"] not in BY_WEIGHT
    periods = [
        domain["period_ns"] for domain in metadata["domains"] if domain["period_ns"] and has_servers
    ]
    width_ns = PERIODS * min(periods, default=CREDIT_PERIOD_NS)
    middle_ns = (first_missed_ns(trace) if run.missed else None) or 0
    duration_ns = metadata["duration_ns"]
    window = _around(middle_ns, width_ns, duration_ns)
    for _ in range(GUESSES_MAX):
        with core_errors():
            timeline = json.loads(_core.timeline(str(trace), *window))
        shown = set(plots.vcpus_that_matter(timeline, metadata))
        intervals = sum((ran["domain"], ran["vcpu"]) in shown for ran in timeline["occupancy"])
        if INTERVALS[0] <= intervals <= INTERVALS[1]:
            break
        # At most a factor of 4 at a time: running may come in bursts.
        factor = sum(INTERVALS) / 2 / max(intervals, 1)
        width_ns = round(width_ns * min(4.0, max(0.25, factor)))
        window = _around(middle_ns, width_ns, duration_ns)
    return window


def _around(middle_ns: int, width_ns: int, duration_ns: int) -> tuple[int, int]:
    """Of about that width about the middle, in round numbers, as far as the run goes."""
    width_ns = max(1, min(width_ns, duration_ns))
    step_ns = 10 ** max(0, len(str(width_ns)) - 2)
    from_ns = max(0, min(middle_ns - width_ns // 2, duration_ns - width_ns)) // step_ns * step_ns
    return from_ns, min(duration_ns, from_ns + -(-width_ns // step_ns) * step_ns)


def first_missed_ns(trace: Path) -> int | None:
    """The first deadline that a job missed; None if none did.

    Jobs of a task complete in order, so one that did not complete is the task's first after those
    that did.
    """
    metadata = tracefile.metadata(trace)
    of_domain = metadata["domains"]
    tasks = [task for domain in of_domain for task in domain["tasks"]]
    if not tasks:
        return None
    first_task = np.cumsum([0, *(len(domain["tasks"]) for domain in of_domain)])
    period, deadline, offset = (
        np.array([task[key] for task in tasks], np.int64)
        for key in ("period_ns", "deadline_ns", "offset_ns")
    )
    records = tracefile.records(trace)
    completed = np.zeros(len(tasks), np.int64)
    first: int | None = None
    for start in range(0, len(records), tracefile.BATCH_RECORDS):
        part = records[start : start + tracefile.BATCH_RECORDS]
        part = part[part["kind"] == COMPLETE]
        task = first_task[part["domain"]] + (part["argument"] >> tracefile.JOB_NUMBER_BITS)
        job = part["argument"] & ((1 << tracefile.JOB_NUMBER_BITS) - 1)
        due = offset[task] + job * period[task] + deadline[task]
        np.maximum.at(completed, task, job + 1)
        late = due[part["time_ns"] > due]
        if late.size:
            first = int(min(late.min(), first if first is not None else late.min()))
    due = offset + completed * period + deadline
    unfinished = due[due <= metadata["duration_ns"]]
    if unfinished.size:
        first = int(min(unfinished.min(), first if first is not None else unfinished.min()))
    return first
