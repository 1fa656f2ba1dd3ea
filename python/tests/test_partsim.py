"""The comparison with PARTSim, without PARTSim: its traces are made up here, in its form."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, cast

import laxity
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.partsim import compare, edges, measure, sets, trace
from bench.partsim.edges import Edge
from bench.partsim.program import Partsim, StoppedError, UnusableError
from bench.partsim.sets import Rule, Server, Set, Task
from bench.partsim.trace import Job, Trace, TraceError

if TYPE_CHECKING:
    from pathlib import Path

MS = sets.MILLISECOND_NS

SERVED = b"""\
[Time:0]\tearly arrived at 0
[Time:0]\tServerScheduled for cbserver_early
[Time:0]\tServerDispatching for cbserver_early
[Time:0]\tearly scheduled on CPU cpu-0 workload work speed 1 freq 1 abs WCET 3 its arrival was 0
[Time:1]\tlate arrived at 1
[Time:2]\tServerBudgetExhausted for cbserver_early
[Time:2]\tearly descheduled its arrival was 0
[Time:2]\tlate scheduled on CPU cpu-0 workload work speed 1 freq 1 abs WCET 7 its arrival was 1
[Time:5]\tlate arrived at 1
[Time:5]\tlate missed its arrival was 1
[Time:9]\tExecInstr(7, work) ended for Task late
[Time:9]\tlate ended, its arrival was 1, its period was 4, RespTime/Period is 2
[Time:9]\tlate missed its arrival was 5
[Time:10]\tearly scheduled on CPU cpu-0 workload work speed 1 freq 1 abs WCET 3 its arrival was 0
[Time:11]\tearly ended, its arrival was 0, its period was 20, RespTime/Period is 0.55
"""


def test_jobs_are_read_from_a_trace() -> None:
    read = trace.parsed(SERVED)
    assert read.jobs == {
        "early": [Job(0, 11)],
        "late": [Job(1, 9, said_missed=True), Job(5, None, said_missed=True)],
    }
    assert read.together == 0


def test_two_tasks_on_the_cpu_at_once_are_seen() -> None:
    without = SERVED.replace(b"[Time:2]\tearly descheduled its arrival was 0\n", b"")
    assert trace.parsed(without).together == 1


def test_no_trace_has_no_jobs() -> None:
    assert trace.parsed(b"") == Trace()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SERVED[:-1], "not whole"),
        (SERVED[: len(SERVED) // 2], "not whole"),
        (SERVED + b"\n", "no time"),
        (SERVED + b"[Time:3]\tearly arrived at 3\n", "3 comes after 11"),
        (SERVED + b"[Time:-1]\tearly arrived at 3\n", "no time"),
        (SERVED + b"[Time:1e9]\tearly arrived at 3\n", "no time"),
        (SERVED + b"[Time:" + b"9" * 5000 + b"]\tearly arrived at 3\n", "no time"),
        (SERVED + b"[Time:20]\tearly arrived at 21\n", "still to come"),
        (SERVED + b"[Time:20]\tearly killed its arrival was 0\n", "not understood"),
        (SERVED + b"[Time:20]\tearly arrived at 20 and more\n", "not understood"),
        (SERVED + b"[Time:20]\tearly missed its arrival was 0\n", "no such job"),
        (SERVED.replace(b"[Time:1]\tlate arrived at 1\n", b""), "no such job"),
        (
            SERVED.replace(b"late ended, its arrival was 1", b"late ended, its arrival was 5"),
            "no s",
        ),
        (SERVED + SERVED.splitlines(keepends=True)[-1], "no such job"),
        (SERVED + b"[Time:20]\t\xff arrived at 20\n", "not ASCII"),
        (SERVED + b"\x00" * 100 + b"\n", "no time"),
        (SERVED.replace(b"\n", b"\r\n"), "not understood"),
        (b'{ "events" : [ ] }\n', "no time"),
    ],
)
def test_what_partsim_would_not_write_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        trace.parsed(text)


@given(st.binary() | st.text().map(str.encode), st.integers(0, len(SERVED)), st.integers(0, 40))
def test_a_broken_trace_is_read_or_refused(put: bytes, at: int, cut: int) -> None:
    for text in (put, SERVED[:at] + put + SERVED[at + cut :]):
        for read in (trace.parsed, trace.driven):
            try:
                read(text)
            except TraceError:
                continue


def test_what_the_program_beside_partsim_says_is_read() -> None:
    said = trace.driven(b"cpu_ns 12\na 0 5\nb 1 7\na 10 15\n")
    assert said == (12, {"a": [Job(0, 5), Job(10, 15)], "b": [Job(1, 7)]})
    for text in (b"", b"a 0 5\n", b"cpu_ns 12\na 0\n", b"cpu_ns 12\na 5 0\n", b"cpu_ns -1\n"):
        with pytest.raises(TraceError):
            trace.driven(text)


def task(name: str, cost: int, period: int, deadline: int | None = None, offset: int = 0) -> Task:
    """A task, with times in ms."""
    return Task(name, cost * MS, period * MS, (deadline or period) * MS, offset * MS, 0)


def flat(rule: Rule, *tasks: Task) -> Set:
    return Set(rule, "deferrable", (Server("all", 1000 * MS, 1000 * MS, tasks),), 100 * MS)


def served(*servers: tuple[int, int, Task]) -> Set:
    """Budget and period in ms, and the task of each server."""
    made = [
        Server(f"server-{at}", budget * MS, period * MS, (of_server,))
        for at, (budget, period, of_server) in enumerate(servers)
    ]
    return Set(Rule.CBS, "deadline", tuple(made), 100 * MS)


def of(drawn: Set) -> list[Edge]:
    run = compare.laxity_run(drawn)
    return edges.edges(drawn, run.jobs, run.records)


def test_jobs_of_one_deadline_are_an_edge_of_edf_alone() -> None:
    tasks = task("a", 3, 100, 9, offset=1), task("b", 3, 100, 10)
    assert of(flat(Rule.EDF, *tasks)) == [Edge.JOBS]
    assert of(flat(Rule.GUEST_PRIORITY, *tasks)) == []
    assert of(flat(Rule.EDF, tasks[0], task("b", 3, 100, 11))) == []
    # The one job has ended when the other arrives.
    assert of(flat(Rule.EDF, task("a", 3, 100, 7, offset=3), tasks[1])) == []


@pytest.mark.parametrize(("period", "edge"), [(4, []), (5, [Edge.ZERO_LAG]), (6, [])])
def test_a_wake_at_the_0_lag_time_is_an_edge(period: int, edge: list[Edge]) -> None:
    """1 ms of 2 ms each 10 ms is used, so that half the period is left at 5 ms."""
    two_jobs = served((2, 10, task("a", 1, period)))
    assert of(Set(two_jobs.rule, two_jobs.policy, two_jobs.servers, 2 * period * MS)) == edge


@pytest.mark.parametrize(("offset", "edge"), [(8, []), (9, [Edge.SERVERS]), (10, [])])
def test_servers_that_become_ready_together_are_an_edge(offset: int, edge: list[Edge]) -> None:
    """The first server is throttled from 4 ms to 9 ms."""
    assert of(served((4, 9, task("a", 6, 100)), (3, 9, task("b", 3, 100, offset=offset)))) == edge


@pytest.mark.parametrize(("offset", "edge"), [(1, []), (2, [Edge.PREEMPTED]), (3, [])])
def test_a_preemption_between_two_jobs_is_an_edge(offset: int, edge: list[Edge]) -> None:
    """The first server runs from 0 on, and has its second job at 2 ms, when the first one ends."""
    short = served((4, 20, task("a", 2, 2)), (1, 5, task("b", 1, 100, offset=offset)))
    assert of(Set(short.rule, short.policy, short.servers, 4 * MS)) == edge


def in_partsims_form(drawn: Set, run: compare.Run) -> dict[str, list[Job]]:
    """Laxity's jobs, as PARTSim would have them that has the same rules."""
    found = {}
    for one in drawn.tasks:
        jobs = [Job(job.arrival_ns, job.end_ns) for job in run.jobs[one.name]]
        taken_up = [0, *(job.end if job.end is not None else drawn.duration_ns for job in jobs)]
        for job, before in zip(jobs, taken_up, strict=False):
            deadline = job.arrival + one.deadline_ns
            late = job.end is None or job.end > deadline
            job.said_missed = late and before <= deadline <= drawn.duration_ns
        found[one.name] = jobs
    return found


