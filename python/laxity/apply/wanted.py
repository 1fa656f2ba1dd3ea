"""What a host file wants of a machine, and what Linux cannot do of it. Pure.

Domains are guests of the same name. CPU 0 of the file is CPU 0 of the machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from laxity.apply.agent.settings import (
    RECLAIM,
    RESET_ON_FORK,
    SCHED_DEADLINE,
    SCHED_EXT,
    SCHED_FIFO,
    SCHED_OTHER,
    Scheduling,
    Wanted,
    WantedDomain,
    thread_label,
)
from laxity.errors import InputError
from laxity.policies import PARAMETERS, TABLE
from laxity.resolved import refuse_helpers
from laxity.substrates.kvm.plan import CPUS_MAX as SCHEDULED_CPUS_MAX
from laxity.substrates.kvm.plan import (
    group_settings,
    is_linux,
    pairs,
    refuse_parameters,
    runs_here,
)
from laxity.text import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laxity.apply.agent.settings import Group, Guest, Loaded, Seen, WantedVcpu
    from laxity.resolved_schema import Domain, ResolvedHost

FILES = ("cpu.weight", "cpu.max", "cpu.max.burst")
"""The settings of a group, in the order of `group_settings`."""
MICROSECOND_NS = 1_000
CPUS_MAX = 8192
"""Linux has no more."""


@dataclass(frozen=True)
class Helpers:
    """Where all is that helps guests, and is no part of a host file."""

    cpus: tuple[int, ...] | None = None
    """The CPUs of emulators, iothreads and vhost; None: those that they have."""
    interrupts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Network interfaces, and the CPUs that take their interrupts."""


@dataclass(frozen=True)
class Asked:
    """What is asked of a machine."""

    wanted: Wanted
    missing: tuple[str, ...]
    """The domains that do not run."""
    notes: tuple[str, ...]
    """What the settings do not guarantee."""


def ask(host: ResolvedHost, seen: Seen, helpers: Helpers) -> Asked:
    """Returns what a host wants of a machine that has been seen.

    Raises InputError for what Linux cannot do, and says what would be right.
    """
    _refuse_policy(host["policy"], seen)
    refuse_helpers(
        host,
        "nothing says which threads of a real guest these are",
        ", and --helpers with the CPUs of all helpers",
    )
    _refuse_cpus(host, seen)
    guests = _guests(host, seen)
    for domain in host["domains"]:
        key = f"domain.{domain['name']}"
        _refuse_quota(key, domain, host["policy"])
        refuse_parameters(key, domain["parameters"], host["policy"])
        if domain["name"] in guests:
            refuse_guest(domain, guests[domain["name"]], host["policy"], seen)
    if is_linux(host["policy"], "budget"):
        _refuse_utilization(host, guests, seen)
    _refuse_helpers(helpers, seen, guests.values())
    wanted = Wanted(
        domains={domain["name"]: _domain(domain, host, helpers) for domain in host["domains"]},
        interrupts={nic: list(cpus) for nic, cpus in helpers.interrupts},
        scheduler=_scheduler(host),
    )
    names = [domain["name"] for domain in host["domains"]]
    missing = tuple(name for name in names if name not in guests)
    return Asked(wanted, missing, tuple(_notes(host, guests, seen)))


def scheduling(parameters: Mapping[str, object], policy: str) -> Scheduling:
    """Returns the scheduling of a VCPU's thread under a policy."""
    made = Scheduling(
        policy=SCHED_OTHER,
        flags=0,
        nice=0,
        priority=0,
        runtime_ns=0,
        deadline_ns=0,
        period_ns=0,
    )
    if TABLE[policy].own_of is None:
        made["policy"], made["flags"] = SCHED_EXT, RESET_ON_FORK
    elif TABLE[policy].uses("budget"):
        made["policy"], made["flags"] = SCHED_DEADLINE, RESET_ON_FORK
        if PARAMETERS["reclaim"].of(parameters):
            made["flags"] |= RECLAIM
        made["runtime_ns"] = PARAMETERS["budget"].of(parameters)
        made["deadline_ns"] = made["period_ns"] = PARAMETERS["period"].of(parameters)
    elif TABLE[policy].uses("rt-priority"):
        made["policy"], made["flags"] = SCHED_FIFO, RESET_ON_FORK
        made["priority"] = PARAMETERS["rt-priority"].of(parameters)
    return made


