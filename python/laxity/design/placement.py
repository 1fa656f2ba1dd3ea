"""CPUs for domains: worst fit first, and a constraint solver where that fails.

The solver is OR-Tools' CP-SAT. Each set of domains that analysis finds too much for one CPU becomes
a constraint, for that CPU alone where domains of given CPUs are on it, and the solver places all
anew (logic-based Benders decomposition, Hooker and Ottosson, 2003), until all CPUs hold or no
placement is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from laxity.progress import Say

Answer = dict[str, Any]

PLACEMENTS_MAX = 50
"""Placements of the solver that are tried, at most."""

PLACED_MAX = 300
"""Domains that the solver places in all attempts together: an attempt designs all of them."""

PARTS = 1_000_000
"""The solver counts in whole parts of a CPU."""

SOLVER_WORK = 2.0
"""The solver's limit, in its own units of work: its answer depends on no machine's speed."""

SOLVER_GAP = 0.02
"""The fullest CPU may be so much fuller than need be: what holds is for analysis to say."""


def placed(
    opened: Answer, answer: Callable[[Iterable[str]], Answer], looking: Say
) -> tuple[Answer, list[str]]:
    """Places domains whose CPUs are open, and returns the answer with the overrides of its CPUs.

    `opened` is what the file leaves open; `answer` gives the design for a placement. Domains with
    several VCPUs stay on all CPUs that they may run on.
    """
    cpus = opened["host"]["cpus"]
    domains = [
        (number, domain)
        for number, (domain, of_host) in enumerate(
            # Helpers follow the file's domains. Nothing of theirs is open.
            zip(opened["domains"], opened["host"]["domains"], strict=False)
        )
        if domain["affinity"] and len(of_host["vcpus"]) == 1
    ]
    shares = [domain["share"] for _, domain in domains]
    if cpus == 1 or not domains or None in shares:
        return answer([]), []
    used = _used(opened, {number for number, _ in domains})

    def overrides(places: Sequence[int]) -> list[str]:
        return [
            f"{domain['path']}.affinity=[{cpu}]"
            for (_, domain), cpu in zip(domains, places, strict=True)
        ]

    places = worst_fit(shares, used)
    found = answer(overrides(places))
    if found["verdict"] != "impossible":
        return found, overrides(places)
    names = [opened["host"]["domains"][number]["name"] for number, _ in domains]
    refused: list[dict[int, int]] = []
    for attempt in range(min(PLACEMENTS_MAX, max(PLACED_MAX // len(domains), 1))):
        looking(f"placing, attempt {attempt + 2}")
        placed_here = _placed_in_conflict(found, names, places)
        if not placed_here:
            break  # The conflict is among domains whose CPUs are given.
        if set(found["group"]) <= set(names):
            # All CPUs are alike.
            refused += [dict.fromkeys(placed_here, cpu) for cpu in range(cpus)]
        else:
            # Domains whose CPUs are given share those of the conflict.
            refused.append(placed_here)
        new = solve(shares, used, refused, places)
        if new is None:
            break
        trial = answer(overrides(new))
        places = new
        found = trial
        if found["verdict"] != "impossible":
            break
    return found, overrides(places)


def _used(opened: Answer, free: set[int]) -> list[float]:
    """What domains whose CPUs are given take of each CPU, in CPUs."""
    used = [0.0] * opened["host"]["cpus"]
    for number, domain in enumerate(opened["host"]["domains"]):
        if number not in free:
            share = opened["domains"][number]["share"] or 0.0
            for vcpu in domain["vcpus"]:
                used[vcpu["cpu"]] += share / len(domain["vcpus"])
    return used


def _placed_in_conflict(found: Answer, names: list[str], places: Sequence[int]) -> dict[int, int]:
    """The domains of a conflict that can be placed, each with its CPU.

    Where budgets that are given are too much without any task, it is all that share the CPU.
    """
    blamed = {demand["domain"] for demand in found["conflict"]} or {*found["group"]}
    return {index: places[index] for index, name in enumerate(names) if name in blamed}


def worst_fit(shares: Sequence[float], used: Sequence[float]) -> list[int]:
    """A CPU for each share: the greatest first, each on the CPU that is used least."""
    load = list(used)
    places = [0] * len(shares)
    for index in sorted(range(len(shares)), key=lambda index: -shares[index]):
        cpu = min(range(len(load)), key=lambda cpu: load[cpu])
        places[index] = cpu
        load[cpu] += shares[index]
    return places


def solve(
    shares: Sequence[float],
    used: Sequence[float],
    refused: Sequence[dict[int, int]],
    near: Sequence[int] = (),
) -> list[int] | None:
    """A CPU for each share, such that the fullest is about least full; None if none is found.

    No CPU has more than it has time for, and in no set of `refused` all are on those CPUs. The
    search begins at the placement `near`.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415 - only where worst fit fails

    model = cp_model.CpModel()
    cpus = range(len(used))
    on = [[model.new_bool_var(f"{index} on {cpu}") for cpu in cpus] for index in range(len(shares))]
    fullest = model.new_int_var(0, PARTS, "fullest")
    for of_domain in on:
        model.add_exactly_one(of_domain)
    for cpu in cpus:
        load = sum(int(share * PARTS) * on[index][cpu] for index, share in enumerate(shares))
        model.add(load + int(used[cpu] * PARTS) <= fullest)
    for together in refused:
        model.add_bool_or([~on[index][cpu] for index, cpu in together.items()])
    model.minimize(fullest)
    for of_domain, cpu in zip(on, near, strict=False):
        model.add_hint(of_domain[cpu], value=True)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    # The solver's own handler leaves SIGINT at its default, and Ctrl-C would end us untidied.
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = SOLVER_WORK
    solver.parameters.relative_gap_limit = SOLVER_GAP
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [next(cpu for cpu in cpus if solver.boolean_value(of_domain[cpu])) for of_domain in on]
