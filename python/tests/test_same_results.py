"""The comparison of results between two checkouts sees what it should, and nothing else."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[2] / "tools" / "check"
sys.path.insert(0, str(TOOLS))
same = importlib.import_module("same_results")


def of_json(before: Any, after: Any) -> list[bool]:
    """Whether each difference is one of wording."""
    found = same.of_file("a.json", json.dumps(before).encode(), json.dumps(after).encode())
    return [one.is_wording for one in found]


RESULT = {"jobs": 3, "engine": {"events": 5, "wall_ns": 17}, "tasks": [{"why": "late by 3 ms"}]}


def with_why(why: str) -> dict[str, Any]:
    return {**RESULT, "tasks": [{"why": why}]}


def test_the_time_on_the_wall_is_no_result() -> None:
    assert of_json(RESULT, {**RESULT, "engine": {"events": 5, "wall_ns": 18}}) == []


@pytest.mark.parametrize(
    "changed",
    [
        {**RESULT, "jobs": 4},
        {**RESULT, "jobs": 3.0},
        {**RESULT, "jobs": "3"},
        {**RESULT, "engine": {"events": 6, "wall_ns": 17}},
        {**RESULT, "more": None},
        {"engine": RESULT["engine"], "jobs": 3, "tasks": RESULT["tasks"]},
        {**RESULT, "tasks": []},
        with_why("late by 4 ms"),
    ],
)
def test_another_value_is_another_result(changed: dict[str, Any]) -> None:
    assert of_json(RESULT, changed) == [False]
    assert of_json(changed, RESULT) == [False]


def test_another_sentence_with_the_same_numbers_is_wording() -> None:
    assert of_json(RESULT, with_why("the job is 3 ms late")) == [True]


def test_documentation_in_a_schema_may_name_other_numbers() -> None:
    assert of_json({"description": "At most 3."}, {"description": "At most 4."}) == [True]


def test_a_name_is_no_sentence() -> None:
    assert of_json({"policy": "credit"}, {"policy": "sedf"}) == [False]


PAGE = "# Title\n\nOf 5 rows\nnone differs.\n\n| what | ours |\n|---|---|\n| misses | 0.5 % |\n"


@pytest.mark.parametrize(
    ("old", "new", "wording"),
    [
        ("Of 5 rows\nnone", "Of 5 rows none", []),
        ("Of 5 rows\nnone differs.", "None of 5 rows differs.", [True]),
        ("Of 5 rows", "Of 6 rows", [False]),
        ("| misses | 0.5 % |", "| missed | 0.5 % |", [True]),
        ("| misses | 0.5 % |", "| misses | 0.6 % |", [False]),
        ("| misses | 0.5 % |\n", "", [False]),
        ("| misses | 0.5 % |", "| misses | 0.5 % | x |", [False]),
    ],
)
def test_pages(old: str, new: str, wording: list[bool]) -> None:
    assert old in PAGE
    found = same.of_file("a.md", PAGE.encode(), PAGE.replace(old, new).encode())
    assert [one.is_wording for one in found] == wording


FIGURE = '<svg><g id="text_1"><path d="M 0 0"/></g><g id="line2d_1"><path d="M 1 1"/></g></svg>'


@pytest.mark.parametrize(("old", "is_wording"), [("M 0 0", True), ("M 1 1", False)])
def test_a_figure_has_words_and_lines(old: str, is_wording: bool) -> None:
    (found,) = same.of_file("a.svg", FIGURE.encode(), FIGURE.replace(old, "M 2 2").encode())
    assert found.is_wording == is_wording


def test_a_trace_is_compared_by_bytes() -> None:
    (found,) = same.of_file("trace.laxtrace", b"abc", b"abd")
    assert (found.is_wording, found.where) == (False, "from byte 2 on")


STUB = """\
#!/bin/sh
echo "$0" >>{log}
mkdir out && printf '{trace}' >out/trace.laxtrace
printf '{{"jobs": {jobs}}}'
exit {code}
"""


def checkout(place: Path, trace: str = "a", jobs: int = 1, code: int = 0) -> Path:
    """One whose command line always answers the same."""
    program = place / ".venv" / "bin" / "laxity"
    program.parent.mkdir(parents=True)
    program.write_text(STUB.format(log=place / "log", trace=trace, jobs=jobs, code=code))
    program.chmod(0o755)
    return place


CASE = same.Case("case", (("run", "host.toml", "-o", "out"),), {"host.toml": b"seed = 1\n"})


@pytest.mark.parametrize(
    ("change", "files"),
    [
        ({}, []),
        ({"trace": "b"}, ["out/trace.laxtrace"]),
        ({"jobs": 2}, ["step-0.json"]),
        ({"code": 1}, ["step-0.code"]),
    ],
)
def test_two_checkouts(tmp_path: Path, change: dict[str, Any], files: list[str]) -> None:
    base, here = checkout(tmp_path / "base"), checkout(tmp_path / "here", **change)
    verdict = same.compare(CASE, base, here, tmp_path / "same")
    assert verdict.refusal is None
    assert [one.file for one in verdict.differences] == files


def test_the_base_is_asked_once_and_a_case_that_fails_there_shows_nothing(tmp_path: Path) -> None:
    base, here = checkout(tmp_path / "base", code=2), checkout(tmp_path / "here", code=2)
    for _ in range(2):
        assert same.compare(CASE, base, here, tmp_path / "same").refusal is not None
    assert len((base / "log").read_text().splitlines()) == 1
    assert not (here / "log").exists()


def test_all_policies_workloads_and_papers_must_be_covered() -> None:
    with pytest.raises(SystemExit, match="bandwidth"):
        same._refuse_unless_covered([CASE], [], [])
