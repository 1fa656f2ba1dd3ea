"""Reports: from an output directory to one HTML file that needs nothing else, with its figures.

>>> from laxity import report
>>> report.write(Path("out"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from laxity import additions
from laxity.directory import WRITE_AGAIN, Manifest
from laxity.errors import InputError
from laxity.report import capacity, comparison, run, sweep
from laxity.report.page import html
from laxity.substrates.names import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from laxity.report.page import Page

REPORT = "report.html"
FIGURES = "figures"

_PAGES: dict[str, Callable[[Path], Page]] = {
    "capacity": capacity.page,
    "compare": comparison.page,
    "sweep": sweep.page,
}


def _page_of(kind: str) -> Callable[[Path], Page]:
    """Finds what makes the page of an output directory: here, or in another distribution."""
    if kind in _PAGES:
        return _PAGES[kind]
    if kind in additions.names():
        page: Callable[[Path], Page] = additions.module(kind, "report").page
        return page
    raise InputError(
        f"nothing that is installed reports on outputs of `laxity {kind}`",
        f"install what has the command `laxity {kind}`",
    )


def write(directory: Path, window: tuple[int, int] | None = None) -> Path:
    """Writes `report.html`, and its figures as PNG and SVG in `figures/`; returns the HTML file.

    `window` is what the timeline of a run shows: from and to, ns since its start; by default it is
    around what went wrong first (`window.cause`), or at the start if nothing did. The same
    directory gives the same bytes. Raises InputError if `directory` is not an output of Laxity, or
    damaged, or the window is not within a traced run.
    """
    kind = Manifest.load(directory).kind
    if window is not None and kind != "run":
        raise InputError(
            f"{directory} is the output of `laxity {kind}`, which has no timeline",
            "a window belongs to the report of `laxity run HOST -o DIR`",
        )
    if kind == "fidelity":
        runs = [str(directory / name) for name in NAMES if (directory / name).is_dir()]
        raise InputError(f"{directory} has two runs", f"report {' or '.join(runs)}")
    try:
        page = run.page(directory, window) if kind == "run" else _page_of(kind)(directory)
    except (OSError, pa.ArrowException, KeyError, TypeError) as error:
        raise InputError(f"{directory} is damaged: {error}", WRITE_AGAIN) from None
    try:
        figures = directory / FIGURES
        figures.mkdir(exist_ok=True)
        for picture in page.pictures:
            (figures / f"{picture.name}.svg").write_bytes(picture.svg)
            (figures / f"{picture.name}.png").write_bytes(picture.png)
        report = directory / REPORT
        report.write_text(html(page), "utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot write to {directory}: {error.strerror or error}") from None
    return report
