"""Writes docs/results/cpus.md: capacity and cost of every policy on 1 to 64 CPUs.

tools/pages/cpus.py          writes it
"""

from __future__ import annotations

import os
import random
import tempfile
import textwrap
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import tracefile
from laxity.host import Host
from laxity.policies import GLOBAL, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    Kind = tuple[str, str]
    """A policy, and how its VCPUs are placed."""

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "cpus.md"

CPUS = (1, 2, 4, 8, 16, 32, 64)
VCPUS_PER_CPU = 4
DURATION_S = 2
SEEDS = (1, 2, 3, 4, 5)
LOADS_PERCENT = range(30, 100, 5)
COSTS_PERCENT = 60
COSTS_CPUS = (1, 8, 64)
HIGH_PERCENT = 75
RESERVE_PERCENT = 15
"""The part by which a guest's budget exceeds what its tasks use."""
PERIODS_MS = (5, 10, 20, 40)
ADMITTED_PERCENT = 95
"""The part of a CPU that Linux gives to SCHED_DEADLINE; no budgets of a CPU together exceed it."""
COLUMNS = 100

PARTITIONED = "partitioned"
SHARED = "shared"
POOLS = "a pool each"
BY_POLICY = {
    **dict.fromkeys(
        ("deferrable", "periodic", "polling", "sporadic", "sedf", "lending"),
        (PARTITIONED,),
    ),
    **dict.fromkeys(("fifo", "deadline"), (PARTITIONED, SHARED)),
    "rtds": (PARTITIONED, POOLS, SHARED),
}
"""How VCPUs are placed. They share all CPUs under a policy that is not named here."""
LEFT_OUT = ("null", "arinc653", *GLOBAL)

HEAD = """\
# From 1 to 64 CPUs

Written by `make cpus`: the simulator, without costs, {seeds} drawn hosts of {duration} s
a value.

Each host has {per_cpu} VCPUs for each CPU, all of one-VCPU guests, with periods of
{periods} ms. *Load* is the utilization of all tasks, in percent of all CPUs. A guest has two tasks,
with periods of 4 to 12 of its own and deadlines at their ends, and a budget {reserve} % above what
they use, with `extratime`; its weight is the budget's share, and priorities are rate-monotonic.
*Partitioned* VCPUs stay on the CPU that worst fit gives them, largest first. With *a pool each*,
each CPU and its VCPUs have a scheduler of their own. *Shared* VCPUs may use all CPUs. A host
does not fit, and counts as one that misses, if its budgets exceed {admitted} % of the CPUs, or of
one to which they are partitioned.

- *Capacity* is the highest load, in steps of 5 %, up to which no job of any of the hosts misses its
  deadline; *none* where one does at {least} % already.
- *Late* is the share of jobs that miss their deadlines at a load of {high} %, on hosts that fit.
- *Cost* is decisions / switches / migrations, each for a CPU and second, at a load of {costs} %.

What one decision takes stands in [Speed](speed.md). `null`, which gives each VCPU a CPU for good,
`arinc653`, which serves one CPU by a table of windows, and the global policies, which have no
`extratime`, are left out.

What stands out:

- `sedf` and `lending` carry as much on 64 CPUs as on one. Servers by priority carry less: a job
  that is late on any CPU counts, and there are more of them.
- A CPU that many VCPUs share is seldom without work for one that waits: `credit`, `rtds` and the
  variants of scheduler S without LL carry more on many CPUs than on one.
- `rtds` with an affinity of one CPU for each VCPU has more late jobs than with a pool for each CPU.
  At a replenishment of a VCPU that runs, only the head of rtds' one queue may take its CPU, and it
  may be bound to another one ([Rtds](../explanation/policies.md#rtds)). Share the CPUs, or make
  pools (`xl cpupool-create`).
- Under LL (`s-all`, `s-aill`, `s-allc`, `s-abll`) a real-time VCPU stays on its CPU, but for one
  move a second. Here all VCPUs are real-time, so that no CPU helps another one.
- `deadline` has no `extratime`: a job of a guest whose budget is used up waits for the next period.
  Few jobs are late, on hosts of any size.
"""


@dataclass(frozen=True)
class Guest:
    """A guest of one VCPU."""

    budget_us: int
    period_us: int
    tasks: tuple[tuple[int, int, int], ...]
    """Cost, period and offset of each, in us."""

    @property
    def share(self) -> float:
        """The part of a CPU that its budget is."""
        return self.budget_us / self.period_us


