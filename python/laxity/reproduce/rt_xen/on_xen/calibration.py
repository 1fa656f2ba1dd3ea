"""The simulator's costs, from what was measured on Xen; and whether they hold where they were not
measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity.reproduce.rt_xen.on_xen import costs, fidelity
from laxity.reproduce.rt_xen.on_xen.boots import NoRunError, try_row
from laxity.reproduce.rt_xen.on_xen.model import MEASURED, Calibration, Costs, Quantiles
from laxity.reproduce.rt_xen.on_xen.setup import policies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laxity.reproduce.rt_xen.on_xen.boots import Window, XenLab

METHOD = (
    "Costs of decisions and switches are those of Table 1's windows under"
    f" {', '.join(MEASURED)} (even share, load 70 %). What a job takes on top of its cost"
    " (interrupts, the kernel's own work, wakes) is fitted, so much for each job and so much for"
    " each nanosecond of cost, to what the domains of such a window ran longer on Xen than in the"
    " simulator with those costs. Checked on windows that were not used:"
    " those of Table 2 and Figure 6, of all policies. A row is reproduced if the calibrated"
    " simulator is on average at least as close to Xen as one without costs."
)


def windows(quick: bool) -> list[Window]:
    """Those that costs are calibrated on."""
    return [costs.event_driven(policy, quick=quick) for policy in MEASURED]


def derive(lab: XenLab) -> Calibration:
    """From the windows above. Raises NoRunError if one of them did not come to be."""
    found = {window.scheduler: lab.found(window) for window in windows(lab.quick)}
    measured = {}
    for policy in MEASURED:
        decision_ns, switch_ns = costs.measured(found[policy])
        measured[policy] = Costs(Quantiles.of(decision_ns), Quantiles.of(switch_ns), 0, 0.0)
    without_jobs = Calibration(tuple(measured.values()))
    for window in windows(lab.quick):
        agreement = lab.simulated(window, without_jobs).agreement
        job_ns, work_ratio = _on_top(agreement["domains"])
        measured[window.scheduler] = replace(
            measured[window.scheduler], job_ns=job_ns, work_ratio=work_ratio
        )
    return Calibration(tuple(measured.values()))


def _on_top(domains: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """What a job takes on top of its cost, in ns, and by the ns of its cost.

    Least squares over the domains of an agreement between the simulator and Xen; neither can be
    less than nothing, though a fit to few domains may say so.
    """
    known = [
        (sum(task["jobs"] for task in domain["tasks"]), domain["cpu_ns_a"]) for domain in domains
    ]
    longer_ns = [domain["cpu_ns_b"] - domain["cpu_ns_a"] for domain in domains]
    (job_ns, work_ratio), *_ = np.linalg.lstsq(np.array(known, float), np.array(longer_ns, float))
    return max(0, round(job_ns)), max(0.0, round(work_ratio, 5))


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
            f"{policy}: ns a decision; a switch; a job, and % of its cost, on top of that",
            "; ".join(
                f"median {cost.median:,}, 99 % {cost.p99:,}, most {cost.max:,}"
                for cost in (of_policy.schedule, of_policy.context_switch)
            )
            + f"; {of_policy.job_ns:,}, {100 * of_policy.work_ratio:.2f} %",
        )
        for policy, of_policy in zip(MEASURED, calibration.costs, strict=True)
    ]
