"""What observing a Xen host costs: the work that a VCPU gets done with and without Xen's trace.

    python -m bench.observe_overhead_xen

In the emulated machine of the lab, where every instruction takes 2 ns, a guest sleeps for 200 us
and works for 20 us, again and again, beside a program of dom0 that counts what it gets done. It
counts for as long without the recording of `laxity observe`, with it, and without it once more.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from laxity.lab import cpio, image, pv_guest
from laxity.lab import packages as debian
from laxity.lab.xen_machine import XenMachine

GUEST = "laxity-guest"
ROOT = "guest.cpio"
COUNT_NS = 1_000_000_000
INSTRUCTION_NS = 2
"""On the emulated machine."""
LIMIT = 0.02
"""The part of a CPU that observing may take."""
SCHEDULERS = {"deferrable": "sched=laxity laxity=deferrable", "credit2": "sched=credit2"}
"""Xen's arguments, by the policy: one of Laxity's, and Xen's own default."""
SWITCH = 0x2800A
"""Xen's record of a context switch."""

PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
#include "work.h"

static void work_us(int us)
{
    iterate((uint64_t)us * 1000 / INSTRUCTION_NS / ITERATION_INSTRUCTIONS);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int main(void)
{
    while (getpid() == 1) {
        struct timespec pause = {.tv_nsec = 200000};
        nanosleep(&pause, NULL);
        work_us(20);
    }
    uint64_t began = __rdtsc();
    int64_t until_ns = now_ns() + COUNT_NS, done = 0;
    for (; now_ns() < until_ns; done++)
        work_us(1);
    uint64_t ended = __rdtsc();
    printf("%ld %lu %lu\\n", (long)done, began, ended);
}
"""

PLAN = f"""
create {GUEST}
find_domain {GUEST}
xl unpause $number
# It has booted by then.
sleep 4
case $(xl info | sed -n 's/^xen_scheduler *: //p') in laxity*)
    parameters {GUEST} budget=8000000 period=10000000 priority=1
    parameters Domain-0 budget=9000000 period=10000000 priority=2 extratime=1 ;;
esac
laxity-count >"$RESULTS/before"
laxity-trace record --events sched,laxity --for {2 * COUNT_NS} "$RESULTS/trace.bin" \\
    >"$RESULTS/trace.log" 2>&1 &
tracer=$!
until grep -qs recording "$RESULTS/trace.log"; do sleep 0.05; done
laxity-count >"$RESULTS/during"
wait $tracer || fail "laxity-trace: $(cat "$RESULTS/trace.log")"
laxity-count >"$RESULTS/after"
"""


def recorded(place: Path, xen_arguments: str) -> Path:
    """The directory of what dom0 left."""
    source, program = place / "count.c", place / "count"
    source.write_text(PROGRAM)
    shared = image.XEN.parent / "guest"
    facts = (f"-DCOUNT_NS={COUNT_NS}", f"-DINSTRUCTION_NS={INSTRUCTION_NS}")
    flags = ("-O2", "-static", "-D_GNU_SOURCE", "-I", shared, *facts)
    debian.run("gcc", *flags, "-o", program, source)
    plan = place / "plan"
    plan.mkdir()
    (plan / "plan.sh").write_text(PLAN)
    (plan / f"{GUEST}.cfg").write_text(pv_guest.configuration(GUEST, ROOT))
    guest = place / ROOT
    guest.write_bytes(cpio.archive([cpio.file("init", program, executable=True)]))
    ours = [
        cpio.file("laxity/laxity-count", program, executable=True),
        cpio.file(f"laxity/{ROOT}", guest),
    ]
    machine = XenMachine(
        image.hypervisor("release", say),
        image.build(say=say),
        plan,
        xen_arguments=f"{xen_arguments} dom0_max_vcpus=1",
        beside=cpio.archive(ours),
    )
    return machine.run(place / "out")


def say(line: str) -> None:
    """Says what takes its time."""
    print(line, file=sys.stderr)


@dataclass(frozen=True)
class Counted:
    """What dom0's program got done, and when, in cycles."""

    loops: int
    began: int
    ended: int

    @classmethod
    def load(cls, path: Path) -> Counted:
        """Reads what the program printed."""
        return cls(*map(int, path.read_text().split()))


def records(path: Path, counted: Counted) -> tuple[int, int]:
    """All records and the context switches of that time, by a file of laxity-trace of one CPU."""
    content = path.read_bytes()
    (size,) = struct.unpack_from("<Q", content, 56)
    count, switches, at = 0, 0, 64
    while at < 64 + size:
        (head,) = struct.unpack_from("<I", content, at)
        has_time, words = head >> 31, head >> 28 & 7
        if has_time:
            (cycles,) = struct.unpack_from("<Q", content, at + 4)
            is_then = counted.began <= cycles <= counted.ended
            count += is_then
            switches += is_then and head & 0xFFFFFFF == SWITCH
        at += 4 + 8 * has_time + 4 * words
    return count, switches


def main() -> None:
    """Prints what recording takes, by policy."""
    for policy, arguments in SCHEDULERS.items():
        with tempfile.TemporaryDirectory(prefix="laxity-observe.") as place:
            results = recorded(Path(place), arguments)
            before, during, after = (
                Counted.load(results / name) for name in ("before", "during", "after")
            )
            count, switches = records(results / "trace.bin", during)
        share = 1 - 2 * during.loops / (before.loops + after.loops)
        ns = share * COUNT_NS / switches
        print(
            f"{policy}: {share:.2%} of the CPU at {switches * 10**9 // COUNT_NS:,} context switches"
            f" a second; each takes {ns:,.0f} ns, {ns / INSTRUCTION_NS:,.0f} instructions and"
            f" {count / switches:.1f} records, so that {LIMIT:.0%} are taken at"
            f" {LIMIT * 1e9 / ns:,.0f} a second; before and after differ by"
            f" {abs(after.loops / before.loops - 1):.2%}"
        )


if __name__ == "__main__":
    main()
