"""Table 1 on KVM: what does a policy cost through BPF, beside Linux's own scheduler?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from laxity.lab.files import RESULTS
from laxity.policies import TABLE
from laxity.substrates.kvm import boot as kvm
from laxity.substrates.kvm import profile

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen.on_xen.costs import NS_AN_INSTRUCTION, many_host
from laxity_reproduce.rt_xen.on_xen.setup import SEED, window
from laxity_reproduce.rt_xen.setup import EVENT_DRIVEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from laxity.host import Host
    from laxity.progress import Say

    from laxity_reproduce.rt_xen.on_xen.window import Window

    Calls = Mapping[str, Sequence[int]]
    """What each call of a function took, ns, by function."""
    Profile = Callable[[Sequence["Window"], Path, Say], Mapping[str, Calls]]
    """Boots Linux for windows of one policy; what was profiled, by the window's name."""

STOCK = "eevdf"
OURS = ("deferrable", "sporadic", "credit", "sedf", "lending", "s-allc")
OURS_QUICK = ("deferrable", "credit")

DECISION_MAX = 1.5
"""A decision takes at most this many times the instructions of EEVDF's pick."""
LOST_MAX = 2.0
"""At most this many times the CPU time that EEVDF takes is lost."""

DURATION, DURATION_QUICK = "duration=5 s", "duration=2 s"

DECIDES = "pick_task"
"""The function of a scheduling class that chooses who runs."""
CLASS = (
    *(DECIDES, "enqueue_task", "dequeue_task", "set_next_task", "put_prev_task"),
    *("wakeup_preempt", "task_tick"),
)
"""What of a scheduling class takes time: choosing, putting into queues, beginning and ending a
turn, wake-ups, ticks."""
TIMER = "bpf_timer_cb"
"""Does what a policy's BPF does when a timer rings; no such timer rings for EEVDF."""
EMPTY = "pick_task_idle"
"""A function that does next to nothing: what it seems to take is the tracer's own time."""

METHOD = (
    "Hosts and task sets are those of the same experiment on [Xen](xen.md), which explains them."
    " Linux's function_graph tracer tells how long each call of a scheduling class's functions"
    " takes: that of EEVDF, or sched_ext, which calls a policy's verified BPF. The tracer's own"
    f" time, which is what the empty function {EMPTY} seems to take, is left out. Costs are in"
    f" instructions, which the machine counts and which take {NS_AN_INSTRUCTION} ns each. A"
    f" decision is {DECIDES}; lost are {', '.join(CLASS)}, ordinary tasks' included, and {TIMER}:"
    " what a policy does when a timer rings. Switches between address spaces, exits and the"
    " interrupts themselves are not among these: no scheduler changes what one of them takes. Each"
    " row has a demand in place of a published value."
)

TITLES = {
    "table-1": "overhead with 5 VCPUs, on KVM",
    "table-1-many": "overhead with 200 VCPUs, on KVM",
}


@dataclass(frozen=True)
class Cost:
    """What the functions of a scheduling class took in a run, in instructions."""

    decisions: int
    decision: float
    """The mean."""
    lost: float
    """All together."""
    by_function: dict[str, tuple[int, float]]
    """How many calls there were, and what they took together."""

    @classmethod
    def of(cls, calls: Calls) -> Cost:
        """From a profile. Raises KeyError if a function that is always called was not."""
        empty_ns = min(calls[EMPTY])
        by_function = {
            name: (
                len(each),
                sum(max(took_ns - empty_ns, 0) for took_ns in each) / NS_AN_INSTRUCTION,
            )
            for name, each in calls.items()
            if name != EMPTY
        }
        decides = next(name for name in by_function if name.startswith(f"{DECIDES}_"))
        count, total = by_function[decides]
        lost = sum(took for _, took in by_function.values())
        return cls(count, total / count, lost, by_function)


def functions(policy: str) -> list[str]:
    """The functions that are profiled under a policy."""
    ours = TABLE[policy].own_of is None
    timers = [TIMER] if ours else []
    return [EMPTY, *timers, *(f"{name}_{'scx' if ours else 'fair'}" for name in CLASS)]


def windows(name: str, quick: bool) -> list[Window]:
    """A window for each policy, and first for Linux's own scheduler."""
    host = many_host() if name == "table-1-many" else None
    ours = OURS_QUICK if quick else OURS
    return [_window(name, policy, host, quick=quick) for policy in (STOCK, *ours)]


def _window(name: str, policy: str, host: Host | None, *, quick: bool) -> Window:
    overrides = [DURATION_QUICK if quick else DURATION]
    overrides += [] if host else [f"seed={SEED}"]
    overrides += [EVENT_DRIVEN] if TABLE[policy].uses("quantum") else []
    return window(f"{name}-{policy}", policy, overrides, quick=quick, host=host, what=policy)


def emulated(of: Sequence[Window], directory: Path, say: Say) -> Mapping[str, Calls]:
    """Boots the lab's KVM host."""
    hosts = {each.name: each.host.resolve(each.overrides) for each in of}
    profiled = {each.name: functions(each.scheduler) for each in of}
    kvm.boot_all(hosts, "repeatable", directory, say, profiled=profiled)
    return {name: profile.read(directory / RESULTS / name / profile.FILE) for name in hosts}


def judge(name: str, quick: bool, found: Mapping[str, Calls | str]) -> Experiment:
    """An experiment, from what was profiled in each window, or why nothing was."""
    ran = {each.scheduler: _cost(found[each.name]) for each in windows(name, quick)}
    stock = ran.pop(STOCK)
    rows = [row for policy, cost in ran.items() for row in _rows(policy, cost, stock)]
    costs = {
        policy: cost for policy, cost in {STOCK: stock, **ran}.items() if isinstance(cost, Cost)
    }
    lines = [
        Measurement(
            f"{policy}: instructions of {function}, a call",
            f"{total / count:.0f}",
            f"{count:,} calls",
        )
        for policy, cost in costs.items()
        for function, (count, total) in cost.by_function.items()
    ]
    data = [
        {"policy": policy, "function": function, "calls": count, "instructions": total}
        for policy, cost in costs.items()
        for function, (count, total) in cost.by_function.items()
    ]
    return Experiment(name, TITLES[name], METHOD, rows, lines, pd.DataFrame(data))


def _cost(calls: Calls | str) -> Cost | str:
    return calls if isinstance(calls, str) else Cost.of(calls)


def _rows(policy: str, own: Cost | str, stock: Cost | str) -> list[Row]:
    kinds = {
        f"{policy}: instructions a decision, times {STOCK}'s pick": ("decision", DECISION_MAX),
        f"{policy}: CPU time lost, times {STOCK}'s": ("lost", LOST_MAX),
    }
    if isinstance(own, str) or isinstance(stock, str):
        why = own if isinstance(own, str) else str(stock)
        return [Row(what, None, "no run", "differs", why) for what in kinds]
    return [_row(what, own, stock, name, most) for what, (name, most) in kinds.items()]


def _row(what: str, own: Cost, stock: Cost, name: str, most: float) -> Row:
    taken, beside = getattr(own, name), getattr(stock, name)
    holds = taken <= most * beside
    dearest = sorted(own.by_function.items(), key=lambda each: -each[1][1])[:2]
    why = " and ".join(
        f"{count:,} calls of {function} take {total / own.lost:.0%} of what is lost"
        for function, (count, total) in dearest
    )
    return Row(
        what,
        f"at most {most:g}",
        round(taken / beside, 2),
        verdict(holds=holds),
        "" if holds else why,
        f"{taken:,.0f} and {beside:,.0f} instructions",
    )
