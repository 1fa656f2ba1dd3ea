"""The table of a comparison of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.statistics import mean
from laxity.tables.layout import GAP, WIDTH, heading, mean_cell, plain_table, profiles, right
from laxity.text import NOTHING, number, time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from laxity.results.comparison import Comparison
    from laxity.results.run import Run
    from laxity.results.schema import DomainResult


def comparison_table(result: Comparison) -> RenderableType:
    """Miss ratios of each domain, and what scheduling cost: a column for each policy."""
    by_policy = result.by_policy()
    domains = [domain.name for domain in result.runs[0].domains]
    sections: list[list[Row]] = [
        [
            (name, [miss_cell([run.domains[index] for run in runs]) for runs in by_policy.values()])
            for index, name in enumerate(domains)
        ],
        [("all domains", [miss_cell(runs) for runs in by_policy.values()])],
        [
            (title, [_mean_of(overhead_of(runs, name)) for runs in by_policy.values()])
            for title, name in (("decisions", "schedule_calls"), ("switches", "context_switches"))
        ]
        + [("CPU lost %", [cpu_lost(runs) for runs in by_policy.values()])],
    ]
    if any(run.network is not None and run.network.agreements for run in result.runs):
        sections.append([("agreements held", [_held(runs) for runs in by_policy.values()])])
    return compared(result, "miss %", sections, number(result.runs[0].jobs, "job"))


Row = tuple[str, "list[Text]"]
"""A row of a comparison: its name, and a cell for each policy."""


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
        lines.append(Text(f"means of {len(seeds)} seeds ± 95 % confidence (Student's t)", "dim"))
    notes = [
        f"{', '.join(alike[:-1])} and {alike[-1]} found the same in every number"
        for alike in result.alike()
    ]
    lines += [Text(note, "yellow") for note in [*result.notes, *notes]]
    return Group(*lines, *profiles(first.profiles))


NAME_WIDTH_MAX = 24
"""A longer name of a row in a comparison is folded."""


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


def _held(runs: Sequence[Run]) -> Text:
    """Whether every domain got its agreement's minimum in every run."""
    denied = list(dict.fromkeys(name for run in runs for name in run.denied))
    return Text(f"not {', '.join(denied)}", "red") if denied else Text("yes", "green")


def miss_cell(parts: Sequence[Run | DomainResult]) -> Text:
    """The mean miss ratio of runs, or of a domain in them; nothing where no deadline fell."""
    if not any(part.jobs for part in parts):
        return Text(NOTHING)
    return mean_cell(mean([part.miss_ratio for part in parts]))
