"""What observing costs: CPU time with and without laxity observe's tracing, and records it makes.

    sudo unshare --net python bench/observe_overhead.py

Two processes on one CPU pass a byte to and fro, so that each pass is two context switches. Then one
process sends packets to itself, through a socket and through a card that is none (a tap), which
takes no switch. CPU time is counted, and not time, so that other load hardly matters. tracefs must
be mounted, and the network namespace is the program's own.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import statistics
import struct
from contextlib import nullcontext
from typing import TYPE_CHECKING

from laxity import tracefs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PASSES = 50_000
ROUNDS = 7
BUSY_SWITCHES_PER_S = 10_000
"""Context switches a second of a busy CPU, for the share of it that observing takes."""
PACKETS = 20_000
BUSY_PACKETS_PER_S = 50_000
"""Packets a second of a busy media server: 1,000 streams there and on."""
VOICE = bytes(172)
"""A packet of voice: 20 ms of G.711 behind the header of RTP."""
HEADERS = bytes(12) + b"\x08\x00" + bytes(28)
"""Those of Ethernet, IPv4 and UDP."""
SET_UP, SET_TAP = 0x8914, 0x400454CA
IS_TAP, IS_UP = 0x1002, 0x1
CARD = "card"


def switch_ns() -> float:
    """CPU time of both processes for each context switch."""
    to_child, from_parent = os.pipe(), os.pipe()
    before = _cpu_s()
    child = os.fork()
    if child == 0:
        for _ in range(PASSES):
            os.read(to_child[0], 1)
            os.write(from_parent[1], b".")
        os._exit(0)
    for _ in range(PASSES):
        os.write(to_child[1], b".")
        os.read(from_parent[0], 1)
    os.waitpid(child, 0)
    for descriptor in (*to_child, *from_parent):
        os.close(descriptor)
    return 1e9 * (_cpu_s() - before) / (2 * PASSES)


def _cpu_s() -> float:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in both]
    return sum(each.ru_utime + each.ru_stime for each in used)


def packet_ns(send_and_take: Callable[[], object]) -> float:
    """CPU time for each packet."""
    before = _cpu_s()
    for _ in range(PACKETS):
        send_and_take()
    return 1e9 * (_cpu_s() - before) / PACKETS


def records(send_and_take: Callable[[], object]) -> float:
    """Records for each packet that this process makes."""
    with tracefs.traced(_kib(PACKETS), packets=True) as instance:
        (instance / "set_event_pid").write_text(str(os.getpid()))
        before = _entries(instance)
        for _ in range(PACKETS):
            send_and_take()
        return (_entries(instance) - before) / PACKETS


def _entries(instance: Path) -> int:
    lines = [
        line
        for cpu in (instance / "per_cpu").glob("cpu*")
        for line in (cpu / "stats").read_text().splitlines()
    ]
    if any(line.startswith("overrun: ") and line != "overrun: 0" for line in lines):
        raise SystemExit("the kernel's buffer was full, and its records cannot be counted")
    return sum(int(line.split(": ")[1]) for line in lines if line.startswith("entries: "))


def _kib(events: int) -> int:
    return 8 * events * 64 // 1024


def _up(device: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_UP, struct.pack("16sH14x", device.encode(), IS_UP))


def through_a_socket() -> Callable[[], object]:
    """Sends a packet to this process and takes it out of its socket."""
    _up("lo")
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 0))
    address = own.getsockname()

    def send_and_take() -> None:
        own.sendto(VOICE, address)
        own.recv(2048)

    return send_and_take


def through_a_card() -> Callable[[], object]:
    """Sends a packet to a card and reads it from there, as a worker of a virtual machine does."""
    card = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(card, SET_TAP, struct.pack("16sH14x", CARD.encode(), IS_TAP))
    _up(CARD)
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.bind((CARD, 0))

    def send_and_take() -> None:
        out.send(HEADERS + VOICE)
        os.read(card, 2048)

    return send_and_take


def medians(measure: Callable[[], float], *, packets: bool) -> tuple[float, float]:
    """The medians of several rounds without and with tracing."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for is_traced in (False, True):
            with tracefs.traced(_kib(PASSES), packets=packets) if is_traced else nullcontext():
                found[is_traced].append(measure())
    return statistics.median(found[False]), statistics.median(found[True])


def tell(what: str, without: float, with_it: float, busy_per_s: int, whats: str) -> None:
    """Prints what tracing adds."""
    print(f"{what} takes {without:.0f} ns of CPU time, and {with_it:.0f} ns observed")
    share = (with_it - without) * busy_per_s / 1e9
    print(f"at {busy_per_s:,} {whats} a second that is {share:.2%} of a CPU")


def main() -> None:
    """Prints the medians of several rounds, and what tracing adds."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for packets in (False, True):
        of = " with --packet-delay" if packets else ""
        costs = medians(switch_ns, packets=packets)
        tell(f"a context switch{of}", *costs, BUSY_SWITCHES_PER_S, "switches")
    for where, make in (("a socket", through_a_socket), ("a card", through_a_card)):
        send_and_take = make()
        costs = medians(lambda: packet_ns(send_and_take), packets=True)  # noqa: B023 - called here
        tell(f"a packet through {where}", *costs, BUSY_PACKETS_PER_S, "packets")
        print(f"it makes {records(send_and_take):.2f} records")


if __name__ == "__main__":
    main()
