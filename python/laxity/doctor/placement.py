"""The number of VCPUs, and the CPUs that they are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.doctor.suspicion import (
    ANALYSIS,
    TELEPHONY,
    Suspicion,
    demand,
    share,
    uses,
    utilization,
    with_tasks,
)
from laxity.text import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import Domain, ResolvedHost, Task

ROOM = 0.5
"""A CPU that has more to do than this part of its time has no room for a domain."""


def vcpus_above_cpus(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain has more VCPUs than there are CPUs for them: they wait for each other."""
    for domain in host["domains"]:
        cpus = len(cpus_of(domain))
        if len(domain["vcpus"]) > cpus:
            yield Suspicion(
                f"domain.{domain['name']}.vcpus",
                f"{domain['name']} has {len(domain['vcpus'])} VCPUs on {cpus} of the host's CPUs: "
                "one of them always waits for another.",
                (f"domain.{domain['name']}.vcpus={cpus}",),
                TELEPHONY,
            )


def tasks_on_one_vcpu(host: ResolvedHost) -> Iterator[Suspicion]:
    """One VCPU of a guest has more than it can do, and another has hardly anything."""
    for domain in with_tasks(host):
        count = len(domain["vcpus"])
        if count == 1:
            continue
        of_vcpu = [
            [task for task in domain["tasks"] if task["vcpu"] == vcpu] for vcpu in range(count)
        ]
        loads = [utilization(tasks) for tasks in of_vcpu]
        most, least = loads.index(max(loads)), loads.index(min(loads))
        owned = share(domain) if uses(host, "budget") else 1.0
        if len(of_vcpu[most]) <= 1 or loads[most] <= owned * 0.9:
            continue
        moved = min(of_vcpu[most], key=utilization_of)
        if loads[least] + utilization_of(moved) >= loads[most]:
            continue
        yield Suspicion(
            f"domain.{domain['name']}.tasks.{moved['name']}.vcpu",
            f"VCPU {most} of {domain['name']} has tasks for {percent(loads[most])} of a CPU, and "
            f"VCPU {least} for {percent(loads[least])}.",
            (f"domain.{domain['name']}.tasks.{moved['name']}.vcpu={least}",),
            ANALYSIS,
        )


def utilization_of(task: Task) -> float:
    """The part of one CPU that the task needs."""
    return utilization([task])


def pinned_together(host: ResolvedHost) -> Iterator[Suspicion]:
    """Domains are pinned to one CPU that is too little for them, and another CPU has room."""
    loads = [0.0] * host["cpus"]
    pinned: dict[int, list[Domain]] = {}
    for domain in host["domains"]:
        for vcpu in domain["vcpus"]:
            wanted = 1.0 if domain["cpu_bound"] else demand(domain) / len(domain["vcpus"])
            loads[vcpu["cpu"]] += wanted
            if len(vcpu["affinity"]) == 1 and len(domain["vcpus"]) == 1:
                pinned.setdefault(vcpu["cpu"], []).append(domain)
    emptiest = loads.index(min(loads))
    for cpu, domains in pinned.items():
        movable = [domain for domain in domains if domain["tasks"]]
        if loads[cpu] <= 1 or loads[emptiest] > ROOM or len(domains) <= 1 or not movable:
            continue
        name = movable[0]["name"]
        yield Suspicion(
            f"domain.{name}.affinity",
            f"The domains that are pinned to CPU {cpu} want {percent(loads[cpu])} of it, and CPU "
            f"{emptiest} has {percent(1 - loads[emptiest])} to spare.",
            (f"domain.{name}.affinity=[{emptiest}]",),
            TELEPHONY,
        )
        return


def driver_beside_busy(host: ResolvedHost) -> Iterator[Suspicion]:
    """The domain that handles everybody's packets shares CPUs with one that computes."""
    if host["calls"] is None:
        return
    every = set(range(host["cpus"]))
    for driver in host["domains"]:
        if driver["workload"] is None or driver["workload"]["kind"] != "driver":
            continue
        own = cpus_of(driver)
        pinned = own < every
        if not pinned:
            own = set(range(min(len(driver["vcpus"]), host["cpus"])))
        beside = [
            domain
            for domain in host["domains"]
            if computes(domain) and cpus_of(domain) & own and cpus_of(domain) - own
        ]
        if not beside:
            continue
        name = driver["name"]
        yield Suspicion(
            f"domain.{beside[0]['name']}.affinity",
            f"{name} handles every packet of every domain, and waits for a CPU while "
            f"{beside[0]['name']} computes there.",
            (
                *(() if pinned else (f"domain.{name}.affinity={sorted(own)}",)),
                *(
                    f"domain.{domain['name']}.affinity={sorted(cpus_of(domain) - own)}"
                    for domain in beside
                ),
            ),
            TELEPHONY,
        )


def computes(domain: Domain) -> bool:
    """Whether the domain computes, with or without pauses."""
    workload = domain["workload"]
    return domain["cpu_bound"] or (workload is not None and workload["kind"] == "bursts")


def cpus_of(domain: Domain) -> set[int]:
    """The CPUs that the domain's VCPUs may run on."""
    return {cpu for vcpu in domain["vcpus"] for cpu in vcpu["affinity"]}
