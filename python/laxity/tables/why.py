"""Why it was late: the worst as sentences, all of it by cause and by culprit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.policies import TABLE
from laxity.tables.layout import heading, name_column, plain_table, right
from laxity.text import NOTHING, bare, number, time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from laxity.why import Cause, Kind, Late, Place, Remedy, Rule, Total, What, Why

SMALL = 0.01
"""Smaller shares of a job's lateness are left out of its sentence."""

REMEDIES_MAX = 4
"""Changes that a sentence names."""

OTHER = "other reasons"
"""All smaller shares together."""

PHRASES: dict[Kind, str] = {
    "own-work": "its own work alone takes longer than its deadline",
    "released-late": "it was released late (jitter, timer)",
    "earlier-job": "the job before it was not yet complete",
    "task": "{who} comes first in its guest",
    "overhead": "its VCPU did work of its kernel (ticks, cache misses)",
    "exit": "the host had its CPU after an exit{rule}",
    "budget": "its budget was used up, most of it by {who}",
    "cap": "its domain had used up its cap",
    "cpu": "{who} had the CPU{rule}",
    "switch": "its CPU was deciding and switching context",
    "idle": "its CPU idled until a decision let it run",
    "blocked": "its guest slept over it",
    "queue": "{at} handled what came before it",
    "coalesced": "the card had not yet interrupted {at}",
    "pause": "{at} stood still for a checkpoint",
    "held": "it was held until a checkpoint was acknowledged",
    "rate": "the agreement of its domain gave it no credit",
    "link": "it was on the wire, or waited for it",
    "failure": "it was in the host that died",
    "silence": "its standby had to hear nothing for so long (protect.failure.detection)",
    "activation": "its standby activated it (protect.failure.activation)",
}

PACKET_PHRASES: dict[Kind, str] = {
    "own-work": "the work on it alone takes longer than it may",
    "exit": "the host had the CPU of {at} after an exit{rule}",
    "budget": "{at} had used up its budget",
    "cap": "the domain of {at} had used up its cap",
    "cpu": "{who} had the CPU{rule} when {at} was to handle it",
    "switch": "the CPU of {at} was deciding and switching context",
    "idle": "the CPU of {at} idled until a decision let it run",
    "blocked": "no thread was on {at}",
}
"""Where they differ for packets."""

PLACES: dict[Place, str] = {
    "wire-in": "the switch before the card",
    "card": "the ring of the card",
    "to-guest": "the ring from netback to its guest",
    "socket": "the socket of its stream",
    "from-guest": "the queue of its guest towards netback",
    "rate": "the queue of its guest towards netback",
    "held": "what is held for a checkpoint",
    "released": "what is released after a checkpoint",
    "wire-out": "the outgoing ring of the card",
}

RULES: dict[Rule, str] = {
    "order": "it comes first",
    "back-to-back": "it used two budgets back to back",
    "boost": "it was boosted",
    "credits": "it had credits left",
    "turn": "it had its turn",
    "other": "other reasons",
    "interrupt": "the host was interrupted",
    "timer": "a timer of the guest expired",
    "halt": "the guest halted",
    "register": "the guest set its timer or accessed another emulated register",
    "controller": "the guest used its interrupt controller",
    "window": "the guest could take an interrupt",
    "port": "the guest accessed a port of a device",
    "memory": "the guest accessed memory of a device or memory that it had not",
    "hypercall": "the guest called the hypervisor",
    "pause": "the guest was spinning",
}

BUDGET_LOST = "its budget was gone, lost while {who} had nothing to do or used by its other work"

PERIODIC_IDLE = "its CPU idled while the budget of a server that comes first ran down"

NAMES: dict[Kind, str] = {
    "own-work": "own work",
    "released-late": "released late",
    "earlier-job": "earlier job",
    "task": "task of its guest",
    "overhead": "ticks, caches",
    "exit": "exit",
    "budget": "budget used up",
    "cap": "cap used up",
    "cpu": "other VCPU",
    "switch": "decision, switch",
    "idle": "idle CPU",
    "blocked": "guest asleep",
    "queue": "other packets",
    "coalesced": "coalescing",
    "pause": "checkpoint's pause",
    "held": "held output",
    "rate": "agreement's rate",
    "link": "wire",
    "failure": "host died",
    "silence": "standby waited",
    "activation": "activation",
}


