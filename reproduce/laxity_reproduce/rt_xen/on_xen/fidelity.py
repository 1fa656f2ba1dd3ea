"""How far the simulator is from real Xen, event by event: who ran when, and when jobs completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen.on_xen import apart
from laxity_reproduce.rt_xen.on_xen.boots import NoRunError, try_row
from laxity_reproduce.rt_xen.on_xen.setup import CLOSE_POINTS, policies

if TYPE_CHECKING:
    from pathlib import Path

    from laxity_reproduce.rt_xen.on_xen.boots import XenLab
    from laxity_reproduce.rt_xen.on_xen.window import Window

METHOD = (
    "Every window of Table 2 and Figure 6 is compared with the simulator's run of the same host:"
    " with what is known of the lab, as `laxity fidelity` takes it, and without any costs. What is"
    " known was measured and fitted on other hosts (`tools/fit`): decisions, switches and late"
    " timers of the hypervisor, and what a guest takes for an interrupt, a tick and the wake of a"
    " task. The phases of ticks, periods and accounting, and the order in which guests wake at one"
    " instant, are those of the run on Xen. The share of time with the same VCPU is that in which"
    " the CPU runs the same VCPU in both, or is idle in both, at times that are not shifted. The"
    " difference between completions is that between the times at which a job was complete in both."
    " A row is reproduced if in each window the miss ratio of each domain on Xen is within"
    f" {CLOSE_POINTS:g} points of the simulator's with what is known. The sensitivity to"
    " microseconds is measured in the simulator alone, with the wakes of all tasks 1 or 2 us longer"
    f" or shorter. Where its own miss ratios change by more than {CLOSE_POINTS:g} points, it cannot"
    " be expected to be as close to Xen, whose wakes it does not know to the microsecond."
)

NS_A_US = 1000

NUDGED = "all wakes a microsecond or two longer or shorter"

COLUMNS = [
    *("window", "scheduler", "domain", "jobs", "missed_xen", "missed_sim"),
    *("miss_percent_xen", "miss_percent_sim"),
]


def why_apart(lab: XenLab, window: Window) -> str:
    """What there is to see where the two differ most."""
    compared = lab.beside(window)
    agreement = compared.agreement
    number = int(np.argmax(np.abs(compared.differences)))
    domain = agreement["domains"][number]
    tasks = domain["tasks"]
    only_xen = sum(task["missed_only_b"] for task in tasks)
    only_sim = sum(task["missed_only_a"] for task in tasks)
    jobs = sum(task["jobs"] for task in tasks)
    extra_us = (domain["cpu_ns_b"] - domain["cpu_ns_a"]) / NS_A_US
    return (
        f"{domain['name']}: {only_xen} of {jobs} jobs are late on Xen only and {only_sim} in the"
        f" simulator only; its CPU time on Xen differs by {extra_us:+,.0f} us; both run the same"
        f" VCPU {100 * agreement['same_ratio']:.1f} % of the time; in the simulator alone its"
        f" miss ratio changes by up to {lab.sensitivity(window)[number]:.1f} points with"
        f" {NUDGED}{_of_policy(window, lab.found(window).trace, number)}"
    )


def _of_policy(window: Window, trace: Path, domain: int) -> str:
    """What is known to part the two under some policies, as the end of a sentence."""
    if window.scheduler == "polling" and (dropped := apart.budgets_before_wakes(trace, domain)):
        return (
            "; on Xen its budget came before it woke for a job due at the same instant, and was"
            f" dropped, {dropped} times"
        )
    if window.scheduler == "sporadic" and (late_ns := apart.late_ends_ns(trace)):
        return (
            f"; on Xen {len(late_ns):,} turns ended by a timer,"
            f" {np.median(late_ns) / NS_A_US:.1f} us late (median), and under sporadic each"
            " replenishment is late by as much from then on"
        )
    return ""


def frame(lab: XenLab, windows: list[Window]) -> pd.DataFrame:
    """A row a window and domain; windows without a run have none."""
    rows = []
    for window in windows:
        try:
            compared = lab.beside(window)
        except NoRunError:
            continue
        rows += [
            {
                "window": window.name,
                "scheduler": window.scheduler,
                "domain": real.name,
                "jobs": real.jobs,
                "missed_xen": real.missed,
                "missed_sim": simulated.missed,
                "miss_percent_xen": 100 * real.miss_ratio,
                "miss_percent_sim": 100 * simulated.miss_ratio,
            }
            for simulated, real in zip(compared.sim.domains, compared.xen.domains, strict=True)
        ]
    return pd.DataFrame(rows, columns=COLUMNS)


def distances(lab: XenLab, windows: list[Window]) -> pd.DataFrame:
    """How far apart the two are: a row a window, with what is known and without costs."""
    rows = []
    for window in windows:
        for with_costs in (False, True):
            try:
                compared = lab.simulated(window, with_costs=with_costs)
            except NoRunError:
                continue
            agreement = compared.agreement
            rows.append(
                {
                    "window": window.name,
                    "scheduler": window.scheduler,
                    "with_costs": with_costs,
                    "same_ratio": agreement["same_ratio"],
                    "best_ratio": agreement["best_ratio"],
                    "best_shift_ns": agreement["best_shift_ns"],
                    "points": compared.largest_difference,
                    **{
                        f"completion_{quantile}_ns": agreement["completion_difference_ns"][quantile]
                        for quantile in ("p50", "p90", "p99", "max")
                    },
                }
            )
    return pd.DataFrame(rows)


def judge(lab: XenLab, windows: list[Window]) -> Experiment:
    """The distance, for each policy."""
    data = distances(lab, windows)

    def row(what: str, policy: str) -> Row:
        of_policy = [window for window in windows if window.scheduler == policy]
        points = [lab.beside(window).largest_difference for window in of_policy]
        close = sum(point <= CLOSE_POINTS for point in points)
        worst = max(of_policy, key=lambda each: lab.beside(each).largest_difference)
        return Row(
            what,
            f"at most {CLOSE_POINTS:g}",
            round(max(points), 2),
            verdict(holds=close == len(points)),
            why_apart(lab, worst) if close < len(points) else "",
            f"{close} of {len(points)} windows",
        )

    return Experiment(
        "fidelity",
        "the simulator beside real Xen",
        METHOD,
        [
            try_row(
                f"{policy}: largest difference of a domain's miss ratio, points", None, row, policy
            )
            for policy in policies(lab.quick)
        ],
        [
            line
            for policy in policies(lab.quick)
            for with_costs in (True, False)
            for line in _distance(data, policy, with_costs=with_costs)
        ]
        + [line for policy in policies(lab.quick) for line in _sensitivity(lab, windows, policy)],
        data,
    )


def _sensitivity(lab: XenLab, windows: list[Window], policy: str) -> list[Measurement]:
    """How much hangs on the costs, by the policy's windows in the simulator alone."""
    points = []
    for window in windows:
        if window.scheduler == policy:
            try:
                points.append(max(lab.sensitivity(window)))
            except NoRunError:
                continue
    if not points:
        return []
    return [
        Measurement(
            f"{policy}, the simulator alone: change of a domain's miss ratio with {NUDGED}, points",
            f"{np.mean(points):.2f} on average, {max(points):.2f} at most",
            f"{sum(point > CLOSE_POINTS for point in points)} of {len(points)} windows above"
            f" {CLOSE_POINTS:g}",
        )
    ]


def _distance(data: pd.DataFrame, policy: str, *, with_costs: bool) -> list[Measurement]:
    """How far simulator and Xen are apart in the policy's windows."""
    chosen = (
        data[(data.scheduler == policy) & (data.with_costs == with_costs)] if len(data) else data
    )
    if not len(chosen):
        return []
    costs = "with what is known" if with_costs else "without costs"
    same = 100 * chosen.same_ratio
    medians = {
        quantile: chosen[f"completion_{quantile}_ns"].median() / NS_A_US
        for quantile in ("p50", "p90", "p99")
    }
    return [
        Measurement(
            f"{policy}, {costs}: time in which both run the same VCPU, %",
            f"{same.mean():.1f} on average, {same.min():.1f} at least",
            f"of {len(chosen)} windows; {100 * chosen.best_ratio.mean():.1f} with the best shift",
        ),
        Measurement(
            f"{policy}, {costs}: difference between completions, us",
            ", ".join(f"{quantile} {value:,.0f}" for quantile, value in medians.items()),
            "medians over windows",
        ),
    ]
