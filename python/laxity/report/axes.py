"""How the points of a sweep are laid out in its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from laxity.plots.miss_ratios import PANELS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.sweep import Axis

LOAD = "draw.load"


@dataclass(frozen=True)
class Across:
    """How points are laid out: along an axis, and in panels."""

    data: pd.DataFrame
    x: str
    label: str
    """Beside the axis, with the unit."""
    name: str
    """What stands in a sentence for the axis."""
    panel: str | None
    some: str
    """For a caption, if not all panels are shown."""


def across(frame: pd.DataFrame, axes: Mapping[str, Axis]) -> Across:
    """Along the axis: the key with most numbers; a panel for each combination of the others."""
    keys = list(axes)
    numeric = [key for key in keys if pd.api.types.is_numeric_dtype(frame[key])]
    x = max(numeric or keys, key=lambda key: int(frame[key].nunique()))
    others = [key for key in keys if key != x]
    data = frame.copy()
    if x == LOAD and x in numeric and not axes[x].unit:
        data[x] = 100 * data[x]
    panel = None
    if others:
        panel = "panel"
        data[panel] = [
            ", ".join(
                f"{key} = {axes[key].text(value)}" for key, value in zip(others, row, strict=True)
            )
            for row in data[others].itertuples(index=False, name=None)
        ]
        # In the order of the sweep, which is not that of the text.
        data[panel] = pd.Categorical(data[panel], list(dict.fromkeys(data[panel])), ordered=True)
    panels = data[panel].nunique() if panel else 1
    some = f" Of {panels} panels, the first {PANELS_MAX}." if panels > PANELS_MAX else ""
    name = "load" if x == LOAD else x
    return Across(data, x, _label(x, axes[x].unit), name, panel, some)


def _label(key: str, unit: str) -> str:
    if key == LOAD:
        return "Load (% of each domain's share)"
    return f"{key} ({unit})" if unit else key
