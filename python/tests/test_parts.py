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
slow:
\t@until test -e made; do sleep 0.1; done; sleep 0.3; echo slow >>made
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
    assert (code, sorted(made)) == (1, ["after", "bad", "good"])
    assert made.index("good") < made.index("after")
    assert [line.split()[:2] for line in summary[1:-1]] == [
        ["bad", "failed"],
        ["good", "passed"],
        ["after", "passed"],
    ]
    assert summary[0].split() == ["part", "time", "CPU", "time"]
    assert all(line.count(" min") == 2 for line in summary[1:-1])
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
    command = [sys.executable, PARTS, "one", "other", "after:one,other"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    summary = done.stdout.rpartition("\n\n")[2].splitlines()
    assert [line.split()[:2] for line in summary[1:-1]] == [
        ["one", "passed"],
        ["other", "failed"],
        ["after", "not"],
    ]
    assert "said by the other" in done.stdout
    assert (done.returncode, summary[-1]) == (1, "1 passed, 2 failed")


def test_a_part_waits_for_all_that_it_needs(tmp_path: Path) -> None:
    code, _, made = parts(tmp_path, "good", "slow", "after:good,slow")
    assert (code, made) == (0, ["good", "slow", "after"])


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
    names = [word.partition(":")[0] for word in words]
    assert set(names) > {
        *("lint", "test-policy", "test-rust", "test-failover"),
        *("test-python", "test-xen", "test-fuzz", "mutations-quick"),
    }
    rules = (ROOT / "Makefile").read_text()
    assert all(f"\n{name}:" in rules or f" {name}:" in rules for name in names)
