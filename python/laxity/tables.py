"""The tables that people see in a terminal, from results. 80 columns are enough for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from laxity.lab.fidelity import Fidelity
    from laxity.results import Budget, Check, Comparison, DomainResult, Run, TaskResult
    from laxity.sweep import Mean, Point, Sweep

NOTHING = "-"
"""Where there is no value."""

UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))

WIDTH = 80
"""Of the narrowest terminal that matters."""

GAP = 2
"""Between columns."""

MEAN_WIDTH = len("0.00±0.00")

NAMES_MAX = 3
"""Of tasks for which one reason holds; more are only counted."""


def time(ns: int | None, *, digits: int = 3, up: bool = False) -> str:
    """So many digits and the unit that reads best; with `up` never less than it is."""
    if ns is None:
        return NOTHING
    if ns == 0:
        return "0"
    unit, unit_ns = next(unit for unit in UNITS if abs(ns) >= unit[1])
    decimals = max(0, digits - len(str(abs(ns) // unit_ns)))
    step_ns = max(1, unit_ns // 10**decimals)
    steps = -(-ns // step_ns) if up else round(ns / step_ns)
    text = f"{steps * step_ns / unit_ns:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def percent(ratio: float) -> str:
    """Three digits; 0 % and 100 % only where it is exactly so."""
    value = 100 * ratio
    if ratio in (0, 1):
        return f"{value:.0f} %"
    if value < 0.01:  # noqa: PLR2004, what two decimals show.
        return "<0.01 %"
    if 99.9 < value < 100:  # noqa: PLR2004, and one.
        return ">99.9 %"
    return f"{value:.{max(0, 2 - max(0, math.floor(math.log10(value))))}f} %"


def number(value: int, word: str, words: str | None = None) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{value:,} {word if value == 1 else words or word + 's'}"


def run(result: Run) -> RenderableType:
    """Domains and their tasks, what scheduling cost, how fast it ran."""
    lines: list[RenderableType] = [
        heading(
            result.policy, f"on {result.substrate}, {time(result.duration_ns)}, seed {result.seed}"
        ),
        "",
        _run_table(result),
        Text("p50, p99, max: response times. late by: the most after a deadline", "dim"),
        "",
        _misses(result),
        *cost_and_speed(result),
    ]
    unfinished = sum(task.unfinished for domain in result.domains for task in domain.tasks)
    if unfinished:
        jobs = number(unfinished, "missed job was", "missed jobs were")
        lines.append(f"{jobs} not complete at the end and counted with the time so far")
    near = rounded(result)
    if near is not None:
        lines.append(near)
    return Group(*lines)


def rounded(result: Run) -> str | None:
    """Whose quantiles are not exact, and by how much; None if all are."""
    tasks = [task for domain in result.domains for task in domain.tasks]
    errors = [task.relative_error for task in tasks if task.relative_error is not None]
    if not errors:
        return None
    of = "all tasks" if len(errors) == len(tasks) else f"{len(errors):,} of {len(tasks):,} tasks"
    return f"p50 and p99 of {of}, which have very many jobs, are up to {percent(max(errors))} long"


def cost_and_speed(result: Run) -> list[str]:
    """What scheduling cost, and how fast the run was."""
    overhead = result.overhead
    decisions = number(overhead.schedule_calls, "decision")
    switches = number(overhead.context_switches, "switch", "switches")
    cost_ns = overhead.schedule_ns + overhead.context_switch_ns
    cost = (
        "at no cost"
        if cost_ns == 0
        else f"{time(cost_ns)}, {percent(overhead.loss_ratio)} of the CPU"
    )
    machine = [f"Emulated machine: {result.machine.fingerprint}"] if result.machine else []
    return [f"Scheduling: {decisions}, {switches}, {cost}", _engine(result), *machine]


def _engine(result: Run) -> str:
    wall_ns = result.engine.wall_ns
    if result.substrate != "sim":
        return f"It took {time(wall_ns)} with all that goes before and after"
    events = number(result.engine.events, "event")
    speed = result.duration_ns / max(wall_ns, 1)
    return f"Simulation: {events} in {time(wall_ns)}, {speed:,.0f} times real time"


def _run_table(result: Run) -> Table:
    table = plain_table(
        _name_column("task"),
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


def check(result: Check, budgets: Sequence[Budget] | None = None) -> RenderableType:
    """A bound for each task, the reasons where there is none, the verdict."""
    table = plain_table(
        _name_column("task"),
        *right("deadline", "bound"),
        Column("guaranteed", no_wrap=True),
        Column("test", overflow="fold"),
    )
    for domain in result.domains:
        table.add_row(
            Text(domain.name), "", "", "", "" if domain.tasks else "(no tasks)", style="bold"
        )
        for task in domain.tasks:
            table.add_row(
                Text(f"  {task.name}"),
                time(task.deadline_ns, digits=4),
                time(task.bound_ns, digits=4, up=True),
                Text("yes", "green") if task.guaranteed else Text("no", "red"),
                # The policy stands above the table.
                Text((task.test or NOTHING).replace(f" {result.policy}", "")),
            )
    lines: list[RenderableType] = [
        heading(result.policy, "by analysis"),
        "",
        table,
        "",
        *_reasons(result),
    ]
    if budgets is not None:
        what = "smallest: the least that, given in every period, meets all deadlines"
        lines += [_budget_table(budgets), Text(what, "dim"), ""]
    tasks = [task for domain in result.domains for task in domain.tasks]
    sure = sum(task.guaranteed for task in tasks)
    if result.is_schedulable:
        lines.append(Text(f"Schedulable: {_all_guaranteed(len(tasks))}", "bold green"))
    else:
        lines.append(
            Text(
                f"Not guaranteed: {len(tasks) - sure:,} of {number(len(tasks), 'task')}", "bold red"
            )
        )
    return Group(*lines)


def _all_guaranteed(tasks: int) -> str:
    if tasks == 0:
        return "there are no deadlines"
    return (
        "every deadline of the task holds"
        if tasks == 1
        else f"every deadline of all {tasks:,} tasks holds"
    )


def _reasons(result: Check) -> list[RenderableType]:
    """Each reason once for all tasks of a domain that share it."""
    lines: list[RenderableType] = []
    for domain in result.domains:
        by_reason: dict[str, list[str]] = {}
        for task in domain.tasks:
            if task.why is not None:
                by_reason.setdefault(task.why, []).append(task.name)
        for reason, names in by_reason.items():
            whom = ", ".join(names) if len(names) <= NAMES_MAX else f"{len(names)} tasks"
            lines.append(Text.assemble((f"{domain.name}, {whom}: ", "bold"), reason))
    return [*lines, ""] if lines else []


def _budget_table(budgets: Sequence[Budget]) -> Table:
    table = plain_table(_name_column("domain"), *right("period", "budget", "smallest", "CPU %"))
    for budget in budgets:
        smallest = (
            Text("none is enough", "red")
            if budget.budget_ns is None
            else Text(
                time(budget.budget_ns, digits=4, up=True),
                "red" if budget.budget_ns > budget.given_ns else "",
            )
        )
        share = (
            budget.budget_ns / budget.period_ns if budget.budget_ns and budget.period_ns else None
        )
        table.add_row(
            Text(budget.name),
            time(budget.period_ns) if budget.period_ns else NOTHING,
            time(budget.given_ns) if budget.given_ns else NOTHING,
            smallest,
            NOTHING if share is None else bare(share),
        )
    return table


def comparison(result: Comparison) -> RenderableType:
    """Miss ratios of each domain, and what scheduling cost: a column for each policy."""
    first = result.runs[0]
    table = plain_table(_name_column("miss %"), *right(*(run.policy for run in result.runs)))
    for index, domain in enumerate(first.domains):
        table.add_row(Text(domain.name), *(_miss_cell(run.domains[index]) for run in result.runs))
    table.add_section()
    table.add_row("all domains", *(_miss_cell(run) for run in result.runs), style="bold")
    table.add_section()
    table.add_row("decisions", *(f"{run.overhead.schedule_calls:,}" for run in result.runs))
    table.add_row("switches", *(f"{run.overhead.context_switches:,}" for run in result.runs))
    table.add_row("CPU lost %", *(bare(run.overhead.loss_ratio) for run in result.runs))
    jobs = number(first.jobs, "job")
    title = f"on {first.substrate}, {time(first.duration_ns)}, seed {first.seed}, {jobs}"
    return Group(heading(number(len(result.runs), "policy", "policies"), title), "", table)


def fidelity(result: Fidelity) -> RenderableType:
    """Miss ratios of each domain on both, and how much of the time both run the same."""
    agreement = result.agreement
    table = plain_table(
        _name_column("miss %"), *right("jobs", "sim", "xen", "difference", "CPU % sim", "xen")
    )
    pairs = [*zip(result.sim.domains, result.xen.domains, strict=True)]
    for sim, real in pairs:
        points = 100 * (real.miss_ratio - sim.miss_ratio)
        shares = (bare(part.cpu_ns / result.sim.duration_ns) for part in (sim, real))
        difference = f"{points:+.2f}" if points else "0"
        cells = _miss_cell(sim), _miss_cell(real), difference
        table.add_row(Text(sim.name), f"{sim.jobs:,}", *cells, *shares)
    quantiles = agreement["completion_difference_ns"]
    late = ", ".join(f"{name} {time(quantiles[name])}" for name in ("p50", "p90", "p99", "max"))
    shift = f"{percent(agreement['best_ratio'])} if shifted by {time(agreement['best_shift_ns'])}"
    run = result.xen
    return Group(
        heading(run.policy, f"on sim and xen, {time(run.duration_ns)}, seed {run.seed}"),
        "",
        table,
        "",
        f"Both run the same VCPU {percent(agreement['same_ratio'])} of the time, {shift}",
        f"Jobs complete apart by: {late}",
        f"Switches: {result.sim.overhead.context_switches:,} on sim, "
        f"{result.xen.overhead.context_switches:,} on xen",
    )


def _miss_cell(part: Run | DomainResult) -> Text:
    if part.jobs == 0:
        return Text(NOTHING)
    return Text(bare(part.miss_ratio), "red" if part.missed else "green")


def sweep(result: Sweep) -> RenderableType:
    """Mean miss ratios of all jobs: a row for each point, a column for each policy if these fit."""
    points = result.points()
    keys = [axis.key + (f", {axis.unit}" if axis.unit else "") for axis in result.axes]
    policies = list(dict.fromkeys(point.policy for point in points))
    is_policy_swept = any(axis.key == "host.policy" for axis in result.axes)
    widths = [*map(len, keys), *(max(len(policy), MEAN_WIDTH) for policy in policies)]
    width = sum(widths) + GAP * (len(widths) - 1)
    if not is_policy_swept and len(policies) > 1 and width <= WIDTH:
        table = plain_table(*right(*keys, *policies))
        for start in range(0, len(points), len(policies)):
            of_row = points[start : start + len(policies)]
            table.add_row(
                *values_of(result, of_row[0]), *(mean_cell(point.miss_ratio) for point in of_row)
            )
    else:
        names = [] if is_policy_swept else ["policy"]
        table = plain_table(
            *(Column(key, justify="right", overflow="fold") for key in keys),
            *right(*names, "miss %"),
        )
        for point in points:
            policy = [] if is_policy_swept else [point.policy]
            table.add_row(*values_of(result, point), *policy, mean_cell(point.miss_ratio))
    seeds = points[0].seeds
    sure = "" if seeds == 1 else f": mean of {seeds} seeds ± 95 % confidence"
    return Group(heading("miss ratio", f"of all jobs in %{sure}"), "", table)


def values_of(result: Sweep, point: Point) -> list[str]:
    """Of a row, without the unit, which stands above."""
    texts = zip(point.values.values(), result.axes, strict=True)
    return [text.removesuffix(axis.unit).rstrip() for text, axis in texts]


def mean_cell(mean: Mean) -> Text:
    """A mean ratio in percent, and how sure it is."""
    style = "red" if mean.mean else "green"
    if mean.half_width_95 is None:
        return Text(bare(mean.mean), style)
    if mean.mean == 0:
        return Text("0", style)
    return Text(f"{_decimals(100 * mean.mean)}±{_decimals(100 * mean.half_width_95)}", style)


def _decimals(value: float) -> str:
    """Three digits, at most two of them after the point."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"  # noqa: PLR2004, two digits before the point.


def bare(ratio: float) -> str:
    """In percent, without the sign."""
    return percent(ratio).removesuffix(" %")


def heading(subject: str, rest: str) -> Text:
    """The first line above a table."""
    return Text.assemble((subject, "bold"), f" {rest}")


def plain_table(*columns: Column) -> Table:
    """As all of them look."""
    return Table(
        *columns,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
    )


def right(*names: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(name, justify="right", no_wrap=True) for name in names]


def _name_column(title: str) -> Column:
    return Column(title, overflow="fold", min_width=8)
