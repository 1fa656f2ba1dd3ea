"""Figures: pure functions from data to a Matplotlib figure, one style for all of them.

Colours are those of Okabe and Ito, which colour-blind people can tell apart; markers and line
styles say the same once more, for print in grey. A policy looks the same in every figure.

A figure is as wide as the page that it is drawn for: a function that makes one begins with
`new_figure`, and `page_width` sets the width around it. An SVG follows its reader's choice of light
or dark by a style sheet of its own; what does not know such style sheets shows it light.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Shape
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from laxity.sweep import student_t_95
from laxity.tables import time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

WIDTH_INCHES = 7.2
"""Two columns of a paper, or a page's width."""

NARROW_INCHES = 3.4
"""A phone's width, on which text keeps its size and less stands side by side."""

INK, MUTED, FAINT, RED = "#222222", "#6b6b6b", "#d9d9d9", "#c1121f"
GROUND, GRID, STRIPE, OTHERS = "#ffffff", "#e6e6e6", "#f5f5f5", "#bdbdbd"

ON_LIGHT, ON_DARK = "#111111", "#fefefe"
"""Text on a coloured area; the areas keep their lightness in the dark, and so does their text."""

IN_THE_DARK = {
    INK: "#e6e8ea",
    MUTED: "#a2a9b1",
    FAINT: "#454b52",
    RED: "#ff7b75",
    GROUND: "#1c1f23",
    GRID: "#30353a",
    STRIPE: "#23272c",
    OTHERS: "#5a6068",
    ON_LIGHT: ON_LIGHT,
    ON_DARK: ON_DARK,
}
"""What the colours of all figures become where the reader has chosen dark; `GROUND` is the card's
in page.css. Any other colour is made lighter until it stands out."""

CONTRAST_MIN = 3.0
"""Of lines and areas against their ground, by WCAG 2.1 (1.4.11)."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # Comes with Matplotlib: the same everywhere.
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # A name may hold a dollar sign.
    "svg.fonttype": "path",  # Needs no font where it is shown.
    "svg.hashsalt": "laxity",  # Else identifiers are random.
}

styled = matplotlib.style.context(STYLE, after_reset=True)
"""Around each function that makes a figure."""


class Look(NamedTuple):
    """How a line and its markers are drawn."""

    colour: str
    marker: str
    dashes: Any
    """As Matplotlib's `linestyle`."""


SOLID, DASHED, DOTTED = "-", (0, (4, 1.6)), (0, (1.2, 1.2))

POLICY_LOOKS = {
    "deferrable": Look("#0072b2", "o", SOLID),
    "periodic": Look("#d55e00", "s", SOLID),
    "polling": Look("#009e73", "^", SOLID),
    "sporadic": Look("#cc79a7", "D", SOLID),
    "credit": Look(INK, "X", DASHED),
    "sedf": Look("#e69f00", "v", DASHED),
    "s-base": Look("#777777", "P", DOTTED),
    "s-a": Look("#56b4e9", "*", DOTTED),
    "s-ab": Look("#8c510a", "<", DOTTED),
    "s-al": Look("#7a5195", ">", DOTTED),
    "s-all": Look("#5f7f00", "p", DOTTED),
    "s-aill": Look("#b2182b", "h", DOTTED),
    "s-allc": Look("#01665e", "d", DOTTED),
}
"""The servers solid, the others dashed, as in RT-Xen's figure 6; scheduler S dotted."""

_OTHER_LOOKS = (
    Look("#56b4e9", "P", DOTTED),
    Look("#8c510a", "*", DOTTED),
    Look("#7a5195", "<", DOTTED),
    Look("#5f7f00", ">", DOTTED),
)

_VCPU_COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"),
    *("#8c7a00", "#7a5195", "#5b8c85", "#a65628", "#3f5f8a", "#b3589a"),
)

LABEL_INCHES = 1.7
"""About what names and extremes take of the width of a timeline."""

CROWDED_POINTS = 25
"""More of them on one line have smaller markers."""

