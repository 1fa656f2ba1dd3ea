"""Shared libraries of the telephone world, which distributions have as packages."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    Functions = Mapping[str, tuple[Any, tuple[Any, ...]]]
    """By name, the type of a function's result, None for nothing, and those of its arguments."""


POINTER, INT, INT32, OCTET = ctypes.c_void_p, ctypes.c_int, ctypes.c_int32, ctypes.c_uint8
"""Types of results and arguments, as ctypes has them."""


def load(library: str, package: str, what: str, functions: Functions) -> ctypes.CDLL:
    """The library of this file name, which is in Debian's `package`, with its functions' types.

    Raises InputError if it is not there: it says that `what` needs it, and how it gets there.
    """
    try:
        found = ctypes.CDLL(library)
    except OSError:
        raise InputError(
            f"{what} needs {library}, which is not there",
            f"install it; Debian's package is {package}",
        ) from None
    for name, (result, arguments) in functions.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, list(arguments)
    return found
