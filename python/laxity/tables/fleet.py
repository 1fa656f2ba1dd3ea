"""The table of where the guests of a fleet go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.tables.layout import heading, name_column, plain_table, right
from laxity.text import NOTHING, bare, listed, number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.results.fleet import FleetDesign

SHOWN_MAX = 40
"""Hosts, moves and demands that are shown, at most; --json has all."""

SETS_MAX = 8
"""Sets of guests that cannot share a host, at most, and hosts that are named for each."""


def fleet_table(found: FleetDesign) -> RenderableType:
    """Each host with its guests, the moves or the demands in conflict, the reasons, the verdict."""
    lines: list[RenderableType] = [heading("fleet", "by design"), ""]
    if found.holds:
        lines += _hosts(found)
        if found.moves:
            lines += _moves(found)
    lines += [Text(f"- {demand.said}") for demand in found.conflict[:SHOWN_MAX]]
    lines += _more(len(found.conflict))
    is_proved = found.verdict == "impossible"
    lines += [Text(f"- {reason}") for reason in found.reasons if not is_proved]
    lines += _too_much(found)
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
    elif is_proved:
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


def _too_much(found: FleetDesign) -> list[RenderableType]:
    """Guests that cannot share a host; those of a conflict, if there is one."""
    named = {guest for demand in found.conflict for guest in demand.guests}
    all_sets = [too for too in found.too_much if not named or named.issuperset(too.guests)]
    lines: list[RenderableType] = []
    for too in all_sets[:SETS_MAX]:
        where = listed(too.hosts, "or") if len(too.hosts) <= SETS_MAX else f"{len(too.hosts)} hosts"
        those = "cannot share" if len(too.guests) > 1 else "cannot be on"
        not_proved = "" if too.is_proved else ", as far as was looked"
        lines.append(Text(f"- {listed(too.guests, 'and')} {those} {where}{not_proved}"))
    return [*lines, *_more(len(all_sets), SETS_MAX)]


def _more(count: int, shown: int = SHOWN_MAX) -> list[RenderableType]:
    return [Text(f"… and {count - shown} more")] if count > shown else []
