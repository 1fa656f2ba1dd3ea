"""The units for systemd: systemd takes them, and they leave a daemon little more than it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CRATES = Path(__file__).parents[2] / "crates"
EXPOSURE_MAX = {
    "laxity-bandwidth/systemd/laxity-bandwidth.service": 2.5,
    "laxity-protect/systemd/laxity-protect.service": 2.9,
    "laxity-protect/systemd/laxity-protect-xen.service": 4.5,
}
"""Greatest exposure that `systemd-analyze security` may find, on its scale from 0 to 10."""


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze")
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _unit(name: str, directory: Path) -> Path:
    """The unit with a program that is there, and no other unit that it needs."""
    text = (CRATES / name).read_text("utf-8")
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
    text = re.sub(r"^Requires=.*\n", "", text, flags=re.MULTILINE)
    unit = directory / Path(name).name
    unit.write_text(text, "utf-8")
    return unit


@pytest.mark.parametrize("name", EXPOSURE_MAX)
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    unit = _unit(name, tmp_path)
    done = _analyze("verify", "--man=no", unit)
    assert (done.returncode, str(unit) in done.stderr) == (0, False), done.stderr
    unit.write_text(unit.read_text("utf-8").replace("ProtectSystem=", "ProtectSystem=not-"))
    assert str(unit) in _analyze("verify", "--man=no", unit).stderr


@pytest.mark.parametrize("name", EXPOSURE_MAX)
def test_a_unit_leaves_little(name: str, tmp_path: Path) -> None:
    done = _analyze("security", "--offline=true", "--no-pager", _unit(name, tmp_path))
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= EXPOSURE_MAX[name], done.stdout
