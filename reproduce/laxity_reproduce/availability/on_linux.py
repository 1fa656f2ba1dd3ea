"""Real registrations and real streams, with and without protection, and through a failure."""

from __future__ import annotations

import json
import math
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from laxity.appliances import image
from laxity.errors import InputError
from laxity.namespaces.network import CLIENT_ADDRESS, GUEST_ADDRESS
from laxity.namespaces.process import process
from laxity.results.measured import PACKET
from laxity.servers import signalling
from laxity.servers.media_server import program
from laxity.servers.registrar import bindings
from laxity.site import protected

from laxity_reproduce import published
from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laxity.media_schema import Report
    from laxity.servers.signalling import Transport
    from laxity.site.protected import Mode, Site

    from laxity_reproduce.reproduction import Value

FACTS = published.facts("availability")
MS_NS = 1_000_000

USERS, RATE_PER_S = 300, 30.0
"""Load on an emulated guest on a shared machine; the paper's hosts took 1,000 and more a second."""
KILLED_AFTER_S = 4.0
"""From the first registration, or packet, to the death of the host."""
STREAMS, STREAMED_S = 10, 12.0
CONTROL_PORT = 2223
PACKETS_A_SECOND = 50
TRANSPORTS: dict[Transport, str] = {
    "udp": "UDP",
    "tcp": "one TCP connection",
    "tcp-each": "a TCP connection each",
}
MODES: dict[Mode, str] = {
    "unprotected": "without protection",
    "no-net": "No-Net",
    "net": "Net",
}


@contextmanager
def _site(name: str, mode: Mode) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="laxity-") as temporary:
        files = Path(temporary)
        made = image.build(name, files / "appliance", lambda _: None)
        # Nothing proves who it is, as in the paper: the appliance is made without users.
        arguments = f"control_from={CLIENT_ADDRESS}" if name == image.MEDIA else ""
        with protected.site(files, mode, made, arguments) as site:
            if name == image.SIGNALLING:
                # It is up when it answers, a while after its guest is.
                bindings(site.place.namespace, GUEST_ADDRESS, ["user0"])
            yield site


def registrations() -> Experiment:
    """Figures 2 and 3: REGISTER over three transports, with and without protection."""
    rows, frames, measurements = [], [], []
    delays: dict[tuple[Mode, Transport], float] = {}
    for mode in get_args(protected.Mode):
        with _site(image.SIGNALLING, mode) as site:
            for transport, words in TRANSPORTS.items():
                counted = signalling.registrations(
                    USERS, RATE_PER_S, site.place, server=GUEST_ADDRESS, transport=transport
                )
                delay = counted["delay"]
                assert delay is not None  # noqa: S101, for the types: not all lose their replies.
                p50_ms, p99_ms = delay["p50_ns"] / MS_NS, delay["p99_ns"] / MS_NS
                delays[mode, transport] = p50_ms
                frames.append(
                    {
                        "mode": MODES[mode],
                        "transport": words,
                        "succeeded": counted["succeeded"],
                        "retransmissions": counted["retransmissions"],
                        "p50_ms": p50_ms,
                        "p99_ms": p99_ms,
                    }
                )
                measurements.append(
                    Measurement(
                        f"{MODES[mode]}, {words}: delay p50, p99, ms; retransmissions",
                        [round(p50_ms, 1), round(p99_ms, 1), float(counted["retransmissions"])],
                    )
                )
    data = pd.DataFrame(frames)
    rows.append(
        _row(
            "registrations that succeed, %",
            FACTS["register_success_percent"],
            round(100 * float(data.succeeded.min()) / USERS, 2),
            holds=bool((data.succeeded == USERS).all()),
        )
    )
    waits = all(delays["net", way] > delays["unprotected", way] for way in TRANSPORTS)
    rows.append(
        _row(
            "Net: a reply waits for its checkpoint; median delay over UDP, ms",
            "more than without protection",
            [round(delays["unprotected", "udp"], 1), round(delays["net", "udp"], 1)],
            holds=waits,
        )
    )
    title = "registrations with and without protection"
    return Experiment("registrations", title, METHOD, rows, measurements, data)