@dataclass(frozen=True)
class Cost:
    """What a policy does, for each CPU and second."""

    decisions: float
    switches: float
    migrations: float


@dataclass(frozen=True)
class Cell:
    """What was found of a policy on so many CPUs."""

    capacity_percent: int | None
    missed: int
    jobs: int
    cost: Cost


def drawn(cpus: int, percent: int, seed: int) -> list[Guest]:
    """Guests whose tasks use that part of the CPUs; the same ones for every policy and load."""
    draw = random.Random(f"{cpus} {seed}")  # noqa: S311 - a workload, no secret
    parts = [draw.randint(10, 40) for _ in range(cpus * VCPUS_PER_CPU)]
    total = sum(parts)
    guests = []
    for part in parts:
        utilization = percent / 100 * cpus * part / total
        period_us = 1_000 * draw.choice(PERIODS_MS)
        tasks = []
        for _ in range(2):
            task_us = round(period_us * draw.uniform(4, 12))
            offset_us = draw.randrange(task_us)
            tasks.append((max(1, int(utilization / 2 * task_us)), task_us, offset_us))
        budget_us = round(utilization * (1 + RESERVE_PERCENT / 100) * period_us)
        guests.append(Guest(budget_us, period_us, tuple(tasks)))
    return guests


def placed(guests: list[Guest], cpus: int) -> list[int] | None:
    """The CPU of each guest by worst fit, largest first; None if they do not fit."""
    used, places = [0.0] * cpus, [0] * len(guests)
    for number in sorted(range(len(guests)), key=lambda number: -guests[number].share):
        cpu = used.index(min(used))
        used[cpu] += guests[number].share
        places[number] = cpu
    return places if max(used) <= ADMITTED_PERCENT / 100 else None


def hosts_of(policy: str, placing: str, cpus: int, percent: int, seed: int) -> list[Host] | None:
    """A drawn host, for pools a host for each CPU; None if its guests do not fit."""
    guests = drawn(cpus, percent, seed)
    if sum(guest.share for guest in guests) > cpus * ADMITTED_PERCENT / 100:
        return None
    if placing == SHARED:
        return [Host.parse(host_file(policy, cpus, seed, guests))]
    places = placed(guests, cpus)
    if places is None:
        return None
    if placing == PARTITIONED:
        return [Host.parse(host_file(policy, cpus, seed, guests, places))]
    pools = [
        [guest for guest, place in zip(guests, places, strict=True) if place == cpu]
        for cpu in range(cpus)
    ]
    return [Host.parse(host_file(policy, 1, seed, pool)) for pool in pools if pool]


def host_file(
    policy: str, cpus: int, seed: int, guests: list[Guest], places: list[int] | None = None
) -> str:
    """The host file of guests, each bound to its place if there are places."""
    order = sorted(range(len(guests)), key=lambda number: guests[number].period_us)
    ranks = {number: rank for rank, number in enumerate(order)}
    lines = [
        f'duration = "{DURATION_S} s"',
        f"seed = {seed}",
        f'host = {{ cpus = {cpus}, policy = "{policy}" }}',
    ]
    for number, guest in enumerate(guests):
        lines += [
            "[[domain]]",
            f'name = "guest-{number}"',
            f'budget = "{guest.budget_us} us"',
            f'period = "{guest.period_us} us"',
            f"priority = {1 + ranks[number]}",
            f"rt-priority = {99 - PERIODS_MS.index(guest.period_us // 1_000)}",
            "extratime = true",
            f"weight = {max(1, round(1_000 * guest.share))}",
            f'laxity = "{guest.period_us} us"',
        ]
        if places is not None:
            lines.append(f"affinity = [{places[number]}]")
        for task, (cost_us, period_us, offset_us) in enumerate(guest.tasks):
            lines += [
                "[[domain.tasks]]",
                f'name = "t{task}"',
                f'cost = "{cost_us} us"',
                f'period = "{period_us} us"',
                f'offset = "{offset_us} us"',
            ]
    return "\n".join(lines)


