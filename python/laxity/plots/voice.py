"""Figures of calls, as the telephony papers drew them, in the style of all figures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from laxity.plots.published import published_handle, published_look
from laxity.plots.style import (
    DOTTED,
    INK,
    LABEL_SIZE,
    LINES_MAX,
    MUTED,
    POLICY_LOOKS,
    RED,
    Look,
    is_narrow,
    legend,
    line_handle,
    new_figure,
    note,
    shorten,
    styled,
    title,
)
from laxity.voice.quality import TOLL_QUALITY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from laxity.plots.style import LineLook

PESQ_BEST = 4.5
MARKS = 6
"""On each line, so that lines are told apart in grey."""
NAMES_UPRIGHT_MAX = 9
"""More, or longer, names beneath boxes are slanted."""


@styled
def pesq_distributions(
    series: Mapping[str, npt.ArrayLike],
    published: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Voice quality as figure 1 of soft-real-time-xen: how many calls are how bad at most.

    `series` has the PESQ of every call, 0 to 4.5, dead ones too, by the name of the series. The
    cumulative distributions stand above, with toll quality as a line, and boxes beneath: quartiles,
    and whiskers from the worst call to the best. At most `LINES_MAX` series. `published` has what a
    paper states of some: a quality, and how many calls, in percent, are worse.
    """
    values = _rows(series)
    looks = _looks(values)
    figure = new_figure(3.3 + 0.24 * len(values))
    curves, boxes = figure.subplots(
        2, 1, sharex=True, height_ratios=(2.6, max(0.25, 0.24 * len(values)))
    )
    for name, scores in values.items():
        look = looks[name]
        x, y = np.sort(scores), 100 * np.arange(1, scores.size + 1) / scores.size
        apart = max(1, scores.size // MARKS)
        curves.step(
            [min(0.0, x[0]), *x, PESQ_BEST],
            [0, *y, 100],
            where="post",
            color=look.colour,
            linestyle=look.dashes,
            **look.shape,
            markevery=(apart // 2 + 1, apart),
        )
    _boxes(boxes, values, looks, is_vertical=False)
    boxes.invert_yaxis()
    boxes.grid(visible=False, axis="y")
    toll: LineLook = {"color": RED, "linewidth": 0.9, "linestyle": DOTTED}
    for axes in (curves, boxes):
        axes.axvline(TOLL_QUALITY, zorder=1, **toll)
    # P.862 itself goes down to -0.5.
    curves.set_xlim(min([0.0, *(scores.min() for scores in values.values())]), PESQ_BEST)
    curves.xaxis.set_major_locator(MultipleLocator(0.5))
    curves.set_ylim(0, 100.8)
    curves.set_ylabel("Calls of at most that quality (%)")
    boxes.set_xlabel("Voice quality (PESQ)")
    if not values:
        note(curves, "no calls")
    handles = [line_handle(look, name) for name, look in looks.items()]
    for name, point in (published or {}).items():
        shape = published_look(looks[name].marker, looks[name].colour)
        curves.plot(*([value] for value in point), **shape)
    handles.append(Line2D([], [], label="toll quality", **toll))
    legend(figure, [*handles, *([published_handle()] if published else [])])
    return figure


class Measure(NamedTuple):
    """What a panel of `measures_against` shows."""

    column: str
    label: str
    limit: float | None
    """Where a dotted line stands, if anywhere."""
    scale: tuple[float, float] | None = None
    """From where to where the axis goes; None if it begins at 0 and ends with the values."""


@styled
def measures_against(data: pd.DataFrame, x_label: str, measures: Sequence[Measure]) -> Figure:
    """A panel for each measure, against `x`: a curve for each `line`, the mean over its rows.

    `data` has `x`, `line` and the columns of the measures; several rows of one line at one `x` are
    seeds, and a band goes from the least to the greatest. Text in `x` stands side by side. At most
    `LINES_MAX` lines.
    """
    names = list(dict.fromkeys(data["line"]))[:LINES_MAX]
    looks = _looks(dict.fromkeys(names))
    is_number = pd.api.types.is_numeric_dtype(data["x"])
    places = {value: place for place, value in enumerate(dict.fromkeys(data["x"]))}
    columns = 1 if is_narrow() else len(measures)
    figure = new_figure(0.7 + (2.1 if is_narrow() else 2.6) * -(-len(measures) // columns))
    panels = figure.subplots(-(-len(measures) // columns), columns, squeeze=False).flat
    for axes, measure in zip(panels, measures, strict=True):
        for name in names:
            of_line = data[data["line"] == name]
            at = of_line["x"] if is_number else of_line["x"].map(places)
            found = of_line.groupby(at)[measure.column].agg(["min", "mean", "max"])
            look = looks[name]
            axes.fill_between(
                found.index, found["min"], found["max"], color=look.colour, alpha=0.16, linewidth=0
            )
            axes.plot(
                found.index,
                found["mean"],
                color=look.colour,
                linestyle=look.dashes if is_number else "",
                **look.shape,
            )
        title(axes, measure.label, columns)
        if measure.limit is not None:
            axes.axhline(measure.limit, color=MUTED, linewidth=0.9, linestyle=DOTTED)
        low, high = measure.scale or (0.0, 1.05 * axes.get_ylim()[1])
        axes.set_ylim(low - 0.03 * (high - low), high)
        if is_number:
            axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        else:
            axes.set_xticks(range(len(places)), [shorten(str(value), 16) for value in places])
            axes.tick_params(axis="x", rotation=35)
    figure.supxlabel(x_label, fontsize=LABEL_SIZE, color=INK)
    handles = [line_handle(looks[name], name) for name in names] if len(names) > 1 else []
    if any(measure.limit is not None for measure in measures):
        handles.append(Line2D([], [], color=MUTED, linewidth=0.9, linestyle=DOTTED, label="limit"))
    legend(figure, handles)
    return figure


@styled
def delay_boxes(
    delay_ns: Mapping[str, npt.ArrayLike],
    loss: Mapping[str, float],
    *,
    x_label: str = "Experiment",
    published: Mapping[str, str] | None = None,
) -> Figure:
    """Packet delay and loss as figures 5 to 13 of telephony-multicore.

    `delay_ns` has the delay of each packet that arrived, by the name of the experiment, and `loss`
    the part that was lost, 0 to 1, which stands beneath the box in percent. Boxes are the
    quartiles, and whiskers go from the shortest delay to the longest. `published` are losses, in
    percent, that a paper states of some experiments; they stand under ours.

    Raises:
        KeyError: an experiment has no loss.
    """
    values = {name: delays / 1e6 for name, delays in _rows(delay_ns, count_max=None).items()}
    names = list(dict.fromkeys([*delay_ns]))
    figure = new_figure(3.4)
    axes = figure.subplots()
    axes.grid(visible=False, axis="x")
    places = {name: place for place, name in enumerate(names)}
    _boxes(axes, values, dict.fromkeys(values, Look("#56b4e9", "", "-")), places=places)
    longest = max([float(delays.max()) for delays in values.values()], default=1.0)
    # Room for the loss, beneath what is 0.
    axes.set_ylim((-0.22 if published else -0.14) * longest, 1.05 * longest)
    axes.axhline(0, color=MUTED, linewidth=0.7)
    axes.spines["bottom"].set_visible(False)
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}" if y >= 0 else ""))
    axes.text(
        -0.008,
        -0.07 * longest,
        "lost (%)",
        transform=axes.get_yaxis_transform(),
        ha="right",
        va="center",
        fontsize=7.5,
        color=MUTED,
    )
    if published:
        published_y = -0.155 * longest
        write = partial(axes.text, va="center", fontsize=7.5, color=MUTED)
        beside = axes.get_yaxis_transform()
        write(-0.008, published_y, "published (%)", transform=beside, ha="right")
        for name, text in published.items():
            if name in places:
                write(places[name], published_y, text, ha="center")
    for name, place in places.items():
        percent = 100 * loss[name]
        text = "0" if percent == 0 else "<0.01" if percent < 0.01 else f"{percent:.3g}"  # noqa: PLR2004
        colour = RED if percent else INK
        axes.text(place, -0.07 * longest, text, ha="center", va="center", fontsize=8, color=colour)
        if name not in values:
            axes.text(place, 0.02 * longest, "none\narrived", ha="center", fontsize=7, color=RED)
    shown = [shorten(name, 16) for name in names]
    is_crowded = len(names) > NAMES_UPRIGHT_MAX or sum(map(len, shown)) > 10 * NAMES_UPRIGHT_MAX
    axes.set_xticks(range(len(names)), shown, rotation=35 if is_crowded else 0)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, max(len(names), 1) - 0.4)
    axes.set_xlabel(x_label)
    axes.set_ylabel("Packet delay (ms)")
    if not names:
        note(axes, "no experiments")
    return figure


def _rows(
    series: Mapping[str, npt.ArrayLike], count_max: int | None = LINES_MAX
) -> dict[str, npt.NDArray[np.float64]]:
    """Those that have values, the first of them."""
    rows = {name: np.asarray(values, np.float64).ravel() for name, values in series.items()}
    return dict([(name, row) for name, row in rows.items() if row.size][:count_max])


def _looks(series: Collection[str]) -> dict[str, Look]:
    """The looks of policies are fixed; all other series get the same looks in order."""
    looks = list(POLICY_LOOKS.values())
    if all(name in POLICY_LOOKS for name in series):
        return {name: POLICY_LOOKS[name] for name in series}
    return dict(zip(series, looks, strict=False))


def _boxes(
    axes: Axes,
    series: Mapping[str, npt.NDArray[np.float64]],
    looks: Mapping[str, Look],
    *,
    is_vertical: bool = True,
    places: Mapping[str, int] | None = None,
) -> None:
    """Quartiles, and whiskers to the ends; beside each other in their order, or at `places`."""
    if not series:
        return
    statistics = []
    for name, values in series.items():
        low, q1, median, q3, high = np.percentile(values, [0, 25, 50, 75, 100])
        box = {"label": shorten(name), "whislo": low, "q1": q1, "med": median, "q3": q3}
        statistics.append({**box, "whishi": high})
    where = range(len(series)) if places is None else [places[name] for name in series]
    drawn = axes.bxp(
        statistics,
        positions=list(where),
        orientation="vertical" if is_vertical else "horizontal",
        widths=0.55,
        showfliers=False,
        patch_artist=True,
        medianprops={"color": INK, "linewidth": 1.3},
        whiskerprops={"color": MUTED, "linewidth": 0.9},
        capprops={"color": MUTED, "linewidth": 0.9},
        boxprops={"edgecolor": MUTED, "linewidth": 0.8},
    )
    for box, name in zip(drawn["boxes"], series, strict=True):
        box.set_facecolor((looks[name].colour, 0.55))
