"""The timeline: which VCPU each CPU ran, the jobs and the budget of each VCPU."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Shape
from matplotlib.ticker import FuncFormatter, MaxNLocator

from laxity.plots.style import (
    DOTTED,
    FAINT,
    GROUND,
    INK,
    LABEL_INCHES,
    MUTED,
    ON_DARK,
    ON_LIGHT,
    OTHERS,
    RED,
    SOLID,
    is_narrow,
    legend,
    new_figure,
    page_width_inches,
    shorten,
    styled,
    symbol,
)
from laxity.text import time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from laxity.plots.style import LineLook
    from laxity.trace_schema import JobPoint, Metadata, Occupancy, Timeline


_VCPU_COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"),
    *("#8c7a00", "#7a5195", "#5b8c85", "#a65628", "#3f5f8a", "#b3589a"),
)
VCPU_LANES_MAX = 12
LANE_MARKS_MAX = 100
CPU_LANES_MAX = 8
"""What is still legible on a page; of more, the functions below choose what matters most."""


def vcpus_that_matter(timeline: Timeline, run: Metadata) -> list[tuple[int, int]]:
    """The VCPUs that a timeline shows, at most `VCPU_LANES_MAX`, in the host's order.

    First come those that missed deadlines in the window, then those whose jobs arrived in it, then
    those that ran. Arguments as for `timeline`.
    """
    missed = Counter(_vcpu_of(run, point) for point in timeline["misses"])
    arrived = Counter(_vcpu_of(run, point) for point in timeline["releases"])
    ran: Counter[tuple[int, int]] = Counter()
    for interval in timeline["occupancy"]:
        ran[interval["domain"], interval["vcpu"]] += interval["end_ns"] - interval["start_ns"]
    everyone = [(budget["domain"], budget["vcpu"]) for budget in timeline["budgets"]]
    ranked = sorted(everyone, key=lambda vcpu: (-missed[vcpu], -min(arrived[vcpu], 1), -ran[vcpu]))
    return sorted(ranked[:VCPU_LANES_MAX])


TIMELINE_CELLS = 480
"""To as many cells a timeline is made coarser: more of them are narrower than a line in print."""


@styled
def who_ran_when(
    timeline: Timeline, run: Metadata, marks: Sequence[tuple[int, str]] = ()
) -> Figure:
    """The timeline: a lane for each CPU, and one for each VCPU with its jobs and its budget.

    `timeline` is what `_core.timeline` gives of a window of a trace, `run` what
    `_core.trace_metadata` does. If there are many VCPUs, those that matter are shown and the CPUs
    that they ran on; the others are grey. A vertical line stands at each of `marks`: time, ns, and
    what was then. A bar of a coarser timeline is as high as the part of the time that a VCPU ran,
    and on a CPU has the colour of the VCPU that ran longest.
    """
    vcpus = vcpus_that_matter(timeline, run)
    colours = dict(zip(vcpus, cycle(_VCPU_COLOURS), strict=False))
    cpus = _cpus_of(timeline, run, colours)
    unit, unit_ns = _time_unit(timeline["to_ns"] - timeline["from_ns"])
    from_unit, to_unit = timeline["from_ns"] / unit_ns, timeline["to_ns"] / unit_ns

    height = 1.15 + 0.3 * len(cpus) + 0.62 * len(vcpus)
    figure = new_figure(height)
    axes = figure.subplots()
    axes.grid(visible=False, axis="y")
    ticks: list[tuple[float, str]] = []
    top = 0.0
    for cpu in cpus:
        top -= 0.5
        ticks.append((top + 0.21, f"CPU {cpu}"))
        _cpu_lane(axes, timeline, cpu, top, colours, run, unit_ns)
    top -= 0.12
    for vcpu in vcpus:
        axes.axhline(top, color=FAINT, linewidth=0.7, zorder=0)
        top -= 1.0
        ticks.append((top + 0.5, _vcpu_name(run, vcpu)))
        _vcpu_lane(axes, timeline, run, vcpu, top, colours[vcpu], unit_ns)
    axes.set_xlim(from_unit, to_unit)
    axes.set_ylim(top - 0.08, 0.08)
    axes.set_yticks([y for y, _ in ticks], [shorten(name) for _, name in ticks])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for number, (at_ns, _) in enumerate(marks):
        axes.axvline(at_ns / unit_ns, **_MARKS[number % len(_MARKS)])
    axes.xaxis.set_major_locator(MaxNLocator(4 if is_narrow() else 8, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axes.set_xlabel(f"Time since the start of the run ({unit})")
    handles: list[Artist] = [Patch(facecolor=MUTED, label="runs")]
    if any(domain["tasks"] for domain in run["domains"]):
        handles += [
            symbol("job arrives", marker="^", markersize=4.5, color=INK),
            symbol("completes", **_COMPLETION),
            symbol("misses its deadline", **_MISS),
        ]
    if any(value for budget in timeline["budgets"] for _, value in budget["points"]):
        what = "credits" if run["policy"] == "credit" else "budget left"
        handles.append(Line2D([], [], color=MUTED, label=what))
    handles += [
        Line2D([], [], label=what, **_MARKS[number % len(_MARKS)])
        for number, (_, what) in enumerate(marks)
    ]
    legend(figure, handles)
    return figure


_MARKS: tuple[LineLook, ...] = (
    {"color": RED, "linewidth": 1.1, "linestyle": SOLID, "zorder": 6},
    {"color": RED, "linewidth": 1.1, "linestyle": DOTTED, "zorder": 6},
)


def _vcpu_of(run: Metadata, point: JobPoint) -> tuple[int, int]:
    """The VCPU of a job's task."""
    return point["domain"], run["domains"][point["domain"]]["tasks"][point["task"]]["vcpu"]


