"""Commands that other distributions add to `laxity`, each with the report on what it writes.

The distribution `laxity-NAME` adds the command NAME with the package `laxity_NAME`: its module
`command` has the command as a `Typer` named `app`, and its module `report`, if the command writes
output directories, a function `page` that makes their page. Their names find these packages,
since reading the metadata of all that is installed takes a good part of the time that `--help` has.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

PREFIX = "laxity_"


def names() -> list[str]:
    """Returns the names of all commands that are added, sorted."""
    found = (
        file.parent.name.removeprefix(PREFIX)
        for directory in dict.fromkeys(sys.path)
        for file in Path(directory).glob(f"{PREFIX}*/command.py")
    )
    return sorted(set(found))


def module(name: str, part: str) -> ModuleType:
    """Imports a module of the package that adds the command `name`."""
    return import_module(f"{PREFIX}{name}.{part}")
