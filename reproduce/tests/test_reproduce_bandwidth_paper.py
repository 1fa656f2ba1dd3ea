"""The bandwidth paper's own algorithm, and what is odd about it."""

from __future__ import annotations

import json

import pytest
from laxity import _core
from laxity_reproduce.bandwidth import setup
from laxity_reproduce.bandwidth.papers_allocator import adjust

MBIT = 1_000_000
Interface = tuple[int, int, int, int]


def adjust_mbit(link: int, interfaces: list[Interface]) -> list[int]:
    """The rates in Mbit/s; an interface is its class, its bounds and its rate in Mbit/s."""
    seen = [(each[0], *(MBIT * rate for rate in each[1:])) for each in interfaces]
    return [rate // MBIT for rate in adjust(MBIT * link, seen)]


def the_papers(*measured: int) -> list[Interface]:
    bounds = [(1, 300, 600), (2, 100, 300), (3, 0, 100)]
    return [(*each, rate) for each, rate in zip(bounds, measured, strict=True)]


def test_figure_4() -> None:
    assert adjust_mbit(1000, the_papers(800, 800, 800)) == [600, 300, 100]
    # VM 1 falls to 200: 100 Mbit/s stay reserved that it does not use, and the others exceed their
    # maxima, now and from then on.
    assert adjust_mbit(1000, the_papers(200, 300, 100)) == [300, 500, 200]
    assert adjust_mbit(1000, the_papers(200, 500, 200)) == [300, 500, 200]


def test_a_throttled_sender_is_not_heard() -> None:
    # VM 1 offers 800 again, but is held at 300: measured, that is between its bounds.
    assert adjust_mbit(1000, the_papers(300, 500, 200)) == [300, 500, 200]


def test_one_below_its_minimum_takes_from_the_lowest_class() -> None:
    interfaces = [(1, 300, 600, 200), (2, 100, 500, 400), (3, 50, 500, 400)]
    # Class 3 gives 350, which is above 300; class 2 then gives 300 that nobody is said to get.
    assert adjust_mbit(1000, interfaces) == [300, 100, 50]


def test_as_printed_help_can_harm() -> None:
    # VM 1 is below its minimum by 10, with 100 to be had, which is not above 300: it is set to 100.
    assert adjust_mbit(490, [(1, 300, 600, 290), (1, 100, 900, 200)]) == [100, 100]


def test_nobody_is_changed_between_the_bounds() -> None:
    assert adjust_mbit(1000, [(1, 300, 600, 400), (2, 100, 900, 200)]) == [400, 200]


def test_an_error_of_an_allocator_is_told() -> None:
    scenario = json.dumps(setup.scenario(setup.the_papers(), "paper"))
    with pytest.raises(ZeroDivisionError):
        _core.simulate_bandwidth([scenario], 1000, 1000, lambda *_: [1 // 0])
    with pytest.raises(ValueError, match="1 rates were given for 3 machines"):
        _core.simulate_bandwidth([scenario], 1000, 1000, lambda *_: [1])
