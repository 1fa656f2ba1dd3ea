"""Runs a scene: servers and neighbours in their groups, the calls' parties beyond the cable."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.linux import signalling
from laxity.linux.control import Media
from laxity.linux.groups import groups
from laxity.linux.media_server import (
    CONTROL_PORT,
    PCMU,
    RTPENGINE,
    TRANSCODED_BY_KAMAILIO,
    media_server,
    program,
)
from laxity.linux.network import ADDRESSES, CLIENT, NAMESPACES, SERVER, network
from laxity.linux.process import Place, process, require, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.linux.groups import Groups
    from laxity.linux.media_server import MediaServer
    from laxity.linux.scene import Scene

PROGRAMS = {"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux"}
"""What a run needs, and the Debian package that has it."""
SPIN = "while True: pass"
PARTIES = "parties"
PACKETS = "packets"
"""Where the sampled packets' times are, among the run's files."""
PACKET = np.dtype([("stream", "<i8"), ("packet", "<i8"), ("sent_ns", "<i8"), ("arrived_ns", "<i8")])
"""As `laxity-media calls --packets` writes them."""


def run(scene: Scene) -> dict[str, Any]:
    """Runs a scene on this machine, as root, and leaves nothing behind.

    The reports of calls, load, relay and sink as `laxity-media --json` has them; under `signalling`
    what SIPp counted; under `cpu_ns` the CPU time that each domain had while the calls ran, which
    was `elapsed_ns`; under `packets` an array of the packets of sampled calls that arrived; under
    `lost_in_network` the packets that were lost neither by the server nor by the sink; under
    `load_average` what else the machine had to do when the calls began.
    """
    path = program()
    require(PROGRAMS)
    shares = {scene.server.name: scene.server.share}
    if scene.signalling is not None:
        require(signalling.PROGRAMS)
        shares[scene.signalling.name] = scene.signalling.share
    shares |= {neighbour.name: neighbour.share for neighbour in scene.neighbours}
    # Groups are named by number: a domain may be called what no directory can.
    group_names = {name: f"domain-{number}" for number, name in enumerate(shares)}
    # What is entered last is left first: processes end before their groups and namespaces go.
    with ExitStack() as stack:
        files = stack.enter_context(workplace())
        sides = stack.enter_context(network())
        made = stack.enter_context(
            groups({group_names[name]: share for name, share in shares.items()})
        )

        def on(side: str, domain: str | None = None) -> Place:
            group = None if domain is None else group_names[domain]
            return Place(NAMESPACES / sides[side], made, group, files=files)

        clients = on(CLIENT)
        server = stack.enter_context(
            media_server(scene.server, on(SERVER, scene.server.name), clients.namespace)
        )
        if scene.signalling is not None:
            transcode = scene.server.transcode and scene.server.program == RTPENGINE
            flags = TRANSCODED_BY_KAMAILIO if transcode else ""
            control = f"{ADDRESSES[SERVER]}:{CONTROL_PORT}"
            stack.enter_context(signalling.proxy(on(SERVER, scene.signalling.name), control, flags))
        for neighbour in scene.neighbours:
            for number in range(neighbour.threads):
                name = f"{group_names[neighbour.name]}-{number}"
                spin = [sys.executable, "-c", SPIN]
                stack.enter_context(process(name, spin, on(SERVER, neighbour.name)))
        report: dict[str, Any] = {"load_average": os.getloadavg()[0]}
        usage = _Usage(made, group_names)
        report |= _converse(scene, str(path), server, clients, usage)
        report["relay"] = server.report()
        packets = files / PACKETS
        report["packets"] = np.fromfile(packets, PACKET)
    report["lost_in_network"] = _lost_in_network(report)
    return report


class _Usage:
    """What each domain has had of the CPUs since this was made or begun anew."""

    def __init__(self, made: Groups, names: dict[str, str]) -> None:
        self._made, self._names = made, names
        self.begin()

    def begin(self) -> None:
        self._at_ns, self._before_ns = time.monotonic_ns(), self._read()

    def report(self) -> dict[str, Any]:
        elapsed_ns = time.monotonic_ns() - self._at_ns
        now_ns = self._read()
        used_ns = {name: now_ns[name] - before_ns for name, before_ns in self._before_ns.items()}
        return {"elapsed_ns": elapsed_ns, "cpu_ns": used_ns}

    def _read(self) -> dict[str, int]:
        return {name: self._made.cpu_ns(group) for name, group in self._names.items()}


def _converse(
    scene: Scene, path: str, server: MediaServer, clients: Place, usage: _Usage
) -> dict[str, Any]:
    """Lets the calls be, for their time; what became of them."""
    calls = scene.calls
    duration_s = calls.duration_ns / 1e9
    with _pipe() as (orders_out, orders_in):
        command = [path, "calls", "--json", f"--playout={calls.playout_ns} ns"]
        command += ["--packets", str(clients.files / PACKETS), f"--sample={calls.sample}"]
        with process(PARTIES, command, clients, stdin=orders_out) as parties:
            sip: dict[str, Any] | None = None
            if scene.signalling is None:
                orders = _orders(server, scene)
                usage.begin()
                os.write(orders_in, orders.encode())
                time.sleep(duration_s)
                used = usage.report()
                parties.popen.send_signal(signal.SIGINT)
            else:
                registrations = signalling.register(calls.traffic, clients)
                with signalling.users(calls.traffic, clients, orders_in) as users:
                    if calls.streams is not None:
                        time.sleep(calls.traffic.calls / calls.traffic.rate_per_s)
                    usage.begin()
                    time.sleep(duration_s)
                    used = usage.report()
                    parties.popen.send_signal(signal.SIGINT)
                    sip = {"registrations": registrations, "calls": users.hang_up()}
            text = parties.finish()
    return {**json.loads(text), "signalling": sip, **used}


def _orders(server: MediaServer, scene: Scene) -> str:
    """Sets the calls up; what begins their media."""
    lines = []
    for number in range(scene.calls.traffic.calls):
        ports = signalling.ports(number)
        caller, callee = (Media(ADDRESSES[CLIENT], port, PCMU) for port in ports)
        ways = server.connect(f"call-{number}", caller, callee)
        for party, way in zip((caller, callee), ways, strict=True):
            local = f"call-{number} {party.address}:{party.port}"
            lines.append(f"open {local}\n")
            lines.append(f"send {local} {way.address}:{way.port} {way.payload_type}\n")
    return "".join(lines)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Both ends stay open: who writes after the reader's end is not to be killed by that."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _lost_in_network(report: dict[str, Any]) -> int:
    load, relay, sink = report["load"], report["relay"], report["sink"]
    there = load["sent"] - relay["received"] - relay["dropped"]
    back = relay["forwarded"] - sink["received"] - sink["duplicates"] - sink["dropped"]
    return int(there + back)
