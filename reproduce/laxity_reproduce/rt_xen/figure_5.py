"""Figure 5: from which utilization on does a domain miss deadlines, for each scheduling quantum?"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import pandas as pd

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen.setup import FACTS

if TYPE_CHECKING:
    from laxity import _core
    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab, Outcome

SHARE_PERCENT = 50
"""The share of domain 1: a budget of one quantum in two."""

PERIOD_MS = 100
"""The period of its task: 1 ms of cost is 1 % of utilization."""

RESOLUTION = 1
"""Percent: the paper's utilizations are this far apart, so a first miss is known this well."""

COST_STEP_NS = 50
"""The step to which the cost of a switch is searched for."""

METHOD = (
    "Host file quantum.toml has the costs of Table 1's profile. Domain 1, with a budget of one"
    " quantum and a period of two, runs one task, whose utilization goes from 1 to 50 % in steps"
    " of 1 %. A row is reproduced if the utilization of the first miss is within one step of the"
    " published one. The row of the shortest quantum is reproduced if the scheduler takes more"
    " of the CPU than both guests together."
)


def overrides(
    quantum_us: int,
    utilization: int,
    duration: str,
    *,
    switch_ns: int | None = None,
    own: float = 1.0,
) -> list[str]:
    """One point of a curve.

    `switch_ns` replaces the costs by this much a switch; the guest's jobs take `own` times as long
    as they should.
    """
    changes = [
        f"host.quantum={quantum_us} us",
        f"domain.dom1.budget={quantum_us} us",
        f"domain.dom1.period={2 * quantum_us} us",
        f"domain.dom2.budget={2 * quantum_us} us",
        f"domain.dom2.period={4 * quantum_us} us",
        f"domain.dom1.tasks.task.cost={round(utilization * own * 1000)} us",
        f"duration={duration}",
    ]
    if switch_ns is not None:
        changes.append(f'host.costs={{ schedule = "0 ns", context-switch = "{switch_ns} ns" }}')
    return changes


def own_work() -> float:
    """How much longer the guest's jobs must take to give the published first miss at 1 ms.

    There the costs of switches hardly count. A task whose jobs take so many times their cost fills
    the share of domain 1 where the paper saw the first miss, to half a step.
    """
    first: dict[str, int] = FACTS["figure_5"]["first_miss_at_utilization_percent"]
    longest = max(first, key=int)
    return SHARE_PERCENT / (first[longest] - RESOLUTION / 2)


def first_miss(points: list[tuple[int, Outcome]]) -> int | None:
    """The lowest utilization with a missed deadline in domain 1."""
    return min((utilization for utilization, run in points if run.missed[0]), default=None)


def run(lab: Lab) -> Experiment:
    """Runs all quanta, then looks for costs that would explain the published points."""
    facts = FACTS["figure_5"]
    published_first: dict[int, int] = {
        int(quantum): first for quantum, first in facts["first_miss_at_utilization_percent"].items()
    }
    duration = "3 s" if lab.quick else "60 s"
    host = lab.host("quantum")
    utilizations = range(1, SHARE_PERCENT + 1)
    rows, records = [], []
    for quantum_us in facts["quantum_us"]:
        tried = list(utilizations) if quantum_us in published_first else [1]
        runs = lab.runs(
            host, [overrides(quantum_us, percent, duration) for percent in tried], share=0.4
        )
        points = list(zip(tried, runs, strict=True))
        records += [_record(quantum_us, percent, outcome) for percent, outcome in points]
        if quantum_us in published_first:
            rows.append(_row(quantum_us, published_first[quantum_us], points))
        else:
            rows.append(_starved(quantum_us, runs[0]))
    measurements = _explain(lab, host, published_first, duration)
    why = (
        f"{measurements[0].what}: {measurements[0].ours}. {measurements[1].what}:"
        f" {measurements[1].ours}"
    )
    explained = [
        (
            row
            if row.verdict == "reproduced"
            else Row(row.what, row.published, row.ours, row.verdict, why)
        )
        for row in rows
    ]
    return Experiment(
        "figure-5",
        "impact of the quantum",
        METHOD,
        explained,
        measurements,
        pd.DataFrame(records),
        draw,
    )


