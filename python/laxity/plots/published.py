"""What a paper states of its own figure, drawn into ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.lines import Line2D

from laxity.plots.style import INK

if TYPE_CHECKING:
    from laxity.plots.style import LineLook


class Published(NamedTuple):
    """What a paper states of its own figure, which stands in ours."""

    line: Any
    """The line that it belongs to; None if it belongs to all."""
    x: float
    y: float | None
    """None: a vertical line at `x`."""


PUBLISHED: LineLook = {
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
    return Line2D([], [], label="published", **published_look("o", INK))


def published_look(marker: str, colour: str) -> LineLook:
    """How a published point of a line looks."""
    return {**PUBLISHED, "marker": marker, "markeredgecolor": colour}
