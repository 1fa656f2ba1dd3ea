"""Laxity's own programs, which are not Python: where they are, and how they get there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from laxity import files
from laxity.errors import InputError

CHECKOUT = Path(__file__).parents[2]


def find(name: str, *read: Path) -> Path:
    """A program on the path, or else of this checkout, which is built when it is first needed.

    `read` is what it is to read: nothing is built for one that is no TOML file. The path is
    absolute, and so holds for a process that runs elsewhere.
    """
    found = built(name)
    if found is not None:
        return found
    for file in read:
        _refuse_unless_toml(file)
    _build(name)
    return _place(name)


def built(name: str) -> Path | None:
    """The same if it is there; nothing is built."""
    on_the_path = shutil.which(name)
    if on_the_path is not None:
        return Path(on_the_path).absolute()
    place = _place(name)
    return place if place.exists() else None


def _target() -> Path:
    """Where cargo, called in the checkout, leaves what it builds."""
    return CHECKOUT / os.environ.get("CARGO_TARGET_DIR", "target")


def _place(name: str) -> Path:
    return _target() / "release" / name


def _refuse_unless_toml(file: Path) -> None:
    content = files.read(file, files.HOST_BYTES_MAX, "a TOML file")
    try:
        tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML file: {error}") from None


def _build(name: str) -> None:
    """Builds a program of this checkout; cargo's own progress passes through to the terminal."""
    by_hand = f"cargo build --release -p {name}"
    if not (CHECKOUT / "crates" / name).is_dir():
        help = f"put it on the PATH; in a checkout of Laxity `{by_hand}` makes it"
        raise InputError(f"there is no `{name}`", help)
    if shutil.which("cargo") is None:
        help = "install Rust 1.88 or newer, whose cargo builds it in this checkout"
        raise InputError(f"there is no `{name}`, and no cargo to build it", help)
    print(f"building {name}, which happens once and takes some minutes", file=sys.stderr)
    sys.stderr.flush()
    done = subprocess.run(  # noqa: S603 - words of ours
        ["cargo", "build", "--release", "--locked", "-p", name, "--target-dir", _target()],  # noqa: S607
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        # What the program prints afterwards is the command's only output.
        stdout=sys.stderr.fileno(),
        check=False,
    )
    if done.returncode != 0 or not _place(name).exists():
        raise InputError(f"`{name}` could not be built", f"`{by_hand}` in {CHECKOUT} shows why")
