"""Agreements that are not held, in all commands that judge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from laxity import Host

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity

# The driver's CPU time is not enough for the minimum of web.
SCARCE = """
duration = "200 ms"
host = { cpus = 2, policy = "credit" }
[[domain]]
name = "dom0"
workload = { kind = "driver" }
cap = 40
[[domain]]
name = "web"
weight = 256
workload = { kind = "sender", rate = "700 Mbit/s" }
[[domain]]
name = "batch"
workload = { kind = "sender", rate = "700 Mbit/s" }
[link]
rate = "950 Mbit/s"
agreements = [
 { domain = "web", class = 2, minimum = "600 Mbit/s", maximum = "900 Mbit/s" },
 { domain = "batch", class = 3, maximum = "250 Mbit/s" },
]
"""


@pytest.fixture
def scarce(tmp_path: Path) -> Path:
    path = tmp_path / "scarce.toml"
    path.write_text(SCARCE)
    assert Host.load(path).run().denied == ["web"]
    return path


def test_a_sweep_does_not_pass(laxity: Laxity, scarce: Path) -> None:
    words = ("sweep", scarce, "--set", "domain.web.weight=256|512", "--strict")
    said = " ".join(laxity(*words, code=1).stdout.split())
    assert "No point of 2 passes" in said
    assert "agreements not held with 1 seed" in said
    found = json.loads(laxity(*words, "--json", code=1).stdout)
    assert [point["denied"] for point in found["points"]] == [1, 1]
    assert [row["denied"] for row in found["rows"]] == [False, True, False] * 2


def test_a_sweep_passes_where_all_agreements_are_held(laxity: Laxity, scarce: Path) -> None:
    words = ("sweep", scarce, "--set", "domain.dom0.cap=40|0")
    said = " ".join(laxity(*words).stdout.split())
    assert "1 of 2 points passes: every deadline met, agreements held." in said
    assert "domain.dom0.cap = 0" in said


def test_a_comparison_says_whom_it_denied(laxity: Laxity, scarce: Path) -> None:
    done = laxity("compare", scarce, "--policy", "credit,credit2", "--strict", code=1)
    (line,) = [line for line in done.stdout.splitlines() if "agreements held" in line]
    assert line.split() == ["agreements", "held", "not", "web", "not", "web"]


@pytest.mark.slow
def test_a_design_does_not_hold() -> None:
    control = (
        '[[domain]]\nname = "control"\nweight = "?"\n'
        'tasks = [{ name = "loop", cost = "1 ms", period = "20 ms" }]\n[link]'
    )
    found = Host.parse(SCARCE.replace("[link]", control)).design(missed_max=0.01)
    assert found.verdict == "unknown"
    assert any("web gets less than its agreement's minimum" in reason for reason in found.reasons)
