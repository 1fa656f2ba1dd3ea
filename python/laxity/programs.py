"""Laxity's programs that are not Python: each is installed, or built in a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from laxity import files, places
from laxity.errors import InputError


def find(name: str, *read: Path) -> Path:
    """Returns the path of a program: on the PATH, or else of this checkout, built when it is new.

    Nothing is built if a file in `read` is no TOML file. The path is absolute, so that it holds for
    a process that runs elsewhere. Raises InputError if there is no program and it cannot be built.
    """
    found = built(name)
    if found is not None:
        return found
    for file in read:
        _refuse_unless_toml(file)
    return _build(name)


def built(name: str) -> Path | None:
    """Returns the same path if the program is there, else None; nothing is built."""
    on_the_path = shutil.which(name)
    if on_the_path is not None:
        return Path(on_the_path).absolute()
    if places.CHECKOUT is None:
        return None
    program = _target(places.CHECKOUT) / "release" / name
    return program if program.exists() else None


def _target(checkout: Path) -> Path:
    """The directory in which cargo, called in the checkout, leaves what it builds."""
    return checkout / os.environ.get("CARGO_TARGET_DIR", "target")


def _refuse_unless_toml(file: Path) -> None:
    content = files.read(file, files.HOST_BYTES_MAX, "a TOML file")
    try:
        tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML file: {error}") from None


def _build(name: str) -> Path:
    """Builds a program of this checkout; cargo's own progress passes through to the terminal."""
    by_hand = f"cargo build --release -p {name}"
    checkout = places.CHECKOUT
    if checkout is None:
        help = f"install Laxity's Debian package {name}, or put the program on the PATH"
        raise InputError(f"there is no `{name}`", help)
    if shutil.which("cargo") is None:
        help = "install Rust 1.88 or newer, whose cargo builds it in this checkout"
        raise InputError(f"there is no `{name}`, and no cargo to build it", help)
    print(f"building {name}, which happens once and takes some minutes", file=sys.stderr)
    sys.stderr.flush()
    target = _target(checkout)
    done = subprocess.run(  # noqa: S603 - words of ours
        ["cargo", "build", "--release", "--locked", "-p", name, "--target-dir", target],  # noqa: S607
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        # The standard output is the program's alone.
        stdout=sys.stderr.fileno(),
        check=False,
    )
    program = target / "release" / name
    if done.returncode != 0 or not program.exists():
        raise InputError(f"`{name}` could not be built", f"`{by_hand}` in {checkout} shows why")
    return program