def _vcpu_name(run: Metadata, vcpu: tuple[int, int]) -> str:
    domain = run["domains"][vcpu[0]]
    return str(domain["name"]) if domain["vcpus"] == 1 else f"{domain['name']}/{vcpu[1]}"


def _cpus_of(timeline: Timeline, run: Metadata, chosen: Mapping[tuple[int, int], str]) -> list[int]:
    """The CPUs that the chosen VCPUs ran on longest; all if there are few."""
    ran: Counter[int] = Counter()
    for interval in timeline["occupancy"]:
        if (interval["domain"], interval["vcpu"]) in chosen:
            ran[interval["cpu"]] += interval["end_ns"] - interval["start_ns"]
    return sorted(sorted(range(run["cpus"]), key=lambda cpu: -ran[cpu])[:CPU_LANES_MAX])


def _time_unit(span_ns: int) -> tuple[str, int]:
    """The unit in which the ticks of an axis of that length are short numbers."""
    for unit, unit_ns in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
        if span_ns >= 5 * unit_ns:
            return unit, unit_ns
    return "ns", 1


def _is_dark(colour: str) -> bool:
    """Whether white text reads better on it."""
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.5  # noqa: PLR2004


def _cpu_lane(
    axes: Axes,
    timeline: Timeline,
    cpu: int,
    bottom: float,
    colours: Mapping[tuple[int, int], str],
    run: Metadata,
    unit_ns: int,
) -> None:
    span_ns = timeline["to_ns"] - timeline["from_ns"]
    everything = [interval for interval in timeline["occupancy"] if interval["cpu"] == cpu]
    intervals = [interval for interval in everything if _is_exact(interval)]
    axes.axhline(bottom, color=FAINT, linewidth=0.7, zorder=0)
    by_colour: dict[str, list[tuple[float, float, float]]] = {}
    for interval in intervals:
        colour = colours.get((interval["domain"], interval["vcpu"]), OTHERS)
        start, end = interval["start_ns"] / unit_ns, interval["end_ns"] / unit_ns
        by_colour.setdefault(colour, []).append((start, end, 1.0))
    for colour, spans in by_colour.items():
        _bars(axes, spans, bottom, 0.42, facecolor=colour, edgecolor=GROUND, linewidth=0.3)
    cells: dict[tuple[int, int], list[Occupancy]] = {}
    for interval in everything:
        if not _is_exact(interval):
            cells.setdefault((interval["start_ns"], interval["end_ns"]), []).append(interval)
    of_cells: dict[str, list[tuple[float, float, float]]] = {}
    for (start_ns, end_ns), together in cells.items():
        longest = max(together, key=lambda interval: interval["ran_ns"])
        colour = colours.get((longest["domain"], longest["vcpu"]), OTHERS)
        share = sum(interval["ran_ns"] for interval in together) / (end_ns - start_ns)
        of_cells.setdefault(colour, []).append((start_ns / unit_ns, end_ns / unit_ns, share))
    for colour, spans in of_cells.items():
        _bars(axes, spans, bottom, 0.42, facecolor=colour, linewidth=0)
    lane_inches = page_width_inches.get() - LABEL_INCHES
    for interval in intervals:
        vcpu = interval["domain"], interval["vcpu"]
        name = shorten(_vcpu_name(run, vcpu), 16)
        inches = (interval["end_ns"] - interval["start_ns"]) / span_ns * lane_inches
        if inches > 0.1 + 0.062 * len(name):
            middle = (interval["start_ns"] + interval["end_ns"]) / 2 / unit_ns
            colour = ON_DARK if vcpu in colours and _is_dark(colours[vcpu]) else ON_LIGHT
            axes.text(
                middle,
                bottom + 0.2,
                name,
                ha="center",
                va="center",
                fontsize=6.5,
                color=colour,
                clip_on=True,
            )


