"""Linux's own schedulers: cpu.max, SCHED_FIFO and SCHED_DEADLINE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.doctor.budgets import MARGIN
from laxity.doctor.suspicion import (
    LINUX_BANDWIDTH,
    LINUX_CGROUPS,
    LINUX_FEATURES,
    Suspicion,
    demand,
    rounded_up_ns,
    uses,
    with_budgets,
    with_tasks,
)
from laxity.text import EXACT, percent, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import ResolvedHost


def quota_below_load(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain's cpu.max is less than its tasks need, so that they fall behind for ever."""
    if not uses(host, "quota"):
        return
    for domain in with_tasks(host):
        quota_ns = domain["parameters"]["quota_ns"]
        period_ns = domain["parameters"]["quota_period_ns"]
        if not 0 < quota_ns < demand(domain) * period_ns:
            continue
        name = domain["name"]
        enough_ns = rounded_up_ns(demand(domain) * MARGIN * period_ns)
        yield Suspicion(
            f"domain.{name}.quota",
            f"The tasks of {name} need {percent(demand(domain))} of a CPU, and its cpu.max is "
            f"{percent(quota_ns / period_ns)}.",
            (f"domain.{name}.quota={time(enough_ns, digits=EXACT)}",),
            LINUX_BANDWIDTH,
        )


def quota_in_bursts(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain is throttled although its cpu.max is above what it needs on average."""
    if not uses(host, "quota"):
        return
    for domain in with_tasks(host):
        parameters = domain["parameters"]
        quota_ns, period_ns = parameters["quota_ns"], parameters["quota_period_ns"]
        if quota_ns < demand(domain) * period_ns or parameters["quota_burst_ns"] >= quota_ns:
            continue
        name = domain["name"]
        yield Suspicion(
            f"domain.{name}.quota-burst",
            f"{name} needs {percent(demand(domain))} of a CPU on average, and is throttled all the "
            f"same when its jobs need {time(quota_ns)} within {time(period_ns)}: what it did not "
            "use before is lost.",
            (f"domain.{name}.quota-burst={time(quota_ns, digits=EXACT)}",),
            LINUX_BANDWIDTH,
        )


def quota_under_fifo(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain has a cpu.max, which does not limit threads of SCHED_FIFO."""
    if host["policy"] != "fifo":
        return
    for domain in host["domains"]:
        if domain["parameters"]["quota_ns"]:
            yield Suspicion(
                f"domain.{domain['name']}.quota",
                f"The cpu.max of {domain['name']} limits nothing under SCHED_FIFO: those with "
                "lower priorities get only what it leaves.",
                ("host.policy=eevdf",),
                LINUX_CGROUPS,
            )
            return


def budget_in_jiffies(host: ResolvedHost) -> Iterator[Suspicion]:
    """Runtimes of SCHED_DEADLINE end only at the kernel's timer interrupts."""
    jiffy_ns = host["settings"]["jiffy_ns"]
    if host["policy"] != "deadline" or not jiffy_ns or not any(with_budgets(host)):
        return
    yield Suspicion(
        "host.jiffy",
        f"The kernel looks every {time(jiffy_ns)} whether a runtime is used up, since its feature "
        "HRTICK_DL is off: a VCPU runs on at the expense of others, and then waits for as long.",
        ("host.jiffy=0 ns",),
        LINUX_FEATURES,
    )
