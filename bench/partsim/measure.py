"""What is compared and measured; nothing here prints a page."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import laxity

from bench.partsim import compare, edges, sets
from bench.partsim.program import StoppedError
from bench.partsim.sets import Rule
from bench.spread import Spread

if TYPE_CHECKING:
    from bench.partsim.compare import Compared, Difference
    from bench.partsim.edges import Edge
    from bench.partsim.program import Partsim

UNITS_NS = (1, 100_000, 1_000_000)
"""All times of a set are multiples of one of these."""
ROUNDS, RUNS_A_ROUND = 5, 5
"""How often the simulators take turns, and how often Laxity runs in each turn."""


@dataclass
class Rules:
    """All sets of one rule and unit in which the simulators have the same rules."""

    sets: int = 0
    left_out: int = 0
    """Sets that come to an edge."""
    total: Compared = field(default_factory=compare.Compared)
    different: list[tuple[int, Difference]] = field(default_factory=list)
    """With the seed."""


@dataclass
class Left:
    """Sets that come to an edge."""

    sets: int = 0
    alone: int = 0
    """Sets that come to no other edge."""
    different: int = 0
    """Sets that come to no other edge, and have a job that differs or that PARTSim gave up."""
    example: tuple[Rule, int, int, Difference] | None = None
    """Rule, unit and seed of the first of them, and its first job that differs."""


@dataclass
class Commanded:
    """PARTSim's own command, beside our program."""

    sets: int = 0
    same: int = 0
    """Sets of which it says the same of each job."""


@dataclass
class Found:
    """Everything that was compared."""

    by_rule: dict[tuple[Rule, int], Rules] = field(default_factory=dict)
    by_edge: dict[Edge, Left] = field(default_factory=dict)
    command: Commanded = field(default_factory=Commanded)
    stopped: list[tuple[str, list[Edge]]] = field(default_factory=list)
    """What PARTSim said when it gave up a run, and the edges of the set."""
    together: list[list[Edge]] = field(default_factory=list)
    """Edges of each set in which PARTSim's trace has two tasks on the CPU at once."""

    @property
    def unexplained(self) -> int:
        """Jobs that differ in sets in which no rule does, and such sets that PARTSim gave up."""
        jobs = sum(len(rules.total.differences) for rules in self.by_rule.values())
        return jobs + sum(not of_set for _, of_set in self.stopped)


def compared(partsim: Partsim, seeds: range) -> Found:
    """Every rule, unit and seed."""
    found = Found(by_edge={edge: Left() for edge in edges.Edge})
    for unit_ns in UNITS_NS:
        for rule in Rule:
            print(f"comparing: {rule.value}, {unit_ns:,} ns", file=sys.stderr, flush=True)
            found.by_rule[rule, unit_ns] = Rules()
            for seed in seeds:
                _compare_one(partsim, found, (rule, unit_ns, seed))
    return found


def _compare_one(partsim: Partsim, found: Found, which: tuple[Rule, int, int]) -> None:
    rule, unit_ns, seed = which
    drawn = sets.draw(rule, seed, unit_ns)
    ours = compare.laxity_run(drawn)
    of_set = edges.edges(drawn, ours.jobs, ours.records)
    rules = found.by_rule[rule, unit_ns]
    rules.sets += 1
    rules.left_out += bool(of_set)
    first: Difference | None = None
    stopped = False
    try:
        theirs = partsim.traced(drawn)
    except StoppedError as error:
        stopped = True
        found.stopped.append((str(error), of_set))
    else:
        result = compare.compared(drawn, ours.jobs, theirs.jobs)
        first = min(result.differences, key=_moment, default=None)
        if theirs.together:
            found.together.append(of_set)
        if not of_set:
            rules.total.add(result)
            rules.different += [(seed, difference) for difference in result.differences]
        if rule.for_command:
            found.command.sets += 1
            found.command.same += partsim.commanded(drawn) == theirs
    for edge in of_set:
        left = found.by_edge[edge]
        left.sets += 1
        if of_set == [edge]:
            left.alone += 1
            left.different += stopped or first is not None
            if first is not None and left.example is None:
                left.example = (*which, first)


