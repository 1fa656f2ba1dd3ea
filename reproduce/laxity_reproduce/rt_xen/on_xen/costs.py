"""Table 1: what does the scheduler itself cost? In instructions, of ours and of Xen's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from laxity.host import Host

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen.on_xen.boots import NoRunError, needs_of, try_row
from laxity_reproduce.rt_xen.on_xen.model import Quantiles
from laxity_reproduce.rt_xen.on_xen.setup import SEED, policies, published_table_1, window
from laxity_reproduce.rt_xen.setup import EVENT_DRIVEN, SERVERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity_reproduce.rt_xen.on_xen.boots import Found, XenLab
    from laxity_reproduce.rt_xen.on_xen.window import Window

NS_AN_INSTRUCTION = 2
"""The time of an instruction on the lab's machine."""

STOCK_CREDIT, STOCK_CREDIT2, STOCK_RTDS = "xen:credit", "xen:credit2", "xen:rtds"

CLOSE_TO_CREDIT = 1.5
"""A decision that takes at most this many times what stock credit's takes is close to it."""

LOSS_TO_CREDIT = 2.0
"""Event-driven servers lose at most this many times the CPU time that stock credit loses."""

DEFAULT_SLICE = "host.time-slice=30 ms"
"""Stock credit's own. The paper gave it the servers' quantum, 1 ms."""

TABLE_1, MANY = "table-1", "many"
"""What the names of windows begin with."""

TICKED, SLICE_30, NEEDS = "ticked", "slice-30-ms", "needs"
"""Windows beside the one whose costs a scheduler is judged by. The last is where its policy may say
what it does, so that one knows which decisions were needed.
"""

MANY_POLICIES = ("deferrable", "sporadic", "credit")
"""With many VCPUs: one of each code."""

MANY_DOMAINS, MANY_VCPUS = 4, 50
"""VCPUs in each of the domains."""

MANY_COST_US, MANY_PERIOD_MS = 300, 150
"""The one task of each VCPU: 40 % of the CPU for all 200."""

MANY_DURATION = "duration=5 s"
"""More would not fit Xen's trace buffers."""

METHOD = (
    "Host file even.toml has an even share, a load of 70 % and the task set of seed 1. The"
    " hypervisor traces the cycles of each decision (do_schedule), context switch and wake."
    f" Costs are in instructions, which the machine counts and which take {NS_AN_INSTRUCTION} ns"
    " each. The servers run event-driven and, as in the paper, with a quantum of 1 ms; credit,"
    " ours and Xen's, has a time slice of 1 ms. Lost time is that of decisions, switches and"
    " wakes. Needed decisions and switches are those that the schedule itself requires:"
    " releases, completions, exhaustions and replenishments that change which VCPU runs. They"
    " are counted in windows of their own, in which policies trace what they do. The paper's"
    " values come from another machine, so only ratios between policies can be compared with"
    " ours. A row with a demand in place of a published value is reproduced if the demand is met."
)


METHOD_MANY = (
    f"Each of {MANY_DOMAINS} domains has {MANY_VCPUS} VCPUs, and each VCPU has one task of"
    f" {MANY_COST_US} us every {MANY_PERIOD_MS} ms, with releases spread evenly. Budgets are 500"
    " us every 100 ms. The policies are event-driven. All else is as in Table 1."
)


def many_host() -> Host:
    """Four domains of 50 VCPUs, each with a light task of its own."""
    lines = ['duration = "10 s"', "", "[host]", "cpus = 1", 'policy = "deferrable"']
    lines += ['time-slice = "1 ms"']
    for domain in range(1, MANY_DOMAINS + 1):
        lines += ["", "[[domain]]", f'name = "dom{domain}"', f"vcpus = {MANY_VCPUS}"]
        lines += [f"priority = {domain}", 'budget = "500 us"', 'period = "100 ms"', "tasks = ["]
        for vcpu in range(MANY_VCPUS):
            # Releases spread over the period, in an order in which neighbours are of other domains.
            offset_us = MANY_PERIOD_MS * 1000 * (vcpu * MANY_DOMAINS + domain - 1)
            offset_us //= MANY_DOMAINS * MANY_VCPUS
            lines.append(
                f'  {{ name = "task{vcpu}", cost = "{MANY_COST_US} us",'
                f' period = "{MANY_PERIOD_MS} ms", offset = "{offset_us} us", vcpu = {vcpu} }},'
            )
        lines.append("]")
    return Host.parse("\n".join(lines) + "\n", "many.toml")