COUNTED: dict[tuple[What, ...], str] = {
    ("job",): "late jobs",
    ("packet",): "packets",
    ("message",): "messages",
    ("outage",): "outages",
}
"""What a table counts that has nothing but this."""


KERNEL = "its kernel"
"""The name of what gives VCPUs to the threads of a domain."""


def decides(policy: str, who: str | None) -> str:
    """Returns the name of what gave it the CPU: the policy, or a program's own kernel on Xen.

    On Linux programs run beside the domains, under the same policy.
    """
    is_program = who is not None and who.startswith("(")
    is_of_linux = policy in TABLE and TABLE[policy].own_of == "linux"
    return KERNEL if is_program and not is_of_linux else policy


def rule_phrase(rule: Rule, policy: str) -> str:
    """Why the policy let another VCPU run, or why a guest was left, in words."""
    if rule == "order" and policy in TABLE:
        if TABLE[policy].uses("priority"):
            return "it comes first by priority"
        if TABLE[policy].uses("budget"):
            return "its period ends earlier"
    return RULES[rule]


def phrase(cause: Cause, policy: str, *, is_packet: bool) -> str:
    """What a cause is, to stand behind "because"."""
    text = PHRASES[cause.cause]
    if is_packet:
        text = PACKET_PHRASES.get(cause.cause, text)
    elif cause.cause == "budget" and cause.who is not None and "/" not in cause.who:
        text = BUDGET_LOST
    if cause.cause == "idle" and policy == "periodic":
        text = PERIODIC_IDLE
    decider = decides(policy, cause.who)
    by = "" if cause.cause == "exit" else f"{decider}: "
    rule = f" ({by}{rule_phrase(cause.rule, decider)})" if cause.rule else ""
    return text.format(who=cause.who, rule=rule, at=cause.at)


def shares(late: Late, policy: str) -> list[tuple[int, str]]:
    """The causes that are named, from the greatest share (ns) to the smallest, then all others.

    The shares sum to the lateness.
    """
    named = [cause for cause in late.causes if cause.ns > SMALL * late.late_ns]
    is_packet = late.packet is not None
    parts = [(cause.ns, phrase(cause, policy, is_packet=is_packet)) for cause in named]
    rest_ns = late.late_ns - sum(ns for ns, _ in parts)
    return [*parts, (rest_ns, OTHER)] if rest_ns else parts


def lost_where(late: Late) -> str:
    """The place that had no room for a lost packet, and for how long it had none."""
    where = f"lost at {PLACES[late.lost_at]}" if late.lost_at else "lost with the host that died"
    if late.lost_at is None or not late.late_ns:
        return where
    return f"{where}, where the oldest had waited for {time(late.late_ns)}"


def sentence(late: Late, policy: str) -> str:
    """Why one job or packet was late, or one domain out."""
    unfinished = " and not complete at the end of the run" if late.completion_ns is None else ""
    named = shares(late, policy)
    if late.packet == "lost":
        told = f"{late.what} was {lost_where(late)}"
    elif late.kind == "outage":
        domain = late.what.removesuffix("/outage")
        still = " and still at the end of the run" if late.completion_ns is None else ""
        told = f"{domain} was out for {time(late.late_ns)}{still}, since its host died"
    elif not named:
        return f"{late.what} was in time."
    else:
        told = f"{late.what} was {time(late.late_ns)} late{unfinished}"
    parts = [f"{time(ns)} {'for' if words == OTHER else 'because'} {words}" for ns, words in named]
    return f"{told}: {', '.join(parts)}." if parts else f"{told}."


def remedy_sentence(remedies: Sequence[Remedy], *, is_packet: bool = False) -> str:
    """What would have made the job or packet be in time."""
    if not remedies and is_packet:
        return "No change that was tried and no other policy has it in time."
    if not remedies:
        return "No change of its budget or weight and no other policy has it in time."
    counts = [
        f"{each.missed:,} late or lost" if is_packet else number(each.missed, "miss", "misses")
        for each in remedies
    ]
    named = [f"{each.set} ({count})" for each, count in zip(remedies, counts, strict=True)]
    shown = " or ".join(named[:REMEDIES_MAX])
    return f"Simulated, it is in time with {shown}."


