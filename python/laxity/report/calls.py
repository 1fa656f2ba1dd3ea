"""The part of a report on a run that is about calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.report.page import Cell, Picture, Section, Table, plain
from laxity.tables import NOTHING, lost_to_scheduling, number, percent, time
from laxity.voice.plots import delay_boxes, pesq_distributions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.results import Run
    from laxity.telephony import Telephony


def verdict(telephony: Telephony) -> tuple[str, str]:
    """Whether the limits held, and the tone of it."""
    broken = [limit.name for limit in telephony.acceptance() if not limit.held]
    if not broken:
        return "The calls were good enough: every limit held.", "good"
    return f"The calls were not good enough: {' and '.join(broken)}.", "bad"


def lead(telephony: Telephony) -> str:
    """What became of the packets."""
    voice = telephony.voice
    delay_ns = voice.delay_ns
    return (
        f"{number(voice.streams_most, 'stream')} at a time, {number(voice.sent, 'packet')}: "
        f"{percent(voice.loss_ratio)} lost, delay {time(delay_ns.p50)} in the median, "
        f"{time(delay_ns.p999)} at 99.9 %."
    )


def sections(run: Run, telephony: Telephony, host: Mapping[str, Any]) -> list[Section]:
    """Limits, delay, quality, who lost what, who used the CPUs."""
    media = host["domains"][host["calls"]["media_server"]]["name"]
    found = [Section("Limits", tables=(_limits(telephony),))]
    delays_ns = [stream.delays_ns() for stream in run.streams]
    if delays_ns:
        picture = Picture(
            "delay",
            "Delay of packets",
            "One way, from phone to phone, of the packets of the sampled streams: quartiles, and "
            "whiskers from the shortest to the longest. Beneath is the part of all packets that "
            "was lost.",
            "A box plot of packet delay. The table of limits has the numbers.",
            delay_boxes(
                {media: np.concatenate(delays_ns)}, {media: telephony.voice.loss_ratio}, x_label=""
            ),
        )
        found.append(Section("Delay", pictures=(picture,)))
    scores = [stream.pesq for stream in run.streams if stream.pesq is not None]
    if scores:
        picture = Picture(
            "quality",
            "Voice quality",
            "PESQ (ITU-T P.862) of each sampled stream, as a cumulative distribution: how many are "
            "of how low a quality at most. Toll quality begins at 4.",
            f"Cumulative distribution of PESQ of {number(len(scores), 'stream')}.",
            pesq_distributions({run.policy: scores}),
        )
        found.append(Section("Voice quality", pictures=(picture,)))
    found.append(Section("Packets that were lost", tables=(_drops(telephony),)))
    found.append(Section("CPU time", tables=(_domains(run),)))
    return found


def comparison_verdict(runs: tuple[Run, ...]) -> tuple[str, str]:
    """Under which policy least was lost."""
    losses = {run.policy: run.telephony.voice.loss_ratio for run in runs if run.telephony}
    best = min(losses, key=lambda policy: losses[policy])
    if losses[best]:
        return f"Least was lost under {best}: {percent(losses[best])} of the packets.", "bad"
    clean = [policy for policy, loss in losses.items() if not loss]
    return f"No packet was lost under {' and '.join(clean)}.", "good"


def comparison(runs: tuple[Run, ...]) -> Table:
    """A row for each policy."""
    rows = []
    for run in runs:
        if run.telephony is None:
            continue
        voice = run.telephony.voice
        delay_ns, jitter_ns = voice.delay_ns, voice.jitter_ns_mean
        rows.append(
            [
                *plain(run.policy, f"{voice.sent:,}"),
                Cell(percent(voice.loss_ratio), "bad" if voice.lost else "good"),
                *plain(*(time(ns) for ns in (delay_ns.p50, delay_ns.p999, delay_ns.max))),
                *plain(NOTHING if jitter_ns is None else time(round(jitter_ns))),
                *plain(lost_to_scheduling(run.overhead)),
            ]
        )
    columns = ("policy", "packets", "lost", "delay, median", "99.9 %", "longest", "jitter")
    return Table("Voice under each policy", (*columns, "lost to scheduling"), rows)


def _limits(telephony: Telephony) -> Table:
    rows = []
    for limit in telephony.acceptance():
        if limit.name == "delay":
            shown = NOTHING if limit.found is None else time(round(limit.found))
            bound = f"below {time(round(limit.limit))}"
        elif limit.name == "loss":
            shown, bound = percent(limit.found or 0.0), f"below {percent(limit.limit)}"
        else:
            shown, bound = f"{limit.found or 0:.2f}", f"at least {limit.limit:.2f}"
        tone = Cell("yes", "good") if limit.held else Cell("no", "bad")
        rows.append([*plain(NAMES[limit.name], bound, shown), tone])
    return Table("What is good enough", ("", "limit", "found", "held"), rows)


NAMES = {
    "loss": "packets lost",
    "delay": "delay, 99.9 %",
    "MOS": "opinion score (PESQ, P.862.1) of the worst sampled stream",
}


def _drops(telephony: Telephony) -> Table:
    drops = telephony.drops
    places = {
        "wire": ("on the wire towards a card, which was full", drops.wire),
        "card": ("in a card, whose driver came too late", drops.nic_receive),
        "ring": ("before a guest's ring, which the guest did not empty", drops.netback),
        "socket": ("in a socket, from which no thread took them", drops.socket),
        "other": ("in a guest's other ring, which netback did not empty", drops.netfront),
        "out": ("in a card, before a wire that was full", drops.nic_transmit),
        "held": ("where output waits for checkpoints, as it was too much", drops.held),
        "failure": ("with the host of a protected domain", drops.failure),
    }
    rows = [
        [*plain(where), Cell(f"{count:,}", "bad" if count else "")]
        for where, count in places.values()
    ]
    return Table("Where packets were dropped", ("", "packets"), rows)


def _domains(run: Run) -> Table:
    rows = []
    for domain in run.domains:
        waits = domain.waits
        work_ns = domain.cpu_ns - domain.stalled_ns
        rows.append(
            plain(
                domain.name,
                percent(domain.cpu_ns / run.duration_ns),
                percent(work_ns / run.duration_ns),
                f"{domain.cache_misses:,}",
                NOTHING if waits is None else time(round(waits.mean_ns)),
                NOTHING if waits is None else time(waits.max_ns),
            )
        )
    columns = ("domain", "of one CPU", "work", "cache misses", "wait, mean", "wait, longest")
    note = (
        "Work is CPU time without what caches had to fetch. A wait is from when a VCPU could run "
        "to when it did."
    )
    return Table("What domains got of the CPUs", columns, rows, note=note)