@pytest.mark.parametrize("rule", Rule)
def test_the_same_jobs_agree_and_any_other_differs(rule: Rule) -> None:
    # A set with late jobs, some of which wait until their deadlines are past.
    for seed in range(40):
        drawn = sets.draw(rule, seed)
        run = compare.laxity_run(drawn)
        theirs = in_partsims_form(drawn, run)
        same = compare.compared(drawn, run.jobs, theirs)
        if same.said and same.unsaid:
            break
    else:
        pytest.fail("no set has late jobs")
    assert same.differences == []
    assert same.agreed == same.jobs == sum(map(len, theirs.values()))
    assert same.said + same.unsaid == same.late

    late = next(name for name in theirs if any(job.said_missed for job in theirs[name]))
    number = next(at for at, job in enumerate(theirs[late]) if job.said_missed)
    before = theirs[late][number]
    assert before.end is not None
    others = (
        Job(before.arrival, before.end + 1, said_missed=True),
        Job(before.arrival + 1, before.end, said_missed=True),
        Job(before.arrival, None, said_missed=True),
        Job(before.arrival, before.end, said_missed=False),
    )
    for other in others:
        theirs[late][number] = other
        differences = compare.compared(drawn, run.jobs, theirs).differences
        assert (late, number) in {(one.task, one.job) for one in differences}, other
    theirs[late] = theirs[late][:number]
    differences = compare.compared(drawn, run.jobs, theirs).differences
    assert {one.theirs for one in differences} == {None}
    assert len(differences) == len(run.jobs[late]) - number


