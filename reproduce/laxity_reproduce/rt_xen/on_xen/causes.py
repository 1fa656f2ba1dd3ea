"""Whether the causes of every late job on Xen sum to its lateness."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from laxity.why import why

from laxity_reproduce.reproduction import Experiment, Row, verdict
from laxity_reproduce.rt_xen.on_xen.boots import NoRunError, try_row
from laxity_reproduce.rt_xen.on_xen.setup import policies

if TYPE_CHECKING:
    from laxity_reproduce.rt_xen.on_xen.boots import XenLab
    from laxity_reproduce.rt_xen.on_xen.window import Window

CLOSE_NS = 1_000
"""How far the causes of a job may be from its lateness."""

UNEXPLAINED = ("idle", "blocked")
"""Causes that say what a VCPU did and not for whom."""

METHOD = (
    "`laxity why` explains every late job of every window of Table 2 and Figure 6, from what Xen"
    " recorded. Values are numbers of late jobs, which the paper does not state. A row is"
    " reproduced if there are any, and the causes of each sum to its lateness within"
    f" {CLOSE_NS // 1000} us."
    " The part of the lateness is told as well that no policy and no task accounts for: the VCPU"
    " could have run while its CPU was idle, or its guest had not noticed that a job was due."
)

COLUMNS = ["window", "scheduler", "late_jobs", "late_ns", "off_ns_max", "unexplained_ns"]


def judge(lab: XenLab, windows: list[Window]) -> Experiment:
    """The causes of all late jobs, policy by policy."""
    rows = []
    frame = pd.DataFrame([row for window in windows if (row := _row(lab, window))], columns=COLUMNS)

    def sums(what: str, of_policy: list[Window]) -> Row:
        for window in of_policy:
            lab.found(window)
        found = frame[frame["window"].isin([window.name for window in of_policy])]
        if not found["late_jobs"].sum():
            return Row(what, None, 0.0, "differs", "no job was late: nothing was explained")
        late_ns, off_ns = int(found["late_ns"].sum()), int(found["off_ns_max"].max())
        unexplained = 100 * found["unexplained_ns"].sum() / late_ns
        return Row(
            what,
            None,
            float(found["late_jobs"].sum()),
            verdict(holds=off_ns <= CLOSE_NS),
            "" if off_ns <= CLOSE_NS else "the causes of a job do not sum to its lateness",
            f"furthest off: {off_ns} ns; without an account: {unexplained:.2g} %",
        )

    for policy in policies(lab.quick):
        of_policy = [window for window in windows if window.scheduler == policy]
        rows.append(try_row(f"{policy}: late jobs", None, sums, of_policy))
    return Experiment("why", "causes of late jobs on Xen", METHOD, rows, [], frame)


def _row(lab: XenLab, window: Window) -> list[object] | None:
    """What became of a window's late jobs; None if it did not run."""
    try:
        trace = lab.found(window).trace
    except NoRunError:
        return None
    late = why(trace).late
    return [
        window.name,
        window.scheduler,
        len(late),
        sum(job.late_ns for job in late),
        max((abs(sum(c.ns for c in job.causes) - job.late_ns) for job in late), default=0),
        sum(c.ns for job in late for c in job.causes if c.cause in UNEXPLAINED),
    ]
