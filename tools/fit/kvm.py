"""Fits what is known of the emulated KVM host: `laxity.substrates.kvm.known`.

    .venv/bin/python tools/fit/kvm.py

Random hosts run once on the emulated machine; none of them is one of the papers'. What a job and
interrupts take is measured in the traces: how much longer than its job a VCPU has the CPU that does
one job and is not interrupted by another VCPU, over the length of the job and the ticks of the
policy meanwhile (least squares). A switch is one part of what such a job takes. How large a part,
and how late timers are, is fitted: the hosts run in the simulator with one value after the other,
and the value with which the CPU runs the same VCPU for most of the time is the best one. The
numbers go by hand into `known`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import agreement
import numpy as np
import slices
from laxity import tracefile
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
SWITCH_SEEDS, SWITCH_PERCENT = (3031, 3032, 3033, 3034), (70, 95)
TIMERS, TIMERS_SEEDS, TIMERS_PERCENT = "sporadic", (3011, 3012, 3013, 3014), (90, 105)

SWITCH_STEP_NS, SWITCH_NS_MAX = 2_500, 40_000
LATENCY_STEP_NS, LATENCY_NS_MAX = 1_000, 12_000

NS_A_MS = 1_000_000


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


def excess(host: Resolved, run: Run) -> list[tuple[int, int, int]]:
    """Returns what VCPUs took beside jobs: a row for each time that one did a job and nothing else.

    A row is for a time from wake to block without a break: the time beyond the job, and the job,
    both in ns, and the number of the policy's ticks meanwhile.
    """
    costs = [[task["cost_ns"] for task in domain["tasks"]] for domain in host.host["domains"]]
    found: list[tuple[int, int, int]] = []
    woke: set[int] = set()
    since_ns: dict[int, int] = {}
    ticks, jobs = 0, []
    for record in tracefile.records(run.trace):
        kind, domain = tracefile.KINDS[record["kind"] - 1], int(record["domain"])
        time_ns, argument = int(record["time_ns"]), int(record["argument"])
        if kind == "wake":
            woke.add(domain)
        elif kind == "run":
            since_ns[domain], ticks, jobs = time_ns, 0, []
        elif kind == "budget" and domain in since_ns:
            ticks += 1
        elif kind == "complete":
            jobs.append(costs[domain][argument >> tracefile.JOB_NUMBER_BITS])
        elif kind == "block" and domain in since_ns:
            if domain in woke and len(jobs) == 1:
                found.append((time_ns - since_ns[domain] - jobs[0], jobs[0], ticks))
            woke.discard(domain)
        elif kind == "stop" and domain in since_ns:
            del since_ns[domain]
            woke.discard(domain)
    return found


def print_interrupts(hosts: Mapping[str, Resolved], runs: Mapping[str, Run]) -> None:
    """Prints what interrupts take of a VCPU."""
    rows = np.array([row for name, host in hosts.items() for row in excess(host, runs[name])])
    of = np.column_stack([np.ones(len(rows)), rows[:, 1], rows[:, 2]])
    (once_ns, ratio, tick_ns), *_ = np.linalg.lstsq(of, rows[:, 0])
    left_ns = np.abs(rows[:, 0] - of @ (once_ns, ratio, tick_ns))
    print(f"{len(rows)} jobs: each takes {once_ns:.0f} ns, a tick of the policy {tick_ns:.0f} ns,")
    print(f"an interrupt of the host {ratio * known.INTERRUPT_PERIOD_NS:.0f} ns;", end=" ")
    print(f"half of the jobs are within {np.median(left_ns):.0f} ns")


def main() -> None:
    """Prints what is measured, and the agreement at each value that is fitted."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    model = OUTPUT / "sim.laxtrace"
    hosts = drawn(SHARES, SHARES_SEEDS, SHARES_PERCENT)
    print_interrupts(hosts, booted(hosts, OUTPUT / SHARES))

    def switches(_: str, host: Resolved, switch_ns: int) -> list[str]:
        less_ns = switch_ns - known.SWITCH_NS
        jobs = [
            f"domain.{domain['name']}.tasks.{task['name']}.cost"
            f"={known.job_ns(host, task['cost_ns']) - less_ns} ns"
            for domain in host.host["domains"]
            for task in domain["tasks"]
        ]
        return [*known.settled(host), *known.costs(host, switch_ns), *jobs]

    # Slices of 1 ms have many switches that are no job's, and end late.
    hosts = drawn(SHARES, SWITCH_SEEDS, SWITCH_PERCENT)
    hosts = {name: host.changed(["host.time-slice=1 ms"]) for name, host in hosts.items()}
    runs = booted(hosts, OUTPUT / "slices")
    slices.print_latency(hosts, runs)
    values = range(SWITCH_STEP_NS, SWITCH_NS_MAX + 1, SWITCH_STEP_NS)
    agreement.print_best(hosts, runs, values, switches, model)

    def timers(_: str, host: Resolved, latency_ns: int) -> list[str]:
        return [*known.settled(host), f"host.timer-latency={latency_ns} ns"]

    hosts = drawn(TIMERS, TIMERS_SEEDS, TIMERS_PERCENT)
    values = range(0, LATENCY_NS_MAX + 1, LATENCY_STEP_NS)
    agreement.print_best(hosts, booted(hosts, OUTPUT / TIMERS), values, timers, model)


if __name__ == "__main__":
    main()
