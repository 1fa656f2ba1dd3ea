"""Figures 3 and 4: what three virtual machines get over time, without and with an allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from laxity_reproduce.bandwidth import plots
from laxity_reproduce.bandwidth.setup import (
    FACTS,
    LINK_MBIT_S,
    PERIOD_MS,
    REGIMES,
    Regime,
    loss_percent,
    mean_mbit_s,
    phases,
    run,
    scenario,
    settled,
    settled_mbit_s,
    the_papers,
)
from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab

LOSS_TOLERANCE = 0.5
"""Points of class 1's loss."""
RATE_TOLERANCE_MBIT_S = 10
"""One division of a hundred of the figure's axis."""
LIFTED = (600, 600, 400)
"""Maxima with which nothing need be idle while VM 1 offers 200 Mbit/s."""
METHOD = (
    "All 300 s of the paper's scenario run in the model of senders and a link"
    " (`laxity_bandwidth::simulate`), with steps of 1 ms and queues of 1,000 packets of 1,500"
    f" bytes. A loss is reproduced within {LOSS_TOLERANCE} points, a rate within"
    f" {RATE_TOLERANCE_MBIT_S} Mbit/s."
)


def least_loss_percent() -> float:
    """The part of what VM 1 offers that its maximum forbids."""
    maximum = FACTS["max_mbit_s"][0]
    forbidden = sum(s * max(0, mbit_s - maximum) for s, mbit_s in phases())
    return float(100 * forbidden / sum(s * mbit_s for s, mbit_s in phases()))


def series(
    lab: Lab, name: str, regime: Regime, maxima: Sequence[int] | None = None
) -> pd.DataFrame:
    """The paper's scenario, second by second; run once for all figures."""
    key = ("series", regime, maxima)
    if key not in lab.known:
        one = scenario(the_papers(maxima), regime, sharing="by-class", period_ms=PERIOD_MS)
        lab.known[key] = run(lab, [one], FACTS["run_s"])[0]
    data: pd.DataFrame = lab.known[key]
    return data.assign(panel=name, line="VM " + data.vm.astype(str))


def _rates_row(what: str, published: list[float], ours: list[float], why: str = "") -> Row:
    near = all(abs(a - b) <= RATE_TOLERANCE_MBIT_S for a, b in zip(published, ours, strict=True))
    return Row(
        what,
        published,
        [round(rate, 1) for rate in ours],
        verdict(holds=near),
        "" if near else why,
    )


def _loss_row(what: str, published: float, ours: float, why: str = "") -> Row:
    holds = abs(ours - published) <= LOSS_TOLERANCE
    return Row(what, published, round(ours, 2), verdict(holds=holds), "" if holds else why)


def figure_3(lab: Lab) -> Experiment:
    """The native system."""
    data = series(lab, REGIMES["native"], "native")
    share = LINK_MBIT_S / len(FACTS["max_mbit_s"])
    rows = [
        _loss_row("class 1: loss, %", FACTS["class_1_loss_percent"]["native"], loss_percent(data)),
        _rates_row(
            "all offer 800 Mbit/s: the bandwidth is shared equally, Mbit/s",
            [share] * len(FACTS["max_mbit_s"]),
            settled_mbit_s(data, 800),
        ),
    ]
    measurements = [
        Measurement(f"VM 1 offers {mbit_s} Mbit/s: VM 1 to 3 get, Mbit/s", _shown(data, mbit_s))
        for mbit_s in (800, 600, 500, 200)
    ]
    method = (
        f"{METHOD} Without an allocator all packets are copied to the driver domain, and one"
        " queue before the link, shared by all machines, drops what the link cannot carry."
    )
    title = "throughput without an allocator"
    return Experiment("figure-3", title, method, rows, measurements, data, draw_native)


def draw_native(data: pd.DataFrame) -> Figure:
    """Figure 3, with the equal shares that the paper states."""
    at_s = sum(settled(800)[0]) / 2
    share = LINK_MBIT_S / len(FACTS["max_mbit_s"])
    return plots.throughput(data, {f"VM {number}": (at_s, share) for number in (1, 2, 3)})


