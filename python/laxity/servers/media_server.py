"""The media server: Laxity's own model of one, or rtpengine; both are told of calls alike."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import programs
from laxity.errors import InputError
from laxity.namespaces.network import ADDRESSES, SERVER
from laxity.namespaces.process import Place, Process, process, require
from laxity.servers.control import Control, Media
from laxity.servers.signalling import CALLS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.media_schema import Report
    from laxity.results.measured import Relayed
    from laxity.substrates.linux.scene import Server

PROGRAM = "laxity-media"
RTPENGINE = "rtpengine"
PACKAGES = {RTPENGINE: "rtpengine-daemon"}
"""What is not built here, with its Debian package."""
CONTROL_PORT = 2223
PORT, PORT_LAST = 33_000, 60_998
TRANSCODED = {"codec": {"mask": ["PCMU"], "transcode": ["PCMA"]}}
"""What rtpengine has to be told to send mu-law on as A-law."""
TRANSCODED_BY_KAMAILIO = "codec-mask-PCMU codec-transcode-PCMA"
"""The same, as Kamailio's module takes it."""
PCMU = 0


def program() -> Path:
    """The program that loads, relays and measures."""
    if os.geteuid() != 0:
        raise InputError("network namespaces and control groups need root", "run it as root")
    return programs.find(PROGRAM)


@dataclass(frozen=True)
class MediaServer:
    """One that runs."""

    server: Server
    process: Process
    control: Control

    def connect(self, call: str, caller: Media, callee: Media) -> tuple[Media, Media]:
        """Sets a call up; where caller and callee are to send."""
        transcode = self.server.transcode and self.server.program == RTPENGINE
        to_server = self.control.describe("offer", call, caller, TRANSCODED if transcode else {})
        answered = Media(callee.address, callee.port, to_server.payload_type)
        return self.control.describe("answer", call, answered, {}), to_server

    def disconnect(self, call: str) -> None:
        """Tells it that a call is over."""
        self.control.ask("delete", call_id=call, from_tag="caller")

    def report(self) -> Relayed:
        """Ends it; what it has done."""
        if self.server.program == RTPENGINE:
            return self._rtpengine_report()
        self.process.popen.send_signal(signal.SIGINT)
        report: Report = json.loads(self.process.finish())
        return report["relay"]

    def _rtpengine_report(self) -> Relayed:
        """Its own counts, and what the kernel dropped at the sockets that it still has."""
        statistics = self.control.ask("statistics")["statistics"]
        total, now = statistics["totalstatistics"], statistics["currentstatistics"]
        forwarded, failed = total["relayedpackets"], total["relayedpacketerrors"]
        rows = self.process.udp_sockets()
        return {
            "calls": now["sessionsown"] + int(total["managedsessions"]),
            "received": forwarded + failed,
            "forwarded": forwarded,
            "dropped": sum(int(row[-1]) for row in rows if int(row[1][-4:], 16) >= PORT),
            "failed": failed,
        }


@contextmanager
def media_server(
    server: Server, place: Place, clients: Path, passages: Path | None = None
) -> Iterator[MediaServer]:
    """A media server, for as long as it is needed; told of calls from the namespace `clients`.

    Laxity's own writes when each packet was there to the file `passages`.
    """
    address = ADDRESSES[SERVER]
    listen = f"{address}:{CONTROL_PORT}"
    if server.program == RTPENGINE:
        require(PACKAGES)
        command = [RTPENGINE, "--table=-1", f"--interface={address}", f"--listen-ng={listen}"]
        command += [f"--num-threads={server.threads}", "--foreground", "--log-stderr"]
        command += [f"--port-min={PORT}", f"--port-max={PORT_LAST}", "--log-level=4"]
        command += [f"--pidfile={place.files / 'rtpengine.pid'}"]
    else:
        command = [str(program()), "relay", "--json", "--control", listen, "--address", address]
        # The proxy beside it, and the run itself.
        command += ["--control-from", ",".join(ADDRESSES.values())]
        command += [f"--calls-a-source={CALLS_MAX}"]
        command += [f"--threads={server.threads}", f"--work={server.work_ns} ns"]
        command += [f"--ports={PORT}-{PORT_LAST}"]
        command += ["--transcode"] if server.transcode else []
        command += ["--passages", str(passages)] if passages is not None else []
    name = Path(command[0]).name
    with process(name, command, place) as started:
        started.wait_for_port(CONTROL_PORT)
        control = Control(clients, address, CONTROL_PORT)
        try:
            yield MediaServer(server, started, control)
        finally:
            control.close()
