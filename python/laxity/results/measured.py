"""The telephony section of a result, made of the reports of `laxity-media` on real packets.

Pure, but for the file of packets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from laxity.results.streams import LOST, PACKET_NS, KeptStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.media_schema import CallsReport, LoadReport, Quantiles, SinkReport


CALL_STREAMS = 2
PIECE_PACKETS = 1500
"""A stream's packets are kept in pieces of 30 s, as the simulator keeps them."""
PACKET = np.dtype([("stream", "<i8"), ("packet", "<i8"), ("sent_ns", "<i8"), ("arrived_ns", "<i8")])
"""A packet as `laxity-media calls --packets` writes it."""
PASSAGE = np.dtype(
    [
        ("stream", "<i8"),
        ("packet", "<i8"),
        ("thread", "<i8"),
        ("arrived_ns", "<i8"),
        ("left_ns", "<i8"),
        ("work_ns", "<i8"),
        ("waited_ns", "<i8"),
        ("woken_ns", "<i8"),
        ("end_cpu_ns", "<i8"),
        ("receive_cpu_ns", "<i8"),
        ("process_cpu_ns", "<i8"),
        ("sent_ns", "<i8"),
        ("send_cpu_ns", "<i8"),
    ]
)
"""A packet at the media server, as `laxity-media relay --passages` writes it."""


class Relayed(TypedDict):
    """What a media server has done, as `laxity-media relay --json` has it."""

    calls: int
    received: int
    """Packets from its sockets."""
    forwarded: int
    dropped: int
    """Packets that the kernel dropped because a receive buffer was full."""
    failed: int
    """Packets that the system did not send."""


class Registered(TypedDict):
    """What SIPp counted of registrations."""

    sent: int
    """Messages."""
    succeeded: int
    failed: int
    retransmissions: int
    delay: Quantiles | None


class Placed(TypedDict):
    """What SIPp counted of calls."""

    attempted: int
    established: int
    failed: int
    retransmissions: int
    """Those of both sides."""
    setup: Quantiles | None
    disconnect: Quantiles | None


class Counted(TypedDict):
    """What SIPp counted."""

    registrations: Registered | None
    calls: Placed


class Report(TypedDict):
    """What `laxity-media --json` says as the calls' parties and as the media server, and more."""

    calls: CallsReport
    load: LoadReport
    sink: SinkReport
    relay: Relayed
    signalling: Counted | None
    packets: np.ndarray[tuple[int], np.dtype[np.void]]
    """Those of sampled calls that arrived, as PACKET."""


def lost_in_network(report: Report) -> int:
    """The packets that were lost neither by the media server nor by the sink."""
    load, relay, sink = report["load"], report["relay"], report["sink"]
    there = load["sent"] - relay["received"] - relay["dropped"]
    back = relay["forwarded"] - sink["received"] - sink["duplicates"] - sink["dropped"]
    return there + back


def telephony_of_report(report: Report, there: int) -> dict[str, object]:
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
        # The sink misses those that a full socket refused, as what is lost on the way.
        "sent": report["load"]["sent"] + report["load"]["failed"],
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
        # These were lost on the way to a socket, in the queue of the process that reads the cable.
        "nic_receive": max(0, lost_in_network(report)),
        "netback": 0,
        "socket": report["load"]["failed"] + relay["dropped"] + sink["dropped"],
        "netfront": 0,
        "nic_transmit": relay["failed"],
        "held": 0,
        "failure": 0,
    }
    calls = sip and {
        "offered": sip["calls"]["attempted"],
        "answered": sip["calls"]["established"],
        "failed": sip["calls"]["failed"],
        "retransmissions": sip["calls"]["retransmissions"],
        "setup_ns": _quantiles(sip["calls"]["setup"]),
    }
    return {
        "voice": voice,
        "drops": drops,
        "calls": calls,
        "nics": [],
        "interfaces": [],
        "protection": [],
        "quality": None,
    }


def kept_streams(report: Report, there: int, sample: int = 1) -> Iterator[KeptStream]:
    """The packets of the sampled streams, in pieces of 30 s, ns from the first packet of all.

    One call in `sample` of those in the report is kept.
    Each packet has its own delay; the load's lateness is not in it: packets are sent evenly.
    """
    packets = report["packets"]
    if not packets.size:
        return
    zero_ns = packets["sent_ns"].min()
    sent = {each["stream"]: each["expected"] for each in report["sink"]["per_stream"]}
    for stream in np.unique(packets["stream"]):
        if stream // CALL_STREAMS % sample:
            continue
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


def _quantiles(measured: Quantiles | None) -> dict[str, float | None]:
    """Quantiles as results have them: times in ns, none where nothing was measured."""
    if measured is None:
        names = ("mean", "min", "p25", "p50", "p75", "p99", "p999", "max")
        return {"count": 0, **dict.fromkeys(names)}
    return {
        "count": measured["count"],
        "mean": measured["mean_ns"],
        "min": measured["min_ns"],
        "p25": measured["p25_ns"],
        "p50": measured["p50_ns"],
        "p75": measured["p75_ns"],
        "p99": measured["p99_ns"],
        "p999": measured["p999_ns"],
        "max": measured["max_ns"],
    }
