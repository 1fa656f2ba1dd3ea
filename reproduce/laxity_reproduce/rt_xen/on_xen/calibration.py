"""The simulator's costs, from what was measured on Xen; and whether they hold where they were not
measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen.on_xen import costs, fidelity, guests
from laxity_reproduce.rt_xen.on_xen.boots import NoRunError, try_row
from laxity_reproduce.rt_xen.on_xen.model import MEASURED, Calibration, Costs, Quantiles
from laxity_reproduce.rt_xen.on_xen.setup import policies

if TYPE_CHECKING:
    from laxity_reproduce.rt_xen.on_xen.boots import XenLab
    from laxity_reproduce.rt_xen.on_xen.window import Window

METHOD = (
    f"Costs of decisions and switches are those of Table 1's windows under {', '.join(MEASURED)}"
    " (even share, load 70 %). The cost of a tick of a guest's kernel is the median CPU time of"
    " idle guests that woke for one; guests report the times of their ticks. The overhead of a"
    " job (interrupts, the kernel's own work, wakes) is the CPU time that the domains of such a"
    " window took more on Xen than in the simulator with those costs, divided by the number of"
    " their jobs; each domain counts until it last had no job left in both. The costs are"
    " checked on windows that were not used, those of Table 2 and Figure 6 under all policies. A"
    " row is reproduced if the calibrated simulator is on average at least as close to Xen as"
    " one without costs."
)


def windows(quick: bool) -> list[Window]:
    """Those that costs are calibrated on."""
    return [costs.event_driven(policy, quick=quick) for policy in MEASURED]


def derive(lab: XenLab) -> Calibration:
    """From the windows above. Raises NoRunError if one of them did not come to be."""
    measured = []
    for window in windows(lab.quick):
        found = lab.found(window)
        decision_ns, switch_ns = costs.measured(found)
        tick_ns = guests.tick_costs_ns(found.trace, found.ticks)
        of_policy = Costs(
            Quantiles.of(decision_ns),
            Quantiles.of(switch_ns),
            0,
            Quantiles.of(tick_ns).median if tick_ns else 0,
        )
        job_ns = lab.job_cost_ns(window, of_policy)
        measured.append(replace(of_policy, job_ns=max(0, job_ns)))
    return Calibration(tuple(measured))


def judge(lab: XenLab, calibration: Calibration | str | None, checked: list[Window]) -> Experiment:
    """Whether the calibrated simulator is closer to Xen, on windows it was not calibrated on.

    `calibration` may be the reason why there is none.
    """

    def mean(policy: str, what: str, of: Calibration | None) -> float:
        found = [lab.simulated(window, of) for window in checked if window.scheduler == policy]
        values = [
            each.largest_difference if what == "points" else 100 * each.agreement["same_ratio"]
            for each in found
        ]
        return sum(values) / len(values)

    def both(policy: str, what: str) -> tuple[float, float]:
        """Without costs, and calibrated."""
        if not isinstance(calibration, Calibration):
            raise NoRunError(calibration)
        return mean(policy, what, None), mean(policy, what, calibration)

    def points(what: str, policy: str) -> Row:
        before, after = both(policy, "points")
        holds = after <= before
        return Row(
            what,
            f"without costs {before:.2f}",
            round(after, 2),
            verdict(holds=holds),
            "" if holds else _further(after - before, "points"),
        )

    def same(what: str, policy: str) -> Row:
        before, after = both(policy, "same")
        holds = after >= before
        return Row(
            what,
            f"without costs {before:.2f}",
            round(after, 2),
            verdict(holds=holds),
            "" if holds else _further(before - after, "points"),
        )

    rows = []
    for policy in policies(lab.quick):
        rows += [
            try_row(
                f"{policy}: largest difference of a domain's miss ratio, mean over windows, points",
                None,
                points,
                policy,
            ),
            try_row(f"{policy}: time in which both run the same VCPU, mean, %", None, same, policy),
        ]
    return Experiment(
        "calibration",
        "the simulator's costs, measured",
        METHOD,
        rows,
        _costs(calibration) if isinstance(calibration, Calibration) else [],
        fidelity.distances(lab, checked),
    )


def _further(by: float, unit: str) -> str:
    return f"further by {by:.2g} {unit}"


def _costs(calibration: Calibration) -> list[Measurement]:
    return [
        Measurement(
            f"{policy}: cost of a decision; of a switch; overhead of a job; cost of a tick, ns",
            "; ".join(
                f"median {cost.median:,}, 99 % {cost.p99:,}, most {cost.max:,}"
                for cost in (of_policy.schedule, of_policy.context_switch)
            )
            + f"; {of_policy.job_ns:,}; {of_policy.tick_ns:,}",
        )
        for policy, of_policy in zip(MEASURED, calibration.costs, strict=True)
    ]
