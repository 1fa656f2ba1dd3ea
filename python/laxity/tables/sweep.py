"""The table of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.tables.layout import GAP, WIDTH, heading, mean_cell, plain_table, profiles, right
from laxity.text import number, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.sweep import Best, Point, Sweep


MEAN_WIDTH = len("0.00±0.00")


def sweep_table(result: Sweep) -> RenderableType:
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
    """The point to take, and the order that it is first in."""
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
        if point.failed_ratio is not None and point.failed_ratio.mean:
            missed += f", {percent(point.failed_ratio.mean)} of the calls given up"
        if has_calls and point.miss_ratio.mean:
            missed += f", {percent(point.miss_ratio.mean)} of the deadlines missed"
        if point.denied:
            missed += f", agreements not held with {number(point.denied, 'seed')}"
        some = f", passed with {point.passed} of {point.seeds} seeds" if point.passed else ""
        return f"No point of {points:,} passes. Nearest: {where}, {missed}{some}", "bad"
    passing = "Every point" if best.holding == points else f"{best.holding:,} of {points:,} points"
    passes = "passes" if best.holding in (1, points) else "pass"
    what = "calls accepted" if has_calls else "every deadline met"
    if point.denied is not None:
        what += ", agreements held"
    seeds = f" with each of {point.seeds} seeds" if point.seeds > 1 else ""
    match best.why:
        case "cheapest":
            reserved = f"{percent(point.reserved or 0.0)} of a CPU"
            why = f"Cheapest, with budgets of {reserved} in all: {where}"
        case "most load":
            why = f"Most load: {where}"
        case _:
            why = f"None of them reserves less than another; the first: {where}"
    return f"{passing} {passes}: {what}{seeds}. {why}", "good"


def values_of(result: Sweep, point: Point) -> list[str]:
    """The values of a row, without the unit, which stands above."""
    texts = zip(point.values.values(), result.axes, strict=True)
    return [text.removesuffix(axis.unit).rstrip() for text, axis in texts]
