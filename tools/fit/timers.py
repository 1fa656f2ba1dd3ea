"""Fits how late the hypervisor of the Xen lab serves timers of the policy.

    .venv/bin/python tools/fit/timers.py

Under the sporadic server each replenishment comes a period after the use that it gives back, so
that an overloaded guest's turns are later and later by what its timers are late. Random overloaded
hosts run once on the emulated machine, and in the simulator with one latency after the other, with
all else that is known. The latency with which the CPU runs the same VCPU for most of the time goes
by hand into `laxity.substrates.xen.known.TIMER_LATENCY_NS`. None of the hosts is one of
`make fidelity-hosts`.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from laxity import _core
from laxity.substrates import of
from laxity.substrates.xen import Xen, boot, collect, known

sys.path.insert(0, str(Path(__file__).parents[1] / "pages"))
import fidelity

POLICY = "sporadic"
SEEDS = (1001, 1002, 1003, 1004)
LOAD_PERCENT = (96, 105)
STEP_NS, LATENCY_NS_MAX = 250, 8_000
OUTPUT = fidelity.ROOT / "out" / "timers"


def main() -> None:
    """Prints the agreement at each latency, and the best one."""
    hosts = fidelity.drawn(POLICY, SEEDS, LOAD_PERCENT, apart=True)
    runs = boot.boot(hosts, Xen().executor(), OUTPUT, lambda line: print(line, file=sys.stderr))
    trace = OUTPUT / "sim.laxtrace"
    found: dict[int, float] = {}
    for latency_ns in range(0, LATENCY_NS_MAX + 1, STEP_NS):
        same = []
        for name, host in hosts.items():
            settled = known.settled(host, OUTPUT / f"{name}{collect.SUMMARY}")
            settled.append(f"host.timer-latency={latency_ns} ns")
            trace.unlink(missing_ok=True)
            model = of("sim").run(host.changed(settled), trace=trace, say=lambda _: None)
            agreement = json.loads(_core.agreement(str(model.trace), str(runs[name].trace)))
            same.append(100 * agreement["same_ratio"])
        found[latency_ns] = statistics.mean(same)
        each = ", ".join(f"{percent:.1f}" for percent in same)
        print(f"{latency_ns:6} ns {found[latency_ns]:7.2f} % ({each})")
    print(f"best {max(found, key=lambda latency_ns: found[latency_ns])} ns")


if __name__ == "__main__":
    main()
