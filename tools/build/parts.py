"""Makes each part of the tests, also when one fails, and says at the end how each went.

    tools/build/parts.py PART[+PART...][:NEEDED]...

A part is a target of the Makefile in the current directory. Parts with a plus between them are made
side by side; what the first one says is shown at once, the others' when they have ended. A part
that needs another one, named before it, is not made if that one failed: its own failure would say
nothing. The last line is `N passed, N failed`, and the exit code is 1 if any part failed or was not
made, else 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

SECONDS_A_MINUTE = 60


@dataclass(frozen=True)
class Made:
    """A part that was made."""

    name: str
    is_good: bool
    took_s: float
    said: bytes
    """What was not shown yet."""


def make(name: str, *, is_shown: bool) -> Made:
    """Makes a part; what it says is shown at once, or kept."""
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            [os.environ.get("MAKE", "make"), name],
            check=False,
            stdout=None if is_shown else said,
            stderr=None if is_shown else subprocess.STDOUT,
        )
        said.seek(0)
        return Made(name, done.returncode == 0, time.monotonic() - began_s, said.read())


def side_by_side(names: list[str]) -> list[Made]:
    """Makes parts at the same time, and shows what each says."""
    print(f"==> make {' and '.join(names)}", flush=True)
    with ThreadPoolExecutor(len(names)) as pool:
        first, *others = names
        running = [pool.submit(make, name, is_shown=False) for name in others]
        made = [make(first, is_shown=True)]
        for each in running:
            made.append(each.result())
            print(f"==> make {made[-1].name}, beside {first}", flush=True)
            sys.stdout.buffer.write(made[-1].said)
            sys.stdout.flush()
    return made


def main(words: list[str]) -> int:
    """0 if every part passes."""
    passed: dict[str, bool] = {}
    rows = []
    for word in words:
        group, _, needed = word.partition(":")
        names = group.split("+")
        if needed and needed not in passed:
            sys.exit(f"error: {group} needs {needed}, which does not stand before it")
        if needed and not passed[needed]:
            for name in names:
                passed[name] = False
                rows.append((name, f"not made: it needs {needed}, which failed", ""))
            continue
        for part in side_by_side(names):
            passed[part.name] = part.is_good
            minutes = f"{part.took_s / SECONDS_A_MINUTE:.1f} min"
            rows.append((part.name, "passed" if part.is_good else "failed", minutes))
    print()
    for name, verdict, took in rows:
        print(f"{name:18}{verdict:46}{took:>9}".rstrip())
    failed = sum(not verdict for verdict in passed.values())
    print(f"{len(passed) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
