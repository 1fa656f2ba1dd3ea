"""Fits what a CPU of the emulated KVM host takes to go over to another VCPU.

    .venv/bin/python tools/fit/switches.py

Random hosts run once on the emulated machine, and in the simulator with one cost after the other.
The cost with which the CPU runs the same VCPU for most of the time goes by hand into
`laxity.substrates.kvm.known.SWITCH_NS`.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from pathlib import Path

from laxity import _core
from laxity.substrates import of
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
    trace = OUTPUT / "sim.laxtrace"
    found: dict[int, float] = {}
    for switch_ns in range(0, SWITCH_NS_MAX + 1, STEP_NS):
        same = []
        for name, host in hosts.items():
            trace.unlink(missing_ok=True)
            with_costs = host.changed(known.costs(host, switch_ns))
            model = of("sim").run(with_costs, trace=trace, say=lambda _: None)
            agreement = json.loads(_core.agreement(str(model.trace), str(runs[name].trace)))
            same.append(100 * agreement["same_ratio"])
        found[switch_ns] = statistics.mean(same)
        each = ", ".join(f"{percent:.1f}" for percent in same)
        print(f"{switch_ns:6} ns {found[switch_ns]:7.2f} % ({each})")
    print(f"best {max(found, key=lambda switch_ns: found[switch_ns])} ns")


if __name__ == "__main__":
    main()
