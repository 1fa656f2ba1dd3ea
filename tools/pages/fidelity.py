"""Writes docs/results/fidelity.md: random hosts in the simulator and on real Xen, in the lab.

.venv/bin/python tools/pages/fidelity.py [--hosts N] [--seed SEED] [--kept|--again] [POLICY ...]

Each host runs under one policy; the policies take turns. It runs twice: its tasks are released
together at time 0, or each at a time of its own. The hosts of one policy share a boot. What came
of a host is kept in out/fidelity-hosts, and a host that is there is not run again. `--kept`
runs none, and writes the page of all that are there. `--again`, after a change of the simulator,
runs the hosts that are there in the simulator, beside what is kept of their boots on Xen. Hosts
below the seed FRESH_SEED served while the simulator was developed: the page has them apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import parting
from laxity import _core
from laxity.host import Host
from laxity.lab import fingerprint
from laxity.lab.files import RESULTS
from laxity.policies import TABLE
from laxity.substrates import of
from laxity.substrates.xen import Xen, boot, collect, known

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.lab.modes import Mode
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.substrates.xen.plan import Plan

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "fidelity.md"
OUTPUT = ROOT / "out" / "fidelity-hosts"

POLICIES = [
    name
    for name, policy in TABLE.items()
    if "xen" in policy.substrates and name not in ("null", "arinc653")
]
"""Those that run several domains on the lab's one CPU."""

DURATION_S = 8
DOMAINS = 3
TASKS_MAX = 3
SHARE_LEAST = 0.05
LOAD_PERCENT = (60, 105)
BUDGETS = 0.95
"""All budgets together, of the CPU. They are divided as the load is."""
WEIGHTS = 768
"""All weights together, divided as the load is."""
PERIODS_MS = (10, 20, 25, 40, 50)
TASK_PERIODS_MS = (20, 25, 40, 50, 80, 100, 200)

FRESH_SEED = 401
"""Hosts with seeds from here on were not used while the simulator was developed."""

APART = "-apart"
"""In names of what belongs to hosts whose tasks are released apart."""


MISS_POINTS = 2.0
SAME_PERCENT = 95.0
HIGH_LOAD_PERCENT = 95
"""From here on a host with what its kernels and the hypervisor take hardly ever rests."""

HEAD = """\
# Fidelity: random hosts in the simulator and on real Xen

Written by `make fidelity-hosts`, with {hosts} random hosts: {domains} domains of one to {tasks}
tasks, tasks' periods {task_periods} ms, budgets' periods {periods} ms, loads {least} to {most} % of
the one CPU, {duration} s. Each host runs once on the emulated machine of the lab and once in the
simulator, as `laxity fidelity` does it: with the known costs of the lab, and with what Xen's trace
shows of the run and no host file tells: the ticks of guests, phases, credits, the phase of
accounting, the order of wakes at one instant, and the wakes of idle guests for themselves.

*Miss points* is the largest difference between the miss ratios of a domain of the host, in
percentage points. *Same VCPU* is the share of time in which the CPU runs the same VCPU in both, or
is idle in both. The goals are at most {points:g} points in 95 % of all windows (a window is a
domain of a host), and the same VCPU for {same:g} % of the time.

The known costs are fitted on hosts of their own (`tools/fit/guests.py`, `tools/fit/timers.py`). The
rules of the simulator were developed on hosts with the seeds 1 to 368, and the tables below are of
other hosts.
"""

TABLE_HEAD = """
| policy | hosts | windows within {points:g} points | worst, points | same VCPU: median | least |
|---|--:|--:|--:|--:|--:|
"""

APART_TEXT = """
## Tasks that are released apart

The first job of each task is released at a time of its own, within the task's period.
"""

TOGETHER_TEXT = """
## Tasks that are released together

The first jobs of all tasks are released at time 0, and since the periods have common multiples, so
are many later ones. Xen wakes the guests whose timers end at one instant one after the other, 3 to
8 us apart, in an order that changes from one instant to another, with the timers' queue, and
decides when all are awake. Where VCPUs queue in the order in which they wake, each such order
decides who runs first, and how long the others wait. A host file cannot tell it. The simulator
therefore releases the jobs of an instant in the order in which Xen's trace has the VCPUs wake.

A job also comes behind those that were released at the same instant if it is due less than 100 us
after its guest's kernel last set its timer. The simulator puts it off as Linux on Xen does
([rules](../explanation/policies.md#what-happens-at-one-instant), "Ticks of guests").
"""

