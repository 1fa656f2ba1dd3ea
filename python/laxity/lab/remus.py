"""Two emulated Xen hosts, a guest that `laxity protect` protects by xl's Remus, and a failure.

The hosts are machines of the lab, in wall time, joined by a cable. Each has a second card, on the
bridge of its guests, whose other end is here: so what is seen here is what leaves the hosts, and
nothing here is known to them. The guest counts, and says each number once
(xen/programs/laxity-counter.c). When the second host has some checkpoints, the first one's QEMU is
killed. If the second one's guest begins with a number that had left the first, what somebody had
seen is undone.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from laxity.lab import cpio, image
from laxity.lab.errors import LabError
from laxity.lab.machine import Machine, PowerCutError
from laxity.lab.plan import GUEST_ARGUMENTS, MEMORY_MIB, SCRIPT
from laxity.lab.where import HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.lab.where import Say

Mode = Literal["net", "no-net"]
"""Output waits for its checkpoint, or not."""

PROTECT, COUNTER = "laxity-protect", "laxity-counter"
"""What runs in dom0, and in the guest."""
GUEST = "counter"
NORTH, SOUTH = "north", "south"
"""The host that fails, and the one that takes over."""
ADDRESSES = {NORTH: "198.51.100.1", SOUTH: "198.51.100.2"}
"""Of the cable. Nobody else has them (RFC 5737)."""
HOLD, HOTPLUG = "netbuf", "vif"
"""Scripts of xen/lab."""

PACKAGES = (
    *("xen-utils-4.17", "iproute2", "libnl-3-200", "libnl-route-3-200", "libc6", "zlib1g"),
    *("libbpf1", "libelf1", "libmnl0", "libbsd0", "libmd0", "libcap2", "libxtables12"),
)
"""For `tc`, and for libxl with network buffering."""
LIBNL = ("libnl-3.so.200", "libnl-route-3.so.200")
SAVE_HELPER = "libxl-save-helper"
CARD = "e1000"
"""Of the cards that QEMU has, one whose driver is a single module."""
MODULES = (
    *(*image.NETBACK_MODULES, CARD),
    *("ifb", "sch_plug", "sch_ingress", "act_mirred", "cls_matchall"),
)

INTERVAL_MS, HEARTBEAT_S, DETECTION_S = 500, 1, 15
"""An emulated host may stand still for seconds on a busy computer, and has not failed then."""
CHECKPOINTS = 6
"""Before the failure."""
SURVIVES_S = 10
"""That the guest is listened to afterwards."""

DOM0_MEMORY_MIB = 512
"""The standby's has checkpoints until Xen has them."""
GUESTS_MEMORY_MIB = 320
LIMIT_S = 1800.0
"""Wall time for all."""

