"""What the timeline of a page needs of a run: all of its trace, encoded, and what was late."""

from __future__ import annotations

import base64
import json
import zlib
from bisect import bisect
from itertools import accumulate
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from laxity import _core, tracefile
from laxity.errors import core_errors
from laxity.plots.timeline import vcpus_that_matter
from laxity.policies import BY_WEIGHT
from laxity.report.page import Live
from laxity.results.streams import LOST, PACKET_NS
from laxity.tables.why import lost_where, shares
from laxity.text import time
from laxity.why import LATE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from laxity.report.window import Cause
    from laxity.resolved_schema import ResolvedHost
    from laxity.results.run import Run
    from laxity.trace_schema import Metadata, Timeline
    from laxity.why import Late, What, Why

STRETCH_RECORDS = 1 << 15
"""Records that a page decodes at once."""

EXACT_BYTES_MAX = 9_000_000
"""A page has so much of a run exactly, deflated: the parts next to what it is about."""

LATE_MAX = 100
"""Late jobs, packets and messages, and outages, of each kind, that a page goes to."""


class LateRow(TypedDict):
    """Something late, as the page's script takes it."""

    what: str
    is_packet: bool
    vcpu: int | None
    """Its VCPU's number among all; None if no VCPU was late with it."""
    from_ns: int
    to_ns: int
    due_ns: int | None
    late: str
    causes: list[tuple[int, str]]
    """What each cause took, ns."""


