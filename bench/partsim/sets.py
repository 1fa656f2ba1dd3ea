"""Task sets, drawn from seeds, and what each simulator reads of them. A tick is a nanosecond."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

DURATION_NS = 2_000_000_000
"""The length of each run; PARTSim's command takes less than 2^31 ticks."""

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000

ALONE = ("deferrable", "periodic", "credit", "sedf")
"""Policies under which a domain that owns the CPU never waits, as in python/tests/test_simso.py."""

LOADS = (0.4, 1.2)
"""Bounds of the load of tasks: in some sets a task falls ever farther behind."""
BANDWIDTHS = (0.4, 0.94)
"""Bounds of the servers' share of the CPU: Linux admits 0.95."""


class Rule(Enum):
    """What decides which job runs."""

    GUEST_PRIORITY = "fixed priority, in a guest"
    HOST_PRIORITY = "fixed priority, of VCPUs"
    EDF = "EDF"
    CBS = "CBS, a task in each server"
    CBS_EDF = "CBS, EDF in each server"
    CBS_PRIORITY = "CBS, fixed priority in each server"

    @property
    def servers(self) -> bool:
        """Tasks are in servers."""
        return self in {Rule.CBS, Rule.CBS_EDF, Rule.CBS_PRIORITY}

    @property
    def scheduler(self) -> str:
        """The scheduler of PARTSim's kernel."""
        return "fp" if self in {Rule.GUEST_PRIORITY, Rule.HOST_PRIORITY} else "edf"

    @property
    def for_command(self) -> bool:
        """PARTSim's command can run it: it sets no priorities, and has a task in each server."""
        return self in {Rule.EDF, Rule.CBS}


@dataclass(frozen=True)
class Task:
    """A periodic task."""

    name: str
    cost_ns: int
    period_ns: int
    deadline_ns: int
    offset_ns: int
    priority: int
    """The smaller comes first."""


@dataclass(frozen=True)
class Server:
    """The tasks that share a budget, or a task without one."""

    name: str
    budget_ns: int
    period_ns: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Set:
    """What both simulators run."""

    rule: Rule
    policy: str
    """Laxity's."""
    servers: tuple[Server, ...]
    duration_ns: int = DURATION_NS

    @property
    def tasks(self) -> list[Task]:
        """All of them."""
        return [task for server in self.servers for task in server.tasks]

    def host(self) -> str:
        """The host file."""
        lines = [f'duration = "{self.duration_ns} ns"', "[host]", "cpus = 1"]
        lines += [f'policy = "{self.policy}"']
        if self.policy == "deadline":
            lines += ['jiffy = "0 ns"']  # budgets end exactly when they are used up
        inside = "edf" if self.rule in {Rule.EDF, Rule.CBS_EDF} else "rate-monotonic"
        for server in self.servers:
            lines += ["[[domain]]", f'name = "{server.name}"', f'scheduler = "{inside}"']
            if self.policy == "fifo":
                lines += [f"rt-priority = {99 - server.tasks[0].priority}"]
            else:
                lines += [f'budget = "{server.budget_ns} ns"', f'period = "{server.period_ns} ns"']
            for task in server.tasks:
                lines += ["[[domain.tasks]]", f'name = "{task.name}"']
                lines += [
                    f'{key} = "{value} ns"'
                    for key, value in (
                        ("cost", task.cost_ns),
                        ("period", task.period_ns),
                        ("deadline", task.deadline_ns),
                        ("offset", task.offset_ns),
                    )
                ]
        return "\n".join([*lines, ""])

    def driver(self) -> str:
        """What our program beside PARTSim reads (driver.cpp)."""
        inside = {Rule.CBS_EDF: "edf", Rule.CBS_PRIORITY: "fp"}.get(self.rule, "fifo")
        lines = []
        for server in self.servers:
            in_server = "-"
            if self.rule.servers:
                in_server = server.name
                lines += [f"server {server.name} {server.budget_ns} {server.period_ns} {inside}"]
            lines += [
                f"task {task.name} {task.cost_ns} {task.period_ns} {task.deadline_ns}"
                f" {task.offset_ns} {task.priority} {in_server}"
                for task in server.tasks
            ]
        # Servers come first.
        return "\n".join([*sorted(lines, key=lambda line: line.startswith("task")), ""])

    def command(self) -> str:
        """What PARTSim's own command reads, in the part of YAML that it knows."""
        lines = ["taskset:"]
        for server in self.servers:
            for task in server.tasks:
                lines += [
                    f"  - name: {task.name}",
                    f"    iat: {task.period_ns}",
                    f"    deadline: {task.deadline_ns}",
                    f"    ph: {task.offset_ns}",
                    "    qs: 1000000000",
                    "    startcpu: 0",
                ]
                if self.rule.servers:
                    lines += [f"    cbs_runtime: {server.budget_ns}"]
                    lines += [f"    cbs_period: {server.period_ns}"]
                lines += ["    code:", f"      - fixed({task.cost_ns},work)"]
        return "\n".join([*lines, ""])


SYSTEM = """\
cpu_islands:
  - name: island
    numcpus: 1
    kernel:
      scheduler: {scheduler}
      task_placement: partitioned
    volts: [1]
    freqs: [1000]
    base_freq: 1000
    power_model: plain
    speed_model: plain
power_models:
  - name: plain
    type: table_based
    filename: plain.csv
"""
"""One CPU, on which a tick of work takes a tick, for PARTSim."""

