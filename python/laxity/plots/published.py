"""What a paper states of its own figure, drawn into ours."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from laxity.plots.style import INK


class Published(NamedTuple):
    """What a paper states of its own figure, which stands in ours."""

    line: Any
    """The line that it belongs to; None if it belongs to all."""
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