class MadeUp:
    """In PARTSim's place, with Laxity's jobs."""

    def __init__(self, *, shift_ns: int = 0, stops: bool = False) -> None:
        self.shift_ns, self.stops = shift_ns, stops

    def traced(self, drawn: Set) -> Trace:
        if self.stops:
            raise StoppedError("as PARTSim does at times")
        jobs = in_partsims_form(drawn, compare.laxity_run(drawn))
        first = jobs[drawn.tasks[0].name][0]
        first.end = None if first.end is None else first.end + self.shift_ns
        return Trace(jobs)

    def commanded(self, drawn: Set) -> Trace:
        return MadeUp().traced(drawn)


@pytest.mark.slow
def test_only_what_the_rules_do_not_explain_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "UNITS_NS", (sets.MILLISECOND_NS,))

    def compared(partsim: MadeUp) -> measure.Found:
        return measure.compared(cast("Partsim", partsim), range(3))

    same = compared(MadeUp())
    assert same.unexplained == 0
    assert same.command.same == same.command.sets == 6
    left_out = sum(rules.left_out for rules in same.by_rule.values())
    alike = sum(rules.sets for rules in same.by_rule.values()) - left_out
    assert left_out > 0
    assert alike > 0
    # A job that differs counts in each set in which the rules are the same, and in no other.
    shifted = compared(MadeUp(shift_ns=1))
    assert shifted.unexplained == alike
    assert sum(len(rules.different) for rules in shifted.by_rule.values()) == alike
    assert shifted.command.same == 0
    assert {left.different for left in same.by_edge.values()} == {0}
    assert all(left.different == left.alone for left in shifted.by_edge.values())
    assert compared(MadeUp(stops=True)).unexplained == alike


@pytest.mark.parametrize("unit_ns", [1, 100_000])
@pytest.mark.parametrize("rule", Rule)
def test_sets_are_what_both_simulators_take(rule: Rule, unit_ns: int) -> None:
    loads = []
    for seed in range(30):
        drawn = sets.draw(rule, seed, unit_ns)
        assert drawn == sets.draw(rule, seed, unit_ns), f"seed {seed}"
        laxity.Host.parse(drawn.host()).resolved()  # refuses what cannot run
        tasks = drawn.tasks
        assert len({one.name for one in tasks}) == len(tasks)
        for one in tasks:
            assert one.cost_ns <= one.deadline_ns <= one.period_ns, f"seed {seed}"
            times = (one.cost_ns, one.deadline_ns, one.period_ns, one.offset_ns)
            assert all(time % unit_ns == 0 for time in times), f"seed {seed}"
        for server in drawn.servers:
            # The shorter period has the priority, and no two are the same.
            ordered = sorted(server.tasks, key=lambda one: one.priority)
            assert all(one.period_ns < other.period_ns for one, other in pairwise(ordered))
        loads.append(sum(one.cost_ns / one.period_ns for one in tasks))
        kinds = [line.split()[0] for line in drawn.driver().splitlines()]
        assert kinds == sorted(kinds), "servers come first"
        assert kinds.count("task") == len(tasks) == drawn.command().count("- name: ")
    assert min(loads) < 0.6
    assert max(loads) > 0.7


def test_a_set_has_a_form_for_each_program() -> None:
    drawn = served((2, 10, task("a", 1, 5, 4, offset=3)))
    assert drawn.driver() == (
        "server server-0 2000000 10000000 fifo\ntask a 1000000 5000000 4000000 3000000 0 server-0\n"
    )
    assert drawn.command().splitlines() == [
        "taskset:",
        "  - name: a",
        "    iat: 5000000",
        "    deadline: 4000000",
        "    ph: 3000000",
        "    qs: 1000000000",
        "    startcpu: 0",
        "    cbs_runtime: 2000000",
        "    cbs_period: 10000000",
        "    code:",
        "      - fixed(1000000,work)",
    ]


def test_what_is_no_build_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match="no build"):
        Partsim.found(tmp_path, tmp_path / "out")
    (tmp_path / "CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/nowhere\n")
    with pytest.raises(UnusableError, match="rtsim is missing"):
        Partsim.found(tmp_path, tmp_path / "out")
