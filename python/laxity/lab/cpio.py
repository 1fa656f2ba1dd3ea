"""Archives that Linux unpacks into its first root: cpio, the "newc" format of the kernel's
`Documentation/driver-api/early-userspace/buffer-format.rst`.

Written here, not by `cpio`, because device files in an archive then need no root, and because the
same entries then give the same bytes.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ALIGNMENT = 4


@dataclass(frozen=True)
class Entry:
    """One file, directory, link or device of an archive."""

    name: str
    """From the root, without a leading slash."""
    mode: int
    """Type and permissions, as in `stat`."""
    content: bytes = b""
    """The content of a file, or the target of a link."""
    device: tuple[int, int] = (0, 0)
    """Major and minor number of a device."""


def directory(name: str) -> Entry:
    """A directory that all may enter."""
    return Entry(name, stat.S_IFDIR | 0o755)


def link(name: str, to: str) -> Entry:
    """A symbolic link."""
    return Entry(name, stat.S_IFLNK | 0o777, to.encode())


def character_device(name: str, major: int, minor: int) -> Entry:
    """A character device of the root user."""
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def file(name: str, content: bytes | Path, *, executable: bool = False) -> Entry:
    """A file with this content, or with that of a file here."""
    data = content if isinstance(content, bytes) else content.read_bytes()
    return Entry(name, stat.S_IFREG | (0o755 if executable else 0o644), data)


def archive(entries: Iterable[Entry]) -> bytes:
    """The archive, with the directories that its entries lie in.

    Archives may be put one behind the other: Linux unpacks all of them.
    """
    by_name: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.name.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            by_name.setdefault(parent, directory(parent))
        by_name[entry.name] = entry
    # A directory stands before what lies in it: its name is a prefix, and so sorts first.
    ordered = sorted(by_name.values(), key=lambda entry: entry.name.split("/"))
    trailer = Entry("TRAILER!!!", 0)
    return b"".join(_record(number, entry) for number, entry in enumerate([*ordered, trailer], 1))


def _record(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    fields = (
        *(number, entry.mode, 0, 0),  # the owner is root
        2 if stat.S_ISDIR(entry.mode) else 1,
        *(0, len(entry.content)),  # made at the beginning of time
        *(0, 0, *entry.device),
        *(len(name), 0),
    )
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def plan(directory: Path) -> bytes:
    """Returns the archive of a plan: the files of a directory, in /plan."""
    return archive(file(f"plan/{path.name}", path) for path in sorted(directory.iterdir()))
