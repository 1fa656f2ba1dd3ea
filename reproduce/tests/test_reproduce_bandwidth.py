"""The paper on bandwidth in a hurry, end to end; and every rule of a verdict with both outcomes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from laxity import _core
from laxity_reproduce import papers as reproduce
from laxity_reproduce.bandwidth import beyond, memory, setup, throughput
from laxity_reproduce.bandwidth.papers_allocator import adjust
from laxity_reproduce.lab import Lab
from laxity_reproduce.page import write_page

if TYPE_CHECKING:
    from pathlib import Path

    from laxity_reproduce.reproduction import Reproduction, Row


@pytest.fixture(scope="module")
def quick() -> Reproduction:
    return reproduce.run("bandwidth", quick=True)


def row(found: Reproduction, experiment: str, words: str) -> Row:
    rows = next(each.rows for each in found.experiments if each.name == experiment)
    return next(each for each in rows if words in each.what)


def test_all_experiments_in_a_hurry(quick: Reproduction, tmp_path: Path) -> None:
    found = json.loads(json.dumps(quick.to_json(), allow_nan=False))
    assert [each["name"] for each in found["experiments"]] == list(
        reproduce.PAPERS["bandwidth"].experiments
    )
    for experiment in quick.experiments:
        whats = [each.what for each in experiment.rows]
        assert len(set(whats)) == len(whats) > 0
        for each in experiment.rows:
            assert each.verdict == "reproduced" or each.why, each
    write_page(quick, tmp_path / "bandwidth.md")
    assert (tmp_path / "bandwidth" / "figure-4.svg").stat().st_size > 0


def test_what_was_asked_for(quick: Reproduction) -> None:
    # Class 1 loses what its maximum forbids; nothing is idle where no maximum forbids it.
    assert throughput.least_loss_percent() == pytest.approx(100 / 6)
    assert row(quick, "figure-4", "Laxity: class 1 loss").ours == pytest.approx(100 / 6, abs=0.5)
    assert row(quick, "figure-4", "no idle bandwidth").verdict == "reproduced"
    assert row(quick, "figure-3", "class 1: loss").verdict == "reproduced"
    # The paper's algorithm as printed gives figure 4's rates, and not its loss.
    assert row(quick, "figure-4", "for the first time").verdict == "reproduced"
    assert row(quick, "figure-4", "as printed").verdict == "differs"


def test_published_numbers_are_read_and_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads(json.dumps(setup.FACTS))
    facts["class_1_loss_percent"]["native"] = 50.0
    monkeypatch.setattr(throughput, "FACTS", facts)
    lab = Lab("bandwidth", seeds=2, quick=True, progress=None)
    assert throughput.figure_3(lab).rows[0].verdict == "differs"


@pytest.mark.parametrize(("ours", "verdict"), [(17.0, "reproduced"), (17.2, "differs")])
def test_losses(ours: float, verdict: str) -> None:
    assert throughput._loss_row("what", 16.56, ours, "why").verdict == verdict


def test_a_minimum_that_is_denied_is_a_goal_not_reached() -> None:
    lab = Lab("bandwidth", seeds=2, quick=True, progress=None)
    machines = [
        setup.machine(300, 600, setup.constant(400)),
        setup.machine(0, 1000, setup.constant(2000)),
    ]
    found = beyond.Found(lab, {1: machines}, 5, settle_s=0)
    rows = found.rows(minimum_for=("native", "tree"))
    assert [each.verdict for each in rows] == ["differs", "reproduced", "reproduced"]
    assert found.means("native") == pytest.approx([1000 / 6, 5000 / 6], rel=0.01)


def test_means_of_the_times_at_which_vm_1_offers_a_rate() -> None:
    assert setup.settled(200) == [(101, 140), (171, 190)]
    data = pd.DataFrame({"at_s": [0.0, 1.0, 1.0], "vm": [1, 1, 2], "delivered_mbit_s": [9, 5, 7]})
    assert setup.mean_mbit_s(data, 1) == [5, 7]


def test_transactions_are_lines_of_what_a_packet_touches() -> None:
    copied, mapped = memory.way(1500), memory.way(1500, is_mapped=True)
    # 24 lines are read and 24 written; a page that is mapped is read by the card alone.
    assert copied.channel - mapped.channel == 2 * 24 - (4 + 2 + 2)
    assert memory.way(64).channel == copied.channel - 2 * 23
    data = pd.DataFrame(
        {
            "at_s": [0.0, 0.0, 1.0, 1.0],
            "offered_mbit_s": [12.0, 24.0, 12.0, 24.0],
            "delivered_mbit_s": [12.0, 6.0, 12.0, 6.0],
            "dropped_at_link_mbit_s": [0.0, 6.0, 0.0, 6.0],
        }
    )
    found = memory.packets(data)
    # 1,000 packets a second are 12 Mbit/s.
    assert (found.offered, found.carried, found.delivered) == (3000, 2000, 1500)
    assert memory.channel_lines(found, copied) == 2000 * copied.channel
    whole = 3000 * 48 + 2000 * (copied.channel + 1) + 1500 * 26
    assert memory.all_lines(found, copied) == whole


def test_dropping_in_the_guest_saves_transactions(quick: Reproduction) -> None:
    assert row(quick, "figure-6", "and more").verdict == "reproduced"
    # Short periods lose nothing with Laxity, and so save no more.
    assert row(quick, "figure-6", "below").verdict == "differs"
    figure = next(each for each in quick.experiments if each.name == "figure-6")
    native = figure.data[figure.data.line == setup.REGIMES["native"]]
    assert set(native.value) == {native.value.iloc[0]}
    assert (figure.data.value <= native.value.iloc[0]).all()


def test_a_scenario_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="missing field"):
        _core.simulate_bandwidth(["{}"], 1000, 1000, adjust)
