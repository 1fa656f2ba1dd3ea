"""Processes that the kernel ends when this one ends, however that happens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECK = '[ "$PPID" = "$1" ] || exit; shift; exec "$@"'
"""A shell's: the end of its parent is signalled to it from now on, and may have come before."""


def bound(command: Sequence[str]) -> list[str]:
    """The command that becomes this one and is killed when this process ends.

    It must be started by this process, and by its main thread or one that lives as long.
    """
    asked = ["setpriv", "--pdeathsig", "KILL", "--"]
    return [*asked, "sh", "-c", CHECK, "sh", str(os.getpid()), *command]
