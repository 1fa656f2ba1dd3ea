"""From a host file to a plan: what a Linux host with KVM does, as a shell script.

Pure: a plan is text, and what Linux cannot do with a host file is refused here, before it boots.
`plan.sh` is plain POSIX shell, which calls the functions of `kvm/lab/lib.sh`:

    real_time
    scheduler hrtick|jiffies BASE_SLICE_NS
    sched_ext POLICY CPUS KEY=VALUE... one of Laxity's policies, with its settings
    parameters NAME KEY=VALUE...       those of a domain under it
    begin NAME CPU...                  where each VCPU of a domain begins under it
    domain NAME VCPUS CPU.WEIGHT CPU.MAX CPU.MAX.BURST
    order NAME tasks|cpu_bound|tells|thread ...    what laxity-vmm takes
    profile FUNCTION...
    window RUN DURATION_NS LEAD_NS MIB POLICY_MIB

A domain is a control group, and a process with a thread for each VCPU. Names are those of the host
file.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.policies import PARAMETERS, TABLE, default_of
from laxity.resolved import refuse_helpers
from laxity.substrates.kvm import known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from laxity.lab.modes import Mode
    from laxity.policies import Policy
    from laxity.resolved_schema import Domain, ResolvedHost

SCRIPT = "plan.sh"
RUN = "run"
"""The name of the run, and of the directory of its results."""

OWNER = "linux"
"""The owner, in policy/policies.def, of the schedulers that the host runs."""

TASKS_MAX = 97
"""In one domain: FLAT_TASKS_MAX of kvm/programs/flat.h."""
JOBS_MAX = 1_000_000
"""The most jobs of one task in a run."""
VCPUS_MAX = 64
"""In one domain: VCPUS_MAX of kvm/programs/laxity-vmm.c."""
DURATION_NS_MAX = 3_600_000_000_000
"""An hour."""
CPUS_MAX = 64
"""Under a policy of Laxity: SCX_CPUS_MAX of kvm/bpf/shared.h."""
CPU_WEIGHT_MAX = 10_000
"""The greatest cpu.weight of a control group."""
QUOTA_PERIOD_NS = range(1_000_000, 1_000_000_001)
"""The periods that cpu.max takes."""
QUOTA_NS_MIN = 1_000_000
"""The least quota that cpu.max takes."""
MICROSECOND_NS = 1_000
DEADLINE_NS = range(1024, 1 << 63)
"""The budgets that SCHED_DEADLINE takes."""
DEADLINE_PERIOD_NS = range(100_000, 4_194_304_001)
"""The periods that SCHED_DEADLINE takes, as /proc/sys/kernel/sched_deadline_period_* have them."""
JIFFY_NS = 4_000_000
"""The tick of Debian's kernels, CONFIG_HZ=250."""

LEAD_NS = 200_000_000
"""From the giving of orders to the start of a run, at least."""
LEAD_NS_A_VCPU = 20_000_000
WORK_NS = 10_000_000
"""What a VCPU's thread works before it waits for the start."""

MEMORY_MIB = 256
MEMORY_MIB_A_DOMAIN = 72
PROFILE_MIB = 256
"""The buffer of a profile, its text, and its archive."""
TRACED_MIB_PER_S = 4.0
"""The size of the kernel's trace buffers: many times what a busy second takes."""
POLICY_MIB_PER_S = 0.5
"""The same for what a policy of Laxity does, for each CPU: 20,000 events."""
POLICY_MIB_MAX = 2000
"""TRACE_MIB_MAX of kvm/programs/laxity-scx.c. A run that needs more says how much it lost."""

BOOT_S = 12.0
"""Wall time from power-on until the host is up, and back."""
SPEED = 1.2
"""Emulated seconds a second."""


