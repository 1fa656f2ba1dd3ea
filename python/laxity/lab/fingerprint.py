"""What the bytes of a run on the emulated machine depend on, beside the plan that it carries out.

Time counts instructions there, so whatever changes one instruction that the machine executes may
change every time that is measured. Two machines with the same fingerprint give the same bytes; with
different ones, its parts say where to look.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "machine.json"
"""Beside the console's log."""

DIGITS = 16


def of(qemu: str, firmware: Sequence[str], contents: Mapping[str, bytes]) -> dict[str, str]:
    """The fingerprint, `qemu`, `firmware`, and the digest of each of `contents`, by its name.

    `qemu` is the program, whose version stands before its digest; `firmware` are the names of what
    it runs before the kernel.
    """
    program = Path(shutil.which(qemu) or qemu).resolve()
    parts = {
        "qemu": f"{_version(program)} {_digest(program.read_bytes())}",
        "firmware": _digest(_firmware(program, firmware)),
        **{name: _digest(content) for name, content in contents.items()},
    }
    return {"fingerprint": _digest(json.dumps(parts, sort_keys=True).encode()), **parts}


def write(directory: Path, parts: Mapping[str, str]) -> None:
    """Leaves it in a directory, for `read`."""
    (directory / FILE).write_text(json.dumps(parts, indent=2) + "\n", "utf-8")


def read(directory: Path) -> dict[str, str] | None:
    """What `write` left there; None on a host that was not emulated."""
    path = directory / FILE
    found: dict[str, str] | None = json.loads(path.read_text("utf-8")) if path.is_file() else None
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _version(program: Path) -> str:
    said = _said(program, "--version")
    found = re.search(r"version (.+)", said)
    return found[1] if found else "unknown"


def _firmware(program: Path, names: Sequence[str]) -> bytes:
    """Each file from the first of QEMU's directories that has it."""
    directories = [Path(line) for line in _said(program, "-L", "help").splitlines()]
    found = []
    for name in names:
        paths = (directory / name for directory in directories)
        found += [path.read_bytes() for path in paths if path.is_file()][:1]
    return b"".join(found)


def _said(program: Path, *words: str) -> str:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise LabError(
            f"{program.name} {' '.join(words)} failed: {done.stderr.strip()}",
            "see that QEMU is installed as Debian has it",
        )
    return done.stdout
