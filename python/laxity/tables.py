"""The tables that people see in a terminal, from results. 80 columns are enough for each."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from laxity.sweep import mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from laxity.fidelity import Fidelity
    from laxity.results import (
        Budget,
        Check,
        Comparison,
        DomainResult,
        Overhead,
        Profile,
        Run,
        TaskResult,
    )
    from laxity.sweep import Best, Mean, Point, Sweep

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


NOT_MEASURED = "not measured"


def count(value: int | None) -> str:
    """`2,000`, or that it was not measured."""
    return NOT_MEASURED if value is None else f"{value:,}"


def lost_to_scheduling(overhead: Overhead) -> str:
    """The part of the CPUs' time that scheduling took, or that it was not measured."""
    return NOT_MEASURED if overhead.loss_ratio is None else percent(overhead.loss_ratio)


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
        *profiles(result.profiles),
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
    match result.verdict:
        case "schedulable":
            lines.append(Text(f"Schedulable: {_all_guaranteed(len(tasks))}", "bold green"))
        case "not-analysed":
            said = f"; {_all_guaranteed(len(tasks))}" if tasks else ""
            lines.append(Text(f"Not analysed: calls{said}", "bold yellow"))
        case _:
            of_all = f"{len(tasks) - sure:,} of {number(len(tasks), 'task')}"
            lines.append(Text(f"Not guaranteed: {of_all}", "bold red"))
    lines += _not_analysed(result)
    return Group(*lines, *profiles(result.profiles))


def _not_analysed(result: Check) -> list[RenderableType]:
    """Each part, and what to run instead."""
    if result.run_instead is None:
        return []
    parts = [
        f"  {part.what}" + (f": {', '.join(part.domains)}" if part.domains else "")
        for part in result.not_analysed
    ]
    return [
        "Analysis bounds the tasks of guests, and says nothing of:",
        *(Text(part) for part in parts),
        "Run it instead:",
        *(Text(line) for line in _of_command(result.run_instead)),
    ]


def _of_command(command: str) -> list[str]:
    """Lines that a shell takes as one command."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1] and len(f"  {lines[-1]} {word} \\") > WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [f"  {line} \\" for line in lines[:-1]] + [f"  {lines[-1]}"]


OTHER_COSTS = "A machine with other costs may have another verdict"


def profiles(used: Sequence[Profile]) -> list[RenderableType]:
    """On which machine the costs were found that a verdict rests on."""
    if not used:
        return []
    lines = [
        Text(f"Costs of {profile.of}: profile {profile.name}, {profile.source}") for profile in used
    ]
    return [*lines, Text(OTHER_COSTS, "yellow")]


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
    by_policy = result.by_policy()
    domains = [domain.name for domain in result.runs[0].domains]
    sections: list[list[Row]] = [
        [
            (name, [_miss_of([run.domains[index] for run in runs]) for runs in by_policy.values()])
            for index, name in enumerate(domains)
        ],
        [("all domains", [_miss_of(runs) for runs in by_policy.values()])],
        [
            (title, [_mean_of(overhead_of(runs, name)) for runs in by_policy.values()])
            for title, name in (("decisions", "schedule_calls"), ("switches", "context_switches"))
        ]
        + [("CPU lost %", [cpu_lost(runs) for runs in by_policy.values()])],
    ]
    return compared(result, "miss %", sections, number(result.runs[0].jobs, "job"))


Row = tuple[str, "list[Text]"]
"""Of a comparison: its name, and a cell for each policy."""


def compared(
    result: Comparison, title: str, sections: list[list[Row]], what: str
) -> RenderableType:
    """A column for each policy, in as many tables as they need; then what is to be said of it."""
    first, by_policy = result.runs[0], result.by_policy()
    seeds = [run.seed for run in next(iter(by_policy.values()))]
    said = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    policies = list(by_policy)
    head = heading(
        number(len(policies), "policy", "policies"),
        f"on {first.substrate}, {time(first.duration_ns)}, {said}, {what}",
    )
    rows = [row for section in sections for row in section]
    name_width = min(
        NAME_WIDTH_MAX, max(len(name) for name in [title, *(name for name, _ in rows)])
    )
    widths = [
        max(len(policy), *(len(cells[column]) for _, cells in rows))
        for column, policy in enumerate(policies)
    ]
    lines: list[RenderableType] = [head]
    for columns in _fitting(name_width, widths):
        table = plain_table(
            Column(title, overflow="fold", width=name_width),
            *right(*(policies[column] for column in columns)),
        )
        for section in sections:
            for name, cells in section:
                table.add_row(Text(name), *(cells[column] for column in columns))
            table.add_section()
        lines += ["", table]
    if len(seeds) > 1:
        lines.append(Text(f"means of {len(seeds)} seeds ± 95 % confidence", "dim"))
    notes = [
        f"{', '.join(alike[:-1])} and {alike[-1]} found the same in every number"
        for alike in result.alike()
    ]
    lines += [Text(note, "yellow") for note in [*result.notes, *notes]]
    return Group(*lines, *profiles(first.profiles))


NAME_WIDTH_MAX = 24
"""Of a row's name in a comparison; a longer one is folded."""


