"""Measures what the kernel of a guest of the Xen lab takes beside the work of jobs.

    .venv/bin/python tools/fit/guests.py

Random hosts run on the emulated machine. A VCPU's busy period lasts from a wake until the VCPU
blocks. The CPU time in it that is not the cost of jobs is divided among

- arrivals: the VCPU gets the CPU;
- interrupts: one for each tick and each instant at which jobs are released while the VCPU runs, and
  one for each arrival before which any of them came;
- wakes: the thread of a task is woken for a job, and goes to sleep in the end. A thread that is
  late goes on with its next job,

by the least absolute deviations over all busy periods: the kernel's other work disturbs some. An
arrival includes a decision and a switch of the hypervisor, of which the profile of the lab knows
the cost. What is printed in the end goes by hand into `laxity.substrates.xen.known`. None of the
hosts is one of `make fidelity-hosts`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from laxity import tracefile
from laxity.substrates.xen import Xen, boot, collect, known

sys.path.insert(0, str(Path(__file__).parents[1] / "pages"))
import fidelity

if TYPE_CHECKING:
    from laxity.resolved_schema import Domain

    Records = np.ndarray[tuple[int], np.dtype[np.void]]

POLICIES = ("deferrable", "sporadic", "sedf", "credit", "s-base", "credit2", "rtds")
SEEDS = (1001, 1002)
LOAD_PERCENT = (30, 90)
OUTPUT = fidelity.ROOT / "out" / "guests"

COSTS = ("arrival", "interrupt", "wake")
KINDS = {
    kind: tracefile.number_of(kind)
    for kind in ("release", "run", "stop", "block", "wake", "complete")
}
LATE_NS = 20_000
"""A VCPU wakes so soon after what falls due while it is blocked."""
ROUNDS = 40
LEAST_NS = 200
"""Deviations below it count alike."""


@dataclass
class BusyPeriod:
    """What a VCPU did since it woke."""

    off_ns: int
    """Since when it has not run, or a little before it woke."""
    run_ns: int | None = None
    cpu_ns: int = 0
    cost_ns: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COSTS, 0))


class Jobs:
    """The jobs of a domain: of each task those that are not complete, each with whether its task
    waited for it.
    """

    def __init__(self, tasks: int) -> None:
        self.waiting: list[list[bool]] = [[] for _ in range(tasks)]
        self.came_while_off = False
        """Whether awaited jobs were released since the VCPU last ran."""
        self.came_ns = -1
        """When awaited jobs were last released while it ran."""

    def release(self, task: int, time_ns: int, period: BusyPeriod | None) -> None:
        """A job of the task is released."""
        is_awaited = not self.waiting[task]
        self.waiting[task].append(is_awaited)
        if not is_awaited:
            return
        if period is None or period.run_ns is None:
            self.came_while_off = True
        elif time_ns != self.came_ns:
            period.counts["interrupt"] += 1
            self.came_ns = time_ns


def busy_periods(
    records: Records, domain: Domain, number: int, tick: dict[str, int], gap_ns: float
) -> list[list[float]]:
    """For each busy period of a domain's VCPU: how often each of COSTS, and what they took, ns."""

    def ticks(from_ns: int, to_ns: int) -> int:
        period_ns, offset_ns = tick["period_ns"], tick["offset_ns"]
        return (to_ns - offset_ns) // period_ns - (from_ns - offset_ns) // period_ns

    found: list[list[float]] = []
    period = None
    jobs = Jobs(len(domain["tasks"]))
    for record in records[records["domain"] == number]:
        kind, time_ns = int(record["kind"]), int(record["time_ns"])
        task = int(record["argument"]) >> tracefile.JOB_NUMBER_BITS
        if kind == KINDS["release"]:
            jobs.release(task, time_ns, period)
            continue
        woken = kind == KINDS["complete"] and jobs.waiting[task].pop(0)
        if kind == KINDS["wake"]:
            period = BusyPeriod(time_ns - LATE_NS)
        elif period is None:
            continue
        elif kind == KINDS["run"]:
            period.run_ns = time_ns
            period.counts["arrival"] += 1
            is_due = jobs.came_while_off or ticks(period.off_ns, time_ns) > 0
            period.counts["interrupt"] += is_due
            jobs.came_while_off = False
        elif kind == KINDS["complete"]:
            period.cost_ns += domain["tasks"][task]["cost_ns"]
            period.counts["wake"] += woken
        elif period.run_ns is not None:
            period.cpu_ns += time_ns - period.run_ns
            period.counts["interrupt"] += ticks(period.run_ns, time_ns)
            period.run_ns, period.off_ns = None, time_ns
        if kind == KINDS["block"] and period.counts["arrival"]:
            # The gap before a run counts as its own where another VCPU was preempted for it, and so
            # only that before the first run is missing.
            found.append([*period.counts.values(), period.cpu_ns - period.cost_ns + gap_ns])
            period = None
    return found


def gap_ns(records: Records) -> float:
    """From when a VCPU blocks until the next one runs, where one waits: the median."""
    records = records[np.isin(records["kind"], [KINDS[kind] for kind in ("run", "block", "wake")])]
    blocks = np.flatnonzero(records["kind"][:-1] == KINDS["block"])
    is_next = records["kind"][blocks + 1] == KINDS["run"]
    return float(np.median((records["time_ns"][blocks + 1] - records["time_ns"][blocks])[is_next]))


def fitted_ns(periods: list[list[float]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What one of each of COSTS takes."""
    rows = np.array(periods)
    counts, took_ns = rows[:, :-1], rows[:, -1]
    weights = np.ones(len(rows))
    for _ in range(ROUNDS):
        costs_ns = np.linalg.lstsq(counts * weights[:, None], took_ns * weights, rcond=None)[0]
        weights = 1 / np.sqrt(np.maximum(abs(took_ns - counts @ costs_ns), LEAST_NS))
    return costs_ns


def main() -> None:
    """Prints what was found."""
    found = defaultdict(list)
    decisions_ns = []
    for policy in POLICIES:
        for apart in (False, True):
            hosts = fidelity.drawn(policy, SEEDS, LOAD_PERCENT, apart=apart)
            directory = OUTPUT / f"{policy}{fidelity.APART * apart}"
            if not directory.exists():
                boot.boot(
                    hosts, Xen().executor(), directory, lambda line: print(line, file=sys.stderr)
                )
            for name, host in hosts.items():
                ticks = collect.ticks(directory / f"{name}{collect.SUMMARY}")
                records = tracefile.records(directory / f"{name}.laxtrace")
                records = np.array(records[np.isin(records["kind"], list(KINDS.values()))])
                for number, domain in enumerate(host.host["domains"]):
                    found[policy] += busy_periods(
                        records, domain, number, ticks[number], gap_ns(records)
                    )
                decisions_ns.append(known.decision_ns(host))
    everything = [period for of_policy in found.values() for period in of_policy]
    for policy, periods in [*found.items(), ("all", everything)]:
        costs_ns = dict(zip(COSTS, fitted_ns(periods), strict=True))
        print(f"{policy:12}" + "".join(f"{name:>11}{ns:7.0f} ns" for name, ns in costs_ns.items()))
    print(f"ARRIVAL_NS {costs_ns['arrival'] - np.mean(decisions_ns):.0f}")
    print(f"INTERRUPT_NS {costs_ns['interrupt']:.0f}")
    print(f"WAKE_NS {costs_ns['wake']:.0f}")


if __name__ == "__main__":
    main()