def failure_of_signalling() -> Experiment:
    """REGISTER load through the death of a host, in Net mode."""
    rows, measurements = [], []
    for transport in ("udp", "tcp"):
        with _site(image.SIGNALLING, "net") as site:

            def fail(site: Site = site) -> None:
                time.sleep(KILLED_AFTER_S)
                site.kill(protected.HOSTS[0])

            counted = signalling.registrations(
                USERS,
                RATE_PER_S,
                site.place,
                server=GUEST_ADDRESS,
                transport=transport,
                meanwhile=fail,
            )
            known = bindings(
                site.place.namespace, GUEST_ADDRESS, [f"user{number}" for number in range(USERS)]
            )
        words = TRANSPORTS[transport]
        succeeded = 100 * counted["succeeded"] / USERS
        rows += [
            _row(
                f"{words}: registrations that succeed through a failure, %",
                FACTS["register_success_percent"],
                round(succeeded, 2),
                holds=counted["succeeded"] == USERS,
            ),
            _row(
                f"{words}: users who were told 200 OK and are not known afterwards",
                0,
                counted["succeeded"] - len(known),
                holds=len(known) == counted["succeeded"],
            ),
        ]
        times = counted["delay"] or {"p50_ns": math.nan, "max_ns": math.nan}
        delays = [round(times[name] / MS_NS, 1) for name in ("p50_ns", "max_ns")]
        measurements.append(
            Measurement(
                f"{words}: delay p50, longest, ms; retransmissions",
                [*delays, float(counted["retransmissions"])],
                "SIPp retransmits after 500 ms" if transport == "udp" else "",
            )
        )
    title = "registrations through the death of a host"
    return Experiment("signalling-failure", title, METHOD, rows, measurements, pd.DataFrame())


def failure_of_media() -> Experiment:
    """Streams through the death of a host, in both modes."""
    rows, measurements = [], []
    for mode in ("no-net", "net"):
        with _site(image.MEDIA, mode) as site:
            report, packets = _stream(site)
        sink = report["sink"]
        delay = sink["delay"]
        assert delay is not None  # noqa: S101, for the types: streams arrive before the failure.
        last = pd.DataFrame(packets).groupby("stream").packet.max()
        sent = report["load"]["sent"] / STREAMS
        gone_on = int((last > sent - PACKETS_A_SECOND).sum())
        rows.append(
            _row(
                f"{MODES[mode]}: streams that go on after a failure, %",
                FACTS["call_failover_percent"],
                100 * gone_on / STREAMS,
                holds=gone_on == STREAMS,
            )
        )
        lost_ms = 20 * sink["lost"] / STREAMS
        measurements += [
            Measurement(
                f"{MODES[mode]}: speech lost by a stream, mean, ms",
                round(lost_ms),
                f"{sink['lost']} of {sink['expected']} packets",
            ),
            Measurement(
                f"{MODES[mode]}: delay p50, p99, ms",
                [round(ns / MS_NS, 1) for ns in (delay["p50_ns"], delay["p99_ns"])],
                "the survivor has no standby, and holds no output",
            ),
        ]
    title = "streams through the death of a host"
    return Experiment("media-failure", title, METHOD, rows, measurements, pd.DataFrame())


def _stream(site: Site) -> tuple[Report, np.ndarray[Any, Any]]:
    """Streams through a failure: the report of `laxity-media`, and the packets that came."""
    command = [str(program()), "calls", "--json", "--playout=200 ms", "--packets", "packets"]
    command += ["--media-server", f"{GUEST_ADDRESS}:{CONTROL_PORT}", "--streams", str(STREAMS)]
    command += ["--duration", f"{STREAMED_S:g} s"]
    with process("calls", command, site.place) as started:
        time.sleep(KILLED_AFTER_S)
        site.kill(protected.HOSTS[0])
        report: Report = json.loads(started.finish(4 * STREAMED_S))
    return report, np.fromfile(site.place.files / "packets", PACKET)


METHOD = (
    "The appliances of `laxity appliance` run in emulated guests of 128 MiB, and two daemons of"
    " `laxity protect` with their default interval on one machine, in a network namespace. The"
    f" load is {USERS} REGISTER at {RATE_PER_S:g} a second from SIPp, or {STREAMS} streams of"
    f" G.711 for {STREAMED_S:g} s. A failure is SIGKILL to the primary's daemon and its guest"
    f" together, {KILLED_AFTER_S:g} s after the first registration or packet. The machine is"
    " shared, so times hold for it alone."
)


def _row(what: str, claim: Value, ours: Value, *, holds: bool) -> Row:
    return Row(what, claim, ours, verdict(holds=holds))


EXPERIMENTS = {
    "registrations": registrations,
    "signalling-failure": failure_of_signalling,
    "media-failure": failure_of_media,
}


def experiments(names: Sequence[str], *, quick: bool = False) -> list[Experiment]:
    """Those with these names, run one after the other. Raises InputError if `quick`."""
    if quick:
        raise InputError("availability has no shorter runs", "leave --quick out")
    return [EXPERIMENTS[name]() for name in names]
