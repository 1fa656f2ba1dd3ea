"""The simulator's costs, from what was measured on Xen; and whether they hold where they were not
measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen.on_xen import costs, fidelity
from laxity_reproduce.rt_xen.on_xen.boots import try_row
from laxity_reproduce.rt_xen.on_xen.model import MEASURED, Calibration, Costs, Quantiles
from laxity_reproduce.rt_xen.on_xen.setup import policies

if TYPE_CHECKING:
    from laxity_reproduce.rt_xen.on_xen.boots import XenLab
    from laxity_reproduce.rt_xen.on_xen.window import Window

METHOD = (
    "Costs of decisions and switches are measured in Table 1's windows under"
    f" {', '.join(MEASURED)} (even share, load 70 %); the profile `xen-lab` has them. What is known"
    " of the lab, this profile and what guests take, is checked on windows that were used for"
    " neither, those of Table 2 and Figure 6 under all policies. A row is reproduced if the"
    " simulator with what is known is on average at least as close to Xen as one without costs."
)


def windows(quick: bool) -> list[Window]:
    """Those that costs are calibrated on."""
    return [costs.event_driven(policy, quick=quick) for policy in MEASURED]


def derive(lab: XenLab) -> Calibration:
    """From the windows above. Raises NoRunError if one of them did not come to be."""
    measured = (costs.measured(lab.found(window)) for window in windows(lab.quick))
    return Calibration(
        tuple(
            Costs(Quantiles.of(decision_ns), Quantiles.of(switch_ns))
            for decision_ns, switch_ns in measured
        )
    )


def judge(lab: XenLab, calibration: Calibration | str, checked: list[Window]) -> Experiment:
    """Whether the simulator with what is known of the lab is closer to Xen than without costs.

    `calibration` may be the reason why there is none.
    """

    def mean(policy: str, what: str, *, with_costs: bool) -> float:
        found = [
            lab.simulated(window, with_costs=with_costs)
            for window in checked
            if window.scheduler == policy
        ]
        values = [
            each.largest_difference if what == "points" else 100 * each.agreement["same_ratio"]
            for each in found
        ]
        return sum(values) / len(values)

    def both(policy: str, what: str) -> tuple[float, float]:
        """Without costs, and with what is known."""
        return mean(policy, what, with_costs=False), mean(policy, what, with_costs=True)

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
        _costs(calibration),
        fidelity.distances(lab, checked),
    )


def _further(by: float, unit: str) -> str:
    return f"further by {by:.2g} {unit}"


def _costs(calibration: Calibration | str) -> list[Measurement]:
    if isinstance(calibration, str):
        return [Measurement("cost of a decision; of a switch", "not measured", calibration)]
    return [
        Measurement(
            f"{policy}: cost of a decision; of a switch, ns",
            "; ".join(
                f"median {cost.median:,}, 99 % {cost.p99:,}, most {cost.max:,}"
                for cost in (of_policy.schedule, of_policy.context_switch)
            ),
        )
        for policy, of_policy in zip(MEASURED, calibration.costs, strict=True)
    ]
