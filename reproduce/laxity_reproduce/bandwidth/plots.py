"""Throughput over time and loss against the period, as the paper draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.plots.published import published_handle, published_look
from laxity.plots.style import (
    DASHED,
    DOTTED,
    INK,
    SOLID,
    LineLook,
    Look,
    legend,
    line_handle,
    new_figure,
    styled,
    title,
)
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = (
    Look("#0072b2", "o", SOLID),
    Look("#d55e00", "s", DASHED),
    Look("#009e73", "^", DOTTED),
    Look("#cc79a7", "D", SOLID),
    Look(INK, "X", DASHED),
)
MARKS = 12
"""On each line, so that lines are told apart in grey."""
PANEL_INCHES = 2.1


@styled
def throughput(
    data: pd.DataFrame, published: Mapping[str, tuple[float, float]] | None = None
) -> Figure:
    """A panel for each `panel`: what each `line` delivered over time.

    `data` has `panel`, `line`, `at_s` and `delivered_mbit_s`; at most as many lines as `LOOKS`.
    `published` has of some lines a time and what the paper has them deliver then, in every panel.
    """
    panels = list(data.groupby("panel", sort=False))
    names = list(dict.fromkeys(data.line))
    looks = dict(zip(names, LOOKS, strict=False))
    figure = new_figure(0.5 + PANEL_INCHES * len(panels))
    axes_of = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, panel) in zip(axes_of, panels, strict=True):
        title(axes, str(name))
        for line, points in panel.groupby("line", sort=False):
            look = looks[str(line)]
            axes.plot(
                points.at_s,
                points.delivered_mbit_s,
                color=look.colour,
                linestyle=look.dashes,
                marker=look.marker,
                markevery=max(1, len(points) // MARKS),
            )
        for line, point in (published or {}).items():
            if line in looks:
                _publish(axes, looks[line], point)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("Mbit/s")
    axes_of[-1].set_xlabel("s")
    handles = [line_handle(looks[name], name) for name in names]
    legend(figure, [*handles, *([published_handle()] if published else [])])
    return figure


def _publish(axes: Axes, look: Look, point: tuple[float, float]) -> None:
    shape = published_look(look.marker, look.colour)
    axes.plot(*([value] for value in point), **shape)


@styled
def against_the_period(data: pd.DataFrame, published: float | None = None) -> Figure:
    """A panel for each `panel`, with its `unit`: each `line`'s `value` against `period_ms`.

    `published` is the value that the paper states for all long periods.
    """
    panels = list(data.groupby("panel", sort=False))
    names = list(dict.fromkeys(data.line))
    looks = dict(zip(names, LOOKS, strict=False))
    figure = new_figure(0.6 + PANEL_INCHES * len(panels))
    axes_of = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    line: LineLook = {"color": INK, "linewidth": 1, "linestyle": DOTTED}
    for axes, (name, panel) in zip(axes_of, panels, strict=True):
        _curves(axes, panel, looks)
        title(axes, str(name))
        axes.set_ylabel(panel.unit.iloc[0])
        if published is not None:
            axes.axhline(published, **line)
    axes_of[-1].set_xlabel("period (ms)")
    handles = [line_handle(looks[name], name) for name in names]
    stated = [Line2D([], [], label="published", **line)] if published is not None else []
    legend(figure, [*handles, *stated])
    return figure


def _curves(axes: Axes, panel: pd.DataFrame, looks: dict[str, Look]) -> None:
    for line, points in panel.groupby("line", sort=False):
        look = looks[str(line)]
        axes.plot(
            points.period_ms,
            points.value,
            color=look.colour,
            linestyle=look.dashes,
            marker=look.marker,
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
