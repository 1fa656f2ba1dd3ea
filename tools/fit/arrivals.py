"""Measures what a guest of the Xen lab takes each time its VCPU gets a CPU.

    .venv/bin/python tools/fit/arrivals.py

That is the work of the guest's kernel and of the hypervisor beside the switch itself: events that
waited are delivered, a timer is set anew. Random hosts run on the emulated machine and in the
simulator, with all that is known but this. What domains ran longer on Xen, divided by how often
their VCPUs got the CPU, is printed for each policy; the median of all goes by hand into
`laxity.substrates.xen.known.ARRIVAL_NS`. Loads are low, so that no job is left at the end; none of
the hosts is one of `make fidelity-hosts`.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import numpy as np
from laxity import _core, tracefile
from laxity.substrates import of
from laxity.substrates.xen import Xen, boot, collect, known

sys.path.insert(0, str(Path(__file__).parents[1] / "pages"))
import fidelity

POLICIES = ("deferrable", "sporadic", "sedf", "credit", "s-base", "credit2", "rtds")
SEEDS = (1001, 1002)
LOAD_PERCENT = (30, 50)
OUTPUT = fidelity.ROOT / "out" / "arrivals"


def arrivals(trace: Path) -> int:
    """How often a VCPU got a CPU on which another one, or none, was before."""
    records = tracefile.records(trace)
    kinds = [tracefile.number_of(kind) for kind in ("run", "block")]
    records = records[np.isin(records["kind"], kinds)]
    runs = np.flatnonzero(records["kind"] == kinds[0])
    domains = records["domain"]
    # It goes on if it had the CPU last, and has not blocked since.
    return sum(
        domains[at] != domains[at - 1] or records["kind"][at - 1] == kinds[1] for at in runs if at
    )


def measured_ns(policy: str) -> float:
    """What an arrival took under a policy."""
    hosts = fidelity.drawn(policy, SEEDS, LOAD_PERCENT)
    directory = OUTPUT / policy
    runs = boot.boot(hosts, Xen().executor(), directory, lambda line: print(line, file=sys.stderr))
    longer_ns = count = 0
    for name, host in hosts.items():
        settled = known.settled(host, directory / f"{name}{collect.SUMMARY}", arrival_ns=0)
        model = of("sim").run(
            host.changed(settled),
            trace=directory / f"{name}.sim.laxtrace",
            ties=runs[name].trace,
            say=lambda _: None,
        )
        of_host = json.loads(_core.agreement(str(model.trace), str(runs[name].trace)))
        longer_ns += sum(each["cpu_ns_b"] - each["cpu_ns_a"] for each in of_host["domains"])
        count += arrivals(directory / f"{name}.laxtrace")
    return longer_ns / count


def main() -> None:
    """Prints what was found."""
    found = {policy: measured_ns(policy) for policy in POLICIES}
    for policy, ns in found.items():
        print(f"{policy:12}{ns:10.0f} ns")
    print(f"{'median':12}{statistics.median(found.values()):10.0f} ns")


if __name__ == "__main__":
    main()
