"""Tables of packets: who sent how much, what was promised, what was lost, who used the CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.results.run import mean_wait_ns
from laxity.tables.layout import plain_table, right
from laxity.text import NOTHING, bare, number, rate, time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from laxity.results.run import Run
    from laxity.results.schema import AgreementResult, Drops, InterfaceResult, NetworkResult


def network_lines(result: Run, network: NetworkResult) -> list[RenderableType]:
    """The packets of a host without calls, and whether its agreements were held."""
    return [
        "",
        sent_table(network.interfaces),
        *lost(network.drops),
        "",
        *_agreements(network.agreements),
        cpu_table(result),
    ]


def _agreements(agreements: Sequence[AgreementResult]) -> list[RenderableType]:
    if not agreements:
        return []
    table = plain_table(
        Column("agreement", overflow="fold"),
        *right("minimum", "maximum", "wanted", "sent", "held"),
    )
    for each in agreements:
        held = Text("yes", "green") if each.is_held else Text("no", "red")
        rates = (each.minimum_bit_s, each.maximum_bit_s, each.offered_bit_s, each.sent_bit_s)
        table.add_row(each.domain, *map(rate, rates), held)
    return [table, "", agreements_verdict(agreements), ""]


def agreements_verdict(agreements: Sequence[AgreementResult]) -> Text:
    """Whether every domain got its minimum, or what it wanted if that was less."""
    denied = sum(not each.is_held for each in agreements)
    if denied:
        of_all = f"{denied} of {number(len(agreements), 'agreement')}"
        return Text(f"Not held: {of_all} got less than the minimum", "bold red")
    return Text("Held: every domain got its minimum, or all that it wanted", "bold green")


def lost(drops: Drops) -> list[RenderableType]:
    """One line with the places where packets were dropped, if any were."""
    places = {
        "on the wire": drops.wire,
        "in the card": drops.nic_receive,
        "before the guest's ring": drops.netback,
        "in sockets": drops.socket,
        "in the guest's other ring": drops.netfront,
        "on the way out": drops.nic_transmit,
        "where output waits for checkpoints": drops.held,
        "with their host": drops.failure,
    }
    counts = [f"{count:,} {place}" for place, count in places.items() if count]
    return [Text(f"Dropped: {', '.join(counts)}", "red")] if counts else []


def sent_table(interfaces: Sequence[InterfaceResult]) -> RenderableType:
    """The packets of each domain towards the driver domain."""
    table = plain_table(
        Column("sends", overflow="fold"),
        *right("packets", "dropped in the guest %", "dropped at the card %"),
    )
    for each in interfaces:
        offered = max(1, each.offered)
        table.add_row(
            each.domain,
            f"{each.offered:,}",
            bare(each.dropped_in_guest / offered),
            bare(each.dropped_at_card / offered),
        )
    return table


def cpu_table(result: Run) -> RenderableType:
    """CPU time, work and waits of each domain."""
    table = plain_table(
        Column("domain", overflow="fold"), *right("CPU %", "work %", "waits", "mean", "longest")
    )
    for domain in result.domains:
        work = (domain.cpu_ns - domain.stalled_ns) / result.duration_ns
        waits = domain.waits
        table.add_row(
            domain.name,
            bare(domain.cpu_ns / result.duration_ns),
            bare(work),
            NOTHING if waits is None else f"{waits.count:,}",
            NOTHING if waits is None else time(round(mean_wait_ns(waits))),
            NOTHING if waits is None else time(waits.max_ns),
        )
    legend = "work: CPU time without cache misses. waits: times that a VCPU waited for a CPU"
    return Group(table, Text(legend, "dim"))
