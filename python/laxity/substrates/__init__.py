"""What can run a host: the simulator, real Xen, this machine.

Each substrate is a package here, registered in `names`; its class is a `Substrate`. Its package is
imported when it is asked for, and imports what runs a host only when it runs one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.substrates.names import NAMES

if TYPE_CHECKING:
    from laxity.substrates.substrate import Substrate

__all__ = ["NAMES", "of", "of_name", "of_words"]


def of_name(name: str) -> type[Substrate]:
    """Returns the class of a substrate; InputError if there is none of that name."""
    if name not in NAMES:
        raise InputError(
            f"there is no substrate {name!r}", f"the substrates are {', '.join(NAMES)}"
        )
    found: type[Substrate] = import_module(f"{__name__}.{name}").SUBSTRATE
    return found


def of(on: str | Substrate) -> Substrate:
    """Returns a substrate as it is, or the one of that name with its default options."""
    return of_name(on)() if isinstance(on, str) else on


def of_words(words: tuple[str, ...]) -> Substrate:
    """Returns what `Substrate.words` named; no words name the default."""
    if not words:
        return of_name(NAMES[0])()
    name, rest = words[1], list(words[2:])
    found = of_name(name)
    return found(**found.options_of(rest))
