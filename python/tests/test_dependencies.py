"""Packages that the product uses are held to the licences and sources of deny.toml."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "tools" / "check" / "dependencies.py"
ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"}

_spec = importlib.util.spec_from_file_location("dependencies", CHECK)
assert _spec is not None
assert _spec.loader is not None
dependencies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(dependencies)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("Apache-2.0 AND ISC", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", False),
        ("NONE", False),
    ],
)
def test_expressions_are_evaluated(expression: str, fits: bool) -> None:
    assert dependencies.is_allowed(expression, ALLOWED) is fits


def test_the_rules_hold_and_name_what_breaks_them() -> None:
    command = [sys.executable, CHECK, "--directory", ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    rules["licenses"]["allow"].remove("Unicode-3.0")
    rules["sources"]["allow-registry"] = ["https://example.com/index"]
    found = list(dependencies.rust_violations(ROOT, rules))
    assert any(line.endswith("is under Unicode-3.0") for line in found)
    assert any("comes from registry+" in line for line in found)
