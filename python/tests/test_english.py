"""The check of English sees what it should in each language, and little else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools" / "check"
sys.path.insert(0, str(TOOLS))
english = importlib.import_module("english")


def found(path: str, text: str) -> list[tuple[int, str]]:
    """Lines and kinds."""
    return [(one.line, one.kind) for one in english.offences(path, text)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Of the whole host.",
        "As its site file says.",
        "Who runs on a CPU.",
        "Whose budget runs down.",
        "So many are.",
        "In whose queue it is.",
        "For how long.",
        "See there.",
        "It runs. So it is late.",
        "- Of each the first.",
    ],
)
def test_banned_openers(sentence: str) -> None:
    assert found("a.rs", f"fn f() {{}}\n/// {sentence}\n") == [(2, "opener")]
    assert found("a.c", f"// {sentence}\n") == [(1, "opener")]
    assert found("a.py", f'"""{sentence}"""\n') == [(1, "opener")]
    assert found("a.py", f"x = 1\n# {sentence}\n") == [(2, "opener")]
    assert found("a.md", f"# Title\n\n{sentence}\n") == [(3, "opener")]


@pytest.mark.parametrize(
    "sentence",
    [
        "A budget of the host.",
        "As long as it runs.",
        "Offers room.",
        "Assumes nothing.",
        "Number of active sources.",
        "It runs on a CPU, as its file says.",
    ],
)
def test_sentences_that_are_well(sentence: str) -> None:
    for path, text in (
        ("a.rs", f"/// {sentence}"),
        ("a.py", f'"""{sentence}"""'),
        ("a.md", sentence),
    ):
        assert found(path, f"{text}\n") == []


def test_a_line_in_the_middle_is_no_beginning() -> None:
    assert found("a.rs", "/// The budget\n/// Of the VCPU.\n") == []
    assert found("a.md", "The budget\nOf the VCPU.\n") == []
    assert found("a.py", "# The budget\n# Of the VCPU.\n") == []


def test_code_is_no_prose() -> None:
    assert found("a.rs", 'let x = "Of the host.";\n/// ```\n/// Of\n/// ```\n') == []
    assert found("a.md", "```\nOf the host.\n```\n| Of the host. |\n") == []
    assert found("a.py", 'x = "Of the host."\n') == []


def test_lines_of_prose_are_wrapped() -> None:
    long = "word " * 30
    assert found("a.md", f"{long}\n") == [(1, "line")]
    assert found("a.rs", f"// {long}\n") == [(1, "line")]
    assert found("a.md", f"| {long} |\n```\n{long}\n```\n{'x' * 130}\n") == []
    assert found("a.rs", f'let x = "{long}";\n') == []
