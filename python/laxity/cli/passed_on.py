"""Commands whose words are for another program of Laxity's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""The context settings of such a command."""


def pass_on(name: str, words: list[str]) -> None:
    """Becomes the program of that name, with these words; signals and exit codes are its own."""
    from laxity import programs

    files = [Path(word) for word in words if word.endswith(".toml")]
    program = programs.find(name, *files)
    sys.stdout.flush()
    os.execv(program, [str(program), *words])  # noqa: S606 - no shell is wanted
