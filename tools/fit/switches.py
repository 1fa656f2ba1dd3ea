"""Fits what a CPU of the emulated KVM host takes to go over to another VCPU.

    .venv/bin/python tools/fit/switches.py

Random hosts run once on the emulated machine, and in the simulator with one cost after the other.
The cost with which the CPU runs the same VCPU for most of the time goes by hand into
`laxity.substrates.kvm.known.SWITCH_NS`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import agreement
from laxity.substrates.kvm import known
from laxity.substrates.kvm.boot import boot_all

sys.path.insert(0, str(Path(__file__).parents[1] / "pages"))
import fidelity

POLICY = "deferrable"
SEEDS = (2001, 2002, 2003, 2004)
LOAD_PERCENT = (70, 95)
STEP_NS, SWITCH_NS_MAX = 2_500, 80_000
OUTPUT = fidelity.ROOT / "out" / "switches"


def main() -> None:
    """Prints the agreement at each cost, and the best one."""
    hosts = fidelity.drawn(POLICY, SEEDS, LOAD_PERCENT, apart=True)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    runs = boot_all(hosts, "repeatable", OUTPUT, lambda line: print(line, file=sys.stderr))
    agreement.print_best(
        hosts,
        runs,
        range(0, SWITCH_NS_MAX + 1, STEP_NS),
        lambda _, host, switch_ns: known.costs(host, switch_ns),
        OUTPUT / "sim.laxtrace",
    )


if __name__ == "__main__":
    main()