NAME_LENGTH_MAX = 24
TITLE_LENGTH_MAX = 200
BOLD_LETTER_INCHES = 0.095
PANELS_MAX = 12
LINES_MAX = len(POLICY_LOOKS)
DOMAIN_ROWS_MAX = 24
TASK_ROWS_MAX = 48
VCPU_LANES_MAX = 12
LANE_MARKS_MAX = 100
CPU_LANES_MAX = 8
"""What is still legible on a page; of more, the functions below choose what matters most."""


_page_width_inches = ContextVar("page_width_inches", default=WIDTH_INCHES)


@contextmanager
def page_width(inches: float) -> Iterator[None]:
    """Figures that are made within it are so wide."""
    token = _page_width_inches.set(inches)
    try:
        yield
    finally:
        _page_width_inches.reset(token)


def new_figure(height_inches: float) -> Figure:
    """An empty figure, as wide as the page that it is for."""
    return Figure(figsize=(_page_width_inches.get(), height_inches))


def is_narrow() -> bool:
    """Whether two things do not fit side by side."""
    return _page_width_inches.get() < WIDTH_INCHES / 1.5


def svg(figure: Figure) -> bytes:
    """The figure as SVG, light or dark as its reader has it; the same bytes for the same figure."""
    light = _saved(figure, "svg", {"Date": None, "Creator": None}).decode("utf-8")
    colours = sorted(set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", light)))
    rules = "".join(
        f'[style*="{what}: {colour}"]{{{what}:{_in_the_dark(colour)} !important}}'
        for colour in colours
        for what in ("fill", "stroke")
        if f"{what}: {colour}" in light
    )
    sheet = (
        ":root{color-scheme:light dark}"
        f"@media screen and (prefers-color-scheme:dark){{{rules}}}</style>"
    )
    drawn = light.replace("</style>", sheet, 1)
    return re.sub(r' d="[^"]*"', _rounded, drawn).encode("utf-8")


def _rounded(path: re.Match[str]) -> str:
    """A path to a hundredth of a point: what is finer nobody sees, and it is half of a file."""
    return re.sub(r"(\.\d\d)\d+", r"\1", path[0])


def png(figure: Figure) -> bytes:
    """The figure as PNG, 200 dots an inch; light, for papers."""
    return _saved(figure, "png", {"Software": None})


@styled
def _saved(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=200, facecolor=GROUND, metadata=metadata)
    return buffer.getvalue()


def _in_the_dark(colour: str) -> str:
    """The colour on a dark ground: as little lighter as makes it stand out."""
    if colour in IN_THE_DARK:
        return IN_THE_DARK[colour]
    ground = _luminance(to_rgb(IN_THE_DARK[GROUND]))
    for white in np.linspace(0, 1, 21):
        mixed = (1 - white) * np.array(to_rgb(colour)) + white
        if (_luminance(mixed) + 0.05) / (ground + 0.05) >= CONTRAST_MIN:
            break
    return to_hex(mixed)


def _luminance(rgb: Sequence[float] | np.ndarray[Any, Any]) -> float:
    """The relative luminance of WCAG 2.1."""
    part = np.asarray(rgb)
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)  # noqa: PLR2004
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def shorten(name: str, length: int = NAME_LENGTH_MAX) -> str:
    """The name, its middle left out if it is long: what tells names apart is mostly at an end."""
    if len(name) <= length:
        return name
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[-tail:]}"


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


class Published(NamedTuple):
    """What a paper states of its own figure, which stands in ours."""

    line: Any
    """Whose it is; None: of all lines."""
    x: float
    y: float | None
    """None: a vertical line at `x`."""


PUBLISHED: dict[str, Any] = {
    "linestyle": "",
    "markerfacecolor": "none",
    "markersize": 9,
    "markeredgewidth": 1.3,
    "clip_on": False,
    "zorder": 6,
}
"""How a published point looks: the marker of its line, larger and hollow."""


def published_handle() -> Line2D:
    """For a legend."""
    return Line2D([], [], label="published", marker="o", **{**PUBLISHED, "markeredgecolor": INK})


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
    lines = _ordered(points[line].unique())[:LINES_MAX]
    looks = _looks(lines)
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
    figure.supxlabel(x_label, fontsize=STYLE["axes.labelsize"], color=INK)
    figure.supylabel("Deadline miss ratio (%)", fontsize=STYLE["axes.labelsize"], color=INK)
    legend(figure, handles)
    return figure


