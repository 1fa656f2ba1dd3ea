"""Refuses a Rust module whose file stands beside the directory of its children.

    tools/check/module_files.py

A module with children in files of their own is `x/mod.rs`, so that all of it is in one directory.
The exit code is 1 if a module is `x.rs` beside `x/`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("crates", "fuzz/fuzz_targets")


def beside_their_children(directory: Path) -> Iterator[Path]:
    """The files below `directory` of modules that are not `mod.rs`, and have children in files."""
    for file in sorted(directory.rglob("*.rs")):
        if any(file.with_suffix("").glob("*.rs")):
            yield file


def main() -> int:
    """0 if every module has the one form."""
    found = [file for part in SOURCES for file in beside_their_children(ROOT / part)]
    for file in found:
        right = file.with_suffix("") / "mod.rs"
        print(f"{file.relative_to(ROOT)} has children: it belongs at {right.relative_to(ROOT)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
