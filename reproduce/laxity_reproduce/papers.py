"""The papers, their experiments, and where each can be run: simulated, on Xen, on Linux."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import substrates
from laxity.errors import InputError
from laxity.progress import silent

from laxity_reproduce import published
from laxity_reproduce.availability import fitted, media, register
from laxity_reproduce.availability import on_linux as availability_on_linux
from laxity_reproduce.bandwidth import beyond as bandwidth_beyond
from laxity_reproduce.bandwidth import memory, period, throughput
from laxity_reproduce.bandwidth import on_linux as bandwidth_on_linux
from laxity_reproduce.bandwidth import on_xen as bandwidth_on_xen
from laxity_reproduce.lab import PROGRESS_STEPS, Lab
from laxity_reproduce.reproduction import Experiment, Measurement, Reproduction, Row
from laxity_reproduce.rt_xen import figure_5, figure_6, on_kvm, table_1, table_2, table_4
from laxity_reproduce.rt_xen.on_xen import experiments as on_xen
from laxity_reproduce.soft_real_time import (
    beyond,
    expected,
    latency,
    queues,
    shared_caches,
    voice_quality,
)
from laxity_reproduce.telephony import mixed, network, turnkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laxity.progress import Say
    from laxity.workers.workers import Workers

    from laxity_reproduce.lab import Progress

__all__ = [
    "PAPERS",
    "Experiment",
    "Measurement",
    "Reproduction",
    "Row",
    "run",
]


@dataclass(frozen=True)
class _Planned:
    run: Callable[[Lab], Experiment]
    part: float
    """The part of the time that all experiments of the paper take, roughly."""


@dataclass(frozen=True)
class _Measured:
    """Experiments of a paper on a substrate that measures."""

    experiments: tuple[str, ...]
    run: Callable[[str | None, bool, Say], Reproduction]
    """Runs one experiment, or all, perhaps in a hurry."""
    no_seeds: str
    """Why no seeds can be chosen."""


@dataclass(frozen=True)
class _Paper:
    experiments: dict[str, _Planned]
    """In the paper's order."""
    seeds: int
    """At each point, where the paper ran once."""
    seeds_quick: int


PAPERS: dict[str, _Paper] = {
    "rt-xen": _Paper(
        {
            "figure-5": _Planned(figure_5.run, 0.06),
            "table-1": _Planned(table_1.run, 0.01),
            "table-2": _Planned(table_2.run, 0.04),
            "table-4": _Planned(table_4.run, 0.02),
            "figure-6": _Planned(figure_6.run, 0.87),
        },
        seeds=100,
        seeds_quick=8,
    ),
    "telephony": _Paper(
        {
            "figure-6": _Planned(mixed.figure_6, 0.21),
            "figure-7": _Planned(mixed.figure_7, 0.22),
            "figure-8": _Planned(mixed.figure_8, 0.16),
            "figure-9": _Planned(network.figure_9, 0.17),
            "figure-10": _Planned(network.figure_10, 0.05),
            "figure-11": _Planned(turnkey.figure_11, 0.07),
            "figure-12": _Planned(turnkey.figure_12, 0.06),
            "figure-13": _Planned(turnkey.figure_13, 0.06),
        },
        seeds=5,
        seeds_quick=2,
    ),
    "soft-real-time": _Paper(
        {
            "figure-1": _Planned(voice_quality.figure_1, 0.15),
            "figure-3": _Planned(expected.figure_3, 0.02),
            "figure-8": _Planned(voice_quality.figure_8, 0.15),
            "figure-9": _Planned(voice_quality.figure_9, 0.05),
            "figure-10": _Planned(voice_quality.figure_10, 0.1),
            "figure-11": _Planned(queues.figure_11, 0.05),
            "figure-13": _Planned(voice_quality.figure_13, 0.15),
            "figure-14": _Planned(voice_quality.figure_14, 0.05),
            "figure-15": _Planned(voice_quality.figure_15, 0.05),
            "figure-16": _Planned(voice_quality.figure_16, 0.05),
            "figure-17": _Planned(latency.figure_17, 0.02),
            "section-5.6": _Planned(latency.section_5_6, 0.02),
            "figure-19": _Planned(shared_caches.figure_19, 0.1),
            "beyond": _Planned(beyond.beyond, 0.06),
        },
        seeds=3,
        seeds_quick=2,
    ),
    "bandwidth": _Paper(
        {
            "figure-3": _Planned(throughput.figure_3, 0.05),
            "figure-4": _Planned(throughput.figure_4, 0.15),
            "figure-6": _Planned(memory.figure_6, 0.39),
            "figure-7": _Planned(period.figure_7, 0.01),
            "oversubscribed": _Planned(bandwidth_beyond.oversubscribed, 0.1),
            "bursty": _Planned(bandwidth_beyond.bursty, 0.1),
            "joining": _Planned(bandwidth_beyond.joining, 0.1),
            "tcp": _Planned(bandwidth_beyond.tcp, 0.05),
            "liar": _Planned(bandwidth_beyond.liar, 0.05),
        },
        seeds=5,
        seeds_quick=2,
    ),
    "availability": _Paper(
        {
            "fitted": _Planned(fitted.fitted, 0.1),
            "figure-2": _Planned(register.figure_2, 0.15),
            "figure-3": _Planned(register.figure_3, 0.25),
            "figure-4": _Planned(media.figure_4, 0.4),
            "figure-5": _Planned(media.figure_5, 0.01),
            "calls": _Planned(media.calls, 0.19),
        },
        seeds=3,
        seeds_quick=2,
    ),
}
"""The papers by name."""


