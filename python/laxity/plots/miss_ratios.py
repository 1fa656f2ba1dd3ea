"""Deadline miss ratios: against a load, and of each domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from laxity.plots.published import Published, published_handle, published_look
from laxity.plots.style import (
    DASHED,
    DOTTED,
    INK,
    LABEL_INCHES,
    LABEL_SIZE,
    LINES_MAX,
    MARKER_SIZE,
    MUTED,
    SOLID,
    STRIPE,
    Look,
    is_narrow,
    legend,
    line_handle,
    looks_of,
    new_figure,
    note,
    ordered,
    page_width_inches,
    shorten,
    styled,
    title,
)
from laxity.statistics import student_t_95

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from laxity.plots.style import LineLook


CROWDED_POINTS = 25
"""More of them on one line have smaller markers."""
PANELS_MAX = 12
DOMAIN_ROWS_MAX = 24


# Miss ratio against something


def miss_ratios(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Miss ratio at each point: mean over seeds, and its 95 % confidence interval (Student's t).

    `frame` has the columns `jobs` and `missed`, `keys`, and `seed` if there are several; its other
    rows, such as those of domains, are added up. Gives `keys`, `seeds`, `mean`, `low` and `high`,
    as parts of 1; without jobs there is no ratio, and no row.
    """
    seeded = [*keys, *(["seed"] if "seed" in frame.columns else [])]
    totals = frame.groupby(seeded, sort=True, as_index=False, observed=True)[
        ["jobs", "missed"]
    ].sum()
    totals = totals[totals["jobs"] > 0]
    totals["ratio"] = totals["missed"] / totals["jobs"]
    grouped = totals.groupby(list(keys), sort=True, observed=True)["ratio"]
    points = grouped.agg(seeds="count", mean="mean", deviation="std").reset_index()
    half = [
        student_t_95(seeds - 1) * deviation / seeds**0.5 if seeds > 1 else 0.0
        for seeds, deviation in zip(points["seeds"], points["deviation"], strict=True)
    ]
    points["low"] = (points["mean"] - half).clip(lower=0.0)
    points["high"] = (points["mean"] + half).clip(upper=1.0)
    return points.drop(columns="deviation")


@styled
def miss_ratio_curves(
    frame: pd.DataFrame,
    x: str,
    x_label: str,
    *,
    line: str = "policy",
    line_names: Mapping[Any, str] | None = None,
    panel: str | None = None,
    panel_names: Mapping[Any, str] | None = None,
    limit: float | None = None,
    published: Sequence[Published] = (),
) -> Figure:
    """Deadline miss ratio against column `x`, as RT-Xen's figure 6.

    A line for each value of `line`, a panel for each of `panel`, a 95 % band where there are
    several seeds, and a horizontal line at `limit`. If `x` is text, its values stand side by side.
    `frame` is as for `miss_ratios`.
    """
    points = miss_ratios(frame, [*([panel] if panel else []), line, x])
    panels: list[Any] = list(points[panel].unique())[:PANELS_MAX] if panel else []
    panels = panels or [None]
    lines = ordered(points[line].unique())[:LINES_MAX]
    looks = looks_of(lines)
    positions = None
    if not pd.api.types.is_numeric_dtype(points[x]):
        positions = {value: place for place, value in enumerate(dict.fromkeys(frame[x]))}

    figure, axes_of = _panels(len(panels))
    for axes, value in zip(axes_of, panels, strict=True):
        of_panel = points if panel is None else points[points[panel] == value]
        for name in lines:
            _curve(axes, of_panel[of_panel[line] == name], x, looks[name], positions)
        if value is not None:
            title(axes, str((panel_names or {}).get(value, value)), _abreast(len(panels)))
    handles = [line_handle(looks[name], (line_names or {}).get(name, str(name))) for name in lines]
    if limit is not None:
        handles.append(_limit_line(axes_of, limit))
    handles += _publish(axes_of, published, looks)
    highest = 100 * max([*points["high"], limit or 0.0, 0.05])
    first = axes_of[0]
    first.set_ylim(-0.025 * highest, min(103.0, 1.06 * highest))
    first.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    if positions is not None:
        _name_places(axes_of, [shorten(str(value), 16) for value in positions])
    if points.empty:
        note(first, "no jobs")
    figure.supxlabel(x_label, fontsize=LABEL_SIZE, color=INK)
    figure.supylabel("Deadline miss ratio (%)", fontsize=LABEL_SIZE, color=INK)
    legend(figure, handles)
    return figure


def _limit_line(axes_of: Sequence[Axes], limit: float) -> Line2D:
    look: LineLook = {"color": MUTED, "linewidth": 0.8, "linestyle": DOTTED}
    for axes in axes_of:
        axes.axhline(100 * limit, zorder=1, **look)
    return Line2D([], [], label=f"{100 * limit:g} % missed", **look)


def _publish(
    axes_of: Sequence[Axes], published: Sequence[Published], looks: Mapping[Any, Look]
) -> list[Line2D]:
    """Draws what is published; for the legend, if there is any."""
    for axes in axes_of:
        for stated in published:
            look = looks.get(stated.line, Look(INK, "o", SOLID))
            if stated.y is None:
                axes.axvline(stated.x, color=look.colour, linewidth=1, linestyle=DASHED)
            height = 0.5 if stated.y is None else stated.y
            across = axes.get_xaxis_transform() if stated.y is None else axes.transData
            shape = published_look(look.marker, look.colour)
            axes.plot([stated.x], [height], transform=across, **shape)
    return [published_handle()] if published else []


