"""What the papers publish stands in the figures that are drawn of our own runs."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pandas as pd
from laxity.plots import style
from laxity.policies import POLICIES
from laxity_reproduce.availability import media, register
from laxity_reproduce.bandwidth import throughput
from laxity_reproduce.rt_xen import figure_5, figure_6
from laxity_reproduce.soft_real_time import setup as soft_real_time
from laxity_reproduce.telephony import setup as telephony

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def texts(figure: Figure) -> list[str]:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    for axes in figure.axes:
        found += [label.get_text() for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]]
        found += [axes.get_title(loc="left")]
    for legend in figure.legends:
        found += [text.get_text() for text in legend.get_texts()]
    return found


def published_points(axes: Axes) -> list[tuple[float, float]]:
    """The hollow markers."""
    return [
        (float(x), float(y))
        for line in axes.lines
        if line.get_markerfacecolor() == "none"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def test_what_rt_xen_publishes_stands_in_its_figures() -> None:
    runs = pd.DataFrame(
        [
            {"quantum_us": quantum, "utilization_percent": x, "jobs": 10, "missed": 10 * (x > 45)}
            for quantum in (10, 100, 1000)
            for x in range(1, 51)
        ]
    )
    (axes,) = figure_5.draw(runs).axes
    assert sorted(x for x, _ in published_points(axes)) == [30, 44, 48]
    loads = pd.DataFrame(
        [
            {
                "pattern": pattern,
                "load_percent": load,
                "policy": policy,
                "seed": seed,
                "jobs": 100,
                "missed": max(0, load - 80 + 3 * seed),
            }
            for pattern in ("decreasing", "even", "increasing")
            for load in range(30, 101, 10)
            for policy in POLICIES
            for seed in range(3)
        ]
    )
    figure = figure_6.draw(loads)
    ET.fromstring(style.svg(figure))  # noqa: S314 - it is our own
    for axes in figure.axes:
        assert sorted(published_points(axes)) == [(30, 0), (50, 0), (85, 5), (90, 5)]
    assert "published" in texts(figure)


def test_what_other_papers_publish_stands_in_their_figures() -> None:
    lines = [f"{domain}, UDP" for domain in ("Dom0", "guest")]
    cpu = pd.DataFrame([{"line": line, "per_s": 1000, "cpu_percent": 30} for line in lines])
    (axes,) = register.draw_protected(cpu).axes
    assert sorted(published_points(axes)) == [
        (1000, 10.9),
        *((1000, 36.6), (1800, 19.2), (1800, 46.3)),
    ]
    scores = pd.DataFrame({"configuration": "base-std", "pesq": [3.0, 4.2]})
    assert published_points(soft_real_time.draw_default(scores).axes[0]) == [(4, 50)]
    of_vms = [
        {"panel": "one", "line": f"VM {vm}", "at_s": at_s, "delivered_mbit_s": 1}
        for vm in (1, 2, 3)
        for at_s in range(300)
    ]
    (axes,) = throughput.draw_allocated(pd.DataFrame(of_vms)).axes
    assert [y for _, y in published_points(axes)] == [200, 500, 200]
    boxes = dict.fromkeys(("min_ms", "p25_ms", "p50_ms", "p75_ms", "max_ms"), 1.0)
    one = pd.DataFrame([{"experiment": "D", "loss_percent": 3.0, **boxes}])
    assert "1-2" in texts(telephony.DRAWINGS["figure-6"](one))
    assert "19" in texts(telephony.DRAWINGS["figure-12"](one))
    assert "published (%)" in texts(telephony.DRAWINGS["figure-8"](one))
    assert "2" in texts(media.draw_unheld(one.assign(experiment="400")))
