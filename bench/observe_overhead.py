"""What observing costs: CPU time of a context switch with and without laxity observe's tracing.

    sudo python bench/observe_overhead.py

Two processes on one CPU pass a byte to and fro, so that each pass is two context switches. CPU time
is counted, and not time, so that other load hardly matters. tracefs must be mounted.
"""

from __future__ import annotations

import os
import resource
import statistics

from laxity import tracefs

PASSES = 50_000
ROUNDS = 7
BUSY_SWITCHES_PER_S = 10_000
"""Context switches a second of a busy CPU, for the share of it that observing takes."""


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


def main() -> None:
    """Prints the medians of several rounds, and what tracing adds."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    plain, traced = [], []
    for _ in range(ROUNDS):
        plain.append(switch_ns())
        with tracefs.traced(8 * PASSES * 64 // 1024):
            traced.append(switch_ns())
    without, with_it = statistics.median(plain), statistics.median(traced)
    added = with_it - without
    print(f"a context switch takes {without:.0f} ns of CPU time, and {with_it:.0f} ns observed")
    share = added * BUSY_SWITCHES_PER_S / 1e9
    print(f"at {BUSY_SWITCHES_PER_S:,} switches a second that is {share:.2%} of a CPU")


if __name__ == "__main__":
    main()