DEVELOPED_TEXT = """
## The hosts on which the simulator was developed last

Seeds 201 to 368, released apart and together. Those before ran while dom0 still woke for itself.
"""

CAUSES_TEXT = """
## What parts the two

- **Credits on both sides of a limit.** What a guest's kernel takes is known by its mean, so that
  the credits of a VCPU come to differ, as the table below has it. A VCPU whose credits are a little
  below 0 on one side alone is there in another class, and one whose credits pass 30 ms on one side
  alone begins anew at 0 there.
- **A job ends just before a tick or a budget's end, or just after it**, since the simulator is some
  10 to 40 us ahead or behind. A guest falls idle before its tick, and its wake for the tick ends
  the turn of the next one; or the tick comes while the guest still runs. Under servers a job that
  needs two whole budgets but for some microseconds needs a third one on one side.
- **Equal deadlines.** Guests on Xen tell deadlines of `lending` with differences of microseconds,
  and these decide which of two guests is served first whose jobs are due at the same time.
- **Periods of SEDF end at one instant** if they began at one. On Xen they began 3 to 12 us apart,
  and so end in that order. A simulator was tried in which jobs come when their VCPUs wake and
  decisions wait for all of them. On five earlier hosts of `sedf` the same VCPU then ran for 98.5 to
  99.9 % of the time, in place of 44 to 94 %, but for 73 to 79 % on three of `polling`, in place of
  99.5 %, since its budgets are replenished when all are awake. It was left out.
- **Guests that are active when the run begins**, since they ran shortly before, share the first
  credits of credit and scheduler S on Xen. In the simulator no guest is.
"""

OVER_TEXT = """
Hosts at loads above 100 % never come to rest: what differs once stays different. Under `sporadic` a
replenishment is late by as much as the turn that it repays, and each turn by what its timer is
late. The simulator's timers are therefore late as well, by the 4.25 us that fit best on other hosts
(`tools/fit/timers.py`); Xen's are not all equally late.
"""

OUTSIDE = """
The hosts with windows outside {points:g} points follow. *First apart* is when the CPU first runs
other VCPUs in the two for more than {apart_us} us. The last column is what the traces show there:
which credits, jobs or events differ then or in the ms before, or else at the last shorter time for
which other VCPUs ran.

| host | released | miss points, by domain | first apart, ms | what differs there |
|---|---|---|--:|---|
"""

EACH = """
## Each host

*First apart* is when the CPU first runs other VCPUs in the two for more than {apart_us} us. Both
traces are in `out/fidelity-hosts` after a run. `laxity trace` shows what they have at that time.

| policy | seed | load | released | miss points, by domain | same VCPU | first apart, ms |
|---|--:|--:|---|---|--:|--:|
"""


@dataclass(frozen=True)
class Found:
    """What came of one host."""

    policy: str
    seed: int
    apart: bool
    """Whether tasks are released apart, and not together."""
    load_percent: float
    miss_points: list[float]
    """By domain: the miss ratio on Xen less that of the simulator."""
    same_percent: float
    parting: parting.Parting

    @staticmethod
    def of(path: Path) -> Found:
        """What is kept."""
        kept = json.loads(path.read_text())
        return Found(**(kept | {"parting": parting.Parting(**kept["parting"])}))

    def is_within(self) -> bool:
        """Whether all windows are."""
        return max(map(abs, self.miss_points)) <= MISS_POINTS


def shares(draw: random.Random, count: int) -> list[float]:
    """Parts of 1, uniformly at random, each of SHARE_LEAST at least."""
    while True:
        cuts = sorted([0.0, *(draw.random() for _ in range(count - 1)), 1.0])
        parts = [high - low for low, high in itertools.pairwise(cuts)]
        if min(parts) >= SHARE_LEAST:
            return parts


