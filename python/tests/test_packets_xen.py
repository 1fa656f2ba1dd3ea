"""Late packets of real Xen: dom0's netback copies them for a guest, on the emulated machine.

dom0 has a bridge with a guest's interface, a sender, and a real-time load that has dom0's VCPU for
some time again and again, so that netback's thread waits for it. dom0's VCPU itself waits: for a
busy guest of higher priority, and for its budget. What `laxity observe` and `laxity why` say is
held against the kernel's own text of its events, against Xen's records, which are read here once
more, and against what the load and the sender read from the clock. When netback tells the guest is
read from a probe of another function than the one that laxity-trace sets.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from laxity.lab import cpio, image, machine, pv_guest
from laxity.lab import packages as debian
from laxity.lab.files import HOME, NETWORK_ROOT
from laxity.lab.xen_machine import XenMachine
from laxity.observe import live
from laxity.substrates.xen import packets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Laxity

pytestmark = [
    pytest.mark.xen,
    *(
        pytest.mark.skipif(shutil.which(program) is None, reason=f"there is no {program}")
        for program in (machine.QEMU, "gcc")
    ),
]

TARGET, BUSY = "laxity-target", "laxity-busy"
"""The guest that packets are for, and one that computes; Xen numbers them 1 and 2."""
DOMIDS = {"Domain-0": 0, TARGET: 1, BUSY: 2}
DELAY_NS, SLACK_NS = 1_000_000, 10_000
RUN_NS = 600_000_000
PORT, PAYLOAD_BYTES = 9, 180

DRIVER = """
#include <arpa/inet.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "work.h"

static void sleep_ms(int ms)
{
    struct timespec time = {.tv_nsec = ms * 1000000L};
    nanosleep(&time, NULL);
}

/* An instruction takes 2 ns. */
static void work_ms(int ms)
{
    iterate((uint64_t)ms * 1000000 / 2 / ITERATION_INSTRUCTIONS);
}

int main(int count, char **words)
{
    /* The busy guest has no other process. It never uses its budget up, so that its turns of 7 ms
     * move through the periods of 10 ms: at some time it is what dom0 waits for. */
    while (getpid() == 1) {
        sleep_ms(5);
        work_ms(2);
    }
    int is_load = count == 3 && !strcmp(words[1], "load");
    struct sched_param priority = {.sched_priority = is_load ? 10 : 20};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    static char bytes[PAYLOAD_BYTES];
    int any_socket = socket(AF_INET, SOCK_DGRAM, 0);
    FILE *log = fopen(words[2], "w");
    setvbuf(log, NULL, _IOFBF, 1 << 20);
    inet_pton(AF_INET, ADDRESS, &to.sin_addr);
    prctl(PR_SET_NAME, words[1]);
    if (!log || sched_setscheduler(0, SCHED_FIFO, &priority))
        return 1;
    for (int turns = is_load ? 25 : 70; turns; turns--) {
        sleep_ms(is_load ? 14 : 7);
        uint64_t before = __rdtsc();
        if (is_load)
            work_ms(6);
        else
            sendto(any_socket, bytes, sizeof bytes, 0, (void *)&to, sizeof to);
        fprintf(log, "%lu %lu\\n", before, __rdtsc());
    }
    return fclose(log);
}
"""

ADDRESS = packets.GUEST_ADDRESS.format(packets.GUEST_FIRST)
TEXT_EVENTS = (
    *("sched/sched_switch", "sched/sched_wakeup", "net/net_dev_queue"),
    *("skb/kfree_skb", "text/notified"),
)
PLAN = f"""
tracing=/sys/kernel/tracing text=/sys/kernel/tracing/instances/text
mount -t tracefs nodev $tracing
create {TARGET}
connect {TARGET} {ADDRESS}/{packets.PREFIX_BITS}
find_domain {TARGET}
xl unpause $number
wait_for {TARGET} 600 ready
ping -c 1 {ADDRESS} >/dev/null
create {BUSY}
find_domain {BUSY}
xl unpause $number
# It has booted by then, with all of the CPU that dom0 leaves.
sleep 4
parameters {BUSY} budget=4000000 period=10000000 priority=1
parameters Domain-0 budget=4000000 period=10000000 priority=3 extratime=0
# It preempts dom0 when netback tells it of a packet, before netback frees that.
parameters {TARGET} budget=2000000 period=10000000 priority=2
for told in info vcpu-list cpupool-list; do xl $told >"$RESULTS/$told"; done
laxity-sched get --json >"$RESULTS/sched"

