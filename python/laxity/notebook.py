"""Tables for notebooks: a data frame as people read it."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from laxity.text import percent, time

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

ROWS_MAX = 60

_TIME = re.compile(r"(?P<before>.*)_ns(?P<after>_.*)?")


def table(heading: str, frame: pd.DataFrame) -> str:
    """HTML: times with their unit, ratios in percent, nothing where there is no value."""
    import pandas as pd  # noqa: PLC0415 - it takes longer to load than many runs take

    def cell(write: Callable[[float], str]) -> Callable[[Any], str]:
        return lambda value: "" if pd.isna(value) else write(value)

    shown = {}
    for name in frame.columns:
        text = str(name)
        if match := _TIME.fullmatch(text):
            name_shown = f"{match['before']}{match['after'] or ''}"
            shown[name_shown] = frame[name].map(cell(lambda ns: time(round(ns))))
        elif text.endswith("_ratio"):
            shown[text] = frame[name].map(cell(percent))
        elif pd.api.types.is_integer_dtype(frame[name]):
            shown[text] = frame[name].map(cell(lambda number: f"{number:,}"))
        elif pd.api.types.is_float_dtype(frame[name]):
            shown[text] = frame[name].map(cell(lambda number: f"{number:.4g}"))
        else:
            shown[text] = frame[name].map(lambda value: "" if pd.isna(value) else str(value))
    readable = pd.DataFrame(
        {name.replace("_", " "): column.astype(object) for name, column in shown.items()}
    )
    html: str = readable.to_html(index=False, max_rows=ROWS_MAX, escape=True)
    return f"<p>{escape(heading)}</p>{html}"
