"""The optional parts of the package: `pip install 'laxity[EXTRA]'` installs what one needs."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import requires

from laxity.errors import InputError


def require(module: str) -> None:
    """Raises InputError if a module is not installed, with the extra that installs it."""
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error) or error from None


def missing(error: ModuleNotFoundError) -> InputError | None:
    """Returns what to tell a user whose installation lacks a module; None if no extra has it."""
    return _of(re.sub("_", "-", (error.name or "").partition(".")[0]))


def missing_command(name: str) -> InputError | None:
    """Returns what to tell a user who calls a command that only an extra adds; None if none does.

    The distribution that adds the command NAME is called laxity-NAME.
    """
    return _of(f"laxity-{name}")


def _of(distribution: str) -> InputError | None:
    for requirement in requires("laxity") or ():
        found = re.match(r"([\w.-]+).*\bextra == ['\"]([\w-]+)['\"]", requirement)
        if found and found[1].lower() == distribution:
            name, extra = found.groups()
            help = f"pip install 'laxity[{extra}]'"
            return InputError(f"this needs {name}, which is not installed", help)
    return None
