"""What is known of the emulated KVM host: a model that is held against it uses it unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.policies import TABLE
from laxity.substrates.kernel import Kernel

if TYPE_CHECKING:
    from laxity.resolved import Resolved

SWITCH_NS = 23_400
"""What a CPU takes to go over to another VCPU under a policy of Laxity's (tools/fit/kvm.py)."""

JOB_NS = 16_200
"""What a job takes beside its own work: its timer's interrupt leaves the guest and comes back, and
the guest sets the next timer and halts (tools/fit/kvm.py)."""

INTERRUPT_NS = 7_900
"""What the host's kernel takes of the VCPU that runs for each of its timer interrupts
(tools/fit/kvm.py)."""

INTERRUPT_PERIOD_NS = 4_000_000
"""The time between two of these: HZ is 250."""

TICK_NS = 15_200
"""What a tick of the policy takes of the VCPU that runs (tools/fit/kvm.py)."""

TIMER_LATENCY_NS = 7_000
"""How late the host serves a timer of a policy with budgets (tools/fit/kvm.py)."""

BEHIND_NS = {"polling": 50_000}
"""How long after the start of a run the periods of a policy's servers begin there. VCPUs that wake
at one instant do so one after the other, 6 us each, and a polling server whose VCPU is not awake
when its period begins has no budget until the next one."""

SLICE_LATENCY_NS = 7_300
"""How late a time slice ends (tools/fit/kvm.py)."""


def table() -> str:
    """Returns the costs of scheduling there, as the value of a key of a host file."""
    return f'{{ context-switch = "{SWITCH_NS} ns" }}'


def costs(host: Resolved) -> list[str]:
    """Returns the override for a file that does not say what scheduling costs.

    What Linux's own schedulers take was not measured.
    """
    if host.gives("host.costs") or not _is_ours(host):
        return []
    return [f"host.costs={table()}"]


def timer_latency_ns(policy: str) -> int:
    """Returns how late budgets come under a policy that has some, after the start of a period."""
    return TIMER_LATENCY_NS + BEHIND_NS.get(policy, 0)


def timers(host: Resolved) -> list[str]:
    """Returns the override for a file that does not say how late timers are served.

    Without budgets time slices are longer by what they end late, and no other timer is late: a tick
    of the policy is served before the decision that a wake of the same instant asks for, as in the
    simulator, and a late one would come after it.
    """
    policy = TABLE[host.host["policy"]]
    if host.gives("host.timer-latency") or not _is_ours(host):
        return []
    if policy.uses("budget"):
        return [f"host.timer-latency={timer_latency_ns(policy.name)} ns"]
    slice_ns = host.host["settings"]["time_slice_ns"] + SLICE_LATENCY_NS
    return [f"host.time-slice={slice_ns} ns"]


def stolen(host: Resolved) -> float:
    """Returns what interrupts of the host take for each nanosecond of a VCPU's work, ns."""
    ratio = INTERRUPT_NS / INTERRUPT_PERIOD_NS
    if TABLE[host.host["policy"]].uses("tick"):
        ratio += TICK_NS / host.host["settings"]["tick_ns"]
    return ratio


def job_ns(host: Resolved, cost_ns: int) -> int:
    """Returns the CPU time of a job that has such a cost: interrupts come while it works."""
    return round((1 + stolen(host)) * cost_ns) + JOB_NS


def kernel(host: Resolved) -> Kernel:
    """Returns what VCPUs take beside jobs. Guests have no kernel that ticks, or wakes tasks."""
    if not _is_ours(host):
        return Kernel()
    return Kernel(
        arrival_ns=SWITCH_NS,
        interrupt_ns=JOB_NS,
        stolen=stolen(host),
        timer_latency_ns=timer_latency_ns(host.host["policy"]),
    )


def jobs(host: Resolved) -> list[str]:
    """Returns overrides for jobs, of which each takes what it takes there.

    A cost does not exceed the deadline for that. Tasks that are drawn cannot be changed.
    """
    if not _is_ours(host) or host.gives("draw"):
        return []
    return [
        f"domain.{domain['name']}.tasks.{task['name']}.cost={cost_ns} ns"
        for domain in host.host["domains"]
        for task in domain["tasks"]
        if (cost_ns := min(job_ns(host, task["cost_ns"]), task["deadline_ns"]))
    ]


def machine(host: Resolved) -> list[str]:
    """Returns overrides for what is known of the machine and the file does not say."""
    return [*costs(host), *timers(host)]


def settled(host: Resolved) -> list[str]:
    """Returns overrides for a model: all that is known, beside what the file says of costs."""
    return [*machine(host), *([] if host.gives("host.costs") else jobs(host))]


def _is_ours(host: Resolved) -> bool:
    return TABLE[host.host["policy"]].own_of is None
