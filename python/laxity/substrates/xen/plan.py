"""From host files to a plan: what dom0 does, as a shell script, and the domains that it creates.

Pure: a plan is text, and what Xen cannot do with a host file is refused here, before it boots.

A plan is for one boot, or one visit to a real host. It is a list of windows; each runs a host for
the host's duration, and all of them have the same domains. `plan.sh` is plain POSIX shell, which
calls the functions of `xen/lab/lib.sh`:

    policy deferrable                    Laxity only
    settings quantum=0 time-slice=...    in ns; Laxity, and the time slice of stock credit
    parameters Domain-0 budget=...       Laxity only: dom0 takes what no guest wants
    create laxity-dom1                   from laxity-dom1.cfg, paused
    start_all                            guests boot with the parameters that Xen gives them
    parameters laxity-dom1 budget=... period=... priority=... extratime=... weight=... cap=...
    tasks laxity-dom1 RUN "cost,period,deadline,offset,vcpu;..." 0|1 0|1
    window RUN DURATION_NS EVENTS LEAD_S [still]

and those of `packets` for hosts with calls, whose driver domain is dom0.

Parameters come after the guests are up, so that a small budget does not slow their boot; a later
window sets them again. Under rtds they come before it, too, with extra time. Keys that the host
gives no value for (a budget under credit) are left out. Kernel and root of the guests are `kernel`
and `guest.cpio` in the directory of the lab's programs.

Domains are named `laxity-NAME`, so that they do not meet those of a real host. A domain's VCPUs are
pinned to the CPUs that the policy may use: under credit, which moves VCPUs, those of `affinity`;
else the one CPU that the simulator would keep them on.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laxity.errors import InputError
from laxity.lab import pv_guest
from laxity.lab.files import (
    GUEST_ROOT,
    MEMORY_MIB,
    MEMORY_PER_VCPU_MIB,
    NETWORK_ROOT,
    SCRIPT,
)
from laxity.policies import BY_WEIGHT, OWN_PARAMETERS, TABLE, can_switch, default_of
from laxity.substrates.xen import packets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from laxity.lab.modes import Mode
    from laxity.resolved_schema import Domain, ResolvedHost

STOCK = ("credit", "credit2", "rtds", "null")
"""Xen's own schedulers, which experiments may run in place of a host's policy."""


def stock_for(policy: str, scheduler: str | None) -> str | None:
    """The scheduler of Xen's own that runs a host: what is asked for, or what its policy models."""
    is_own = TABLE[policy].own_of == "xen"
    return policy if scheduler is None and is_own else scheduler


PREFIX = "laxity-"
"""The names of our domains begin with it."""

DOM0 = "Domain-0"

EVENTS = 0x0002F000
"""Xen's TRC_SCHED: run states, switches, wakes, blocks and what a scheduler itself says."""


MACHINE_MEMORY_MIB = 1400
"""For guests, on the emulated machine."""

NAME_LENGTH_MAX = 64
TASKS_MAX = 97
"""In one domain: a thread each, and `TASKS_MAX` of guest/request.h."""
JOBS_MAX = 200_000
"""The most jobs of a domain in one window: the guest keeps them all until the end."""
DURATION_NS_MAX = 3_600_000_000_000
"""An hour."""

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
TIME_SLICE_MS_MAX = 1_000
"""The longest time slice of stock credit."""
RTDS_NS_MIN = 10 * MICROSECOND_NS
"""The shortest budget and period of stock rtds."""

DOM0_PARAMETERS = {
    "budget": 10 * MICROSECOND_NS,
    "period": 1000 * MILLISECOND_NS,
    "priority": 1,
    "extratime": 1,
    "weight": 1,
    "cap": default_of("cap"),
}
"""dom0 lives on extra time, and idles during a window. The budget is a trifle and comes first, so
that it is soon used up: a VCPU that waits with budget gets no extra time, and under the periodic
server with budgets of 100 % dom0 would wait for ever. Its weight is the least: it wakes now and
then, and the share of a domain that does so is nobody else's."""

