"""Weights, caps and turns: credit and scheduler S."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.doctor.suspicion import (
    POLICIES,
    SOFT_REAL_TIME,
    TELEPHONY,
    Suspicion,
    demand,
    has_busy,
    uses,
    with_tasks,
)
from laxity.policies import PARAMETERS, SCHEDULER_S
from laxity.text import EXACT, percent, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import ResolvedHost

TURNS = 4
"""The number of turns of others that fit into a deadline under the proposed time slice."""

LEAST_SLICE_NS = 1_000_000
"""Xen takes no shorter time slice."""

WEIGHT_MARGIN = 1.3


def slice_above_deadline(host: ResolvedHost) -> Iterator[Suspicion]:
    """Others have turns that are longer than what a job can wait."""
    slice_ns = host["settings"]["time_slice_ns"]
    if not uses(host, "time-slice") or not has_busy(host):
        return
    slacks = [
        (task["deadline_ns"] - task["cost_ns"], f"{domain['name']}/{task['name']}")
        for domain in with_tasks(host)
        for task in domain["tasks"]
    ]
    if not slacks or min(slacks)[0] >= slice_ns:
        return
    slack_ns, name = min(slacks)
    shorter_ns = max(LEAST_SLICE_NS, slack_ns // TURNS)
    if shorter_ns < slice_ns:
        yield Suspicion(
            "host.time-slice",
            f"A VCPU that computes has turns of {time(slice_ns)}, and {name} can wait "
            f"{time(slack_ns)}.",
            (f"host.time-slice={time(shorter_ns, digits=EXACT)}",),
            SOFT_REAL_TIME,
        )


def cap_below_load(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain may use less than its tasks need."""
    if not uses(host, "cap"):
        return
    for domain in with_tasks(host):
        cap = domain["parameters"]["cap_percent"]
        if cap and cap < 100 * demand(domain):
            yield Suspicion(
                f"domain.{domain['name']}.cap",
                f"The tasks of {domain['name']} need {percent(demand(domain))} of a CPU, and its "
                f"cap is {cap} %.",
                (f"domain.{domain['name']}.cap=0",),
                POLICIES,
            )


def cap_in_bursts(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain is parked although its cap is above what it needs on average."""
    if not uses(host, "cap"):
        return
    for domain in with_tasks(host):
        cap = domain["parameters"]["cap_percent"]
        if cap and cap >= 100 * demand(domain):
            yield Suspicion(
                f"domain.{domain['name']}.cap",
                f"{domain['name']} needs {percent(demand(domain))} of a CPU on average and is "
                f"parked at {cap} % all the same, when its jobs come together.",
                (f"domain.{domain['name']}.cap=0",),
                POLICIES,
            )


def cap_on_driver(host: ResolvedHost) -> Iterator[Suspicion]:
    """The domain that handles everybody's packets is throttled."""
    if not uses(host, "cap") or host["calls"] is None:
        return
    for domain in host["domains"]:
        workload, cap = domain["workload"], domain["parameters"]["cap_percent"]
        if workload and workload["kind"] == "driver" and cap:
            yield Suspicion(
                f"domain.{domain['name']}.cap",
                f"{domain['name']} handles every packet of every domain, and is parked when it has "
                f"used {cap} % of a CPU.",
                (f"domain.{domain['name']}.cap=0",),
                TELEPHONY,
            )


def weight_below_load(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain's share by weight is less than its tasks need, while others want all there is."""
    if not uses(host, "weight") or not has_busy(host):
        return
    total = sum(domain["parameters"]["weight"] for domain in host["domains"])
    for domain in with_tasks(host):
        weight, needed = domain["parameters"]["weight"], demand(domain) * WEIGHT_MARGIN
        if weight / total * host["cpus"] >= demand(domain) or needed >= host["cpus"]:
            continue
        others = total - weight
        enough = int(needed / (host["cpus"] - needed) * others) + 1
        yield Suspicion(
            f"domain.{domain['name']}.weight",
            f"The weight of {domain['name']} gives it {percent(weight / total * host['cpus'])} of "
            f"a CPU where all compete, and its tasks need {percent(demand(domain))}.",
            (f"domain.{domain['name']}.weight={min(enough, PARAMETERS['weight'].most)}",),
            POLICIES,
        )


def no_laxity(host: ResolvedHost) -> Iterator[Suspicion]:
    """Scheduler S knows of no domain that it is urgent."""
    if host["policy"] not in SCHEDULER_S:
        return
    if any(domain["parameters"]["laxity_ns"] for domain in host["domains"]):
        return
    for domain in with_tasks(host):
        slack_ns = min(task["deadline_ns"] - task["cost_ns"] for task in domain["tasks"])
        yield Suspicion(
            f"domain.{domain['name']}.laxity",
            f"No domain has a laxity, so that {host['policy']} does not know that "
            f"{domain['name']} cannot wait.",
            (f"domain.{domain['name']}.laxity={max(1, slack_ns // 2)} ns",),
            SOFT_REAL_TIME,
        )
