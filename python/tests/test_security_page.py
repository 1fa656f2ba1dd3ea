"""Each promise of the page on security names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs/explanation/security.md"
SOURCES = [*(CHECKOUT / "crates").glob("*/**/*.rs"), *(CHECKOUT / "python/tests").glob("*.py")]
CODE = {path: path.read_text("utf-8") for path in SOURCES if "target" not in path.parts}
FUNCTIONS = {
    name
    for text in CODE.values()
    for name in re.findall(r"^\s*(?:fn|def) (\w+)", text, re.MULTILINE)
}
MODULES = {
    "::".join(path.with_suffix("").parts[-2:]): text
    for path, text in CODE.items()
    if "#[test]" in text or "/tests/" in str(path)
}


def _rows() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [row for row in rows if row != ("promise", "held by")]


def _is_a_test(name: str) -> bool:
    """Whether a test, a module with tests or a file of tests has that name."""
    if name in FUNCTIONS:
        return True
    found = name.removesuffix(".rs").removesuffix(".py").replace("/", "::").replace("-", "_")
    module = "::".join(["", *found.split("::")][-2:])
    return any(f"::{each}".endswith(module) for each in MODULES)


@pytest.mark.parametrize(("promise", "held_by"), _rows())
def test_a_promise_is_held_by_tests(promise: str, held_by: str) -> None:
    names = re.findall(r"`([^`]+)`", held_by)
    tests = [name for name in names if _is_a_test(name)]
    others = set(names) - set(tests)
    missing = [name for name in others if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+){2,}", name)]
    assert not missing
    if held_by != "the user number above; keys and memory have mode 0600":
        assert tests, promise
