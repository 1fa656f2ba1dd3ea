"""`make test` makes all parts, whichever fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ROOT / "tools" / "build" / "parts.py"

MAKEFILE = """\
good:
\t@echo good >>made
bad:
\t@echo bad >>made; exit 3
after: # of make's own dependencies nothing is said here
\t@echo after >>made
"""

PAIR = """\
one:
\t@until test -e other; do sleep 0.1; done; touch one
other:
\t@touch other; until test -e one; do sleep 0.1; done; echo said by the other; exit 1
"""


def parts(place: Path, *words: str) -> tuple[int, list[str], list[str]]:
    """The exit code, the lines of the summary, and the parts that were made."""
    (place / "Makefile").write_text(MAKEFILE)
    command = [sys.executable, PARTS, *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    made = place / "made"
    summary = done.stdout.rpartition("\n\n")[2].splitlines()
    return done.returncode, summary, made.read_text().split() if made.exists() else []


def test_all_parts_are_made(tmp_path: Path) -> None:
    code, summary, made = parts(tmp_path, "bad", "good", "after:good")
    assert (code, made) == (1, ["bad", "good", "after"])
    assert [line.split()[:2] for line in summary[:-1]] == [
        ["bad", "failed"],
        ["good", "passed"],
        ["after", "passed"],
    ]
    assert all(line.endswith(" min") for line in summary[:-1])
    assert summary[-1] == "2 passed, 1 failed"


def test_what_needs_a_part_that_failed_is_not_made(tmp_path: Path) -> None:
    code, summary, made = parts(tmp_path, "bad", "after:bad", "good:after")
    assert (code, made) == (1, ["bad"])
    assert "after             not made: it needs bad, which failed" in summary
    assert "good              not made: it needs after, which failed" in summary
    assert summary[-1] == "0 passed, 3 failed"


def test_all_pass(tmp_path: Path) -> None:
    code, summary, _ = parts(tmp_path, "good", "after")
    assert (code, summary[-1]) == (0, "2 passed, 0 failed")


def test_parts_side_by_side(tmp_path: Path) -> None:
    """Each is waited for by the other."""
    (tmp_path / "Makefile").write_text(PAIR)
    command = [sys.executable, PARTS, "one+other", "after:other"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    summary = done.stdout.rpartition("\n\n")[2].splitlines()
    assert [line.split()[:2] for line in summary[:-1]] == [
        ["one", "passed"],
        ["other", "failed"],
        ["after", "not"],
    ]
    assert "said by the other" in done.stdout
    assert (done.returncode, summary[-1]) == (1, "1 passed, 2 failed")


def test_a_part_that_is_needed_comes_first(tmp_path: Path) -> None:
    assert parts(tmp_path, "after:good", "good")[0] == 1


def test_the_makefile_names_parts_that_it_has() -> None:
    printed = subprocess.run(
        # A make that runs this test hands down flags, with which directories are printed, too.
        ["make", "--no-print-directory", "--dry-run", "test"],  # noqa: S607
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )
    words = printed.stdout.split("tools/build/parts.py ")[1].replace("\\\n", " ").split()
    names = [name for word in words for name in word.partition(":")[0].split("+")]
    assert set(names) > {
        *("lint", "test-policy", "test-rust", "test-failover"),
        *("test-python", "test-xen", "fuzz", "mutations-quick"),
    }
    rules = (ROOT / "Makefile").read_text()
    assert all(f"\n{name}:" in rules or f" {name}:" in rules for name in names)
