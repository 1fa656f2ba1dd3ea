"""Makes each part of the tests, also when one fails, and says at the end how each went.

    tools/build/parts.py PART[:NEEDED]...

A part is a target of the Makefile in the current directory. A part that needs another one, named
before it, is not made if that one failed: its own failure would say nothing. The last line is
`N passed, N failed`, and the exit code is 1 if any part failed or was not made, else 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

SECONDS_A_MINUTE = 60


def main(words: list[str]) -> int:
    """0 if every part passes."""
    passed: dict[str, bool] = {}
    rows = []
    for word in words:
        name, _, needed = word.partition(":")
        if needed and needed not in passed:
            sys.exit(f"error: {name} needs {needed}, which does not stand before it")
        if needed and not passed[needed]:
            passed[name] = False
            rows.append((name, f"not made: it needs {needed}, which failed", ""))
            continue
        print(f"==> make {name}", flush=True)
        began_s = time.monotonic()
        code = subprocess.run([os.environ.get("MAKE", "make"), name], check=False).returncode
        minutes = (time.monotonic() - began_s) / SECONDS_A_MINUTE
        passed[name] = code == 0
        rows.append((name, "passed" if passed[name] else "failed", f"{minutes:.1f} min"))
    print()
    for name, verdict, took in rows:
        print(f"{name:18}{verdict:46}{took:>9}".rstrip())
    failed = sum(not verdict for verdict in passed.values())
    print(f"{len(passed) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