def text(
    seed: int,
    policy: str,
    load_percent: tuple[float, float] = LOAD_PERCENT,
    *,
    apart: bool = False,
) -> tuple[str, float]:
    """A host file, and its load in percent, which is drawn between two values.

    With `apart` the first job of each task is released within its period, at whole microseconds.
    """
    draw = random.Random(seed)  # noqa: S311 - hosts, not secrets
    offsets = random.Random(f"offsets of {seed}")  # noqa: S311 - so that all else is the same
    load = draw.uniform(*load_percent) / 100
    lines = [
        f'duration = "{DURATION_S} s"',
        f"seed = {seed}",
        f'host = {{ cpus = 1, policy = "{policy}" }}',
    ]
    total = 0.0
    extratime = draw.choice((False, True))
    for number, part in enumerate(shares(draw, DOMAINS)):
        period_us = 1_000 * draw.choice(PERIODS_MS)
        lines += [
            "[[domain]]",
            f'name = "d{number}"',
            f'budget = "{round(part * BUDGETS * period_us)} us"',
            f'period = "{period_us} us"',
            f"extratime = {str(extratime).lower()}",
            f"weight = {max(1, round(part * WEIGHTS))}",
        ]
        for task, of_task in enumerate(shares(draw, draw.randint(1, TASKS_MAX))):
            task_period_us = 1_000 * draw.choice(TASK_PERIODS_MS)
            cost_us = max(100, round(load * part * of_task * task_period_us))
            total += cost_us / task_period_us
            lines += [
                "[[domain.tasks]]",
                f'name = "t{task}"',
                f'cost = "{cost_us} us"',
                f'period = "{task_period_us} us"',
            ]
            if apart:
                lines.append(f'offset = "{offsets.randrange(task_period_us)} us"')
    return "\n".join(lines) + "\n", 100 * total


def drawn(
    policy: str,
    seeds: Iterable[int],
    load_percent: tuple[float, float] = LOAD_PERCENT,
    *,
    apart: bool = False,
) -> dict[str, Resolved]:
    """Hosts by the names of their windows; see `text`."""
    return {
        f"host-{seed}": Host(
            text(seed, policy, load_percent, apart=apart)[0].encode(), f"host-{seed}.toml"
        ).resolve([])
        for seed in seeds
    }


@dataclass(frozen=True)
class KeptBoot:
    """An executor that has carried out its plan before."""

    directory: Path
    mode: Mode = "repeatable"

    def execute(self, plan: Plan, directory: Path, say: Say) -> None:
        """See laxity.substrates.xen.executors.Executor."""
        say(f"{len(plan.windows)} hosts of {self.directory.name}")
        for name in (RESULTS, fingerprint.FILE):
            (self.directory / name).rename(directory / name)


def kept(policy: str, seed: int, *, apart: bool) -> Path:
    """Where is kept what came of a host."""
    return OUTPUT / f"{policy}-{seed}{APART * apart}.json"


def run(policy: str, seeds: list[int], *, apart: bool = False, again: bool = False) -> None:
    """Runs hosts on one boot and in the simulator, and keeps what came of each.

    With `again` the boot is the one that was kept, of the same hosts.
    """
    hosts = drawn(policy, seeds, apart=apart)
    directory = OUTPUT / f"boot-{policy}-{seeds[0]}{APART * apart}"
    before, sim = directory.with_name(f"before-{directory.name}"), of("sim")
    shutil.rmtree(before, ignore_errors=True)
    if directory.exists():
        directory.rename(before)
    executor = KeptBoot(before) if again else Xen().executor()
    runs = boot.boot(hosts, executor, directory, lambda line: print(line, file=sys.stderr))
    shutil.rmtree(before, ignore_errors=True)
    for seed, (name, host) in zip(seeds, hosts.items(), strict=True):
        settled = known.settled(host, directory / f"{name}{collect.SUMMARY}")
        real = runs[name]
        model = sim.run(
            host.changed(settled),
            trace=directory / f"{name}.sim.laxtrace",
            seen=real.trace,
            say=lambda _: None,
        )
        agreement = json.loads(_core.agreement(str(model.trace), str(real.trace)))
        found = Found(
            policy,
            seed,
            apart,
            text(seed, policy, apart=apart)[1],
            [
                100 * (theirs.miss_ratio - ours.miss_ratio)
                for ours, theirs in zip(model.domains, real.domains, strict=True)
            ],
            100 * agreement["same_ratio"],
            parting.first(Path(str(model.trace)), Path(str(real.trace)), host.host),
        )
        kept(policy, seed, apart=apart).write_text(json.dumps(asdict(found)))
        print(found, file=sys.stderr)


def summary(policy: str, found: list[Found]) -> str:
    """A policy's row."""
    points = [abs(each) for one in found for each in one.miss_points]
    within = sum(each <= MISS_POINTS for each in points)
    same = [one.same_percent for one in found]
    return (
        f"| {policy} | {len(found)} | {within} of {len(points)} | {max(points):.1f} "
        f"| {statistics.median(same):.1f} % | {min(same):.1f} % |"
    )


