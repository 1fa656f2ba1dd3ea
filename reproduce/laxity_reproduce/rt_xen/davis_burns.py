"""The test of Davis and Burns, "Hierarchical Fixed Priority Pre-emptive Scheduling" (RTSS 2005).

RT-Xen (EMSOFT 2011, table 4) applied it. It is written here to the letter: all tasks are unbound,
scheduling costs nothing, and there is no quantum. Times are in ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity.resolved_schema import Domain, ResolvedHost

STEPS_MAX = 100_000
"""Steps of a fixed-point iteration, after which a task is taken for unschedulable."""


@dataclass(frozen=True)
class Task:
    """A task of the paper's model: no offset, no jitter, and a deadline of at most its period."""

    cost_ns: int
    period_ns: int
    deadline_ns: int


@dataclass(frozen=True)
class Server:
    """A server with its application's tasks, by rank, the highest first."""

    budget_ns: int
    period_ns: int
    jitter_ns: int
    """Jitter with which the server disturbs those below: the period less the budget for a
    deferrable server, none for a periodic one. The paper treats polling and sporadic servers as
    periodic ones."""
    tasks: tuple[Task, ...]


def servers_of(host: ResolvedHost) -> list[Server]:
    """The servers of a resolved host, by priority, the highest first.

    The host has one CPU, a fixed-priority server for each domain, and rate-monotonic guests.
    """
    domains = sorted(host["domains"], key=lambda domain: domain["parameters"]["priority"])
    return [_server(domain, host["policy"]) for domain in domains]


def _server(domain: Domain, policy: str) -> Server:
    budget_ns, period_ns = (domain["parameters"][key] for key in ("budget_ns", "period_ns"))
    tasks = sorted(domain["tasks"], key=lambda task: task["period_ns"])
    return Server(
        budget_ns,
        period_ns,
        period_ns - budget_ns if policy == "deferrable" else 0,
        tuple(Task(each["cost_ns"], each["period_ns"], each["deadline_ns"]) for each in tasks),
    )


def servers_hold(servers: Sequence[Server]) -> bool:
    """Whether every server gets its whole budget within its period."""
    return all(_holds(server, servers[:number]) for number, server in enumerate(servers))


def _holds(server: Server, above: Sequence[Server]) -> bool:
    window_ns = server.budget_ns
    while True:
        next_ns = server.budget_ns + _interference_ns(above, window_ns)
        if next_ns > server.period_ns:
            return False
        if next_ns == window_ns:
            return True
        window_ns = next_ns


def tasks_hold(servers: Sequence[Server]) -> bool:
    """Whether every task of every server meets its deadline, if all servers hold."""
    return all(
        response_ns(servers[: number + 1], rank) is not None
        for number, server in enumerate(servers)
        for rank in range(len(server.tasks))
    )


def response_ns(servers: Sequence[Server], rank: int) -> int | None:
    """The worst-case response time of a task of the last server; None if beyond the deadline.

    The busy period begins when the server's budget is exhausted as early as can be and is
    replenished a period after that exhaustion began: tasks have a jitter of the period less the
    budget against their server's release. It lasts for the load, a gap of period less budget for
    each whole budget before the last, and the interference of the servers above from the last
    release on.
    """
    *above, server = servers
    task, higher = server.tasks[rank], server.tasks[:rank]
    gap_ns = server.period_ns - server.budget_ns
    window_ns = 0
    for _ in range(STEPS_MAX):
        load_ns = task.cost_ns + sum(
            _ceiling(window_ns + gap_ns, other.period_ns) * other.cost_ns for other in higher
        )
        periods_before = _ceiling(load_ns, server.budget_ns) - 1
        last_ns = max(0, window_ns - periods_before * server.period_ns)
        next_ns = load_ns + periods_before * gap_ns + _interference_ns(above, last_ns)
        if next_ns + gap_ns > task.deadline_ns:
            return None
        if next_ns == window_ns:
            return next_ns + gap_ns
        window_ns = next_ns
    return None


def _interference_ns(above: Sequence[Server], window_ns: int) -> int:
    return sum(
        _ceiling(window_ns + other.jitter_ns, other.period_ns) * other.budget_ns for other in above
    )


def _ceiling(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
