"""Figures 19 and 20: two pairs of CPUs, each with a cache that it shares (section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity_reproduce.reproduction import Experiment
from laxity_reproduce.soft_real_time.setup import (
    METHOD,
    SHARED,
    better,
    cpuload,
    draw,
    frame,
    good,
    measured,
    standard,
)

if TYPE_CHECKING:
    from laxity_reproduce.lab import Lab


def figure_19(lab: Lab) -> Experiment:
    """The baseline and all of S."""
    found = measured(
        lab,
        {
            f"{policy}-{load}": of(policy, SHARED)
            for load, of in (("std", standard), ("cpuload", cpuload))
            for policy in ("base", "A", "AL", "ALL")
        },
    )
    rows = []
    for load in ("std", "cpuload"):
        rows += [
            better(f"ALL-{load}", f"base-{load}", found),
            good(f"ALL-{load}", found[f"ALL-{load}"]),
        ]
    title = "shared caches (figures 19 and 20)"
    return Experiment("figure-19", title, METHOD, rows, [], frame(found), draw)