def _abreast(panels: int) -> int:
    """How many panels stand side by side."""
    return 1 if is_narrow() else min(3, max(1, panels))


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """Makes at least one panel, all with the same axes, as many abreast as there is room for."""
    columns = _abreast(count)
    rows = max(1, -(-count // columns))
    alone_inches = 2.8 if is_narrow() else 3.4
    figure = new_figure(0.7 + (alone_inches if count <= 1 else 2.5) * rows)
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    used = max(1, count)
    for unused in grid[used:]:
        unused.remove()
    for axes in grid[:used]:
        axes.xaxis.set_tick_params(labelbottom=True)
    return figure, grid[:used]


def _name_places(axes_of: Sequence[Axes], names: Sequence[str]) -> None:
    """Names along the horizontal axis, slanted if there is too little room for them."""
    axes_of[0].set_xticks(range(len(names)), names)
    axes_of[0].set_xlim(-0.5, len(names) - 0.5)
    lane_inches = page_width_inches.get() - LABEL_INCHES
    room = lane_inches / _abreast(len(axes_of)) / max(len(names), 1)
    for axes in axes_of:
        if 0.075 * max(map(len, names), default=0) > room:
            axes.tick_params(axis="x", rotation=35)


def _curve(
    axes: Axes, points: pd.DataFrame, x: str, look: Look, positions: Mapping[Any, int] | None
) -> None:
    across = points[x] if positions is None else points[x].map(positions)
    if positions is None and (points["seeds"] > 1).any():
        low, high = 100 * points["low"], 100 * points["high"]
        axes.fill_between(across, low, high, color=look.colour, alpha=0.16, linewidth=0)
    if positions is not None:
        mean, low, high = (100 * points[column] for column in ("mean", "low", "high"))
        axes.errorbar(
            across, mean, [mean - low, high - mean], fmt="none", ecolor=look.colour, elinewidth=1
        )
    axes.plot(
        across,
        100 * points["mean"],
        color=look.colour,
        linestyle=look.dashes if positions is None else "",
        markersize=MARKER_SIZE * (1 if len(points) <= CROWDED_POINTS else 0.6),
        clip_on=False,
        zorder=3,
        **look.shape,
    )


# Miss ratio of each domain under each policy


def worst_domains(frame: pd.DataFrame, rows_max: int = DOMAIN_ROWS_MAX) -> list[str]:
    """At most `rows_max` domains, those that missed most under any policy, in their own order."""
    domains = list(dict.fromkeys(frame["domain"]))
    worst = frame.groupby("domain")["miss_ratio"].max()
    chosen = sorted(domains, key=lambda name: -worst[name])[:rows_max]
    return [name for name in domains if name in set(chosen)]


@styled
def miss_ratio_dots(frame: pd.DataFrame) -> Figure:
    """Miss ratio of each domain, a dot for each policy, and of all domains together.

    `frame` has the columns `policy`, `domain`, `jobs`, `missed` and `miss_ratio`, and `seed` if
    there are several: dots are then means over seeds, with 95 % confidence intervals (Student's t).
    If there are many domains, the worst are shown.
    """
    policies = ordered(frame["policy"].unique())
    looks = looks_of(policies)
    domains = worst_domains(frame)
    of_all = miss_ratios(frame, ["policy"]).set_index("policy")
    of_domains = miss_ratios(frame, ["policy", "domain"])
    rows: list[str | None] = [None, *domains]

    step = 0.8 / max(len(policies), 1)
    height = 1.0 + len(rows) * max(0.24, 0.105 * len(policies))
    figure = new_figure(height)
    axes = figure.subplots()
    axes.grid(visible=False, axis="y")
    for place in range(0, len(rows), 2):
        axes.axhspan(place - 0.5, place + 0.5, color=STRIPE, linewidth=0, zorder=0)
    for index, policy in enumerate(policies):
        of_policy = of_domains[of_domains["policy"] == policy].set_index("domain")
        shown = pd.concat([of_all.reindex([policy]), of_policy.reindex(domains)])
        x, low, high = (100 * shown[column].to_numpy(float) for column in ("mean", "low", "high"))
        y = [place + (index - (len(policies) - 1) / 2) * step for place in range(len(rows))]
        look = looks[policy]
        axes.hlines(y, 0, x, color=look.colour, linewidth=1, alpha=0.6)
        if (of_all["seeds"] > 1).any():
            ends = [x - low, high - x]
            axes.errorbar(
                x, y, xerr=ends, fmt="none", ecolor=look.colour, elinewidth=1.4, capsize=2
            )
        axes.plot(x, y, linestyle="", color=look.colour, clip_on=False, **look.shape)
    names = ["all domains" if name is None else shorten(name) for name in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    highest = 100 * max([0.05, *of_all["high"], *of_domains["high"]])
    axes.set_xlim(0, min(100.0, 1.05 * highest))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("Deadline miss ratio (%)")
    legend(figure, [line_handle(looks[policy]._replace(dashes=""), policy) for policy in policies])
    return figure
