"""Figures 11 to 13: a machine for the telephony servers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.resolved import network_of

from laxity_reproduce.reproduction import Experiment, Measurement
from laxity_reproduce.telephony.setup import (
    FACTS,
    VISIBLE_LOSS_PERCENT,
    claim,
    experiment,
    is_visibly_better,
    is_worse,
    loss_row,
    measure,
    pinned,
    scaled_costs,
    weights,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab

STREAMS_STEP, RATE_STEP = 120, 10
"""Streams of 10 calls/s: 60 s each, one of ten through the media server, two ways."""

GOOD_DELAY_MS = 150
"""ITU-T G.114: below it, one way, talkers notice nothing."""

WEIGHTS = (1024, 4096, 8192)

RELAY_TODAY_US = 7.7 * 2.4 / 1.6
"""CPU time that rtpengine 10.5 takes for a packet, user space, at 2.4 GHz, were it at 1.6 GHz."""

METHOD = "Host file turnkey.toml has only Dom0, the media server and the signalling server."

BYPASS = 'nic.eth1.domain="media"'


def figure_11(lab: Lab) -> Experiment:
    """Four cores, every load."""
    turnkey = FACTS["turnkey"]
    low, high = turnkey["streams"]
    low_rate, high_rate = turnkey["signalling_calls_per_second"]
    loads = range(low, high + 1, STREAMS_STEP)
    rates = range(low_rate, high_rate + 1, RATE_STEP)
    points = {
        str(streams): [
            "host.cpus=4",
            f"calls.streams={streams}",
            f'calls.rate="{rate} /s"',
        ]
        for streams, rate in zip(loads, rates, strict=True)
    }
    found = measure(lab, "turnkey", points)
    rows = [
        claim(
            f"{name} streams: no loss, 99.9 % of the delays below {GOOD_DELAY_MS} ms",
            FACTS["figure_11"]["every_load"],
            [point],
            holds=point.is_lossless
            and all((run.voice.delay_ns.p999 or 0) < GOOD_DELAY_MS * 1e6 for run in point.runs),
        )
        for name, point in found.items()
    ]
    return experiment(
        "figure-11", "turnkey, four cores", METHOD, rows, found.values(), draw=draw_loads
    )


def draw_loads(data: pd.DataFrame) -> Figure:
    """Packet delay and loss against streams."""
    from laxity_reproduce import telephony_plots  # noqa: PLC0415 - Matplotlib, for those who draw

    return telephony_plots.boxes(data, "Streams")


def figure_12(lab: Lab) -> Experiment:
    """Two cores."""
    facts = FACTS["figure_12"]
    points = {
        "D": [],
        "1.1": pinned(media=[0], signalling=[1]),
        **{f"2.{place}": weights(weight, weight) for place, weight in enumerate(WEIGHTS, start=1)},
    }
    found = measure(lab, "turnkey", points, share=0.8)
    default = found["D"]
    costs = network_of(lab.resolved(lab.host("turnkey"), []))["costs"]
    path = (
        *(costs["receive"], costs["socket_receive"], costs["relay"]),
        *(costs["socket_send"], costs["transmit"]),
    )
    relay_us = sum(cost["ns"] for cost in path) / 1000
    today = measure(
        lab, "turnkey", {"D": [scaled_costs(lab, "turnkey", RELAY_TODAY_US / relay_us)]}
    )["D"]
    rows = [
        loss_row("D (calibrated): 720 streams", facts["default"], default),
        claim(
            "1.1 (Media VM on one core) against D: worse",
            facts["one_core"],
            [found["1.1"], default],
            holds=is_worse(found["1.1"], default),
        ),
        *(
            claim(
                f"2.{place} against D: not visibly less loss",
                facts["weights"],
                [found[f"2.{place}"], default],
                holds=default.loss - found[f"2.{place}"].loss < VISIBLE_LOSS_PERCENT,
            )
            for place in (1, 2, 3)
        ),
    ]
    measurement = Measurement(
        f"D, if a packet through a server on bare Linux took {RELAY_TODAY_US:.1f} us of CPU"
        f" instead of {relay_us:.1f}, and all other costs in proportion",
        str(today),
        "measured for rtpengine on a present core, scaled by clock",
    )
    return experiment(
        "figure-12", "turnkey, two cores", METHOD, rows, found.values(), [measurement]
    )


def figure_13(lab: Lab) -> Experiment:
    """Two cores, with a card for the media server."""
    facts = FACTS["figure_13"]
    points: dict[str, list[str]] = {"D": [], "1.1": [BYPASS]}
    for place, weight in enumerate(WEIGHTS, start=1):
        points[f"2.{place}"] = [BYPASS, f"domain.media.weight={weight}"]
    found = measure(lab, "turnkey", points)
    default, bypass = found["D"], found["1.1"]
    weighted = [found[f"2.{place}"] for place in (1, 2, 3)]
    rows = [
        claim(
            "1.1 against D: better in loss and delay",
            facts["default_weights"],
            [bypass, default],
            holds=is_worse(default, bypass) and is_visibly_better(bypass, default),
        ),
        *(
            claim(
                f"{point.name} against 1.1: less loss",
                facts["weights"],
                [point, bypass],
                holds=point.loss < bypass.loss,
                why="with bypass the two cores are not fully used at any weight",
            )
            for point in weighted
        ),
        *(
            claim(
                f"{point.name}: loss below {VISIBLE_LOSS_PERCENT:g} %",
                facts["loss"],
                [point],
                holds=max(point.losses) < VISIBLE_LOSS_PERCENT,
            )
            for point in weighted
        ),
    ]
    return experiment(
        "figure-13",
        "turnkey, two cores, VMM bypass",
        f"{METHOD} The media server drives the second card.",
        rows,
        found.values(),
    )
