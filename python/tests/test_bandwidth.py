"""`laxity bandwidth` passes on to the program that the tests in Rust built: its words come back."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import EXAMPLES
from laxity import programs

if TYPE_CHECKING:
    from pathlib import Path


def bandwidth(*words: object) -> subprocess.CompletedProcess[str]:
    if programs.built("laxity-bandwidth") is None:
        pytest.skip("laxity-bandwidth is not built")
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from laxity.cli import main; main()",
            "bandwidth",
            *map(str, words),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_example_is_right() -> None:
    done = bandwidth("check", EXAMPLES / "bandwidth" / "agreements.toml")
    assert (done.returncode, done.stderr) == (0, "")
    # 1000 less the reserve and the minima, in four parts; one more part than its maximum fits.
    assert "media            class 1, 300 Mbit/s to 600 Mbit/s: 447.5 Mbit/s" in done.stdout


def test_what_is_wrong_has_a_place(tmp_path: Path) -> None:
    file = tmp_path / "agreements.toml"
    text = (EXAMPLES / "bandwidth" / "agreements.toml").read_text()
    file.write_text(text.replace("weight = 2", "wieght = 2"))
    done = bandwidth("check", file)
    assert done.returncode == 2
    assert "unknown key `wieght`" in done.stderr
    assert "did you mean `weight`?" in done.stderr


def test_help_is_the_programs() -> None:
    done = bandwidth("--help")
    assert done.returncode == 0
    assert "status" in done.stdout


def test_a_daemon_that_is_not_there(tmp_path: Path) -> None:
    done = bandwidth("status", "--socket", tmp_path / "none.sock")
    assert done.returncode == 2
    assert "is it running?" in done.stderr
