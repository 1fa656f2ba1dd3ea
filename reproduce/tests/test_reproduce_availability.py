"""Protection's experiments in a hurry: they run; what must hold does; verdicts can say no."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from laxity.errors import InputError
from laxity_reproduce import papers as reproduce
from laxity_reproduce.availability import fitted, media, register, setup
from laxity_reproduce.lab import Lab
from laxity_reproduce.page import write_page

if TYPE_CHECKING:
    from pathlib import Path

    from laxity_reproduce.reproduction import Reproduction, Row


@pytest.fixture(scope="module")
def quick() -> Reproduction:
    return reproduce.run("availability", quick=True)


def row(found: Reproduction, experiment: str, words: str) -> Row:
    rows = next(each.rows for each in found.experiments if each.name == experiment)
    return next(each for each in rows if words in each.what)


def test_all_experiments_in_a_hurry(quick: Reproduction, tmp_path: Path) -> None:
    found = json.loads(json.dumps(quick.to_json(), allow_nan=False))
    names = [each["name"] for each in found["experiments"]]
    assert names == list(reproduce.PAPERS["availability"].experiments)
    for experiment in quick.experiments:
        whats = [each.what for each in experiment.rows]
        assert len(set(whats)) == len(whats)
        assert (len(whats) > 0) == (experiment.name != "fitted")
        for each in experiment.rows:
            assert each.verdict == "reproduced" or each.why, each
    write_page(quick, tmp_path / "availability.md")
    drawn = {path.stem for path in (tmp_path / "availability").iterdir()}
    assert drawn == set(names) - {"fitted"}


def test_what_protection_promises_holds_in_a_hurry(quick: Reproduction) -> None:
    survived = [
        row(quick, "figure-3", "that succeed"),
        row(quick, "calls", "both in Net: calls that survive"),
        row(quick, "calls", "media in No-Net: calls that survive"),
    ]
    assert {each.ours for each in survived} == {100}
    assert {each.verdict for each in survived} == {"reproduced"}
    assert row(quick, "figure-4", "Net; No-Net").verdict == "reproduced"
    figure = next(each for each in quick.experiments if each.name == "figure-3")
    forgotten = {
        found.what.partition(", a failure")[0]: int(str(found.ours).split("; ")[1])
        for found in figure.measurements
        if ", a failure: registrations that succeed" in found.what
    }
    for transport in register.TRANSPORTS.values():
        # Half an epoch at 1,400 a second, and the seeds together.
        assert forgotten[f"{transport}, net"] == 0
        assert forgotten[f"{transport}, no-net"] > 50


def test_only_what_is_said_to_be_fitted_is(quick: Reproduction) -> None:
    assert len({fit.to for fit in fitted.FITS}) == len(fitted.FITS) == 5
    rows = [each for experiment in quick.experiments for each in experiment.rows]
    # None of these stands among the predictions.
    assert not {fit.stated for fit in fitted.FITS} & {each.published for each in rows}
    assert not any(each.what.startswith(f"{fitted.LOSSY} streams") for each in rows)


def test_both_hosts_have_the_same_costs() -> None:
    lab = Lab("availability", seeds=2, quick=True, progress=None)
    costs = []
    for name in ("media", "signalling"):
        protect = lab.resolved(lab.host(name), [])["network"]["protect"]
        costs.append({key: value for key, value in protect.items() if key != "domains"})
    assert costs[0] == costs[1]


def test_published_numbers_are_read_and_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads(json.dumps(setup.FACTS))
    facts["figure_3"]["guest_percent"][1] = 50.0
    facts["register_success_percent"] = 99
    monkeypatch.setattr(register, "FACTS", facts)
    lab = Lab("availability", seeds=2, quick=True, progress=None)
    rows = register.figure_3(lab).rows
    verdicts = {each.what.partition(",")[0]: each.verdict for each in rows}
    assert verdicts["guest at 1"] == verdicts["UDP"] == "differs"


def test_calls_do_not_survive_if_somebody_gives_up_or_is_cut_off() -> None:
    lab = Lab("availability", seeds=2, quick=True, progress=None)
    overrides = [media.BOTH.format("net"), setup.failure(lab), "calls.streams=20"]
    (point,) = setup.run(lab, "media", {"x": overrides}).values()
    left_ms = 1000 * setup.seconds(lab) - setup.failure_ms(lab)
    assert media.failed_over("x", point, left_ms).verdict == "reproduced"
    run = point.runs[0]
    assert run.calls is not None
    assert run.voice.worst is not None
    given_up = replace(run, calls=replace(run.calls, failed=1))
    worst = replace(run.voice.worst, lost=run.voice.worst.lost + 100)
    cut_off = replace(run, voice=replace(run.voice, worst=worst))
    for bad in (given_up, cut_off):
        row = media.failed_over("x", replace(point, runs=[bad]), left_ms)
        assert row.verdict == "differs"
        assert row.ours != setup.FACTS["call_failover_percent"]


def test_an_experiment_that_there_is_not() -> None:
    with pytest.raises(InputError, match="figure-2, figure-3, figure-4, figure-5, calls"):
        reproduce.run("availability", "figure-9")
