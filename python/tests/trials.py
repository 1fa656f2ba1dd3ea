"""How many random cases a test tries, and from which seed: as `crates/laxity-trials` says."""

from __future__ import annotations

import os


def cases(standard: int) -> int:
    """How many cases a test tries that tries `standard` by itself; at least one.

    `LAXITY_CASES` is a number, or a part of what each test tries by itself, such as 20%.
    """
    asked = os.environ.get("LAXITY_CASES", "100%")
    if asked.endswith("%"):
        return max(1, standard * int(asked[:-1]) // 100)
    return int(asked)


def seeds(standard: int) -> range:
    """The seeds of a test's cases, from `LAXITY_SEED` on (default 0)."""
    first = int(os.environ.get("LAXITY_SEED", "0"))
    return range(first, first + cases(standard))