echo 'p:text/notified notify_remote_via_irq' >>$tracing/kprobe_events
mkdir $text
echo x86-tsc >$text/trace_clock
echo 8192 >$text/buffer_size_kb
for event in {" ".join(TEXT_EVENTS)}; do echo 1 >$text/events/$event/enable; done
laxity-trace record --events sched,laxity --for {RUN_NS} --kernel "$RESULTS/kernel.bin" \\
    "$RESULTS/trace.bin" >"$RESULTS/trace.log" 2>&1 &
tracer=$!
until grep -qs recording "$RESULTS/trace.log"; do sleep 0.05; done
laxity-drive load "$RESULTS/load" &
laxity-drive sender "$RESULTS/sender" &
wait $tracer || fail "laxity-trace: $(cat "$RESULTS/trace.log")"
echo 0 >$text/tracing_on
cat $text/trace >"$RESULTS/trace.txt"
wait
ls $tracing/instances >"$RESULTS/left"
cat $tracing/kprobe_events >>"$RESULTS/left"
"""

XL = """\
#!/bin/sh
cat "$RESULTS/$1"
"""
TRACE = """\
#!/bin/sh
[ "$1 $2 $3 $6" = "record --events sched,laxity --pages" ] || exit 1
[ "$8 ${10}" = "--kernel --kib" ] || exit 1
cp "$RESULTS/kernel.bin" "$9"
cp "$RESULTS/trace.bin" "${12}"
"""
SCHED = """\
#!/bin/sh
cat "$RESULTS/sched"
"""


class TalkativeMachine(XenMachine):
    """Its dom0 tells the addresses of buffers in text."""

    def boot(self, *arguments: str) -> list[str]:
        return super().boot(*arguments, "no_hash_pointers")


def recorded(tmp_path: Path) -> Path:
    """What dom0 left."""
    program = tmp_path / "drive"
    source = tmp_path / "drive.c"
    source.write_text(DRIVER)
    facts = [f'-DADDRESS="{ADDRESS}"', f"-DPORT={PORT}", f"-DPAYLOAD_BYTES={PAYLOAD_BYTES}"]
    shared = image.XEN.parent / "guest"
    flags: tuple[str | Path, ...] = ("-O2", "-static", "-D_GNU_SOURCE", "-I", shared, *facts)
    debian.run("gcc", *flags, "-o", program, source)
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / "plan.sh").write_text("\n".join(packets.before_boot()) + "\n" + PLAN)
    interface = packets.interface(HOME)
    for name, root, more in ((TARGET, NETWORK_ROOT, [interface]), (BUSY, "busy.cpio", [])):
        (plan / f"{name}.cfg").write_text(pv_guest.configuration(name, root, more=more))
    busy = tmp_path / "busy.cpio"
    busy.write_bytes(cpio.archive([cpio.file("init", program, executable=True)]))
    ours = [
        cpio.file("laxity/laxity-drive", program, executable=True),
        cpio.file("laxity/busy.cpio", busy),
    ]
    emulated = TalkativeMachine(
        image.hypervisor("release", lambda _: None),
        image.build(say=lambda _: None),
        plan,
        dom0_memory_mib=512,
        xen_arguments="sched=laxity laxity=deferrable dom0_max_vcpus=1",
        beside=image.network([], []) + cpio.archive(ours),
    )
    return emulated.run(tmp_path / "out")


def stand_in(results: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on programs of this machine tell what those of dom0 told there."""
    directory.mkdir()
    for name, text in (("xl", XL), ("laxity-trace", TRACE), ("laxity-sched", SCHED)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    monkeypatch.setenv("RESULTS", str(results))
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    monkeypatch.setattr(image, "programs", lambda _: directory)
    monkeypatch.setattr(live, "is_dom0", lambda _: True)


Times = list[tuple[int, int]]
"""From and to, in order."""


def within(times: Times, from_: int, to: int) -> int:
    """How long it was so between two times."""
    return sum(max(0, min(end, to) - max(begin, from_)) for begin, end in times)


def both(some: Times, others: Times) -> Times:
    """When both were so."""
    pairs = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return sorted((begin, end) for begin, end in pairs if begin < end)


@dataclass(frozen=True)
class OfXen:
    """What Xen's records say, in cycles."""

    runs: dict[int, Times]
    """When the VCPU of each domain ran."""
    waits: Times
    """When dom0's was runnable and did not run."""
    spent: Times
    """From when dom0's budget was used up until it had some again."""


def records(path: Path) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Cycles, event and words of the records of the only CPU."""
    content = path.read_bytes()
    _, _, size = struct.unpack_from("<IIQ", content, 48)
    at, end = 64, 64 + size
    while at < end:
        (head,) = struct.unpack_from("<I", content, at)
        has_time, count = head >> 31, head >> 28 & 7
        cycles = struct.unpack_from("<Q", content, at + 4)[0] if has_time else 0
        at += 4 + 8 * has_time
        yield cycles, head & 0xFFFFFFF, struct.unpack_from(f"<{count}I", content, at)
        at += 4 * count


SWITCH, WAKE, BLOCK, REPLENISH, EXHAUST = 0x2800A, 0x28004, 0x28006, 0x22C02, 0x22C03
"""Xen's events, and those of Laxity's scheduler."""


def of_xen(path: Path) -> OfXen:
    waits: list[tuple[int, bool]] = []
    spent: list[tuple[int, bool]] = []
    running: list[tuple[int, int]] = []
    blocks = True
    for cycles, event, words in records(path):
        if event in (WAKE, BLOCK) and words[0] == 0:
            blocks = event == BLOCK
            if event == WAKE and running and running[-1][1] != 0:
                waits.append((cycles, True))
        elif event == SWITCH:
            before, _, after, _ = words
            running.append((cycles, after))
            if 0 in (before, after):
                waits.append((cycles, before == 0 and not blocks))
        elif event in (REPLENISH, EXHAUST) and words[0] == 0:
            spent.append((cycles, event == EXHAUST))
    lasts = [(begin, end, who) for (begin, who), (end, _) in pairwise(running)]
    return OfXen(
        {
            domid: [(begin, end) for begin, end, who in lasts if who == domid]
            for domid in DOMIDS.values()
        },
        *(
            [(begin, end) for (begin, is_so), (end, _) in pairwise(told) if is_so]
            for told in (waits, spent)
        ),
    )


LINE = re.compile(r" *.+-(\d+) +\[000\] (\S+) +(\d+): (\w+): (.*)")
SWITCHED = re.compile(r".* prev_pid=(\d+) .* prev_state=(\S+) ==> next_comm=(.*) next_pid=.*")
INTERRUPTS = set("hHsZz")
"""Among the flags of an event: it is of an interrupt, and not of the thread."""
NETBACK = "vif1.0-q0-guest"


@dataclass(frozen=True)
class Packet:
    """A packet for the guest, in cycles, as the kernel's text has it."""

    came: int
    told: int
    """When netback told the guest of it."""


@dataclass(frozen=True)
class OfKernel:
    """What the kernel's text says, in cycles."""

    every: list[int]
    """The times of all events."""
    packets: list[Packet]
    load: Times
    """When the load had dom0's VCPU, by the kernel, and netback's thread could run."""


def of_kernel(text: str) -> OfKernel:
    found: list[Packet] = []
    every: list[int] = []
    came: dict[str, int] = {}
    load: Times = []
    netback, told, runs, is_ready, before = "", 0, "", False, 0
    for line in text.splitlines():
        if (match := LINE.fullmatch(line)) is None:
            assert line.startswith("#"), line
            continue
        thread, flags, time, event, said = match.groups()
        cycles = int(time)
        every.append(cycles)
        if runs == "load" and is_ready:
            load.append((before, cycles))
        before = cycles
        values = dict(word.split("=", 1) for word in said.split() if "=" in word)
        is_netback = thread == netback and not INTERRUPTS & set(flags)
        if event == "sched_wakeup" and values["comm"] == NETBACK:
            netback, is_ready = values["pid"], True
        elif event == "sched_switch":
            switched = SWITCHED.fullmatch(said)
            assert switched is not None, line
            left, state, runs = switched.groups()
            is_ready = is_ready and (left != netback or state.startswith("R"))
        elif event == "net_dev_queue" and values["dev"] == "vif1.0":
            came[values["skbaddr"]] = cycles
        elif event == "notified" and is_netback:
            told = cycles
        elif event == "kfree_skb" and is_netback and values["skbaddr"] in came:
            found.append(Packet(came.pop(values["skbaddr"]), told))
    return OfKernel(every, found, load)


def rows(path: Path) -> list[tuple[int, int]]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return [(int(before), int(after)) for before, after in pairs]


def delays_ns(late: dict[str, Any], at: str, kind: str | None = None, who: str = "") -> int:
    """How long it was delayed at a VCPU, by one kind of cause and whose name begins so."""
    return sum(
        cause["delay_ns"]
        for cause in late["causes"]
        if cause["at"] == at
        and kind in (None, cause["cause"])
        and (cause["who"] or "").startswith(who)
    )


def test_packets_of_netback_are_late_in_two_layers(
    laxity: Laxity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, seen = recorded(tmp_path), tmp_path / "seen"
    stand_in(results, tmp_path / "bin", monkeypatch)
    # Neither an instance nor a probe of ours.
    assert (results / "left").read_text() == "text\np:text/notified notify_remote_via_irq\n"
    laxity("observe", "--at", "local", "--packet-delay", f"{DELAY_NS} ns", "-o", seen)
    answer = json.loads(laxity("why", seen, "--json").stdout)
    for each in answer["late"]:
        assert sum(cause["ns"] for cause in each["causes"]) == each["late_ns"]
    every_late = [each for each in answer["late"] if each["packet"] == "late"]
    assert {each["what"].split("/")[0] for each in every_late} == {TARGET}

    buffers = results / "trace.bin"
    xen, kernel = of_xen(buffers), of_kernel((results / "trace.txt").read_text())
    start, _, stop, _ = header = struct.unpack_from("<4Q", buffers.read_bytes(), 16)
    ns_per_cycle: float = (header[3] - header[1]) / (stop - start)

    # The clock of dom0's kernel is Xen's: it does nothing while its VCPU has no CPU.
    last = max(end for times in xen.runs.values() for _, end in times)
    first = min(begin for times in xen.runs.values() for begin, _ in times)
    known = [cycles for cycles in kernel.every if first < cycles < last]
    assert len(known) > 500
    begins = [begin for begin, _ in xen.runs[0]]
    for cycles in known:
        begin, end = xen.runs[0][bisect_right(begins, cycles) - 1]
        assert begin <= cycles <= end

    by_load = both(kernel.load, xen.runs[0])
    by_busy = both(xen.waits, xen.runs[DOMIDS[BUSY]])
    spent = both(xen.waits, xen.spent)
    by_arrival = {each["arrival_ns"]: each for each in every_late}
    most_ns = [0.0, 0.0, 0.0]

    def ns(cycles: int) -> float:
        return cycles * ns_per_cycle

    for packet in kernel.packets:
        came, told = packet.came, packet.told
        had = next((max(begin, told) for begin, end in xen.runs[1] if end > told), None)
        if not start < came < last or had is None:
            continue
        one = next((at for at in by_arrival if abs(at - ns(came - start)) <= SLACK_NS), None)
        if one is None:
            assert ns(had - came) <= DELAY_NS + SLACK_NS
            continue
        late = by_arrival.pop(one)
        assert abs(late["completion_ns"] - one - ns(had - came)) <= SLACK_NS
        load_ns = ns(within(by_load, came, told))
        at_netback = delays_ns(late, f"({NETBACK})", "cpu", "(load, real-time)")
        assert abs(at_netback - load_ns) <= SLACK_NS
        below_ns = ns(within(xen.waits, came, told))
        assert abs(delays_ns(late, "Domain-0") - below_ns) <= SLACK_NS
        spent_ns = ns(within(spent, came, told))
        # It may be told which of dom0's tasks used it.
        assert abs(delays_ns(late, "Domain-0", "budget", "Domain-0") - spent_ns) <= SLACK_NS
        busy_ns = ns(within(by_busy, came, told) - within(both(by_busy, spent), came, told))
        assert abs(delays_ns(late, "Domain-0", "cpu", BUSY) - busy_ns) <= SLACK_NS
        most_ns = [max(pair) for pair in zip(most_ns, (load_ns, spent_ns, busy_ns), strict=True)]
    assert not by_arrival, "a packet is told that nobody sent"
    # Each cause is there, be it of other packets than the others: where their times fall together
    # moves with every instruction of the hypervisor.
    assert min(most_ns) > DELAY_NS / 10, most_ns
    turns = [turn for turn in rows(results / "load") if turn[1] < last]
    _as_the_clock_says(every_late, rows(results / "sender"), turns, start, ns)


def _as_the_clock_says(
    late: list[dict[str, Any]],
    sent: list[tuple[int, int]],
    turns: list[tuple[int, int]],
    start: int,
    ns: Callable[[int], float],
) -> None:
    """What was sent while the load worked came no sooner than when it was done."""
    checked = 0
    for began, ended in turns:
        for before, after in sent:
            if began < before and ns(after) + 2 * DELAY_NS < ns(ended):
                (one,) = (
                    each
                    for each in late
                    if ns(before - start) <= each["arrival_ns"] <= ns(after - start)
                )
                assert one["completion_ns"] > ns(ended - start)
                checked += 1
    assert checked > 3
