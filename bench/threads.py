"""The models of Linux's schedulers against this machine's kernel: `python -m bench.threads HOST`.

Each host file is simulated, and run as real threads: a process for each VCPU, a control group for
each domain. The processes spend the CPU time of their jobs, measured by their own CPU clocks. What
the kernel gave each is its run time (`/proc/PID/schedstat`). The host's CPUs are this machine's,
from 0 on.

Other work on the machine takes part, and the model does not know it: under eevdf the shares are
those among the host's own threads, which are in one group with the greatest weight; `fifo` and
`deadline` come before all other work. Since Linux 6.12 ordinary threads have a server of
SCHED_DEADLINE on each CPU, with 50 ms every second, whose bandwidth nobody reclaims while they have
work. A domain with the name `fair-server` stands for these in the model; as threads it is ordinary
loops, one a CPU, so that the servers have work. Needs root.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.host import Host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

    from laxity.resolved_schema import Domain, Parameters, ResolvedHost, Task

HOSTS = Path(__file__).parent / "hosts"
POLICIES = ("eevdf", "fifo", "deadline")
S = 1_000_000_000

SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
SCHED_DEADLINE = 6
SCHED_FLAG_RECLAIM = 2
FAIR_SERVER = "fair-server"
"""The domain that stands for the kernel's servers of ordinary threads."""
PARENT_SHARES = 262_144
"""The greatest weight of a control group in version 1; 10,000 in version 2."""


