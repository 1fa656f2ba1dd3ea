"""What commands print: results to the standard output, progress to the standard error."""

from __future__ import annotations

import json
import shlex
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from laxity.progress import silent
from laxity.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.status import Status

PROGRESS_AFTER_S = 1.0
"""Shorter work shows no progress bar."""


def print_json(content: Mapping[str, object]) -> None:
    """Prints one JSON object, indented."""
    print(json.dumps(content, indent=2))


def print_rich(renderable: RenderableType) -> None:
    """Prints a table or text; a narrow terminal wraps its lines, where Rich would cut numbers."""
    from rich.console import Console

    from laxity.tables.layout import WIDTH

    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    console.print(renderable)


def say(line: str) -> None:
    """Reports the progress of work that takes minutes."""
    print(line, file=sys.stderr, flush=True)


def say_written(output: Path | None) -> None:
    """Prints where the output is, and the command that makes a report of it."""
    if output is not None:
        # Rich would take brackets in a name for markup, and wrap a path that is to be copied.
        print(f"Written to {output}; laxity report {shlex.quote(str(output))} makes a page of it")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Gives a function of (done, total) that moves a bar; None where there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    start = time.monotonic()

    def tell(done: int, total: int) -> None:
        if time.monotonic() - start > PROGRESS_AFTER_S:
            with uninterrupted():
                bar.update(task, completed=done, total=total)
                bar.start()

    with _taken_away(bar):
        yield tell


@contextmanager
def status(what: str) -> Iterator[Callable[[str], None]]:
    """Gives a function that shows the current step, where there is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console

    shown = Console(stderr=True).status(what)
    with _taken_away(shown):
        with uninterrupted():
            shown.start()
        yield shown.update


@contextmanager
def _taken_away(drawn: Progress | Status) -> Iterator[None]:
    """Takes away in the end what Rich has drawn.

    Rich cannot stop what it has half started or half stopped, and leaves the cursor hidden: no
    signal may come in between.
    """
    try:
        yield
    finally:
        with uninterrupted():
            drawn.stop()
