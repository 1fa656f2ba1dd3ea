"""Figure 3: how well the last runs of those ahead tell how long a VCPU will wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.soft_real_time.queues import STREAMS, Runs, traced
from laxity_reproduce.soft_real_time.setup import cpuload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab

WITHIN_US = 100
"""Differences are "approximately within" it, the paper says; ours are quartiles."""

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)

WAITS_MIN = 100

METHOD = (
    "Host file telephony.toml runs under A, cpuload, with 240 streams from the beginning, one"
    " seed and a trace of 10 s. The expected wait of a VCPU is, as in section 3.1, the sum of"
    " the last runs of the VCPUs that run on its CPU while it waits. The sum leaves out the rest"
    " of the run that is under way when the VCPU enters the queue, as in the paper. Each VCPU"
    f" that waited at least {WAITS_MIN} times has a row."
)


def differences_ns(
    domains: Mapping[str, Sequence[Runs]],
) -> dict[str, npt.NDArray[np.int64]]:
    """Actual less expected waits of each VCPU."""
    everybody = [runs for vcpus in domains.values() for runs in vcpus]
    started_ns = np.concatenate([runs.started_ns for runs in everybody])
    cpu = np.concatenate([runs.cpu for runs in everybody])
    # How long each had run before; nothing before the first time.
    lengths_ns = [runs.stopped_ns - runs.started_ns for runs in everybody]
    before_ns = np.concatenate([np.concatenate([[0], each])[:-1] for each in lengths_ns])
    on_cpu = {}
    for number in np.unique(cpu):
        mine = np.flatnonzero(cpu == number)
        mine = mine[np.argsort(started_ns[mine], kind="stable")]
        sums_ns = np.concatenate([[0], np.cumsum(before_ns[mine])])
        on_cpu[int(number)] = (started_ns[mine], sums_ns)
    found = {}
    for domain, vcpus in domains.items():
        for place, runs in enumerate(vcpus):
            expected_ns = np.zeros(runs.cpu.size, np.int64)
            for number, (starts_ns, sums_ns) in on_cpu.items():
                mine = runs.cpu == number
                upto = np.searchsorted(starts_ns, runs.started_ns[mine], side="left")
                since = np.searchsorted(starts_ns, runs.queued_ns[mine], side="left")
                expected_ns[mine] = sums_ns[upto] - sums_ns[np.minimum(since, upto)]
            name = f"{domain} {place}" if len(vcpus) > 1 else domain
            found[name] = runs.started_ns - runs.queued_ns - expected_ns
    return found


def figure_3(lab: Lab) -> Experiment:
    """Expected against actual waits."""
    duration = "3 s" if lab.quick else "10 s"
    domains = traced(cpuload("A", *STREAMS), duration, lab.seeds[0])
    lab.teller(1)(1)
    found = {
        name: each / 1000
        for name, each in differences_ns(domains).items()
        if each.size >= WAITS_MIN
    }
    rows, records = [], []
    for name, each in found.items():
        at = np.quantile(each, QUANTILES)
        low, high = float(at[1]), float(at[3])
        holds = max(-low, high) <= WITHIN_US
        rows.append(
            Row(
                f"{name}: quartiles of actual less expected wait, us",
                f"approximately within {WITHIN_US}",
                [low, high],
                verdict(holds=holds),
                "" if holds else "the cause was not measured",
            )
        )
        records += [
            {"vcpu": name, "quantile": quantile, "difference_us": float(value)}
            for quantile, value in zip(QUANTILES, at, strict=True)
        ]
    within = [100 * float(np.mean(np.abs(each) <= WITHIN_US)) for each in found.values()]
    measurement = Measurement(
        f"waits that are within {WITHIN_US} us of what was expected, %, by VCPU", within
    )
    title = "expected and actual waits"
    data = pd.DataFrame(records, columns=["vcpu", "quantile", "difference_us"])
    return Experiment("figure-3", title, METHOD, rows, [measurement], data, draw)


def draw(data: pd.DataFrame) -> Figure:
    """Figure 3."""
    from laxity_reproduce.soft_real_time import plots  # noqa: PLC0415 - Matplotlib, for those who draw

    return plots.waits(data, WITHIN_US)