def table(found: list[Found]) -> str:
    """A row for each policy, one for low loads, one for high ones, and one for all."""
    by_policy = defaultdict(list)
    for one in found:
        by_policy[one.policy].append(one)
    rows = [summary(policy, of_policy) for policy, of_policy in by_policy.items()]
    high = [one for one in found if one.load_percent >= HIGH_LOAD_PERCENT]
    low = [one for one in found if one.load_percent < HIGH_LOAD_PERCENT]
    rows += [
        summary(name, some)
        for name, some in (
            (f"loads below {HIGH_LOAD_PERCENT} %", low),
            (f"loads from {HIGH_LOAD_PERCENT} % on", high),
            ("**all**", found),
        )
        if some
    ]
    return TABLE_HEAD.format(points=MISS_POINTS) + "\n".join(rows) + "\n"


def page(found: list[Found]) -> str:
    """The page."""
    fresh = [one for one in found if one.seed >= FRESH_SEED]
    developed = [one for one in found if one.seed < FRESH_SEED]
    head = HEAD.format(
        hosts=len({(one.policy, one.seed) for one in fresh}),
        domains=DOMAINS,
        tasks=TASKS_MAX,
        task_periods=f"{TASK_PERIODS_MS[0]} to {TASK_PERIODS_MS[-1]}",
        periods=f"{PERIODS_MS[0]} to {PERIODS_MS[-1]}",
        least=LOAD_PERCENT[0],
        most=LOAD_PERCENT[1],
        duration=DURATION_S,
        points=MISS_POINTS,
        same=SAME_PERCENT,
    )
    parts = [head]
    for apart, words in ((True, APART_TEXT), (False, TOGETHER_TEXT)):
        parts += [words, table([one for one in fresh if one.apart == apart])]
    if developed:
        parts += [DEVELOPED_TEXT, TABLE_HEAD.format(points=MISS_POINTS)]
        for apart, words in ((True, "apart"), (False, "together")):
            parts.append(summary(words, [one for one in developed if one.apart == apart]) + "\n")
    apart_us = parting.APART_NS // parting.NS_A_US
    parts += [CAUSES_TEXT, OUTSIDE.format(apart_us=apart_us, points=MISS_POINTS)]
    for one in fresh:
        if not one.is_within():
            parts.append(
                f"| {one.policy} {one.seed} | {'apart' if one.apart else 'together'} "
                f"| {_points(one)} | {_ms(one)} | {one.parting.seen} |\n"
            )
    parts += [OVER_TEXT, EACH.format(apart_us=apart_us)]
    for one in fresh:
        parts.append(
            f"| {one.policy} | {one.seed} | {one.load_percent:.0f} % "
            f"| {'apart' if one.apart else 'together'} | {_points(one)} "
            f"| {one.same_percent:.1f} % | {_ms(one)} |\n"
        )
    return "".join(parts)


def _points(one: Found) -> str:
    return ", ".join(f"{value:+.1f}" for value in one.miss_points)


def _ms(one: Found) -> str:
    return "-" if one.parting.at_ms is None else f"{one.parting.at_ms:.1f}"


def run_all(policies: list[str], hosts: int, first_seed: int, *, again: bool) -> list[Path]:
    """Runs the hosts that are not there, or those that are; returns where all are kept."""
    turns = defaultdict(list)
    for number in range(hosts):
        turns[policies[number % len(policies)]].append(first_seed + number)
    paths: list[Path] = []
    for apart, (policy, seeds) in itertools.product((False, True), turns.items()):
        of_seeds = {seed: kept(policy, seed, apart=apart) for seed in seeds}
        if chosen := [seed for seed, path in of_seeds.items() if path.is_file() == again]:
            run(policy, chosen, apart=apart, again=again)
        paths += [path for path in of_seeds.values() if path.is_file()]
    return paths


def main() -> None:
    """Runs what is missing, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4 * len(POLICIES))
    parser.add_argument("--seed", type=int, default=FRESH_SEED)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--kept", action="store_true")
    instead.add_argument("--again", action="store_true")
    parser.add_argument("policies", nargs="*", metavar="POLICY", choices=[*POLICIES, []])
    arguments = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if arguments.kept:
        paths = list(OUTPUT.glob("*.json"))
    else:
        policies = arguments.policies or POLICIES
        paths = run_all(policies, arguments.hosts, arguments.seed, again=arguments.again)
    found = [Found.of(path) for path in paths]
    found.sort(key=lambda one: (POLICIES.index(one.policy), one.seed, not one.apart))
    if not arguments.policies:
        PAGE.write_text(page(found))


if __name__ == "__main__":
    main()
