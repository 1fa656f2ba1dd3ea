"""What all tables share: their look, columns, cells and closing lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Column, Table
from rich.text import Text

from laxity.text import OTHER_COSTS, bare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from laxity.results.schema import Profile
    from laxity.statistics import Mean


WIDTH = 80
"""The columns of the narrowest terminal that matters."""

GAP = 2
"""Between columns."""


def profiles(used: Sequence[Profile]) -> list[RenderableType]:
    """Lines that name the machine whose costs a verdict rests on."""
    if not used:
        return []
    lines = [
        Text(f"Costs of {profile.of}: profile {profile.name}, {profile.source}") for profile in used
    ]
    return [*lines, Text(OTHER_COSTS, "yellow")]


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


def heading(subject: str, rest: str) -> Text:
    """The first line above a table."""
    return Text.assemble((subject, "bold"), f" {rest}")


def plain_table(*columns: Column) -> Table:
    """An empty table that looks as all of them do."""
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


def name_column(title: str) -> Column:
    """The first column of a table: names, which are folded where they are long."""
    return Column(title, overflow="fold", min_width=8)