LEAD_S = 2
"""From the giving of a run to its start, at least: for what dom0 does."""
THREADS_A_SECOND = 20
"""How many threads of all guests start in a second, on one CPU."""
STREAMS_A_SECOND = 40
"""How many streams of calls are set up in a second."""
WAITS, WAITS_A_THREAD = 12, 4
"""How often a guest waits before it is ready: for xenstore, for another of its VCPUs."""
WORK_A_THREAD_NS = 10_000_000
"""What a guest works before it is ready, for each thread and once more."""

BOOT_S = 25.0
"""Wall time from power-on until dom0 is up, and back, on the emulated machine."""
GUEST_BOOT_S = 6.0
VCPU_BOOT_S = 1.0
"""For each further VCPU of a guest: a quarter where guests boot one after the other, by priority;
under schedulers that are fair to all, those that boot wait for one another."""
TRACED_MIB_PER_S = 4.0
"""Without packets: twice what a busy second of trace takes, and again while it is packed."""
RECORDS = 300_000
"""Xen's trace buffers have room for so many without `pages` (xen/programs/laxity-trace.c)."""
RECORDS_A_SECOND = 5_000
"""Room for a second of a host with few VCPUs."""
POLICY_RECORDS_A_VCPU = 600
"""Room for a second of each VCPU with what the policy does: half of it is too little for 200 VCPUs
under deferrable (`laxity reproduce rt-xen table-1-many --on xen`)."""
RECORD_BYTES = 40
"""The size of the largest record."""
SPEED = 1.2
"""Emulated seconds a second."""


@dataclass(frozen=True)
class Window:
    """A run of a host within a boot."""

    run: str
    """Unique in the plan: letters, digits, `-` and `_`. Results are kept under it."""
    host: ResolvedHost
    """Resolved: what `Host.resolved` returns."""
    events: int = EVENTS
    """The events that Xen traces, as in its trace.h."""