def run(
    paper: str,
    experiment: str | None = None,
    quick: bool = False,
    seeds: int | None = None,
    progress: Progress | None = None,
    *,
    on: str = substrates.NAMES[0],
    say: Say = silent,
    workers: Workers | None = None,
) -> Reproduction:
    """Runs all experiments of a paper, or one of them, on a substrate.

    Simulated ones run on all CPUs, each with `seeds` seeds: by default 100 in rt-xen, where each
    draws a task set (8 if `quick`), 5 in telephony and bandwidth and 3 in soft-real-time and
    availability (2 if `quick`). `progress(done, total)` is called a few times a second, and `say`
    is told what is going on where a run takes minutes. Raises InputError if there is no such paper
    or experiment, for less than two seeds, as intervals need two, or if the substrate lacks what it
    needs here.
    """
    if substrates.of(on).is_model:
        return _simulated(paper, experiment, quick, seeds, progress, workers)
    if workers is not None:
        raise InputError("workers only simulate", "leave --workers and --cluster out")
    label, of_substrate = substrates.of(on).label, MEASURED.get(on, {})
    if paper not in of_substrate:
        there = f"there are {' and '.join(of_substrate)}; " if of_substrate else ""
        raise InputError(
            f"there is no paper `{paper}` on {label} here",
            f"{there}`laxity run HOST --on {on}` runs a host",
        )
    measured = of_substrate[paper]
    if experiment is not None and experiment not in measured.experiments:
        raise InputError(
            f"{paper} has no experiment `{experiment}` on {label}",
            f"it has {', '.join(measured.experiments)}",
        )
    if seeds is not None:
        raise InputError(measured.no_seeds, "leave --seeds out")
    return measured.run(experiment, quick, say)


def _simulated(
    paper: str,
    experiment: str | None,
    quick: bool,
    seeds: int | None,
    progress: Progress | None,
    workers: Workers | None,
) -> Reproduction:
    if paper not in PAPERS:
        raise InputError(f"there is no paper `{paper}` here", f"there is {', '.join(PAPERS)}")
    plan_of_paper = PAPERS[paper]
    planned = plan_of_paper.experiments
    if experiment is not None and experiment not in planned:
        raise InputError(
            f"{paper} has no experiment `{experiment}` here", f"it has {', '.join(planned)}"
        )
    if seeds is None:
        seeds = plan_of_paper.seeds_quick if quick else plan_of_paper.seeds
    if seeds < 2:  # noqa: PLR2004 - see above
        raise InputError(
            f"{seeds} seeds give no interval", f"take at least 2, better {plan_of_paper.seeds}"
        )
    chosen = {name: plan for name, plan in planned.items() if experiment in (None, name)}
    lab = Lab(paper.replace("-", "_"), seeds=seeds, quick=quick, progress=progress, workers=workers)
    whole = sum(plan.part for plan in chosen.values())
    found, done = [], 0.0
    for plan in chosen.values():
        lab.part(done / whole, (done + plan.part) / whole)
        found.append(plan.run(lab))
        done += plan.part
    if progress is not None:
        progress(PROGRESS_STEPS, PROGRESS_STEPS)
    title: str = published.facts(lab.paper)["title"]
    return Reproduction(paper, title, seeds, quick, found)


def _on_linux(
    paper: str, experiments: Callable[..., list[Experiment]], names: Iterable[str]
) -> _Measured:
    """Makes what a module of real packets has."""

    def measure(experiment: str | None, quick: bool, say: Say) -> Reproduction:
        del say
        found = experiments(list(names) if experiment is None else [experiment], quick=quick)
        title: str = published.facts(paper)["title"]
        return Reproduction(paper, title, 1, quick, found, on="linux")

    return _Measured(tuple(names), measure, "real packets have no seeds")


def _rt_xen_on_xen(experiment: str | None, quick: bool, say: Say) -> Reproduction:
    return on_xen.reproduce(experiment, quick=quick, say=say)[0]


def _rt_xen_on_kvm(experiment: str | None, quick: bool, say: Say) -> Reproduction:
    return on_kvm.reproduce(experiment, quick=quick, say=say)


def _bandwidth_on_xen(experiment: str | None, quick: bool, say: Say) -> Reproduction:
    del experiment, quick
    with tempfile.TemporaryDirectory(prefix="laxity-xen.") as directory:
        found = bandwidth_on_xen.throughput(bandwidth_on_xen.measure(Path(directory), say))
    title: str = published.facts("bandwidth")["title"]
    return Reproduction("bandwidth", title, 1, quick=False, experiments=[found], on="xen")


MEASURED: dict[str, dict[str, _Measured]] = {
    "xen": {
        "rt-xen": _Measured(
            tuple(on_xen.WINDOWS), _rt_xen_on_xen, "the task sets on Xen are fixed"
        ),
        "bandwidth": _Measured(("figure-4",), _bandwidth_on_xen, "the senders on Xen are fixed"),
    },
    "kvm": {
        "rt-xen": _Measured(on_kvm.EXPERIMENTS, _rt_xen_on_kvm, "the task sets on KVM are fixed"),
    },
    "linux": {
        "bandwidth": _on_linux(
            "bandwidth", bandwidth_on_linux.experiments, bandwidth_on_linux.EXPERIMENTS
        ),
        "availability": _on_linux(
            "availability", availability_on_linux.experiments, availability_on_linux.EXPERIMENTS
        ),
    },
}
"""The papers that can be measured on each substrate that is no model."""