def _limit_line(axes_of: Sequence[Axes], limit: float) -> Line2D:
    look: dict[str, Any] = {"color": MUTED, "linewidth": 0.8, "linestyle": DOTTED}
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
            shape = {**PUBLISHED, "marker": look.marker, "markeredgecolor": look.colour}
            axes.plot([stated.x], [height], transform=across, **shape)
    return [published_handle()] if published else []


def _abreast(panels: int) -> int:
    """How many panels stand side by side."""
    return 1 if is_narrow() else min(3, max(1, panels))


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """So many panels that share their axes, as many abreast as there is room for; at least one."""
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
    lane_inches = _page_width_inches.get() - LABEL_INCHES
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
        marker=look.marker,
        markersize=STYLE["lines.markersize"] * (1 if len(points) <= CROWDED_POINTS else 0.6),
        markeredgecolor=GROUND,
        markeredgewidth=0.5,
        clip_on=False,
        zorder=3,
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

    `frame` has the columns `policy`, `domain`, `jobs`, `missed` and `miss_ratio`. Of many domains,
    the worst.
    """
    policies = _ordered(frame["policy"].unique())
    looks = _looks(policies)
    domains = worst_domains(frame)
    totals = frame.groupby("policy")[["jobs", "missed"]].sum()
    rows: list[str | None] = [None, *domains]

    step = 0.8 / max(len(policies), 1)
    height = 1.0 + len(rows) * max(0.24, 0.105 * len(policies))
    figure = new_figure(height)
    axes = figure.subplots()
    axes.grid(visible=False, axis="y")
    for place in range(0, len(rows), 2):
        axes.axhspan(place - 0.5, place + 0.5, color=STRIPE, linewidth=0, zorder=0)
    for index, policy in enumerate(policies):
        of_policy = frame[frame["policy"] == policy].set_index("domain")
        jobs, missed = (float(totals[column][policy]) for column in ("jobs", "missed"))
        ratios = [missed / jobs if jobs else np.nan, *of_policy["miss_ratio"].reindex(domains)]
        jobs_of = of_policy["jobs"].reindex(domains)
        shown = [jobs > 0, *(jobs_of > 0)]
        x = [
            100 * ratio if is_shown else np.nan
            for ratio, is_shown in zip(ratios, shown, strict=True)
        ]
        y = [place + (index - (len(policies) - 1) / 2) * step for place in range(len(rows))]
        look = looks[policy]
        axes.hlines(y, 0, x, color=look.colour, linewidth=1, alpha=0.6)
        axes.plot(
            x,
            y,
            look.marker,
            color=look.colour,
            markeredgecolor=GROUND,
            markeredgewidth=0.5,
            clip_on=False,
        )
    names = ["all domains" if name is None else shorten(name) for name in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    highest = 100 * float(np.nanmax([0.05, *frame["miss_ratio"]]))
    axes.set_xlim(0, min(100.0, 1.05 * highest))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("Deadline miss ratio (%)")
    legend(figure, [line_handle(looks[policy]._replace(dashes=""), policy) for policy in policies])
    return figure


# Response times of each task


@dataclass(frozen=True)
class TaskTimes:
    """The response times of a task's completed jobs."""

    domain: str
    task: str
    deadline_ns: int
    """Relative to the arrival."""
    jobs: int
    """Whose deadline fell within the run."""
    missed: int
    response_ns: np.ndarray[Any, np.dtype[np.int64]]
    counts: np.ndarray[Any, np.dtype[np.int64]] | None = None
    """How many jobs each response time stands for; None if each stands for one."""

    @property
    def risk(self) -> tuple[float, float]:
        """Sorts tasks: part of jobs missed, then the longest response in deadlines."""
        longest = float(self.response_ns.max()) / self.deadline_ns if self.response_ns.size else 0.0
        return (self.missed / self.jobs if self.jobs else 0.0, longest)


def tasks_at_risk(tasks: Sequence[TaskTimes], rows_max: int = TASK_ROWS_MAX) -> list[TaskTimes]:
    """At most `rows_max` tasks, those that missed most or came closest to deadlines, in order."""
    worst = sorted(range(len(tasks)), key=lambda place: tasks[place].risk, reverse=True)[:rows_max]
    return [tasks[place] for place in sorted(worst)]


