"""The tables of what packets take on this machine, and of how many streams it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.calibration import CPU_PART, SIZED_STREAMS
from laxity.tables.layout import heading, plain_table, right

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.calibration import Calibration


def calibration_table(found: Calibration) -> RenderableType:
    """A row for each step, and for each thing that the media server can do."""
    steps = plain_table(
        Column("step"),
        *right("median", "p90", "p99", "p99.9", "max"),
        Column("measured by"),
        *right("packets"),
    )
    for step in found.steps:
        times_ns = (step.median_ns, step.p90_ns, step.p99_ns, step.p999_ns, step.max_ns)
        steps.add_row(
            step.name,
            *map(_us, times_ns),
            step.measured_by,
            f"{step.packets:,}",
        )
    sizes = plain_table(Column("G.711"), *right("a packet, us", f"streams at {CPU_PART:.0%}"))
    for size in found.sizes:
        sizes.add_row(size.does, _us(size.packet_cpu_ns), f"{size.streams:,}")
    notes = [] if found.real_time else ["The phones had no real-time priority: times may be theirs"]
    return Group(
        heading("Packets", f"on this machine, in us, with {found.streams} streams"),
        "",
        steps,
        "",
        heading("A CPU", f"of this machine, by its time for a packet with {SIZED_STREAMS} streams"),
        "",
        sizes,
        "",
        Text(f"Load average before it, at most {found.load_average:.1f}"),
        *(Text(note, "yellow") for note in notes),
    )


def _us(ns: float) -> str:
    return f"{ns / 1000:,.1f}"
