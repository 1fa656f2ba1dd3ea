from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laxity.errors import InputError
from laxity.statistics import T_95, mean, student_t_95
from laxity.sweep import Grid, parse_setting

UNITS = st.sampled_from(["", "ms", "us", "%", "s"])
NUMBERS = st.decimals(min_value=0, max_value=10**6, places=4).map(abs)


def test_the_ranges_of_the_help() -> None:
    axis = parse_setting("draw.load=0.3..1.0:0.05")
    assert axis is not None
    assert axis.key == "draw.load"
    assert axis.values[:3] == ("0.3", "0.35", "0.4")
    assert axis.values[-1] == "1"
    assert len(axis.values) == 15

    axis = parse_setting("domain.control.budget=1..5:0.5 ms")
    assert axis is not None
    assert axis.values[:3] == ("1 ms", "1.5 ms", "2 ms")
    assert axis.unit == "ms"
    assert axis.numbers == (1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5)

    axis = parse_setting("host.policy=credit|deferrable")
    assert axis is not None
    assert axis.values == ("credit", "deferrable")
    assert axis.numbers is None


@pytest.mark.parametrize("text", ["1ms..5ms:1ms", "1 ms .. 5 ms : 1 ms", "1..5 ms:1", "1 ms..5:1"])
def test_the_unit_may_stand_at_any_of_the_numbers(text: str) -> None:
    axis = parse_setting(f"a={text}")
    assert axis is not None
    assert axis.values == ("1 ms", "2 ms", "3 ms", "4 ms", "5 ms")


@pytest.mark.parametrize(
    "text",
    ["duration=5 s", "seed=7", 'draw.cost=["5 ms", "10 ms"]', 'a="x..y"', "a={b='c|d'}", "word"],
)
def test_one_value_is_no_axis(text: str) -> None:
    assert parse_setting(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1..2", "has no step"),
        ("a=1..2:0", "is zero"),
        ("a=1..2:0 ms", "is zero"),
        ("a=2..1:1", "ends below"),
        ("a=1..2:0.3", "the last is 1.9"),
        ("a=1 ms..2 s:1", "more than one unit"),
        ("a=x..2:1", "`x` is not a number"),
        ("a=-1..2:1", "`-1` is not a number"),
        ("a=1..2:1:1", "is not a number"),
        ("a=1...2:1", "`.2` is not a number"),
        ("a=..:", "`` is not a number"),
        ("a=1..1e9:1", "is not a number"),
        ("a=0..9999999:1", "more than 1,000,000 values"),
        ("a=0..1:0.00000000000000000000001", "more than 20 digits"),
        ("a=1||2", "empty value"),
        ("a=1|1", "more than once"),
        ("a=1|2|1 ms", "has 1 ms more than once"),
        ("a=1 ms|2", "some numbers have a unit and others have none"),
        ("a=1|2 ms|3 s", "some numbers have a unit and others have none"),
    ],
)
def test_wrong_ranges_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_setting(text)
    assert message in refused.value.message
    assert refused.value.help


@given(low=NUMBERS, step=NUMBERS.filter(bool), steps=st.integers(0, 50), unit=UNITS)
def test_ranges_are_exact_and_hold_both_ends(
    low: Decimal, step: Decimal, steps: int, unit: str
) -> None:
    high = low + steps * step
    axis = parse_setting(f"key={low}..{high}:{step} {unit}")
    assert axis is not None
    numbers = [Decimal(value.removesuffix(unit).strip()) for value in axis.values]
    assert numbers == [low + index * step for index in range(steps + 1)]
    assert all("E" not in value for value in axis.values)
    assert axis.unit == unit


@given(st.text(max_size=40))
def test_any_text_is_an_axis_or_one_value_or_refused(text: str) -> None:
    try:
        axis = parse_setting(text)
    except InputError:
        return
    assert axis is None or len(axis.values) >= 1


def test_the_unit_of_a_list_may_stand_once() -> None:
    for text in ("domain.a.budget=2|3|4 ms", "domain.a.budget=2 ms|3 ms|4 ms"):
        axis = parse_setting(text)
        assert axis is not None
        assert (axis.values, axis.unit) == (("2 ms", "3 ms", "4 ms"), "ms")
        assert axis.numbers == (2, 3, 4)


@given(st.from_regex(r"[a-z.]{1,9}=[0-9.|: ms]{1,20}", fullmatch=True))
def test_near_ranges_are_an_axis_or_one_value_or_refused(text: str) -> None:
    try:
        axis = parse_setting(text)
    except InputError:
        return
    assert axis is None or len(set(axis.values)) == len(axis.values)


def test_a_grid_is_the_product() -> None:
    grid = Grid.parse(["a.b=1..2:1", "c=x|y", "d=4"], ["credit"], 2)
    overrides = list(grid.overrides())
    assert len(overrides) == 8
    assert overrides[0] == ["d=4", "a.b=1", "c=x", "host.policy=credit", "seed=0"]
    assert overrides[1][-1] == "seed=1"
    assert overrides[-1] == ["d=4", "a.b=2", "c=y", "host.policy=credit", "seed=1"]


@pytest.mark.parametrize(
    ("settings", "policies", "seeds", "message"),
    [
        ([], [], 1, "nothing to sweep"),
        (["duration=5 s"], [], 1, "nothing to sweep"),
        (["seed=1..3:1"], [], 1, "seed"),
        (["a=1..3:1", "a=4..5:1"], [], 1, "twice"),
        (["host.policy=credit|sedf"], ["credit"], 1, "policies"),
        (["a=1..3:1"], ["credit", "credit"], 1, "twice"),
        (["a=1..1000:1", "b=1..1000:1"], [], 2, "2,000,000 runs"),
    ],
)
def test_wrong_grids_are_refused(
    settings: list[str], policies: list[str], seeds: int, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        Grid.parse(settings, policies, seeds)
    assert message in refused.value.message


def test_student_t() -> None:
    # From the usual tables, within and beyond ours.
    known = {1: 12.706, 10: 2.228, 30: 2.042, 31: 2.0395, 40: 2.0211, 99: 1.9842, 1000: 1.9623}
    for degrees, quantile in known.items():
        assert student_t_95(degrees) == pytest.approx(quantile, abs=2e-4)
    assert list(T_95) == sorted(T_95, reverse=True)


def test_the_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(20111009)
    samples = random.normal(0.3, 0.1, (4000, 5))
    held = sum(
        abs(found.mean - 0.3) <= (found.half_width_95 or 0)
        for found in (mean([float(value) for value in sample]) for sample in samples)
    )
    assert 0.94 < held / 4000 < 0.96, "seed 20111009"
    assert mean([0.5]).half_width_95 is None
