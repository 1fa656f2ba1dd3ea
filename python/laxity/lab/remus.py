"""Two emulated Xen hosts, a guest that `laxity protect` protects by xl's Remus, and a failure.

The hosts are machines of the lab, in wall time, joined by a cable. Each has a second card, on the
bridge of its guests, whose other end is here: so what is seen here is what leaves the hosts, and
nothing here is known to them. The guest counts, and says each number once
(xen/programs/laxity-counter.c). When the second host has some checkpoints, the first one's QEMU is
killed, at a random moment of an epoch. If the second one's guest begins with a number that had left
the first, what somebody had seen is undone. What was seen is measured in failover.py.
"""

from __future__ import annotations

import json
import random
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.lab import cpio, failover, image
from laxity.lab.errors import LabError
from laxity.lab.failover import Failover, Mode, Progress, Story
from laxity.lab.files import GUEST_ARGUMENTS, HOME, HOTPLUG, MEMORY_MIB, SCRIPT
from laxity.lab.machine import PowerCutError
from laxity.lab.xen_machine import XenMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laxity.progress import Say

PROTECT, COUNTER = "laxity-protect", "laxity-counter"
"""What runs in dom0, and in the guest."""
GUEST = "counter"
NORTH, SOUTH = "north", "south"
"""The host that fails, and the one that takes over."""
ADDRESSES = {NORTH: "198.51.100.1", SOUTH: "198.51.100.2"}
"""The addresses of the cable, which are reserved for documentation (RFC 5737)."""
HOLD = "netbuf"
"""Scripts of xen/lab."""

PACKAGES = (
    *("xen-utils-4.17", "iproute2", "libnl-3-200", "libnl-route-3-200", "libc6", "zlib1g"),
    *("libbpf1", "libelf1", "libmnl0", "libbsd0", "libmd0", "libcap2", "libxtables12"),
)
"""For `tc`, and for libxl with network buffering."""
LIBNL = ("libnl-3.so.200", "libnl-route-3.so.200")
SAVE_HELPER = "libxl-save-helper"
CARD = "e1000"
"""A network card of QEMU's whose driver is a single module."""
MODULES = (
    *(*image.NETBACK_MODULES, CARD),
    *("ifb", "sch_plug", "sch_ingress", "act_mirred", "cls_matchall"),
)

INTERVAL_MS, HEARTBEAT_S, DETECTION_S = 500, 1, 10
"""An emulated host may stand still for seconds on a busy computer, and has not failed then."""
CHECKPOINTS = 20
"""Before the failure."""
MOMENTS_S = 2.0
"""The interval in which the failure comes at random; it is longer than an epoch."""
SURVIVES_S = 5
"""In the machine's time, that the guest is listened to afterwards."""

DOM0_MEMORY_MIB = 512
"""The standby's has checkpoints until Xen has them."""
GUESTS_MEMORY_MIB = 320
FEATURES = ("ssse3", "sse4.1", "sse4.2", "popcnt", "aes", "pclmulqdq")
"""What TLS is quick with, and every processor of the last ten years has."""
LIMIT_S = 3600.0
"""Wall time for all."""
SILENCE_S = 1200.0
"""Wall time in which something must come on a console: memory is copied without a word."""

LENGTH = struct.Struct(">I")
"""Stands before a frame, as QEMU writes it."""

SITE = f"""
directory = "/run/protect"
keys = "."

[[host]]
name = "{NORTH}"
address = "{ADDRESSES[NORTH]}:7421"

[[host]]
name = "{SOUTH}"
address = "{ADDRESSES[SOUTH]}:7421"

[[vm]]
engine = "xen"
name = "{GUEST}"
hosts = ["{NORTH}", "{SOUTH}"]
configuration = "{GUEST}.cfg"
interval = {{ minimum = "{INTERVAL_MS} ms" }}
heartbeat = "{HEARTBEAT_S} s"
detection = "{DETECTION_S} s"
"""
WAITS_S: dict[Mode, int] = {"net": DETECTION_S, "no-net": 2 * DETECTION_S}
"""Until the second host takes over: detection, or lease."""
HELD: dict[Mode, str] = {"net": "until acknowledged", "no-net": "not at all"}
UNDONE: dict[Mode, str] = {"net": "0 promised", "no-net": "not promised"}
OF_MODE: dict[Mode, str] = {
    "net": f'mode = "net"\nhold-script = "{HOME}/{HOLD}"\n',
    "no-net": f'mode = "no-net"\nlease = "{WAITS_S["no-net"]} s"\n',
}