def found(at: tuple[str, str, int]) -> Cell:
    """What a policy does with its placing on so many CPUs."""
    policy, placing, cpus = at
    capacity = None
    for percent in LOADS_PERCENT:
        drawn_hosts = (hosts_of(policy, placing, cpus, percent, seed) for seed in SEEDS)
        if any(hosts is None or any(host.run().missed for host in hosts) for hosts in drawn_hosts):
            break
        capacity = percent
    high = [hosts_of(policy, placing, cpus, HIGH_PERCENT, seed) or [] for seed in SEEDS]
    late = [host.run() for hosts in high for host in hosts]
    return Cell(
        capacity,
        sum(run.missed for run in late),
        sum(run.jobs for run in late),
        cost_of(policy, placing, cpus),
    )


def cost_of(policy: str, placing: str, cpus: int) -> Cost:
    """What the policy does on the hosts that fit."""
    decisions = switches = migrations = seconds = 0
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory, "trace.laxtrace")
        for seed in SEEDS:
            hosts = hosts_of(policy, placing, cpus, COSTS_PERCENT, seed)
            if hosts is None:
                continue
            seconds += DURATION_S * cpus
            for host in hosts:
                run = host.run(trace=trace)
                decisions += run.overhead.schedule_calls or 0
                switches += run.overhead.context_switches or 0
                migrations += moves(trace)
    if not seconds:
        raise ValueError(f"no host with {cpus} CPUs fits at {COSTS_PERCENT} %")
    return Cost(decisions / seconds, switches / seconds, migrations / seconds)


def moves(trace: Path) -> int:
    """How often a VCPU ran on another CPU than the last time."""
    records = tracefile.records(trace)
    runs = records[records["kind"] == tracefile.number_of("run")]
    last: dict[int, int] = {}
    count = 0
    for domain, cpu in zip(runs["domain"].tolist(), runs["cpu"].tolist(), strict=True):
        count += last.get(domain, cpu) != cpu
        last[domain] = cpu
    return count


def table(title: str, counts: Iterable[int], rows: dict[Kind, list[str]]) -> list[str]:
    """A table with a column for each of some numbers of CPUs."""
    columns = [f"{count} CPUs" if count > 1 else "1 CPU" for count in counts]
    lines = [
        f"## {title}\n",
        f"| policy | VCPUs | {' | '.join(columns)} |",
        "|---|---|" + "--:|" * len(columns),
    ]
    lines += [
        f"| `{policy}` | {placing} | {' | '.join(cells)} |"
        for (policy, placing), cells in rows.items()
    ]
    return [*lines, ""]


def capacity(cell: Cell) -> str:
    """A capacity as it stands in the table."""
    return "none" if cell.capacity_percent is None else f"{cell.capacity_percent} %"


def late(cell: Cell) -> str:
    """The share of late jobs as it stands in the table."""
    if not cell.jobs:
        return "none fits"
    return f"{100 * cell.missed / cell.jobs:.2g} %" if cell.missed else "0"


def cost(cell: Cell) -> str:
    """A cost as it stands in the table."""
    of = cell.cost
    return f"{of.decisions:,.0f} / {of.switches:,.0f} / {of.migrations:,.0f}"


def written() -> str:
    """The page."""
    kinds = [
        (policy, placing)
        for policy in TABLE
        if policy not in LEFT_OUT
        for placing in BY_POLICY.get(policy, (SHARED,))
    ]
    asked = [(*kind, cpus) for kind, cpus in product(kinds, CPUS)]
    # The largest come first: the last one to end is then a small one.
    order = sorted(asked, key=lambda at: -at[2])
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        cells = dict(zip(order, pool.map(found, order), strict=True))
    head = HEAD.format(
        seeds=len(SEEDS),
        duration=DURATION_S,
        per_cpu=VCPUS_PER_CPU,
        periods=", ".join(map(str, PERIODS_MS[:-1])) + f" or {PERIODS_MS[-1]}",
        reserve=RESERVE_PERCENT,
        admitted=ADMITTED_PERCENT,
        least=LOADS_PERCENT[0],
        high=HIGH_PERCENT,
        costs=COSTS_PERCENT,
    )
    paragraphs = [
        part if part.startswith(("#", "-")) else textwrap.fill(part, COLUMNS)
        for part in head.strip().split("\n\n")
    ]
    tables = [
        table(
            title, counts, {kind: [told(cells[*kind, cpus]) for cpus in counts] for kind in kinds}
        )
        for title, counts, told in (
            ("Capacity", CPUS, capacity),
            (f"Late at {HIGH_PERCENT} %", CPUS, late),
            ("Cost", COSTS_CPUS, cost),
        )
    ]
    return "\n\n".join(paragraphs) + "\n\n" + "\n".join(line for each in tables for line in each)


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
