"""Attempts at what a busy machine may spoil. What is wrong by itself fails in every one of them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")

ATTEMPTS = 8


class SpoiledError(Exception):
    """An attempt says nothing, or not what it should, because something was late."""


def require(is_so: bool, otherwise: str) -> None:
    """Raises SpoiledError unless something is so that is only late to be so on a busy machine."""
    if not is_so:
        raise SpoiledError(otherwise)


def first_unspoiled(
    attempt: Callable[[int], Found], after: Callable[[], None] = lambda: None
) -> Found:
    """What the first attempt gives that raises no SpoiledError; the last one's error if none does.

    Each is given how many times as long as the first it is to take: 1, 2, 4 and so on. `after` is
    called after each that was spoiled, before the next. Why it was is told as a warning.
    """
    for number in range(ATTEMPTS - 1):
        try:
            return attempt(2**number)
        except SpoiledError as error:
            warnings.warn(f"attempt {number + 1} was spoiled: {error}", stacklevel=2)
            after()
    return attempt(2 ** (ATTEMPTS - 1))
