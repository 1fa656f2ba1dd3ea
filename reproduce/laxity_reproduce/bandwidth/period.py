"""The paper's scenario at one period after the other; figure 7: the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from laxity_reproduce.bandwidth import plots
from laxity_reproduce.bandwidth.setup import (
    FACTS,
    REGIMES,
    Regime,
    loss_percent,
    run,
    scenario,
    the_papers,
)
from laxity_reproduce.bandwidth.throughput import LOSS_TOLERANCE, METHOD, least_loss_percent
from laxity_reproduce.published import percentages
from laxity_reproduce.reproduction import Experiment, Row, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab

PERIODS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PERIODS_QUICK_MS = (10, 100, 1000)
HELD: tuple[Regime, ...] = ("paper", "tree", "single")


def periods_ms(lab: Lab) -> tuple[int, ...]:
    """The periods that are tried."""
    return PERIODS_QUICK_MS if lab.quick else PERIODS_MS


def by_period(lab: Lab) -> dict[tuple[Regime, int], pd.DataFrame]:
    """The paper's scenario by who divides the link and at which period; run once for all."""
    if "by period" not in lab.known:
        order = [(regime, period_ms) for regime in HELD for period_ms in periods_ms(lab)]
        scenarios = [
            scenario(the_papers(), regime, sharing="by-class", period_ms=period_ms)
            for regime, period_ms in order
        ]
        runs = run(lab, scenarios, FACTS["run_s"])
        lab.known["by period"] = dict(zip(order, runs, strict=True))
    found: dict[tuple[Regime, int], pd.DataFrame] = lab.known["by period"]
    return found


def figure_7(lab: Lab) -> Experiment:
    """How often must it look?"""
    facts = FACTS["figure_7"]
    periods = periods_ms(lab)
    losses = {point: loss_percent(data) for point, data in by_period(lab).items()}
    smallest: int = FACTS["smallest_useful_period_ms"]
    short = [losses["tree", period_ms] for period_ms in periods if period_ms < smallest]
    long = [losses["tree", period_ms] for period_ms in periods if period_ms >= smallest]
    least = least_loss_percent()
    near = max(abs(loss - least) for loss in long) <= LOSS_TOLERANCE
    high = min(short) > least + LOSS_TOLERANCE
    rows = [
        Row(
            f"class 1 loss with periods below {smallest} ms, %",
            facts["short"],
            [round(loss, 2) for loss in short],
            verdict(holds=high),
            ""
            if high
            else (
                "the paper's daemon consumed much CPU at short periods, which cost throughput."
                " In the model a look costs nothing; `--on linux` measures its cost"
            ),
        ),
        Row(
            f"class 1 loss with periods of {smallest} ms and more, %",
            facts["long"],
            [round(loss, 2) for loss in long],
            verdict(holds=near),
            "" if near else "it takes some looks to find out what VM 1 wants, and each is later",
        ),
    ]
    rows_of = [
        {"panel": "Class 1", "unit": "loss (%)", "line": REGIMES[regime], "period_ms": period_ms}
        | {"value": loss}
        for (regime, period_ms), loss in losses.items()
    ]
    return Experiment(
        "figure-7",
        "loss against the period",
        METHOD,
        rows,
        [],
        pd.DataFrame(rows_of),
        draw,
    )


def draw(data: pd.DataFrame) -> Figure:
    """Figure 7, with the loss that the paper states for long periods."""
    return plots.against_the_period(data, percentages(FACTS["figure_7"]["long"])[0])