def _vcpu_lane(
    axes: Axes,
    timeline: Timeline,
    run: Metadata,
    vcpu: tuple[int, int],
    bottom: float,
    colour: str,
    unit_ns: int,
) -> None:
    """From below: the budget to 0.42, when it ran to 0.66, its jobs to 0.95."""
    # A VCPU that ran on several CPUs within a cell has an interval for each.
    ran: Counter[tuple[int, int]] = Counter()
    for interval in timeline["occupancy"]:
        if (interval["domain"], interval["vcpu"]) == vcpu:
            ran[interval["start_ns"], interval["end_ns"]] += interval["ran_ns"]
    spans = [
        (start_ns / unit_ns, end_ns / unit_ns, ran_ns / (end_ns - start_ns))
        for (start_ns, end_ns), ran_ns in ran.items()
    ]
    _bars(axes, spans, bottom + 0.48, 0.18, facecolor=colour, linewidth=0)

    def times(points: Sequence[JobPoint]) -> list[float]:
        return [point["time_ns"] / unit_ns for point in points if _vcpu_of(run, point) == vcpu]

    releases, completions = times(timeline["releases"]), times(timeline["completions"])
    misses = times(timeline["misses"])
    axes.plot(*_ticks(releases, bottom + 0.48, bottom + 0.88), color=INK, linewidth=0.7)
    if len(releases) <= LANE_MARKS_MAX:
        _marks(axes, releases, bottom + 0.88, marker="^", color=INK, markersize=3.6)
        _marks(axes, completions, bottom + 0.57, **_COMPLETION)
    apart = (timeline["to_ns"] - timeline["from_ns"]) / unit_ns / LANE_MARKS_MAX
    misses = list({int(at / apart): at for at in reversed(misses)}.values())
    axes.plot(*_ticks(misses, bottom + 0.02, bottom + 0.78), color=RED, linewidth=0.9)
    _marks(axes, misses, bottom + 0.24, **_MISS)
    points = next(
        budget["points"]
        for budget in timeline["budgets"]
        if (budget["domain"], budget["vcpu"]) == vcpu
    )
    _budget_line(axes, points, bottom, colour, unit_ns)


_COMPLETION: LineLook = {
    "marker": "o",
    "color": INK,
    "markerfacecolor": GROUND,
    "markersize": 3.2,
    "markeredgewidth": 0.8,
    "zorder": 4,
}
_MISS: LineLook = {
    "marker": "X",
    "color": RED,
    "markersize": 6,
    "markeredgecolor": GROUND,
    "markeredgewidth": 0.4,
    "zorder": 5,
}


def _marks(axes: Axes, x: Sequence[float], y: float, **look: Any) -> None:  # noqa: ANN401
    """Markers in a lane, whole at the axis' ends too; none at all would stand at the origin."""
    if x:
        axes.plot(x, [y] * len(x), linestyle="", clip_on=False, **look)


def _is_exact(interval: Occupancy) -> bool:
    """Whether a VCPU ran in all of it."""
    return bool(interval["ran_ns"] == interval["end_ns"] - interval["start_ns"])


def _bars(
    axes: Axes,
    spans: Sequence[tuple[float, float, float]],
    bottom: float,
    height: float,
    **look: Any,  # noqa: ANN401
) -> None:
    """Bars from here to there, as high as a part of `height`; all one path, which is small."""
    if not spans:
        return
    corners = [
        [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
        for left, right, part in spans
        for top in (bottom + height * part,)
    ]
    one = [Shape.MOVETO, Shape.LINETO, Shape.LINETO, Shape.LINETO, Shape.CLOSEPOLY]
    shape = Shape(np.array(corners).reshape(-1, 2), one * len(spans))
    axes.add_patch(PathPatch(shape, **look))


def _ticks(x: Sequence[float], low: float, high: float) -> tuple[list[float], list[float]]:
    """Points of a line that is a vertical tick at each place."""
    return (
        [place for at in x for place in (at, at, np.nan)],
        [y for _ in x for y in (low, high, np.nan)],
    )


def _budget_line(
    axes: Axes, points: Sequence[Sequence[int]], bottom: float, colour: str, unit_ns: int
) -> None:
    """Between its least, or 0, and its greatest, which stands at the right."""
    values = [value for _, value in points]
    least, greatest = min(0, *values), max(0, *values)
    if least == greatest:
        return  # It has none, or none in all of the window.
    floor, scale = bottom + 0.05, 0.36 / (greatest - least)
    x = [at / unit_ns for at, _ in points]
    y = [floor + scale * (value - least) for value in values]
    zero = floor - scale * least
    axes.fill_between(x, zero, y, color=colour, alpha=0.22, linewidth=0)
    axes.plot(x, y, color=colour, linewidth=0.9)
    axes.axhline(zero, color=MUTED, linewidth=0.4, zorder=1)
    for value in (greatest, least):
        if value:
            where = floor + scale * (value - least)
            axes.text(
                1.006,
                where,
                time(value),
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=6.5,
                color=MUTED,
            )
