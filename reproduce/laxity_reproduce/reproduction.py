"""What a reproduction found: the published value, ours, a verdict and why, row by row."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from laxity import _core, substrates
from laxity.directory import Manifest, output, write_json
from laxity.text import number
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import RenderableType

Verdict = Literal["reproduced", "differs"]
Value = float | str | list[float] | None


@dataclass(frozen=True)
class Row:
    """One published value or claim."""

    what: str
    published: Value
    ours: Value
    """For a value that varies with the task set: the mean over task sets."""
    verdict: Verdict
    why: str = ""
    """What the verdict rests on; where ours differs, what was measured about the difference."""
    spread: str = ""
    """The intervals of `ours`, as the experiment's `method` explains."""


@dataclass(frozen=True)
class Measurement:
    """Something that we measured and the paper did not publish: what a difference comes from, or
    what is better here.
    """

    what: str
    ours: Value
    why: str = ""


@dataclass(frozen=True)
class Experiment:
    """A figure or a table of a paper."""

    name: str
    title: str
    method: str
    """What was run, and the rule of the verdicts."""
    rows: list[Row]
    measurements: list[Measurement]
    data: pd.DataFrame
    """Every run of it, or every curve's points."""
    draw: Callable[[pd.DataFrame], Figure] | None = None
    """Its figure, from the data; None for a table."""

    @property
    def reproduced(self) -> bool:
        """Whether every row is."""
        return all(row.verdict == "reproduced" for row in self.rows)

    def to_json(self) -> dict[str, object]:
        """Without the data, which has a file of its own."""
        return {
            "name": self.name,
            "title": self.title,
            "method": self.method,
            "reproduced": self.reproduced,
            "rows": [
                {
                    "what": row.what,
                    "published": row.published,
                    "ours": row.ours,
                    "verdict": row.verdict,
                    "why": row.why,
                    "spread": row.spread,
                }
                for row in self.rows
            ],
            "measurements": [
                {"what": found.what, "ours": found.ours, "why": found.why}
                for found in self.measurements
            ],
        }


def verdict(*, holds: bool) -> Verdict:
    """The word for it."""
    return "reproduced" if holds else "differs"


WHOLE = 1000
"""From here on all digits before the point are shown, and none behind it."""


def shown(value: Value) -> str:
    """A value as tables show it."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(shown(element) for element in value)
    if value == int(value) or abs(value) >= WHOLE:
        return f"{value:,.0f}"
    return digits(value, 3)


def digits(value: float, count: int) -> str:
    """A number with `count` significant digits, and without an exponent if it is large."""
    rounded = float(f"{value:.{count}g}")
    if abs(rounded) >= 10 ** (count - 1):
        return f"{rounded:,.0f}"
    return f"{rounded:.{count}g}"


@dataclass(frozen=True)
class Reproduction:
    """All experiments of a paper that were run."""

    paper: str
    """Its name on the command line, such as "rt-xen"."""
    title: str
    seeds: int
    """An experiment; in rt-xen each draws a task set."""
    quick: bool
    """Fewer seeds, shorter runs and coarser loads than the paper's: a smoke test, not a result."""
    experiments: list[Experiment]
    on: str = substrates.NAMES[0]
    """The name of the substrate."""
    version: str = field(default=_core.__version__)

    @property
    def reproduced(self) -> bool:
        """Whether every row of every experiment is."""
        return all(experiment.reproduced for experiment in self.experiments)

    def to_json(self) -> dict[str, object]:
        """What `--json` prints."""
        return {
            "paper": self.paper,
            "title": self.title,
            "laxity": self.version,
            "on": self.on,
            "seeds": self.seeds,
            "quick": self.quick,
            "reproduced": self.reproduced,
            "experiments": [experiment.to_json() for experiment in self.experiments],
        }

    def save(self, path: str | Path) -> None:
        """Writes an output directory. Raises InputError if something else stands there."""
        with output(Path(path)) as directory:
            Manifest("reproduce", None, ()).save(directory)
            write_json(directory / "reproduce.json", self.to_json())
            (directory / "data").mkdir()
            for experiment in self.experiments:
                experiment.data.to_parquet(directory / "data" / f"{experiment.name}.parquet")

    def __rich__(self) -> RenderableType:
        """For a terminal of 80 columns or more."""
        title = f"{self.title}: published and ours{substrates.of(self.on).suffix()}"
        parts: list[RenderableType] = [Text(title, style="bold")]
        if self.quick:
            parts.append(Text(QUICK, style="yellow"))
        for experiment in self.experiments:
            parts += [Text(""), _table(experiment)]
        rows = [row for experiment in self.experiments for row in experiment.rows]
        same = sum(row.verdict == "reproduced" for row in rows)
        if same < len(rows):
            parts += [Text(""), Text("Why rows differ, and how many", "bold")]
            parts += _causes(self.experiments)
        measured = sum(len(experiment.measurements) for experiment in self.experiments)
        parts += [Text(""), Text(f"{same} of {len(rows)} rows reproduced", style="bold")]
        if same < len(rows) or measured:
            parts.append(
                Text(
                    "-o DIR writes a report, and --docs PAGE a page, with every reason in full"
                    f" and {number(measured, 'measurement')}",
                    "dim",
                )
            )
        return Group(*parts)


QUICK = "--quick: fewer seeds, shorter runs, coarser loads. Verdicts are not results."


def _table(experiment: Experiment) -> Table:
    table = Table(
        title=f"{experiment.name}: {experiment.title}", title_justify="left", expand=False
    )
    table.add_column("what", ratio=3, overflow="fold")
    table.add_column("published", ratio=2, overflow="fold")
    table.add_column("ours", ratio=2, overflow="fold")
    table.add_column("verdict", no_wrap=True, width=10)
    for row in experiment.rows:
        style = "green" if row.verdict == "reproduced" else "yellow"
        ours = shown(row.ours)
        table.add_row(
            row.what,
            shown(row.published),
            f"{ours}\n{row.spread}" if row.spread else ours,
            Text(row.verdict, style=style),
        )
    return table


def _causes(experiments: list[Experiment]) -> list[RenderableType]:
    """Why rows differ: a line for each cause, with how many rows it holds for."""
    lines: list[RenderableType] = []
    for experiment in experiments:
        causes: dict[str, list[str]] = {}
        for row in experiment.rows:
            if row.verdict == "differs":
                clause = _clause(row.why)
                causes.setdefault(_NUMBER.sub("…", clause), []).append(clause)
        for cause, clauses in causes.items():
            text = clauses[0] if len(set(clauses)) == 1 else cause
            line = f"{experiment.name:12} {len(clauses):3}  {text}"
            lines.append(Text(line, no_wrap=True, overflow="ellipsis"))
    return lines


CLAUSE_LETTERS_MIN = 24
"""A shorter beginning of a reason names a place, and no cause."""

_NUMBER = re.compile(r"[+-]?[0-9][0-9.,]*(?: to [0-9][0-9.,]*)?")
_END_OF_CLAUSE = re.compile(r"[:;] | \(|\. ")


def _clause(why: str) -> str:
    """The beginning of a reason, as far as it can stand alone; the rest is its evidence."""
    end = _END_OF_CLAUSE.search(why, CLAUSE_LETTERS_MIN)
    return why[: end.start()] if end else why
