"""The trace of a run on this machine: who had the CPUs, and the ways of late packets.

Pure, but for files. All times are told by CLOCK_MONOTONIC: phones, media server and the kernel's
events read it, and the kernel's stamps of arrival are converted to it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity import _core
from laxity.errors import InputError, core_errors
from laxity.resolved import calls_of
from laxity.text import number
from laxity.tracefile import domains_of_threads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from laxity.observation_schema import Survey, Thread
    from laxity.resolved_schema import ResolvedHost
    from laxity.substrates.linux.media import SceneReport, Seen
    from laxity.trace_schema import DomainMetadata, Metadata

    Array = npt.NDArray[Any]

POLICY = "eevdf"
"""The kernel's scheduler of ordinary processes."""
PHONES = "phones"
"""The threads that send and receive the calls' voice."""
PACKET_BITS = 32
"""Bits of a key that hold a packet's number; its stream stands above them."""
NOT_SEEN = (
    "what the kernel does with a packet between two sockets; this time counts as wire",
    "when the machine itself is descheduled by a hypervisor; this time counts for whoever ran",
)
"""What no trace of a run on Linux tells."""


def write(
    out: Path,
    recording: Path,
    host: ResolvedHost,
    report: SceneReport,
    domains: Sequence[str],
) -> None:
    """Writes the trace of a run, of which `report` is what `media.run` returned.

    `domains` are the host's, by their names. Raises InputError if the recording contradicts itself.
    """
    seen = report["seen"]
    with core_errors():
        survey: Survey = json.loads(_core.recorded_threads(str(recording)))
    traced, threads = domains_of(survey["threads"], domains, seen)
    calls = calls_of(host)
    packets = report["packets"]
    start_ns = int(packets["sent_ns"].min()) if packets.size else seen.begin_ns
    limit_ns = calls["acceptance"]["delay_ns"]
    media = calls["media_server"]
    ways, untold = late_ways(packets, report["passages"], limit_ns, start_ns, media, threads[media])
    ends_ns = [host["duration_ns"], *(int(each) for each in packets["arrived_ns"] - start_ns)]
    metadata: Metadata = {
        "substrate": "linux",
        "policy": POLICY,
        "seed": host["seed"],
        "duration_ns": max(ends_ns),
        "cpus": survey["cpus"],
        "domains": traced,
        "calls": {"delay_ns": limit_ns, "not_seen": not_seen(host, report, untold)},
    }
    if not set(threads[media]).intersection(each["thread"] for each in survey["threads"]):
        raise InputError(
            "the kernel's events have none of the media server's threads; they may have other "
            "numbers in this container",
            "run it on the host itself",
        )
    with core_errors():
        _core.import_recorded(
            str(recording), str(out), json.dumps(metadata), threads, start_ns, ways.tobytes()
        )


def domains_of(
    recorded: Sequence[Thread], domains: Sequence[str], seen: Seen
) -> tuple[list[DomainMetadata], list[list[int]]]:
    """The domains of the trace, and the threads of each one's VCPUs.

    Behind the host's come those of programs that ran beside them, the phones among these.
    """
    named = [(name, seen.threads.get(name, [])) for name in domains]
    return domains_of_threads(named, recorded, dict.fromkeys(seen.phones, PHONES))


def late_ways(
    packets: Array,
    passages: Array,
    limit_ns: int,
    start_ns: int,
    media: int,
    threads: Sequence[int],
) -> tuple[Array, int]:
    """The ways of late packets, as `_core.import_recorded` takes them, and how many have none.

    `packets` are PACKET and `passages` PASSAGE, `threads` are those of the domain `media`. A packet
    has no way if the media server wrote nothing of it.
    """
    late = packets[packets["arrived_ns"] - packets["sent_ns"] > limit_ns]
    known = passages[np.isin(passages["thread"], threads)]
    keys = _keys(known)
    order = np.argsort(keys, kind="stable")
    keys, known = keys[order], known[order]
    places = np.searchsorted(keys, _keys(late))
    is_told = places < keys.size
    is_told[is_told] = keys[places[is_told]] == _keys(late)[is_told]
    told, passage = late[is_told], known[places[is_told]]
    vcpus = {thread: vcpu for vcpu, thread in enumerate(threads)}
    ways = np.column_stack(
        [
            told["stream"],
            told["packet"],
            np.full(told.size, media),
            np.array([vcpus[thread] for thread in passage["thread"]], np.int64),
            told["sent_ns"] - start_ns,
            passage["arrived_ns"] - start_ns,
            passage["left_ns"] - start_ns,
            told["arrived_ns"] - start_ns,
            np.maximum(passage["work_ns"], 0),
        ]
    ).astype("<i8")
    return ways, int(late.size - told.size)


def _keys(packets: Array) -> Array:
    return np.asarray(packets["stream"] << PACKET_BITS | packets["packet"])


def not_seen(host: ResolvedHost, report: SceneReport, untold: int) -> list[str]:
    """What of the calls the trace does not tell, as sentences without their full stops."""
    found = []
    if lost := report["sink"]["lost"]:
        found.append(f"where {number(lost, 'packet')} were lost, and what kept that place full")
    if untold:
        why = "the media server wrote no times of them"
        found.append(f"the ways of {number(untold, 'late packet')}, since {why}")
    if any(domain["parameters"]["cap_percent"] for domain in host["domains"]):
        found.append(
            "when a domain had used up its cap; this time counts as that of whoever had the CPU, "
            "or of an idle one"
        )
    return [*found, *NOT_SEEN]