CONFIGURATION = f"""
type = "pv"
name = "{GUEST}"
kernel = "{HOME}/kernel"
ramdisk = "{HOME}/{GUEST}.cpio"
extra = "{GUEST_ARGUMENTS}"
memory = {MEMORY_MIB}
vcpus = 1
vif = ["script={HOME}/{HOTPLUG},bridge=laxity0,mac=00:16:3e:00:00:01"]
on_poweroff = "destroy"
on_reboot = "destroy"
on_crash = "destroy"
"""

SHORTEN = r's/.*"state":"\([^"]*\)".*"checkpoint":\([^,]*\),.*"bytes":\([^,]*\),.*/status \1 \2 \3/'
"""For sed, of the one line of `laxity-protect status --json`."""
STATUS = re.compile(r"status (?P<state>[a-z-]+) (?P<checkpoint>\d+) (?P<bytes>\d+)$")
"""What that comes to."""
PLAN = """
set -eu
for module in "$LAXITY"/modules/*; do
    do_or_fail insmod "$module"
done
do_or_fail ip link set lo up
do_or_fail ip address add {address}/24 dev eth0
do_or_fail ip link set eth0 mtu 9000 up
do_or_fail ip link add laxity0 type bridge
do_or_fail ip link set eth1 master laxity0
do_or_fail ip link set eth1 up
do_or_fail ip link set laxity0 up
mkdir -p /run/protect
{protect} run "$PLAN/site.toml" --as {host} --socket /run/protect/control.sock --log-json \\
    2>/run/protect/protect.log &
daemon=$! before=
tail -f /run/protect/protect.log | while read -r line; do say "log $line"; done &
until case $before in "status {until} "*) true ;; *) false ;; esac; do
    sleep 1
    kill -0 $daemon || fail "{protect} has ended"
    now=$({protect} status --json --socket /run/protect/control.sock 2>/dev/null |
        sed '{shorten}') || :
    [ "$now" = "$before" ] || say "$now"
    before=$now
done
sleep {survives}
xl list >"$RESULTS/list"
cp /run/protect/*.log "$RESULTS"
kill $daemon
wait $daemon || :
"""


class _Watcher:
    """Sees all that leaves the hosts, and hears what their daemons say."""

    def __init__(self, say: Say, armed: Callable[[], None]) -> None:
        self.story = Story()
        self._say = say
        self._armed = armed
        self._states: dict[str, str] = {}

    def listen(self, host: str, path: Path) -> None:
        """Takes one connection of QEMU's there: frames, each behind its length (32 bits)."""
        frames = self.story.before if host == NORTH else self.story.after
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(1)

        def take() -> None:
            with server, server.accept()[0] as connection, connection.makefile("rb") as stream:
                while len(head := stream.read(LENGTH.size)) == LENGTH.size:
                    frame = stream.read(*LENGTH.unpack(head))
                    if heard := failover.parse(time.monotonic(), frame):
                        frames.append(heard)

        threading.Thread(target=take, daemon=True).start()

    def told(self, host: str, line: str) -> None:
        """A line of a host's, as the plan writes it."""
        kind, _, rest = line.partition(" ")
        if kind == "log":
            self._log(host, rest)
        elif status := STATUS.match(line):
            if status["state"] == "armed" and host == SOUTH:
                self._note_progress(int(status["checkpoint"]), int(status["bytes"]))
            if status["state"] != self._states.get(host):
                self._say(f"{host}: {status['state']}")
            self._states[host] = status["state"]
        elif kind != "status":
            self._say(f"{host}: {line}")

    def _note_progress(self, checkpoint: int, stream_bytes: int) -> None:
        armed = self.story.armed
        armed.append(Progress(time.monotonic(), checkpoint, stream_bytes))
        if checkpoint - armed[0].checkpoint >= CHECKPOINTS:
            self._armed()

    def _log(self, host: str, line: str) -> None:
        try:
            message = str(json.loads(line)["fields"]["message"])
        except (ValueError, KeyError, TypeError):
            # A console has no lines of its own: somebody else has written into it.
            self._say(f"{host}: {line}")
            return
        self._say(f"{host}: {message}")
        now_s = time.monotonic()
        if host == NORTH and message.startswith("copying to the standby"):
            self.story.copying_s = now_s
        elif host == SOUTH and message.startswith("taking over from checkpoint"):
            self.story.detected_s = now_s
        elif host == SOUTH and message.startswith("the guest runs here"):
            self.story.running_s = now_s


