"""Fits how late the hypervisor of the Xen lab serves timers of the policy, and ends time slices.

    .venv/bin/python tools/fit/timers.py

Under the sporadic server each replenishment comes a period after the use that it gives back, so
that an overloaded guest's turns are later and later by what its timers are late. Random overloaded
hosts run once on the emulated machine, and in the simulator with one latency after the other, with
all else that is known. The latency with which the CPU runs the same VCPU for most of the time goes
by hand into `laxity.substrates.xen.known.TIMER_LATENCY_NS`.

Time slices of overloaded hosts follow one another without a break. How late they end in the median
goes into `SLICE_LATENCY_NS`. None of the hosts is one of `make fidelity-hosts`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import agreement
import slices
from laxity.substrates.xen import Xen, boot, collect, known

sys.path.insert(0, str(Path(__file__).parents[1] / "pages"))
import fidelity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.resolved import Resolved
    from laxity.results.run import Run

POLICY = "sporadic"
SEEDS = (1001, 1002, 1003, 1004)
SLICES, SLICES_SEEDS = "credit", (1005, 1006, 1007, 1008)
LOAD_PERCENT = (96, 105)
STEP_NS, LATENCY_NS_MAX = 250, 8_000
OUTPUT = fidelity.ROOT / "out" / "timers"


def overrides(name: str, host: Resolved, latency_ns: int) -> list[str]:
    """All that is known of the lab, with timers that are so late."""
    settled = known.settled(host, OUTPUT / f"{name}{collect.SUMMARY}")
    return [*settled, f"host.timer-latency={latency_ns} ns"]


def booted(
    policy: str, seeds: tuple[int, ...], into: Path
) -> tuple[dict[str, Resolved], Mapping[str, Run]]:
    """Random hosts, and their runs in one boot."""
    hosts = fidelity.drawn(policy, seeds, LOAD_PERCENT, apart=True)
    return hosts, boot.boot(
        hosts, Xen().executor(), into, lambda line: print(line, file=sys.stderr)
    )


def main() -> None:
    """Prints how late slices end, the agreement at each latency, and the best one."""
    slices.print_latency(*booted(SLICES, SLICES_SEEDS, OUTPUT / "slices"))
    hosts, runs = booted(POLICY, SEEDS, OUTPUT)
    agreement.print_best(
        hosts,
        runs,
        range(0, LATENCY_NS_MAX + 1, STEP_NS),
        overrides,
        OUTPUT / "sim.laxtrace",
    )


if __name__ == "__main__":
    main()
