"""The test of Davis and Burns, against Laxity's own analysis where both look at the same."""

from __future__ import annotations

import laxity
from hypothesis import assume, given, settings
from hypothesis import strategies as some
from laxity_reproduce.rt_xen import davis_burns

MS = 1_000_000

SHAPES = some.lists(some.tuples(some.integers(1, 4), some.integers(8, 24)), min_size=1, max_size=3)
"""Budgets and periods of servers in ms, the highest priority first."""

TASKS = some.lists(
    some.tuples(some.integers(1, 3), some.integers(10, 59), some.integers(0, 7)),
    min_size=1,
    max_size=3,
)
"""Costs and periods in ms, and how much shorter deadlines are."""


def host(policy: str, shapes: list[tuple[int, int]], tasks: list[tuple[int, int, int]]) -> str:
    """A host whose last server has the tasks; none arrives with a replenishment.

    The others use all of their budgets.
    """
    lines = ['duration = "1 s"', "[host]", "cpus = 1", f'policy = "{policy}"']
    for number, (budget, period) in enumerate(shapes, start=1):
        lines += ["[[domain]]", f'name = "d{number}"', f"priority = {number}"]
        lines += [f'budget = "{budget} ms"', f'period = "{period} ms"']
        if number < len(shapes):
            lines.append('workload = { kind = "cpu-bound" }')
    lines.append("tasks = [")
    lines += [
        f'{{ name = "t{number}", cost = "{cost} ms", period = "{period} ms",'
        f' deadline = "{period - less} ms", offset = "1 ns" }},'
        for number, (cost, period, less) in enumerate(sorted(tasks, key=lambda each: each[1]))
    ]
    return "\n".join([*lines, "]"])


@settings(max_examples=200, deadline=None)
@given(shapes=SHAPES, tasks=TASKS, policy=some.sampled_from(["deferrable", "periodic"]))
def test_bounds_of_unbound_tasks_are_no_longer_than_the_papers(
    shapes: list[tuple[int, int]], tasks: list[tuple[int, int, int]], policy: str
) -> None:
    """Where the servers are schedulable and differ in priority; under periodic they are the same.

    Under deferrable the test does not count when budgets come, nor what was used before.
    """
    file = laxity.Host.parse(host(policy, shapes, tasks))
    servers = davis_burns.servers_of(file.resolved())
    assume(davis_burns.servers_hold(servers))
    found = file.check().domains[-1].tasks
    for rank, task in enumerate(found):
        ours = task.bound_ns if task.guaranteed else None
        published = davis_burns.response_ns(servers, rank)
        if policy == "periodic":
            assert ours == published
        elif published is not None:
            assert ours is not None
            assert ours <= published
    all_hold = all(task.guaranteed for task in found)
    assert all_hold >= davis_burns.tasks_hold(servers)
    assert policy == "deferrable" or all_hold == davis_burns.tasks_hold(servers)


def test_a_server_that_gets_too_little() -> None:
    full = davis_burns.Server(6 * MS, 10 * MS, 0, ())
    assert davis_burns.servers_hold([full])
    assert not davis_burns.servers_hold([full, full])
