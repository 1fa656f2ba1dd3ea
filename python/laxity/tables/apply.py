"""Settings of a KVM host that change, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Column
from rich.text import Text

from laxity.apply.agent.settings import (
    RECLAIM,
    SCHED_DEADLINE,
    SCHED_FIFO,
    SCHED_OTHER,
    SCHED_RR,
)
from laxity.apply.wanted import listed
from laxity.tables.layout import name_column, plain_table, right
from laxity.text import NOTHING, time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from laxity.apply.agent.settings import Change, Loaded, Scheduling
    from laxity.apply.live import GuestParameters, VcpuParameters

NAMES = {1: "fifo", 2: "rr", 3: "batch", 5: "idle", 7: "ext"}
"""Linux's policies that are neither ordinary nor SCHED_DEADLINE."""
RECLAIMS = "reclaims"
"""How a thread with SCHED_FLAG_RECLAIM is told from others."""


def changes_table(changes: Sequence[Change]) -> RenderableType:
    """A row for each setting: what it is now, and what it becomes."""
    table = plain_table(
        name_column("setting"),
        Column("now", overflow="fold"),
        Column("wanted", overflow="fold"),
    )
    for change in changes:
        what = f" {change['what']}" if change["what"] in ("scheduling", "affinity") else ""
        old, new = (value_text(change["what"], change[side]) for side in ("old", "new"))
        table.add_row(Text(change["label"] + what), Text(old), Text(new, "bold"))
    return table


def parameters_table(guests: Sequence[GuestParameters]) -> RenderableType:
    """A row for each guest and each of its VCPUs, with what it may have of the CPUs."""
    table = plain_table(
        name_column("guest"),
        *right("VCPU"),
        Column("scheduling", overflow="fold"),
        Column("CPUs", overflow="fold"),
    )
    for guest in guests:
        table.add_row(Text(guest.name, "bold"), "", Text(_share_text(guest.group)), "")
        for vcpu in guest.vcpus:
            table.add_row("", str(vcpu.vcpu), _vcpu_text(vcpu), listed(vcpu.affinity))
    return table


def _share_text(group: Mapping[str, int]) -> str:
    parts = [f"weight {group['weight']}"] if "weight" in group else []
    if group.get("quota_ns"):
        parts.append(f"quota {time(group['quota_ns'])} in {time(group['quota_period_ns'])}")
    if group.get("quota_burst_ns"):
        parts.append(f"burst {time(group['quota_burst_ns'])}")
    return ", ".join(parts)


def _vcpu_text(vcpu: VcpuParameters) -> str:
    policy, values = vcpu.policy, vcpu.values
    if "reclaim" in values:
        reclaims = f", {RECLAIMS}" if values["reclaim"] else ""
        return f"{policy} {time(values['budget_ns'])} in {time(values['period_ns'])}{reclaims}"
    if "rt_priority" in values:
        return f"{policy} {values['rt_priority']}"
    if "nice" in values:
        return f"{policy}, nice {values['nice']}"
    return ", ".join([policy, *(f"{key} {value}" for key, value in values.items())])


def _scheduler_text(value: Loaded) -> str:
    domains = [f"{name} {each['parameters']}" for name, each in value["domains"].items()]
    return "; ".join([f"{value['policy']} {value['settings']}".strip(), *domains])


def value_text(what: str, value: Any) -> str:  # noqa: ANN401 - JSON
    """Returns the value of a setting for people."""
    if value is None:
        return NOTHING
    if what == "hook":
        return "a script"
    if what == "scheduler":
        return _scheduler_text(value)
    if what in ("affinity", "interrupt"):
        return f"CPUs {listed(value)}"
    if what == "group":
        return str(value)
    return _thread_text(value)


def _thread_text(value: Scheduling) -> str:
    policy = value["policy"]
    if policy == SCHED_DEADLINE:
        words = [f"deadline {time(value['runtime_ns'])} in {time(value['period_ns'])}"]
        if value["deadline_ns"] != value["period_ns"]:
            words.append(f"by {time(value['deadline_ns'])}")
        if value["flags"] & RECLAIM:
            words.append(RECLAIMS)
    elif policy in (SCHED_FIFO, SCHED_RR):
        words = [f"{NAMES[policy]} {value['priority']}"]
    elif "vcpu" in value:
        words = [f"ext as VCPU {value['vcpu']}"]
    else:
        name = "fair" if policy == SCHED_OTHER else NAMES.get(policy, str(policy))
        words = [f"{name}, nice {value['nice']}"]
        if value["runtime_ns"]:
            words.append(f"slice {time(value['runtime_ns'])}")
    return ", ".join(words)
