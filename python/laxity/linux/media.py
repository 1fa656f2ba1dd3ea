"""Runs a scene: server and neighbours in their groups, load and sink beyond the cable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laxity.errors import InputError
from laxity.linux.groups import groups
from laxity.linux.network import ADDRESSES, CLIENT, NAMESPACES, SERVER, network

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laxity.linux.scene import Scene

PROGRAM = "laxity-media"
TOOLS = {"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux"}
"""What a run needs, and the Debian package that has it."""
SERVER_PORT, SINK_PORT = 5004, 5006
MEDIA_SERVER = "media-server"
"""Its group; a neighbour's is named by its place."""
START_S_MAX = 10.0
"""For a program to listen."""
END_S_MAX = 30.0
"""For load and sink to end, after the load's duration."""
SPIN = "while True: pass"


def run(scene: Scene) -> dict[str, Any]:
    """Runs a scene on this machine, as root, and leaves nothing behind.

    The reports of load, relay and sink as `laxity-media --json` has them; under `neighbours` the
    CPU time that each had while the load ran; under `lost_in_network` the packets that were lost
    neither by the server nor by the sink.
    """
    program = _program()
    shares = {MEDIA_SERVER: scene.server.share}
    names = {f"neighbour-{place}": each for place, each in enumerate(scene.neighbours)}
    shares |= {group: neighbour.share for group, neighbour in names.items()}
    duration_s = scene.streams.duration_ns / 1e9
    # What is entered last is left first: processes end before their groups and namespaces go.
    with ExitStack() as stack:
        sides = stack.enter_context(network())
        made = stack.enter_context(groups(shares))

        def start(command: Sequence[str], side: str, group: str | None) -> subprocess.Popen[str]:
            entries = made.entries(group) if group else []
            return stack.enter_context(_process(command, NAMESPACES / sides[side], entries))

        server = start(_relay(program, scene), SERVER, MEDIA_SERVER)
        _wait_for_port(server, SERVER_PORT)
        for group, neighbour in names.items():
            for _ in range(neighbour.threads):
                start([sys.executable, "-c", SPIN], SERVER, group)
        sink = start(_sink(program, duration_s), CLIENT, None)
        _wait_for_port(sink, SINK_PORT)

        before_s = time.monotonic()
        before_ns = {group: made.cpu_ns(group) for group in names}
        load = start(_load(program, scene), CLIENT, None)
        loaded = _report(load, duration_s + END_S_MAX)
        elapsed_s = time.monotonic() - before_s
        worked_ns = {group: made.cpu_ns(group) - before_ns[group] for group in names}
        sunk = _report(sink, END_S_MAX)
        server.send_signal(signal.SIGINT)
        relayed = _report(server, END_S_MAX)
    return {
        "load": loaded["load"],
        "relay": relayed["relay"],
        "sink": sunk["sink"],
        "neighbours": [
            {
                "name": neighbour.name,
                "cpu_s": worked_ns[group] / 1e9,
                "cpus": worked_ns[group] / 1e9 / elapsed_s,
            }
            for group, neighbour in names.items()
        ],
        "lost_in_network": _lost_in_network(loaded["load"], relayed["relay"], sunk["sink"]),
        "machine": loaded["machine"],
    }


def _lost_in_network(load: dict[str, Any], relay: dict[str, Any], sink: dict[str, Any]) -> int:
    there = load["sent"] - relay["received"] - relay["dropped"]
    back = relay["forwarded"] - sink["received"] - sink["duplicates"] - sink["dropped"]
    return int(there + back)


def _program() -> Path:
    if os.geteuid() != 0:
        raise InputError("network namespaces and control groups need root", "run it as root")
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise InputError(f"there is no `{tool}`", f"install the Debian package {package}")
    built = Path(__file__).parents[3] / "target" / "release" / PROGRAM
    found = shutil.which(PROGRAM) or (str(built) if built.exists() else None)
    if found is None:
        raise InputError(
            f"there is no `{PROGRAM}`", f"build it: cargo build --release -p {PROGRAM}"
        )
    return Path(found)


def _relay(program: Path, scene: Scene) -> list[str]:
    server = scene.server
    addresses = _between(f"{ADDRESSES[SERVER]}:{SERVER_PORT}", f"{ADDRESSES[CLIENT]}:{SINK_PORT}")
    options = [f"--threads={server.threads}", f"--work={server.work_ns} ns"]
    transcode = ["--transcode"] if server.transcode else []
    return [str(program), "relay", "--json", *addresses, *options, *transcode]


def _between(listen: str, to: str) -> list[str]:
    return ["--listen", listen, "--to", to]


def _sink(program: Path, duration_s: float) -> list[str]:
    listen = f"{ADDRESSES[CLIENT]}:{SINK_PORT}"
    wait = f"--wait={round(duration_s + END_S_MAX / 2)} s"
    return [str(program), "sink", "--json", "--listen", listen, wait]


def _load(program: Path, scene: Scene) -> list[str]:
    to = f"{ADDRESSES[SERVER]}:{SERVER_PORT}"
    streams = scene.streams
    size = [f"--streams={streams.count}", f"--duration={streams.duration_ns} ns"]
    return [str(program), "load", "--json", "--to", to, *size]


@contextmanager
def _process(
    command: Sequence[str], namespace: Path, entries: Sequence[Path]
) -> Iterator[subprocess.Popen[str]]:
    """A process in a namespace and in groups, from its first instruction; killed at the end."""
    enter = 'for entry in $ENTRIES; do echo $$ >"$entry" || exit; done; exec "$@"'
    # The signal is the kernel's: it comes even if this process is killed.
    bound = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={namespace}", *command]
    process = subprocess.Popen(
        ["sh", "-c", enter, "sh", *bound],
        env={**os.environ, "ENTRIES": " ".join(map(str, entries))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C is this process's to handle.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait_for_port(process: subprocess.Popen[str], port: int) -> None:
    """Waits until a process listens, as the kernel's table in its namespace has it."""
    table = Path(f"/proc/{process.pid}/net/udp")
    deadline_s = time.monotonic() + START_S_MAX
    while f":{port:04X} 00000000:0000" not in table.read_text():
        if process.poll() is not None or time.monotonic() > deadline_s:
            process.kill()
            raise InputError(f"{PROGRAM} does not listen: {process.communicate()[1].strip()}")
        time.sleep(0.01)


def _report(process: subprocess.Popen[str], s_max: float) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=s_max)
    except subprocess.TimeoutExpired:
        raise InputError(f"{PROGRAM} did not end within {s_max:g} s") from None
    if process.returncode != 0:
        raise InputError(f"{PROGRAM} failed: {errors.strip()}")
    report: dict[str, Any] = json.loads(output)
    return report
