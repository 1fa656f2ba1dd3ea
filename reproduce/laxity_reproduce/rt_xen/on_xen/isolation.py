"""Table 2 on Xen: does an overloaded domain make others miss their deadlines?"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity_reproduce.reproduction import Experiment, Row, shown, verdict
from laxity_reproduce.rt_xen.on_xen.boots import FREE, try_row
from laxity_reproduce.rt_xen.on_xen.fidelity import frame, why_apart
from laxity_reproduce.rt_xen.on_xen.setup import (
    CLOSE_POINTS,
    duration,
    event_driven,
    listed,
    paper_host,
    policies,
    window,
)
from laxity_reproduce.rt_xen.setup import FACTS, SERVERS, given_tasks
from laxity_reproduce.rt_xen.table_2 import (
    OVERLOADED,
    overloaded_utilization,
    takes_longer,
    takes_longer_by,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity.resolved_schema import Task

    from laxity_reproduce.rt_xen.on_xen.boots import Compared, XenLab
    from laxity_reproduce.rt_xen.on_xen.window import Window

NORMAL = "normal"

OVERLOADS: dict[str, Callable[[list[Task], float], list[Task]]] = {
    "overloaded": takes_longer,
    "overloaded by 10 points": takes_longer_by,
}
"""What becomes of the overloaded domain's tasks, given a utilization."""

CASES = (NORMAL, *OVERLOADS)

SETS = 3
"""Task sets."""

SEEDS_TRIED = 50

METHOD = (
    "Host file even.toml runs at a load of 70 %. Servers are event-driven, where the paper's"
    " tick every 1 ms; credit has a time slice of 1 ms. When domain 3 is overloaded, its"
    " highest-priority task runs longer and has a utilization of 10 %, which seldom exceeds the"
    " domain's share; when it is overloaded by 10 points, the task has a utilization of 10 %"
    f" more than planned, which always does. The {SETS} task sets are those of the first seeds,"
    " from 1, with which no domain but the overloaded one misses under any of the four servers"
    " in the simulator, without costs and in as long a run. Values are the miss ratios of"
    " domains 1 to 5 in percent, means over task sets. A row is reproduced if in every task set"
    f" every domain's ratio on Xen is within {CLOSE_POINTS:g} points of the simulator's; the rows"
    " on isolation, if no domain but the overloaded one misses at all."
)


@cache
def seeds(quick: bool) -> list[int]:
    """The seeds of the task sets, by the rule of METHOD; one if quick."""
    found = []
    for seed in range(1, SEEDS_TRIED + 1):
        if all(
            domain.missed == 0
            for case in CASES
            for server in SERVERS
            for domain in paper_host()
            .run(set=[*event_driven(server), *FREE, duration(quick), *overrides(case, seed)])
            .domains
            if case == NORMAL or domain.name != OVERLOADED
        ):
            found.append(seed)
            if len(found) == (1 if quick else SETS):
                return found
    return found


def overrides(case: str, seed: int) -> list[str]:
    """Overrides of even.toml: a task set as drawn, or with the overload."""
    drawn = paper_host().resolved([f"seed={seed}"])["domains"]
    (tasks,) = (domain["tasks"] for domain in drawn if domain["name"] == OVERLOADED)
    if case == NORMAL:
        return [f"seed={seed}"]
    longer = OVERLOADS[case]([{**task} for task in tasks], overloaded_utilization())
    return [f"seed={seed}", given_tasks(OVERLOADED, longer)]


def windows(quick: bool) -> list[Window]:
    """Each policy, case and task set."""
    return [
        _window(policy, case, seed, quick=quick)
        for policy in policies(quick)
        for case in CASES
        for seed in seeds(quick)
    ]


def _window(policy: str, case: str, seed: int, *, quick: bool) -> Window:
    name = f"table-2-{policy}-{case.replace(' ', '-')}-{seed}"
    changes = [*event_driven(policy), *overrides(case, seed)]
    return window(name, policy, changes, quick=quick, what=f"{case}, {policy}, seed {seed}")


def judge(lab: XenLab) -> Experiment:
    """Xen beside the paper and the simulator."""

    def compared(policy: str, case: str) -> list[Compared]:
        return [
            lab.beside(_window(policy, case, seed, quick=lab.quick)) for seed in seeds(lab.quick)
        ]

    def close(what: str, policy: str, case: str) -> Row:
        windows = [_window(policy, case, seed, quick=lab.quick) for seed in seeds(lab.quick)]
        found = [lab.beside(each) for each in windows]
        worst = max(each.largest_difference for each in found)
        return Row(
            what,
            _published(case, policy),
            listed(_means([each.xen for each in found])),
            verdict(holds=worst <= CLOSE_POINTS),
            why_apart(lab, max(windows, key=lambda each: lab.beside(each).largest_difference))
            if worst > CLOSE_POINTS
            else "",
            f"simulator: {shown(listed(_means([each.sim for each in found])))}; furthest apart"
            f" {worst:.2g} points",
        )

    def isolated(what: str, policy: str) -> Row:
        missed = {
            f"{case}, task set {number}, {domain.name}": domain.missed
            for case in CASES
            for number, each in enumerate(compared(policy, case), start=1)
            for domain in each.xen.domains
            if domain.missed and (case == NORMAL or domain.name != OVERLOADED)
        }
        return Row(
            what,
            0.0,
            float(sum(missed.values())),
            verdict(holds=not missed),
            "; ".join(f"{where}: {count} jobs" for where, count in missed.items()),
        )

    rows = [
        try_row(f"{case}, {policy}", _published(case, policy), close, policy, case)
        for case in CASES
        for policy in policies(lab.quick)
    ]
    rows += [
        try_row(f"{policy}: jobs missed by domains that are not overloaded", 0.0, isolated, policy)
        for policy in policies(lab.quick)
        if policy in SERVERS
    ]
    return Experiment(
        "table-2",
        "isolation on Xen: miss ratio of domains 1 to 5, %",
        METHOD,
        rows,
        [],
        frame(lab, windows(lab.quick)),
    )


def _published(case: str, policy: str) -> list[float]:
    """Percent, of domains 1 to 5."""
    column = FACTS["table_2"][NORMAL if case == NORMAL else "overloaded"]
    return [float(value) for value in column[policy]]


def _means(runs: list[Any]) -> list[float]:
    """Miss ratios of the domains, percent, over task sets."""
    ratios = np.array([[100 * domain.miss_ratio for domain in run.domains] for run in runs])
    return [float(mean) for mean in ratios.mean(axis=0)]
