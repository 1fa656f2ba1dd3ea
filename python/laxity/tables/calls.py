"""The tables of runs, comparisons and sweeps of hosts with calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.resolved import calls_of, network_of
from laxity.results.acceptance import limits_of
from laxity.results.run import mean_wait_ns
from laxity.statistics import mean
from laxity.tables.comparison import compared, cpu_lost, miss_cell
from laxity.tables.layout import heading, mean_cell, plain_table, profiles, right
from laxity.tables.network import cpu_table, lost, sent_table
from laxity.tables.run import cost_and_speed, task_lines
from laxity.tables.sweep import sweep_verdict, values_of
from laxity.text import NOTHING, bare, number, percent, time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from laxity.resolved_schema import Domain, ResolvedHost
    from laxity.results.acceptance import Limit
    from laxity.results.comparison import Comparison
    from laxity.results.run import Run
    from laxity.results.schema import CallsResult, DomainResult, Quality, Telephony
    from laxity.sweep import Sweep
    from laxity.tables.comparison import Row


def calls_table(result: Run, telephony: Telephony, host: ResolvedHost) -> RenderableType:
    """Voice from phone to phone, what was lost where, who used the CPUs, and the limits."""
    voice, delay_ns = telephony.voice, telephony.voice.delay_ns
    table = plain_table(
        Column("voice"), *right("streams", "packets", "lost %", "p50", "p99", "p99.9", "jitter")
    )
    jitter_ns = voice.jitter_ns_mean
    table.add_row(
        host["domains"][calls_of(host)["media_server"]]["name"],
        f"{voice.streams_most:,}",
        f"{voice.sent:,}",
        bare(voice.loss_ratio),
        *(time(ns) for ns in (delay_ns.p50, delay_ns.p99, delay_ns.p999)),
        NOTHING if jitter_ns is None else time(round(jitter_ns)),
    )
    where = f"on {result.substrate}, {time(result.duration_ns)}, seed {result.seed}"
    lines: list[RenderableType] = [
        heading(result.policy, where),
        "",
        table,
        *lost(telephony.drops),
        *_interfaces(telephony, host),
        *_registrations(telephony),
        *_protection(telephony),
        "",
        cpu_table(result),
        "",
    ]
    if telephony.calls is not None and telephony.calls.offered:
        lines.append(_calls(telephony.calls))
    if telephony.quality is not None:
        lines += _quality(telephony.quality, telephony.playout)
    lines += [verdict(limits_of(telephony)), *task_lines(result)]
    lines += [*profiles(result.profiles), *cost_and_speed(result)]
    return Group(*lines)


def _interfaces(telephony: Telephony, host: ResolvedHost) -> list[RenderableType]:
    """The packets of each domain towards the driver domain, if senders or agreements are there."""
    senders = [each for each in host["domains"] if _is_sender(each)]
    if network_of(host)["link"] is None and not senders:
        return []
    return ["", sent_table(telephony.interfaces)]


def _registrations(telephony: Telephony) -> list[RenderableType]:
    found = telephony.registrations
    if found is None:
        return []
    table = plain_table(
        Column("registrations"),
        *right("offered", "succeeded", "failed", "resent", "p50", "p99", "longest"),
    )
    delay_ns = found.delay_ns
    counts = (found.offered, found.succeeded, found.failed, found.retransmissions)
    table.add_row(
        "",
        *(f"{count:,}" for count in counts),
        *(time(ns) for ns in (delay_ns.p50, delay_ns.p99, delay_ns.max)),
    )
    return ["", table]


def _protection(telephony: Telephony) -> list[RenderableType]:
    if not telephony.protection:
        return []
    table = plain_table(
        Column("protected", overflow="fold"),
        *right("checkpoints", "pages", "pause", "held", "lost", "outage", "forgotten"),
    )
    for each in telephony.protection:
        count = max(1, each.checkpoints)
        table.add_row(
            each.domain,
            f"{each.checkpoints:,}",
            f"{each.pages / count:,.0f}",
            time(round(each.paused_ns / count)),
            f"{each.held:,}",
            f"{each.lost:,}",
            time(each.outage_ns),
            f"{each.forgotten:,}",
        )
    return ["", table]


def _is_sender(domain: Domain) -> bool:
    workload = domain["workload"]
    return workload is not None and workload["kind"] == "sender"


def _calls(found: CallsResult) -> str:
    setup_ns = found.setup_ns
    failures = number(found.failed, "failure")
    return (
        f"Calls: {found.answered:,} of {found.offered:,} set up, {failures}, "
        f"{number(found.retransmissions, 'retransmission')}\n"
        f"Setup: p50 {time(setup_ns.p50)}, p99 {time(setup_ns.p99)}, longest {time(setup_ns.max)}"
    )


def _quality(quality: Quality, playout: str) -> list[RenderableType]:
    worst = quality.worst
    toll = percent(quality.toll_quality / quality.scored)
    dead = f", {number(quality.dead, 'dead call')}" if quality.dead else ""
    which = f"stream {worst.stream}" if worst.call is None else f"call {worst.call}"
    mos, pesq = quality.mos_lqo, quality.pesq
    return [
        f"Quality of {number(quality.scored, 'sampled stream')}: {toll} toll quality{dead}",
        (
            f"MOS (MOS-LQO, PESQ by P.862.1): p50 {mos.p50:.2f}, p5 {mos.p5:.2f}, "
            f"least {mos.min:.2f}"
        ),
        (
            f"Raw PESQ: p50 {pesq.p50:.2f}, least {pesq.min:.2f}; E-model (G.107): "
            f"p50 {quality.e_model_mos.p50:.2f}, least {quality.e_model_mos.min:.2f}"
        ),
        (
            f"Playout buffer: {playout}; from mouth to ear p50 {time(quality.delay_ns)}, "
            f"too late {NOTHING if quality.late_ratio is None else percent(quality.late_ratio)}"
        ),
        (
            f"Worst: {which}: MOS {mos.min:.2f}, lost {percent(worst.loss_ratio)}, "
            f"too late {percent(worst.late_ratio)}"
        ),
    ]


def verdict(limits: list[Limit]) -> Text:
    """Whether all limits held, and a line for each."""
    if not limits:
        return Text("Not judged: the limits of this run are not known", "bold yellow")
    held = all(limit.held for limit in limits)
    said = "Accepted" if held else "Not accepted"
    return Text("\n".join([said, *limit_lines(limits)]), "bold green" if held else "bold red")


def limit_lines(limits: list[Limit]) -> list[str]:
    """One line for each limit: its name, what was found, and on which side of the bound it is."""
    lines = []
    for limit in limits:
        sides = ("at least", "below") if limit.kind.is_least else ("below", "not below")
        side = sides[0] if limit.held else sides[1]
        lines.append(f"  {limit.name} {limit.found_text} ({side} {limit.limit_text})")
    return lines


def calls_comparison_table(result: Comparison) -> RenderableType:
    """What became of voice, and who used the CPUs: a column for each policy."""
    by_policy = list(result.by_policy().values())
    telephonies = [[run.telephony for run in runs if run.telephony] for runs in by_policy]
    domains = [domain.name for domain in result.runs[0].domains]
    rows: list[Row] = [
        ("accepted", [_accepted(of) for of in telephonies]),
        ("lost %", [mean_cell(mean([each.voice.loss_ratio for each in of])) for of in telephonies]),
    ]
    rows += [
        (
            f"delay {shown}",
            [_mean_time([getattr(each.voice.delay_ns, name) for each in of]) for of in telephonies],
        )
        for name, shown in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"), ("max", "longest"))
    ]
    rows.append(
        ("jitter", [_mean_time([each.voice.jitter_ns_mean for each in of]) for of in telephonies])
    )
    rows.append(("MOS, worst stream", [_worst_mos(of) for of in telephonies]))
    rows.append((f"mouth to ear, {telephonies[0][0].playout}", [_to_ear(of) for of in telephonies]))
    work: list[Row] = [
        (
            f"work % {name}",
            [_work([run.domains[place] for run in runs], runs) for runs in by_policy],
        )
        for place, name in enumerate(domains)
    ]
    waits: list[Row] = [
        (f"wait {name}", [_wait([run.domains[place] for run in runs]) for runs in by_policy])
        for place, name in enumerate(domains)
    ]
    missed: list[Row] = [
        (
            f"missed % {name}",
            [miss_cell([run.domains[place] for run in runs]) for runs in by_policy],
        )
        for place, name in enumerate(domains)
        if result.runs[0].domains[place].tasks
    ]
    lost: list[Row] = [("CPU lost %", [cpu_lost(runs) for runs in by_policy])]
    streams = number(max(each.voice.streams_most for of in telephonies for each in of), "stream")
    return compared(result, "voice", [rows, missed, work, waits, lost], streams)


def _accepted(of: list[Telephony]) -> Text:
    """By how many seeds, if there are several."""
    accepted = sum(each.accepted is True for each in of)
    text = ("yes" if accepted else "no") if len(of) == 1 else f"{accepted} of {len(of)}"
    return Text(text, "green" if accepted == len(of) else "red")


def _mean_time(times_ns: Sequence[float | None]) -> Text:
    known = [ns for ns in times_ns if ns is not None]
    return Text(time(round(sum(known) / len(known))) if known else NOTHING)


def _worst_mos(of: list[Telephony]) -> Text:
    scores = [each.quality.mos_lqo.min for each in of if each.quality is not None]
    return Text(f"{min(scores):.2f}" if scores else NOTHING)


def _to_ear(of: list[Telephony]) -> Text:
    """The median delay from the mouth to the ear, through the playout buffer."""
    return _mean_time([each.quality.delay_ns for each in of if each.quality is not None])


def _wait(domains: Sequence[DomainResult]) -> Text:
    return _mean_time([mean_wait_ns(domain.waits) if domain.waits else None for domain in domains])


def _work(domains: Sequence[DomainResult], runs: Sequence[Run]) -> Text:
    shares = [
        (domain.cpu_ns - domain.stalled_ns) / run.duration_ns
        for domain, run in zip(domains, runs, strict=True)
    ]
    return Text(bare(sum(shares) / len(shares)))


def calls_sweep_table(result: Sweep) -> RenderableType:
    """Loss and delay at each point under each policy: means over the seeds."""
    points = result.points()
    keys = [axis.key + (f", {axis.unit}" if axis.unit else "") for axis in result.axes]
    is_policy_swept = any(axis.key == "host.policy" for axis in result.axes)
    names = [] if is_policy_swept else ["policy"]
    missed = ["miss %"] if any(point.miss_ratio.mean for point in points) else []
    table = plain_table(
        *(Column(key, justify="right", overflow="fold") for key in keys),
        *right(*names, "lost %", "delay p99.9", *missed),
    )
    for point in points:
        policy = [] if is_policy_swept else [point.policy]
        lost, late_ns = point.packet_loss_ratio, point.delay_ns_p999
        table.add_row(
            *values_of(result, point),
            *policy,
            NOTHING if lost is None else mean_cell(lost),
            NOTHING if late_ns is None else time(round(late_ns.mean)),
            *(mean_cell(point.miss_ratio) for _ in missed),
        )
    seeds = points[0].seeds
    sure = "" if seeds == 1 else f": mean of {seeds} seeds ± 95 % confidence"
    title = heading("voice", f"lost in %, and delay{sure}")
    return Group(title, "", table, "", *sweep_verdict(result), *profiles(result.profiles))
