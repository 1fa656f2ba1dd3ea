"""Where files are that are not Python, in a checkout of the project and in a wheel."""

from __future__ import annotations

import os
from pathlib import Path

SOURCES = Path(__file__).parent / "sources"
"""The sources of the policies and of the Xen lab: links in a checkout, files in a wheel."""


def _checkout() -> Path | None:
    root = Path(__file__).parents[2]
    return root if (root / "crates").is_dir() and (root / "Cargo.toml").is_file() else None


CHECKOUT = _checkout()
"""The checkout that this package runs from; None for an installed package."""


def cache(name: str) -> Path:
    """Returns a directory for what is built once: of the checkout, or of the user's cache."""
    if CHECKOUT is not None:
        return CHECKOUT / "target" / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "laxity" / name
