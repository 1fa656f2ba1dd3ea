"""Figures 6 to 8: beside CPU-bound virtual machines, with other weights, caps and cores."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.telephony.setup import (
    BAD_LOSS_PERCENT,
    FACTS,
    VISIBLE_LOSS_PERCENT,
    Point,
    claim,
    experiment,
    is_visibly_better,
    is_worse,
    loss_row,
    measure,
    percent,
    pinned,
    weights,
)

if TYPE_CHECKING:
    from laxity_reproduce.lab import Lab

SHARES = {2: 1, 3: 2, 4: 4}
"""Experiment sets of figure 6: Dom0's weight over the media server's."""

NATIVE_DELAY_MS = 0.5

METHOD = (
    "Host file mixed.toml has 800 streams with their signalling and two CPU-bound virtual"
    " machines. How long these compute and pause is not published. Ours compute for 10 ms and"
    " pause for 5 ms: with these times an earlier form of the model lost 1 to 2 % in the default"
    " configuration (D), as the text states. The rows below give the present loss."
)


def figure_6(lab: Lab) -> Experiment:
    """Weights, and native Linux."""
    facts = FACTS["figure_6"]
    native = measure(lab, "native", {"N": []}, share=0.05)["N"]
    points: dict[str, list[str]] = {"D": []}
    for number, share in SHARES.items():
        for place, dom0 in enumerate(FACTS["weights"]["dom0"], start=1):
            points[f"{number}.{place}"] = weights(dom0, round(dom0 / share))
    found = measure(lab, "mixed", points)
    default, default_media = found["D"], found["4.1"]
    higher = [point for name, point in found.items() if name not in ("D", "4.1")]
    delays = [run.voice.delay_ns.max for run in native.runs]
    longest_ms = max(float("inf") if delay is None else delay / 1e6 for delay in delays)
    stated = [1.0, 2.0]
    rows = [
        claim("N: loss", facts["native_loss"], [native], holds=native.is_lossless),
        Row(
            "N: delay",
            facts["native_delay"],
            f"at most {longest_ms:.2g} ms",
            verdict(holds=longest_ms < NATIVE_DELAY_MS),
            "" if longest_ms < NATIVE_DELAY_MS else native.where,
        ),
        claim(
            "D (calibrated): loss, to one digit",
            facts["default"],
            [default],
            holds=stated[0] <= round(default.loss) <= stated[1],
        ),
        claim(
            f"2.1 to 4.4 without 4.1: loss below {VISIBLE_LOSS_PERCENT:g} % and below that of D",
            facts["higher"],
            [max(higher, key=lambda point: point.loss), default],
            holds=all(
                point.loss < VISIBLE_LOSS_PERCENT and max(point.losses) < min(default.losses)
                for point in higher
            ),
        ),
        *(
            claim(
                f"4.1 against {name}: worse",
                facts["default_media"],
                [default_media, found[name]],
                holds=is_worse(default_media, found[name]),
            )
            for name in ("2.1", "3.1", "4.2")
        ),
    ]
    return experiment("figure-6", "weights", METHOD, rows, [native, *found.values()])


def figure_7(lab: Lab) -> Experiment:
    """Caps. In Xen a cap of 1 is 1 % of one CPU."""
    facts = FACTS["figure_7"]
    both = ["domain.cpu-1.cap=1", "domain.cpu-2.cap=1"]
    one = both[:1]
    points = {
        "D": [],
        "2.1": both,
        "2.2": ["domain.dom0.cap=1"],
        "2.3": ["domain.media.cap=1"],
        "2.4": one,
    }
    for number, (dom0, media) in {3: (8192, 8192), 4: (8192, 4096), 5: (65535, 32678)}.items():
        points[f"{number}.1"] = [*weights(dom0, media), *both]
        points[f"{number}.2"] = [*weights(dom0, media), *one]
    found = measure(lab, "mixed", points, share=0.7)
    looser = measure(
        lab,
        "mixed",
        {
            f"{domain} {cap}": [f"domain.{domain}.cap={cap}"]
            for domain in ("dom0", "media")
            for cap in (10, 20, 40)
        },
    )
    caps = "; ".join(f"{name} %: {percent(point.loss)}" for name, point in looser.items())
    bad = [found["2.2"], found["2.3"]]
    worst = max(bad, key=lambda point: point.loss)
    rows = [
        claim("2.1: both CPU-bound", facts["both"], [found["2.1"]], holds=found["2.1"].is_lossless),
        claim("2.4: one CPU-bound", facts["one"], [found["2.4"]], holds=found["2.4"].is_lossless),
        *(
            claim(what, facts["bad"], [point], holds=min(point.losses) >= BAD_LOSS_PERCENT)
            for what, point in zip(("2.2: Dom0", "2.3: Media VM"), bad, strict=True)
        ),
        loss_row(
            "2.2 and 2.3: the higher loss",
            facts["highest"],
            worst,
            why=f"looser caps give the published loss here ({caps})",
        ),
        *(
            claim(
                f"{name}: with weights",
                facts["with_weights"],
                [found[name]],
                holds=found[name].is_lossless,
            )
            for name in points
            if name[0] in "345"
        ),
    ]
    return experiment(
        "figure-7",
        "caps",
        f"{METHOD} A cap of 1 is 1 % of one CPU, as in Xen.",
        rows,
        found.values(),
        [Measurement("loss with larger caps, in percent of one CPU", caps)],
    )


def figure_8(lab: Lab) -> Experiment:
    """Pinning."""
    facts = FACTS["figure_8"]
    points = {
        "D": [],
        "2.1": pinned(dom0=[0]),
        "2.2": pinned(dom0=[0, 1]),
        "2.3": pinned(dom0=[0, 1, 2]),
        "2.4": pinned(dom0=[0, 1, 2, 3]),
        "3.1": pinned(cpu=[0]),
        "3.2": pinned(cpu=[0, 1]),
        "3.3": pinned(cpu=[0, 1], signalling=[0, 1]),
        "3.4": pinned(cpu=[2, 3]),
        "4.1": pinned(media=[0, 1], signalling=[0, 1], dom0=[2, 3], cpu=[2, 3]),
    }
    found = measure(lab, "mixed", points)
    default = found["D"]
    dom0 = [found[f"2.{cores}"] for cores in (1, 2, 3, 4)]
    away = [found[f"3.{place}"] for place in (1, 2, 3, 4)]
    rows = [
        loss_row("2.1 (calibrated): Dom0 on one core", facts["one_core"], found["2.1"]),
        *(
            claim(
                f"{fewer.name} against {more.name}: worse",
                facts["fewer"],
                [fewer, more],
                holds=is_worse(fewer, more),
            )
            for fewer, more in pairwise(dom0)
        ),
        claim(
            "set 2: Dom0 on all four loses least",
            facts["floats"],
            [default, min(dom0[:3], key=lambda point: point.loss)],
            holds=default.loss < min(point.loss for point in dom0[:3]),
        ),
        _best(facts["best"], away),
        *(
            claim(
                f"{point.name} against D: visibly better, and not visibly more loss",
                facts["away"],
                [point, default],
                holds=is_visibly_better(point, default)
                and point.loss < default.loss + VISIBLE_LOSS_PERCENT,
            )
            for point in away
        ),
        claim(
            "4.1: worse than D",
            facts["shared"],
            [found["4.1"], default],
            holds=is_worse(found["4.1"], default) and found["4.1"].loss >= BAD_LOSS_PERCENT,
        ),
    ]
    return experiment(
        "figure-8",
        "pinning",
        f"{METHOD} Where the paper names no cores, the lowest numbers are used.",
        rows,
        found.values(),
    )


def _best(stated: str, points: list[Point]) -> Row:
    """The experiment of set 3 that loses least, and of equals the one with the least delay."""
    best, second = sorted(points, key=lambda point: (round(point.loss, 1), point.median))[:2]
    return claim("set 3: the best", stated, [best, second], holds=best.name == stated)