class SchedulingAttributes(ctypes.Structure):
    """`struct sched_attr` of linux/sched/types.h, first version."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("sched_policy", ctypes.c_uint32),
        ("sched_flags", ctypes.c_uint64),
        ("sched_nice", ctypes.c_int32),
        ("sched_priority", ctypes.c_uint32),
        ("sched_runtime", ctypes.c_uint64),
        ("sched_deadline", ctypes.c_uint64),
        ("sched_period", ctypes.c_uint64),
    )


class UnavailableError(Exception):
    """This machine does not permit what the host asks for."""


@dataclass(frozen=True)
class Used:
    """What one domain did."""

    cpu_ns: int
    jobs: int
    missed: int


def set_deadline(budget_ns: int, period_ns: int, *, reclaim: bool) -> None:
    """Makes the calling process SCHED_DEADLINE; the deadline is the period."""
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = SchedulingAttributes(
        ctypes.sizeof(SchedulingAttributes),
        SCHED_DEADLINE,
        SCHED_FLAG_RECLAIM if reclaim else 0,
        0,
        0,
        budget_ns,
        period_ns,
        period_ns,
    )
    if libc.syscall(SYS_SCHED_SETATTR[platform.machine()], 0, ctypes.byref(attributes), 0):
        error = os.strerror(ctypes.get_errno())
        raise UnavailableError(f"the kernel refuses SCHED_DEADLINE: {error}")


class Groups:
    """A control group with one below it for each domain, of version 2 or of version 1's `cpu`."""

    def __init__(self, stack: ExitStack) -> None:
        """Makes the group above; `stack` removes it."""
        v2, v1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")
        self.is_v2 = (v2 / "cgroup.controllers").exists()
        root = v2 if self.is_v2 else v1
        if not root.is_dir() or not os.access(root, os.W_OK):
            raise UnavailableError(f"no control groups can be made below {root}")
        self.top = Path(tempfile.mkdtemp(prefix="laxity-threads-", dir=root))
        stack.callback(self.top.rmdir)
        self._stack = stack
        if self.is_v2:
            (root / "cgroup.subtree_control").write_text("+cpu")
            (self.top / "cgroup.subtree_control").write_text("+cpu")
            (self.top / "cpu.weight").write_text("10000")
        else:
            (self.top / "cpu.shares").write_text(str(PARENT_SHARES))

    def add(self, name: str, parameters: Parameters) -> Path:
        """Makes a domain's group, with its weight and quota."""
        group = self.top / name
        group.mkdir()
        self._stack.callback(group.rmdir)
        weight, quota_us = parameters["weight"], parameters["quota_ns"] // 1_000
        period_us = parameters["quota_period_ns"] // 1_000
        if self.is_v2:
            (group / "cpu.weight").write_text(str(weight))
            if quota_us:
                (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        else:
            (group / "cpu.shares").write_text(str(weight))
            if quota_us:
                (group / "cpu.cfs_period_us").write_text(str(period_us))
                (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        burst_us = parameters["quota_burst_ns"] // 1_000
        if burst_us:
            name = "cpu.max.burst" if self.is_v2 else "cpu.cfs_burst_us"
            (group / name).write_text(str(burst_us))
        return group


def jobs_of(tasks: list[Task], duration_ns: int) -> Iterator[tuple[int, int, int]]:
    """The jobs of a VCPU's tasks in the order of their arrivals: arrival, cost and deadline, ns."""
    jobs = [
        (arrival_ns, task["cost_ns"], arrival_ns + task["deadline_ns"])
        for task in tasks
        for arrival_ns in range(task["offset_ns"], duration_ns, task["period_ns"])
    ]
    return iter(sorted(jobs))


def spend(cost_ns: int) -> None:
    """Computes for so long of the process's own CPU time."""
    end_ns = time.thread_time_ns() + cost_ns
    while time.thread_time_ns() < end_ns:
        pass


def join_class(domain: Domain, vcpu: int, policy: str) -> None:
    """Gives the calling process the scheduling and the CPUs of a VCPU."""
    parameters = domain["parameters"]
    if domain["name"] == FAIR_SERVER:
        os.sched_setaffinity(0, [vcpu])
    elif policy == "deadline":
        set_deadline(
            parameters["budget_ns"], parameters["period_ns"], reclaim=parameters["reclaim"]
        )
    else:
        os.sched_setaffinity(0, domain["vcpus"][vcpu]["affinity"])
    if policy == "fifo":
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(parameters["rt_priority"]))


def do_jobs(domain: Domain, vcpu: int, duration_ns: int) -> tuple[int, int]:
    """Does the work of a VCPU from now on; how many of its jobs were done, and how many late."""
    begin_ns = time.monotonic_ns()
    tasks = [task for task in domain["tasks"] if task["vcpu"] == vcpu]
    jobs = missed = 0
    for arrival_ns, cost_ns, deadline_ns in jobs_of(tasks, duration_ns):
        wait_ns = begin_ns + arrival_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / S)
        spend(cost_ns)
        now_ns = time.monotonic_ns() - begin_ns
        if deadline_ns < duration_ns:
            jobs += 1
            missed += now_ns > deadline_ns
        if now_ns >= duration_ns:
            break
    while domain["cpu_bound"] and time.monotonic_ns() - begin_ns < duration_ns:
        pass
    return jobs, missed


def run_vcpu(
    domain: Domain,
    vcpu: int,
    policy: str,
    duration_ns: int,
    ready: Event,
    start: Event,
    told: Connection,
) -> None:
    """A VCPU's process: joins its class, does its jobs, and tells what came of them."""
    try:
        join_class(domain, vcpu, policy)
    except (UnavailableError, OSError) as error:
        told.send(str(error))
        ready.set()
        return
    ready.set()
    start.wait()
    cpu_before_ns = run_time_ns()
    jobs, missed = do_jobs(domain, vcpu, duration_ns)
    told.send(Used(run_time_ns() - cpu_before_ns, jobs, missed))


def run_time_ns() -> int:
    """What the kernel has given the calling process."""
    return int(Path("/proc/self/schedstat").read_text().split()[0])