def fail_over(mode: Mode, seed: int, directory: Path, say: Say) -> Failover:
    """Boots both hosts, protects the guest, kills the first host, and listens to the second.

    Leaves each host's `console.log` and the second one's results in `directory`. Raises LabError
    if something does not work, or the guest does not go on.
    """
    hypervisor, built = image.hypervisor("release", say), image.build(say=say)
    beside = _dom0(image.static(PROTECT, say), image.libxl(say))
    moment_s = random.Random(seed).uniform(0, MOMENTS_S)  # noqa: S311, it is no secret.
    cut, give_up, failures = threading.Event(), threading.Event(), list[LabError]()

    def cut_soon() -> None:
        if not timers:
            timers.append(threading.Timer(moment_s, cut.set))
            timers[0].start()

    timers = list[threading.Timer]()
    watcher = _Watcher(say, cut_soon)
    story = watcher.story

    def boot_north(north: XenMachine) -> None:
        try:
            north.run(directory / NORTH, lambda line: watcher.told(NORTH, line), cut)
        except PowerCutError:
            story.cut_s = time.monotonic()
            say(f"{NORTH}: its power is cut")
        except LabError as error:
            failures.append(error)
            give_up.set()

    with _machines(mode, hypervisor, built, beside, watcher) as machines:
        thread = threading.Thread(target=boot_north, args=[machines[NORTH]], daemon=True)
        thread.start()
        try:
            south = machines[SOUTH]
            south.run(directory / SOUTH, lambda line: watcher.told(SOUTH, line), give_up)
        except PowerCutError:
            raise failures[0] from None
        finally:
            for timer in timers:
                timer.cancel()
            cut.set()
            thread.join()
    try:
        return failover.measure(story)
    except LabError as error:
        raise LabError(str(error), f"the consoles are in {directory}") from None


def rows(mode: Mode, done: Failover) -> list[tuple[str, str, str]]:
    """What was measured: its name, its value, and what was asked for."""
    second = "{:.2f} s".format
    return [
        ("first copy of the memory", second(done.copy_s), f"{MEMORY_MIB} MiB"),
        ("time between checkpoints", second(done.epoch_s), f"{INTERVAL_MS} ms and what xl takes"),
        ("stream of a checkpoint", f"{done.checkpoint_bytes / 2**10:.0f} KiB", ""),
        ("pause of the guest, median", second(done.pause_p50_s), "as the guest saw it"),
        ("pause of the guest, longest", second(done.pause_max_s), ""),
        ("output held, median", second(done.delay_p50_s), HELD[mode]),
        ("output held, longest", second(done.delay_max_s), ""),
        ("power cut after checkpoint", str(done.checkpoint), ""),
        (
            "from the power cut to the takeover",
            second(done.detection_s),
            f"{WAITS_S[mode]} s of silence",
        ),
        ("from the power cut until xl was done", second(done.running_s), ""),
        ("from the power cut to the first number", second(done.silence_s), ""),
        ("last number of the first host", str(done.last), ""),
        ("first number of the second host", str(done.first), ""),
        ("numbers of the second host", str(done.heard), f"{failover.SURVIVES} at least"),
        ("numbers seen and sent again", str(done.undone), UNDONE[mode]),
        ("numbers held and never seen", str(done.unheard), ""),
    ]


def shown(mode: Mode, done: Failover) -> str:
    """A table for a terminal."""
    table = rows(mode, done)
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c}".rstrip() for a, b, c in table)


