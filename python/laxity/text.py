"""Numbers as people read them: times, ratios, counts."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOTHING = "-"
"""Where there is no value."""

UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
EXACT = 12
"""Digits with which a time is written without rounding."""

RATES = (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3), ("bit/s", 1))


def time(ns: int | None, *, digits: int = 3, up: bool = False) -> str:
    """A time with `digits` digits, in the unit that reads best; `up` rounds up."""
    if ns is None:
        return NOTHING
    if ns == 0:
        return "0"
    unit, unit_ns = next(unit for unit in UNITS if abs(ns) >= unit[1])
    decimals = max(0, digits - len(str(abs(ns) // unit_ns)))
    step_ns = max(1, unit_ns // 10**decimals)
    steps = -(-ns // step_ns) if up else round(ns / step_ns)
    text = f"{steps * step_ns / unit_ns:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def cost(values: Mapping[str, int], more_ns: int = 0) -> str:
    """A cost of a resolved host as a host file has it, with more of it at each quantile."""
    of_all = {key.removesuffix("ns"): f'"{ns + more_ns} ns"' for key, ns in values.items()}
    if "" in of_all:
        return of_all[""]
    return "{ " + ", ".join(f"{key[:-1]} = {text}" for key, text in of_all.items()) + " }"


def rate(bit_s: int) -> str:
    """A rate with three digits, in the unit that reads best."""
    unit, unit_bit_s = next((each for each in RATES if bit_s >= each[1]), RATES[-1])
    return f"{bit_s / unit_bit_s:.3g} {unit}" if bit_s else "0"


def percent(ratio: float) -> str:
    """Three digits; 0 % and 100 % only where it is exactly so."""
    value = 100 * ratio
    if ratio in (0, 1):
        return f"{value:.0f} %"
    if value < 0.01:  # noqa: PLR2004, what two decimals show.
        return "<0.01 %"
    if 99.9 < value < 100:  # noqa: PLR2004, and one.
        return ">99.9 %"
    return f"{value:.{max(0, 2 - max(0, math.floor(math.log10(value))))}f} %"


def down(factor: float) -> str:
    """A factor that holds, of which no more than that is said."""
    return f"{math.floor(factor * 1000) / 1000:g}"


def number(value: int, word: str, words: str | None = None) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{value:,} {word if value == 1 else words or word + 's'}"


def listed(words: Sequence[str], conjunction: str) -> str:
    """`jobs`, `jobs and packets`, `jobs, packets and messages`."""
    return f" {conjunction} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def visible(text: str) -> str:
    """Returns a text with all that a terminal would obey written out, but for ends of lines.

    A message quotes files, and those come from anybody.
    """
    return "".join(
        each.encode("unicode_escape").decode()
        if unicodedata.category(each) in ("Cc", "Cf") and each not in "\n\t"
        else each
        for each in text
    )


NOT_MEASURED = "not measured"


def count(value: int | None) -> str:
    """`2,000`, or that it was not measured."""
    return NOT_MEASURED if value is None else f"{value:,}"


OTHER_COSTS = "A machine with other costs may have another verdict"


def bare(ratio: float) -> str:
    """In percent, without the sign."""
    return percent(ratio).removesuffix(" %")


def name_of(words: str) -> str:
    """Returns a name that host files take, with a `-` for each character that they do not."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-_." else "-" for c in words)