@styled
def response_distributions(tasks: Sequence[TaskTimes]) -> Figure:
    """How response times of each task are distributed, and its deadline, on a logarithmic axis.

    A row for each task, a panel for each domain. What was late is red. The widths say how often,
    each row by its own most frequent value.
    """
    domains: dict[str, list[TaskTimes]] = {}
    for task in tasks:
        domains.setdefault(task.domain, []).append(task)
    figure = new_figure(1.0 + 0.2 * max(len(tasks), 1) + 0.24 * len(domains))
    # One axes for all panels: many make Matplotlib slow.
    axes = figure.subplots()
    low, high = _time_range(tasks)
    ticks: list[tuple[float, str]] = []
    place = 0.0
    for domain, of_domain in domains.items():
        name = shorten(domain, NAME_LENGTH_MAX if is_narrow() else 60)
        axes.text(
            0, place, name, transform=axes.get_yaxis_transform(), va="center", fontweight="bold"
        )
        for task in of_domain:
            place += 1
            ticks.append((place, shorten(task.task)))
            _distribution(axes, task, place, (low, high))
        axes.axhline(place + 0.55, color=FAINT, linewidth=0.7, zorder=0)
        place += 1.2
    axes.set_yticks([y for y, _ in ticks], [name for _, name in ticks])
    axes.set_ylim(max(place, 1.0) - 0.65, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    decades = np.log10(high / low)
    # As many as have room.
    steps = (1.0, 2.0, 5.0) if decades < 2.2 else (1.0, 3.0) if decades < 4 else (1.0,)  # noqa: PLR2004
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: time(round(x))))
    axes.set_xlabel("Response time, from arrival to completion")
    if not tasks:
        note(axes, "no tasks")
    legend(
        figure,
        [
            Patch(facecolor="#56b4e9", label="in time"),
            Patch(facecolor=RED, label="late"),
            _symbol("median", marker="|", markersize=7, markeredgewidth=1.2, color=INK),
            _symbol("deadline", marker="D", markersize=4, color=INK),
        ],
    )
    return figure


def _time_range(tasks: Sequence[TaskTimes]) -> tuple[float, float]:
    """All response times and deadlines, ns, with some room."""
    ends = [float(task.deadline_ns) for task in tasks]
    ends += [
        float(end) for task in tasks if task.response_ns.size for end in _ends(task.response_ns)
    ]
    if not ends:
        return 1e6, 1e9
    return max(min(ends), 1.0) / 1.25, max(ends) * 1.25


