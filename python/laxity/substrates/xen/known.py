"""What is known of the lab's machine: a model that is held against it uses it unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.policies import TABLE
from laxity.substrates.kernel import Kernel
from laxity.substrates.xen import collect
from laxity.text import cost

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.resolved import Resolved
    from laxity.resolved_schema import Costs

COSTS = "xen-lab"
"""The profile of what scheduling costs there."""

ARRIVAL_NS = 7_222
"""What a guest takes each time its VCPU gets a CPU, beside the switch (tools/fit/guests.py)."""

INTERRUPT_NS = 12_639
"""What its kernel takes for an interrupt of its timer, by which a tick or jobs come, beside the
arrival (tools/fit/guests.py)."""

WAKE_NS = 16_552
"""What its kernel takes to wake a task for a job, and to put it to sleep in the end
(tools/fit/guests.py)."""

TIMER_LATENCY_NS = 4_250
"""How late the hypervisor serves a timer of the policy (tools/fit/timers.py)."""

SLICE_LATENCY_NS = 1_804
"""How late a time slice ends (tools/fit/timers.py)."""

TICK_PERIOD_NS = 4_000_000
"""The time between two ticks: HZ is 250."""

MIN_DELTA_NS = 100_000
"""The least time ahead for which Linux on Xen sets a timer (TIMER_SLOP in arch/x86/xen/time.c)."""

TICK = {"cost": INTERRUPT_NS, "min-delta": MIN_DELTA_NS, "wake": WAKE_NS}
"""A guest's tick by the keys of a host file, ns, but for when it comes."""


def table(host: Resolved) -> str:
    """Returns the costs of scheduling there under a host's policy, as the value of `host.costs`.

    A switch costs what it costs Xen, and what the guest takes whose VCPU arrives.
    """
    of_xen = _of_xen(host)
    schedule, switch = cost(of_xen["schedule"]), cost(of_xen["context_switch"], ARRIVAL_NS)
    return f"{{ schedule = {schedule}, context-switch = {switch} }}"


def costs(host: Resolved) -> list[str]:
    """Returns the override for a file that does not say what scheduling costs."""
    return [] if host.gives("host.costs") else [f"host.costs={table(host)}"]


def _of_xen(host: Resolved) -> Costs:
    """What decisions and switches cost Xen, without guests."""
    return host.changed([f"host.costs={COSTS}"]).host["costs"]


def decision_ns(host: Resolved) -> int:
    """Returns what a decision and a switch of the hypervisor take together, at the median."""
    of_xen = _of_xen(host)
    return of_xen["schedule"]["median_ns"] + of_xen["context_switch"]["median_ns"]


def kernel(host: Resolved) -> Kernel:
    """Returns what VCPUs take beside jobs. Traces of the lab do not tell decisions."""
    return Kernel(
        arrival_ns=decision_ns(host) + ARRIVAL_NS,
        interrupt_ns=INTERRUPT_NS,
        wake_ns=WAKE_NS,
        tick={"period": TICK_PERIOD_NS, **TICK},
        timer_latency_ns=TIMER_LATENCY_NS,
    )


def timers(host: Resolved) -> list[str]:
    """Returns the override for a file that does not say how late timers are served.

    Time slices are longer by what they end late, and no other timer is late under their policies:
    credits are distributed when the trace has it.
    """
    if host.gives("host.timer-latency"):
        return []
    if not TABLE[host.host["policy"]].uses("time-slice"):
        return [f"host.timer-latency={TIMER_LATENCY_NS} ns"]
    slice_ns = host.host["settings"]["time_slice_ns"] + SLICE_LATENCY_NS
    return [f"host.time-slice={slice_ns} ns"]


def machine(host: Resolved) -> list[str]:
    """Returns overrides for what is known of the machine and the file does not say."""
    return [*costs(host), *timers(host)]


def settled(host: Resolved, summary: Path) -> list[str]:
    """Returns overrides for a model: what is known of the lab, and what a run there settled."""
    return [*machine(host), *collect.settled(host.host, summary, TICK)]
