"""Dataclasses, and the JSON that says the same."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from laxity.errors import InputError

T = TypeVar("T")


def decoded(content: object, kind: type[T]) -> T:
    """Makes a dataclass, or a tuple of them, of what `json.loads` returns.

    Raises InputError, which names the place, if the content is not of that kind.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"this is no result of this version of laxity: {error}") from None


def encoded(value: object) -> dict[str, object]:
    """Makes what `json.loads` would return of a dataclass, in the order of its fields."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, object])