def _moment(difference: Difference) -> int:
    """When a job ends in the one simulator, and not in the other."""
    jobs = [job for job in (difference.ours, difference.theirs) if job is not None]
    ends = [job.end_ns for job in jobs if job.end_ns is not None]
    return min(ends or [job.arrival_ns for job in jobs])


@dataclass(frozen=True)
class Speed:
    """How fast both run one set, in model seconds a second of CPU time."""

    rule: Rule
    jobs: int
    """Jobs that ended by the end of the run, and whose deadline was in it."""
    agreed: int
    """Jobs with the same response time in both."""
    partsim: Spread
    laxity: Spread
    ratio: Spread
    """Laxity's speed over PARTSim's, in each round."""
    partsim_traced: Spread
    laxity_traced: Spread
    ratio_traced: Spread


def speeds(partsim: Partsim) -> list[Speed]:
    """One set for each kind of rule, in both simulators by turns."""
    return [_speed(partsim, rule) for rule in (Rule.GUEST_PRIORITY, Rule.EDF, Rule.CBS)]


def _speed(partsim: Partsim, rule: Rule) -> Speed:
    print(f"measuring: {rule.value}", file=sys.stderr, flush=True)
    drawn = sets.for_speed(rule)
    host = laxity.Host.parse(drawn.host())
    seconds = drawn.duration_ns / 1e9
    rounds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(dir=partsim.out) as directory:
        for _ in range(ROUNDS):
            for traced, speeds in rounds.items():
                cpu_ns, ended = partsim.driven(drawn, traced=traced)
                trace = Path(directory) / "trace.laxtrace" if traced else None
                times = []
                for _ in range(RUNS_A_ROUND):
                    if trace is not None:
                        trace.unlink(missing_ok=True)
                    start = time.process_time()
                    responses = host.run(trace=trace).responses
                    times.append(time.process_time() - start)
                speeds.append((seconds / (cpu_ns / 1e9), seconds / median(times)))
    jobs = agreed = 0
    for server in drawn.servers:
        for task in server.tasks:
            ours = responses[server.name, task.name].tolist()
            theirs = [
                job.end - job.arrival
                for job in ended.get(task.name, [])
                if job.end is not None
                and max(job.end, job.arrival + task.deadline_ns) <= drawn.duration_ns
            ]
            jobs += max(len(ours), len(theirs))
            agreed += sum(one == other for one, other in zip(ours, theirs, strict=False))
    spreads = [
        Spread(values)
        for traced in (False, True)
        for values in (
            tuple(theirs for theirs, _ in rounds[traced]),
            tuple(ours for _, ours in rounds[traced]),
            tuple(ours / theirs for theirs, ours in rounds[traced]),
        )
    ]
    return Speed(rule, jobs, agreed, *spreads)


@dataclass(frozen=True)
class RateMonotonic:
    """When the job of a short period ends that arrives while one of a long period runs."""

    ideal_ns: int
    partsim_ns: int
    """Under the scheduler that PARTSim's command knows as `rm`."""


def rate_monotonic(partsim: Partsim) -> RateMonotonic:
    """PARTSim's own, by its own command."""
    short = sets.Task("short", 1_000_000, 10_000_000, 10_000_000, 1_000_000, 0)
    long = sets.Task("long", 5_000_000, 100_000_000, 100_000_000, 0, 1)
    whole = sets.Server("all", 1_000_000_000, 1_000_000_000, (short, long))
    drawn = sets.Set(Rule.GUEST_PRIORITY, "deferrable", (whole,), 20_000_000)
    ours = compare.laxity_run(drawn).jobs["short"][0].end_ns
    theirs = partsim.commanded(drawn, scheduler="rm").jobs["short"][0].end
    if ours is None or theirs is None:
        raise ValueError("the first job of a lone pair of tasks does not end")
    return RateMonotonic(ours, theirs)
