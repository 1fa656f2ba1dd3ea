"""Attempts at what a busy machine may spoil. What is wrong by itself fails in every one of them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")

ATTEMPTS = 20


def first_good(attempt: Callable[[], Found], after: Callable[[], None] = lambda: None) -> Found:
    """What the first attempt gives whose assertions hold; the last attempt's failure if none does.

    `after` is called after each that failed, before the next one. A failure is told as a warning.
    """
    for number in range(1, ATTEMPTS):
        try:
            return attempt()
        except AssertionError as error:
            warnings.warn(f"attempt {number} failed: {error}", stacklevel=2)
            after()
    return attempt()
