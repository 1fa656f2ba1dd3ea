"""Files that somebody has named: read within a limit, and only where reading ends.

What a device or a FIFO gives may never come, or never end; so only regular files are read, and the
standard input where it is asked for as `-`.
"""

from __future__ import annotations

import filecmp
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from laxity import _core
from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

STANDARD_INPUT = Path("-")
"""In place of a file's name."""

HOST_BYTES_MAX: int = _core.HOST_FILE_BYTES_MAX
"""The largest host file that is read."""

RESULT_BYTES_MAX = 256 << 20
"""The largest JSON file of an output directory; it takes several times as much in memory."""


def open_regular(path: Path, wanted: str = "a file") -> BinaryIO:
    """Opens a regular file for reading; the caller closes it.

    Raises InputError, which proposes to name what is `wanted`, if it is something else or cannot be
    opened.
    """
    name = f"name {wanted}"
    try:
        # Opening a device may already do something. What takes the file's place meanwhile is
        # refused all the same, and with these flags can neither block nor become the terminal.
        _refuse_unless_regular(path, path.stat().st_mode, name)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", name) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {path}: {_why(error)}", name) from None
    file = os.fdopen(descriptor, "rb")
    try:
        _refuse_unless_regular(path, os.fstat(descriptor).st_mode, name)
    except InputError:
        file.close()
        raise
    return file


def read(path: Path, bytes_max: int, wanted: str = "a file") -> bytes:
    """All of a regular file, or of the standard input where the path is `-`.

    Raises InputError as `open_regular` does, and if there are more than `bytes_max` bytes.
    """
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("the standard input is closed", "send a file through a pipe")
        if sys.stdin.isatty():
            raise InputError("the standard input is a terminal", "send a file through a pipe")
        return _within(sys.stdin.buffer, "the standard input", bytes_max)
    with open_regular(path, wanted) as file:
        return _whole(file, path, bytes_max)


def read_secret(path: Path, bytes_max: int, wanted: str) -> bytes:
    """All of a regular file that its owner alone may read.

    Raises InputError as `open_regular` does, and if others may read it or it is too large.
    """
    with open_regular(path, wanted) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(
                f"{path} has mode {mode:04o}, and {wanted} is a secret",
                f"let only its owner read it: chmod 600 {path}",
            )
        return _whole(file, path, bytes_max)


def differing(one: Path, other: Path) -> list[str]:
    """Returns the names of files that two directories do not both have with the same bytes."""
    names = [
        {path.relative_to(place) for path in place.rglob("*") if path.is_file()}
        for place in (one, other)
    ]
    return sorted(
        str(name)
        for name in names[0] | names[1]
        if name not in names[0] & names[1]
        or not filecmp.cmp(one / name, other / name, shallow=False)
    )


def _whole(file: BinaryIO, path: Path, bytes_max: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > bytes_max:
        raise InputError(*_too_large(path, f"{size:,}", bytes_max))
    return _within(file, path, bytes_max)


def _within(file: BinaryIO, name: object, bytes_max: int) -> bytes:
    try:
        content = file.read(bytes_max + 1)
    except OSError as error:
        raise InputError(f"cannot read {name}: {_why(error)}") from None
    # A file of the kernel that has nothing to give at the moment gives None.
    if content is None:
        raise InputError(f"cannot read {name}: it has nothing to read at the moment")
    if len(content) > bytes_max:
        raise InputError(*_too_large(name, f"more than {bytes_max:,}", bytes_max))
    return content


def _too_large(name: object, size: str, bytes_max: int) -> tuple[str, str]:
    return f"{name} is too large: {size} bytes", f"at most {bytes_max:,} bytes are read"


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
)


def _refuse_unless_regular(path: Path, mode: int, help: str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")
        raise InputError(f"{path} is {kind}", f"{help}; only regular files are read")