@dataclass(frozen=True)
class Plan:
    """What one boot does. Make it with `Plan.of`, which refuses what Xen cannot do."""

    windows: tuple[Window, ...]
    mode: Mode
    scheduler: str | None
    """One of STOCK; None for Laxity's, with the policy of the hosts."""

    @classmethod
    def of(
        cls, windows: Sequence[Window], *, mode: Mode = "repeatable", scheduler: str | None = None
    ) -> Plan:
        """Raises InputError, naming the key and what would be right, for what Xen cannot run."""
        if scheduler is not None and scheduler not in STOCK:
            raise InputError(
                f"Xen has no scheduler {scheduler!r}", f"its own are {', '.join(STOCK)}"
            )
        policy = windows[0].host["policy"]
        scheduler = stock_for(policy, scheduler)
        if scheduler not in (None, *STOCK):
            raise InputError(
                f"`host.policy` is {policy!r}, and the lab's Xen has no table of windows for it",
                f"choose one of Xen's {', '.join(STOCK)}, or run it in the simulator",
            )
        if scheduler is None and "xen" not in TABLE[policy].substrates:
            raise InputError(
                f"`host.policy` is {policy!r}, which does not run on Xen",
                "choose another policy, or run it in the simulator",
            )
        plan = cls(tuple(windows), mode, scheduler)
        for window in windows:
            _refuse_host(window.host, mode, scheduler)
        _refuse_windows(plan)
        return plan

    @property
    def cpus(self) -> int:
        """Physical CPUs that the hosts need."""
        return max(int(window.host["cpus"]) for window in self.windows)

    @property
    def domains(self) -> list[str]:
        """The names that our domains have on Xen, in the order of the host file."""
        return [PREFIX + domain["name"] for domain in packets.guests(self.windows[0].host)]

    @property
    def has_packets(self) -> bool:
        """Whether dom0 and a guest have a network."""
        return self.windows[0].host["calls"] is not None

    @property
    def hypervisor_arguments(self) -> tuple[str, ...]:
        """For Xen's command line: who schedules."""
        driver = packets.driver(self.windows[0].host)
        dom0 = () if driver is None else (f"dom0_max_vcpus={len(driver['vcpus'])}",)
        if self.scheduler is not None:
            return (f"sched={self.scheduler}", *dom0)
        return ("sched=laxity", f"laxity={self.policy}", *dom0)

    @property
    def policy(self) -> str:
        """The policy of the first window."""
        policy: str = self.windows[0].host["policy"]
        return policy

    @property
    def estimate_s(self) -> float:
        """A guess at the wall time that the emulated machine takes."""
        vcpus = sum(len(domain["vcpus"]) - 1 for domain in packets.guests(self.windows[0].host))
        guests_s = GUEST_BOOT_S * len(self.domains) + VCPU_BOOT_S * vcpus
        return BOOT_S + guests_s + self.traced_s / SPEED

    @property
    def traced_s(self) -> float:
        """How long all windows last."""
        return float(sum(window.host["duration_ns"] for window in self.windows) / 1e9)

    @property
    def traced_mib(self) -> float:
        """How much Xen's traces of all windows may be, at most."""
        of_packets = sum(packets.traced_bytes(window.host) for window in self.windows) / 2**20
        return TRACED_MIB_PER_S * self.traced_s + of_packets

    def files(self, home: str) -> dict[str, str]:
        """The plan's files by name; `home` is where the programs are on the machine."""
        files = {SCRIPT: self._script()}
        for domain in packets.guests(self.windows[0].host):
            name = PREFIX + domain["name"]
            files[f"{name}.cfg"] = _configuration(name, domain, self.windows[0].host, home, self)
        return files

    def write(self, directory: Path, home: str) -> None:
        """Writes them into a directory, which is made if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in self.files(home).items():
            (directory / name).write_text(text, "utf-8")

    def _script(self) -> str:
        host = self.windows[0].host
        lines = ["# Made from a host file by laxity; xen/lab/lib.sh has the functions."]
        if self.scheduler is None:
            lines.append(f"policy {self.policy}")
            lines.append(_settings(host))
            lines.append(_parameters(DOM0, DOM0_PARAMETERS))
        elif self.scheduler == "credit":
            lines.append(f"settings time-slice={host['settings']['time_slice_ns']}")
        if self.has_packets:
            lines += packets.before_boot()
        lines += [f"create {name}" for name in self.domains]
        if (driver := packets.driver(host)) is not None:
            lines.append(shlex.join(["pin", DOM0, *_masks(driver, host, self)]))
        if (server := packets.media_server(host)) is not None:
            lines += packets.before_start(PREFIX + server["name"], host)
        if self.scheduler == "rtds":
            # A new VCPU has 4 ms in 10 ms. Guests with many want more than there is while they
            # boot, and then some VCPUs get nothing for as long as the others spin.
            lines += [
                _parameters(
                    PREFIX + domain["name"], _of_domain(domain, host["policy"]) | {"extratime": 1}
                )
                for domain in packets.guests(host)
            ]
        lines.append("start_all")
        if not self.has_packets and (records := max(map(_records, self.windows))) > RECORDS:
            lines.append(f"pages {math.ceil(records * RECORD_BYTES / packets.PAGE_BYTES)}")
        for index, window in enumerate(self.windows):
            lines += ["", *self._window(window, is_first=index == 0)]
        return "\n".join(lines) + "\n"

    def _window(self, window: Window, *, is_first: bool) -> list[str]:
        host, lines = window.host, []
        if self.scheduler is None and not is_first:
            lines += [f"policy {host['policy']}", _settings(host)]
        driver = packets.driver(host)
        if self.scheduler != "null":
            lines += [
                _parameters(
                    DOM0 if domain is driver else PREFIX + domain["name"],
                    _of_domain(domain, host["policy"]),
                )
                for domain in host["domains"]
            ]
        for domain in packets.guests(host):
            words = [PREFIX + domain["name"], window.run, _tasks(domain)]
            flags = domain["cpu_bound"], TABLE[host["policy"]].listens
            lines.append(f"tasks {shlex.join(words)} {' '.join(str(int(flag)) for flag in flags)}")
        if host["calls"] is not None:
            lines += packets.before_window(host)
        lead_s = _lead_s(host)
        # dom0 of a real host has more to do than to wait, and with packets that of the lab, too.
        still = " still" if self.mode == "repeatable" and not self.has_packets else ""
        lines.append(
            f"window {window.run} {host['duration_ns']} {window.events:#x} {lead_s}{still}"
        )
        return lines


def _records(window: Window) -> float:
    """Room for a window that is traced with what its policy does; 0: it is traced without that."""
    if window.events == EVENTS:
        return 0
    vcpus = sum(len(domain["vcpus"]) for domain in window.host["domains"])
    a_second = max(RECORDS_A_SECOND, POLICY_RECORDS_A_VCPU * vcpus)
    return a_second * float(window.host["duration_ns"]) / 1e9


def _lead_s(host: ResolvedHost) -> int:
    """From the giving of a run to its start: until dom0 has given it, and all guests are ready.

    A guest with a small budget takes long: it waits for its next period whenever the budget is used
    up and, under a polling server, whenever it has waited for something else.
    """
    domains = packets.guests(host)
    threads = {domain["name"]: _threads(domain) for domain in domains}
    streams = 0 if host["calls"] is None else host["calls"]["streams"]
    dom0_s = LEAD_S + sum(threads.values()) / THREADS_A_SECOND + streams / STREAMS_A_SECOND
    guests_s = [_ready_ns(domain, threads[domain["name"]]) / 1e9 for domain in domains]
    return math.ceil(dom0_s + max(guests_s, default=0))


def _threads(domain: Domain) -> int:
    return len(domain["tasks"]) + (len(domain["vcpus"]) if domain["cpu_bound"] else 0)


def _ready_ns(domain: Domain, threads: int) -> float:
    """How long a guest takes at most on what it is given of a CPU that nobody else uses."""
    given = domain["parameters"]
    work_ns = WORK_A_THREAD_NS * (1 + threads)
    if given["budget_ns"] > 0:
        waits = WAITS + WAITS_A_THREAD * threads + math.ceil(work_ns / given["budget_ns"])
        return float(waits * given["period_ns"])
    return float(work_ns * 100 / (given["cap_percent"] or 100))


def _settings(host: ResolvedHost) -> str:
    return "settings " + " ".join(
        f"{key}={parameter.of(host['settings'])}"
        for key, parameter in OWN_PARAMETERS.items()
        if parameter.is_setting
    )


def _of_domain(domain: Domain, policy: str) -> dict[str, int]:
    given = domain["parameters"]
    has_budget = given["budget_ns"] > 0

    def is_given(name: str) -> bool:
        if TABLE[policy].own_of is not None:
            return TABLE[policy].uses(name)
        # Weight and cap go by themselves: Xen's own schedulers take them, too.
        if name in _WITH_WEIGHT:
            return True
        return has_budget if name in _WITH_BUDGET else TABLE[policy].uses(name)

    return {
        name: int(parameter.of(given))
        for name, parameter in OWN_PARAMETERS.items()
        if not parameter.is_setting and is_given(name)
    }


_WITH_BUDGET = TABLE["deferrable"].parameters
_WITH_WEIGHT = TABLE["credit"].parameters


def _parameters(name: str, parameters: Mapping[str, int]) -> str:
    pairs = (f"{key}={value}" for key, value in parameters.items())
    return f"parameters {name} {' '.join(pairs)}"


def _tasks(domain: Domain) -> str:
    return ";".join(
        f"{task['cost_ns']},{task['period_ns']},{task['deadline_ns']},{task['offset_ns']},"
        f"{task['vcpu']}"
        for task in domain["tasks"]
    )


def _configuration(name: str, domain: Domain, host: ResolvedHost, home: str, plan: Plan) -> str:
    masks = ", ".join(f'"{mask}"' for mask in _masks(domain, host, plan))
    is_connected = domain is packets.media_server(host)
    return pv_guest.configuration(
        name,
        NETWORK_ROOT if is_connected else GUEST_ROOT,
        vcpus=len(domain["vcpus"]),
        more=[f"cpus = [{masks}]", *([packets.interface(home)] if is_connected else [])],
        home=home,
    )


def _masks(domain: Domain, host: ResolvedHost, plan: Plan) -> list[str]:
    """The CPUs that each VCPU may run on, as xl has them."""
    moves = plan.scheduler is not None or host["policy"] in BY_WEIGHT
    cpus = (vcpu["affinity"] if moves else [vcpu["cpu"]] for vcpu in domain["vcpus"])
    return [",".join(map(str, of_vcpu)) for of_vcpu in cpus]


def _refuse_host(host: ResolvedHost, mode: Mode, scheduler: str | None) -> None:
    """Raises InputError for what Xen, or our guests, cannot do."""
    if mode == "repeatable" and host["cpus"] > 1:
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and a repeatable run on Xen has one CPU",
            "add --mode live, or --set host.cpus=1",
        )
    if host["duration_ns"] > DURATION_NS_MAX:
        raise InputError(
            "`duration` is longer than the hour that a run on Xen may take",
            'add --duration "60 s", say',
        )
    if host["calls"] is not None:
        packets.refuse(host)
    for domain in packets.guests(host):
        _refuse_domain(domain, host["duration_ns"], is_server=domain is packets.media_server(host))
    sizes = (len(domain["vcpus"]) for domain in packets.guests(host))
    memory_mib = sum(map(pv_guest.memory_mib, sizes))
    if memory_mib > MACHINE_MEMORY_MIB:
        raise InputError(
            f"the domains need {memory_mib} MiB of memory, and the machine has "
            f"{MACHINE_MEMORY_MIB} MiB for them: {MEMORY_MIB} MiB each, and "
            f"{MEMORY_PER_VCPU_MIB} MiB for each further VCPU",
            "have fewer domains, or one with more VCPUs in place of several",
        )
    if scheduler is not None:
        _refuse_stock(host, scheduler)


def _refuse_domain(domain: Domain, duration_ns: int, *, is_server: bool) -> None:
    key = f"domain.{domain['name']}"
    if len(PREFIX + domain["name"]) > NAME_LENGTH_MAX:
        raise InputError(
            f"the name of `{key}` is too long for Xen",
            f"write at most {NAME_LENGTH_MAX - len(PREFIX)} characters",
        )
    if domain["workload"] is not None and not is_server:
        raise InputError(
            f"`{key}.workload` is {domain['workload']['kind']!r}, and guests on Xen have tasks, "
            "endless loops and the media server of [calls]",
            "run it in the simulator",
        )
    if domain["guest"] != "rate-monotonic":
        raise InputError(
            f"`{key}.scheduler` is {domain['guest']!r}, and the guests on Xen are rate-monotonic "
            "(Linux's SCHED_FIFO)",
            f"add --set {key}.scheduler=rate-monotonic, or run it in the simulator",
        )
    for task in domain["tasks"]:
        if task["jitter_ns"]:
            raise InputError(
                f"`{key}.tasks.{task['name']}.jitter` is not 0, and tasks on Xen are released "
                "when they arrive",
                f"add --set '{key}.tasks.{task['name']}.jitter=0 ns', or run it in the simulator",
            )
    if len(domain["tasks"]) > TASKS_MAX:
        raise InputError(
            f"`{key}.tasks` are {len(domain['tasks'])}, and a guest on Xen runs at most "
            f"{TASKS_MAX}, a thread each",
            "give some to another domain",
        )
    jobs = sum(
        -(-max(0, duration_ns - task["offset_ns"]) // task["period_ns"]) for task in domain["tasks"]
    )
    if jobs > JOBS_MAX:
        raise InputError(
            f"`{key}` has {jobs:,} jobs in a run, and a guest on Xen remembers {JOBS_MAX:,}",
            "make `duration` shorter, or the periods of its tasks longer",
        )


def _refuse_stock(host: ResolvedHost, scheduler: str) -> None:
    """The stock schedulers' parameters are coarser than ours."""
    settings, domains = host["settings"], host["domains"]
    slice_ns = settings["time_slice_ns"]
    in_range = MILLISECOND_NS <= slice_ns <= TIME_SLICE_MS_MAX * MILLISECOND_NS
    if scheduler == "credit" and (slice_ns % MILLISECOND_NS or not in_range):
        raise InputError(
            f"`host.time-slice` is {slice_ns} ns, and stock credit's is whole milliseconds, "
            f"1 to {TIME_SLICE_MS_MAX}",
            "add --set 'host.time-slice=30 ms', say",
        )
    if scheduler == "rtds":
        for domain in domains:
            _refuse_rtds(domain)
    if scheduler == "credit2":
        if settings["run_queue_cpus"]:
            raise InputError(
                f"`host.run-queue-cpus` is {settings['run_queue_cpus']}, and the run queues of "
                "stock credit2 are those that Xen was booted with",
                "add --set host.run-queue-cpus=0, or run it in the simulator",
            )
        for domain in domains:
            _refuse_credit(domain)
    if scheduler == "null":
        dom0 = 0 if packets.driver(host) else 1
        vcpus = dom0 + sum(len(domain["vcpus"]) for domain in domains)
        if vcpus > host["cpus"]:
            raise InputError(
                f"the null scheduler needs a CPU for every VCPU: {vcpus} with dom0's, and "
                f"`host.cpus` is {host['cpus']}",
                f"add --mode live --set host.cpus={vcpus}, or choose another scheduler",
            )


