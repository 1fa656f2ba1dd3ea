"""The command `laxity reproduce`, which the package adds to Laxity's own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from conftest import EXAMPLES, Laxity, laxity  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-c", "from laxity.cli import main; main()"]


def test_reproduce_says_whether_it_did(tmp_path: Path) -> None:
    words = ["reproduce", "rt-xen", "table-4", "--quick", "--json", "-o", str(tmp_path / "out")]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    content = json.loads(done.stdout)
    assert [experiment["name"] for experiment in content["experiments"]] == ["table-4"]
    rows = content["experiments"][0]["rows"]
    for row in rows:
        assert {"what", "published", "ours", "verdict", "why"} <= row.keys()
        assert row["verdict"] in ("reproduced", "differs")
    is_all = all(row["verdict"] == "reproduced" for row in rows)
    assert done.returncode == (0 if is_all else 1)
    assert json.loads((tmp_path / "out" / "laxity.json").read_text())["kind"] == "reproduce"


def test_what_cannot_be_reproduced_is_refused(
    laxity: Laxity,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert "rt-xen" in laxity("reproduce", "nonsense", code=2).stderr
    assert "holds something else" in laxity("reproduce", "rt-xen", "-o", EXAMPLES, code=2).stderr
    assert "figure-6" in laxity("reproduce", "rt-xen", "nonsense", code=2).stderr
    (tmp_path / "file").touch()
    words = ("reproduce", "rt-xen", "table-4", "--quick", "--docs", tmp_path / "file" / "page.md")
    assert laxity(*words, code=2).stderr.startswith("error: ")
