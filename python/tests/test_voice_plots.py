"""Figures of calls."""

from __future__ import annotations

import numpy as np
import pytest
from laxity.plots import style
from laxity.plots import voice as voice_plots
from test_plots import NAMES, drawn, texts

MS = 1_000_000


def test_distributions_have_a_curve_and_a_box_a_series_and_the_line_of_toll_quality() -> None:
    series = {"base": [3.0, 1.0, 2.0, 4.25], "s-all": np.full(10, 4.2)}
    figure = voice_plots.pesq_distributions(series)
    drawn(figure)
    curves, boxes = figure.axes
    x, y = curves.lines[0].get_data()
    assert list(x) == [0, 1, 2, 3, 4.25, 4.5]
    assert list(y) == [0, 25, 50, 75, 100, 100]
    for axes in (curves, boxes):
        assert list(axes.lines[-1].get_xdata()) == [4, 4], "toll quality"
    assert len(boxes.patches) == 2
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["base", "s-all", "toll quality"]
    # Quartiles, and whiskers to the ends.
    corners = boxes.patches[0].get_path().vertices[:, 0]
    assert (corners.min(), corners.max()) == (1.75, 3.3125)
    ends = {float(value) for line in boxes.lines for value in np.ravel(line.get_xdata())}
    assert {1.0, 4.25} <= ends


def test_policies_look_as_everywhere() -> None:
    figure = voice_plots.pesq_distributions({"s-all": [4.1], "credit": [2.0]})
    colours = [line.get_color() for line in figure.axes[0].lines[:2]]
    assert colours == [style.POLICY_LOOKS[name].colour for name in ("s-all", "credit")]


@pytest.mark.parametrize("count", [0, 1, 40])
def test_distributions_of_nothing_and_of_much(count: int) -> None:
    figure = voice_plots.pesq_distributions({f"series {i}": [2.0, -0.4] for i in range(count)})
    drawn(figure)
    assert len(figure.axes[0].lines) - 1 == min(count, style.LINES_MAX)
    assert ("no calls" in texts(figure)) == (count == 0)


def test_delay_has_a_box_an_experiment_and_its_loss_beneath() -> None:
    delay_ns = {"N": np.array([1, 2, 3, 4, 5]) * MS, "D": np.full(9, 80 * MS), "dead": []}
    figure = voice_plots.delay_boxes(delay_ns, {"N": 0.0, "D": 0.1656, "dead": 1.0})
    drawn(figure)
    (axes,) = figure.axes
    assert len(axes.patches) == 2
    heights = axes.patches[0].get_path().vertices[:, 1]
    assert (heights.min(), heights.max()) == (2, 4)
    found = texts(figure)
    for text in ("0", "16.6", "100", "none\narrived", "N", "D", "dead"):
        assert text in found
    with pytest.raises(KeyError):
        voice_plots.delay_boxes(delay_ns, {"N": 0.0})


@pytest.mark.parametrize("names", [NAMES, (), tuple("abcdefghijklmnopq")])
def test_delay_of_any_names(names: tuple[str, ...]) -> None:
    drawn(voice_plots.delay_boxes({name: [MS] for name in names}, dict.fromkeys(names, 0.00001)))