SPEEDS = """\
model,freq,workload,power,speed
plain,1000,work,1,1
plain,1000,idle,1,1
"""
"""The file `plain.csv` of SYSTEM."""


def draw(rule: Rule, seed: int, unit_ns: int = 1) -> Set:
    """A set for a rule, in which all times are multiples of `unit_ns`.

    With a unit of 1 ns no two tasks have the same period, and hardly anything happens at once. With
    coarse units much does.
    """
    choose = random.Random(f"{rule.name} {seed} {unit_ns}")  # noqa: S311
    if rule.servers:
        most = 1 if rule is Rule.CBS else 4
        return Set(rule, "deadline", tuple(_servers(choose, unit_ns, most)))
    tasks = _tasks(choose, choose.randint(2, 12), choose.uniform(*LOADS), unit_ns)
    if rule is not Rule.HOST_PRIORITY:
        whole = Server("all", 1_000_000_000, 1_000_000_000, tuple(tasks))
        return Set(rule, ALONE[seed % len(ALONE)], (whole,))
    # Priorities need not follow from periods here.
    order = choose.sample(range(len(tasks)), len(tasks))
    return Set(
        rule,
        "fifo",
        tuple(
            Server(f"of-{task.name}", 0, 0, (_with_priority(task, priority),))
            for task, priority in zip(tasks, order, strict=True)
        ),
    )


def _with_priority(task: Task, priority: int) -> Task:
    return Task(task.name, task.cost_ns, task.period_ns, task.deadline_ns, task.offset_ns, priority)


def _tasks(
    choose: random.Random, count: int, load: float, unit_ns: int, first: int = 0
) -> list[Task]:
    """Tasks of different periods; a priority is the place among these: rate-monotonic."""
    drawn: list[tuple[int, int]] = []
    while len(drawn) < count:
        cost_ns = _multiple(choose.randint(100_000, 10_000_000), unit_ns)
        period_ns = _multiple(round(cost_ns * count / load * choose.uniform(0.5, 2)), unit_ns)
        period_ns = max(period_ns, cost_ns)
        if all(period_ns != other for _, other in drawn):
            drawn.append((cost_ns, period_ns))
    periods = sorted(period_ns for _, period_ns in drawn)
    return [
        Task(
            name=f"task-{first + number}",
            cost_ns=cost_ns,
            period_ns=period_ns,
            deadline_ns=choose.choice(
                [period_ns, _multiple(choose.randint(cost_ns, period_ns), unit_ns)]
            ),
            offset_ns=choose.choice([0, _multiple(choose.randint(0, period_ns), unit_ns)]),
            priority=periods.index(period_ns),
        )
        for number, (cost_ns, period_ns) in enumerate(drawn)
    ]


def _servers(choose: random.Random, unit_ns: int, most_tasks: int) -> list[Server]:
    """Servers, each with tasks that may need more than its budget, less, or exactly as much."""
    count = choose.randint(2, 6)
    shares = [choose.uniform(0.2, 1) for _ in range(count)]
    scale = choose.uniform(*BANDWIDTHS) / sum(shares)
    servers: list[Server] = []
    first = 0
    for number, share in enumerate(shares):
        budget_ns = _multiple(choose.randint(200_000, 5_000_000), unit_ns)
        # A longer period is a smaller bandwidth: rounding up keeps the sum below the bound.
        period_ns = -(-round(budget_ns / (share * scale)) // unit_ns) * unit_ns
        tasks = _tasks(
            choose,
            choose.randint(1, most_tasks),
            share * scale * choose.uniform(*LOADS),
            unit_ns,
            first,
        )
        if most_tasks == 1 and choose.random() < 1 / 4:
            tasks = [_filling(choose, tasks[0], budget_ns, period_ns)]
        servers.append(Server(f"server-{number}", budget_ns, period_ns, tuple(tasks)))
        first += len(tasks)
    return servers


def _filling(choose: random.Random, task: Task, budget_ns: int, period_ns: int) -> Task:
    """The task with a cost of exactly the budget: its jobs end when the server has none left."""
    period_ns *= choose.choice([1, 1, 2])
    return Task(task.name, budget_ns, period_ns, period_ns, task.offset_ns, task.priority)


def _multiple(time_ns: int, unit_ns: int) -> int:
    """The nearest one, and at least one."""
    return max(round(time_ns / unit_ns), 1) * unit_ns


SPEED_TASKS = 25
SPEED_LOAD = 0.7
SPEED_DURATION_NS = 300_000_000_000


def for_speed(rule: Rule) -> Set:
    """A larger set, for as long as `examples/flat.toml` runs."""
    tasks = tuple(_tasks(random.Random(0), SPEED_TASKS, SPEED_LOAD, 1))  # noqa: S311
    if not rule.servers:
        whole = Server("all", 1_000_000_000, 1_000_000_000, tasks)
        return Set(rule, "deferrable", (whole,), SPEED_DURATION_NS)
    # Each job takes its server two periods. Servers have 9 / 8 of what their tasks need.
    servers = tuple(
        Server(f"of-{task.name}", task.cost_ns * 9 // 16, task.period_ns // 2, (task,))
        for task in tasks
    )
    return Set(rule, "deadline", servers, SPEED_DURATION_NS)
