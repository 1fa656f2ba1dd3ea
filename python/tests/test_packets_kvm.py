"""Late packets of real guests: their cards are served by vhost, on the emulated KVM host.

Two guests of QEMU with KVM run iPXE, which drives a virtio card and asks for an address in vain.
The card of one is a tap, that of the other a macvtap on a device that stands for the host's own
card. A real-time load has the only CPU for some time again and again. What `laxity observe` and
`laxity why` say of the recording is held against the kernel's own text of the same events, and
against what the load and the sender of the packets read from the clock.
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import laxity
import libvirt_host
import pytest
from laxity import _core
from laxity.lab import cpio, kvm_image, machine, packages
from laxity.lab.kvm_machine import KvmMachine
from laxity.observe import threads

if TYPE_CHECKING:
    from conftest import Laxity

pytestmark = [
    pytest.mark.xen,
    pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="the kernel is Debian's"),
]

MODULES = ("tun", "tap", "macvlan", "macvtap", "vhost_iotlb", "vhost", "vhost_net")
"""In the order in which the host loads them."""
OURS = (
    *("__init__", "errors", "text", "tracefs", "uninterrupted"),
    *(f"observe/{name}" for name in ("__init__", "here", "known", "threads")),
    *(f"substrates/{name}" for name in ("__init__", "kernel", "names")),
)
"""What records on the host, and finds its virtual machines."""
REPLACED = {"_core": '__version__ = ""\n', "policies": "PARAMETERS = TABLE = {}\n"}
"""What would need the compiled extension there, and is not called."""
ROM = "usr/lib/ipxe/qemu/efi-virtio.rom"
LEFT_OUT = (
    *("etc/", "usr/sbin/", "usr/share/libvirt/", "usr/lib/x86_64-linux-gnu/gconv/"),
    *("usr/lib/x86_64-linux-gnu/libicu", "usr/lib/x86_64-linux-gnu/libvirt"),
)
"""What libvirt needs beside QEMU and Python, or nobody."""

GUESTS = ("tap", "macvtap")
FRAME_BYTES = 222
COPIED = "skb_copy_datagram_iovec"
"""The event of a packet that a thread took."""
DELAY_NS, MS = 1_000_000, 1_000_000

DRIVER = """
import fcntl, json, os, shutil, signal, socket, struct, subprocess, sys, time
from pathlib import Path

sys.path.append("/")
from laxity import tracefs
from laxity.observe import here

RESULTS, KIND, IP = Path(os.environ["RESULTS"]), 0x88B5, 0x0800
now = time.monotonic_ns

def ip(*words):
    subprocess.run(["ip", "link", *words], check=True)

def start(name, card, address):
    devices = ["-netdev", f"tap,id=card,vhost=on,{card}"]
    devices += ["-device", f"virtio-net-pci,netdev=card,mac={address},bootindex=0"]
    log = (RESULTS / f"{name}.log").open("wb")
    return subprocess.Popen(["qemu-system-x86_64", "-enable-kvm", "-cpu", "host", "-m", "32",
        "-nodefaults", "-display", "none", "-name", f"guest={name},debug-threads=on", *devices],
        stdout=log, stderr=log, close_fds=False)

def wait_until_it_asks(read, guest):
    while struct.unpack_from(">H", read(2048), 12)[0] != IP:
        assert guest.poll() is None, "QEMU has ended"

def frame(address, number):
    header = bytes.fromhex(address.replace(":", "")) + bytes(6) + struct.pack(">H", KIND)
    return (header + struct.pack("<q", number)).ljust(FRAME_BYTES, b"x")

# The host's own neighbour and router discovery would come to the guests, too.
Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
wire = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(wire, 0x400454CA, struct.pack("16sH14x", b"wire", 0x1002))
ip("set", "wire", "up")
ip("add", "link", "wire", "name", "above", "type", "macvtap")
ip("set", "above", "up")
above = Path("/sys/class/net/above")
handed = os.open("/dev/tap" + (above / "ifindex").read_text().strip(), os.O_RDWR)
os.set_inheritable(handed, True)
addresses = {"tap": "52:54:00:00:00:01", "macvtap": (above / "address").read_text().strip()}

tap = start("tap", "ifname=card,script=no,downscript=no", addresses["tap"])
while not Path("/sys/class/net/card").exists():
    assert tap.poll() is None, "QEMU has ended"
    time.sleep(0.01)
ip("set", "card", "up")
card = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
card.bind(("card", 3))
wait_until_it_asks(card.recv, tap)
# The other one has the CPU for itself until it is as far.
tap.send_signal(signal.SIGSTOP)
macvtap = start("macvtap", f"fd={handed}", addresses["macvtap"])
wait_until_it_asks(lambda size: os.read(wire, size), macvtap)
tap.send_signal(signal.SIGCONT)

def load(write):
    while True:
        time.sleep(0.014)
        began = now()
        while (ended := now()) < began + 6_000_000:
            pass
        write(began, ended, 0)

