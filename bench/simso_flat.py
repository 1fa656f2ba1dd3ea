"""SimSo on a flat host: the same tasks on one CPU under fixed priorities."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of setuptools' pkg_resources, which SimSo imports
    from simso.configuration import Configuration
    from simso.core import Model

if TYPE_CHECKING:
    from laxity.resolved_schema import ResolvedHost

CYCLES_PER_MS = 1_000
"""SimSo is faster with fewer; with these, all times of a drawn host are whole numbers."""


def speed(host: ResolvedHost) -> float:
    """Model seconds a second, of a resolved host; setting SimSo up does not count."""
    configuration = Configuration()
    configuration.cycles_per_ms = CYCLES_PER_MS
    configuration.duration = host["duration_ns"] * CYCLES_PER_MS // 1_000_000
    configuration.etm = "wcet"
    for number, task in enumerate(host["domains"][0]["tasks"]):
        configuration.add_task(
            name=task["name"],
            identifier=number,
            period=task["period_ns"] / 1e6,
            activation_date=task["offset_ns"] / 1e6,
            wcet=task["cost_ns"] / 1e6,
            deadline=task["deadline_ns"] / 1e6,
            abort_on_miss=False,
        )
    configuration.add_processor(name="cpu", identifier=0)
    configuration.scheduler_info.clas = "simso.schedulers.RM_mono"
    configuration.check_all()
    model = Model(configuration)
    start = time.perf_counter()
    model.run_model()
    return float(host["duration_ns"] / 1e9 / (time.perf_counter() - start))
