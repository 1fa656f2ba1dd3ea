"""Writes docs/results/observe.md: random hosts of the labs, found again from who ran when.

.venv/bin/python tools/pages/observe.py [--hosts N] [--seed SEED] [--kept] [SUBSTRATE ...]

Each host runs on real Xen or on Linux with KVM, in the lab. `laxity observe` gets the output of
that run, of which it takes the trace and the configuration, but no task: periods, costs and what
the simulator makes of the host file are held against what is known. The policies take turns; the
hosts of one policy share a boot. What came of a host is kept in out/observe-hosts, and a host that
is there is not run again, until what observes changes. `--kept` runs none. The page is written of
the hosts that were asked for on both substrates, and says how many of them are missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import textwrap
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fidelity  # a module beside this one
from laxity import tracefile
from laxity.host import Host
from laxity.observe.observed import observe
from laxity.substrates import of
from laxity.substrates.kvm.boot import boot_all
from laxity.substrates.xen import Xen, boot, collect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from laxity.resolved import Resolved
    from laxity.results.run import Run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "observe.md"
OUTPUT = ROOT / "out" / "observe-hosts"
OBSERVES = (
    "crates/laxity-observe/src/*.rs",
    "python/laxity/observe/*.py",
    "python/laxity/substrates/*/known.py",
)
"""What finds a host again: a change of it makes what is kept worthless."""

JOB_BITS = tracefile.JOB_NUMBER_BITS

POLICIES = {
    "xen": ("deferrable", "sedf", "credit", "credit2", "rtds"),
    "kvm": ("deferrable", "sedf", "credit"),
}
FIRST_SEED = 9001
"""No host that was looked at while `observe` was written has such a number."""
HOSTS = 20
LOAD_PERCENT = (30, 80)

PERIOD_PERCENT = 1.0
COST_PERCENT = 5.0
MISS_POINTS = 2.0

HEAD = """\
# Observing: random hosts of the labs, found again

Written by `make observe-hosts`. Random hosts of {domains} domains with one to {tasks} tasks each
(periods {periods} ms, loads {least} to {most} % of the one CPU, {duration} s) run on the emulated
machines of the labs: real Xen, and Linux with KVM. Their seeds are {first_seed} to {last_seed}.
None of them was used while `observe` was written: it was developed on hosts with the seeds 8601 to
8700 and 8801 to 8920, single rules also on 8501 to 8520 and 8701 to 8720.

