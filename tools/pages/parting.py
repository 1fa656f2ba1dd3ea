"""What parts two traces of a host with one CPU first: the simulator's and that of a real run."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from laxity import tracefile
from laxity.policies import TABLE
from laxity.text import time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt
    from laxity.resolved_schema import ResolvedHost

    Records = npt.NDArray[np.void]

NS_A_US, NS_A_MS = 1_000, 1_000_000
APART_NS = 300_000
"""Turns of other VCPUs count if they are longer; a job that comes between is longer, too."""
BEFORE_NS = 1_000_000
"""Events are looked at from so long before."""
EARLIER_NS = 60_000_000
"""Shorter turns are looked at from so long before: two slices of credit."""
SAME_EVENT_NS = 200_000
"""The most that an event may be apart in the two."""
CREDITS_APART_MS = 10.0
"""Credits that are further apart are so because one side set them to 0."""
IDLE = -1

NUMBERS = {kind: tracefile.number_of(kind) for kind in tracefile.KINDS}
VERBS = {"wake": "wakes", "block": "blocks", "exhaust": "uses its budget up"}
"""The kinds of events that are looked at, in words."""


@dataclass(frozen=True)
class Parting:
    """The first time for which the CPU runs other VCPUs in the two, if there is one."""

    at_ms: float | None
    seen: str
    """What differs there, or before; in words."""


@dataclass(frozen=True)
class Event:
    """Something that happens to a VCPU."""

    time_ns: int
    kind: str
    domain: int

    def __str__(self) -> str:
        return f"{named(self.domain)} {VERBS[self.kind]}"


def named(domain: int) -> str:
    """The name of a domain by its number."""
    return "idle" if domain == IDLE else f"d{domain}"


def first(model: Path, real: Path, host: ResolvedHost) -> Parting:
    """Returns what parts the two.

    Where nothing is seen to differ, the cause is looked for at the last shorter times for which the
    CPU ran other VCPUs.
    """
    of_model, of_real = tracefile.records(model), tracefile.records(real)
    looks = [a_job_apart, events_swapped, an_event_alone]
    if TABLE[host["policy"]].uses("accounting"):
        looks.insert(0, credits_apart)
    earlier_ns: list[int] = []
    for begin_ns, end_ns, ours, theirs in stretches(of_model, of_real):
        if end_ns - begin_ns <= APART_NS:
            earlier_ns.append(begin_ns)
            continue
        runs = f"{named(theirs)} on Xen, {named(ours)} in the simulator"
        last_ns = [at_ns for at_ns in earlier_ns if begin_ns - at_ns < EARLIER_NS]
        for at_ns in (begin_ns, *reversed(last_ns)):
            words = next(filter(None, (look(of_model, of_real, at_ns) for look in looks)), "")
            if words:
                since = "" if at_ns == begin_ns else f"{time(begin_ns - at_ns)} before: "
                return Parting(begin_ns / NS_A_MS, f"{runs}; {since}{words}")
        return Parting(begin_ns / NS_A_MS, runs)
    return Parting(None, margins(of_model, of_real, host))


def margins(model: Records, real: Records, host: ResolvedHost) -> str:
    """How far apart the jobs end that are in time in one of the two alone."""
    ours, theirs = ends_ns(model), ends_ns(real)
    apart_ns = []
    for (domain, job), our_end_ns in ours.items():
        task = host["domains"][domain]["tasks"][job >> tracefile.JOB_NUMBER_BITS]
        number = job & ((1 << tracefile.JOB_NUMBER_BITS) - 1)
        due_ns = task["offset_ns"] + number * task["period_ns"] + task["deadline_ns"]
        their_end_ns = theirs.get((domain, job))
        if their_end_ns is not None and (our_end_ns > due_ns) != (their_end_ns > due_ns):
            apart_ns.append(abs(our_end_ns - their_end_ns))
    if not apart_ns:
        return "all jobs are in time in both or in neither"
    median_ns = int(statistics.median(apart_ns))
    return f"jobs that are in time on one side alone end {time(median_ns)} apart (median)"


def ends_ns(records: Records) -> dict[tuple[int, int], int]:
    """When each job is complete, by its domain and what records about it have."""
    return {
        (int(one["domain"]), int(one["argument"])): int(one["time_ns"])
        for one in records[records["kind"] == NUMBERS["complete"]]
    }


def stretches(model: Records, real: Records) -> Iterator[tuple[int, int, int, int]]:
    """Yields when both run other VCPUs: begin and end, ns, and the domain in each."""
    changes = sorted(
        (time_ns, side, domain)
        for side, records in enumerate((model, real))
        for time_ns, domain in on_cpu(records)
    )
    runs, begin_ns = [IDLE, IDLE], 0
    for time_ns, of_instant in itertools.groupby(changes, key=lambda change: change[0]):
        ours, theirs = runs
        for _, side, domain in of_instant:
            runs[side] = domain
        if runs != [ours, theirs]:
            if ours != theirs:
                yield begin_ns, time_ns, ours, theirs
            begin_ns = time_ns


def on_cpu(records: Records) -> list[tuple[int, int]]:
    """When the CPU is given to a domain, or to nobody."""
    run, stop = NUMBERS["run"], NUMBERS["stop"]
    some = records[np.isin(records["kind"], (run, stop))]
    return [
        (int(one["time_ns"]), int(one["domain"]) if one["kind"] == run else IDLE) for one in some
    ]


def credits_apart(model: Records, real: Records, at_ns: int) -> str:
    """The VCPU whose credits are of another class in the two, if there is one."""
    ours, theirs = (credits_ms(records, at_ns) for records in (model, real))
    for domain in sorted(ours.keys() & theirs.keys()):
        one, other = theirs[domain], ours[domain]
        if (one < 0) != (other < 0) or abs(one - other) > CREDITS_APART_MS:
            return (
                f"credits of {named(domain)}: {one:+.2f} ms on Xen, {other:+.2f} in the simulator"
            )
    return ""


def credits_ms(records: Records, at_ns: int) -> dict[int, float]:
    """The credits of the domains since the last accounting."""
    told = (records["kind"] == NUMBERS["replenish"]) & (records["time_ns"] <= at_ns)
    return {int(one["domain"]): int(one["argument"]) / NS_A_MS for one in records[told]}


def a_job_apart(model: Records, real: Records, at_ns: int) -> str:
    """The job that is complete in one of them then, and long after in the other."""
    ours, theirs = ends_ns(model), ends_ns(real)
    apart = [
        (abs(theirs_ns - ours_ns), theirs_ns - ours_ns, job[0])
        for job, ours_ns in ours.items()
        if (theirs_ns := theirs.get(job)) is not None
        and min(ours_ns, theirs_ns) <= at_ns + SAME_EVENT_NS < max(ours_ns, theirs_ns)
        and min(ours_ns, theirs_ns) > at_ns - BEFORE_NS
    ]
    if not apart:
        return ""
    _, late_ns, domain = min(apart)
    later = "later" if late_ns > 0 else "earlier"
    return f"a job of {named(domain)} ends {time(abs(late_ns))} {later} on Xen"


def events_swapped(model: Records, real: Records, at_ns: int) -> str:
    """The last two events that come in another order in the two."""
    pairs, _ = matched(events(model, at_ns), events(real, at_ns))
    swapped = [
        (ours, theirs, other_ours, other_theirs)
        for (ours, theirs), (other_ours, other_theirs) in itertools.combinations(pairs, 2)
        if (ours.time_ns - other_ours.time_ns) * (theirs.time_ns - other_theirs.time_ns) < 0
    ]
    if not swapped:
        return ""
    ours, theirs, other_ours, other_theirs = max(swapped, key=lambda four: four[1].time_ns)
    if theirs.time_ns > other_theirs.time_ns:
        ours, theirs, other_ours, other_theirs = other_ours, other_theirs, ours, theirs
    return (
        f"{theirs} {time(other_theirs.time_ns - theirs.time_ns)} before {other_theirs} on Xen, "
        f"and {time(ours.time_ns - other_ours.time_ns)} after in the simulator"
    )


def an_event_alone(model: Records, real: Records, at_ns: int) -> str:
    """The last event that only one of them has."""
    _, alone = matched(events(model, at_ns), events(real, at_ns))
    # What is at the edges of the time that is looked at may have its like beyond.
    after_ns, before_ns = SAME_EVENT_NS // 2, SAME_EVENT_NS - BEFORE_NS
    alone = [one for one in alone if before_ns < one[0].time_ns - at_ns < after_ns]
    if not alone:
        return ""
    event, where = max(alone, key=lambda one: one[0].time_ns)
    away_ns = at_ns - event.time_ns
    when = f"{time(abs(away_ns))} {'before' if away_ns > 0 else 'after'}" if away_ns else "then"
    return f"{event} {where} alone, {when}"


def events(records: Records, at_ns: int) -> list[Event]:
    """What happens to VCPUs shortly before."""
    since_ns = records["time_ns"] - at_ns
    near = (since_ns > -BEFORE_NS) & (since_ns < SAME_EVENT_NS)
    some = records[near & np.isin(records["kind"], [NUMBERS[kind] for kind in VERBS])]
    return [
        Event(int(one["time_ns"]), tracefile.KINDS[one["kind"] - 1], int(one["domain"]))
        for one in some
    ]


def matched(
    model: list[Event], real: list[Event]
) -> tuple[list[tuple[Event, Event]], list[tuple[Event, str]]]:
    """Events that both have, and those that one has alone, with where."""
    pairs, left, alone = [], list(model), []
    for theirs in real:
        same = [
            ours
            for ours in left
            if (ours.kind, ours.domain) == (theirs.kind, theirs.domain)
            and abs(ours.time_ns - theirs.time_ns) < SAME_EVENT_NS
        ]
        if same:
            ours = min(same, key=lambda ours: abs(ours.time_ns - theirs.time_ns))
            left.remove(ours)
            pairs.append((ours, theirs))
        else:
            alone.append((theirs, "on Xen"))
    return pairs, alone + [(ours, "in the simulator") for ours in left]
