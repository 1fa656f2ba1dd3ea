"""The table of what analysis found."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from laxity.tables.layout import WIDTH, heading, name_column, plain_table, profiles, right
from laxity.text import NOTHING, bare, number, time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from laxity.results.check import Budget, Check


NAMES_MAX = 3
"""More tasks for which one reason holds are counted and not named."""


def check_table(result: Check, budgets: Sequence[Budget] | None = None) -> RenderableType:
    """A bound for each task, the reasons where there is none, the verdict."""
    table = plain_table(
        name_column("task"),
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
        what = "smallest: the smallest budget with which every deadline is guaranteed"
        lines += [_budget_table(budgets), Text(what, "dim"), ""]
    tasks = [task for domain in result.domains for task in domain.tasks]
    sure = sum(task.guaranteed for task in tasks)
    match result.verdict:
        case "schedulable":
            lines.append(Text(f"Schedulable: {_all_guaranteed(len(tasks))}", "bold green"))
        case "not-analysed":
            said = f"; {_all_guaranteed(len(tasks))}" if tasks else ""
            is_of_link = result.not_analysed[0].what == "agreements about a link"
            what = "agreements" if is_of_link else "calls"
            lines.append(Text(f"Not analysed: {what}{said}", "bold yellow"))
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
        "Analysis covers the tasks of guests. It does not cover:",
        *(Text(part) for part in parts),
        "A run shows it:",
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
    table = plain_table(name_column("domain"), *right("period", "budget", "smallest", "CPU %"))
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