def _domain(domain: Domain, host: ResolvedHost, helpers: Helpers) -> WantedDomain:
    policy = host["policy"]
    vcpus: list[WantedVcpu] = []
    for index, vcpu in enumerate(domain["vcpus"]):
        of_thread = scheduling(domain["parameters"], policy)
        if TABLE[policy].own_of is None:
            of_thread["vcpu"] = f"{domain['name']} {index}"
        vcpus.append({"scheduling": of_thread, "affinity": vcpu["affinity"]})
    group = {}
    if is_linux(policy, "weight"):
        group = dict(zip(FILES, group_settings(domain["parameters"], policy), strict=True))
    return WantedDomain(
        vcpus=vcpus,
        helpers=None if helpers.cpus is None else list(helpers.cpus),
        group=group,
    )


def _scheduler(host: ResolvedHost) -> Loaded | None:
    """Returns the policy of Laxity that is to schedule, as `Wanted` has it."""
    policy = TABLE[host["policy"]]
    if policy.own_of is not None:
        return None
    return {
        "policy": policy.name,
        "cpus": host["cpus"],
        "settings": pairs(policy, host["settings"], of_host=True),
        "domains": {
            domain["name"]: {
                "parameters": pairs(policy, domain["parameters"], of_host=False),
                "cpus": [vcpu["cpu"] for vcpu in domain["vcpus"]],
            }
            for domain in host["domains"]
        },
    }


def _refuse_policy(policy: str, seen: Seen) -> None:
    there = [name for name, each in TABLE.items() if runs_here(each)]
    if policy not in there:
        raise InputError(
            f"`host.policy` is {policy!r}, which does not run on KVM",
            f"add --policy with one of {', '.join(there)}",
        )
    if TABLE[policy].own_of is not None:
        return
    own = ", ".join(name for name in there if TABLE[name].own_of is not None)
    scheduler = seen["scheduler"]
    if not scheduler["possible"]:
        raise InputError(
            f"`host.policy` is {policy!r}, and the machine's kernel has no sched_ext, by which "
            "Laxity's policies schedule",
            f"boot Linux 7.2 or newer with CONFIG_SCHED_CLASS_EXT, or add --policy with one of "
            f"{own}",
        )
    if scheduler["loaded"] is not None and scheduler["given"] is None:
        raise InputError(
            f"the sched_ext scheduler {scheduler['loaded']!r} is loaded on the machine, and the "
            "kernel has one at a time",
            f"stop it, or add --policy with one of {own}",
        )


def _refuse_cpus(host: ResolvedHost, seen: Seen) -> None:
    online, policy = seen["cpus"], host["policy"]
    if not set(range(host["cpus"])) <= set(online):
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and the machine has the CPUs {listed(online)}",
            f"add --set host.cpus={len(online)}, or put more CPUs online",
        )
    if is_linux(policy, "budget") and host["cpus"] != len(online):
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and SCHED_DEADLINE threads run on all CPUs of the "
            f"machine, {listed(online)}",
            f"add --set host.cpus={len(online)}, or --policy fifo, which keeps VCPUs to some CPUs",
        )
    if TABLE[policy].own_of is None and host["cpus"] != len(online):
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and a policy of Laxity schedules all CPUs of the "
            f"machine, {listed(online)}",
            f"add --set host.cpus={len(online)}, with `affinity` for what runs on some of them",
        )
    if TABLE[policy].own_of is None and host["cpus"] > SCHEDULED_CPUS_MAX:
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and a policy of Laxity schedules at most "
            f"{SCHEDULED_CPUS_MAX} CPUs of a KVM host",
            "add --policy fifo, or --policy eevdf",
        )


def _guests(host: ResolvedHost, seen: Seen) -> dict[str, Guest]:
    """Returns the guests of the host's domains that run."""
    names = [domain["name"] for domain in host["domains"]]
    counted = Counter(guest["name"] for guest in seen["guests"])
    for name in names:
        if counted[name] > 1:
            raise InputError(
                f"{counted[name]} guests on the machine are called {name!r}",
                "give each guest a name of its own",
            )
        if not counted[name] and name in seen["strangers"]:
            raise InputError(
                f"guest {name!r} is run by an ordinary user or was started by another name, and a "
                "process can give itself any",
                "start it by libvirt (qemu:///system), by Proxmox, by laxity protect or as root",
            )
        if name in seen["unnamed"]:
            raise InputError(
                f"the threads of guest {name!r} have no names that tell VCPUs",
                f"start QEMU with -name guest={name},debug-threads=on, as libvirt and Proxmox do",
            )
    guests = {guest["name"]: guest for guest in seen["guests"] if guest["name"] in names}
    if not guests:
        running = ", ".join(sorted(counted)) or "none"
        raise InputError(
            f"no domain of the file runs on the machine: {', '.join(names)}",
            f"domains are guests of the same name; the guests there are: {running}",
        )
    return guests