def _refuse_credit(domain: Domain) -> None:
    standard_ns = default_of("credit")
    if domain["parameters"]["credit_ns"] != standard_ns:
        raise InputError(
            f"`domain.{domain['name']}.credit` is given, and nobody can say which credits a VCPU "
            "of stock credit2 has when a run begins",
            f"add --set 'domain.{domain['name']}.credit={standard_ns} ns'; laxity fidelity finds "
            "the credits",
        )
    if any(vcpu["soft_affinity"] for vcpu in domain["vcpus"]):
        raise InputError(
            f"`domain.{domain['name']}.soft-affinity` is given, and guests on Xen prefer no CPUs",
            "leave it out, or run it in the simulator",
        )


def _refuse_rtds(domain: Domain) -> None:
    parameters = domain["parameters"]
    if parameters["phase_ns"]:
        raise InputError(
            f"`domain.{domain['name']}.phase` is not 0, and nobody can say when periods of stock "
            "rtds begin",
            f"add --set 'domain.{domain['name']}.phase=0 ns'; laxity fidelity finds the phases",
        )
    for name, ns in (("budget", parameters["budget_ns"]), ("period", parameters["period_ns"])):
        if ns == 0:
            raise InputError(
                f"`domain.{domain['name']}` has no `{name}`, and stock rtds needs one",
                f"add --set 'domain.{domain['name']}.{name}=10 ms', say",
            )
        if ns % MICROSECOND_NS or ns < RTDS_NS_MIN:
            raise InputError(
                f"`domain.{domain['name']}.{name}` is {ns} ns, and stock rtds takes whole "
                "microseconds, 10 at least",
                f"add --set 'domain.{domain['name']}.{name}=10 ms', say",
            )


def _refuse_windows(plan: Plan) -> None:
    """Mistakes of who makes plans: windows that one boot cannot have."""
    first = plan.windows[0].host
    runs = [window.run for window in plan.windows]
    if len(set(runs)) < len(runs):
        raise ValueError(f"two windows of a plan have one name: {runs}")
    for window in plan.windows[1:]:
        if _shape(window.host) != _shape(first):
            raise ValueError(f"window {window.run!r} has other domains than the first")
        policies = {first["policy"], window.host["policy"]}
        is_fixed = plan.scheduler is None or TABLE[first["policy"]].own_of == "xen"
        if is_fixed and not can_switch(policies):
            raise ValueError(f"a running Xen cannot change policies: {sorted(policies)}")


def _shape(host: ResolvedHost) -> list[Any]:
    return [(domain["name"], domain["vcpus"]) for domain in host["domains"]]
