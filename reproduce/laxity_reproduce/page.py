"""The results page of a reproduction, in Markdown, with its figures beside it."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from laxity import substrates
from laxity.plots import style

from laxity_reproduce.reproduction import QUICK, shown

if TYPE_CHECKING:
    from pathlib import Path

    from laxity_reproduce.reproduction import Experiment, Reproduction


COLUMNS = 100
"""The length of a line of prose."""


def write_page(reproduction: Reproduction, path: Path) -> None:
    """Writes the page, and its figures into a directory beside it that has the page's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seeds = f"{reproduction.seeds} seeds in each experiment"
    on = substrates.of(reproduction.on)
    lines = [
        f"<!-- Written by `{_command(reproduction)} --docs {path.name}`. Do not edit. -->",
        "",
        f"# {reproduction.title}: published and ours{on.suffix()}",
        "",
        f"Laxity {reproduction.version}, {on.setting or seeds}.",
        "",
    ]
    if reproduction.quick:
        lines += [f"**{QUICK}**", ""]
    lines += _summary(reproduction)
    for experiment in reproduction.experiments:
        lines += ["", f"## {experiment.name}: {experiment.title}", ""]
        lines += [*wrapped(experiment.method), ""]
        if experiment.draw is not None:
            drawing = path.parent / path.stem / f"{experiment.name}.svg"
            drawing.parent.mkdir(exist_ok=True)
            drawing.write_bytes(style.svg(experiment.draw(experiment.data)))
            lines += [f"![{experiment.title}]({path.stem}/{drawing.name})", ""]
        lines += _rows(experiment)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _command(reproduction: Reproduction) -> str:
    words = ["laxity reproduce", reproduction.paper]
    words += substrates.of(reproduction.on).words
    words += ["--quick"] if reproduction.quick else []
    return " ".join(words)


def _summary(reproduction: Reproduction) -> list[str]:
    lines = ["| experiment | rows | reproduced | differ |", "|---|--:|--:|--:|"]
    for experiment in reproduction.experiments:
        same = sum(row.verdict == "reproduced" for row in experiment.rows)
        total = len(experiment.rows)
        name = f"{experiment.name}: {experiment.title}"
        lines.append(f"| {_cell(name)} | {total} | {same} | {total - same} |")
    return lines


def _rows(experiment: Experiment) -> list[str]:
    reasons = list(dict.fromkeys(row.why for row in experiment.rows if row.why))
    lines = ["| what | published | ours | verdict |", "|---|---|---|---|"] * bool(experiment.rows)
    for row in experiment.rows:
        ours = _cell(shown(row.ours)) + (f"<br>{_cell(row.spread)}" if row.spread else "")
        mark = f" [{reasons.index(row.why) + 1}]" if row.why else ""
        cells = [_cell(row.what), _cell(shown(row.published)), ours, f"{row.verdict}{mark}"]
        lines.append(f"| {' | '.join(cells)} |")
    if reasons:
        lines += ["", "Why:", ""]
        for number, reason in enumerate(reasons, start=1):
            lines += wrapped(reason, f"{number}. ")
    if experiment.measurements:
        lines += ["", "Further measurements:", "", "| what | ours | |", "|---|---|---|"]
        lines += [
            f"| {_cell(found.what)} | {_cell(shown(found.ours))} | {_cell(found.why)} |"
            for found in experiment.measurements
        ]
    return lines


def wrapped(text: str, first: str = "") -> list[str]:
    """Lines of a paragraph of Markdown; `first` opens the first and indents the others.

    No line begins with what Markdown would take for a list or a heading.
    """
    glued = re.sub(r" (?=([-+*#>]|\d+[.)]) )", "\0", text)
    lines = textwrap.wrap(
        glued,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
