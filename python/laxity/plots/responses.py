"""Response times of tasks beside their deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from laxity.plots.style import (
    FAINT,
    INK,
    MUTED,
    NAME_LENGTH_MAX,
    RED,
    is_narrow,
    legend,
    new_figure,
    note,
    shorten,
    styled,
    symbol,
)
from laxity.text import time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from laxity.plots.style import LineLook


TASK_ROWS_MAX = 48

BOUND: LineLook = {
    "marker": "|",
    "markersize": 11,
    "markeredgewidth": 1.8,
    "color": "#0072b2",
}
"""How the bound of a task's response time looks."""


# Response times of each task


@dataclass(frozen=True)
class TaskTimes:
    """The response times of a task's completed jobs."""

    domain: str
    task: str
    deadline_ns: int
    """Relative to the arrival."""
    jobs: int
    """The jobs whose deadline fell within the run."""
    missed: int
    response_ns: np.ndarray[Any, np.dtype[np.int64]]
    counts: np.ndarray[Any, np.dtype[np.int64]] | None = None
    """How many jobs each response time stands for; None if each stands for one."""
    bound_ns: int | None = None
    """What analysis says that no response takes longer than; None if it gives none."""

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
    each row by its own most frequent value. A vertical line is the bound of the analysis.
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
    # The number of ticks is what has room on the axis; a narrow one has room for half as many.
    decades = np.log10(high / low) * (2 if is_narrow() else 1)
    steps = (1.0, 2.0, 5.0) if decades < 2.2 else (1.0, 3.0) if decades < 4 else (1.0,)  # noqa: PLR2004
    base = 10.0 if decades < 8 else 100.0  # noqa: PLR2004
    axes.xaxis.set_major_locator(LogLocator(base, subs=steps, numticks=20))
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
            symbol("median", marker="|", markersize=7, markeredgewidth=1.2, color=INK),
            symbol("deadline", marker="D", markersize=4, color=INK),
            *(
                [symbol("bound by analysis", **BOUND)]
                if any(task.bound_ns for task in tasks)
                else []
            ),
        ],
    )
    return figure


def _time_range(tasks: Sequence[TaskTimes]) -> tuple[float, float]:
    """All response times and deadlines, ns, with some room."""
    ends = [float(task.deadline_ns) for task in tasks]
    ends += [float(task.bound_ns) for task in tasks if task.bound_ns]
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
    if task.bound_ns:
        axes.plot(task.bound_ns, place, linestyle="", zorder=5, **BOUND)
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
