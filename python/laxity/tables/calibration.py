"""The tables of what packets take on this machine, and of how many streams it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.calibration import SIZED_STREAMS
from laxity.calibration.services import DRAWS, FRAME_NS, FRAMES
from laxity.tables.layout import heading, plain_table, right
from laxity.text import bare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from laxity.calibration import Calibration
    from laxity.calibration.step import Step


def calibration_table(found: Calibration) -> RenderableType:
    """A row for each step, and for each thing that a media server can do."""
    steps = plain_table(
        Column("step", no_wrap=True),
        *right(*QUANTILES),
        Column("measured by"),
        *right("packets"),
    )
    for step in found.steps:
        steps.add_row(step.name, *_times(step), step.measured_by, f"{step.packets:,}")
    works = plain_table(Column("work"), *right(*QUANTILES), Column("library"), *right("packets"))
    for step in found.processing.steps:
        library = found.processing.libraries[step.name]
        works.add_row(step.name, *_times(step), library, f"{step.packets:,}")
    return Group(
        heading("Packets", f"on this machine, in us, with {found.streams} streams"),
        "",
        steps,
        "",
        heading("Work", "of a media server on a packet of 20 ms, CPU time in us"),
        "",
        works,
        "",
        heading("A CPU", f"of this machine, {found.cpu_part:.0%} of it taken on the average"),
        "",
        _services(found),
        "",
        *_notes(found),
    )


QUANTILES = ("median", "p90", "p99", "p99.9", "max")


def _times(step: Step) -> Iterator[str]:
    times_ns = (step.median_ns, step.p90_ns, step.p99_ns, step.p999_ns, step.max_ns)
    return map(_us, times_ns)


def _services(found: Calibration) -> Table:
    table = plain_table(
        Column("streams of G.711 unless said"),
        *right("a packet, us", "streams", "p50", "p99", "p99.9", "over"),
    )
    for service in found.services:
        frames = service.frames(found.cpu_part)
        table.add_row(
            service.name,
            _us(service.packet_cpu_ns),
            f"{service.streams(found.cpu_part):,}",
            *(f"{part:.0%}" for part in (frames.p50, frames.p99, frames.p999)),
            bare(frames.over),
        )
    return table


def _notes(found: Calibration) -> Iterator[Text]:
    yield Text(f"A packet includes its relaying, which is measured with {SIZED_STREAMS} streams")
    yield Text(f"p50 to p99.9: how much of a frame of {FRAME} is taken, at random phases")
    yield Text(f"over: part of {DRAWS * FRAMES:,} drawn frames that take more than {FRAME}, in %")
    yield Text("Between two codecs as many streams go each way")
    yield Text(f"Load average before it, at most {found.load_average:.1f}")
    for missing in found.processing.missing:
        yield Text(f"Not measured: {missing.what}. {missing.why}; {missing.help}", "yellow")
    if not found.real_time:
        yield Text("The phones had no real-time priority: times may be theirs", "yellow")


FRAME = f"{FRAME_NS // 1_000_000} ms"


def _us(ns: float) -> str:
    return f"{ns / 1000:,.1f}"
