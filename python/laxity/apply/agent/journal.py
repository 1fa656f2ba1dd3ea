"""What has been changed on this host: written down, and on the disk, before each change.

The journal is a file of JSON, a line each: first the boot to which all else belongs, then changes
in the order in which they were made. A line that is cut off at the end belongs to a change that was
never begun.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path  # noqa: TC003 - not only for types
from typing import Any

from .settings import Change  # noqa: TC001 - not only for types

NAME = "journal"
LASTING = ("hook",)
"""What outlives a boot; all other settings are the kernel's own again then."""

BYTES_MAX = 256 << 20
"""The largest journal that is read: a million changes."""


class JournalError(Exception):
    """The journal is damaged, or others can write it."""


class Journal:
    """The changes since this host was as it had been."""

    def __init__(self, directory: Path, boot: str) -> None:
        """Reads the journal in a directory, if one is there.

        Raises JournalError if it is damaged, or others than this user can write there.
        """
        self._directory, self._path, self._boot = directory, directory / NAME, boot
        for each in (directory.parent, directory):
            _refuse_others(each)
        self.changes: list[Change] = []
        self.is_there = self._path.exists()
        if self.is_there:
            self._read()

    def append(self, change: Change) -> None:
        """Writes a change that is about to be made."""
        if not self.is_there:
            self.rewrite([])
        self._append(change)
        self.changes.append(change)

    def rewrite(self, changes: list[Change]) -> None:
        """Replaces all by these, at once."""
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        lines = [{"boot": self._boot}, *changes]
        with new.open("wb") as file:
            file.write(b"".join(_line(line) for line in lines))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._sync()
        self.changes = list(changes)
        self.is_there = True

    def remove(self) -> None:
        """Forgets all."""
        if self.is_there:
            self._path.unlink()
            self._sync()
        self.changes = []
        self.is_there = False

    def _append(self, change: Change) -> None:
        with self._path.open("ab") as file:
            file.write(_line(change))
            file.flush()
            os.fsync(file.fileno())

    def _sync(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _read(self) -> None:
        if self._path.stat().st_size > BYTES_MAX:
            raise JournalError(f"{self._path} is larger than {BYTES_MAX:,} bytes")
        *whole, end = self._path.read_bytes().split(b"\n")
        lines = [_parsed(line) for line in whole]
        if not lines or None in lines or "boot" not in (lines[0] or {}):
            number = lines.index(None) + 1 if None in lines else 1
            raise JournalError(f"{self._path} is damaged at line {number}")
        self.changes = lines[1:]  # type: ignore[assignment]
        is_of_another_boot = lines[0]["boot"] != self._boot  # type: ignore[index]
        if is_of_another_boot:
            self.changes = [change for change in self.changes if change["what"] in LASTING]
        if end or is_of_another_boot:
            # The next line must not be joined to one that was cut off.
            self.rewrite(self.changes)


def _refuse_others(directory: Path) -> None:
    """Raises JournalError if a directory, below which root's programs are, is somebody else's."""
    if directory.is_symlink() or directory.exists():
        status = directory.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise JournalError(f"{directory} is not a directory that only root can write")


def _line(content: Any) -> bytes:  # noqa: ANN401 - JSON
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> Any | None:  # noqa: ANN401 - JSON
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
