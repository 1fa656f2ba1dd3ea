"""Telephony's figures in a hurry, end to end; and every rule of a verdict with both outcomes."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from laxity_reproduce import papers as reproduce
from laxity_reproduce import telephony_plots
from laxity_reproduce.lab import Lab
from laxity_reproduce.page import write_page
from laxity_reproduce.telephony import mixed, setup, turnkey
from laxity_reproduce.telephony.setup import Point
from made_up import NO_DROPS, telephony
from rich.console import Console

if TYPE_CHECKING:
    from pathlib import Path

    from laxity_reproduce.reproduction import Reproduction


FIGURES = [f"figure-{number}" for number in range(6, 14)]


@pytest.fixture(scope="module")
def quick() -> Reproduction:
    return reproduce.run("telephony", quick=True)


# End to end


def test_all_figures_in_a_hurry(quick: Reproduction) -> None:
    found = json.loads(json.dumps(quick.to_json(), allow_nan=False))
    assert [experiment["name"] for experiment in found["experiments"]] == FIGURES
    assert (found["quick"], found["seeds"]) == (True, 2)
    for experiment in quick.experiments:
        whats = [row.what for row in experiment.rows]
        assert len(set(whats)) == len(whats) > 0
        for row in experiment.rows:
            assert row.verdict == "reproduced" or row.why, row


def test_every_claim_has_a_row(quick: Reproduction) -> None:
    for experiment in quick.experiments:
        stated = set(setup.FACTS[experiment.name.replace("-", "_")].values())
        assert {row.published for row in experiment.rows} == stated, experiment.name


def test_every_packet_is_accounted_for(quick: Reproduction) -> None:
    for experiment in quick.experiments:
        data = experiment.data
        assert (data.groupby("experiment").size() == quick.seeds).all()
        assert ((data.lost >= 0) & (data.lost <= data.sent)).all()
        arrived = data[data.loss_percent < 100]
        quantiles = [f"{name}_ms" for name in ("min", "p25", "p50", "p75", "p99", "p999", "max")]
        # Quantiles have three digits.
        steps = arrived[quantiles].diff(axis=1).iloc[:, 1:]
        assert (steps.to_numpy() >= -0.01 * arrived[quantiles].iloc[:, 1:].to_numpy()).all()


def test_the_page_and_its_figures(quick: Reproduction, tmp_path: Path) -> None:
    write_page(quick, tmp_path / "telephony.md")
    page = (tmp_path / "telephony.md").read_text()
    figures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
    assert figures == [f"telephony/{name}.svg" for name in FIGURES]
    assert all((tmp_path / name).read_bytes().startswith(b"<?xml") for name in figures)
    assert "2 seeds in each experiment" in page
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(quick)
    assert max(len(line) for line in console.export_text().splitlines()) <= 80


def test_the_same_seeds_give_the_same_words(quick: Reproduction) -> None:
    again = reproduce.run("telephony", "figure-13", quick=True)
    assert again.experiments[0].to_json() == quick.experiments[-1].to_json()


# Facts and host files


def test_the_host_files_are_those_of_the_paper() -> None:
    facts = setup.FACTS
    lab = Lab("telephony", seeds=2, quick=True, progress=None)
    mixed_host, turnkey_host = (lab.resolved(lab.host(name), []) for name in ("mixed", "turnkey"))
    for host in (mixed_host, turnkey_host):
        domains = {domain["name"]: domain for domain in host["domains"]}
        assert len(domains["dom0"]["vcpus"]) == facts["cores"]
        assert len(domains["media"]["vcpus"]) == facts["media_vcpus"]
        for domain in domains.values():
            assert domain["parameters"]["weight"] == facts["default_weight"]
            assert domain["parameters"]["cap_percent"] == 0
        assert len(host["network"]["nics"]) == 2
    assert mixed_host["cpus"] == facts["cores"]
    assert mixed_host["calls"]["streams"] == facts["streams_mixed"]
    assert len(mixed_host["domains"]) == 3 + facts["cpu_bound_domains"]
    whole = facts["turnkey"]
    streams, rate = whole["streams"][1], whole["signalling_calls_per_second"][1]
    assert turnkey_host["calls"]["streams"] == streams
    part = whole["through_media_server_percent"] / 100
    assert 2 * rate * whole["hold_time_s"] * part == streams


def test_published_numbers_are_read_and_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads(json.dumps(setup.FACTS))
    facts["figure_12"]["default"] = "about 77 %"
    monkeypatch.setattr(turnkey, "FACTS", facts)
    rows = reproduce.run("telephony", "figure-12", quick=True).experiments[0].rows
    changed = next(row for row in rows if row.published == "about 77 %")
    assert changed.verdict == "differs"


# Rules of verdicts, both ways


def point(losses: list[float], medians: list[float | None], name: str = "a") -> Point:
    """Runs with these losses, percent, and median delays, ms."""
    runs = []
    for loss, median in zip(losses, medians, strict=True):
        ns = None if median is None else round(median * 1e6)
        lost = round(100 * loss)
        made_up = telephony(sent=10_000, lost=lost, loss_ratio=loss / 100, delay_ns=ns, count=100)
        runs.append(replace(made_up, drops=replace(NO_DROPS, netback=lost)))
    return Point(name, runs, [{"dom0": 1.0} for _ in runs])


def test_no_loss() -> None:
    assert point([0, 0.04], [1, 1]).is_lossless
    assert not point([0, 0.06], [1, 1]).is_lossless


def test_worse_is_more_of_both_with_every_seed() -> None:
    other = point([1, 2], [5, 6])
    assert setup.is_worse(point([1.1, 2.1], [5.1, 6.1]), other)
    assert not setup.is_worse(point([1.1, 1.9], [5.1, 6.1]), other)
    assert not setup.is_worse(point([1.1, 2.1], [4.9, 6.1]), other)
    assert setup.is_worse(point([100, 100], [None, None]), other)


def test_what_one_sees_in_a_figure() -> None:
    other = point([3, 5], [5, 7])
    assert setup.is_visibly_better(point([2, 4], [5, 7]), other)
    assert setup.is_visibly_better(point([3, 5], [4, 6]), other)
    assert not setup.is_visibly_better(point([2.1, 4.1], [4.1, 6.1]), other)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(14, "reproduced"), (24, "reproduced"), (13.9, "differs"), (25, "differs")],
)
def test_losses_that_the_text_states(loss: float, expected: str) -> None:
    row = setup.loss_row("what", "about 19 %", point([loss, loss], [1, 1]), why="measured")
    assert row.verdict == expected
    assert row.why.startswith("measured") == (expected == "differs")


def test_the_best_of_a_set() -> None:
    points = [point([0, 0], [2, 2], "3.1"), point([0.01, 0], [1, 1], "3.2")]
    assert mixed._best("3.2", points).verdict == "reproduced"
    assert mixed._best("3.1", points).verdict == "differs"


def test_where_packets_went() -> None:
    assert "100 % at the netback" in point([5], [1]).where
    assert "no packet is dropped" in point([0], [1]).where


# Figures


def test_boxes_are_the_means_of_quartiles_between_the_ends_of_all() -> None:
    data = setup.frame([point([0, 10], [2, 4], "D"), point([100], [None], "2.2")])
    figure = telephony_plots.boxes(data)
    axes = figure.axes[0]
    ends = {float(y) for line in axes.lines for y in line.get_ydata()}
    assert {2.0, 3.0, 4.0} <= ends
    texts = {text.get_text() for text in axes.texts}
    assert {"5", "100", "none\narrived"} <= texts