def draw(data: pd.DataFrame) -> Figure:
    """Miss ratio against utilization, a line a quantum."""
    from laxity.plots import miss_ratios, published  # noqa: PLC0415 - Matplotlib, to draw

    several = data.groupby("quantum_us").filter(lambda points: len(points) > 1)
    return miss_ratios.miss_ratio_curves(
        several,
        "utilization_percent",
        "Utilization of domain 1 (%)",
        line="quantum_us",
        line_names={quantum: f"{quantum} µs" for quantum in several["quantum_us"].unique()},
        published=[
            published.Published(int(quantum), first, None)
            for quantum, first in FACTS["figure_5"]["first_miss_at_utilization_percent"].items()
        ],
    )


def _record(quantum_us: int, percent: int, outcome: Outcome) -> dict[str, float]:
    return {
        "quantum_us": quantum_us,
        "utilization_percent": percent,
        "jobs": outcome.jobs[0],
        "missed": outcome.missed[0],
        "loss_percent": 100 * outcome.loss_ratio,
    }


def _row(quantum_us: int, published: int, points: list[tuple[int, Outcome]]) -> Row:
    ours = first_miss(points)
    same = ours is not None and abs(ours - published) <= RESOLUTION
    what = f"quantum {quantum_us} us: first miss at utilization, %"
    return Row(what, float(published), ours, verdict(holds=same))


def _starved(quantum_us: int, outcome: Outcome) -> Row:
    lost = 100 * outcome.loss_ratio
    return Row(
        f"quantum {quantum_us} us: CPU time lost to the scheduler",
        "the guest cannot boot",
        f"{lost:.1f} %",
        verdict(holds=outcome.loss_ratio > 0.5),  # noqa: PLR2004 - half of the CPU
    )


def _explain(
    lab: Lab, host: _core.HostFile, published_first: dict[int, int], duration: str
) -> list[Measurement]:
    """The constant costs that would give the published first misses.

    That is, those at the longest and the shortest quantum; and what they give between.
    """
    shortest = min(published_first)
    own = own_work()

    def misses(quantum_us: int, percent: int, switch_ns: int, own: float) -> bool:
        point = overrides(quantum_us, percent, duration, switch_ns=switch_ns, own=own)
        return lab.runs(host, [point], share=0.1)[0].missed[0] > 0

    def dearest(own: float) -> int:
        """The least cost of a switch, ns, with which the shortest quantum misses as published."""
        first = published_first[shortest]
        candidates = range(0, shortest * 1000, COST_STEP_NS)
        found = bisect_left(
            candidates, x=True, key=lambda switch_ns: misses(shortest, first, switch_ns, own)
        )
        return candidates[found]

    def predicted(switch_ns: int, own: float) -> str:
        tried = range(published_first[shortest] // 2, SHARE_PERCENT + 1)
        firsts = []
        for quantum_us in published_first:
            points = [
                overrides(quantum_us, percent, duration, switch_ns=switch_ns, own=own)
                for percent in tried
            ]
            runs = lab.runs(host, points, share=0.3)
            firsts.append(first_miss(list(zip(tried, runs, strict=True))))
        return " / ".join("none" if first is None else str(first) for first in firsts)

    quanta = " / ".join(str(quantum) for quantum in published_first)
    paper = " / ".join(str(first) for first in published_first.values())
    found = []
    for factor, also in (
        (1.0, ""),
        (own, f", with {100 * (own - 1):.1f} % of the guest's own work on top"),
    ):
        switch_ns = dearest(factor)
        found.append(
            Measurement(
                f"cost of a switch that gives the published first miss at {shortest} us{also}",
                f"{switch_ns / 1000:.2f} us; it gives {predicted(switch_ns, factor)} % at {quanta}"
                f" us (published {paper} %)",
            )
        )
    found.append(
        Measurement(
            "parts of the cost model: do_schedule and the switch itself, as Table 1 measures them",
            "it leaves out timer interrupts and other work of the guest, entries into the"
            " hypervisor, and caches that a switch leaves cold",
        )
    )
    return found
