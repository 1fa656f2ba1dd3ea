"""Budgets and periods: of servers and of SEDF."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.doctor.suspicion import (
    ANALYSIS,
    DAVIS_BURNS,
    RT_XEN,
    Suspicion,
    demand,
    rounded_up_ns,
    share,
    uses,
    with_budgets,
)
from laxity.policies import MODELS
from laxity.text import EXACT, percent, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import ResolvedHost

MARGIN = 1.1
"""Proposed budgets exceed what tasks need by this factor, since arrivals and budgets differ."""


def budget_below_load(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain owns less than its tasks need, so that they fall behind for ever."""
    for domain in with_budgets(host):
        needed = demand(domain) / len(domain["vcpus"])
        if share(domain) >= needed or domain["parameters"]["extratime"]:
            continue
        period_ns = domain["parameters"]["period_ns"]
        budget_ns = min(rounded_up_ns(needed * MARGIN * period_ns), period_ns)
        name = domain["name"]
        yield Suspicion(
            f"domain.{name}.budget",
            f"The tasks of {name} need {percent(needed)} of a CPU on each VCPU, and its budget is "
            f"{percent(share(domain))}: jobs fall behind further and further.",
            (f"domain.{name}.budget={time(budget_ns, digits=EXACT)}",),
            ANALYSIS,
        )


def budget_just_enough(host: ResolvedHost) -> Iterator[Suspicion]:
    """A domain owns what its tasks need on average, and too little when they come together."""
    for domain in with_budgets(host):
        needed = demand(domain) / len(domain["vcpus"])
        if not needed <= share(domain) < needed * MARGIN:
            continue
        period_ns = domain["parameters"]["period_ns"]
        budget_ns = min(rounded_up_ns(needed * 1.3 * period_ns), period_ns)
        name = domain["name"]
        yield Suspicion(
            f"domain.{name}.budget",
            f"The budget of {name}, {percent(share(domain))}, is hardly more than the "
            f"{percent(needed)} that its tasks need: what is not used in one period is missing in "
            "another.",
            (f"domain.{name}.budget={time(budget_ns, digits=EXACT)}",),
            DAVIS_BURNS,
        )


def period_above_deadline(host: ResolvedHost) -> Iterator[Suspicion]:
    """A job can wait for budget for longer than its deadline allows."""
    for domain in with_budgets(host):
        parameters = domain["parameters"]
        gap_ns = parameters["period_ns"] - parameters["budget_ns"]
        tightest = min(domain["tasks"], key=lambda task: task["deadline_ns"] - task["cost_ns"])
        slack_ns = tightest["deadline_ns"] - tightest["cost_ns"]
        if gap_ns <= slack_ns:
            continue
        name = domain["name"]
        period_ns = max(1, min(tightest["deadline_ns"], parameters["period_ns"]) // 4)
        budget_ns = rounded_up_ns(period_ns * share(domain))
        yield Suspicion(
            f"domain.{name}.period",
            f"A VCPU of {name} that has used its budget waits up to {time(gap_ns)} for the next, "
            f"and {tightest['name']} can wait {time(slack_ns)}.",
            (
                f"domain.{name}.period={period_ns} ns",
                f"domain.{name}.budget={min(budget_ns, period_ns)} ns",
            ),
            DAVIS_BURNS,
        )


def period_out_of_step(host: ResolvedHost) -> Iterator[Suspicion]:
    """A server's period does not divide the period of its tasks, so that budgets miss jobs."""
    for domain in with_budgets(host):
        period_ns = domain["parameters"]["period_ns"]
        shortest_ns = min(task["period_ns"] for task in domain["tasks"])
        if period_ns > shortest_ns or shortest_ns % period_ns == 0:
            continue
        name = domain["name"]
        parts = -(-shortest_ns // period_ns)
        step_ns = shortest_ns // parts
        yield Suspicion(
            f"domain.{name}.period",
            f"The period of {name}, {time(period_ns)}, does not divide its tasks' shortest, "
            f"{time(shortest_ns)}: budget comes earlier or later with each job.",
            (
                f"domain.{name}.period={step_ns} ns",
                f"domain.{name}.budget={min(rounded_up_ns(step_ns * share(domain)), step_ns)} ns",
            ),
            RT_XEN,
        )


def budget_in_quanta(host: ResolvedHost) -> Iterator[Suspicion]:
    """A quantum is so coarse that budgets begin and end at other times than they should."""
    quantum_ns = host["settings"]["quantum_ns"]
    if not quantum_ns or not uses(host, "quantum"):
        return
    for domain in with_budgets(host):
        parameters = domain["parameters"]
        if parameters["budget_ns"] % quantum_ns == 0 and parameters["period_ns"] % quantum_ns == 0:
            continue
        yield Suspicion(
            "host.quantum",
            f"The quantum of {time(quantum_ns)} does not divide the budget and the period of "
            f"{domain['name']}: budgets come back late, and decisions wait for the next quantum.",
            ("host.quantum=0 ns",),
            RT_XEN,
        )
        return


def cpu_oversold(host: ResolvedHost) -> Iterator[Suspicion]:
    """The budgets on a CPU add up to more than the CPU."""
    if not uses(host, "budget") or host["policy"] in MODELS:
        return
    for cpu in range(host["cpus"]):
        here = [
            domain
            for domain in host["domains"]
            if any(vcpu["cpu"] == cpu for vcpu in domain["vcpus"])
        ]
        sold = sum(share(domain) for domain in here)
        if sold <= 1 + 1e-9:
            continue
        spare = {domain["name"]: share(domain) - demand(domain) * MARGIN for domain in here}
        name = max(spare, key=lambda name: spare[name])
        domain = next(each for each in here if each["name"] == name)
        period_ns = domain["parameters"]["period_ns"]
        budget_ns = int((share(domain) - (sold - 1)) * period_ns)
        if budget_ns <= 0:
            continue
        yield Suspicion(
            f"domain.{name}.budget",
            f"The budgets on CPU {cpu} add up to {percent(sold)} of it: what comes last does not "
            "get its own.",
            (f"domain.{name}.budget={budget_ns} ns",),
            ANALYSIS,
        )
