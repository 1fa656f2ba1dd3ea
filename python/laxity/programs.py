"""Laxity's own programs, which are not Python: where they are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from laxity.errors import InputError


def find(name: str) -> Path:
    """A program on the path, or else built in this checkout."""
    built = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target"))
    for path in (shutil.which(name), built / "release" / name):
        if path is not None and Path(path).exists():
            return Path(path)
    raise InputError(f"there is no `{name}`", f"build it: cargo build --release -p {name}")
