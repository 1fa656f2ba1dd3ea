"""What guests take on top of the cost of their jobs, and what they lose, from traces of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from laxity import tracefile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    Records = np.ndarray[tuple[int], np.dtype[Any]]

LATE_NS = 100_000
"""How much later than its tick a guest may wake for it."""

RELEASE, COMPLETE, WAKE, BLOCK, RUN, STOP, SCHEDULE, REPLENISH = (
    tracefile.number_of(kind)
    for kind in ("release", "complete", "wake", "block", "run", "stop", "schedule", "replenish")
)

SERVED = (WAKE, SCHEDULE, RUN, BLOCK, STOP)
"""What a trace has of a tick for which an idle VCPU wakes at once, undisturbed."""


DROPPED = (RELEASE, REPLENISH, WAKE)
"""What a trace has of a budget that comes before its VCPU has woken for a job."""


def tick_costs_ns(trace: Path, ticks: Sequence[Mapping[str, int]]) -> list[int]:
    """CPU time of each tick for which a guest, otherwise idle, woke and blocked again undisturbed.

    Less what the hypervisor took to decide for it and to switch to it. `ticks` are those that the
    guests of the domains reported; each domain has one VCPU.
    """
    records = tracefile.records(trace)
    found = []
    for number, tick in enumerate(ticks):
        of_domain = records[records["domain"] == number]
        of_vcpu = of_domain[np.isin(of_domain["kind"], (RELEASE, *SERVED))]
        kinds, times_ns = of_vcpu["kind"], of_vcpu["time_ns"]
        starts = _places(kinds, SERVED)
        late_ns = (times_ns[starts] - tick["offset_ns"]) % tick["period_ns"]
        # A job's release stands right before the wake that it causes.
        is_tick = (late_ns < LATE_NS) & (kinds[np.maximum(starts - 1, 0)] != RELEASE)
        for start in starts[is_tick]:
            decision, run, stop = start + 1, start + 2, start + 4
            ran_ns = times_ns[stop] - times_ns[run] - of_vcpu["argument"][decision]
            found.append(int(ran_ns))
    return found


def budgets_before_wakes(trace: Path, domain: int) -> int:
    """How often a domain with one VCPU got its budget after a job was released and before it woke.

    A polling server drops it then. In the simulator, releases come first at an instant.
    """
    records = tracefile.records(trace)
    chosen = (records["domain"] == domain) & np.isin(records["kind"], (RELEASE, REPLENISH, WAKE))
    kinds, times_ns = records["kind"][chosen], records["time_ns"][chosen]
    at = _places(kinds, DROPPED)
    return int((times_ns[at + len(DROPPED) - 1] - times_ns[at] < LATE_NS).sum())


def late_ends_ns(trace: Path) -> list[int]:
    """By how much the turns of VCPUs ended later than the decision that began them said.

    Only turns count that a timer ended, and not something else. The host has one CPU.
    """
    records = tracefile.records(trace)
    turns = records[np.isin(records["kind"], (RUN, STOP))]
    begins = _places(turns["kind"], (RUN, STOP))
    late_ns = turns["time_ns"][begins + 1] - turns["argument"][begins]
    return [int(late) for late in late_ns if 0 <= late < LATE_NS]


def job_cost_ns(sim: Path, xen: Path, domains: int) -> int:
    """CPU time that a job takes longer on Xen than in the simulator's run of the same host.

    The mean over all jobs that were complete, in each domain, when it had no job left in both for
    the last time: the CPU time of one that has jobs left is what it was given, whatever they take.
    """
    longer_ns = jobs = 0
    both = [tracefile.records(trace) for trace in (sim, xen)]
    for number in range(domains):
        simulated, real = (records[records["domain"] == number] for records in both)
        until_ns = _last_idle_ns(simulated, real)
        longer_ns += _ran_ns(real, until_ns) - _ran_ns(simulated, until_ns)
        done = (real["kind"] == COMPLETE) & (real["time_ns"] <= until_ns)
        jobs += int(done.sum())
    return round(longer_ns / jobs) if jobs else 0


def _places(kinds: Records, pattern: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Where the pattern begins."""
    if len(kinds) < len(pattern):
        return np.empty(0, np.intp)
    windows = np.lib.stride_tricks.sliding_window_view(kinds, len(pattern))
    return np.flatnonzero((windows == pattern).all(axis=1))


def _last_idle_ns(*traces: Records) -> int:
    """The end of the last time for which all of these have no job; 0 if there is none."""
    waiting = [records[np.isin(records["kind"], (RELEASE, COMPLETE))] for records in traces]
    changes = [
        (int(record["time_ns"]), place, 1 if record["kind"] == RELEASE else -1)
        for place, records in enumerate(waiting)
        for record in records
    ]
    jobs, last_ns = [0] * len(traces), 0
    for time_ns, place, change in sorted(changes, key=lambda each: each[0]):
        if not any(jobs):
            last_ns = time_ns
        jobs[place] += change
    return last_ns


def _ran_ns(records: Records, until_ns: int) -> int:
    """CPU time of a domain with one VCPU."""
    runs, stops = (records["time_ns"][records["kind"] == kind] for kind in (RUN, STOP))
    ran = runs < until_ns
    ends = np.append(stops, until_ns)[: len(runs)]
    return int((np.minimum(ends, until_ns) - runs)[ran].sum())
