"""The tables of calls that people see in a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity import calls
from laxity.tables import (
    NOTHING,
    bare,
    cost_and_speed,
    heading,
    mean_cell,
    number,
    percent,
    plain_table,
    right,
    time,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from laxity.calls import Capacity, Limit, Tried
    from laxity.results import Comparison, Run
    from laxity.sweep import Sweep
    from laxity.telephony import Calls, Quality, Telephony


def run(result: Run, telephony: Telephony, host: Mapping[str, Any]) -> RenderableType:
    """Voice from phone to phone, what was lost where, who used the CPUs, and the limits."""
    voice, delay_ns = telephony.voice, telephony.voice.delay_ns
    table = plain_table(
        Column("voice"), *right("streams", "packets", "lost %", "p50", "p99", "p99.9", "jitter")
    )
    jitter_ns = voice.jitter_ns_mean
    table.add_row(
        host["domains"][host["calls"]["media_server"]]["name"],
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
        *_lost(telephony),
        *_interfaces(telephony, host),
        *_registrations(telephony),
        *_protection(telephony),
        "",
        _domains(result),
        "",
    ]
    if telephony.calls is not None:
        lines.append(_calls(telephony.calls))
    if telephony.quality is not None:
        lines += _quality(telephony.quality)
    lines.append(verdict(calls.acceptance(telephony, host["calls"]["acceptance"])))
    if result.substrate == "sim":
        lines += cost_and_speed(result)
    return Group(*lines)


def _lost(telephony: Telephony) -> list[RenderableType]:
    drops = telephony.drops
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
    lost = [f"{count:,} {place}" for place, count in places.items() if count]
    return [Text(f"Dropped: {', '.join(lost)}", "red")] if lost else []


def _interfaces(telephony: Telephony, host: Mapping[str, Any]) -> list[RenderableType]:
    """Who sent what towards the driver domain, if some are senders or held to agreements."""
    senders = [each for each in host["domains"] if _is_sender(each)]
    if host["network"]["link"] is None and not senders:
        return []
    table = plain_table(
        Column("sends", overflow="fold"),
        *right("packets", "dropped in the guest %", "dropped at the card %"),
    )
    for each in telephony.interfaces:
        offered = max(1, each.offered)
        table.add_row(
            each.domain,
            f"{each.offered:,}",
            bare(each.dropped_in_guest / offered),
            bare(each.dropped_at_card / offered),
        )
    return ["", table]


def _registrations(telephony: Telephony) -> list[RenderableType]:
    found = telephony.registrations
    if found is None:
        return []
    table = plain_table(
        Column("registrations"),
        *right("offered", "succeeded", "failed", "sent again", "p50", "p99", "longest"),
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


def _is_sender(domain: Mapping[str, Any]) -> bool:
    workload = domain["workload"]
    return workload is not None and workload["kind"] == "sender"


def _domains(result: Run) -> RenderableType:
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
            NOTHING if waits is None else time(round(waits.mean_ns)),
            NOTHING if waits is None else time(waits.max_ns),
        )
    legend = "work: CPU time without what caches had to fetch. waits: for a CPU"
    return Group(table, Text(legend, "dim"))


def _calls(found: Calls) -> str:
    setup_ns = found.setup_ns
    failures = number(found.failed, "failure")
    return (
        f"Calls: {found.answered:,} of {found.offered:,} set up, {failures}, "
        f"{number(found.retransmissions, 'retransmission')}\n"
        f"Setup: p50 {time(setup_ns.p50)}, p99 {time(setup_ns.p99)}, longest {time(setup_ns.max)}"
    )


def _quality(quality: Quality) -> list[RenderableType]:
    worst = quality.worst
    toll = percent(quality.toll_quality / quality.scored)
    dead = f", {number(quality.dead, 'dead call')}" if quality.dead else ""
    which = f"stream {worst.stream}" if worst.call is None else f"call {worst.call}"
    pesq = quality.pesq
    return [
        f"Quality of {number(quality.scored, 'sampled stream')}: {toll} toll quality{dead}",
        (
            f"PESQ: p50 {pesq.p50:.2f}, p5 {pesq.p5:.2f}, least {pesq.min:.2f}; E-model MOS: "
            f"p50 {quality.e_model_mos.p50:.2f}, least {quality.e_model_mos.min:.2f}"
        ),
        (
            f"Worst: {which}: PESQ {worst.pesq:.2f}, E-model MOS {worst.e_model_mos:.2f}, "
            f"lost {percent(worst.loss_ratio)}, too late {percent(worst.late_ratio)}"
        ),
    ]


def verdict(limits: list[Limit]) -> Text:
    """One line: which limits held."""
    parts = []
    for limit in limits:
        match limit.name:
            case "loss":
                found, bound = percent(limit.found or 0.0), f"below {percent(limit.limit)}"
            case "delay":
                found = NOTHING if limit.found is None else time(round(limit.found))
                bound = f"below {time(round(limit.limit))}"
            case _:
                found, bound = f"{limit.found or 0:.2f}", f"at least {limit.limit:.2f}"
        parts.append(f"{limit.name} {found} ({bound})")
    held = all(limit.held for limit in limits)
    said = "Accepted" if held else "Not accepted"
    return Text("\n  ".join([said, *parts]), "bold green" if held else "bold red")


def comparison(result: Comparison) -> RenderableType:
    """What became of voice, and who used the CPUs: a column for each policy."""
    runs = result.runs
    voices = [run.telephony.voice for run in runs if run.telephony is not None]
    first = runs[0]
    table = plain_table(Column("voice", overflow="fold"), *right(*(run.policy for run in runs)))
    table.add_row(
        "lost %",
        *(Text(bare(each.loss_ratio), "red" if each.lost else "green") for each in voices),
    )
    for name in ("p50", "p99", "p999", "max"):
        shown = {"p999": "p99.9", "max": "longest"}.get(name, name)
        table.add_row(f"delay {shown}", *(time(getattr(each.delay_ns, name)) for each in voices))
    jitters_ns = (each.jitter_ns_mean for each in voices)
    table.add_row("jitter", *(NOTHING if ns is None else time(round(ns)) for ns in jitters_ns))
    table.add_section()
    for index, domain in enumerate(first.domains):
        shares = (run.domains[index] for run in runs)
        work = (bare((each.cpu_ns - each.stalled_ns) / first.duration_ns) for each in shares)
        table.add_row(f"work % {domain.name}", *work)
    table.add_section()
    for index, domain in enumerate(first.domains):
        waits = (run.domains[index].waits for run in runs)
        table.add_row(
            f"wait {domain.name}",
            *(NOTHING if each is None else time(round(each.mean_ns)) for each in waits),
        )
    table.add_section()
    table.add_row("CPU lost %", *(bare(run.overhead.loss_ratio) for run in runs))
    title = f"on {first.substrate}, {time(first.duration_ns)}, seed {first.seed}"
    return Group(heading(number(len(runs), "policy", "policies"), title), "", table)


def sweep(result: Sweep) -> RenderableType:
    """Loss and delay at each point under each policy: means over the seeds."""
    points = result.points()
    keys = [axis.key + (f", {axis.unit}" if axis.unit else "") for axis in result.axes]
    is_policy_swept = any(axis.key == "host.policy" for axis in result.axes)
    names = [] if is_policy_swept else ["policy"]
    table = plain_table(
        *(Column(key, justify="right", overflow="fold") for key in keys),
        *right(*names, "lost %", "delay p99.9"),
    )
    for point in points:
        policy = [] if is_policy_swept else [point.policy]
        lost, late_ns = point.packet_loss_ratio, point.delay_ns_p999
        table.add_row(
            *values_of(result, point),
            *policy,
            NOTHING if lost is None else mean_cell(lost),
            NOTHING if late_ns is None or math.isnan(late_ns.mean) else time(round(late_ns.mean)),
        )
    seeds = points[0].seeds
    sure = "" if seeds == 1 else f": mean of {seeds} seeds ± 95 % confidence"
    return Group(heading("voice", f"lost in %, and delay{sure}"), "", table)


def capacity(found: Capacity) -> RenderableType:
    """The loads that were tried, what is carried, and what gives out."""
    table = plain_table(*right(_what(found)), *right("lost %", "p50", "p99.9", "CPU %"), Column(""))
    for tried in found.tried:
        telephony = tried.telephony
        delay_ns = telephony.voice.delay_ns
        used = sum(domain.cpu_ns for domain in tried.run.domains) / tried.run.duration_ns
        table.add_row(
            load(found, tried),
            bare(telephony.voice.loss_ratio),
            time(delay_ns.p50),
            time(delay_ns.p999),
            bare(used),
            Text("carried", "green") if tried.held else Text("too much", "red"),
        )
    lines: list[RenderableType] = [table, ""]
    if found.carried is None:
        lines.append(Text("Even the least load is too much", "bold red"))
    else:
        lines.append(Text(f"Carries {load(found, found.carried)} {_what(found)}", "bold green"))
        lines.append(verdict(found.carried.limits))
    if found.refused is not None:
        at = load(found, found.refused)
        lines.append(f"At {at} gives out: {found.gives_out}")
        if found.refused.telephony.quality:
            lines.append(verdict(found.refused.limits))
    else:
        lines.append("Nothing gave out")
    return Group(*lines)


def _what(found: Capacity) -> str:
    return "streams" if found.key == "calls.streams" else "calls/s"


def load(found: Capacity, tried: Tried) -> str:
    """As people say it."""
    return f"{tried.load:,}" if found.key == "calls.streams" else f"{tried.load / 3600:.3g}"