def sender(write):
    send = {"tap": card.send, "macvtap": lambda frame: os.write(wire, frame)}
    number = 0
    while True:
        for guest, address in addresses.items():
            time.sleep(0.007)
            before = now()
            send[guest](frame(address, number))
            write(before, now(), number)
            number += 1

def start_real_time(todo, priority):
    child = os.fork()
    if child == 0:
        log = (RESULTS / todo.__name__).open("wb", 0)
        Path("/proc/self/comm").write_text(todo.__name__)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        todo(lambda *values: log.write(struct.pack("<qqq", *values)))
    return child

with tracefs.traced(tracefs.buffer_kib(1), packets=True) as instance:
    children = [start_real_time(load, 10), start_real_time(sender, 20)]
    time.sleep(0.6)
    for child in children:
        os.kill(child, signal.SIGKILL)
    (instance / "tracing_on").write_text("0")
    shutil.copyfile(instance / "trace", RESULTS / "trace.txt")
    tracefs.save(instance, RESULTS / "trace.dat")
machines = [(each.name, each.threads, each.process, each.workers) for each in here.machines()]
told = {"machines": machines, "processes": {"tap": tap.pid, "macvtap": macvtap.pid}}
(RESULTS / "told.json").write_text(json.dumps(told))
""".replace("FRAME_BYTES", str(FRAME_BYTES))

SCRIPT = f"""\
set -eu
PATH=$PATH:/usr/bin:/usr/sbin:/sbin
for module in {" ".join(MODULES)}; do
    insmod "/vhost/$module.ko"
done
python3 -B /plan/drive.py
"""


def beside(version: str, scratch: Path) -> bytes:
    """QEMU, Python, the kernel's modules for cards of guests, and what records."""
    options = packages.suite(kvm_image.SUITE, kvm_image.CACHE / "apt")
    wanted = packages.downloads((kvm_image.MODULES + version,), options)
    (package,) = packages.fetch(wanted, kvm_image.CACHE / "packages", options)
    packages.run("dpkg-deb", "--extract", package, scratch)
    files = [entry for entry in libvirt_host.entries() if not entry.name.startswith(LEFT_OUT)]
    files.append(cpio.file(ROM, libvirt_host.root() / ROM))
    for name in MODULES:
        (path,) = scratch.rglob(f"{name}.ko.xz")
        files.append(cpio.file(f"vhost/{name}.ko", lzma.decompress(path.read_bytes())))
    sources = Path(laxity.__file__).parent
    files += [cpio.file(f"laxity/{name}.py", sources / f"{name}.py") for name in OURS]
    files += [cpio.file(f"laxity/{name}.py", text.encode()) for name, text in REPLACED.items()]
    return cpio.archive(files)


@dataclass(frozen=True)
class Packet:
    """A packet of the sender, in us of the kernel's clock."""

    came_us: int
    had_us: int
    """When the VCPU of its guest ran from then on."""
    by_load_us: int
    """How long the load had the CPU until it was taken, while the worker could run."""


LINE = re.compile(r" *(.+)-(\d+) +\[\d+\] \S+ +(\d+)\.(\d{6}): (\w+): (.*)")


def in_words(text: str, worker: int, vcpu: int) -> list[Packet]:
    """The packets that a worker took, by the kernel's text of the events, oldest first."""
    found: list[Packet] = []
    came: dict[str, tuple[int, int]] = {}
    taken: list[tuple[int, int]] = []
    by_load_us, before_us, runs, is_ready = 0, 0, "", False
    for line in text.splitlines():
        if (match := LINE.fullmatch(line)) is None:
            assert line.startswith("#"), line
            continue
        _, thread, seconds, fraction, event, said = match.groups()
        time_us = int(seconds + fraction)
        by_load_us += time_us - before_us if runs == "load" and is_ready else 0
        before_us = time_us
        if event == "sched_wakeup" and f" pid={worker} " in said:
            is_ready = True
        if event == "sched_switch":
            left, runs, following = re.split(r" ==> next_comm=(.*) next_pid=", said)
            if f" prev_pid={worker} " in left:
                is_ready = " prev_state=R" in left
            if following.split()[0] == str(vcpu):
                found += [Packet(came_us, time_us, by_us) for came_us, by_us in taken]
                taken.clear()
            continue
        values = dict(word.split("=") for word in said.split() if "=" in word)
        is_put = event == "net_dev_queue" and values["dev"] == "card"
        if is_put or (event == "netif_receive_skb" and values["dev"] == "wire"):
            came[values["skbaddr"]] = time_us, by_load_us
        if event == COPIED and int(thread) == worker:
            assert int(values["len"]) == FRAME_BYTES
            came_us, by_then_us = came.pop(values["skbaddr"])
            taken.append((came_us, by_load_us - by_then_us))
    return found