@dataclass(frozen=True)
class Cost:
    """What a window's scheduling cost."""

    name: str
    """The name of the window."""
    scheduler: str
    decisions: int
    """All that were measured, dom0's and the idle CPU's with them."""
    switches: int
    decision: Quantiles
    """ns, as all here."""
    switch: Quantiles
    decision_total_ns: int
    switch_total_ns: int
    wakes: int
    wake_total_ns: int
    duration_ns: int
    needed_decisions: int
    made_decisions: int
    """Decisions for the host's VCPUs."""
    needed_switches: int
    made_switches: int

    @classmethod
    def of(cls, of: Window, found: Found) -> Cost:
        """From what Xen traced."""
        summary, needs = found.summary, needs_of(found.trace)
        decision_ns, switch_ns = measured(found)
        return cls(
            name=of.name,
            scheduler=of.scheduler,
            decisions=len(decision_ns),
            switches=len(switch_ns),
            decision=Quantiles.of(decision_ns),
            switch=Quantiles.of(switch_ns),
            decision_total_ns=sum(decision_ns),
            switch_total_ns=sum(switch_ns),
            wakes=summary["timers"],
            wake_total_ns=summary["timer_ns"],
            duration_ns=found.run.duration_ns,
            needed_decisions=needs["needed_decisions"],
            made_decisions=needs["decisions"],
            needed_switches=needs["needed_switches"],
            made_switches=needs["switches"],
        )

    @property
    def lost_ns(self) -> int:
        """By decisions, switches and wakes."""
        return self.decision_total_ns + self.switch_total_ns + self.wake_total_ns

    @property
    def lost_percent(self) -> float:
        """The lost part of the time of the run."""
        return 100 * self.lost_ns / self.duration_ns

    @property
    def decision_instructions(self) -> float:
        """The mean of a decision."""
        return self.decision_total_ns / self.decisions / NS_AN_INSTRUCTION

    @property
    def switch_instructions(self) -> float:
        """The mean of a switch."""
        return self.switch_total_ns / self.switches / NS_AN_INSTRUCTION

    @property
    def wake_instructions(self) -> float:
        """The mean of a wake; 0 if there was none."""
        return self.wake_total_ns / max(self.wakes, 1) / NS_AN_INSTRUCTION


def measured(found: Found) -> tuple[list[int], list[int]]:
    """What each decision and each switch cost, ns. Raises NoRunError if that was not traced."""
    decision_ns, switch_ns = found.summary["decision_ns"], found.summary["switch_ns"]
    if not decision_ns or not switch_ns:
        raise NoRunError("the hypervisor traced no costs: it is not the build that measures")
    return decision_ns, switch_ns


def windows(quick: bool) -> list[Window]:
    """A window for each policy event-driven, for the servers as the paper had them, and for Xen's
    own schedulers.
    """
    seed = f"seed={SEED}"
    ours = policies(quick)
    found = [
        event_driven(policy, variant, quick=quick) for policy in ours for variant in ("", NEEDS)
    ]
    if not quick:
        found += [_window(server, [seed], TICKED, quick=quick) for server in SERVERS]
        found.append(_window(STOCK_CREDIT, [seed, DEFAULT_SLICE], SLICE_30, quick=quick))
    return found + [_window(name, [seed], quick=quick) for name in stock(quick)]


def event_driven(policy: str, variant: str = "", *, quick: bool) -> Window:
    """One of ours, without a quantum."""
    return _window(policy, [f"seed={SEED}", EVENT_DRIVEN], variant, quick=quick)


def windows_of_many(quick: bool) -> list[Window]:
    """The same with 200 VCPUs."""
    host = many_host()
    variants = [(policy, variant) for policy in MANY_POLICIES for variant in ("", NEEDS)]
    variants += [(name, "") for name in (STOCK_CREDIT, STOCK_RTDS)]
    return [
        _window(name, [MANY_DURATION], variant, kind=MANY, host=host, quick=quick)
        for name, variant in variants
    ]


def stock(quick: bool) -> list[str]:
    """Xen's own schedulers that ours are held against."""
    return [STOCK_CREDIT, STOCK_RTDS] if quick else [STOCK_CREDIT, STOCK_CREDIT2, STOCK_RTDS]


def _window(
    name: str,
    overrides: list[str],
    variant: str = "",
    *,
    quick: bool,
    kind: str = TABLE_1,
    host: Host | None = None,
) -> Window:
    words = [kind, _plain(name), *([variant] if variant else [])]
    events = variant == NEEDS
    return window("-".join(words), name, overrides, quick=quick, host=host, policy_events=events)


def _plain(name: str) -> str:
    return name.replace(":", "-")


