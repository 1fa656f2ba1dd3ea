"""The directories that commands write results to."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


def directory_for(output: Path | None) -> AbstractContextManager[Path]:
    """Gives the directory of `-o`, which appears when all has gone well, or else a temporary one.

    Raises InputError if something else than an output of Laxity is at `output`.
    """
    from laxity import directory

    return temporary_directory() if output is None else directory.output(output)


def refuse_file(output: Path) -> None:
    """Raises InputError if a machine of the lab is to leave its results in a file."""
    from laxity.errors import InputError

    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is not a directory", "name a new directory with -o")


def print_machine(output: Path) -> None:
    """Prints which emulated machine left its results in a directory, and where its parts are."""
    from laxity.lab import fingerprint

    machine = fingerprint.read(output)
    assert machine is not None  # noqa: S101 - for the types: the machine has run
    print(f"machine: {machine['fingerprint']}; its parts are in {output / fingerprint.FILE}")


def refuse_unwritable_file(path: Path, option: str) -> None:
    """Raises InputError, which names the option, if no file can be at `path`."""
    from laxity.errors import InputError

    if path.is_dir():
        raise InputError(f"{option} {path} is a directory", "name a file, such as host.toml")
    if not path.parent.is_dir():
        raise InputError(f"there is no directory {path.parent}", "make it, or name another file")


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Gives a directory that is removed in the end."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="laxity.") as directory:
        yield Path(directory)