@dataclass(frozen=True)
class Plan:
    """What one boot does. Make it with `Plan.of`, which refuses what Linux cannot do."""

    host: ResolvedHost
    mode: Mode
    profiled: tuple[str, ...] = ()
    """Functions of the kernel whose calls are timed, which disturbs the run; see `profile`."""
    exits: bool = False
    """Whether it is recorded when guests are entered and left, and why."""

    @classmethod
    def of(
        cls,
        host: ResolvedHost,
        *,
        mode: Mode = "repeatable",
        profiled: Sequence[str] = (),
        exits: bool = False,
    ) -> Plan:
        """Raises InputError, naming the key and what would be right, for what cannot run."""
        _refuse_host(host, mode)
        for domain in host["domains"]:
            _refuse_domain(domain, host)
        return cls(host, mode, tuple(profiled), exits)

    @property
    def policy(self) -> Policy | None:
        """The policy of Laxity that schedules; None: one of Linux's own schedulers does."""
        policy = TABLE[self.host["policy"]]
        return policy if policy.own_of is None else None

    @property
    def traced_mib(self) -> int:
        """How large the kernel's trace buffers are, for each CPU."""
        return 8 + int(TRACED_MIB_PER_S * self.host["duration_ns"] / 1e9)

    @property
    def policy_mib(self) -> int:
        """How large the memory for the events of a policy of Laxity is; 0 if none schedules."""
        if self.policy is None:
            return 0
        of_run = POLICY_MIB_PER_S * self.host["cpus"] * self.host["duration_ns"] / 1e9
        return min(8 + int(of_run), POLICY_MIB_MAX)

    @property
    def memory_mib(self) -> int:
        """How much memory the host needs: traces, copies, as much to spare, and the guests."""
        traces = 3 * (self.traced_mib * int(self.host["cpus"]) + self.policy_mib)
        guests = MEMORY_MIB_A_DOMAIN * len(self.host["domains"])
        return MEMORY_MIB + traces + guests + (PROFILE_MIB if self.profiled else 0)

    @property
    def lead_ns(self) -> int:
        """From the giving of orders to the start of the run.

        A thread with a small budget takes as many periods as its work has budgets.
        """
        vcpus = sum(len(domain["vcpus"]) for domain in self.host["domains"])
        ready_ns = [_ready_ns(domain, self.host["policy"]) for domain in self.host["domains"]]
        return int(LEAD_NS + LEAD_NS_A_VCPU * vcpus + max(ready_ns, default=0))

    @property
    def run_s(self) -> float:
        """A guess at the wall time that the run takes in the emulated machine."""
        return float(self.lead_ns + self.host["duration_ns"]) / 1e9 / SPEED

    def script(self) -> str:
        """The text of `plan.sh`."""
        host, settings = self.host, self.host["settings"]
        lines = [
            "# Made from a host file by laxity; kvm/lab/lib.sh has the functions.",
            "real_time",
        ]
        tick = "jiffies" if settings["jiffy_ns"] else "hrtick"
        lines.append(f"scheduler {tick} {settings['base_slice_ns']}")
        policy = TABLE[host["policy"]]
        if policy.own_of is None:
            given = pairs(policy, settings, of_host=True)
            lines.append(f"sched_ext {policy.name} {host['cpus']} {given}")
        for domain in host["domains"]:
            name = domain["name"]
            group = group_settings(domain["parameters"], host["policy"])
            lines.append(f"domain {shlex.join([name, str(len(domain['vcpus'])), *group])}")
            if policy.own_of is None:
                given = pairs(policy, domain["parameters"], of_host=False)
                lines.append(f"parameters {name} {given}")
                begins = " ".join(str(vcpu["cpu"]) for vcpu in domain["vcpus"])
                lines.append(f"begin {name} {begins}")
            lines.append(f"order {shlex.join([name, 'tasks', _tasks(domain)])}")
            lines.append(f"order {name} cpu_bound {int(domain['cpu_bound'])}")
            if policy.listens:
                lines.append(f"order {name} tells 1")
            lines += [
                f"order {name} thread {number} {','.join(map(str, vcpu['affinity']))} "
                f"{_scheduling(domain, host['policy'])}"
                for number, vcpu in enumerate(domain["vcpus"])
            ]
        if self.profiled:
            lines.append(f"profile {shlex.join(self.profiled)}")
        if self.exits:
            lines.append("exits")
        if behind_ns := known.BEHIND_NS.get(policy.name):
            lines.append(f"behind {behind_ns}")
        sizes = f"{self.traced_mib} {self.policy_mib}"
        lines.append(f"window {RUN} {host['duration_ns']} {self.lead_ns} {sizes}")
        return "\n".join(lines) + "\n"

    def write(self, directory: Path) -> None:
        """Writes it into a directory, which is made if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / SCRIPT).write_text(self.script(), "utf-8")


def write_all(plans: Mapping[str, Plan], directory: Path) -> None:
    """Writes plans that are carried out one after the other, into a directory that is there.

    Each leaves a directory of results that has its name. One plan is a plan by itself.
    """
    if list(plans) == [RUN]:
        plans[RUN].write(directory)
        return
    lines = []
    for name, plan in plans.items():
        (directory / f"{name}.sh").write_text(plan.script(), "utf-8")
        # A shell of its own forgets the domains of the plan before.
        lines.append(f'(. "$PLAN/{name}.sh") || exit 1')
        lines.append(f'mv "$RESULTS/{RUN}" "$RESULTS/{name}"')
    (directory / SCRIPT).write_text("\n".join(lines) + "\n", "utf-8")


def is_linux(policy: str, parameter: str) -> bool:
    """Whether it is one of Linux's own schedulers, which goes by that parameter."""
    return TABLE[policy].own_of == OWNER and TABLE[policy].uses(parameter)


