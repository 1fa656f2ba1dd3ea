"""CPU use against load, as the paper draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.plots.published import published_handle, published_look
from laxity.plots.style import DASHED, DOTTED, SOLID, Look, legend, line_handle, new_figure, styled

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.figure import Figure
    from matplotlib.typing import LineStyleType

COLOURS = {"Dom0": "#0072b2", "guest": "#d55e00"}
DASHES: dict[str, tuple[str, LineStyleType]] = {
    "UDP": ("o", SOLID),
    "TCP_1": ("s", DASHED),
    "TCP_n": ("^", DOTTED),
}


@styled
def cpu(data: pd.DataFrame, published: Mapping[str, Mapping[float, float]] | None = None) -> Figure:
    """Each `line`'s `cpu_percent` against `per_s`; a line's name is "Dom0, UDP" and the like.

    `published` has the paper's values of some lines, by `per_s`.
    """
    figure = new_figure(3.4)
    axes = figure.subplots()
    looks = {}
    for line, points in data.groupby("line", sort=False):
        domain, transport = str(line).split(", ")
        marker, dashes = DASHES[transport]
        look = looks[str(line)] = Look(COLOURS[domain], marker, dashes)
        axes.plot(
            points.per_s,
            points.cpu_percent,
            color=look.colour,
            marker=look.marker,
            linestyle=look.dashes,
        )
    handles = [line_handle(look, name) for name, look in looks.items()]
    for line, points in (published or {}).items():
        look = looks[line]
        shape = published_look(look.marker, look.colour)
        axes.plot(list(points), list(points.values()), **shape)
    if published:
        handles.append(published_handle())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("REGISTER a second")
    axes.set_ylabel("CPU (% of one)")
    legend(figure, handles)
    return figure
