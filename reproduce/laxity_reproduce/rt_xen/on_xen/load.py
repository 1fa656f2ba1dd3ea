"""A slice of Figure 6 on Xen: miss ratios at three loads, under three patterns of shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from laxity_reproduce.reproduction import Experiment, Measurement, Row, shown, verdict
from laxity_reproduce.rt_xen import figure_6
from laxity_reproduce.rt_xen.on_xen.boots import try_row
from laxity_reproduce.rt_xen.on_xen.fidelity import frame, why_apart
from laxity_reproduce.rt_xen.on_xen.setup import (
    CLOSE_POINTS,
    SEED,
    event_driven,
    listed,
    pattern_overrides,
    policies,
    window,
)
from laxity_reproduce.rt_xen.setup import FACTS, PATTERNS

if TYPE_CHECKING:
    from laxity_reproduce.rt_xen.on_xen.boots import XenLab
    from laxity_reproduce.rt_xen.on_xen.window import Window

LOADS = (70, 85, 100)
"""Percent."""

METHOD = (
    "Host files decreasing.toml, even.toml and increasing.toml run with the task set of seed 1,"
    " scaled to each load. Servers are event-driven, where the paper's tick every 1 ms; credit"
    " has a time slice of 1 ms. Values are the miss ratios of domains 1 to 5 in percent. The"
    " paper shows its curves only as a picture; its statements stand below. A row is reproduced"
    f" if the ratio of every domain on Xen is within {CLOSE_POINTS:g} points of the simulator's,"
    " with what is known of the lab (see fidelity)."
)


def points(quick: bool) -> list[tuple[str, int]]:
    """Patterns and loads."""
    if quick:
        return [("even", 70)]
    return [(pattern, load) for pattern in PATTERNS for load in LOADS]


def windows(quick: bool) -> list[Window]:
    """Each policy, pattern and load."""
    return [
        _window(policy, pattern, load, quick=quick)
        for policy in policies(quick)
        for pattern, load in points(quick)
    ]


def _window(policy: str, pattern: str, load: int, *, quick: bool) -> Window:
    overrides = [
        *event_driven(policy),
        *pattern_overrides(pattern),
        f"draw.load={load} %",
        f"seed={SEED}",
    ]
    name, what = f"figure-6-{policy}-{pattern}-{load}", f"{pattern}, {load} %, {policy}"
    return window(name, policy, overrides, quick=quick, what=what)


def judge(lab: XenLab) -> Experiment:
    """Xen beside the simulator."""

    def row(what: str, policy: str, pattern: str, load: int) -> Row:
        window = _window(policy, pattern, load, quick=lab.quick)
        compared = lab.beside(window)
        holds = compared.largest_difference <= CLOSE_POINTS
        simulated = listed([100 * domain.miss_ratio for domain in compared.sim.domains])
        return Row(
            what,
            None,
            listed([100 * domain.miss_ratio for domain in compared.xen.domains]),
            verdict(holds=holds),
            "" if holds else why_apart(lab, window),
            f"simulator: {shown(simulated)}; all domains {100 * compared.xen.miss_ratio:.2g}"
            f" and {100 * compared.sim.miss_ratio:.2g}",
        )

    return Experiment(
        "figure-6",
        "deadline miss ratio against load, on Xen",
        METHOD,
        [
            try_row(f"{pattern}, {load} %, {policy}", None, row, policy, pattern, load)
            for pattern, load in points(lab.quick)
            for policy in policies(lab.quick)
        ],
        [Measurement("as published", claim) for claim in FACTS["figure_6"]["claims"]],
        _data(lab),
        figure_6.draw,
    )


def _data(lab: XenLab) -> pd.DataFrame:
    """A row for every domain, as the figure takes it."""
    frames = [
        frame(lab, [_window(policy, pattern, load, quick=lab.quick)]).assign(
            policy=policy, pattern=pattern, load_percent=load, seed=SEED
        )
        for policy in policies(lab.quick)
        for pattern, load in points(lab.quick)
    ]
    return pd.concat(frames, ignore_index=True).rename(columns={"missed_xen": "missed"})
