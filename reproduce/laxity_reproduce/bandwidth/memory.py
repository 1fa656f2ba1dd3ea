"""Figure 6: memory transactions of the I/O part, against the period of the allocator.

The paper counted them with Xenoprof, by the processor's own counters. What is counted here is cache
lines that pass between two who do not share a cache, or between one and memory: packets by the
model of senders and a link, lines for each packet by what its way reads and writes. The structures
are those of Xen's public headers (`grant_table.h`, `io/netif.h`); each is less than a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from laxity_reproduce.bandwidth import plots
from laxity_reproduce.bandwidth.period import by_period, periods_ms
from laxity_reproduce.bandwidth.setup import FACTS, MBIT, REGIMES, Regime
from laxity_reproduce.bandwidth.throughput import series
from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict

if TYPE_CHECKING:
    from laxity_reproduce.lab import Lab

LINE_BYTES = 64
HEADER_BYTES = 64
"""What netback copies of a packet whose page it maps."""
SAME_POINTS = 1
"""Parts of the native system's transactions that differ by less count as the same."""


def lines(size_bytes: int) -> int:
    """The number of cache lines that hold these bytes."""
    return -(-size_bytes // LINE_BYTES)


@dataclass(frozen=True)
class Way:
    """Lines for a packet of each part of its way; each is a read or a write of a line."""

    guest: int
    """From the program into the guest's kernel: also for a packet that the guest drops then."""
    channel: int
    """From netfront to netback: what the paper calls the I/O part."""
    bridge: int
    """In the driver domain, up to the queue before the card."""
    card: int
    """From memory into the card, with its descriptor."""


def way(packet_bytes: int, *, is_mapped: bool = False) -> Way:
    """The way of a packet that the hypervisor copies for netback, or whose page netback maps."""
    payload = lines(packet_bytes)
    grant_and_revoke = 2
    request_and_response = 2 * 2
    # The hypervisor marks the grant as in use, and as not in use.
    pinned = 2
    # Written by netback, read by the hypervisor, and the same back with what came of it.
    operation = 2 * 2
    # Two operations, two changes of the page table, and the headers.
    moved_by_map = 2 * operation + 2 + 2 * lines(HEADER_BYTES)
    moved = moved_by_map if is_mapped else operation + 2 * payload
    return Way(
        guest=2 * payload,
        channel=grant_and_revoke + request_and_response + pinned + moved,
        bridge=lines(HEADER_BYTES),
        card=payload + 2,
    )


@dataclass(frozen=True)
class Packets:
    """A second's packets, of all machines."""

    offered: float
    carried: float
    """Taken by netback."""
    delivered: float


def packets(data: pd.DataFrame) -> Packets:
    """The mean over a run."""
    seconds = data.at_s.nunique()
    a_second = MBIT / 8 / FACTS["packet_bytes"] / seconds
    delivered = data.delivered_mbit_s.sum() * a_second
    # What waits in a guest's own queue, and what is dropped there, netback has not taken.
    at_link = data.dropped_at_link_mbit_s.sum() * a_second
    return Packets(
        float(data.offered_mbit_s.sum() * a_second),
        float(delivered + at_link),
        float(delivered),
    )


def channel_lines(found: Packets, of: Way) -> float:
    """Cache lines a second of the I/O part."""
    return found.carried * of.channel


def all_lines(found: Packets, of: Way) -> float:
    """Cache lines a second of all of the way."""
    return (
        found.offered * of.guest
        + found.carried * (of.channel + of.bridge)
        + found.delivered * of.card
    )


METHOD = (
    "Transactions are counted and not measured. The model of figures 3 and 4 counts packets, in"
    " all 300 s of the paper's scenario, and `laxity_reproduce.bandwidth.memory` counts for each"
    f" packet the cache lines of {LINE_BYTES} bytes that it moves between caches or between a"
    " cache and memory. The paper read the processor's counters, which emulated machines and"
    " most virtual ones, ours among them, do not have. The count leaves out notifications, which"
    " many packets share, and the allocator's own reads. The I/O part is from netfront to"
    " netback."
)


def figure_6(lab: Lab) -> Experiment:
    """What does dropping in the guest save?"""
    facts, size = FACTS["figure_6"], FACTS["packet_bytes"]
    smallest: int = FACTS["smallest_useful_period_ms"]
    copied, mapped = way(size), way(size, is_mapped=True)
    native = packets(series(lab, REGIMES["native"], "native"))
    found = {point: packets(data) for point, data in by_period(lab).items()}

    def percent(part: Packets) -> float:
        return 100 * channel_lines(part, copied) / channel_lines(native, copied)

    periods = periods_ms(lab)
    short = [percent(found["tree", period]) for period in periods if period < smallest]
    long = [percent(found["tree", period]) for period in periods if period >= smallest]
    fewer = max(long) < 100 - SAME_POINTS
    lost = max(short) < min(long) - SAME_POINTS
    rows = [
        Row(
            f"transactions of the I/O part with periods of {smallest} ms and more, % of those"
            " without an allocator",
            facts["fewer"],
            [round(part, 1) for part in long],
            verdict(holds=fewer),
            "" if fewer else "as many packets are copied to the driver domain",
        ),
        Row(
            f"the same with periods below {smallest} ms",
            facts["short"],
            [round(part, 1) for part in short],
            verdict(holds=lost),
            ""
            if lost
            else (
                "the loss is no larger than at longer periods (figure 7), so no fewer packets"
                " are copied"
            ),
        ),
    ]
    return Experiment(
        "figure-6",
        "memory transactions of the I/O part against the period",
        METHOD,
        rows,
        [
            *_ways(size, copied, mapped),
            *_saved(native, found["tree", max(periods)], copied, mapped),
        ],
        _curves(native, found, copied),
        plots.against_the_period,
    )


def _ways(size: int, copied: Way, mapped: Way) -> list[Measurement]:
    return [
        Measurement(
            f"lines of a packet of {size:,} bytes: guest, I/O part, bridge, card",
            f"{of.guest}, {of.channel}, {of.bridge}, {of.card}",
            why,
        )
        for of, why in (
            (copied, "the hypervisor copies the packet, as the paper says"),
            (mapped, "netback maps its page and copies the headers"),
        )
    ]


def _saved(native: Packets, held: Packets, copied: Way, mapped: Way) -> list[Measurement]:
    """`held` at the longest period."""
    million = 1e6
    return [
        Measurement(
            "million transactions of the I/O part a second: without an allocator, with Laxity",
            [channel_lines(native, copied) / million, channel_lines(held, copied) / million],
        ),
        Measurement(
            "the same with pages mapped instead of copied",
            [channel_lines(native, mapped) / million, channel_lines(held, mapped) / million],
        ),
        Measurement(
            "transactions of the whole path with Laxity, % of those without an allocator",
            100 * all_lines(held, copied) / all_lines(native, copied),
            "a packet that the guest drops has been copied once, from its program into its kernel",
        ),
    ]


def _curves(native: Packets, found: dict[tuple[Regime, int], Packets], of: Way) -> pd.DataFrame:
    periods = dict.fromkeys(period_ms for _, period_ms in found)
    without: dict[tuple[Regime, int], Packets] = {("native", each): native for each in periods}
    return pd.DataFrame(
        {
            "panel": "The I/O part",
            "unit": "million transactions a second",
            "line": REGIMES[regime],
            "period_ms": period_ms,
            "value": channel_lines(part, of) / 1e6,
        }
        for (regime, period_ms), part in (without | found).items()
    )
