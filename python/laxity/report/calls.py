"""The part of a report on a run that is about calls, packets and agreements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from laxity.plots.voice import delay_boxes, pesq_distributions
from laxity.report.page import (
    Cell,
    Picture,
    Section,
    Table,
    interval,
    label,
    mean_cell,
    plain,
)
from laxity.resolved import calls_of
from laxity.results.acceptance import limits_of
from laxity.results.run import mean_wait_ns
from laxity.statistics import mean
from laxity.tables.run import lost_to_scheduling
from laxity.text import NOTHING, listed, number, percent, rate, time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laxity.resolved_schema import ResolvedHost
    from laxity.results.run import Run
    from laxity.results.schema import (
        CallsResult,
        Drops,
        InterfaceResult,
        NetworkResult,
        Quality,
        RegistrationsResult,
        Telephony,
    )


def verdict(telephony: Telephony) -> tuple[str, str]:
    """Whether the limits held, and the tone of it."""
    broken = [limit.name for limit in limits_of(telephony) if not limit.held]
    if not broken:
        return "The calls were good enough: every limit held.", "good"
    return f"The calls were not good enough: {' and '.join(broken)}.", "bad"


def lead(telephony: Telephony) -> str:
    """What became of the packets."""
    voice = telephony.voice
    delay_ns = voice.delay_ns
    outages = {each.outage_ns for each in telephony.protection if each.outage_ns is not None}
    forgotten = sum(each.forgotten for each in telephony.protection)
    outage = ""
    if outages:
        outage = (
            f" After the host's failure the protected domains ran on in "
            f"{interval(time(min(outages)), time(max(outages)))}, with "
            f"{number(forgotten, 'forgotten registration') if forgotten else 'nothing forgotten'}."
        )
    return (
        f"{number(voice.streams_most, 'stream')} at a time, {number(voice.sent, 'packet')}: "
        f"{percent(voice.loss_ratio)} lost, delay {time(delay_ns.p50)} in the median, "
        f"{time(delay_ns.p999)} at 99.9 %.{outage}"
    )


def sections(run: Run, telephony: Telephony, host: ResolvedHost) -> list[Section]:
    """Limits, delay, quality, who lost what, who used the CPUs."""
    media = host["domains"][calls_of(host)["media_server"]]["name"]
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
            lambda: delay_boxes(
                {media: np.concatenate(delays_ns)}, {media: telephony.voice.loss_ratio}, x_label=""
            ),
        )
        found.append(Section("Delay", pictures=(picture,)))
    scores = [stream.pesq for stream in run.streams if stream.pesq is not None]
    if scores:
        picture = Picture(
            "quality",
            "Voice quality",
            "Raw PESQ (ITU-T P.862) of each sampled stream, as the papers have it, as a cumulative "
            "distribution: the part of the streams whose quality is at most this. Toll quality "
            "begins at 4.",
            f"Cumulative distribution of raw PESQ of {number(len(scores), 'stream')}.",
            lambda: pesq_distributions({run.policy: scores}),
        )
        tables = (
            () if telephony.quality is None else (_quality(telephony.quality, telephony.playout),)
        )
        found.append(Section("Voice quality", tables=tables, pictures=(picture,)))
    if telephony.protection:
        found.append(Section("Protection", tables=(_protection(telephony),)))
    if telephony.registrations is not None:
        found.append(Section("Registrations", tables=(_registrations(telephony.registrations),)))
    if telephony.calls is not None and telephony.calls.offered:
        found.append(Section("Calls", tables=(_calls(telephony.calls),)))
    found += packets(telephony)
    found.append(Section("CPU time", tables=(_domains(run),)))
    return found


def comparison_verdict(by_policy: Mapping[str, tuple[Run, ...]]) -> tuple[str, str]:
    """Under which policy least was lost, in the worst of its runs."""
    losses = {
        policy: max(run.telephony.voice.loss_ratio for run in runs if run.telephony)
        for policy, runs in by_policy.items()
    }
    best = min(losses, key=lambda policy: losses[policy])
    if losses[best] and len(losses) == 1:
        return f"{percent(losses[best])} of the packets were lost under {best}.", ""
    if losses[best]:
        return f"Least was lost under {best}: {percent(losses[best])} of the packets.", ""
    clean = [policy for policy, loss in losses.items() if not loss]
    return f"No packet was lost under {' and '.join(clean)}.", "good"


def comparison_pictures(runs: tuple[Run, ...], seeds: list[int]) -> tuple[Picture, ...]:
    """Delay and loss, a box for each run."""
    delays_ns, losses = {}, {}
    for run in runs:
        if run.telephony is not None:
            delay_ns = run.telephony.voice.delay_ns
            five = (delay_ns.min, delay_ns.p25, delay_ns.p50, delay_ns.p75, delay_ns.max)
            # The quantiles of these five values are the values themselves.
            delays_ns[label(run, seeds)] = [ns for ns in five if ns is not None]
            losses[label(run, seeds)] = run.telephony.voice.loss_ratio
    caption = (
        "One way, from phone to phone, of all packets: quartiles, and whiskers from the shortest "
        "to the longest. Beneath is the part of the packets that was lost."
    )
    alternative = "A box plot of packet delay for each policy. The table has the numbers."
    return (
        Picture(
            "delay",
            "Delay of packets under each policy",
            caption,
            alternative,
            lambda: delay_boxes(delays_ns, losses, x_label=""),
        ),
    )


def comparison_means(by_policy: Mapping[str, tuple[Run, ...]]) -> Table:
    """A row for each policy, with means over seeds."""
    voices = {
        policy: [run.telephony.voice for run in runs if run.telephony]
        for policy, runs in by_policy.items()
    }
    losses = {policy: [voice.loss_ratio for voice in of] for policy, of in voices.items()}
    least = min(mean(ratios).mean for ratios in losses.values())
    rows = [
        [
            Cell(policy),
            mean_cell(losses[policy], is_least=mean(losses[policy]).mean == least),
            _mean_time([voice.delay_ns.p999 for voice in of]),
        ]
        for policy, of in voices.items()
    ]
    columns = ("policy", "lost", "delay, 99.9 %")
    seeds = max(map(len, voices.values()))
    note = f"Means over {seeds} seeds, with 95 % confidence intervals (Student's t)."
    return Table("Voice under each policy, over all seeds", columns, rows, note=note)


def _mean_time(times_ns: Sequence[int | None]) -> Cell:
    """The mean over seeds with its interval; nothing where one is not known."""
    known_ns = [ns for ns in times_ns if ns is not None]
    if len(known_ns) < len(times_ns):
        return Cell(NOTHING)
    over_seeds = mean(known_ns)
    half_ns = over_seeds.half_width_95 or 0.0
    ends_ns = (max(0.0, over_seeds.mean - half_ns), over_seeds.mean + half_ns)
    sure = interval(*(time(round(ns)) for ns in ends_ns)) if half_ns else ""
    return Cell(time(round(over_seeds.mean)), detail=sure)


def comparison(runs: tuple[Run, ...], seeds: list[int]) -> Table:
    """A row for each run."""
    least = min((run.telephony.voice.loss_ratio for run in runs if run.telephony), default=0.0)
    rows, playouts = [], set()
    for run in runs:
        if run.telephony is None:
            continue
        voice, quality = run.telephony.voice, run.telephony.quality
        delay_ns, jitter_ns = voice.delay_ns, voice.jitter_ns_mean
        playouts.add(run.telephony.playout)
        rows.append(
            [
                *plain(label(run, seeds), f"{voice.sent:,}"),
                Cell(
                    percent(voice.loss_ratio),
                    "" if voice.loss_ratio == least and voice.lost else _tone(voice.lost),
                ),
                *plain(*(time(ns) for ns in (delay_ns.p50, delay_ns.p999, delay_ns.max))),
                *plain(NOTHING if jitter_ns is None else time(round(jitter_ns))),
                *plain(NOTHING if quality is None else time(quality.delay_ns)),
                *plain(lost_to_scheduling(run.overhead)),
                _held(run.telephony),
            ]
        )
    columns = (
        *("policy", "packets", "lost", "delay, median", "99.9 %", "longest", "jitter"),
        f"mouth to ear, {listed(sorted(playouts), 'or')} playout",
        *("lost to scheduling", "limits held"),
    )
    return Table("Voice under each policy", columns, rows)


def _held(telephony: Telephony) -> Cell:
    limits = limits_of(telephony)
    held = all(limit.held for limit in limits)
    return Cell("yes", "good") if held else Cell("no", "bad")


def _tone(count: int) -> str:
    return "bad" if count else "good"


def _quality(quality: Quality, playout: str) -> Table:
    """The score that the limit is about first, and what the others are."""
    scales = (
        (
            "Mean opinion score (MOS-LQO), 1 to 5: PESQ by ITU-T P.862.1; the limit applies to it",
            quality.mos_lqo,
        ),
        (
            "Raw PESQ (ITU-T P.862), -0.5 to 4.5, as the papers have it",
            quality.pesq,
        ),
        (
            "Opinion score expected from delay and loss: E-model (ITU-T G.107)",
            quality.e_model_mos,
        ),
    )
    rows = [
        plain(name, *(f"{score:.2f}" for score in (scores.p50, scores.p5, scores.min)))
        for name, scores in scales
    ]
    dead = f" {number(quality.dead, 'stream')} had nothing to hear." if quality.dead else ""
    note = (
        f"{number(quality.toll_quality, 'stream')} of {quality.scored:,} "
        f"{'was' if quality.toll_quality == 1 else 'were'} of toll quality: raw PESQ of 4 or "
        f"better.{dead} The playout buffer was {playout}."
    )
    if quality.delay_ns is not None and quality.late_ratio is not None:
        note += (
            f" The median delay from mouth to ear was {time(quality.delay_ns)}, and "
            f"{percent(quality.late_ratio)} of the packets came too late."
        )
    columns = ("", "median", "5 %", "worst stream")
    title = f"Quality of {number(quality.scored, 'sampled stream')}"
    return Table(title, columns, rows, note=note)


def _protection(telephony: Telephony) -> Table:
    rows = []
    for each in telephony.protection:
        count = max(1, each.checkpoints)
        rows.append(
            [
                *plain(each.domain, f"{each.acknowledged:,} of {each.checkpoints:,}"),
                *plain(f"{each.pages / count:,.0f}", time(round(each.paused_ns / count))),
                *plain(time(each.acknowledged_after_ns_max), f"{each.held:,}"),
                Cell(f"{each.lost:,}", "bad" if each.lost else ""),
                *plain(time(each.outage_ns)),
                Cell(f"{each.forgotten:,}", "bad" if each.forgotten else ""),
            ]
        )
    columns = (
        *("domain", "checkpoints acknowledged", "pages of each", "pause of each"),
        *("longest to acknowledge", "packets held", "lost with the host", "outage"),
        "registrations forgotten",
    )
    note = (
        "Held packets waited for the checkpoint that covers them. The outage is from the host's "
        "failure until the domain ran on. A forgotten registration had been answered, and was "
        "not known afterwards."
    )
    return Table("Checkpoints of the protected domains", columns, rows, note=note)


def _registrations(found: RegistrationsResult) -> Table:
    delay_ns = found.delay_ns
    row = [
        *plain(f"{found.offered:,}", f"{found.succeeded:,}"),
        Cell(f"{found.failed:,}", "bad" if found.failed else ""),
        *plain(f"{found.retransmissions:,}"),
        *plain(*(time(ns) for ns in (delay_ns.p50, delay_ns.p99, delay_ns.max))),
    ]
    columns = (
        *("offered", "succeeded", "failed", "retransmissions"),
        *("delay, median", "99 %", "longest"),
    )
    note = "The delay is from the first packet to the answer."
    return Table("Users who registered", columns, [row], note=note)


def _calls(found: CallsResult) -> Table:
    setup_ns = found.setup_ns
    row = [
        *plain(f"{found.offered:,}", f"{found.answered:,}"),
        Cell(f"{found.failed:,}", "bad" if found.failed else ""),
        *plain(f"{found.retransmissions:,}"),
        *plain(*(time(ns) for ns in (setup_ns.p50, setup_ns.p99, setup_ns.max))),
    ]
    columns = (
        *("offered", "answered", "failed", "retransmissions"),
        *("setup, median", "99 %", "longest"),
    )
    return Table("Calls that were set up", columns, [row])


def packets(of: Telephony | NetworkResult) -> list[Section]:
    """Where packets were lost, and by whom."""
    found = [Section("Lost packets", tables=(_drops(of.drops),))]
    if any(each.dropped_in_guest or each.dropped_at_card for each in of.interfaces):
        found.append(Section("Sent packets", tables=(_interfaces(of.interfaces),)))
    return found


def agreements(network: NetworkResult) -> list[Section]:
    """What was promised to each domain of a host without calls, and what it got."""
    if not network.agreements:
        return []
    rows = []
    for each in network.agreements:
        rates = (each.minimum_bit_s, each.maximum_bit_s, each.offered_bit_s, each.sent_bit_s)
        held = Cell("yes", "good") if each.is_held else Cell("no", "bad")
        rows.append([*plain(each.domain, *map(rate, rates)), held])
    columns = ("domain", "minimum", "maximum", "wanted to send", "sent", "held")
    note = (
        "Rates are means over the run. An agreement is held if the domain sent 99 % of its "
        "minimum, or of what it wanted to send if that is less."
    )
    return [Section("Agreements", tables=(Table("Agreements", columns, rows, note=note),))]


def agreements_verdict(network: NetworkResult) -> tuple[str, str]:
    """Whether the agreements were held, and the tone of it."""
    denied = [each.domain for each in network.agreements if not each.is_held]
    if not denied:
        return "Every agreement was held.", "good"
    return f"Less than the minimum was sent by {' and '.join(denied)}.", "bad"


def _interfaces(interfaces: Sequence[InterfaceResult]) -> Table:
    rows = []
    for each in interfaces:
        offered = max(1, each.offered)
        drops = (each.dropped_in_guest / offered, each.dropped_at_card / offered)
        rows.append([*plain(each.domain, f"{each.offered:,}", *(percent(part) for part in drops))])
    columns = ("domain", "packets", "dropped in the domain", "dropped at the card")
    return Table("Packets that each domain sent, and where they were dropped", columns, rows)


def _limits(telephony: Telephony) -> Table:
    rows = []
    for limit in limits_of(telephony):
        bound = f"{'at least' if limit.kind.is_least else 'below'} {limit.limit_text}"
        tone = Cell("yes", "good") if limit.held else Cell("no", "bad")
        rows.append([*plain(limit.kind.title, bound, limit.found_text), tone])
    return Table("Limits of good calls", ("", "limit", "found", "held"), rows)


def _drops(drops: Drops) -> Table:
    places = {
        "wire": ("on the wire towards a card, which was full", drops.wire),
        "card": ("in a card, whose driver came too late", drops.nic_receive),
        "ring": ("before a guest's ring, which the guest did not empty", drops.netback),
        "socket": ("in a socket, from which no thread took them", drops.socket),
        "other": ("in a guest's other ring, which netback did not empty", drops.netfront),
        "out": ("in a card, before a wire that was full", drops.nic_transmit),
        "held": ("in the queue of output that waits for checkpoints, which was full", drops.held),
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
                NOTHING if waits is None else time(round(mean_wait_ns(waits))),
                NOTHING if waits is None else time(waits.max_ns),
            )
        )
    columns = ("domain", "of one CPU", "work", "cache misses", "wait, mean", "wait, longest")
    note = (
        "Work is CPU time without cache misses. A wait lasts from when a VCPU could run until it "
        "did."
    )
    return Table("CPU time, work and waits of each domain", columns, rows, note=note)