def rows(path: Path) -> list[tuple[int, int, int]]:
    written = path.read_bytes()
    return list(struct.iter_unpack("<qqq", written[: len(written) // 24 * 24]))


def test_packets_of_vhost_are_late_by_what_had_the_cpu(laxity: Laxity, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / "drive.py").write_text(DRIVER)
    (plan / "plan.sh").write_text(SCRIPT)
    image = kvm_image.build(print)
    kvm_image.programs(print)
    archive = beside(image.version, tmp_path / "modules")
    results = KvmMachine(image, plan, memory_mib=1024, beside=archive).run(tmp_path / "out", print)
    told = json.loads((results / "told.json").read_text())

    recording, seen = results / "trace.dat", tmp_path / "seen"
    laxity("observe", recording, "--packet-delay", f"{DELAY_NS} ns", "-o", seen)
    text = (seen / "host.toml").read_text()
    answer = json.loads(laxity("why", seen, "--json").stdout)
    survey = json.loads(_core.recorded_threads(str(recording)))
    for each in answer["late"]:
        assert sum(cause["ns"] for cause in each["causes"]) == each["late_ns"]
        # The last ones may wait until the end.
        is_unfinished = each["packet"] == "unfinished"
        had_ns = survey["to_ns"] - survey["from_ns"] if is_unfinished else each["completion_ns"]
        assert sum(cause["delay_ns"] for cause in each["causes"]) == had_ns - each["arrival_ns"]
    every_late = [each for each in answer["late"] if each["packet"] == "late"]

    # The file tells machines and the threads of vhost as the host itself does.
    names = {thread["thread"]: thread["name"] for thread in survey["threads"]}
    of_file = {each.threads: each.workers for each in threads.of_qemu(survey["threads"])}
    assert {name for name, *_ in told["machines"]} == set(GUESTS)
    sent = rows(results / "sender")
    for name, (vcpu,), process, workers in told["machines"]:
        assert process == told["processes"][name]
        (vhost,) = (each for each in workers if names.get(each) == f"vhost-{process}")
        assert vhost in of_file[(vcpu,)]
        own_late = [each for each in every_late if each["what"].startswith(f"vm-{vcpu}/")]
        told_by_kernel = (results / "trace.txt").read_text()
        words = in_words(told_by_kernel, vhost, vcpu)
        _as_the_kernel_says(own_late, words, f"(vhost-{process})", survey["from_ns"])
        lines = filter(None, map(LINE.fullmatch, told_by_kernel.splitlines()))
        copied = sum(line.group(2, 5) == (str(vhost), COPIED) for line in lines)
        assert f"# It had {copied:,} packets in the trace" in text
        own = [row for row in sent if row[2] % len(GUESTS) == GUESTS.index(name)]
        _as_the_clock_says(own_late, own, rows(results / "load"), survey)


def by_load_ns(late: dict[str, Any], at: str | None = None) -> int:
    return sum(
        cause["delay_ns"]
        for cause in late["causes"]
        if (cause["cause"], cause["who"]) == ("cpu", "(load, real-time)")
        and at in (None, cause["at"])
    )


def _as_the_kernel_says(
    late: list[dict[str, Any]], words: list[Packet], vhost: str, start_ns: int
) -> None:
    """Each late packet is there, and no other; the text's times are rounded to microseconds."""
    slack_us = 3
    by_arrival = {(start_ns + each["arrival_ns"]) // 1000: each for each in late}
    surely = 0
    for packet in words:
        found = [by_arrival.pop(packet.came_us + off, None) for off in (-1, 0, 1)]
        one = next(filter(None, found), None)
        response_us = packet.had_us - packet.came_us
        if one is None:
            assert response_us <= DELAY_NS // 1000 + slack_us
            continue
        assert abs((one["completion_ns"] - one["arrival_ns"]) // 1000 - response_us) <= slack_us
        assert abs(by_load_ns(one, vhost) // 1000 - packet.by_load_us) <= slack_us
        surely += packet.by_load_us > DELAY_NS // 1000
    assert not by_arrival, "a packet is told that nobody sent"
    assert surely > 3


def _as_the_clock_says(
    late: list[dict[str, Any]],
    sent: list[tuple[int, int, int]],
    turns: list[tuple[int, int, int]],
    survey: dict[str, Any],
) -> None:
    """What was sent while the load had the CPU came no sooner than when it was done."""
    start_ns, checked = survey["from_ns"], 0
    for began_ns, ended_ns, _ in turns:
        for before_ns, after_ns, _ in sent:
            if began_ns < before_ns and after_ns + 2 * MS < ended_ns < survey["to_ns"] - 20 * MS:
                (one,) = (
                    each for each in late if before_ns <= start_ns + each["arrival_ns"] <= after_ns
                )
                assert start_ns + one["completion_ns"] > ended_ns
                assert by_load_ns(one) >= 0.9 * (ended_ns - after_ns)
                checked += 1
    assert checked > 3