def why_table(why: Why, policy: str) -> RenderableType:
    """The worst jobs and packets as sentences, then all late ones by cause and by culprit."""
    kinds = why.kinds()
    if not kinds:
        jobs = number(why.jobs, "job")
        said = f"None of {jobs} was late" if why.jobs else "Nothing was late or lost"
        if why.not_seen:
            return Group(Text(f"{said}, as far as the trace tells"), *_not_seen(why), *_exits(why))
        return Group(Text(said, "bold green"), *_exits(why))
    counts = [number(why.outages, "outage")] if why.outages else []
    if why.jobs:
        counts.append(f"{why.late_jobs:,} of {number(why.jobs, 'job')} late")
    if "packet" in kinds:
        counts.append(_late_and_lost("packet", "", why.late_packets, why.lost_packets))
    if "message" in kinds:
        of = " of registrations"
        counts.append(_late_and_lost("message", of, why.late_messages, why.lost_messages))
    lines: list[RenderableType] = [
        heading(
            ", ".join(counts),
            f"under {policy}, by {time(why.late_sum_ns)} together",
        ),
        "",
    ]
    for each in why.late:
        lines.append(Text(sentence(each, policy)))
        if each.remedies is not None:
            is_packet = each.packet is not None
            lines.append(Text(f"  {remedy_sentence(each.remedies, is_packet=is_packet)}", "dim"))
    return Group(*lines, "", _totals(why), *_not_seen(why), *_exits(why))


def _not_seen(why: Why) -> list[RenderableType]:
    """What the trace does not tell, below all else."""
    return ["", *(Text(f"Not seen: {each}.") for each in why.not_seen)] if why.not_seen else []


EXITS_COLUMNS = ("VCPU", "exit", "had the CPU", "exits", "the host had", "%")


def exits_rows(why: Why) -> list[tuple[str, str, str, str, str, str]]:
    """For each VCPU whose guest the trace tells of: the exits for each reason, and all of them.

    The columns are `EXITS_COLUMNS`.
    """
    rows = []
    for guest in why.guests:
        count = sum(exits.count for exits in guest.exits)
        parts = [(exits.reason, exits.count, exits.ns) for exits in guest.exits]
        for place, (reason, times, ns) in enumerate([("all", count, guest.exits_ns), *parts]):
            vcpu, ran = ("", "") if place else (guest.vcpu, time(guest.ran_ns))
            share = bare(ns / guest.ran_ns) if guest.ran_ns else NOTHING
            rows.append((vcpu, reason, ran, f"{times:,}", time(ns), share))
    return rows


def _exits(why: Why) -> list[RenderableType]:
    """The time that the host had after exits, where the trace tells of them."""
    if not why.guests:
        return []
    first, second, *rest = EXITS_COLUMNS
    table = plain_table(name_column(first), Column(second, no_wrap=True), *right(*rest))
    for row in exits_rows(why):
        table.add_row(*row)
    return ["", heading("Exits of guests", "and the time until they were entered again"), table]


def _late_and_lost(what: What, of: str, late: int, lost: int) -> str:
    """`2 packets late, 3 lost`, without what there is none of."""
    if not late:
        return f"{number(lost, what)}{of} lost"
    return f"{number(late, what)}{of} late" + (f", {lost:,} lost" if lost else "")


def _totals(why: Why) -> Table:
    table = plain_table(
        Column("cause", no_wrap=True),
        Column("culprit", overflow="fold"),
        Column("rule", no_wrap=True),
        *right("late by", "%", COUNTED.get(why.kinds(), "times")),
    )
    for (cause, who, rule), (ns, jobs) in summed(why.totals).items():
        share = ns / why.late_sum_ns if why.late_sum_ns else 0.0
        table.add_row(
            NAMES[cause], Text(who or NOTHING), rule or NOTHING, time(ns), bare(share), f"{jobs:,}"
        )
    return table


def summed(
    totals: Sequence[Total],
) -> dict[tuple[Kind, str | None, Rule | None], tuple[int, int]]:
    """The lateness (ns) and the late jobs of each cause and culprit over all tasks."""
    sums: dict[tuple[Kind, str | None, Rule | None], tuple[int, int]] = {}
    for total in totals:
        key = total.cause, total.who, total.rule
        ns, jobs = sums.get(key, (0, 0))
        sums[key] = ns + total.ns, jobs + total.jobs
    return dict(sorted(sums.items(), key=lambda item: -item[1][0]))
