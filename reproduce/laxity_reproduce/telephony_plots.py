"""Packet delays and losses as papers on telephony draw them, from the summaries of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.plots.voice import delay_boxes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.figure import Figure


def boxes(
    data: pd.DataFrame,
    x_label: str = "Experiment",
    published: Mapping[str, str] | None = None,
) -> Figure:
    """A box of delays for each `experiment`, with its loss beneath.

    `data` has a row for each run: `loss_percent`, and of its delays `min_ms`, `p25_ms`, `p50_ms`,
    `p75_ms` and `max_ms`. Quartiles and losses are means over the runs; whiskers go from the
    least to the greatest of all. `published` is as for `delay_boxes`.
    """
    delay_ns, loss = {}, {}
    for experiment, runs in data.groupby("experiment", sort=False):
        name = str(experiment)
        loss[name] = runs.loss_percent.mean() / 100
        quartiles = runs[["p25_ms", "p50_ms", "p75_ms"]].mean()
        # The quantiles of these five values are the values themselves.
        five = [runs.min_ms.min(), *quartiles, runs.max_ms.max()]
        delay_ns[name] = [1e6 * value for value in five if value == value]  # noqa: PLR0124 - NaN
    return delay_boxes(delay_ns, loss, x_label=x_label, published=published)
