"""Processes of a run: in a namespace and in groups from their first instruction, gone with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.bound import bound
from laxity.errors import InputError
from laxity.namespaces.groups import PREFIX, is_left_behind
from laxity.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from laxity.namespaces.groups import Groups

FAMILIES = ("udp", "udp6")
"""Tables of UDP sockets in /proc."""
START_S_MAX = 120.0
"""For a program to listen, however busy the machine is: one that ends is not waited for."""
END_S_MAX = 120.0
"""For a program to end once it has nothing left to do."""


def require(programs: Mapping[str, str]) -> None:
    """Refuses to go on without these programs, each given with its Debian package."""
    for program, package in programs.items():
        if shutil.which(program) is None:
            raise InputError(f"there is no `{program}`", f"install the Debian package {package}")


@contextmanager
def workplace() -> Iterator[Path]:
    """A directory for the run's files; those of runs that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-files-*"):
        if is_left_behind(path.name):
            shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-files-") as directory:
        yield Path(directory)


@dataclass(frozen=True)
class Place:
    """Where a process runs."""

    namespace: Path
    groups: Groups | None = None
    group: str | None = None
    """One of them; None is this process's own."""
    files: Path = field(kw_only=True)
    """Where its output goes, and where it runs."""


@dataclass(frozen=True)
class Process:
    """A process that was started."""

    name: str
    popen: subprocess.Popen[str]
    place: Place

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def complaint(self) -> str:
        """The end of what it has said of errors, for a message."""
        text = (self.place.files / f"{self.name}.err").read_text(errors="replace")
        return "; ".join(text.strip().splitlines()[-3:]) or "it does not say why"

    def udp_sockets(self) -> list[list[str]]:
        """The kernel's table of UDP sockets in its namespace, in columns; empty at its end."""
        try:
            tables = [Path(f"/proc/{self.popen.pid}/net/{of}").read_text() for of in FAMILIES]
        except OSError:
            return []
        return [row.split() for table in tables for row in table.splitlines()[1:]]

    def wait_for_port(self, port: int) -> None:
        """Waits until somebody in its namespace listens there."""
        # The other end is nobody in particular, which IPv6 writes with more zeros.
        listening = (f":{port:04X}", "")
        deadline_s = time.monotonic() + START_S_MAX
        while not any((row[1][-5:], row[2].strip(":0")) == listening for row in self.udp_sockets()):
            if not self.is_running or time.monotonic() > deadline_s:
                raise InputError(f"{self.name} does not listen: {self.complaint()}")
            time.sleep(0.01)

    def finish(self, s_max: float = END_S_MAX) -> str:
        """Waits for it to end, and returns what it printed."""
        try:
            code = self.popen.wait(s_max)
        except subprocess.TimeoutExpired:
            raise InputError(f"{self.name} did not end within {s_max:g} s") from None
        if code != 0:
            raise InputError(f"{self.name} failed: {self.complaint()}")
        return (self.place.files / f"{self.name}.out").read_text(errors="replace")


@contextmanager
def process(
    name: str,
    command: Sequence[str],
    place: Place,
    *,
    own_processes: bool = False,
    stdin: int = subprocess.DEVNULL,
) -> Iterator[Process]:
    """A process, for as long as it is needed; killed at the end, with `own_processes` of its own.

    These have ended then, too, and what they listened on is free. What it prints goes to the files
    `name.out` and `name.err`.
    """
    entries = place.groups.entries(place.group) if place.groups and place.group else []
    enter = 'for entry in $ENTRIES; do echo $$ >"$entry" || exit; done; exec "$@"'
    # A namespace of processes ends with its first process, as surely as that ends with this one.
    inner = ["unshare", "--pid", "--fork", "--kill-child"] if own_processes else []
    entered = ["nsenter", f"--net={place.namespace}", *inner, *command]
    popen: subprocess.Popen[str] | None = None
    try:
        with (
            (place.files / f"{name}.out").open("w") as output,
            (place.files / f"{name}.err").open("w") as errors,
            uninterrupted(),
        ):
            popen = subprocess.Popen(
                # In a group it is only once it ends with this process.
                bound(["sh", "-c", enter, "sh", *entered]),
                env={**os.environ, "ENTRIES": " ".join(map(str, entries))},
                cwd=place.files,
                stdin=stdin,
                stdout=output,
                stderr=errors,
                text=True,
                # Ctrl-C is this process's to handle.
                start_new_session=True,
            )
        yield Process(name, popen, place)
    finally:
        if popen is not None:
            if not (own_processes and _kill_first_child(popen.pid)):
                popen.kill()
            popen.wait()


def _kill_first_child(parent: int) -> bool:
    """Kills the first process of a namespace of processes, whose parent ends once all have ended.

    False if there is none.
    """
    try:
        (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True
