"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Is told what is going on, a line at a time."""

Progress = Callable[[int, int], None]
"""Is called a few times a second with how much is done, of how much."""


def silent(line: str) -> None:
    """Takes a line and tells nobody."""
    del line
