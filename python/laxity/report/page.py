"""What a report is made of, and its HTML. Nothing here knows what was run."""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from laxity import files, substrates
from laxity.directory import HOST
from laxity.plots import style
from laxity.statistics import mean
from laxity.text import NOTHING, OTHER_COSTS, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from laxity.results.origin import Origin
    from laxity.results.run import Run
    from laxity.results.schema import Profile
    from laxity.substrates.substrate import Substrate

OPEN_ROWS_MAX = 40
"""A longer table is shut until someone opens it."""

SECTIONS_MAX = 3
"""A page with more sections has a table of contents."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    tone: str = ""
    """`good`, `bad` or nothing; what it says stands in the text too."""
    detail: str = ""
    """Small, under the text."""


@dataclass(frozen=True)
class Table:
    """A table."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    words: int = 1
    """Columns at the left that are words, the others being numbers; 0 if all are words."""
    note: str = ""

    @property
    def is_long(self) -> bool:
        """Whether it is shut until someone opens it."""
        return len(self.rows) > OPEN_ROWS_MAX


@dataclass(frozen=True)
class Live:
    """What makes a timeline out of a figure where scripts run."""

    about: str
    """The words of the button that shows what it opens at."""
    note: str
    data: str
    """The run, as `timeline.js` reads it: JSON in which no tag can begin or end."""


@dataclass(frozen=True)
class Picture:
    """A figure with its words."""

    name: str
    """The name of its files."""
    title: str
    caption: str
    alternative: str
    """What it says, for who cannot see it."""
    draw: Callable[[], Figure]
    """Makes the figure for the page's width."""
    live: Live | None = None
    """Takes the figure's place on a screen."""

    @cached_property
    def figure(self) -> Figure:
        """For a page of ordinary width."""
        return self.draw()

    @cached_property
    def svg(self) -> bytes:
        """The content of the SVG file."""
        return style.svg(self.figure)

    @cached_property
    def png(self) -> bytes:
        """The content of the PNG file."""
        return style.png(self.figure)

    @property
    def source(self) -> str:
        """The SVG as a `data:` address, an image of its own: identifiers of two figures clash."""
        return _address(self.svg)

    @property
    def narrow_source(self) -> str:
        """The same drawn for a phone, where the wide one's text would be illegible."""
        with style.page_width(style.NARROW_INCHES):
            return _address(style.svg(self.draw()))


def _address(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()


def label(run: Run, seeds: Sequence[int]) -> str:
    """What tells a run from others of a comparison: its policy, and its seed of several."""
    return run.policy if len(seeds) == 1 else f"{run.policy}, seed {run.seed}"


def costs(profiles: Sequence[Profile]) -> list[tuple[str, str]]:
    """The facts that say on which machine the costs behind a verdict were found."""
    found = [(f"Costs of {each.of}", f"{each.name}: {each.source}") for each in profiles]
    return [*found, ("On another machine", f"{OTHER_COSTS}.")] if found else []


@dataclass(frozen=True)
class Page:
    """A report."""

    kind: str
    """What was done, in a few words."""
    verdict: str
    """The one sentence that counts."""
    tone: str
    """`good`, `bad` or nothing."""
    lead: str
    """What else one wants to know first."""
    facts: list[tuple[str, str]]
    sections: list[Section]
    command: str
    """What runs it again."""
    repeats: str
    """How far the results are the same then."""
    host: str | None = None
    """The host file."""
    version: str = field(kw_only=True)

    @property
    def pictures(self) -> list[Picture]:
        """All of them."""
        return [picture for section in self.sections for picture in section.pictures]

    @property
    def live(self) -> bool:
        """Whether there is a timeline."""
        return any(picture.live for picture in self.pictures)

    @property
    def is_long(self) -> bool:
        """Whether it has a table of contents."""
        return len(self.sections) > SECTIONS_MAX


def html(page: Page) -> str:
    """The whole document; whatever is not ours is escaped."""
    environment = Environment(
        loader=PackageLoader("laxity.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html").render(page=page)


def command(words: Iterable[str], overrides: Sequence[str] = (), output: str = "again") -> str:
    """A command line of Laxity that is run in the output directory."""
    settings = [word for override in overrides for word in ("--set", override)]
    return shlex.join(["laxity", *words, *settings, "-o", output])


def repeats(on: Substrate) -> str:
    """How far the command gives the same results again."""
    return f"In this directory; {on.repeats}."


def substrate_of(origin: Origin, name: str = substrates.NAMES[0]) -> Substrate:
    """The substrate with its options; older outputs know no more than its name."""
    return substrates.of_words(origin.options) if origin.options else substrates.of(name)


def without_policies(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides but for a list of policies, and that as the option that gave it."""
    lists = [text for text in overrides if text.startswith("host.policy=") and "|" in text]
    policies = lists[-1].partition("=")[2].split("|") if lists else []
    option = ["--policy", ",".join(policies)] if policies else []
    return [text for text in overrides if text not in lists], option


def host_text(directory: Path) -> str:
    """The host file, verbatim."""
    return files.read(directory / HOST, files.HOST_BYTES_MAX).decode("utf-8", "replace")


def changes(overrides: Sequence[str]) -> list[tuple[str, str]]:
    """What was changed in the host file, as a fact, if anything was."""
    return [("Changed in the host file", ", ".join(overrides))] if overrides else []


def missed_cell(ratio: float, jobs: int, *, is_least: bool = False) -> Cell:
    """A miss ratio; nothing where there were no jobs. The least of a comparison is no alarm."""
    return Cell(percent(ratio), "bad" if ratio and not is_least else "") if jobs else Cell(NOTHING)


def mean_cell(ratios: Sequence[float], *, is_least: bool = False) -> Cell:
    """The mean of miss ratios over seeds with its 95 % confidence interval; nothing without any."""
    if not ratios:
        return Cell(NOTHING)
    over_seeds = mean(ratios)
    half = over_seeds.half_width_95 or 0.0
    ends = (max(0.0, over_seeds.mean - half), min(1.0, over_seeds.mean + half))
    tone = "bad" if over_seeds.mean and not is_least else ""
    return Cell(percent(over_seeds.mean), tone, interval(*map(percent, ends)) if half else "")


def interval(low: str, high: str) -> str:
    """From here to there; one value where both ends read the same."""
    return low if low == high else f"{low} to {high}"


def plain(*texts: str) -> list[Cell]:
    """Cells without a tone."""
    return [Cell(text) for text in texts]
