"""Writes docs/results/lending.md: lending servers on the task sets of RT-Xen, beside the others.

.venv/bin/python tools/pages/lending.py
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from laxity import _core
from laxity_reproduce.lab import Lab, Outcome
from laxity_reproduce.rt_xen.setup import DOMAINS, PATTERNS, drawn_tasks, given_tasks
from laxity_reproduce.rt_xen.table_2 import OVERLOADED, overloaded_utilization, takes_longer

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[2] / "docs" / "results" / "lending.md"

SEEDS = {"on which its rules were tried first": range(1, 16), "not used before": range(201, 261)}
"""Task sets of each pattern and load."""

LOADS = (85, 90, 95, 100)
"""Percent."""

POLICIES = ("deferrable", "periodic", "polling", "sporadic", "credit", "sedf", "lending")
LIMITS = {"EDF": "edf", "RM": "rate-monotonic"}
"""Schedulers of one guest that has all tasks."""

RUN = ["duration=60 s", "host.quantum=0 ns"]
ISOLATION_LOAD = 70

HEAD = """\
# Lending servers beside the others

Written by `make results-lending`, in which `SEEDS=5` takes the first 5 task sets of each kind. The
hosts are those of RT-Xen's figure 6 (EMSOFT 2011), with the costs of its table 1, event-driven, for
60 s; the sporadic server's costs stand for those of lending. All policies with budgets have
`extratime`; credit has a time slice of 1 ms. Each value is the mean over task sets. The
limit has all tasks in one guest with the whole CPU, without budgets and without costs of switches,
once under EDF, which misses no deadline up to a utilization of 1, and once rate-monotonic, where
few tasks are late in overload instead of all. (Periods are whole milliseconds, so a task set of a
load of 100 % has a utilization somewhat above or below 1.)
"""


class Runs(NamedTuple):
    """An outcome for each task set, for one policy, pattern and load."""

    outcomes: list[Outcome]

    @property
    def missed(self) -> float:
        """Percent of all jobs."""
        return mean(outcome.miss_percent for outcome in self.outcomes)

    @property
    def switches(self) -> float:
        """Context switches a second."""
        return mean(outcome.context_switches for outcome in self.outcomes) / 60


def under(policy: str) -> list[str]:
    """Overrides for a policy."""
    extra = [f"domain.dom{number}.extratime=true" for number in DOMAINS]
    return [*RUN, f"host.policy={policy}", *extra]


def limit(lab: Lab, pattern: str, load: int, seeds: Sequence[int], scheduler: str) -> Runs:
    """All tasks of the host in one guest."""
    outcomes = []
    for seed in seeds:
        resolved = lab.resolved(lab.host(pattern), [f"seed={seed}", f"draw.load={load / 100}"])
        tasks = [
            {"name": f"{domain['name']}-{task['name']}", "cost": task["cost_ns"],
             "period": task["period_ns"]}
            for domain in resolved["domains"] for task in domain["tasks"]
        ]  # fmt: skip
        listed = ", ".join(
            f'{{ name = "{task["name"]}", cost = "{task["cost"]} ns",'
            f' period = "{task["period"]} ns" }}'
            for task in tasks
        )
        text = (
            'duration = "60 s"\n[host]\ncpus = 1\npolicy = "deferrable"\n[[domain]]\n'
            f'name = "all"\nbudget = "1 s"\nperiod = "1 s"\nscheduler = "{scheduler}"\n'
            f"tasks = [{listed}]\n"
        )
        outcomes += lab.runs(_core.HostFile(text.encode(), "limit.toml"), [[]])
    return Runs(outcomes)


def measured(lab: Lab, seeds: Sequence[int]) -> dict[tuple[str, int, str], Runs]:
    """By pattern, load, and policy or limit."""
    found = {}
    for pattern in PATTERNS:
        for load in LOADS:
            for policy in POLICIES:
                changes = [*under(policy), f"draw.load={load / 100}"]
                runs = lab.runs(lab.host(pattern), [[*changes, f"seed={seed}"] for seed in seeds])
                found[pattern, load, policy] = Runs(runs)
            for name, scheduler in LIMITS.items():
                found[pattern, load, name] = limit(lab, pattern, load, seeds, scheduler)
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def misses(found: dict[tuple[str, int, str], Runs]) -> str:
    """Miss ratios of every policy and limit."""
    columns = [*POLICIES, *LIMITS]
    rows = [
        [pattern, str(load), *(f"{found[pattern, load, one].missed:.2f}" for one in columns)]
        for pattern in PATTERNS
        for load in LOADS
    ]
    head = ["pattern", "load %", *POLICIES, *(f"limit, {name}" for name in LIMITS)]
    return table(head, rows)


def switches(found: dict[tuple[str, int, str], Runs]) -> str:
    """Context switches a second, and lending's beside SEDF's."""
    rows = []
    for pattern in PATTERNS:
        for load in LOADS:
            by = {policy: found[pattern, load, policy].switches for policy in POLICIES}
            ratio = f"{by['lending'] / by['sedf']:.2f}"
            rows.append([pattern, str(load), *(f"{by[one]:.0f}" for one in POLICIES), ratio])
    return table(["pattern", "load %", *POLICIES, "lending / sedf"], rows)


def isolation(lab: Lab, seeds: Sequence[int]) -> str:
    """Miss ratios of each domain, as planned and with domain 3 overloaded."""
    host = lab.host("even")
    load = f"draw.load={ISOLATION_LOAD / 100}"
    plans = {seed: drawn_tasks(lab, host, seed)[OVERLOADED] for seed in seeds}
    rows = []
    for policy in POLICIES:
        for name in ("as planned", "overloaded"):
            runs = []
            for seed, tasks in plans.items():
                longer = takes_longer(tasks, overloaded_utilization())
                changed = [given_tasks(OVERLOADED, longer)] if name == "overloaded" else []
                runs.append([*under(policy), load, f"seed={seed}", *changed])
            outcomes = lab.runs(host, runs)
            each = zip(*(outcome.domain_miss_percent for outcome in outcomes), strict=True)
            rows.append([policy, name, *(f"{mean(domain):.2f}" for domain in each)])
    return table(["policy", "domain 3", *(f"dom{number}" for number in DOMAINS)], rows)


def main() -> None:
    """Writes the page."""
    lab = Lab("rt_xen", seeds=1, quick=False, progress=None)
    parts = [HEAD]
    most = int(os.environ.get("SEEDS", "60"))
    for what, all_seeds in SEEDS.items():
        seeds = all_seeds[:most]
        found = measured(lab, seeds)
        parts.append(
            f"\n## {len(seeds)} task sets {what}\n\nSeeds {seeds[0]} to {seeds[-1]}. Jobs that"
            " missed their deadline, in percent:\n"
        )
        parts += [misses(found), "\nContext switches a second:\n", switches(found)]
    parts.append(
        "\n## Isolation\n\nThe even pattern at a load of"
        f" {ISOLATION_LOAD} %, with domain 3 as planned, and overloaded as in RT-Xen's table 2.\n"
        "Jobs that missed their deadline, in percent, of the task sets"
        f" {SEEDS['not used before'][0]} to {SEEDS['not used before'][:most][-1]}:\n"
    )
    parts.append(isolation(lab, SEEDS["not used before"][:most]))
    PAGE.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
