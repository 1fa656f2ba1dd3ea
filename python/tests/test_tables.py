from __future__ import annotations

import re

import laxity
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laxity import tables
from laxity.results import Check
from rich.console import Console

UNITS_NS = dict(tables.UNITS)


def value_ns(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS_NS[unit]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (1500, "1.5 us"),
        (12_345, "12.3 us"),
        (123_456_789, "123 ms"),
        (60 * 10**9, "60 s"),
        (3600 * 10**9, "3600 s"),
    ],
)
def test_times(ns: int | None, text: str) -> None:
    assert tables.time(ns) == text


@given(st.integers(1, 2**62), st.integers(3, 4))
def test_times_are_near_and_bounds_never_below(ns: int, digits: int) -> None:
    near, above = tables.time(ns, digits=digits), tables.time(ns, digits=digits, up=True)
    assert value_ns(near) == pytest.approx(ns, rel=10.0 ** (1 - digits))
    assert value_ns(above) >= ns * (1 - 1e-12)
    assert value_ns(above) == pytest.approx(ns, rel=10.0 ** (1 - digits))


def test_a_bound_just_above_its_deadline_does_not_look_equal() -> None:
    assert tables.time(100_000_001, digits=4, up=True) == "100.1 ms"


@given(st.floats(0, 1))
def test_percentages_are_near_and_never_0_or_100_by_rounding(ratio: float) -> None:
    text = tables.percent(ratio)
    assert (text == "0 %") == (ratio == 0)
    assert (text == "100 %") == (ratio == 1)
    if re.match(r"\d", text):
        assert float(text.removesuffix(" %")) == pytest.approx(100 * ratio, rel=0.006, abs=0.006)


def rendered(result: object) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(result)
    return console.export_text()


def test_a_host_without_deadlines() -> None:
    host = laxity.Host.parse(
        'duration = "1 s"\n[host]\ncpus = 2\npolicy = "credit"\n[[domain]]\nname = "idle"\n'
    )
    run = rendered(tables.run(host.run()))
    assert "No deadline fell within the run" in run
    assert "Schedulable: there are no deadlines" in rendered(tables.check(host.check()))


UNKNOWN = {"guaranteed": False, "bound_ns": None, "deadline_ns": 5, "test": None}


def test_names_are_no_markup() -> None:
    content = {
        "name": "[red]x",
        "guaranteed": False,
        "bound_ns": None,
        "deadline_ns": 5,
        "test": None,
    }
    domain = {"name": "[bold]", "tasks": [{**content, "why": "because [blue]"}]}
    check = Check.from_json({"policy": "sedf", "verdict": "not-guaranteed", "domains": [domain]})
    text = rendered(tables.check(check))
    for name in ("[red]x", "[bold], [red]x: because [blue]"):
        assert name in text


def test_reasons_stand_once() -> None:
    task = {
        "guaranteed": False,
        "bound_ns": None,
        "deadline_ns": 5,
        "test": None,
        "why": "so it is",
    }
    tasks = [{"name": f"t{number}", **task} for number in range(5)]
    domain = {"name": "many", "tasks": tasks}
    check = Check.from_json({"policy": "sedf", "verdict": "not-guaranteed", "domains": [domain]})
    assert rendered(tables.check(check)).count("so it is") == 1
    assert "many, 5 tasks: so it is" in rendered(tables.check(check))


def test_plural() -> None:
    assert tables.number(1, "job") == "1 job"
    assert tables.number(2000, "switch", "switches") == "2,000 switches"
