"""Figures 4 and 5, 800 calls through a failure, and the recommended split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.results.streams import PACKET_NS

from laxity_reproduce import published
from laxity_reproduce.availability.fitted import LOSSY, streams
from laxity_reproduce.availability.setup import (
    FACTS,
    RULES,
    TOLERANCE_LOSS_PERCENT,
    cpu_percent,
    cpu_row,
    failure,
    failure_ms,
    ms,
    row,
    run,
    seconds,
    shown,
)
from laxity_reproduce.reproduction import Experiment, Measurement
from laxity_reproduce.telephony.setup import frame, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from laxity_reproduce.lab import Lab
    from laxity_reproduce.reproduction import Row
    from laxity_reproduce.telephony.setup import Point

STREAMS: list[int] = FACTS["figure_4"]["streams"]
CALLS = STREAMS[-1]
GOOD_LOSS_PERCENT = 1.0
"""Toll quality needs less."""
GOOD_DELAY_MS = 150.0
"""ITU-T G.114: what most applications can bear one way."""
BOTH = 'protect.domains=[{{ domain = "guest", mode = "{}" }}, {{ domain = "signalling" }}]'
"""An override: media in this mode, signalling in Net mode."""


def _swept(lab: Lab, mode: str) -> dict[int, Point]:
    counts = [STREAMS[0], LOSSY, STREAMS[-1]] if lab.quick else STREAMS
    found = run(lab, "media", {str(count): streams(count, mode) for count in counts})
    return {int(name): point for name, point in found.items()}


def draw(data: DataFrame) -> Figure:
    """Packet delay and loss against streams."""
    from laxity_reproduce import telephony_plots  # noqa: PLC0415 - Matplotlib, for those who draw

    return telephony_plots.boxes(data, x_label="streams")


def draw_unheld(data: DataFrame) -> Figure:
    """Figure 5, with the losses that the paper states."""
    from laxity_reproduce import telephony_plots  # noqa: PLC0415 - Matplotlib, for those who draw

    stated = {
        count: published.percentage_text(text) for count, text in FACTS["figure_5"]["loss"].items()
    }
    return telephony_plots.boxes(data, x_label="streams", published=stated)


def draw_named(data: DataFrame) -> Figure:
    """Packet delay and loss of each mode."""
    from laxity_reproduce import telephony_plots  # noqa: PLC0415 - Matplotlib, for those who draw

    return telephony_plots.boxes(data, x_label="modes")


def figure_4(lab: Lab) -> Experiment:
    """Net."""
    facts = FACTS["figure_4"]
    net, no_net = _swept(lab, "net"), _swept(lab, "no-net")
    most, least = net[CALLS], net[STREAMS[0]]
    rows = [
        row(
            f"{CALLS} streams, Net; No-Net: loss, median delay",
            facts["net"],
            f"{shown(most)}; {shown(no_net[CALLS])}",
            holds=most.loss > no_net[CALLS].loss and most.median > no_net[CALLS].median,
            why=_why(most),
        ),
        row(
            f"{STREAMS[0]} streams: loss, median delay",
            facts["small"],
            shown(least),
            holds=least.loss < GOOD_LOSS_PERCENT and least.median < GOOD_DELAY_MS,
            why=_why(least),
        ),
        cpu_row(
            f"guest with {CALLS} streams, % of a CPU",
            facts["guest_percent"],
            cpu_percent(most, "guest", "signalling"),
            (
                "the costs of packets in Dom0 and in the guest have one factor, which was fitted to"
                " Dom0"
            ),
        ),
    ]
    return _experiment("figure-4", "media in Net mode", rows, net)


def figure_5(lab: Lab) -> Experiment:
    """No-Net."""
    facts = FACTS["figure_5"]
    net, no_net = _swept(lab, "net"), _swept(lab, "no-net")
    better = [n for n in net if no_net[n].median < net[n].median and no_net[n].loss <= net[n].loss]
    rows = [
        row(
            "loads at which No-Net has less delay than Net, and no more loss",
            facts["better"],
            f"{len(better)} of {len(net)}",
            holds=len(better) == len(net),
            why="; ".join(f"{n}: {shown(no_net[n])} against {shown(net[n])}" for n in net),
        ),
        *(
            _loss_row(int(count), text, no_net[int(count)])
            for count, text in facts["loss"].items()
            if int(count) in no_net and int(count) != LOSSY
        ),
    ]
    return _experiment("figure-5", "media in No-Net mode", rows, no_net)


def _loss_row(count: int, text: str, point: Point) -> Row:
    (stated,) = published.percentages(text)
    holds = abs(point.loss - stated) <= TOLERANCE_LOSS_PERCENT
    return row(f"{count} streams: loss", text, percent(point.loss), holds=holds, why=_why(point))


def _why(point: Point) -> str:
    pauses_ms = [
        each.paused_ns / max(1, each.checkpoints) / 1e6
        for found in point.runs
        for each in found.protection
    ]
    return f"{point.where}; a checkpoint stops the guest for {ms(max(pauses_ms))}"


def _experiment(name: str, title: str, rows: list[Row], points: dict[int, Point]) -> Experiment:
    found = [
        Measurement(f"{count} streams: loss, median delay", shown(point), point.where)
        for count, point in points.items()
    ]
    method = (
        f"{RULES} {STREAMS[0]} to {STREAMS[-1]} streams go through the media server while 40"
        f" calls a second are set up, and a checkpoint is taken every {FACTS['interval_ms']} ms."
        f" A good result has a loss below {GOOD_LOSS_PERCENT:g} % and a median delay below"
        f" {GOOD_DELAY_MS:g} ms (ITU-T G.114)."
    )
    drawn = draw_unheld if name == "figure-5" else draw
    return Experiment(name, title, method, rows, found, frame(points.values()), drawn)


def calls(lab: Lab) -> Experiment:
    """800 calls through a failure, and the recommended split."""
    facts = FACTS["split"]
    count = STREAMS[0] if lab.quick else CALLS
    load = [f"calls.streams={count}"]
    left_ms = 1000 * seconds(lab) - failure_ms(lab)
    together = {mode: BOTH.format(mode) for mode in ("net", "no-net")}
    found = run(
        lab,
        "media",
        {
            "Net": [*load, together["net"]],
            "split": [*load, together["no-net"]],
            "apart": [*streams(count, "no-net"), 'calls.rate="1 /h"'],
            "Net, failure": [*load, together["net"], failure(lab)],
            "split, failure": [*load, together["no-net"], failure(lab)],
        },
    )
    both, split, apart = found["Net"], found["split"], found["apart"]
    rows = [
        failed_over("both in Net", found["Net, failure"], left_ms),
        failed_over("signalling in Net, media in No-Net", found["split, failure"], left_ms),
        row(
            "media in No-Net; in Net: loss, median delay",
            facts["advice"],
            f"{shown(split)}; {shown(both)}",
            holds=split.median < both.median and split.loss <= both.loss,
            why=_why(split),
        ),
        row(
            "media on a host of its own; beside signalling: loss, Dom0's % of a CPU",
            facts["apart"],
            f"{_with_dom0(apart)}; {_with_dom0(split)}",
            holds=apart.loss <= split.loss
            and cpu_percent(apart, "dom0") < cpu_percent(split, "dom0"),
            why=_why(apart),
        ),
    ]
    measurements = [
        Measurement(f"{name}: speech lost by the worst stream, ms", f"{_worst_ms(point):,.0f}")
        for name, point in found.items()
    ]
    title = f"{CALLS} calls through a failure, and the recommended split"
    method = (
        f"{RULES} {count} streams are the calls in progress, and a signalling server in Net mode"
        " sets up 40 calls a second. The failure takes both servers in the middle of the run. A"
        " call survives if neither side gives up, and if each of its streams loses less than the"
        " rest of the run. Calls use UDP."
    )
    return Experiment("calls", title, method, rows, measurements, frame(found.values()), draw_named)


def _with_dom0(point: Point) -> str:
    return f"{percent(point.loss)}, {cpu_percent(point, 'dom0'):.1f}"


def _worst_ms(point: Point) -> float:
    worst = [each.voice.worst for each in point.runs]
    return max((each.lost * PACKET_NS / 1e6 for each in worst if each is not None), default=0.0)


def failed_over(how: str, point: Point, left_ms: float) -> Row:
    """A row on calls that live through a failure, `left_ms` before the end of the run."""
    failed = sum(each.calls.failed for each in point.runs if each.calls is not None)
    worst_ms = _worst_ms(point)
    # A stream that does not come back loses all that is left.
    holds = failed == 0 and worst_ms < left_ms
    return row(
        f"{how}: calls that survive a failure, %",
        FACTS["call_failover_percent"],
        100 if holds else f"{failed} given up; the worst stream lost {worst_ms:.0f} ms",
        holds=holds,
        why=_why(point),
    )