def pairs(policy: Policy, values: Mapping[str, object], *, of_host: bool) -> str:
    """Settings of the host, or parameters of a domain, as laxity-scx takes them."""
    used = [PARAMETERS[name] for name in policy.parameters]
    return " ".join(
        f"{each.name}={int(each.of(values))}" for each in used if each.is_setting == of_host
    )


def group_settings(given: Mapping[str, object], policy: str) -> list[str]:
    """The cpu.weight, cpu.max and cpu.max.burst of a control group, from a domain's parameters."""
    if not is_linux(policy, "weight"):
        return ["100", "max", "0"]
    quota_us, period_us, burst_us = (
        PARAMETERS[name].of(given) // MICROSECOND_NS
        for name in ("quota", "quota-period", "quota-burst")
    )
    most = f"{quota_us or 'max'} {period_us}"
    return [str(PARAMETERS["weight"].of(given)), most, str(burst_us)]


def _scheduling(domain: Domain, policy: str) -> str:
    """The scheduling of each thread of a domain's VCPUs."""
    given = domain["parameters"]
    if TABLE[policy].own_of is None:
        return "ext"
    if TABLE[policy].uses("budget"):
        period_ns = given["period_ns"]
        reclaim = int(given["reclaim"])
        return f"deadline {given['budget_ns']} {period_ns} {period_ns} {reclaim}"
    if TABLE[policy].uses("rt-priority"):
        return f"fifo {given['rt_priority']}"
    return "other 0"


def _ready_ns(domain: Domain, policy: str) -> int:
    given = domain["parameters"]
    if TABLE[policy].uses("budget"):
        return int(math.ceil(WORK_NS / given["budget_ns"]) * given["period_ns"])
    if TABLE[policy].uses("quota") and given["quota_ns"]:
        return int(math.ceil(WORK_NS / given["quota_ns"]) * given["quota_period_ns"])
    return WORK_NS


def _tasks(domain: Domain) -> str:
    return ";".join(
        f"{task['cost_ns']},{task['period_ns']},{task['deadline_ns']},{task['offset_ns']},"
        f"{task['vcpu']}"
        for task in domain["tasks"]
    )


def runs_here(policy: Policy) -> bool:
    """Whether it schedules VCPUs on a KVM host: Linux's own, or one of Laxity's."""
    return policy.own_of == OWNER or "kvm" in policy.substrates


def _refuse_host(host: ResolvedHost, mode: Mode) -> None:
    policy = TABLE[host["policy"]]
    there = [name for name, each in TABLE.items() if runs_here(each)]
    if not runs_here(policy):
        raise InputError(
            f"`host.policy` is {policy.name!r}, which does not run on KVM",
            f"add --policy with one of {', '.join(there)}, or run it in the simulator",
        )
    if policy.own_of is None and host["cpus"] > CPUS_MAX:
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and Laxity's policies schedule at most {CPUS_MAX} "
            "CPUs of a KVM host",
            f"add --set host.cpus={CPUS_MAX}",
        )
    if mode == "repeatable" and host["cpus"] > 1:
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and a repeatable run on KVM has one CPU",
            "add --mode live, or --set host.cpus=1",
        )
    if is_linux(policy.name, "budget") and host["cpus"] > 1:
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and Linux pins no SCHED_DEADLINE thread to some of "
            "several CPUs",
            "add --set host.cpus=1",
        )
    refuse_helpers(
        host,
        "a guest on KVM has one thread for each VCPU, and no others that work",
        ", or run it in the simulator",
    )
    if host["duration_ns"] > DURATION_NS_MAX:
        raise InputError(
            "`duration` is longer than the hour that a run on KVM may take",
            'add --duration "60 s", say',
        )
    if host["calls"] is not None:
        raise InputError(
            "the host has [calls], and guests on KVM have tasks and endless loops",
            "add --on xen or --on linux",
        )
    if policy.uses("jiffy") and host["settings"]["jiffy_ns"] not in (0, JIFFY_NS):
        raise InputError(
            f"`host.jiffy` is {host['settings']['jiffy_ns']} ns, and Debian's kernels tick every "
            "4 ms",
            "add --set 'host.jiffy=4 ms', or --set 'host.jiffy=0 ms' for the timer that is exact",
        )


