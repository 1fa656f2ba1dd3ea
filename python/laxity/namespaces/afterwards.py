"""Removes what a run has made if the run is killed and cannot."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

REMOVE = """
cat >/dev/null
for name in $1; do ip netns delete "$name"; done
rm -rf "$2"
for try in $(seq 6000); do
    left=
    for group in $3; do
        rmdir "$group"
        if [ -d "$group" ]; then left=1; fi
    done
    if [ -z "$left" ]; then exit; fi
    sleep 0.1
done
"""
"""Waits for the end of its input, which comes with the end of whoever writes it, however that is.
Processes of the run end with it, but may take a moment to leave their groups: minutes on a machine
that has no time for them."""


@contextmanager
def remover(namespaces: Iterable[str], files: Path, groups: Iterable[Path]) -> Iterator[None]:
    """Sees to it that these are removed even if this process is killed; groups from within."""
    lists = (" ".join(namespaces), str(files), " ".join(map(str, groups)))
    waiting = subprocess.Popen(
        ["sh", "-c", REMOVE, "sh", *lists],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # What ends this process by its terminal is not to end that one.
        start_new_session=True,
    )
    try:
        yield
    finally:
        # All is removed by now, or was not made.
        waiting.kill()
        waiting.communicate()
