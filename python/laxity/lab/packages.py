"""Debian's packages, fetched by name through apt, without root, and programs that handle them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keys by which Debian signs its suites; without the file apt looks among those it trusts."""


@dataclass(frozen=True)
class Download:
    """A package as apt would fetch it."""

    name: str
    file: str
    digest: str


def suite(name: str, place: Path) -> tuple[str, ...]:
    """Returns the options by which apt knows a suite of Debian besides this machine's own.

    Its lists are fetched from where this machine gets Debian, and kept in `place`. The system's own
    configuration stays as it is. Raises LabError if the suite cannot be had.
    """
    options = [f"Dir::Etc::SourceList={place / 'sources.list'}", "Dir::Etc::SourceParts=-"]
    options += [f"Dir::State::Lists={place / 'lists'}", f"Dir::Cache={place / 'cache'}"]
    words = tuple(word for option in options for word in ("-o", option))
    if not (place / "lists").is_dir():
        form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
        listing = run("apt-get", "indextargets", "--format", form, "Created-By: Packages")
        found = re.search(r"^(\S+) bookworm main$", listing, re.MULTILINE)
        if found is None:
            raise LabError(
                "apt knows no bookworm from which the lab could get other suites of Debian",
                "run it on Debian 12",
            )
        signed = f"[signed-by={KEYRING}] " if KEYRING.is_file() else ""
        shutil.rmtree(place, ignore_errors=True)
        (place / "new" / "partial").mkdir(parents=True)
        (place / "cache" / "archives" / "partial").mkdir(parents=True)
        (place / "sources.list").write_text(f"deb {signed}{found[1]} {name} main\n", "utf-8")
        try:
            run("apt-get", *words, "-o", f"Dir::State::Lists={place / 'new'}", "--quiet", "update")
        except ProgramError as failure:
            raise LabError(
                f"cannot fetch the lists of {name}: {failure}",
                "see that the package registry can be reached",
            ) from None
        (place / "new").rename(place / "lists")
    return words


def downloads(names: tuple[str, ...], options: tuple[str, ...] = ()) -> list[Download]:
    """The newest version of each package that apt knows with those options."""
    return _listed(names, *options, "download")


def with_dependencies(names: tuple[str, ...]) -> list[Download]:
    """The newest versions of packages and of all that they depend on, as for an empty system."""
    empty = ("-o", "Dir::State::status=/dev/null", "--no-install-recommends")
    return _listed(names, *empty, "--yes", "install")


def _listed(names: tuple[str, ...], *words: str) -> list[Download]:
    try:
        listing = ask_apt("apt-get", *words, "--print-uris", *names)
    except ProgramError as failure:
        unknown = re.search(
            r"Unable to locate package (\S+)|no installation candidate", str(failure)
        )
        if unknown is None:
            raise
        raise unknown_package(unknown[1] or names[0]) from None
    found = re.findall(r"^'.*' ([^_]+)(_\S+) \d+ (\S*)$", listing, re.MULTILINE)
    return [Download(name, name + rest, digest) for name, rest, digest in sorted(found)]


def ask_apt(program: str, *arguments: str) -> str:
    """What a program of apt answers; asked once a process, since an answer takes it a second."""
    return _answer(shutil.which(program) or program, *arguments)


@cache
def _answer(program: str, *arguments: str) -> str:
    return run(program, *arguments)


def unknown_package(name: str) -> LabError:
    """The error that apt knows no such package."""
    return LabError(
        f"apt knows no package {name}",
        "as root, `apt-get update`; the lab's packages are those of Debian 12 on x86-64",
    )


def fetch(downloads: list[Download], into: Path, options: tuple[str, ...] = ()) -> list[Path]:
    """The packages' files, fetched unless they are there. Apt checks what it fetches."""
    into.mkdir(parents=True, exist_ok=True)
    missing = [each.name for each in downloads if not (into / each.file).is_file()]
    if missing:
        try:
            run("apt-get", *options, "download", "--quiet", *missing, directory=into)
        except ProgramError as failure:
            raise LabError(
                f"cannot fetch {', '.join(missing)}: {failure}",
                "see that the package registry can be reached, then `apt-get update`",
            ) from None
    return [into / each.file for each in downloads]


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Holds a lock that the system takes back when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class ProgramError(LabError):
    """A program that we ran failed."""


def run(
    program: str | Path,
    *arguments: str | Path,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a program prints, in English. Raises ProgramError with what it complained of."""
    done = subprocess.run(  # noqa: S603 - what is run is named above
        [program, *arguments],
        cwd=directory,
        env={**os.environ, "LC_ALL": "C", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        what = Path(program).name
        raise ProgramError(
            f"{what} {arguments[0]} failed: {done.stderr.strip() or done.returncode}"
        )
    return done.stdout
