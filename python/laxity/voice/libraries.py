"""Shared libraries of the telephone world, which distributions have as packages."""

from __future__ import annotations

import ctypes

from laxity.errors import InputError


def load(library: str, package: str, what: str) -> ctypes.CDLL:
    """The library of this file name, which is in Debian's `package`.

    Raises InputError if it is not there: it says that `what` needs it, and how it gets there.
    """
    try:
        return ctypes.CDLL(library)
    except OSError:
        raise InputError(
            f"{what} needs {library}, which is not there",
            f"install it; Debian's package is {package}",
        ) from None
