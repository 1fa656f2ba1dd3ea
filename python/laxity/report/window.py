"""The part of a run that its timeline shows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from laxity import _core, tracefile
from laxity.errors import core_errors
from laxity.plots.timeline import vcpus_that_matter
from laxity.policies import BY_WEIGHT
from laxity.results.streams import LOST, PACKET_NS

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.resolved_schema import ResolvedHost
    from laxity.results.run import Run
    from laxity.trace_schema import Timeline

PERIODS = 10
"""The first guess at a good window, in periods of the smallest server."""

INTERVALS = (50, 100)
"""How many stretches of running a picture should show, of the VCPUs that have a lane."""

CREDIT_PERIOD_NS = 30_000_000
"""Xen's accounting period, for VCPUs without a period of their own."""

GUESSES_MAX = 6

COMPLETE = tracefile.number_of("complete")


WAITS = 4
"""How often the longest wait, of a VCPU or of a packet, fits into a window about a packet."""

PACKET_WINDOW_NS = (1_000_000, 1_000_000_000)
"""The least and the greatest width of a window about a packet."""


@dataclass(frozen=True)
class Cause:
    """What someone who opens a report wants to see first."""

    what: str
    """For the caption: "the first missed deadline"."""
    marks: tuple[tuple[int, str], ...]
    """When it was, ns, the beginning first; and a clause on what was then, for the legend."""
    width_ns: int | None = None
    """How much time shows it; None if that depends on who ran."""


def cause(run: Run, trace: Path, host: ResolvedHost) -> Cause | None:
    """What the timeline is about: the host's failure, or else what went wrong first.

    That is a missed deadline, or a sampled packet that was lost or came later than the host's limit
    of delay. Where nothing went wrong it is the slowest of the sampled packets; None without any.
    """
    failed = _failure(run, host)
    if failed is not None:
        return failed
    first_ns = first_missed_ns(trace) if run.missed else None
    missed = first_ns is not None and Cause(
        "the first missed deadline", ((first_ns, "the first deadline is missed"),)
    )
    packet = _packet(run, host)
    if missed and packet and packet.what.startswith("the first"):
        return min(missed, packet, key=lambda cause: cause.marks[0])
    return missed or packet


def _failure(run: Run, host: ResolvedHost) -> Cause | None:
    protect = host["network"] and host["network"].get("protect")
    failure = protect and protect["failure"]
    if not failure or run.telephony is None:
        return None
    at_ns = failure["at_ns"]
    outages_ns = [each.outage_ns for each in run.telephony.protection if each.outage_ns is not None]
    if at_ns >= run.duration_ns:
        return None
    marks = [(at_ns, "the host fails")]
    if outages_ns:
        marks.append((at_ns + max(outages_ns), "all its domains run on"))
    outage_ns = max(outages_ns, default=run.duration_ns - at_ns)
    return Cause("the host's failure", tuple(marks), 2 * outage_ns)


def _packet(run: Run, host: ResolvedHost) -> Cause | None:
    """The first sampled packet that was lost or too late, or else the slowest."""
    if host["calls"] is None:
        return None
    limit_ns = host["calls"]["acceptance"]["delay_ns"]
    first: tuple[int, str, int | None] | None = None
    slowest: tuple[int, int] | None = None
    for stream in run.streams:
        sent_ns = stream.start_ns + np.arange(stream.arrived_ns.size) * PACKET_NS
        is_lost = stream.arrived_ns == LOST
        delay_ns = np.where(is_lost, 0, stream.arrived_ns - sent_ns)
        bad = np.flatnonzero(is_lost | (delay_ns > limit_ns))
        if bad.size and (first is None or sent_ns[bad[0]] < first[0]):
            which, at = ("lost" if is_lost[bad[0]] else "late"), int(sent_ns[bad[0]])
            first = at, which, None if which == "lost" else at + int(delay_ns[bad[0]])
        if delay_ns.size and (slowest is None or delay_ns.max() > slowest[1] - slowest[0]):
            at = int(sent_ns[delay_ns.argmax()])
            slowest = at, at + int(delay_ns.max())
    waits_ns = [domain.waits.max_ns for domain in run.domains if domain.waits]
    longest_ns = max([*waits_ns, slowest[1] - slowest[0] if slowest else 0])
    width_ns = min(max(WAITS * longest_ns, PACKET_WINDOW_NS[0]), PACKET_WINDOW_NS[1])
    if first is not None:
        sent, which, arrived = first
        marks = [(sent, f"a packet is sent that is {which}")]
        if arrived is not None:
            marks.append((arrived, "it arrives"))
        return Cause(f"the first sampled packet that was {which}", tuple(marks), width_ns)
    if slowest is not None:
        marks = [(slowest[0], "the slowest packet is sent"), (slowest[1], "it arrives")]
        return Cause("the slowest sampled packet; none was lost or late", tuple(marks), width_ns)
    return None


def chosen_window(run: Run, trace: Path, cause: Cause | None) -> tuple[int, int]:
    """From and to, ns: around what the timeline is about, or else the start.

    Where the cause does not say how much time shows it, as wide as shows some 50 to 100 intervals.
    """
    if cause is not None and cause.width_ns is not None:
        begins_ns, ends_ns = cause.marks[0][0], cause.marks[-1][0]
        return _around((begins_ns + ends_ns) // 2, cause.width_ns, run.duration_ns)
    metadata = tracefile.metadata(trace)
    has_servers = metadata["policy"] not in BY_WEIGHT
    periods = [
        domain["period_ns"] for domain in metadata["domains"] if domain["period_ns"] and has_servers
    ]
    width_ns = PERIODS * min(periods, default=CREDIT_PERIOD_NS)
    middle_ns = 0 if cause is None else cause.marks[0][0]
    duration_ns = metadata["duration_ns"]
    window = _around(middle_ns, width_ns, duration_ns)
    for _ in range(GUESSES_MAX):
        with core_errors():
            timeline: Timeline = json.loads(_core.timeline(str(trace), *window))
        shown = set(vcpus_that_matter(timeline, metadata))
        intervals = sum((ran["domain"], ran["vcpu"]) in shown for ran in timeline["occupancy"])
        if INTERVALS[0] <= intervals <= INTERVALS[1]:
            break
        # At most a factor of 4 at a time: running may come in bursts.
        factor = sum(INTERVALS) / 2 / max(intervals, 1)
        width_ns = round(width_ns * min(4.0, max(0.25, factor)))
        window = _around(middle_ns, width_ns, duration_ns)
    return window


def _around(middle_ns: int, width_ns: int, duration_ns: int) -> tuple[int, int]:
    """A window of about that width around the middle, in round numbers, within the run."""
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