What is observed is the output of each run, as by `laxity observe DIR`: the trace of which VCPU ran
when, and the configuration of the host without its tasks. What is known of the lab's kernels is
[subtracted](../how-to/observe.md#how-tasks-are-found) from what VCPUs worked. It was fitted on
hosts of its own (`tools/fit/guests.py`, `tools/fit/kvm.py`). The simulator then runs the host file
that is found, as it is, with the order in which the trace has VCPUs wake at one instant.

A task is *found* if the host file has a task of the same domain with a period within {period:g} %.
*More* counts the tasks of the host file that the host does not have. Tasks of one domain with the
same period are released together here, and count as one task, since the VCPU alone does not tell
them apart; its job is missed if any of theirs is. *Costs* counts the found tasks with a cost within
{cost:g} % of that in the host's own file, in which nothing of a kernel is. *Miss ratios* counts the
domains whose miss ratio in the model is within {miss:g} percentage points of what the guests
reported. The aim is that every task is found with its cost, that no task is more, and that the miss
ratio of every domain counts. *Unordered* is the number of miss ratios that count if the simulator
is not told in which order VCPUs wake at one instant, which no host file tells.
{missing}
| on | hosts | tasks | found | costs | more | domains | miss ratios | worst, points | unordered |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""

LEFT = """
## What is left

- **Tasks that never wake their VCPU.** Where each job of a task comes while another one's works,
  with a budget that stretches the work, other tasks may explain the same busy periods as well. In
  the simulator, where no kernel takes anything, the task of 9013 is not found either, one of those
  of 9017 under `sedf`, and tasks of 8659 and 8679. The host file that is found then wakes, runs,
  stops and blocks each VCPU at the same nanosecond as the host's own: no trace of who ran when
  tells the two apart. The same holds for the tasks that the labs tell of 9013, 9017 and 9019, if
  each costs what the host's jobs cost that come with its own. `python/tests/test_observe_page.py`
  shows it for each.
- **Small costs.** Ticks, decisions and interrupts are known by their means, and those by which jobs
  come while their VCPU works are in the costs. A cost of 0.1 ms may be off by some microseconds.
- **Margins.** A job that is in time by microseconds on the host may be late in the model, and all
  of its task with it. With the seeds 8620 (KVM) and 8637 (Xen) under `sedf`, of those for
  development, a model of the host's own file is off as much as that of the file that is found.
- **Jobs on KVM.** What a job takes of the kernel there has no key in a host file, so that the model
  has less work than the host. With the seed 8915 under `credit`, of earlier hosts, a miss ratio is
  the host's only if the found host file gets it, as `laxity fidelity` adds it.
- **Credits and orders.** What parts the simulator and real hosts under `credit` is told on [the
  page of fidelity](fidelity.md#what-parts-the-two).
"""

EACH = """
## Each host

Periods and costs are those of the found task with the largest error.

| on | policy | seed | load | found | more | period off | cost off | miss points, by domain |
|---|---|--:|--:|--:|--:|--:|--:|---|
"""


@dataclass(frozen=True)
class Found:
    """What came of one host."""

    substrate: str
    policy: str
    seed: int
    load_percent: float
    tasks: int
    more: int
    """Tasks of the host file that the host does not have."""
    period_percent: list[float]
    """How far the periods of those that were found are off, without sign."""
    cost_percent: list[float]
    """The same of their costs."""
    miss_points: list[float]
    """By domain: what the guests missed less what the model misses."""
    unordered_points: list[float]
    """The same of a model that does not know the order of wakes at one instant."""


Asked = tuple[str, str, int]
"""A host that is asked for: its substrate, its policy and its seed."""

Tasks = list[tuple[int, int]]
"""The periods and costs of a domain's tasks, ns."""


def off_percent(found_ns: int, known_ns: int) -> float:
    """How far a value is off."""
    return 100 * abs(found_ns - known_ns) / known_ns


def matched(known: Tasks, found: Tasks) -> Iterator[tuple[float, float]]:
    """How far period and cost of each task are off that was found; each is found once at most.

    The nearest periods come first, and of equal ones the nearest costs.
    """
    pairs = sorted(
        (off_percent(theirs[0], ours[0]), off_percent(theirs[1], ours[1]), place, other)
        for place, ours in enumerate(known)
        for other, theirs in enumerate(found)
    )
    left, unused = set(range(len(known))), set(range(len(found)))
    for period, cost, place, other in pairs:
        if period <= PERIOD_PERCENT and place in left and other in unused:
            left.remove(place)
            unused.remove(other)
            yield period, cost


def tasks(host: Resolved) -> list[Tasks]:
    """Those of each domain. Jobs that always arrive together are those of one task."""
    of_domains = []
    for domain in host.host["domains"]:
        costs_ns: dict[tuple[int, int], int] = defaultdict(int)
        for task in domain["tasks"]:
            costs_ns[task["period_ns"], task["offset_ns"]] += task["cost_ns"]
        of_domains.append([(period_ns, cost_ns) for (period_ns, _), cost_ns in costs_ns.items()])
    return of_domains


def miss_ratios(host: Resolved, trace: Path) -> list[float]:
    """Returns the parts of jobs that were late, by domain; see `tasks` for what a job is."""
    records = tracefile.records(trace)
    jobs = records[records["kind"] == tracefile.number_of("complete")]
    ratios = []
    for place, domain in enumerate(host.host["domains"]):
        late: dict[tuple[int, int], bool] = {}
        for number, task in enumerate(domain["tasks"]):
            own = jobs[(jobs["domain"] == place) & (jobs["argument"] >> JOB_BITS == number)]
            completed_ns = dict(zip(own["argument"] % (1 << JOB_BITS), own["time_ns"], strict=True))
            first_ns = task["offset_ns"] + task["deadline_ns"]
            due_ns = range(first_ns, host.host["duration_ns"] + 1, task["period_ns"])
            for job, ns in enumerate(due_ns):
                is_late = completed_ns.get(job, ns + 1) > ns
                at = (task["period_ns"], ns)
                late[at] = late.get(at, False) or is_late
        ratios.append(sum(late.values()) / max(len(late), 1))
    return ratios


def compare(substrate: str, host: Resolved, real: Run, load: float, directory: Path) -> Found:
    """Observes a run, and holds what is found against the host."""
    if real.trace is None:
        raise SystemExit("the lab left no trace")
    place = real.save(directory / f"{host.host['seed']}")
    if substrate == "xen":
        keep = place / substrate
        keep.mkdir()
        shutil.copy(real.trace.with_suffix(collect.SUMMARY), keep / f"{boot.RUN}{collect.SUMMARY}")
    seen = observe(place, place / "seen.laxtrace")
    model_host = seen.host.resolve()
    model_trace = place / "model.laxtrace"
    model = of("sim").run(model_host, trace=model_trace, seen=seen.run.trace, say=lambda _: None)
    unordered = of("sim").run(model_host, trace=None, say=lambda _: None)
    missed = miss_ratios(host, real.trace)
    ours, theirs = tasks(host), tasks(model_host)
    off = [each for pair in zip(ours, theirs, strict=True) for each in matched(*pair)]
    return Found(
        substrate,
        host.host["policy"],
        host.host["seed"],
        load,
        sum(map(len, ours)),
        sum(map(len, theirs)) - len(off),
        [period for period, _ in off],
        [cost for _, cost in off],
        points(missed, model),
        points(missed, unordered),
    )


def points(missed: Sequence[float], model: Run) -> list[float]:
    """What guests missed, by domain, less what a model misses, in percentage points."""
    return [
        100 * (measured - modelled.miss_ratio)
        for measured, modelled in zip(missed, model.domains, strict=True)
    ]


def runs(substrate: str, hosts: dict[str, Resolved], directory: Path) -> Collection[Run]:
    """The runs of hosts under one policy."""
    on = of(substrate)
    if isinstance(on, Xen):
        return boot.boot(hosts, on.executor(), directory, log, options=on.words).values()
    return boot_all(hosts, "repeatable", directory, log, options=on.words).values()


def log(line: str) -> None:
    """Says what is done."""
    print(line, file=sys.stderr)


def run(substrate: str, policy: str, seeds: list[int]) -> None:
    """Runs hosts, and keeps what came of each."""
    texts = {seed: text(seed, policy) for seed in seeds}
    hosts = {
        f"host-{seed}": Host(written.encode(), f"host-{seed}.toml").resolve([])
        for seed, (written, _) in texts.items()
    }
    directory = OUTPUT / f"boot-{substrate}-{policy}"
    shutil.rmtree(directory, ignore_errors=True)
    loads = [load for _, load in texts.values()]
    of_all = zip(hosts.values(), runs(substrate, hosts, directory), loads, strict=True)
    for host, real, load in of_all:
        found = compare(substrate, host, real, load, directory)
        kept(substrate, found.policy, found.seed).write_text(json.dumps(asdict(found)))
        log(str(found))


def text(seed: int, policy: str) -> tuple[str, float]:
    """A host file, and its load in percent."""
    load = random.Random(seed).uniform(*LOAD_PERCENT)  # noqa: S311 - hosts, not secrets
    return fidelity.text(seed, policy, (load, load))


def within(values: Iterable[float], most: float) -> int:
    """How many are no more than that, whatever their sign."""
    return sum(abs(value) <= most for value in values)


def summary(substrate: str, found: Sequence[Found]) -> str:
    """A substrate's row."""
    of_points = [each for one in found for each in one.miss_points]
    unordered = [each for one in found for each in one.unordered_points]
    costs = [each for one in found for each in one.cost_percent]
    return (
        f"| {substrate} | {len(found)} | {sum(one.tasks for one in found)} "
        f"| {sum(len(one.period_percent) for one in found)} | {within(costs, COST_PERCENT)} "
        f"| {sum(one.more for one in found)} | {len(of_points)} | {within(of_points, MISS_POINTS)} "
        f"| {max(map(abs, of_points)):.1f} | {within(unordered, MISS_POINTS)} |"
    )


def row(one: Found) -> str:
    """A host's row."""
    points = ", ".join(f"{value:+.1f}" for value in one.miss_points)
    return (
        f"| {one.substrate} | {one.policy} | {one.seed} | {one.load_percent:.0f} % "
        f"| {len(one.period_percent)} of {one.tasks} | {one.more} "
        f"| {max(one.period_percent, default=0):.3f} % | {max(one.cost_percent, default=0):.1f} % "
        f"| {points} |"
    )


def incomplete(found: Sequence[Found]) -> str:
    """The hosts with a task that was not found, or with another cost."""
    of_substrates = defaultdict(list)
    for one in found:
        if within(one.cost_percent, COST_PERCENT) < one.tasks:
            of_substrates[one.substrate].append(f"{one.seed} under `{one.policy}`")
    told = (f"{', '.join(hosts)} on {name}" for name, hosts in of_substrates.items())
    line = (
        f"Hosts with a task that is not found, or with another cost: {'; '.join(told) or 'none'}."
    )
    return f"\n{textwrap.fill(line, 100)}\n"


def missing(found: Sequence[Found], asked: Sequence[Asked]) -> str:
    """The hosts of the page that were not run."""
    there = {(one.substrate, one.policy, one.seed) for one in found}
    counts = Counter((one[0], one[1]) for one in asked if one not in there)
    return "".join(
        f"\nNot run: {count} of the hosts under {policy} on {substrate}.\n"
        for (substrate, policy), count in counts.items()
    )


def page(found: Sequence[Found], asked: Sequence[Asked]) -> str:
    """The page."""
    by_substrate = defaultdict(list)
    for one in found:
        by_substrate[one.substrate].append(one)
    periods = fidelity.TASK_PERIODS_MS
    head = HEAD.format(
        domains=fidelity.DOMAINS,
        tasks=fidelity.TASKS_MAX,
        periods=f"{periods[0]} to {periods[-1]}",
        least=LOAD_PERCENT[0],
        most=LOAD_PERCENT[1],
        duration=fidelity.DURATION_S,
        first_seed=min(seed for _, _, seed in asked),
        last_seed=max(seed for _, _, seed in asked),
        period=PERIOD_PERCENT,
        cost=COST_PERCENT,
        miss=MISS_POINTS,
        missing=missing(found, asked),
    )
    rows = [summary(*each) for each in by_substrate.items()]
    each = "\n".join(map(row, found))
    return head + "\n".join(rows) + f"\n{incomplete(found)}{LEFT}{EACH}{each}\n"


def kept(substrate: str, policy: str, seed: int) -> Path:
    """The file of what came of a host."""
    digest = hashlib.sha256()
    for pattern in OBSERVES:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return OUTPUT / f"{substrate}-{policy}-{seed}-{digest.hexdigest()[:12]}.json"


def planned(substrates: Sequence[str], hosts: int, first_seed: int) -> list[Asked]:
    """The hosts of each substrate, under policies in turn."""
    return [
        (substrate, policy, seed)
        for substrate in substrates
        for turn, policy in enumerate(POLICIES[substrate])
        for seed in range(first_seed + turn, first_seed + hosts, len(POLICIES[substrate]))
    ]


def main() -> None:
    """Runs what is missing, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=HOSTS, help="on each substrate")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("substrates", nargs="*", metavar="SUBSTRATE", choices=[*POLICIES, []])
    arguments = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    asked = planned(arguments.substrates or list(POLICIES), arguments.hosts, arguments.seed)
    if not arguments.kept:
        of_policies: dict[tuple[str, str], list[int]] = defaultdict(list)
        for substrate, policy, seed in asked:
            if not kept(substrate, policy, seed).is_file():
                of_policies[substrate, policy].append(seed)
        for (substrate, policy), seeds in of_policies.items():
            run(substrate, policy, seeds)
    paths = [path for one in asked if (path := kept(*one)).is_file()]
    found = [Found(**json.loads(path.read_text())) for path in paths]
    if not arguments.substrates:
        PAGE.write_text(page(found, asked))


if __name__ == "__main__":
    main()
