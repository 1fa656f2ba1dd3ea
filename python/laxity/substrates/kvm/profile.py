"""How long calls of functions of the kernel took, from what its function_graph tracer told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from laxity.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "profile"
"""In the directory of a run's results."""

NS_A_MICROSECOND = 1000

_CALL = re.compile(
    r"^ *\d+\) +(?:[+!#*@$] +)?(\d+\.\d+) us +\| +(?:(\w+)\(\);|\} /\* (\w+)(?: \S+)? \*/)",
    re.MULTILINE,
)
"""A call that is over, without others in it or with them: how long it took, and its function."""


def read(path: Path) -> dict[str, list[int]]:
    """Returns the ns that each call took, with the tracer's own time in it, by function.

    Source: the kernel's Documentation/trace/ftrace.rst, "function graph tracer". Raises LabError
    if there is no call.
    """
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise LabError(f"the host left no profile: {error.strerror}", f"see {path}") from None
    found: dict[str, list[int]] = {}
    for took_us, leaf, other in _CALL.findall(text):
        # The tracer writes three decimals.
        found.setdefault(leaf or other, []).append(round(float(took_us) * NS_A_MICROSECOND))
    if not found:
        raise LabError("no call of a profiled function was traced", f"see {path}")
    return found
