"""Fits what is known of the emulated KVM host: `laxity.substrates.kvm.known`.

    .venv/bin/python tools/fit/kvm.py

Random hosts run once on the emulated machine; none of them is one of the papers'. A VCPU's busy
period lasts from a wake until the VCPU blocks. The CPU time in it that is not the cost of jobs is
divided among

- switches: the VCPU gets the CPU;
- jobs: a timer's interrupt leaves the guest and comes back, and the guest sets the next timer;
- interrupts of the host's kernel, as many as come during the work of the jobs;
- ticks of the policy that come while the VCPU has the CPU,

by the least absolute deviations over all busy periods. Some hosts have slices of 1 ms, so that
their VCPUs are switched to for other reasons than jobs. How late slices end is measured there. How
late timers are is fitted: the hosts run in the simulator with one value after the other, and the
value with which the CPU runs the same VCPU for most of the time is the best one. The numbers go by
hand into `known`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import agreement
import guests
import slices
from laxity import tracefile
from laxity.policies import TABLE
from laxity.substrates.kvm import known
from laxity.substrates.kvm.boot import boot_all

sys.path.insert(0, str(Path(__file__).parents[1] / "pages"))
import fidelity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.resolved import Resolved
    from laxity.results.run import Run

OUTPUT = fidelity.ROOT / "out" / "fit-kvm"

SHARES, SHARES_SEEDS, SHARES_PERCENT = "credit", (3021, 3022, 3023, 3024), (70, 100)
SLICES_SEEDS, SLICES_PERCENT = (3031, 3032, 3033, 3034), (70, 95)
TIMERS, TIMERS_SEEDS, TIMERS_PERCENT = "sporadic", (3011, 3012, 3013, 3014), (90, 105)

COSTS = ("SWITCH_NS", "JOB_NS", "INTERRUPT_NS", "TICK_NS")

LATENCY_STEP_NS, LATENCY_NS_MAX = 500, 10_000


def drawn(policy: str, seeds: tuple[int, ...], percent: tuple[int, int]) -> dict[str, Resolved]:
    """Random hosts, whose budgets bind."""
    apart = fidelity.drawn(policy, seeds, percent, apart=True)
    return {
        name: host.changed(
            [f"domain.{domain['name']}.extratime=false" for domain in host.host["domains"]]
            if policy != SHARES
            else []
        )
        for name, host in apart.items()
    }


def booted(hosts: Mapping[str, Resolved], into: Path) -> dict[str, Run]:
    """The runs of hosts, in one boot."""
    return boot_all(hosts, "repeatable", into, lambda line: print(line, file=sys.stderr))


def busy_periods(host: Resolved, run: Run) -> list[list[float]]:
    """For each busy period of a VCPU: how often each of COSTS, and what they took, ns."""
    has_ticks = TABLE[host.host["policy"]].uses("tick")
    costs = [[task["cost_ns"] for task in domain["tasks"]] for domain in host.host["domains"]]
    found: list[list[float]] = []
    periods: dict[int, dict[str, float]] = {}
    since_ns: dict[int, int] = {}
    blocked: set[int] = set()
    for record in tracefile.records(run.trace):
        kind, domain = tracefile.KINDS[record["kind"] - 1], int(record["domain"])
        time_ns, argument = int(record["time_ns"]), int(record["argument"])
        if kind == "wake":
            periods[domain] = dict.fromkeys((*COSTS, "beside"), 0.0)
            blocked.discard(domain)
            continue
        if (period := periods.get(domain)) is None:
            continue
        if kind == "run":
            since_ns[domain] = time_ns
            period["SWITCH_NS"] += 1
        elif kind == "budget" and domain in since_ns and has_ticks:
            period["TICK_NS"] += 1
        elif kind == "complete":
            cost_ns = costs[domain][argument >> tracefile.JOB_NUMBER_BITS]
            period["JOB_NS"] += 1
            period["INTERRUPT_NS"] += cost_ns / known.INTERRUPT_PERIOD_NS
            period["beside"] -= cost_ns
        elif kind == "block":
            blocked.add(domain)
        elif kind == "stop" and domain in since_ns:
            period["beside"] += time_ns - since_ns.pop(domain)
            if domain in blocked:
                found.append(list(periods.pop(domain).values()))
    return found


def main() -> None:
    """Prints what is measured, and the agreement at each value that is fitted."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    shares = drawn(SHARES, SHARES_SEEDS, SHARES_PERCENT)
    sliced = {
        name: host.changed(["host.time-slice=1 ms"])
        for name, host in drawn(SHARES, SLICES_SEEDS, SLICES_PERCENT).items()
    }
    timed = drawn(TIMERS, TIMERS_SEEDS, TIMERS_PERCENT)
    kinds = {"shares": shares, "slices": sliced, "timers": timed}
    runs = {kind: booted(hosts, OUTPUT / kind) for kind, hosts in kinds.items()}
    periods = [
        period
        for kind, hosts in kinds.items()
        for name, host in hosts.items()
        for period in busy_periods(host, runs[kind][name])
    ]
    slices.print_latency(sliced, runs["slices"])
    print(f"{len(periods)} busy periods")
    for name, cost_ns in zip(COSTS, guests.fitted_ns(periods), strict=True):
        print(f"{name} {cost_ns:.0f}")

    def timers(_: str, host: Resolved, latency_ns: int) -> list[str]:
        return [*known.settled(host), f"host.timer-latency={latency_ns} ns"]

    values = range(0, LATENCY_NS_MAX + 1, LATENCY_STEP_NS)
    agreement.print_best(timed, runs["timers"], values, timers, OUTPUT / "sim.laxtrace")


if __name__ == "__main__":
    main()