def _ends(values: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _median(task: TaskTimes) -> float:
    """By nearest rank."""
    order = np.argsort(task.response_ns)
    counts = np.ones_like(order) if task.counts is None else task.counts[order]
    ranks = np.cumsum(counts)
    return float(task.response_ns[order][np.searchsorted(ranks, (ranks[-1] + 1) // 2)])


def _distribution(
    axes: Axes, task: TaskTimes, place: float, limits_ns: tuple[float, float]
) -> None:
    low, high = np.log10(limits_ns)
    axes.plot(task.deadline_ns, place, "D", color=INK, markersize=3.6, zorder=5)
    note = f"{task.missed:,} of {task.jobs:,} missed"
    if not task.response_ns.size:
        note = "no job completed" if task.jobs else "no jobs"
    axes.text(
        1.012,
        place,
        note,
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=7,
        color=RED if task.missed else MUTED,
    )
    if not task.response_ns.size:
        return
    # An edge of the bins is the deadline, so that none holds both what was in time and what was
    # late. A response of just the deadline was in time: half a nanosecond less puts it to the left
    # of that edge.
    deadline = np.log10(task.deadline_ns)
    width = (high - low) / 150
    edges = deadline + width * np.arange(
        np.floor((low - deadline) / width), np.ceil((high - deadline) / width) + 1
    )
    late_from = round((deadline - edges[0]) / width)
    edges[late_from] = deadline
    at = np.log10(np.maximum(task.response_ns - 0.5, 0.5))
    counts, _ = np.histogram(at, edges, weights=task.counts)
    # The root lets rare values be seen, the floor those that are rarer still.
    half = np.where(counts > 0, np.maximum(0.4 * np.sqrt(counts / counts.max()), 0.06), 0.0)
    x = 10**edges
    for part, colour in ((slice(None, late_from), "#56b4e9"), (slice(late_from, None), RED)):
        heights = half[part]
        if heights.any():
            outline = np.append(heights, heights[-1])
            across = x[part] if part.start is not None else x[: late_from + 1]
            axes.fill_between(
                across, place - outline, place + outline, step="post", color=colour, linewidth=0
            )
    shortest, longest = _ends(task.response_ns)
    axes.plot([shortest, longest], [place, place], color=INK, linewidth=0.6, zorder=2)
    axes.plot(_median(task), place, "|", color=INK, markersize=6.5, markeredgewidth=1.2, zorder=4)


# Who ran when


def vcpus_that_matter(timeline: Mapping[str, Any], run: Mapping[str, Any]) -> list[tuple[int, int]]:
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
    timeline: Mapping[str, Any], run: Mapping[str, Any], marks: Sequence[tuple[int, str]] = ()
) -> Figure:
    """Which VCPU each CPU ran; of each VCPU when it ran, its jobs, and its budget below.

    `timeline` is what `_core.timeline` gives of a window of a trace, `run` what
    `_core.trace_metadata` does. Of many VCPUs, those that matter, and the CPUs that they ran on;
    the others are grey. A vertical line stands at each of `marks`: time, ns, and what was then.
    What a coarser timeline put together is as high as the part of the time that it ran, and on a
    CPU in the colour of the VCPU that ran longest.
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
            _symbol("job arrives", marker="^", markersize=4.5, color=INK),
            _symbol("completes", marker="o", **_COMPLETION),
            _symbol("misses its deadline", marker="X", **_MISS),
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


_MARKS: tuple[dict[str, Any], ...] = (
    {"color": RED, "linewidth": 1.1, "linestyle": SOLID, "zorder": 6},
    {"color": RED, "linewidth": 1.1, "linestyle": DOTTED, "zorder": 6},
)


def _vcpu_of(run: Mapping[str, Any], point: Mapping[str, Any]) -> tuple[int, int]:
    """The VCPU of a job's task."""
    return point["domain"], run["domains"][point["domain"]]["tasks"][point["task"]]["vcpu"]


def _vcpu_name(run: Mapping[str, Any], vcpu: tuple[int, int]) -> str:
    domain = run["domains"][vcpu[0]]
    return str(domain["name"]) if domain["vcpus"] == 1 else f"{domain['name']}/{vcpu[1]}"


def _cpus_of(
    timeline: Mapping[str, Any], run: Mapping[str, Any], chosen: Mapping[tuple[int, int], str]
) -> list[int]:
    """The CPUs that the chosen VCPUs ran on longest; all if there are few."""
    ran: Counter[int] = Counter()
    for interval in timeline["occupancy"]:
        if (interval["domain"], interval["vcpu"]) in chosen:
            ran[interval["cpu"]] += interval["end_ns"] - interval["start_ns"]
    return sorted(sorted(range(run["cpus"]), key=lambda cpu: -ran[cpu])[:CPU_LANES_MAX])


def _time_unit(span_ns: int) -> tuple[str, int]:
    """In which the ticks of an axis of that length are short numbers."""
    for unit, unit_ns in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
        if span_ns >= 5 * unit_ns:
            return unit, unit_ns
    return "ns", 1


def _is_dark(colour: str) -> bool:
    """Whether white text reads better on it."""
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.5  # noqa: PLR2004


def _cpu_lane(
    axes: Axes,
    timeline: Mapping[str, Any],
    cpu: int,
    bottom: float,
    colours: Mapping[tuple[int, int], str],
    run: Mapping[str, Any],
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
    cells: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
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
    lane_inches = _page_width_inches.get() - LABEL_INCHES
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
    timeline: Mapping[str, Any],
    run: Mapping[str, Any],
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

    def times(kind: str) -> list[float]:
        return [
            point["time_ns"] / unit_ns for point in timeline[kind] if _vcpu_of(run, point) == vcpu
        ]

    releases, completions, misses = (times(kind) for kind in ("releases", "completions", "misses"))
    axes.plot(*_ticks(releases, bottom + 0.48, bottom + 0.88), color=INK, linewidth=0.7)
    if len(releases) <= LANE_MARKS_MAX:
        _marks(axes, releases, bottom + 0.88, "^", color=INK, markersize=3.6)
        _marks(axes, completions, bottom + 0.57, "o", **_COMPLETION)
    apart = (timeline["to_ns"] - timeline["from_ns"]) / unit_ns / LANE_MARKS_MAX
    misses = list({int(at / apart): at for at in reversed(misses)}.values())
    axes.plot(*_ticks(misses, bottom + 0.02, bottom + 0.78), color=RED, linewidth=0.9)
    _marks(axes, misses, bottom + 0.24, "X", **_MISS)
    points = next(
        budget["points"]
        for budget in timeline["budgets"]
        if (budget["domain"], budget["vcpu"]) == vcpu
    )
    _budget_line(axes, points, bottom, colour, unit_ns)


_COMPLETION: dict[str, Any] = {
    "color": INK,
    "markerfacecolor": GROUND,
    "markersize": 3.2,
    "markeredgewidth": 0.8,
    "zorder": 4,
}
_MISS: dict[str, Any] = {
    "color": RED,
    "markersize": 6,
    "markeredgecolor": GROUND,
    "markeredgewidth": 0.4,
    "zorder": 5,
}


def _marks(axes: Axes, x: Sequence[float], y: float, marker: str, **look: Any) -> None:  # noqa: ANN401
    """Markers in a lane, whole at the axis' ends too; none at all would stand at the origin."""
    if x:
        axes.plot(x, [y] * len(x), linestyle="", marker=marker, clip_on=False, **look)


def _is_exact(interval: Mapping[str, Any]) -> bool:
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


# What all figures share


def _ordered(values: Sequence[Any]) -> list[Any]:
    """Policies in the order of tables, then what else there is, sorted."""
    places = {policy: place for place, policy in enumerate(POLICY_LOOKS)}
    return sorted(values, key=lambda value: (places.get(value, len(places)), value))


def _looks(values: Sequence[Any]) -> dict[Any, Look]:
    """Of policies their own; of numbers a scale from light to dark; of anything else some."""
    if values and all(isinstance(value, int | float | np.number) for value in values):
        shades = np.linspace(0.82, 0.08, len(values)) if len(values) > 1 else np.array([0.3])
        markers = islice(cycle("osD^vXP*<>"), len(values))
        viridis = colormaps["viridis"]
        return {
            value: Look(to_hex(viridis(shade)), marker, SOLID)
            for value, shade, marker in zip(values, shades, markers, strict=True)
        }
    others = cycle(_OTHER_LOOKS)
    return {
        value: POLICY_LOOKS[value] if value in POLICY_LOOKS else next(others) for value in values
    }


def line_handle(look: Look, label: str) -> Line2D:
    """For a legend: a line as it is drawn."""
    return Line2D(
        [],
        [],
        color=look.colour,
        linestyle=look.dashes,
        marker=look.marker,
        markeredgecolor=GROUND,
        markeredgewidth=0.5,
        label=shorten(label),
    )


def _symbol(label: str, **look: Any) -> Line2D:  # noqa: ANN401
    """For a legend: a marker without a line."""
    return Line2D([], [], linestyle="", label=label, **look)


def title(axes: Axes, text: str, abreast: int = 1) -> None:
    """Above a panel of so many side by side, whole: on several lines if it is long."""
    letters = int(_page_width_inches.get() / abreast / BOLD_LETTER_INCHES)
    lines = textwrap.wrap(shorten(text, TITLE_LENGTH_MAX), letters)
    axes.set_title("\n".join(lines), loc="left", fontweight="bold")


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Above all panels, in as many columns as the width has room for."""
    if not handles:
        return
    inches = [0.62 + 0.064 * len(str(handle.get_label())) for handle in handles]
    rows = 1
    while (
        rows < len(handles)
        and sum(max(inches[at : at + rows]) for at in range(0, len(handles), rows))
        > figure.get_figwidth()
    ):
        rows += 1
    columns = -(-len(handles) // rows)
    figure.legend(
        handles=list(handles), loc="outside upper center", ncols=columns, columnspacing=1.4
    )


def note(axes: Axes, text: str) -> None:
    """In the middle of a panel that has nothing else."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
