"""What an operator asks of agreements about a link, on a host without calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from laxity import Host, Run, report
from laxity._core import result_schema
from laxity.cli import app
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

TENANTS = """\
duration = "1 s"

[host]
cpus = 3
policy = "credit"
network = "iptcomm-2009"

[[domain]]
name = "dom0"
workload = { kind = "driver" }

[[domain]]
name = "gold"
workload = { kind = "sender", rate = "80 Mbit/s" }

[[domain]]
name = "silver"
workload = { kind = "sender", rate = "120 Mbit/s" }

[[nic]]
name = "eth0"
rate = "100 Mbit/s"

[link]
rate = "95 Mbit/s"
agreements = [
    { domain = "gold", class = 1, minimum = "60 Mbit/s", maximum = "90 Mbit/s" },
    { domain = "silver", class = 2, minimum = "20 Mbit/s", maximum = "90 Mbit/s" },
]
"""
STARVED = "nic.0.rate=10 Mbit/s"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS)
    return path


def laxity(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.output


def test_a_result_has_its_agreements_and_comes_back(tmp_path: Path) -> None:
    run = Host.parse(TENANTS).run()
    jsonschema.validate(run.to_json(), json.loads(result_schema()))
    assert run.telephony is None
    assert run.network is not None
    assert [each.domain for each in run.network.agreements] == ["gold", "silver"]
    assert run.passed
    assert run.denied == []
    assert run.verdict() == "agreements held"
    again = Run.load(run.save(tmp_path / "out"))
    assert again.to_json() == run.to_json()


def test_agreements_that_do_not_hold_fail_the_run(file: Path) -> None:
    code, text = laxity("run", file, "--set", STARVED, "--strict")
    assert code == 1
    assert "Not held: 2 of 2 agreements got less than the minimum" in text
    assert Host.parse(TENANTS).run(set=STARVED).verdict() == "gold, silver denied"


def test_the_table_of_a_run_shows_agreements_and_no_tasks(file: Path) -> None:
    code, text = laxity("run", file, "--strict")
    assert code == 0
    assert "Held: every domain got its minimum, or all that it wanted" in text
    assert "No deadline" not in text
    row = next(line.split() for line in text.splitlines() if line.startswith("gold"))
    assert row[0] == "gold"


def test_analysis_says_that_agreements_take_a_run(file: Path) -> None:
    code, text = laxity("check", file)
    assert code == 1
    assert "Not analysed: agreements\n" in text


def test_the_report_has_the_agreements(file: Path, tmp_path: Path) -> None:
    for overrides, verdict in ((), "Every agreement was held."), ((STARVED,), "Less than the"):
        out = tmp_path / f"out{len(overrides)}"
        Host.load(file).run(set=overrides).save(out)
        html = report.write(out).read_text()
        assert "wanted to send" in html
        assert verdict in html
