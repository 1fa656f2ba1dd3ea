"""The table of where the guests of a fleet go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.tables.layout import heading, name_column, plain_table, right
from laxity.text import NOTHING, bare, number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.results.fleet import FleetDesign

SHOWN_MAX = 40
"""Hosts, moves and demands that are shown, at most; --json has all."""


def fleet_table(found: FleetDesign) -> RenderableType:
    """Each host with its guests, the moves or the demands in conflict, the reasons, the verdict."""
    lines: list[RenderableType] = [heading("fleet", "by design"), ""]
    if found.holds:
        lines += _hosts(found)
        if found.moves:
            lines += _moves(found)
    lines += [Text(f"- {demand.said}") for demand in found.conflict[:SHOWN_MAX]]
    lines += _more(len(found.conflict))
    lines += [Text(f"- {reason}") for reason in found.reasons if not found.conflict]
    lines.append("")
    if found.holds:
        guests = sum(len(host.guests) for host in found.hosts)
        lines.append(
            Text(
                f"Holds: {number(guests, 'guest')} on {number(len(found.hosts), 'host')}, "
                f"{number(found.moved, 'move')}, after the failure of any one host too",
                "bold green",
            )
        )
    elif found.conflict:
        lines.append(Text(f"Impossible: {found.reasons[0]}", "bold red"))
    else:
        lines.append(Text("Unknown: no placement was found", "bold red"))
    return Group(*lines)


def _hosts(found: FleetDesign) -> list[RenderableType]:
    table = plain_table(
        name_column("host"),
        *right("CPU %", "at most"),
        Column("guests", overflow="fold"),
        Column("standbys of", overflow="fold"),
    )
    for host in found.hosts[:SHOWN_MAX]:
        table.add_row(
            Text(host.name),
            bare(host.cpu_share),
            bare(host.cpu_share_most),
            Text(" ".join(host.guests) or NOTHING),
            Text(" ".join(host.standbys) or NOTHING),
        )
    return [table, *_more(len(found.hosts)), ""]


def _moves(found: FleetDesign) -> list[RenderableType]:
    table = plain_table(
        name_column("guest"),
        Column("what"),
        Column("from", overflow="fold"),
        Column("to", overflow="fold"),
    )
    for move in found.moves[:SHOWN_MAX]:
        table.add_row(Text(move.guest), move.what, Text(move.here or NOTHING), Text(move.to))
    return [table, *_more(len(found.moves)), ""]


def _more(count: int) -> list[RenderableType]:
    return [Text(f"… and {count - SHOWN_MAX} more")] if count > SHOWN_MAX else []
