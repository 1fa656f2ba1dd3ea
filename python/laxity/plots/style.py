"""The style of all figures: colours, widths, legends, and how a figure is written to a file.

Colours are those of Okabe and Ito, which colour-blind people can tell apart; markers and line
styles say the same once more, for print in grey. A policy looks the same in every figure.

A figure is as wide as the page that it is drawn for: a function that makes one begins with
`new_figure`, and `page_width` sets the width around it. An SVG follows its reader's choice of light
or dark by a style sheet of its own; a viewer that does not know such style sheets shows it light.
"""

from __future__ import annotations

import io
import re
import textwrap
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import matplotlib.style
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from laxity.policies import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.typing import LineStyleType


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
"""The least contrast of lines and areas with their ground, by WCAG 2.1 (1.4.11)."""

LABEL_SIZE = 8.5
MARKER_SIZE = 4.5

STYLE: dict[str, object] = {
    "font.family": "DejaVu Sans",  # Comes with Matplotlib: the same everywhere.
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": LABEL_SIZE,
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
    "lines.markersize": MARKER_SIZE,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # A name may hold a dollar sign.
    "svg.fonttype": "path",  # Needs no font where it is shown.
    "svg.hashsalt": "laxity",  # Else identifiers are random.
}

styled = matplotlib.style.context(STYLE, after_reset=True)
"""Around each function that makes a figure."""


class MarkerLook(TypedDict):
    """A marker with its edge, as Line2D takes them."""

    marker: str
    markeredgecolor: str
    markeredgewidth: float


class LineLook(TypedDict, total=False):
    """Properties of a line and its markers, as Line2D takes them."""

    color: str
    linestyle: LineStyleType
    linewidth: float
    marker: str
    markersize: float
    markeredgecolor: str
    markeredgewidth: float
    markerfacecolor: str
    clip_on: bool
    zorder: float


class Look(NamedTuple):
    """How a line and its markers are drawn."""

    colour: str
    marker: str
    dashes: LineStyleType

    @property
    def shape(self) -> MarkerLook:
        """The marker with its edge, as Line2D takes them.

        What is filled has a thin edge of the ground's colour, so that it stands out from its line.
        Some markers are nothing but an edge, and of small ones that edge would leave nothing.
        """
        is_large = self.marker in Line2D.filled_markers and self.marker not in ".*"
        edge = (GROUND, 0.5) if is_large else (self.colour, 1.3)
        return {"marker": self.marker, "markeredgecolor": edge[0], "markeredgewidth": edge[1]}


SOLID: LineStyleType = "-"
DASHED: LineStyleType = (0, (4, 1.6))
DOTTED: LineStyleType = (0, (1.2, 1.2))

_FAMILY_DASHES = {"servers": SOLID, "scheduler-s": DOTTED}
"""As in RT-Xen's figure 6; the families that are not named here are dashed."""

_COLOURS_AND_MARKERS = (
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#cc79a7", "D"),
    (INK, "X"),
    ("#e69f00", "v"),
    ("#777777", "P"),
    ("#56b4e9", "*"),
    ("#8c510a", "<"),
    ("#7a5195", ">"),
    ("#5f7f00", "p"),
    ("#b2182b", "h"),
    ("#01665e", "d"),
    ("#8c7a00", "H"),
    ("#3f5f8a", "8"),
    ("#a65628", "1"),
    ("#1b5e9b", "2"),
    ("#c2185b", "3"),
    ("#2e7d32", "4"),
    ("#6d4c41", "x"),
    ("#00838f", "+"),
    ("#9e5a00", "."),
    ("#512da8", "_"),
    ("#455a64", "$A$"),
    ("#b8860b", "$B$"),
    ("#6a8f00", "$C$"),
    ("#8e3b2f", "$D$"),
    ("#d81b9a", "|"),
)
"""The policies' in their order; the first follows the last. The last one looks like the end of a
bar of errors."""

POLICY_LOOKS = {
    name: Look(colour, marker, _FAMILY_DASHES.get(policy.family, DASHED))
    for (name, policy), (colour, marker) in zip(
        TABLE.items(), cycle(_COLOURS_AND_MARKERS), strict=False
    )
}

_OTHER_LOOKS = (
    Look("#56b4e9", "P", DOTTED),
    Look("#8c510a", "*", DOTTED),
    Look("#7a5195", "<", DOTTED),
    Look("#5f7f00", ">", DOTTED),
)

LABEL_INCHES = 1.7
"""About what names and extremes take of the width of a timeline."""

NAME_LENGTH_MAX = 24
TITLE_LENGTH_MAX = 200
BOLD_LETTER_INCHES = 0.095
LINES_MAX = len(POLICY_LOOKS)


page_width_inches = ContextVar("page_width_inches", default=WIDTH_INCHES)


@contextmanager
def page_width(inches: float) -> Iterator[None]:
    """Figures that are made within it are so wide."""
    token = page_width_inches.set(inches)
    try:
        yield
    finally:
        page_width_inches.reset(token)


def new_figure(height_inches: float) -> Figure:
    """An empty figure, as wide as the page that it is for."""
    return Figure(figsize=(page_width_inches.get(), height_inches))


def is_narrow() -> bool:
    """Whether two things do not fit side by side."""
    return page_width_inches.get() < WIDTH_INCHES / 1.5


def svg(figure: Figure) -> bytes:
    """The figure as SVG, light or dark as its reader has it; the same bytes for the same figure."""
    light = _saved(figure, "svg", {"Date": None, "Creator": None}).decode("utf-8")
    return re.sub(r' d="[^"]*"', _rounded, for_both(light)).encode("utf-8")


def for_both(light: str) -> str:
    """A light figure's SVG, with a style sheet that makes it dark for readers who chose dark."""
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
    return light.replace("</style>", sheet, 1)


def _rounded(path: re.Match[str]) -> str:
    """A path to a hundredth of a point. Finer digits are invisible, and half of a file."""
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


# What all figures share


def ordered(values: Sequence[Any]) -> list[Any]:
    """Policies in the order of tables, then all other values, sorted."""
    places = {policy: place for place, policy in enumerate(POLICY_LOOKS)}
    return sorted(values, key=lambda value: (places.get(value, len(places)), value))


def looks_of(values: Sequence[Any]) -> dict[Any, Look]:
    """The looks of policies are fixed; numbers get a scale from light to dark."""
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
        label=shorten(label),
        **look.shape,
    )


def symbol(label: str, **look: Any) -> Line2D:  # noqa: ANN401
    """For a legend: a marker without a line."""
    return Line2D([], [], linestyle="", label=label, **look)


def title(axes: Axes, text: str, abreast: int = 1) -> None:
    """Sets the title of a panel, `abreast` of which stand side by side; a long one is wrapped."""
    letters = int(page_width_inches.get() / abreast / BOLD_LETTER_INCHES)
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