def judge(lab: XenLab) -> Experiment:
    """Table 1 on the paper's host."""
    found = _costs(lab, windows(lab.quick))
    rows = [
        *_against_stock(found, TABLE_1, policies(lab.quick)),
        *_ticked(found, lab.quick),
        *_excess(found, TABLE_1, policies(lab.quick)),
    ]
    return Experiment(
        TABLE_1,
        f"overhead over {_seconds(found)}, on Xen",
        METHOD,
        rows,
        [*_each(found, TABLE_1), *_published(lab.quick)],
        _frame(found),
    )


def judge_many(lab: XenLab) -> Experiment:
    """The costs with 200 VCPUs."""
    found = _costs(lab, windows_of_many(lab.quick))
    return Experiment(
        "table-1-many",
        f"overhead with {MANY_DOMAINS * MANY_VCPUS} VCPUs, on Xen",
        METHOD_MANY,
        [
            *_against_stock(found, MANY, MANY_POLICIES),
            *_excess(found, MANY, MANY_POLICIES),
        ],
        _each(found, MANY),
        _frame(found),
    )


Costs = dict[str, Cost | str]
"""By window; or why there is none."""


def _costs(lab: XenLab, of: list[Window]) -> Costs:
    found: Costs = {}
    for each in of:
        try:
            found[each.name] = Cost.of(each, lab.found(each))
        except NoRunError as reason:
            found[each.name] = str(reason)
    return found


def _cost(found: Costs, name: str) -> Cost:
    cost = found[name]
    if isinstance(cost, str):
        raise NoRunError(cost)
    return cost


def _against_stock(found: Costs, kind: str, ours: Sequence[str]) -> list[Row]:
    """What the project asks of itself."""

    def cost(name: str) -> Cost:
        return _cost(found, f"{kind}-{_plain(name)}")

    def per_decision(what: str, policy: str) -> Row:
        own, rtds = cost(policy), cost(STOCK_RTDS).decision_instructions
        holds = own.decision_instructions <= rtds
        return Row(
            what,
            f"at most stock rtds's: {rtds:.0f}",
            round(own.decision_instructions, 1),
            verdict(holds=holds),
            "" if holds else _why_dearer(own, cost(STOCK_RTDS)),
            f"median {_instructions(own.decision)}",
        )

    def beside_credit(what: str, policy: str) -> Row:
        own, credit = cost(policy), cost(STOCK_CREDIT)
        ratio = own.decision_instructions / credit.decision_instructions
        holds = ratio <= CLOSE_TO_CREDIT
        return Row(
            what,
            f"close: at most {CLOSE_TO_CREDIT:g}",
            round(ratio, 2),
            verdict(holds=holds),
            "" if holds else _why_dearer(own, credit),
            f"stock credit: {credit.decision_instructions:.0f}",
        )

    def lost(what: str, policy: str) -> Row:
        own, credit = cost(policy), cost(STOCK_CREDIT)
        ratio = own.lost_ns / credit.lost_ns
        holds = ratio <= LOSS_TO_CREDIT
        return Row(
            what,
            f"at most {LOSS_TO_CREDIT:g}",
            round(ratio, 2),
            verdict(holds=holds),
            "" if holds else _why_more(own, credit),
            f"{own.lost_percent:.3f} % and {credit.lost_percent:.3f} %",
        )

    rows = []
    for policy in ours:
        kinds = {
            "instructions a decision, mean": per_decision,
            "instructions a decision, times stock credit's": beside_credit,
        }
        if policy in SERVERS:
            kinds["event-driven: CPU time lost, times stock credit's"] = lost
        rows += [try_row(f"{policy}: {words}", None, make, policy) for words, make in kinds.items()]
    return rows


def _ticked(found: Costs, quick: bool) -> list[Row]:
    """The paper's comparison: servers that tick, and credit."""
    if quick:
        return []
    totals = published_table_1("total_us")

    def row(what: str, server: str, published: float) -> Row:
        own = _cost(found, f"{TABLE_1}-{server}-{TICKED}")
        credit = _cost(found, f"{TABLE_1}-{_plain(STOCK_CREDIT)}")
        ratio = own.lost_ns / credit.lost_ns
        holds = ratio <= published
        return Row(
            what,
            published,
            round(ratio, 2),
            verdict(holds=holds),
            "" if holds else _why_more(own, credit),
            f"{own.lost_percent:.3f} % and {credit.lost_percent:.3f} %",
        )

    rows = []
    for server in SERVERS:
        what = f"{server}, quantum 1 ms: CPU time lost, times stock credit's, at most"
        published = round(totals[server] / totals["credit"], 2)
        rows.append(try_row(what, published, row, server, published))
    return rows


