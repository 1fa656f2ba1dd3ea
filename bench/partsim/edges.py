"""Where the rules of the two simulators differ, and which sets come there.

All differences are about things that happen at once. They are found in Laxity's run alone, without
a look at what PARTSim does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import TYPE_CHECKING, Any

from bench.partsim.sets import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.partsim.compare import Outcome
    from bench.partsim.sets import Server, Set, Task


class Edge(Enum):
    """A difference of rules."""

    JOBS = "Two jobs that wait at the same time have the same deadline"
    SERVERS = "Two servers of the same deadline become ready at the same time"
    ZERO_LAG = "A server wakes at its 0-lag time, or less than two ticks before it"
    PREEMPTED = "A server is preempted at the instant at which one of its jobs follows another"


def edges(drawn: Set, jobs: dict[str, list[Outcome]], records: list[dict[str, Any]]) -> list[Edge]:
    """Those that a set comes to, in the order of the enumeration."""
    found = []
    if drawn.rule in {Rule.EDF, Rule.CBS_EDF} and any(
        _equal_jobs(server.tasks, jobs) for server in drawn.servers
    ):
        found.append(Edge.JOBS)
    if drawn.rule.servers:
        replays = [_replayed(server, records) for server in drawn.servers]
        if any(one.ready & other.ready for one, other in combinations(replays, 2)):
            found.append(Edge.SERVERS)
        if any(replay.zero_lag for replay in replays):
            found.append(Edge.ZERO_LAG)
        if any(_preempted_at_end(server, jobs, records) for server in drawn.servers):
            found.append(Edge.PREEMPTED)
    return found


def _equal_jobs(tasks: tuple[Task, ...], jobs: dict[str, list[Outcome]]) -> bool:
    by_deadline: dict[int, list[tuple[str, Outcome]]] = {}
    for task in tasks:
        for job in jobs[task.name]:
            deadline = job.arrival_ns + task.deadline_ns
            by_deadline.setdefault(deadline, []).append((task.name, job))
    return any(
        one != other
        and (of_one.end_ns is None or other_job.arrival_ns < of_one.end_ns)
        and (other_job.end_ns is None or of_one.arrival_ns < other_job.end_ns)
        for waiting in by_deadline.values()
        for (one, of_one), (other, other_job) in combinations(waiting, 2)
    )


@dataclass
class _Replay:
    ready: set[tuple[int, int]]
    """Instants at which the server may become ready, each with its deadline then, in ns."""
    zero_lag: bool


def _replayed(server: Server, records: list[dict[str, Any]]) -> _Replay:
    """What a server's deadlines are, by the rules of Linux's SCHED_DEADLINE."""
    found = _Replay(set(), zero_lag=False)
    deadline_ns, left_ns, throttled = 0, 0, False
    for now_ns, kind, argument, renewed in _of_server(server, records):
        if kind == "wake" and not throttled:
            if renewed:
                deadline_ns = now_ns + server.period_ns
            else:
                # The 0-lag time is d - c * P / Q. PARTSim's is in whole ticks, and comes from a
                # floating-point number, which may be the least bit too small.
                ahead = (deadline_ns - now_ns) * server.budget_ns - left_ns * server.period_ns
                found.zero_lag |= ahead < 2 * server.budget_ns
            found.ready.add((now_ns, deadline_ns))
        elif kind == "exhaust":
            left_ns, throttled = 0, True
        elif kind == "budget":
            left_ns = argument
        elif kind == "replenish":
            if throttled:
                deadline_ns += server.period_ns
                found.ready.add((now_ns, deadline_ns))
            left_ns, throttled = argument, False
    return found


def _of_server(
    server: Server, records: list[dict[str, Any]]
) -> Iterator[tuple[int, str, int, bool]]:
    """Time, kind and argument of its records, and whether it is replenished right then."""
    own = [record for record in records if record["domain"] == server.name]
    own = [record for record in own if record["kind"] in {"wake", "exhaust", "budget", "replenish"}]
    for at, record in enumerate(own):
        following = own[at + 1] if at + 1 < len(own) else record
        renewed = following["kind"] == "replenish" and following["time_ns"] == record["time_ns"]
        yield record["time_ns"], record["kind"], record["argument"], renewed


def _preempted_at_end(
    server: Server, jobs: dict[str, list[Outcome]], records: list[dict[str, Any]]
) -> bool:
    of_tasks: dict[int, str] = {}
    preempted: set[int] = set()
    exhausted: set[int] = set()
    for record in records:
        if record["domain"] != server.name:
            continue
        if record["kind"] == "complete":
            of_tasks[record["time_ns"]] = record["task"]
        elif record["kind"] == "stop" and record["argument"] == 1:
            preempted.add(record["time_ns"])
        elif record["kind"] == "exhaust":
            exhausted.add(record["time_ns"])
    return any(
        not any(
            _has_work(jobs[task.name], now_ns)
            for task in server.tasks
            if task.name != of_tasks[now_ns]
        )
        for now_ns in (of_tasks.keys() & preempted) - exhausted
    )


def _has_work(jobs: list[Outcome], now_ns: int) -> bool:
    return any(
        job.arrival_ns <= now_ns and (job.end_ns is None or job.end_ns > now_ns) for job in jobs
    )