def live(
    run: Run,
    trace: Path,
    host: ResolvedHost,
    metadata: Metadata,
    timeline: Timeline,
    about: Cause | None,
    found: Why | None,
) -> Live:
    """The timeline of a whole run that opens at a window of it.

    `metadata` is the trace's, `timeline` the window, `about` what it shows if it was not asked for,
    `found` what was late with its causes, or None if nothing was.
    """
    window_ns = timeline["from_ns"], timeline["to_ns"]
    with core_errors():
        stretches, overview = _core.timeline_levels(str(trace), STRETCH_RECORDS)
    shown = {domain for domain, _ in vcpus_that_matter(timeline, metadata)}
    late_of = _most_late(found)
    packets = _explained_packets([*late_of["packet"], *late_of["message"]], metadata, run)
    late = [
        *_late_jobs(late_of["job"], metadata, run.policy),
        *(list(packets) or _late_packets(run, host)),
        *_outages(late_of["outage"], metadata, run.policy),
    ]
    late.sort(key=lambda each: each["from_ns"])
    content = {
        "duration_ns": metadata["duration_ns"],
        "window": window_ns,
        "cpus": metadata["cpus"],
        "domains": [
            {
                "name": domain["name"],
                "vcpus": domain["vcpus"],
                "tasks": [{"name": task["name"], "vcpu": task["vcpu"]} for task in domain["tasks"]],
            }
            for domain in metadata["domains"]
        ],
        "open": sorted(shown),
        "value": "credits" if run.policy in BY_WEIGHT else "budget",
        "marks": [] if about is None else about.marks,
        "exits": tracefile.EXITS,
        "late": late,
        "stretches": list(
            packed(stretches, sum(window_ns) // 2, [each["from_ns"] for each in late])
        ),
        "overview": _text(overview),
    }
    data = json.dumps(content, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    has_tasks = any(domain["tasks"] for domain in metadata["domains"])
    return Live(
        "First cause" if about is not None else "Where it opened", _note(about, has_tasks), data
    )


def _note(about: Cause | None, has_tasks: bool) -> str:
    """What the timeline opens at, and what its signs mean."""
    said = []
    if about is not None:
        solid, *dotted = (what for _, what in about.marks)
        then = f", and the dotted one where {dotted[0]}" if dotted else ""
        said.append(f"It opens around {about.what}. The red line is where {solid}{then}.")
    if has_tasks:
        said.append(
            "A triangle is an arrival, a circle a completion, and a short red line a missed "
            "deadline."
        )
    return " ".join(said)


def packed(
    stretches: Sequence[tuple[int, int, bytes]],
    middle_ns: int,
    late_ns: Sequence[int] = (),
    bytes_max: int = EXACT_BYTES_MAX,
) -> Iterable[tuple[int, int, str | None]]:
    """Stretches deflated, as text, in their order.

    Only those of certain times, and then those that are nearest to `middle_ns`, that together have
    so many bytes at most, keep what is in them; the others have None.
    """
    deflated = [zlib.compress(content) for _, _, content in stretches]
    distances = [max(from_ns - middle_ns, middle_ns - to_ns) for from_ns, to_ns, _ in stretches]
    begins = [from_ns for from_ns, _, _ in stretches]
    for at_ns in (*late_ns, middle_ns):
        distances[bisect(begins, at_ns) - 1] = -_core.TIME_NS_MAX
    nearest = np.argsort(distances, kind="stable")
    sizes = np.cumsum([len(deflated[place]) for place in nearest])
    kept = set(nearest[sizes <= bytes_max].tolist())
    for place, (from_ns, to_ns, _) in enumerate(stretches):
        content = deflated[place]
        yield from_ns, to_ns, base64.b64encode(content).decode() if place in kept else None


def _text(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def _most_late(found: Why | None) -> dict[What, list[Late]]:
    """Those of each kind to which a page goes: the first, which are late by most."""
    every = found.late if found is not None else ()
    return {kind: [late for late in every if late.kind == kind][:LATE_MAX] for kind in LATE_KINDS}


def _late_jobs(jobs: Iterable[Late], metadata: Metadata, policy: str) -> Iterable[LateRow]:
    """Where each late job was, until when, and why."""
    first = _first_vcpus(metadata)
    vcpus = {
        f"{domain['name']}/{task['name']}": first[domain["name"]] + task["vcpu"]
        for domain in metadata["domains"]
        for task in domain["tasks"]
    }
    for late in jobs:
        end_ns = late.completion_ns
        yield {
            "what": late.what,
            "is_packet": False,
            "vcpu": vcpus[late.what.rpartition("#")[0]],
            "from_ns": late.arrival_ns,
            "to_ns": metadata["duration_ns"] if end_ns is None else end_ns,
            "due_ns": late.deadline_ns,
            "late": f"{time(late.late_ns)} late",
            "causes": shares(late, policy),
        }


def _first_vcpus(metadata: Metadata) -> dict[str, int]:
    """The number of each domain's first VCPU among all."""
    domains = metadata["domains"]
    counts = [domain["vcpus"] for domain in domains]
    names = (domain["name"] for domain in domains)
    return dict(zip(names, accumulate(counts, initial=0), strict=False))


def _explained_packets(packets: Iterable[Late], metadata: Metadata, run: Run) -> Iterable[LateRow]:
    """Each late or lost packet or message: the VCPU where it was late, until when, and why."""
    first = _first_vcpus(metadata)
    for late in packets:
        of, number = late.what.rsplit("/", 1)[1].replace("-", " ").split("#")
        end_ns = late.deadline_ns if late.completion_ns is None else late.completion_ns
        at = next((cause.at for cause in late.causes if cause.at is not None), None)
        domain, _, vcpu = (at or "").partition("/")
        yield {
            "what": f"{of}, {late.kind} {number}",
            "is_packet": True,
            "vcpu": None if at is None else first[domain] + int(vcpu or 0),
            "from_ns": late.arrival_ns,
            "to_ns": min(end_ns, run.duration_ns),
            "due_ns": min(late.deadline_ns, run.duration_ns),
            "late": lost_where(late) if late.packet == "lost" else f"{time(late.late_ns)} late",
            "causes": shares(late, run.policy),
        }


def _outages(outages: Iterable[Late], metadata: Metadata, policy: str) -> Iterable[LateRow]:
    """Each outage: the first VCPU of the domain that was out, until when, and why."""
    first = _first_vcpus(metadata)
    for late in outages:
        domain = late.what.removesuffix("/outage")
        end_ns = late.completion_ns
        yield {
            "what": f"outage of {domain}",
            "is_packet": False,
            "vcpu": first[domain],
            "from_ns": late.arrival_ns,
            "to_ns": metadata["duration_ns"] if end_ns is None else end_ns,
            "due_ns": None,
            "late": f"out for {time(late.late_ns)}",
            "causes": shares(late, policy),
        }


def _late_packets(run: Run, host: ResolvedHost) -> Iterable[LateRow]:
    """The sampled packets that were lost, and those that came later than the host's limit."""
    if host["calls"] is None:
        return
    limit_ns = host["calls"]["acceptance"]["delay_ns"]
    packets = []
    for stream in run.streams:
        sent_ns = stream.start_ns + np.arange(stream.arrived_ns.size) * PACKET_NS
        is_lost = stream.arrived_ns == LOST
        delay_ns = np.where(is_lost, limit_ns, stream.arrived_ns - sent_ns)
        packets += [
            (int(sent_ns[at]), stream.stream, int(at), bool(is_lost[at]), int(delay_ns[at]))
            for at in np.flatnonzero(is_lost | (delay_ns > limit_ns))[:LATE_MAX]
        ]
    for at_ns, number, packet, lost, took_ns in sorted(packets)[:LATE_MAX]:
        yield {
            "what": f"stream {number}, packet {packet}",
            "is_packet": True,
            "vcpu": None,
            "from_ns": at_ns,
            "to_ns": min(at_ns + took_ns, run.duration_ns),
            "due_ns": min(at_ns + limit_ns, run.duration_ns),
            "late": "lost" if lost else f"{time(took_ns - limit_ns)} late",
            "causes": []
            if lost
            else [(took_ns - limit_ns, f"it took {time(took_ns)}; the limit is {time(limit_ns)}")],
        }