def _refuse_domain(domain: Domain, host: ResolvedHost) -> None:
    key = f"domain.{domain['name']}"
    if domain["workload"] is not None:
        raise InputError(
            f"`{key}.workload` is {domain['workload']['kind']!r}, and guests on KVM have tasks and "
            "endless loops",
            "run it in the simulator",
        )
    if domain["guest"] != "rate-monotonic":
        raise InputError(
            f"`{key}.scheduler` is {domain['guest']!r}, and the guests on KVM are rate-monotonic",
            f"add --set {key}.scheduler=rate-monotonic, or run it in the simulator",
        )
    for task in domain["tasks"]:
        if task["jitter_ns"]:
            raise InputError(
                f"`{key}.tasks.{task['name']}.jitter` is not 0, and tasks on KVM are released when "
                "they arrive",
                f"add --set '{key}.tasks.{task['name']}.jitter=0 ns', or run it in the simulator",
            )
        if host["duration_ns"] // task["period_ns"] > JOBS_MAX:
            raise InputError(
                f"`{key}.tasks.{task['name']}` has more than {JOBS_MAX:,} jobs in a run, and a "
                "guest on KVM remembers no more",
                "make `duration` shorter",
            )
    counts = (
        ("tasks", len(domain["tasks"]), TASKS_MAX),
        ("vcpus", len(domain["vcpus"]), VCPUS_MAX),
    )
    for what, count, most in counts:
        if count > most:
            raise InputError(
                f"`{key}` has {count} {what}, and a guest on KVM at most {most}",
                "give some to another domain",
            )
    refuse_parameters(key, domain["parameters"], host["policy"])


def refuse_parameters(key: str, given: Mapping[str, object], policy: str) -> None:
    """Raises InputError for parameters of a domain that Linux does not take under the policy."""

    def uses(parameter: str) -> bool:
        return is_linux(policy, parameter)

    def value(parameter: str) -> int:
        return PARAMETERS[parameter].of(given)

    if uses("weight") and value("weight") > CPU_WEIGHT_MAX:
        raise InputError(
            f"`{key}.weight` is {value('weight')}, and cpu.weight is at most {CPU_WEIGHT_MAX}",
            f"add --set {key}.weight={default_of('weight')}, and make the others smaller in "
            "proportion",
        )
    if uses("quota") and value("quota"):
        _refuse_unless_whole(key, given, ("quota", "quota-period", "quota-burst"))
        quota_ns, period_ns = value("quota"), value("quota-period")
        if quota_ns < QUOTA_NS_MIN or period_ns not in QUOTA_PERIOD_NS:
            raise InputError(
                f"`{key}.quota` is {quota_ns} ns in {period_ns} ns, and cpu.max "
                "takes 1 ms at least, in periods of 1 ms to 1 s",
                f"add --set '{key}.quota=20 ms' --set '{key}.quota-period=100 ms', say",
            )
    if uses("budget"):
        budget_ns, period_ns = value("budget"), value("period")
        if budget_ns not in DEADLINE_NS or period_ns not in DEADLINE_PERIOD_NS:
            raise InputError(
                f"`{key}` has a budget of {budget_ns} ns in {period_ns} ns, and SCHED_DEADLINE "
                "takes budgets of 1024 ns at least, and periods of 100 us to 4.19 s",
                f"add --set '{key}.budget=2 ms' --set '{key}.period=10 ms', say",
            )


def _refuse_unless_whole(key: str, given: Mapping[str, object], names: tuple[str, ...]) -> None:
    for name in names:
        ns = PARAMETERS[name].of(given)
        if ns % MICROSECOND_NS:
            raise InputError(
                f"`{key}.{name}` is {ns} ns, and cpu.max takes whole microseconds",
                f"add --set '{key}.{name}={ns // MICROSECOND_NS} us'",
            )
