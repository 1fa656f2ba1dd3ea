"""The optional parts of the package: `pip install 'laxity[EXTRA]'` installs what one needs."""

from __future__ import annotations

import re
from importlib.metadata import requires

from laxity.errors import InputError


def missing(error: ModuleNotFoundError) -> InputError | None:
    """Returns what to tell a user whose installation lacks a module; None if no extra has it."""
    module = (error.name or "").partition(".")[0]
    for requirement in requires("laxity") or ():
        found = re.match(r"([\w.-]+).*\bextra == ['\"]([\w-]+)['\"]", requirement)
        if found and re.sub(r"[-.]", "_", found[1]).lower() == module:
            return InputError(
                f"this needs {found[1]}, which is not installed",
                f"pip install 'laxity[{found[2]}]'",
            )
    return None
