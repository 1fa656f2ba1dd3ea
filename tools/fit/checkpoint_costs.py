"""Fits five costs of protection, each to a number that the paper on availability states.

    .venv/bin/python tools/fit/checkpoint_costs.py [--seeds N] [--rounds N]

They are `laxity_reproduce.availability.fitted.FITS`. One after the other is moved to where the
straight line through two measurements meets what is stated, the others as they stand; after a few
rounds none moves. What it finds is printed, and goes into the host files (and `setup.FACTOR`) by
hand: into both, where both have it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from laxity_reproduce.availability.fitted import FITS, value
from laxity_reproduce.availability.setup import run
from laxity_reproduce.lab import Lab

if TYPE_CHECKING:
    from laxity_reproduce.availability.fitted import Fit

STEP = 1.15
"""From a measurement to the second one, times."""


def main() -> None:
    """Searches, and prints where it is after every move."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lab = Lab("availability", seeds=arguments.seeds, quick=False, progress=None)
    found = {fit.where: value(lab, fit) for fit in FITS}

    def measured(fit: Fit, tried: float) -> float:
        values = {**found, fit.where: tried}
        has_work = fit.host == "signalling"
        overrides = [
            f'{key}="{round(ns)} ns"'
            for key, ns in values.items()
            if key != "factor" and (has_work or not key.startswith("domain."))
        ]
        points = {fit.to: [*overrides, *fit.overrides]}
        (point,) = run(lab, fit.host, points, factor=values["factor"]).values()
        return fit.of(point)

    for _ in range(arguments.rounds):
        for fit in FITS:
            here = found[fit.where]
            at_here, at_there = measured(fit, here), measured(fit, STEP * here)
            slope = (at_there - at_here) / (STEP * here - here)
            # A loss may be none yet; and far away the line is not straight.
            moved = here + (fit.stated - at_here) / slope if slope > 0 else STEP * here
            found[fit.where] = min(max(moved, here / 2), 2 * here)
            print(
                f"{fit.what}: {here:,.6g} gives {at_here:.2f} ({fit.stated:g});"
                f" next {found[fit.where]:,.6g}",
                flush=True,
            )


if __name__ == "__main__":
    main()
