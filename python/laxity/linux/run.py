"""A host on this machine: the scene that it is, and the result that its run has."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.linux import media
from laxity.linux.scene import scene
from laxity.telephony import LOST, PACKET_NS, KeptStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from laxity.host import Host
    from laxity.linux.scene import MediaProgram
    from laxity.results import Run

SUBSTRATE = "linux"
CALL_STREAMS = 2
PIECE_PACKETS = 1500
"""A stream's packets are kept in pieces of 30 s, as the simulator keeps them."""
POLICY = "linux"
"""In a result: who shared the CPUs."""


def run(
    host: Host,
    overrides: Sequence[str],
    program: MediaProgram,
    say: Callable[[str], None],
) -> Run:
    """One run. See `Host.run_on_linux`."""
    resolved = host.resolved(overrides)
    on_stage = scene(resolved, program, os.cpu_count() or 1)
    for note in notes(resolved):
        say(note)
    say(f"{program} on Linux: {on_stage.calls.duration_ns / 1e9:g} s")
    began_ns = time.monotonic_ns()
    report = media.run(on_stage)
    wall_ns = time.monotonic_ns() - began_ns
    for warning in warnings(report):
        say(warning)
    names = [domain["name"] for domain in resolved["domains"]]
    there = on_stage.calls.there
    measured = {
        "cpu_ns": [report["cpu_ns"].get(name, 0) for name in names],
        "schedule_calls": 0,
        "context_switches": 0,
        "schedule_ns": 0,
        "context_switch_ns": 0,
        "events": report["load"]["sent"],
        "wall_ns": wall_ns,
    }
    return host.measured(
        overrides,
        SUBSTRATE,
        [[] for _ in names],
        measured,
        None,
        beside={"policy": POLICY, "telephony": telephony(report, there)},
        streams=tuple(kept_streams(report, there)),
    )


def notes(host: Mapping[str, Any]) -> list[str]:
    """What of a resolved host Linux does in its own way."""
    found = [
        f"{domain['name']}: the kernel drives the network itself; weight, cap and affinity of a "
        "driver domain have no effect"
        for domain in host["domains"]
        if (domain["workload"] or {}).get("kind") == "driver"
    ]
    if host["caches"]:
        found.append("caches: those of this machine")
    found += [
        f"nic {nic['name']}: a cable between namespaces; its rate and ring have no effect"
        for nic in host["network"]["nics"]
    ]
    return found


def warnings(report: Mapping[str, Any]) -> list[str]:
    """What a reader of the result has to know of how it was measured."""
    load, sink, calls = report["load"], report["sink"], report["calls"]
    late = load["wake_up_late"]
    found = []
    if late is not None:
        found.append(
            f"the load woke up late by p99 {late['p99_ns'] / 1e6:.2f} ms, at most "
            f"{late['max_ns'] / 1e6:.2f} ms; load average {report['load_average']:.1f}"
        )
    if not (load["real_time"] and sink["real_time"]):
        found.append("load and sink had no real-time priority: delays may be theirs")
    if sink["dropped"]:
        found.append(f"{sink['dropped']} packets were lost by the sink, not by the server")
    if load["failed"]:
        found.append(f"{load['failed']} packets could not be sent: {load['error']}")
    if calls["refused"]:
        found.append(f"{calls['refused']} parties had no port: {calls['error']}")
    if sip := report["signalling"]:
        users = sip["registrations"]
        found.append(
            f"registrations: {users['succeeded']} of {users['sent']}, "
            f"{users['retransmissions']} retransmissions"
        )
    return found


def telephony(report: Mapping[str, Any], there: int) -> dict[str, Any]:
    """The telephony section of a result (`laxity schema result`); see `_call` for `there`."""
    sink, relay, sip = report["sink"], report["relay"], report["signalling"]
    jitters_ns = [each["jitter_ns"] for each in sink["per_stream"] if each["jitter_ns"] is not None]
    heard = [each for each in sink["per_stream"] if each["expected"]]
    worst = max(
        heard, key=lambda each: (each["lost"] / each["expected"], each["lost"]), default=None
    )
    lost, received = sink["lost"], sink["received"]
    voice = {
        "streams": report["load"]["streams"],
        "streams_most": report["calls"]["streams_most"],
        "sent": report["load"]["sent"],
        "received": received,
        "lost": lost,
        "on_their_way": 0,
        "loss_ratio": lost / (lost + received) if lost + received else 0.0,
        "delay_ns": _quantiles(sink["delay"]),
        "jitter_ns_mean": sum(jitters_ns) / len(jitters_ns) if jitters_ns else None,
        "jitter_ns_max": round(max(jitters_ns)) if jitters_ns else None,
        "worst": worst
        and {
            "stream": worst["stream"],
            "call": _call(worst["stream"], there),
            "lost": worst["lost"],
            "received": worst["received"],
        },
    }
    drops = {
        "wire": 0,
        # On the way to a socket: in the queue of whoever takes packets off the cable.
        "nic_receive": max(0, report["lost_in_network"]),
        "netback": 0,
        "socket": relay["dropped"] + sink["dropped"],
        "netfront": 0,
        "nic_transmit": relay["failed"],
    }
    calls = sip and {
        "offered": sip["calls"]["attempted"],
        "answered": sip["calls"]["established"],
        "failed": sip["calls"]["failed"],
        "retransmissions": sip["calls"]["retransmissions"],
        "setup_ns": _quantiles(sip["calls"]["setup"]),
    }
    return {"voice": voice, "drops": drops, "calls": calls, "nics": [], "quality": None}


def kept_streams(report: Mapping[str, Any], there: int) -> Iterator[KeptStream]:
    """The packets of the sampled streams, in pieces of 30 s, ns from the first packet of all.

    Each packet has its own delay; the load's lateness is not in it: packets are sent evenly.
    """
    packets = report["packets"]
    if not packets.size:
        return
    zero_ns = packets["sent_ns"].min()
    sent = {each["stream"]: each["expected"] for each in report["sink"]["per_stream"]}
    for stream in np.unique(packets["stream"]):
        own = packets[packets["stream"] == stream]
        first = own[own["packet"].argmin()]
        start_ns = int(first["sent_ns"] - first["packet"] * PACKET_NS - zero_ns)
        arrived_ns = np.full(sent[stream], LOST)
        delay_ns = own["arrived_ns"] - own["sent_ns"]
        arrived_ns[own["packet"]] = start_ns + own["packet"] * PACKET_NS + delay_ns
        for piece in range(0, len(arrived_ns), PIECE_PACKETS):
            yield KeptStream(
                int(stream),
                _call(int(stream), there),
                start_ns + piece * PACKET_NS,
                arrived_ns[piece : piece + PIECE_PACKETS],
            )


def _call(stream: int, there: int) -> int | None:
    """The number of a stream's call among those that come; `there` were there from the start."""
    call = stream // CALL_STREAMS - there
    return call if call >= 0 else None


def _quantiles(measured: Mapping[str, Any] | None) -> dict[str, Any]:
    """As results have them: times in ns, none where nothing was measured."""
    names = ("mean", "min", "p25", "p50", "p75", "p99", "p999", "max")
    if measured is None:
        return {"count": 0, **dict.fromkeys(names)}
    return {"count": measured["count"], **{name: measured.get(f"{name}_ns") for name in names}}
