"""The table of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from laxity import substrates
from laxity.tables.layout import heading, name_column, plain_table, profiles, right
from laxity.tables.network import network_lines
from laxity.text import NOT_MEASURED, NOTHING, bare, number, percent, time

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from laxity.results.run import Run
    from laxity.results.schema import DomainResult, Overhead, TaskResult


def lost_to_scheduling(overhead: Overhead) -> str:
    """The part of the CPUs' time that scheduling took, or that it was not measured."""
    return NOT_MEASURED if overhead.loss_ratio is None else percent(overhead.loss_ratio)


def run_table(result: Run) -> RenderableType:
    """Domains and their tasks, what scheduling cost, how fast it ran."""
    lines: list[RenderableType] = [
        heading(
            result.policy, f"on {result.substrate}, {time(result.duration_ns)}, seed {result.seed}"
        ),
        *task_lines(result),
        *([] if result.network is None else network_lines(result, result.network)),
        *profiles(result.profiles),
        *cost_and_speed(result),
    ]
    unfinished = sum(task.unfinished for domain in result.domains for task in domain.tasks)
    if unfinished:
        jobs = number(unfinished, "missed job was", "missed jobs were")
        lines.append(f"{jobs} not complete at the end; the times count what had passed by then")
    near = rounded(result)
    if near is not None:
        lines.append(near)
    return Group(*lines)


def task_lines(result: Run) -> list[RenderableType]:
    """Domains, their tasks, and whether deadlines were met; nothing of hosts with packets alone."""
    has_packets = result.network is not None or result.telephony is not None
    if has_packets and not any(domain.tasks for domain in result.domains):
        return []
    legend = "p50, p99, max: response times. late by: the longest time after a deadline"
    return ["", _run_table(result), Text(legend, "dim"), "", _misses(result)]


def rounded(result: Run) -> str | None:
    """A sentence on the tasks whose quantiles are not exact; None if all are exact."""
    tasks = [task for domain in result.domains for task in domain.tasks]
    errors = [task.relative_error for task in tasks if task.relative_error is not None]
    if not errors:
        return None
    of = "all tasks" if len(errors) == len(tasks) else f"{len(errors):,} of {len(tasks):,} tasks"
    error = percent(max(errors))
    return f"p50 and p99 of {of} are rounded up by {error} at most, as they have very many jobs"


def cost_and_speed(result: Run) -> list[str]:
    """What scheduling cost, and how fast the run was."""
    machine = [f"Emulated machine: {result.machine.fingerprint}"] if result.machine else []
    return [f"Scheduling: {_scheduling(result.overhead)}", _engine(result), *machine]


def _scheduling(overhead: Overhead) -> str:
    if overhead.schedule_calls is None or overhead.context_switches is None:
        return NOT_MEASURED
    decisions = number(overhead.schedule_calls, "decision")
    switches = number(overhead.context_switches, "switch", "switches")
    if (
        overhead.schedule_ns is None
        or overhead.context_switch_ns is None
        or overhead.loss_ratio is None
    ):
        cost = f"cost {NOT_MEASURED}"
    elif overhead.loss_ratio == 0:
        cost = "at no cost"
    else:
        cost_ns = overhead.schedule_ns + overhead.context_switch_ns
        cost = f"{time(cost_ns)}, {percent(overhead.loss_ratio)} of the CPU"
    return f"{decisions}, {switches}, {cost}"


def _engine(result: Run) -> str:
    wall_ns = result.engine.wall_ns
    if not substrates.of(result.substrate).is_model:
        return f"Wall-clock time: {time(wall_ns)}, preparation and collection included"
    events = number(result.engine.events, "event")
    speed = result.duration_ns / max(wall_ns, 1)
    return f"Simulation: {events} in {time(wall_ns)}, {speed:,.0f} times real time"


def _run_table(result: Run) -> Table:
    table = plain_table(
        name_column("task"),
        *right("jobs", "missed", "miss %", "CPU %", "p50", "p99", "max", "late by"),
    )
    for domain in result.domains:
        share = domain.cpu_ns / result.duration_ns
        table.add_row(Text(domain.name), *_jobs(domain), bare(share), *([""] * 4), style="bold")
        for task in domain.tasks:
            response, late = task.response_ns, task.lateness_ns.max
            times = (time(ns) for ns in (response.p50, response.p99, response.max, late))
            table.add_row(Text(f"  {task.name}"), *_jobs(task), "", *times)
    return table


def _jobs(part: DomainResult | TaskResult) -> tuple[RenderableType, ...]:
    style = "red" if part.missed else ""
    if part.jobs == 0:
        return ("0", "0", NOTHING)
    return (
        f"{part.jobs:,}",
        Text(f"{part.missed:,}", style),
        Text(bare(part.miss_ratio), style),
    )


def _misses(result: Run) -> Text:
    if result.jobs == 0:
        return Text("No deadline fell within the run", "bold yellow")
    if result.missed == 0:
        return Text(f"All {number(result.jobs, 'job')} met their deadlines", "bold green")
    return Text(
        f"{result.missed:,} of {number(result.jobs, 'job')} missed their deadlines, "
        f"{percent(result.miss_ratio)}",
        "bold red",
    )