def _fitting(name_width: int, widths: list[int]) -> list[list[int]]:
    """The columns of each table: as many as fit beside the names, in their order."""
    parts: list[list[int]] = [[]]
    used = name_width
    for column, width in enumerate(widths):
        if parts[-1] and used + GAP + width > WIDTH:
            parts.append([])
            used = name_width
        parts[-1].append(column)
        used += GAP + width
    return parts


def overhead_of(runs: Sequence[Run], name: str) -> list[int | float | None]:
    """One number of what scheduling cost each run."""
    return [getattr(run.overhead, name) for run in runs]


def _mean_of(values: Sequence[int | float | None]) -> Text:
    """A whole number; nothing where one was not measured."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Text(NOTHING)
    return Text(f"{sum(known) / len(known):,.0f}")


def cpu_lost(runs: Sequence[Run]) -> Text:
    """What scheduling took of the CPUs, in percent without the sign; nothing if not measured."""
    ratios = overhead_of(runs, "loss_ratio")
    known = [ratio for ratio in ratios if ratio is not None]
    return mean_cell(mean(known), "", "") if len(known) == len(ratios) else Text(NOTHING)


def _miss_of(parts: Sequence[Run | DomainResult]) -> Text:
    if not any(part.jobs for part in parts):
        return Text(NOTHING)
    return mean_cell(mean([part.miss_ratio for part in parts]))


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
        f"Switches: {count(result.sim.overhead.context_switches)} on sim, "
        f"{count(result.xen.overhead.context_switches)} on xen",
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
    title = heading("miss ratio", f"of all jobs in %{sure}")
    return Group(title, "", table, "", *sweep_verdict(result), *profiles(result.profiles))


def sweep_verdict(result: Sweep) -> list[Text]:
    """Which point to take, and by what order."""
    best = result.best()
    said, tone = best_point(best)
    return [Text(said, {"good": "bold green", "bad": "bold red"}.get(tone, ""))]


def best_point(best: Best) -> tuple[str, str]:
    """In a sentence, and whether that is good."""
    point, points = best.point, len(best.points)
    values = ", ".join(f"{key} = {value}" for key, value in point.values.items())
    where = f"{values} under {point.policy}"
    has_calls = point.packet_loss_ratio is not None
    if best.why == "nearest":
        missed = (
            f"{percent(point.packet_loss_ratio.mean)} of the packets lost"
            if point.packet_loss_ratio is not None
            else f"{percent(point.miss_ratio.mean)} missed"
        )
        some = f", passed with {point.passed} of {point.seeds} seeds" if point.passed else ""
        return f"No point of {points:,} passes. Nearest: {where}, {missed}{some}", "bad"
    passing = "Every point" if best.holding == points else f"{best.holding:,} of {points:,} points"
    passes = "passes" if best.holding in (1, points) else "pass"
    what = "loss and delay accepted" if has_calls else "every deadline met"
    seeds = f" with each of {point.seeds} seeds" if point.seeds > 1 else ""
    match best.why:
        case "cheapest":
            reserved = f"{percent(point.reserved or 0.0)} of a CPU"
            why = f"Cheapest, with budgets of {reserved} in all: {where}"
        case "most load":
            why = f"Most load: {where}"
        case _:
            why = f"None reserves less than another; the first: {where}"
    return f"{passing} {passes}: {what}{seeds}. {why}", "good"


def values_of(result: Sweep, point: Point) -> list[str]:
    """Of a row, without the unit, which stands above."""
    texts = zip(point.values.values(), result.axes, strict=True)
    return [text.removesuffix(axis.unit).rstrip() for text, axis in texts]


def mean_cell(mean: Mean, good: str = "green", bad: str = "red") -> Text:
    """A mean ratio in percent, and how sure it is; `good` is the style of none."""
    style = bad if mean.mean else good
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
