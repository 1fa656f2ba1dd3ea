"""Figures 1, 8 to 10 and 13 to 16: voice quality, and the work of C-Dom beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.soft_real_time.setup import (
    GOOD_PERCENT,
    METHOD,
    PINNED,
    Several,
    alike,
    better,
    cpuload,
    draw,
    draw_default,
    frame,
    good,
    measured,
    standard,
    state,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab

ALMOST_HALF = (40, 50)
"""Percent."""

ALMOST_TWICE = (75, 125)
"""Percent more: "almost 100 %", to a quarter."""

LAXITIES = ("10 us", "1 ms", "10 ms", "40 ms")
"""The paper's least and greatest, and two between them."""


def _experiment(
    name: str, title: str, found: Mapping[str, Several], rows: list[Row], *measurements: Measurement
) -> Experiment:
    drawn = draw_default if name == "figure-1" else draw
    return Experiment(name, title, METHOD, rows, list(measurements), frame(found), drawn)


def figure_1(lab: Lab) -> Experiment:
    """Credit: the standard configuration, CPU load, weight, pinning."""
    found = measured(
        lab,
        {
            "base-std": standard("credit"),
            "base-cpuload": cpuload("credit"),
            "base-std-1024w": standard("credit", "domain.media.weight=1024"),
            "pin-std": standard("credit", *PINNED),
        },
    )
    std = found["base-std"]
    low, high = ALMOST_HALF
    holds = low <= std.poor_percent <= high
    poor = Row(
        "base-std: calls below PESQ 4, %",
        "almost 50",
        std.poor_percent,
        verdict(holds=holds),
        "" if holds else state("base-std", std),
        std.spread(),
    )
    servers = std.cores("media") + std.cores("call") + std.cores("sip")
    used = Row(
        "base-std: CPUs that media and signalling use",
        "more than 1 of 4",
        servers,
        verdict(holds=1 < servers < 2),  # noqa: PLR2004 - "more than one"
        "used for calibration",
    )
    rows = [
        poor,
        better("base-std", "base-cpuload", found),
        alike("base-std-1024w", "base-std", found, "minimal benefit"),
        good("pin-std", found["pin-std"]),
        used,
    ]
    return _experiment("figure-1", "voice quality under credit", found, rows)


def figure_8(lab: Lab) -> Experiment:
    """All parts of S against the baseline and pinning."""
    found = measured(
        lab,
        {
            "base-std": standard("base"),
            "base-cpuload": cpuload("base"),
            "pin-std": standard("base", *PINNED),
            "pin-cpuload": cpuload("base", *PINNED),
            "ALL-std": standard("ALL"),
            "ALL-cpuload": cpuload("ALL"),
        },
    )
    base = found["base-cpuload"]
    rows = [
        alike("ALL-std", "pin-std", found, "matches"),
        Row(
            "base-cpuload: calls at PESQ 4 or better, %",
            "poor",
            base.toll_percent,
            verdict(holds=base.toll_percent < GOOD_PERCENT),
            "" if base.toll_percent < GOOD_PERCENT else state("base-cpuload", base),
            base.spread(),
        ),
        good("ALL-cpuload", found["ALL-cpuload"]),
    ]
    return _experiment("figure-8", "S against the baseline and pinning", found, rows)


def figure_9(lab: Lab) -> Experiment:
    """The work of the CPU-bound domain."""
    found = measured(
        lab, {"pin": cpuload("base", *PINNED), "credit": cpuload("credit"), "ALL": cpuload("ALL")}
    )
    work = {name: several.work("c-dom") for name, several in found.items()}
    more = 100 * (work["ALL"] / work["pin"] - 1)
    part = 100 * work["ALL"] / work["credit"]
    low, high = ALMOST_TWICE
    more_holds = low <= more <= high
    rows = [
        Row(
            "additional work of C-Dom under ALL, % of that beside pinned servers",
            "almost 100",
            more,
            verdict(holds=more_holds),
            ""
            if more_holds
            else "the paper does not say how many of the four CPUs it reserved, nor what Dom0"
            " used: here"
            f" pinning leaves C-Dom {work['pin']:.2f} CPUs and ALL {work['ALL']:.2f}",
        ),
        Row(
            "work of C-Dom under ALL, % of that under credit",
            "matches",
            part,
            verdict(holds=part >= GOOD_PERCENT),
            ""
            if part >= GOOD_PERCENT
            else "the media server gets more CPU time, and caches are refilled",
        ),
    ]
    data = pd.DataFrame(work.items(), columns=["configuration", "cpus"])
    return Experiment(
        "figure-9",
        "work completed by C-Dom",
        METHOD + " Work is CPU time less the time that cache misses take.",
        rows,
        [],
        data,
        draw_work,
    )