def draw_allocated(data: pd.DataFrame) -> Figure:
    """Figure 4, with what the paper has each machine get while VM 1 offers 200 Mbit/s."""
    at_s = sum(settled(200)[0]) / 2
    stated = FACTS["while_vm1_offers_200"]
    return plots.throughput(
        data, {f"VM {number}": (at_s, stated[f"vm{number}"]) for number in (1, 2, 3)}
    )


def _shown(data: pd.DataFrame, mbit_s: int) -> list[float]:
    return [float(round(rate)) for rate in settled_mbit_s(data, mbit_s)]


def figure_4(lab: Lab) -> Experiment:
    """With the paper's algorithm, and with ours."""
    paper = series(lab, REGIMES["paper"], "paper")
    tree = series(lab, REGIMES["tree"], "tree")
    single = series(lab, REGIMES["single"], "single")
    lifted = series(lab, "Laxity, maxima 600, 600 and 400 Mbit/s", "tree", LIFTED)
    at_200 = [float(FACTS["while_vm1_offers_200"][f"vm{number}"]) for number in (1, 2, 3)]
    published_loss = FACTS["class_1_loss_percent"]["allocator"]
    maximum = FACTS["max_mbit_s"][0]
    first, stuck = mean_mbit_s(paper, 0, phases()[0][0])[0], settled_mbit_s(paper, 600)[0]
    rows = [
        Row(
            "the first 100 s: VM 1 is held to its maximum, Mbit/s",
            float(maximum),
            round(settled_mbit_s(tree, 800)[0], 1),
            verdict(holds=abs(settled_mbit_s(tree, 800)[0] - maximum) <= RATE_TOLERANCE_MBIT_S),
            "",
        ),
        _loss_row("Laxity: class 1 loss, %", published_loss, loss_percent(tree)),
        _loss_row("Laxity, single limits: class 1 loss, %", published_loss, loss_percent(single)),
        _rates_row(
            "the paper's algorithm, VM 1 offers 200 Mbit/s for the first time: VM 1 to 3, Mbit/s",
            at_200,
            _first_200(paper),
        ),
        _loss_row(
            "the paper's algorithm, as printed: class 1 loss, %",
            published_loss,
            loss_percent(paper),
            "the algorithm takes the measured rate for the demand, and changes no rate between"
            f" the bounds: VM 1 stays at what the others leave it at first ({first:.0f} Mbit/s)"
            f" and, after it has offered 200 Mbit/s, at its minimum ({stuck:.0f} of 600). The"
            " published loss needs a step that raises the rate, which the text does not print",
        ),
        _rates_row(
            "Laxity, VM 1 offers 200 Mbit/s: VM 1 to 3, Mbit/s",
            at_200,
            settled_mbit_s(tree, 200),
            "the paper gives VM 2 and 3 more than the maxima that it states (300 and 100"
            " Mbit/s); Laxity enforces these maxima, so 400 Mbit/s stay unused",
        ),
        _nothing_idle(lifted),
    ]
    measurements = [
        Measurement(
            "class 1: loss that its maximum alone causes, %", f"{least_loss_percent():.2f}"
        ),
        Measurement("Laxity, maxima 600, 600, 400: class 1 loss, %", f"{loss_percent(lifted):.2f}"),
    ]
    data = pd.concat([paper, tree, lifted])
    title = "throughput with an allocator"
    method = f"{METHOD} Laxity shares by class and looks every {PERIOD_MS} ms."
    return Experiment("figure-4", title, method, rows, measurements, data, draw_allocated)


def _first_200(data: pd.DataFrame) -> list[float]:
    return mean_mbit_s(data, *settled(200)[0])


def _nothing_idle(lifted: pd.DataFrame) -> Row:
    used = sum(settled_mbit_s(lifted, 200))
    holds = used >= LINK_MBIT_S - RATE_TOLERANCE_MBIT_S
    return Row(
        (
            "maxima 600, 600, 400, VM 1 offers 200: total throughput, Mbit/s (our goal: no idle"
            " bandwidth)"
        ),
        float(LINK_MBIT_S),
        round(used, 1),
        verdict(holds=holds),
        "" if holds else "the goal is not reached",
    )