def real(host: ResolvedHost) -> list[Used]:
    """Runs the host's VCPUs as threads, and says what each domain did."""
    context = multiprocessing.get_context("fork")
    policy, duration_ns = host["policy"], host["duration_ns"]
    start = context.Event()
    running = []
    with ExitStack() as stack:
        groups = Groups(stack) if policy == "eevdf" else None
        of_domains: list[Path | None] = []
        for domain in host["domains"]:
            if domain["helper_of"] is not None:
                group = of_domains[domain["helper_of"]]
            else:
                group = groups.add(domain["name"], domain["parameters"]) if groups else None
            of_domains.append(group)
            for vcpu in range(len(domain["vcpus"])):
                told, tells = context.Pipe(duplex=False)
                ready = context.Event()
                process = context.Process(
                    target=run_vcpu,
                    args=(domain, vcpu, policy, duration_ns, ready, start, tells),
                    daemon=True,
                )
                process.start()
                stack.callback(process.join)
                stack.callback(process.kill)
                if group:
                    (group / "cgroup.procs").write_text(str(process.pid))
                ready.wait()
                if told.poll():
                    raise UnavailableError(told.recv())
                running.append((domain["name"], told))
        start.set()
        found = [(name, told.recv()) for name, told in running]
    return [
        Used(
            sum(used.cpu_ns for owner, used in found if owner == domain["name"]),
            sum(used.jobs for owner, used in found if owner == domain["name"]),
            sum(used.missed for owner, used in found if owner == domain["name"]),
        )
        for domain in host["domains"]
    ]


def refusal(host: ResolvedHost) -> str | None:
    """Why the host cannot be run as threads, if it cannot."""
    if host["policy"] not in POLICIES:
        return f"its policy is {host['policy']}; threads run under {', '.join(POLICIES)}"
    if host["cpus"] > (os.cpu_count() or 1):
        return f"it has {host['cpus']} CPUs, and this machine {os.cpu_count()}"
    for domain in host["domains"]:
        if domain["workload"] is not None:
            return f"domain {domain['name']} has a workload other than tasks and an endless loop"
        if domain["cpu_bound"] and domain["tasks"]:
            return f"domain {domain['name']} has tasks beside its endless loop"
    if host["policy"] == "deadline" and host["cpus"] != os.cpu_count():
        return "under deadline a thread may run on all CPUs: write cpus = " + str(os.cpu_count())
    return None


def compare(path: Path) -> bool:
    """Runs one host in both ways and prints what came of it; false if this machine cannot."""
    file = Host.load(path)
    host = file.resolved()
    print(f"{path.name}: {host['policy']}, {host['duration_ns'] / S:g} s")
    why = refusal(host)
    if why is None:
        model = file.run().domains
        try:
            threads = real(host)
        except UnavailableError as error:
            why = str(error)
    if why is not None:
        print(f"  not run: {why}")
        return False
    # What other work takes of the CPUs is not the scheduler's doing.
    is_relative = host["policy"] == "eevdf"
    whole = {
        "model": sum(domain.cpu_ns for domain in model) if is_relative else host["duration_ns"],
        "threads": sum(used.cpu_ns for used in threads) if is_relative else host["duration_ns"],
    }
    share = "share" if is_relative else "CPUs"
    print(
        f"  {'domain':12} {share + ' model':>12} {'threads':>9} {'missed model':>13} {'threads':>9}"
    )
    for one, used in zip(model, threads, strict=True):
        if one.name == FAIR_SERVER:  # as threads it has what nobody else uses, too
            continue
        shares = one.cpu_ns / whole["model"], used.cpu_ns / whole["threads"]
        ratios = [f"{each.missed / each.jobs:.1%}" if each.jobs else "" for each in (one, used)]
        print(f"  {one.name:12} {shares[0]:12.1%} {shares[1]:9.1%} {ratios[0]:>13} {ratios[1]:>9}")
    return True


def main() -> int:
    """Compares the hosts that are named, or those of `bench/hosts`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("hosts", nargs="*", type=Path, metavar="HOST")
    hosts = parser.parse_args().hosts or sorted(HOSTS.glob("*.toml"))
    if os.geteuid() != 0:
        print("this needs root, for classes and control groups", file=sys.stderr)
        return 2
    print(f"Linux {platform.release()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    ran = [compare(path) for path in hosts]
    return 0 if any(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