def _refuse_quota(key: str, domain: Domain, policy: str) -> None:
    if not TABLE[policy].uses("quota") and domain["parameters"]["quota_ns"]:
        raise InputError(
            f"`{key}.quota` is given, and cpu.max holds only for ordinary threads, which "
            f"`host.policy` {policy!r} does not make of VCPUs",
            "leave the quota out, or add --policy eevdf, or --policy deadline with a budget",
        )


def refuse_guest(domain: Domain, guest: Guest, policy: str, seen: Seen) -> None:
    """Raises InputError for what a guest on the machine cannot be given of its domain."""
    key = f"domain.{domain['name']}"
    threads = {thread["vcpu"]: thread for thread in guest["threads"] if thread["vcpu"] is not None}
    if sorted(threads) != list(range(len(threads))):
        raise InputError(
            f"guest {guest['name']!r} has the VCPUs {listed(list(threads))}, and those of a domain "
            "are counted from 0 without a gap",
            "plug in the VCPUs that are missing, as `virsh setvcpu` does, or unplug those above",
        )
    if len(threads) != len(domain["vcpus"]):
        raise InputError(
            f"`{key}` has {number(len(domain['vcpus']), 'VCPU')}, and the guest has {len(threads)}",
            f"add --set {key}.vcpus={len(threads)}",
        )
    for index, vcpu in enumerate(domain["vcpus"]):
        thread = threads[index]
        if not set(vcpu["affinity"]) <= set(thread["allowed"]):
            raise InputError(
                f"`{key}.affinity` has the CPUs {listed(vcpu['affinity'])}, and the control group "
                f"of {thread_label(guest['name'], thread)} keeps it to {listed(thread['allowed'])}",
                "widen cpuset.cpus, as `virsh vcpupin` does, or choose among these CPUs",
            )
        if is_linux(policy, "budget") and set(vcpu["affinity"]) != set(seen["cpus"]):
            raise InputError(
                f"`{key}.affinity` has the CPUs {listed(vcpu['affinity'])}, and Linux keeps no "
                "SCHED_DEADLINE thread to some of several CPUs",
                "leave the affinity out, or add --policy fifo",
            )
    if is_linux(policy, "weight"):
        refuse_group(guest, burst_ns=domain["parameters"]["quota_burst_ns"])
    least_us, most_us = seen["deadline_period_us"]
    period_ns = domain["parameters"]["period_ns"]
    within = least_us * MICROSECOND_NS <= period_ns <= most_us * MICROSECOND_NS
    if is_linux(policy, "budget") and not within:
        raise InputError(
            f"`{key}.period` is {period_ns} ns, and this machine's SCHED_DEADLINE takes "
            f"{least_us} us to {most_us} us",
            "choose such a period, or change kernel.sched_deadline_period_min_us and _max_us",
        )


def refuse_group(guest: Guest, *, burst_ns: int) -> Group:
    """Returns the control group of a guest.

    Raises InputError if it has none that is its own, or one that cannot have shares, or no bursts
    where `burst_ns` is not 0.
    """
    name, group = guest["name"], guest["group"]
    if group is None:
        raise InputError(
            f"guest {name!r} is in no control group of its own under cgroup v2",
            "start it by libvirt or Proxmox, or by `systemd-run --scope qemu-system-x86_64 …`, or "
            "choose the policy fifo or deadline, which needs no group",
        )
    if not group["is_own"]:
        raise InputError(
            f"the control group of guest {name!r}, {group['path']}, also has other processes",
            "start it by libvirt or Proxmox, or by `systemd-run --scope qemu-system-x86_64 …`",
        )
    if "cpu.weight" not in group["files"]:
        unit = group["path"].rpartition("/")[2]
        raise InputError(
            f"the CPU controller is off in the control group of guest {name!r}, {group['path']}",
            f"run `systemctl set-property --runtime '{unit}' CPUWeight=100` on the machine",
        )
    if burst_ns and "cpu.max.burst" not in group["files"]:
        raise InputError(
            f"guest {name!r} has a quota-burst, and the machine's kernel has no cpu.max.burst",
            "leave it out, or boot Linux 5.14 or newer",
        )
    return group


