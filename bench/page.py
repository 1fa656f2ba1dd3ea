"""What the pages of measurements are made of."""

from __future__ import annotations

import os
import platform
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import laxity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.spread import Spread


def machine(load_before: float) -> str:
    """What was measured on, with the load of the machine before and now."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    before, after = load_before, os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} CPUs, load {before:.1f} before and {after:.1f} after; "
        f"Linux {platform.release()}, Python {platform.python_version()}, "
        f"Laxity {laxity.__version__}."
    )


def paragraph(text: str) -> list[str]:
    """Its lines, and an empty one after them."""
    return [textwrap.fill(" ".join(text.split()), 100), ""]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """In Markdown, the columns aligned, the first to the left."""
    table = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "| "
        + " | ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in table
    ]
    rule = "|".join("-" * (width + 1) + (":" if at else "-") for at, width in enumerate(widths))
    return [lines[0], f"|{rule}|", *lines[1:], ""]


def spread(spread: Spread, digits: int = 0) -> str:
    """The median, and the least and the greatest in parentheses."""
    return f"{spread.median:,.{digits}f} ({spread.least:,.{digits}f} to {spread.most:,.{digits}f})"