def draw_work(data: pd.DataFrame) -> Figure:
    """Bars, as figure 9."""
    from laxity.plots import style  # noqa: PLC0415 - Matplotlib, for those who draw

    return style.styled(_bars)(data)


def _bars(data: pd.DataFrame) -> Figure:
    from laxity.plots import style  # noqa: PLC0415 - as above

    figure = style.new_figure(2.6)
    axes = figure.subplots()
    axes.bar(data["configuration"], data["cpus"], width=0.5, color="#56b4e9")
    axes.set_ylabel("Work of C-Dom (CPUs)")
    axes.grid(visible=False, axis="x")
    return figure


def figure_10(lab: Lab) -> Experiment:
    """A: laxity."""
    found = measured(
        lab,
        {
            "base-std": standard("base"),
            "A-std": standard("A"),
            "base-cpuload": cpuload("base"),
            "A-cpuload": cpuload("A"),
        },
    )
    rows = [better(f"A-{load}", f"base-{load}", found) for load in ("std", "cpuload")]
    return _experiment("figure-10", "laxity", found, rows)


def figure_13(lab: Lab) -> Experiment:
    """Values of the laxity."""
    found = measured(
        lab,
        {
            f"{load} {laxity}": of("A", *_laxity(laxity))
            for load, of in (("std", standard), ("cpuload", cpuload))
            for laxity in LAXITIES
        }
        | {"std base": standard("base"), "cpuload base": cpuload("base")},
    )
    least, most = LAXITIES[0], LAXITIES[-1]
    rows = [
        good(f"std {least}", found[f"std {least}"]),
        alike(f"std {most}", "std base", found, "no effect"),
        alike(f"cpuload {most}", "cpuload base", found, "no effect"),
    ]
    return _experiment("figure-13", "values of the laxity", found, rows)


def _laxity(value: str) -> list[str]:
    return [f"domain.media.laxity={value}", f"domain.call.laxity={value}"]


def figure_14(lab: Lab) -> Experiment:
    """B: boost with event."""
    found = measured(
        lab,
        {
            "A-std": standard("A"),
            "AB-std": standard("AB"),
            "A-cpuload": cpuload("A"),
            "AB-cpuload": cpuload("AB"),
        },
    )
    claim = "some impact, not very significant"
    rows = [alike(f"AB-{load}", f"A-{load}", found, claim) for load in ("std", "cpuload")]
    return _experiment("figure-14", "boost with event", found, rows)


def figure_15(lab: Lab) -> Experiment:
    """L and LL: load balancing."""
    found = measured(
        lab,
        {
            f"{policy}-{load}": of(policy)
            for load, of in (("std", standard), ("cpuload", cpuload))
            for policy in ("A", "AL", "ALL")
        },
    )
    rows = [good("ALL-std", found["ALL-std"])]
    rows += [better(f"ALL-{load}", f"AL-{load}", found) for load in ("std", "cpuload")]
    return _experiment("figure-15", "load balancing", found, rows)


def figure_16(lab: Lab) -> Experiment:
    """I: infinite credit."""
    found = measured(
        lab,
        {
            "ALL-std": standard("ALL"),
            "AILL-std": standard("AILL"),
            "ALL-cpuload": cpuload("ALL"),
            "AILL-cpuload": cpuload("AILL"),
        },
    )
    claim = "no significant improvement"
    rows = [alike(f"AILL-{load}", f"ALL-{load}", found, claim) for load in ("std", "cpuload")]
    return _experiment("figure-16", "infinite credit", found, rows)