def _refuse_utilization(host: ResolvedHost, guests: Mapping[str, Guest], seen: Seen) -> None:
    if seen["rt_runtime_us"] < 0:
        return
    ours = {thread["tid"] for guest in guests.values() for thread in guest["threads"]}
    others = sum(Fraction(ns, every) for tid, ns, every in seen["deadlines"] if tid not in ours)
    asked = sum(
        Fraction(domain["parameters"]["budget_ns"], domain["parameters"]["period_ns"])
        * len(domain["vcpus"])
        for domain in host["domains"]
    )
    most = Fraction(seen["rt_runtime_us"], seen["rt_period_us"]) * len(seen["cpus"])
    if asked + others > most:
        beside = f", beside {float(others):.3f} of other threads" if others else ""
        raise InputError(
            f"budgets take {float(asked):.3f} CPUs{beside}, and Linux admits "
            f"{float(most):.3f} to SCHED_DEADLINE on this machine",
            "make budgets smaller, or run `sysctl kernel.sched_rt_runtime_us=-1` there, which "
            "leaves other tasks no reserve",
        )


def _refuse_helpers(helpers: Helpers, seen: Seen, guests: Any) -> None:  # noqa: ANN401 - a view
    online = set(seen["cpus"])
    for option, cpus in (
        ("--helpers", helpers.cpus or ()),
        *(("--interrupts", cpus) for _, cpus in helpers.interrupts),
    ):
        if not set(cpus) <= online:
            raise InputError(
                f"{option} has the CPUs {listed(cpus)}, and the machine has {listed(seen['cpus'])}",
                "choose among these CPUs",
            )
    for guest in guests if helpers.cpus is not None else ():
        for thread in guest["threads"]:
            if thread["vcpu"] is None and not set(helpers.cpus or ()) <= set(thread["allowed"]):
                raise InputError(
                    f"--helpers has the CPUs {listed(helpers.cpus or ())}, and the control group "
                    f"of {thread_label(guest['name'], thread)} keeps it to "
                    f"{listed(thread['allowed'])}",
                    "widen cpuset.cpus, as `virsh emulatorpin` does, or choose among these CPUs",
                )
    for nic, _ in helpers.interrupts:
        found = seen["interrupts"].get(nic)
        if found is None:
            raise InputError(f"the machine has no network interface {nic!r}", "see `ip link`")
        if not found:
            raise InputError(
                f"the network interface {nic!r} has no interrupts of its own",
                "name the interface of a card, not a bridge, a tap or a virtual device",
            )


def _notes(host: ResolvedHost, guests: Mapping[str, Guest], seen: Seen) -> list[str]:
    policy, settings = TABLE[host["policy"]], host["settings"]
    notes = []
    if policy.own_of is None:
        notes.append(
            "tasks of Linux's other classes come before the VCPUs of a policy of Laxity: keep what "
            "else runs off their CPUs"
        )
    if policy.uses("rt-priority") and seen["rt_runtime_us"] >= 0:
        notes.append(
            "Linux keeps a reserve for other tasks on a CPU whose SCHED_FIFO VCPUs do not pause: "
            f"what kernel.sched_rt_runtime_us, {seen['rt_runtime_us']}, leaves of each "
            f"{seen['rt_period_us']} us, and from Linux 6.12 on its fair server"
        )
    if is_linux(policy.name, "budget") and not settings["jiffy_ns"]:
        notes.append(
            "`host.jiffy` is 0: budgets end exactly only with HRTICK_DL in "
            "/sys/kernel/debug/sched/features, which stays as it is"
        )
    if policy.uses("base-slice") and settings["base_slice_ns"]:
        notes.append(
            "`host.base-slice` is the whole machine's, /sys/kernel/debug/sched/base_slice_ns, "
            "which stays as it is"
        )
    groups = [guest["group"]["path"] for guest in guests.values() if guest["group"]]
    parents = {path.rpartition("/")[0] for path in groups}
    if is_linux(policy.name, "weight") and len(parents) > 1:
        notes.append(
            "weights count among guests of one parent group, and these have several: "
            + ", ".join(sorted(parent or "/" for parent in parents))
        )
    return notes


def listed(cpus: Sequence[int]) -> str:
    """Returns CPUs as Linux writes them, such as `0-3,8`."""
    parts: list[str] = []
    ordered = sorted(cpus)
    while ordered:
        first = last = ordered.pop(0)
        while ordered and ordered[0] == last + 1:
            last = ordered.pop(0)
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def cpus_of(text: str, option: str) -> tuple[int, ...]:
    """Returns the CPUs of a list such as `0-3,8`; raises InputError, which names the option."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise InputError(f"{option}: {text!r} is no list of CPUs", f"write {option} 0-1,4")
        # More digits than any CPU has would take long to read as a number, or be refused by Python.
        is_long = max(len(first), len(last)) > len(str(CPUS_MAX))
        if is_long or int(last or first) >= CPUS_MAX or int(last or first) < int(first):
            raise InputError(
                f"{option}: {part!r} is no range of CPUs", f"CPUs are 0 to {CPUS_MAX - 1}"
            )
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))