@contextmanager
def _machines(
    mode: Mode, hypervisor: Path, built: image.Image, beside: bytes, watcher: _Watcher
) -> Iterator[dict[str, XenMachine]]:
    # Both ends are there before either machine is, so that it does not matter which comes first.
    cable = socket.socketpair()
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary, cable[0], cable[1]:
        directory = Path(temporary)
        keys = _keys(directory / "keys", mode)
        machines = {}
        for number, host in enumerate(ADDRESSES):
            plan = directory / host
            plan.mkdir()
            until = "none" if host == NORTH else "alone"
            script = PLAN.format(
                address=ADDRESSES[host],
                host=host,
                protect=PROTECT,
                until=until,
                shorten=SHORTEN,
                survives=SURVIVES_S,
            )
            (plan / SCRIPT).write_text(script, "utf-8")
            (plan / "site.toml").write_text(SITE + OF_MODE[mode], "utf-8")
            (plan / f"{GUEST}.cfg").write_text(CONFIGURATION, "utf-8")
            for name in ("site.crt", f"{host}.crt", f"{host}.key"):
                (plan / name).write_bytes((keys / name).read_bytes())
            seen = directory / f"{host}.sock"
            watcher.listen(host, seen)
            end = cable[number].fileno()
            machines[host] = XenMachine(
                hypervisor,
                built,
                plan,
                mode="live",
                dom0_memory_mib=DOM0_MEMORY_MIB,
                guests_memory_mib=GUESTS_MEMORY_MIB,
                xen_arguments="sched=credit",
                beside=beside,
                cards=(
                    *_card(0, number, f"addr.type=fd,addr.str={end}"),
                    *_card(1, number, f"addr.type=unix,addr.path={seen}"),
                ),
                descriptors=(end,),
                features=FEATURES,
                limit_s=LIMIT_S,
                silence_s=SILENCE_S,
            )
        yield machines


def _card(number: int, host: int, to: str) -> tuple[str, ...]:
    mac = f"52:54:00:00:{host:02x}:{number:02x}"
    return (
        *("-netdev", f"stream,id=net{number},server=off,{to}"),
        *("-device", f"{CARD},netdev=net{number},romfile=,addr={number + 8:#x},mac={mac}"),
    )


def _keys(directory: Path, mode: Mode) -> Path:
    """Keys and certificates of both hosts, made for this run."""
    directory.mkdir()
    site = directory / "site.toml"
    site.write_text(SITE + OF_MODE[mode], "utf-8")
    made = subprocess.run(  # noqa: S603 - it is ours
        [image.static(PROTECT, lambda _: None), "keys", site, directory],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise LabError(f"{PROTECT} keys failed: {made.stderr.strip()}")
    return directory


def _dom0(protect: Path, libxl: Path) -> bytes:
    """The archive of what these hosts have besides: modules, `tc`, libxl, the daemon, the guest."""
    made = image.kernel((*MODULES, *image.NETFRONT_MODULES))
    guest = image.guest_root(
        image.programs(lambda _: None) / COUNTER,
        image.numbered("modules", made.modules, image.NETFRONT_MODULES),
    )
    scripts = image.XEN / "lab"
    entries = [
        cpio.file(f"laxity/{GUEST}.cpio", guest),
        cpio.file(f"laxity/{PROTECT}", protect, executable=True),
        *(cpio.file(f"laxity/{name}", scripts / name, executable=True) for name in (HOLD, HOTPLUG)),
        *image.numbered("laxity/modules", made.modules, MODULES),
    ]
    with image.unpacked(PACKAGES) as unpacked:
        tc = unpacked / "sbin/tc"
        libnl = [image.in_libraries(unpacked, name) for name in LIBNL]
        entries.append(cpio.file("bin/tc", tc, executable=True))
        entries += image.libraries(unpacked, [tc], also=libnl)
    for path in sorted(libxl.iterdir()):
        place = "usr/lib/xen-4.17/bin" if path.name == SAVE_HELPER else image.LIBRARY_DIRECTORIES[0]
        entries.append(cpio.file(f"{place}/{path.name}", path, executable=True))
    return cpio.archive(entries)
