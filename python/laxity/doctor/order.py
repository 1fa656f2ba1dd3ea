"""The order of fixed-priority servers, and what becomes of budget that is not used."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from laxity.doctor.suspicion import (
    DAVIS_BURNS,
    POLICIES,
    RT_XEN,
    Suspicion,
    demand,
    share,
    uses,
    with_budgets,
    with_tasks,
)
from laxity.text import time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import ResolvedHost

IDLE_PART = 0.8
"""A server whose tasks need less than this part of its budget leaves some of it unused."""


def priority_against_period(host: ResolvedHost) -> Iterator[Suspicion]:
    """A server with a longer period comes before one with a shorter period."""
    if not uses(host, "priority"):
        return
    for one, other in combinations(host["domains"], 2):
        first, second = one["parameters"], other["parameters"]
        cpus = {vcpu["cpu"] for vcpu in one["vcpus"]} & {vcpu["cpu"] for vcpu in other["vcpus"]}
        against = (first["priority"] < second["priority"]) == (
            first["period_ns"] > second["period_ns"]
        )
        equal = first["priority"] == second["priority"] or first["period_ns"] == second["period_ns"]
        if not cpus or equal or not against:
            continue
        longer, shorter = (one, other) if first["period_ns"] > second["period_ns"] else (other, one)
        yield Suspicion(
            f"domain.{longer['name']}.priority",
            f"{longer['name']}, with a period of {time(longer['parameters']['period_ns'])}, comes "
            f"before {shorter['name']}, with {time(shorter['parameters']['period_ns'])}.",
            (
                f"domain.{longer['name']}.priority={shorter['parameters']['priority']}",
                f"domain.{shorter['name']}.priority={longer['parameters']['priority']}",
            ),
            DAVIS_BURNS,
        )


def budget_burnt_idle(host: ResolvedHost) -> Iterator[Suspicion]:
    """A periodic server with little to do keeps the CPU idle while others wait."""
    if host["policy"] != "periodic":
        return
    for domain in host["domains"]:
        others = [each for each in with_tasks(host) if each is not domain]
        if domain["cpu_bound"] or demand(domain) >= share(domain) * IDLE_PART or not others:
            continue
        yield Suspicion(
            "host.policy",
            f"The budget of {domain['name']} runs down while it has nothing to do, and its CPU "
            "idles.",
            ("host.policy=deferrable",),
            RT_XEN,
        )
        return


def budget_dropped(host: ResolvedHost) -> Iterator[Suspicion]:
    """A polling server drops its budget before its jobs come."""
    if host["policy"] != "polling":
        return
    for domain in with_budgets(host):
        period_ns = domain["parameters"]["period_ns"]
        late = [
            task
            for task in domain["tasks"]
            if task["offset_ns"] % period_ns or task["period_ns"] % period_ns or task["jitter_ns"]
        ]
        if not late:
            continue
        yield Suspicion(
            "host.policy",
            f"Jobs of {late[0]['name']} of {domain['name']} arrive after their server has found "
            "nothing to do and dropped its budget: they wait for the next period.",
            ("host.policy=deferrable",),
            RT_XEN,
        )
        return


def budgets_back_to_back(host: ResolvedHost) -> Iterator[Suspicion]:
    """A deferrable server uses the end of one budget and the next right behind it."""
    if host["policy"] != "deferrable":
        return
    cpus = [vcpu["cpu"] for domain in host["domains"] for vcpu in domain["vcpus"]]
    if max(cpus.count(cpu) for cpu in cpus) > 1 and any(with_budgets(host)):
        yield Suspicion(
            "host.policy",
            "A deferrable server that begins late in its period uses two budgets back to back, and "
            "what comes behind it waits for both.",
            ("host.policy=sporadic",),
            DAVIS_BURNS,
        )


def guest_by_rate(host: ResolvedHost) -> Iterator[Suspicion]:
    """A guest with fixed priorities is too loaded for them, and not for deadlines."""
    for domain in with_tasks(host):
        if domain["guest"] == "rate-monotonic" and len(domain["tasks"]) > 1:
            yield Suspicion(
                f"domain.{domain['name']}.scheduler",
                f"{domain['name']} runs its tasks by their rates: those with long periods wait for "
                "all others.",
                (f"domain.{domain['name']}.scheduler=edf",),
                POLICIES,
            )