def _excess(found: Costs, kind: str, ours: Sequence[str]) -> list[Row]:
    """What was done beyond what the schedule needs."""

    def row(what: str, policy: str, thing: str) -> Row:
        own = _cost(found, f"{kind}-{policy}-{NEEDS}")
        made, needed = getattr(own, f"made_{thing}"), getattr(own, f"needed_{thing}")
        return Row(
            what,
            0.0,
            float(made - needed),
            verdict(holds=made <= needed),
            "" if made <= needed else f"{100 * (made / max(needed, 1) - 1):.2f} % of those needed",
            f"made {made:,}, needed {needed:,}",
        )

    return [
        try_row(f"{policy}: {thing} that the schedule does not need", 0.0, row, policy, thing)
        for policy in ours
        for thing in ("decisions", "switches")
    ]


def _why_dearer(own: Cost, other: Cost) -> str:
    return (
        f"a decision of {own.scheduler} takes {own.decision_instructions:.0f} instructions, one of"
        f" {other.scheduler} {other.decision_instructions:.0f}"
    )


def _why_more(own: Cost, other: Cost) -> str:
    def told(cost: Cost) -> str:
        return (
            f"{cost.scheduler}: {cost.decisions:,} decisions of {cost.decision_instructions:.0f}"
            f" instructions, {cost.switches:,} switches of {cost.switch_instructions:.0f},"
            f" {cost.wakes:,} wakes of {cost.wake_instructions:.0f}"
        )

    return f"{told(own)}; {told(other)}"


def _instructions(of: Quantiles) -> str:
    median, p99, most = (value // NS_AN_INSTRUCTION for value in (of.median, of.p99, of.max))
    return f"{median:,}, 99 % {p99:,}, most {most:,}"


def _seconds(found: Costs) -> str:
    lengths = {cost.duration_ns for cost in found.values() if isinstance(cost, Cost)}
    return f"{max(lengths, default=0) // 1_000_000_000} seconds"


def _each(found: Costs, kind: str) -> list[Measurement]:
    """A line for each window whose costs count."""
    lines = []
    for name, cost in found.items():
        if name.endswith(NEEDS):
            continue
        what = f"{name.removeprefix(f'{kind}-')}: instructions a decision, a switch, a wake"
        if isinstance(cost, str):
            lines.append(Measurement(what, "no run", cost))
            continue
        lines.append(
            Measurement(
                what,
                f"median {_instructions(cost.decision)}; median {_instructions(cost.switch)};"
                f" mean {cost.wake_instructions:.0f}",
                f"{cost.decisions:,} decisions, {cost.switches:,} switches, {cost.wakes:,} wakes;"
                f" {cost.lost_percent:.3f} % lost",
            )
        )
    return lines


def _published(quick: bool) -> list[Measurement]:
    """What the paper has, in nanoseconds of another machine."""
    keys = (
        *("schedule_calls", "schedule_median_ns", "schedule_p99_ns", "schedule_max_ns"),
        *("context_switches", "context_switch_median_ns", "context_switch_p99_ns"),
        *("context_switch_max_ns", "loss_percent"),
    )
    columns = {key: published_table_1(key) for key in keys}
    return [
        Measurement(
            f"{policy}, as published, another machine: ns a decision, a switch",
            "median {schedule_median_ns}, 99 % {schedule_p99_ns}, most {schedule_max_ns}; median"
            " {context_switch_median_ns}, 99 % {context_switch_p99_ns}, most"
            " {context_switch_max_ns}".format_map({k: v[policy] for k, v in columns.items()}),
            "{schedule_calls:,} decisions, {context_switches:,} switches; {loss_percent} %"
            " lost".format_map({k: v[policy] for k, v in columns.items()}),
        )
        for policy in policies(quick)
    ]


def _frame(found: Costs) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "window": cost.name,
            "scheduler": cost.scheduler,
            "decisions": cost.decisions,
            "switches": cost.switches,
            "wakes": cost.wakes,
            **{
                f"{what}_{quantile}_ns": getattr(getattr(cost, what), quantile)
                for what in ("decision", "switch")
                for quantile in ("median", "p99", "max")
            },
            "decision_total_ns": cost.decision_total_ns,
            "switch_total_ns": cost.switch_total_ns,
            "wake_total_ns": cost.wake_total_ns,
            "lost_percent": cost.lost_percent,
            "made_decisions": cost.made_decisions,
            "needed_decisions": cost.needed_decisions,
            "made_switches": cost.made_switches,
            "needed_switches": cost.needed_switches,
        }
        for cost in found.values()
        if isinstance(cost, Cost)
    )