LENGTH = struct.Struct(">I")
"""Stands before a frame, as QEMU writes it."""
MAGIC = b"LAXITYCT"
"""Stands before a number, as xen/programs/laxity-counter.c writes it."""

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
OF_MODE: dict[Mode, str] = {
    "net": f'mode = "net"\nhold-script = "{HOME}/{HOLD}"\n',
    "no-net": f'mode = "no-net"\nlease = "{DETECTION_S} s"\n',
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
{protect} run "$PLAN/site.toml" --as {host} --socket /run/protect/control.sock 2>/run/protect/protect.log &
daemon=$! before=
tail -f /run/protect/protect.log &
until [ "${{state:-}}" = {until} ]; do
    sleep 2
    kill -0 $daemon || fail "{protect} has ended"
    now=$({protect} status --json --socket /run/protect/control.sock 2>/dev/null |
        sed 's/.*"state":"\\([a-z-]*\\)".*"checkpoint":\\([0-9]*\\).*/\\1 \\2/') || :
    [ "$now" = "$before" ] || say "$now"
    before=$now state=${{now% *}}
done
sleep {survives}
xl list >"$RESULTS/list"
cp /run/protect/*.log "$RESULTS"
kill $daemon
wait $daemon || :
"""


@dataclass(frozen=True)
class Failover:
    """What was seen outside. Times are the wall's, of an emulation."""

    mode: Mode
    checkpoints: int
    """That the second host had when the first one failed, as it said last."""
    checkpoint_s: float
    """From one to the next, in the mean: the interval, and what xl takes."""
    last: int
    """The largest number that left the first host."""
    first: int
    """The number with which the second one's guest begins."""
    silent_s: float
    """From the failure to that."""
    heard: int
    """Numbers that left the second host."""

    @property
    def undone(self) -> int:
        """How many numbers that had been seen were said again."""
        return max(0, self.last - self.first + 1)


@dataclass
class _Outside:
    """Who listens on the bridges' other ends."""

    heard: list[tuple[float, str, int]] = field(default_factory=list)
    """When, from which host, which number."""

    def listen(self, host: str, path: Path) -> None:
        """Takes one connection of QEMU's there: frames, each behind its length (32 bits)."""
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(1)

        def take() -> None:
            with server, server.accept()[0] as connection, connection.makefile("rb") as stream:
                while len(head := stream.read(LENGTH.size)) == LENGTH.size:
                    frame = stream.read(*LENGTH.unpack(head))
                    at = frame.find(MAGIC)
                    if at >= 0:
                        (number,) = struct.unpack_from(">Q", frame, at + len(MAGIC))
                        self.heard.append((time.monotonic(), host, number))

        threading.Thread(target=take, daemon=True).start()

    def of(self, host: str) -> list[tuple[float, int]]:
        """What has come from a host so far: when, and the number."""
        return [(at_s, number) for at_s, whose, number in list(self.heard) if whose == host]


def failover(mode: Mode, directory: Path, say: Say) -> Failover:
    """Boots both hosts, protects the guest, kills the first host, and listens to the second.

    Leaves each host's `console.log` and the second one's results in `directory`. Raises LabError
    if something does not work, or the guest does not go on.
    """
    hypervisor, built = image.hypervisor("release", say), image.build(say=say)
    beside = _dom0(image.static(PROTECT, say), image.libxl(say))
    outside, cut, checkpoints = _Outside(), threading.Event(), list[tuple[float, int]]()
    failures = list[LabError]()

    def told(host: str, line: str) -> None:
        say(f"{host}: {line}")
        state, _, number = line.partition(" ")
        if host == SOUTH and state == "armed":
            checkpoints.append((time.monotonic(), int(number)))
            # Not with the first: the pace is to be seen as well.
            if int(number) >= CHECKPOINTS and len(checkpoints) > 1:
                cut.set()

    def boot_north(north: Machine) -> None:
        try:
            north.run(directory / NORTH, lambda line: told(NORTH, line), cut)
        except PowerCutError:
            cut_s.append(time.monotonic())
            say(f"{NORTH}: its power is cut")
        except LabError as error:
            failures.append(error)

    cut_s = list[float]()
    with _machines(mode, hypervisor, built, beside, outside) as machines:
        thread = threading.Thread(target=boot_north, args=[machines[NORTH]], daemon=True)
        thread.start()
        try:
            machines[SOUTH].run(directory / SOUTH, lambda line: told(SOUTH, line))
        finally:
            cut.set()
            thread.join()
    if failures:
        raise failures[0]
    north, south = outside.of(NORTH), outside.of(SOUTH)
    if not north or not south or not checkpoints:
        raise LabError(
            f"{len(north)} numbers were heard from {NORTH} and {len(south)} from {SOUTH}",
            f"the consoles are in {directory}",
        )
    (first_s, first), (last_s, last) = checkpoints[0], checkpoints[-1]
    return Failover(
        mode,
        checkpoints=last,
        checkpoint_s=(last_s - first_s) / max(1, last - first),
        last=max(number for _, number in north),
        first=south[0][1],
        silent_s=south[0][0] - cut_s[0],
        heard=len(south),
    )


@contextmanager
def _machines(
    mode: Mode, hypervisor: Path, built: image.Image, beside: bytes, outside: _Outside
) -> Iterator[dict[str, Machine]]:
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
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
                survives=SURVIVES_S,
            )
            (plan / SCRIPT).write_text(script, "utf-8")
            (plan / "site.toml").write_text(SITE + OF_MODE[mode], "utf-8")
            (plan / f"{GUEST}.cfg").write_text(CONFIGURATION, "utf-8")
            for name in ("site.crt", f"{host}.crt", f"{host}.key"):
                (plan / name).write_bytes((keys / name).read_bytes())
            seen = directory / f"{host}.sock"
            outside.listen(host, seen)
            cable = f"server={'off' if number else 'on'},addr.path={directory / 'cable.sock'}"
            machines[host] = Machine(
                hypervisor,
                built,
                plan,
                mode="live",
                dom0_memory_mib=DOM0_MEMORY_MIB,
                guests_memory_mib=GUESTS_MEMORY_MIB,
                xen_arguments="sched=credit",
                beside=beside,
                cards=(
                    *_card(0, number, cable),
                    *_card(1, number, f"server=off,addr.path={seen}"),
                ),
                limit_s=LIMIT_S,
                silence_s=LIMIT_S,
            )
        yield machines


def _card(number: int, host: int, to: str) -> tuple[str, ...]:
    mac = f"52:54:00:00:{host:02x}:{number:02x}"
    return (
        *("-netdev", f"stream,id=net{number},addr.type=unix,{to}"),
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
    scripts = image.CHECKOUT / "xen" / "lab"
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
