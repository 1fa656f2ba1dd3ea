"""The experiments in a hurry, end to end; and every rule of a verdict with both outcomes."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from laxity import workers
from laxity.errors import InputError
from laxity_reproduce import papers as reproduce
from laxity_reproduce import published, statistics
from laxity_reproduce.lab import Lab, Outcome
from laxity_reproduce.page import COLUMNS, wrapped, write_page
from laxity_reproduce.reproduction import Experiment, Measurement, Reproduction, Row, digits, shown
from laxity_reproduce.rt_xen import figure_5, figure_6, setup, table_1, table_2, table_4
from rich.console import Console

if TYPE_CHECKING:
    from pathlib import Path

    from laxity_reproduce.rt_xen.figure_6 import Curves


VALUE = {"type": ["number", "string", "null", "array"], "items": {"type": "number"}}

SCHEMA = {
    "type": "object",
    "required": ["paper", "title", "laxity", "seeds", "quick", "reproduced", "experiments"],
    "properties": {
        "experiments": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "title", "method", "reproduced", "rows", "measurements"],
                "properties": {
                    "rows": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["what", "published", "ours", "verdict", "why"],
                            "properties": {
                                "what": {"type": "string", "minLength": 1},
                                "published": VALUE,
                                "ours": VALUE,
                                "verdict": {"enum": ["reproduced", "differs"]},
                                "why": {"type": "string"},
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def quick() -> Reproduction:
    return reproduce.run("rt-xen", quick=True, seeds=3)


def text_of(thing: Reproduction, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(thing)
    return console.export_text()


# End to end


def test_all_experiments_in_a_hurry(quick: Reproduction) -> None:
    found = json.loads(json.dumps(quick.to_json(), allow_nan=False))
    jsonschema.validate(found, SCHEMA)
    names = [experiment["name"] for experiment in found["experiments"]]
    assert names == ["figure-5", "table-1", "table-2", "table-4", "figure-6"]
    assert (found["quick"], found["seeds"]) == (True, 3)
    assert found["reproduced"] == all(
        row["verdict"] == "reproduced"
        for experiment in found["experiments"]
        for row in experiment["rows"]
    )


def test_what_differs_says_why(quick: Reproduction) -> None:
    for experiment in quick.experiments:
        for row in experiment.rows:
            assert row.verdict == "reproduced" or row.why, row
        whats = [row.what for row in experiment.rows]
        assert len(set(whats)) == len(whats)


def test_the_same_runs_give_the_same_words(quick: Reproduction) -> None:
    again = reproduce.run("rt-xen", "table-1", quick=True, seeds=3)
    assert again.experiments[0].to_json() == quick.experiments[1].to_json()


def test_it_fits_80_columns_and_says_that_it_was_in_a_hurry(quick: Reproduction) -> None:
    text = text_of(quick, 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "Verdicts are not results" in text
    rows = [row for experiment in quick.experiments for row in experiment.rows]
    same = sum(row.verdict == "reproduced" for row in rows)
    assert f"{same} of {len(rows)} rows reproduced" in text


def test_it_ends_with_a_line_a_cause_and_how_many_rows_it_has(quick: Reproduction) -> None:
    end = text_of(quick, 80).partition("Why rows differ, and how many\n")[2]
    causes = [line for line in end.split("\n\n")[0].splitlines() if line]
    names = {experiment.name for experiment in quick.experiments}
    assert all(line.split()[0] in names for line in causes)
    counts = [int(line.split()[1]) for line in causes]
    rows = [row for experiment in quick.experiments for row in experiment.rows]
    assert sum(counts) == sum(row.verdict == "differs" for row in rows)
    assert len(causes) < 25
    assert len(set(causes)) == len(causes)


def test_an_output_directory(quick: Reproduction, tmp_path: Path) -> None:
    quick.save(tmp_path / "out")
    quick.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "laxity.json").read_text())["kind"] == "reproduce"
    assert json.loads((tmp_path / "out" / "reproduce.json").read_text()) == quick.to_json()
    curves = pd.read_parquet(tmp_path / "out" / "data" / "figure-6.parquet")
    assert set(curves.pattern) == set(setup.PATTERNS)
    assert set(curves.policy) == set(setup.POLICIES)
    assert len(curves) == 3 * 6 * curves.load_percent.nunique() * 3 * 5
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError):
        quick.save(tmp_path / "other")


def test_the_page_and_its_figures(quick: Reproduction, tmp_path: Path) -> None:
    write_page(quick, tmp_path / "results" / "rt-xen.md")
    page = (tmp_path / "results" / "rt-xen.md").read_text()
    for experiment in quick.experiments:
        assert f"## {experiment.name}: {experiment.title}" in page
        for row in experiment.rows:
            assert row.what in page
    figures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
    assert figures == ["rt-xen/figure-5.svg", "rt-xen/figure-6.svg"]
    for figure in figures:
        assert (tmp_path / "results" / figure).read_bytes().startswith(b"<?xml")
    assert page.count("Why:") == sum(not each.reproduced for each in quick.experiments)


def test_progress_rises_to_its_end() -> None:
    told: list[tuple[int, int]] = []
    reproduce.run("rt-xen", "table-1", True, 2, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("xen-rt",), "there is no paper `xen-rt`"),
        (("rt-xen", "figure-7"), "no experiment `figure-7`"),
        (("rt-xen", "table-1", True, 1), "1 seeds give no interval"),
    ],
)
def test_wrong_words_are_refused(words: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reproduce.run(*words)


# Where experiments run


def test_a_lab_finds_the_same_by_workers() -> None:
    points = [
        [f"draw.load={load} %", f"seed={seed}", "duration=1 s"]
        for load in (50, 90)
        for seed in range(4)
    ]
    with workers.opened(count=2) as two:
        here, there = (
            Lab("rt_xen", seeds=2, quick=True, progress=None, workers=each) for each in (None, two)
        )
        assert here.runs(here.host("even"), points) == there.runs(there.host("even"), points)


# Facts and host files


def test_the_host_files_are_those_of_table_3() -> None:
    facts = setup.FACTS["table_3"]
    lab = Lab("rt_xen", seeds=2, quick=True, progress=None)
    for pattern, periods in facts["period_ms"].items():
        host = lab.resolved(lab.host(pattern), ["draw.load=70 %"])
        assert host["duration_ns"] == facts["run_minutes"] * 60 * 10**9
        assert host["settings"]["quantum_ns"] == setup.FACTS["quantum_ms"] * 10**6
        assert host["settings"]["time_slice_ns"] == setup.FACTS["quantum_ms"] * 10**6
        parameters = [domain["parameters"] for domain in host["domains"]]
        assert [each["period_ns"] for each in parameters] == [period * 10**6 for period in periods]
        assert [each["budget_ns"] for each in parameters] == [
            budget * 10**6 for budget in facts["budget_ms"]
        ]
        assert [each["priority"] for each in parameters] == facts["priority"]
        total = sum(each["weight"] for each in parameters)
        for domain, each in zip(host["domains"], parameters, strict=True):
            assert each["weight"] / total == pytest.approx(each["budget_ns"] / each["period_ns"])
            assert each["cap_percent"] == 0
            assert not each["extratime"]
            assert len(domain["tasks"]) == facts["tasks_per_domain"]
            low, high = facts["task_cost_ms"]
            assert all(low <= task["cost_ns"] / 1e6 <= high for task in domain["tasks"])


def test_published_numbers_are_read_and_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert published.percentages("capacity (nearly 85 %), almost 0.5 %") == [85.0, 0.5]
    facts = json.loads(json.dumps(setup.FACTS))
    facts["table_4"]["periodic"]["even"] = [[100, 100]]
    facts["table_1"]["schedule_calls"][0] = 7
    assert facts["table_1"]["policy"][0] == "deferrable"
    for module in (table_4, table_1):
        monkeypatch.setattr(module, "FACTS", facts)
    by_what = {
        row.what: row for row in reproduce.run("rt-xen", "table-4", True, 4).experiments[0].rows
    }
    changed = by_what["periodic, even: guaranteed loads, %"]
    assert (changed.published, changed.verdict) == ("100", "differs")
    by_what = {
        row.what: row for row in reproduce.run("rt-xen", "table-1", True, 2).experiments[0].rows
    }
    changed = by_what["deferrable: schedule calls"]
    assert (changed.published, changed.verdict) == (7.0, "differs")


def test_every_claim_is_checked() -> None:
    assert [
        claim.split()[0].removesuffix("'s") for claim in setup.FACTS["figure_6"]["claims"]
    ] == list(figure_6.CLAIMS)


# Intervals


def test_intervals() -> None:
    low, high = statistics.of_share(0, 100)
    assert (low, round(high, 4)) == (0.0, 0.0370)
    low, high = statistics.of_share(50, 100)
    assert (round(low, 4), round(high, 4)) == (0.4038, 0.5962)
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(200):
        inside += statistics.of_mean(random.normal(3, 1, 50)).holds(3)
    assert 180 <= inside <= 199, "about 95 % of intervals hold the mean (seed 5)"
    assert statistics.of_mean([2.0, 2.0]) == (2.0, 2.0)
    assert statistics.of_single(range(1, 101)) == (3, 98)
    assert statistics.Interval(1, 2).holds(2.5, 0.5)
    assert not statistics.Interval(1, 2).holds(2.51, 0.5)


# Rules of verdicts, both ways


def outcome(missed: int = 0, loss_ratio: float = 0.0) -> Outcome:
    return Outcome([600, 0], [missed, 0], [0, 0], 0, 0, 0, 0, loss_ratio)


@pytest.mark.parametrize(
    ("first", "expected"),
    [(47, "reproduced"), (49, "reproduced"), (50, "differs"), (46, "differs")],
)
def test_first_misses(first: int, expected: str) -> None:
    points = [(percent, outcome(int(percent >= first))) for percent in range(1, 51)]
    assert figure_5.first_miss(points) == first
    assert figure_5._row(1000, 48, points).verdict == expected


def test_no_first_miss_at_all_differs() -> None:
    assert figure_5._row(1000, 48, [(1, outcome())]).verdict == "differs"


def test_a_guest_that_cannot_boot() -> None:
    assert figure_5._starved(1, outcome(loss_ratio=0.51)).verdict == "reproduced"
    assert figure_5._starved(1, outcome(loss_ratio=0.49)).verdict == "differs"


def test_the_time_slice_that_fits() -> None:
    def counts(*calls: int) -> pd.DataFrame:
        return pd.DataFrame({"schedule_calls": calls})

    slices = {1: counts(3000, 3500), 5: counts(1600, 1800), 10: counts(1400, 1500)}
    assert "fits time slices of 5 ms" in table_1._time_slice(1665, slices)
    assert "lies between time slices of 5 and 10 ms" in table_1._time_slice(1550, slices)


def test_the_table_that_contradicts_itself() -> None:
    # All draws in the upper half at the 99 % quantile, the last at the maximum.
    assert table_1.mean_possible_ns(1, 3, 100) == pytest.approx(0.5 + 0.49 * 3 + 1)
    facts = setup.FACTS["table_1"]
    mean_ns = 1e3 * facts["context_switch_total_us"][0] / facts["context_switches"][0]
    quantiles = [facts[f"context_switch_{name}_ns"][0] for name in ("median", "p99", "max")]
    assert mean_ns > table_1.mean_possible_ns(*quantiles)


def test_miss_ratios_of_domains() -> None:
    ours = np.array([[0.0, 0.0, 40.0, 0.0, 0.0]] * 50 + [[0.0, 0.0, 60.0, 0.0, 0.0]] * 50)
    same = table_2._row("overloaded", "deferrable", [0, 0, 48, 0, 0], ours, "")
    assert (same.verdict, same.why) == ("reproduced", "")
    other = table_2._row("overloaded", "deferrable", [0, 1, 61, 0, 0], ours, "as measured")
    assert other.verdict == "differs"
    assert "domain 2: published 1" in other.why
    assert "domain 3: published 61" in other.why
    assert other.why.endswith("; as measured")


def test_alike() -> None:
    ours = np.array([[0.5, 50.0], [0.6, 50.0], [0.0, 40.0], [0.0, 39.9]])
    assert table_2.alike(ours, [0.0, 50.0]).tolist() == [True, False, True, False]


def test_overloads() -> None:
    def task(cost_ms: int, period_ms: int) -> dict[str, int]:
        return {"cost_ns": cost_ms * 10**6, "period_ns": period_ms * 10**6}

    tasks = [task(5, 400), task(6, 155), task(6, 300)]
    assert table_2.takes_longer(tasks, 0.1)[1] == task(16, 155)
    assert table_2.takes_longer([task(16, 155)], 0.1) == [task(16, 155)]
    assert table_2.comes_oftener(tasks, 0.1)[1] == task(6, 60)
    # 6 / 155 and 10 %: 21.5 ms.
    assert table_2.takes_longer_by(tasks, 0.1)[1] == task(22, 155)
    assert table_2.takes_longer(tasks, 0.1)[::2] == tasks[::2]


def test_nothing_that_never_idles_misses_more_than_the_bound() -> None:
    lab = Lab("rt_xen", seeds=20, quick=True, progress=None)
    host = lab.host("even")
    drawn = {seed: setup.drawn_tasks(lab, host, seed) for seed in lab.seeds}
    case = table_2.Case("normal", drawn, "duration=20 s")
    bound = table_2._bound(lab, case)
    assert bound.max() > 0
    for changes in ([], ["host.time-slice=30 ms"], ["domain.dom1.weight=1"]):
        points = [
            ["host.policy=credit", "host.costs={}", *changes, *each] for each in case.overrides()
        ]
        credit = [run.domain_miss_percent[0] for run in lab.runs(host, points)]
        assert all(ratio <= limit for ratio, limit in zip(credit, bound, strict=True)), changes


def test_largest_guaranteed_load() -> None:
    distribution = setup.largest_load({30: 1.0, 35: 0.5, 40: 0.2})
    assert distribution == pytest.approx({30: 0.4, 35: 0.4, 40: 0.2, 0: 0.0})
    assert setup.central(distribution) == (30, 40)
    assert setup.central({0: 0.02, 30: 0.97, 35: 0.01}) == (30, 30)
    shares = {30: 1.0, 35: 0.9, 40: 0.0, 45: 0.0}
    assert table_4._row("periodic", "even", [[30, 35]], shares, 5).verdict == "reproduced"
    assert table_4._row("periodic", "even", [[30, 40]], shares, 5).verdict == "differs"
    assert table_4.probability_of([30, 35], shares) == pytest.approx(0.9)
    fair = {30: 0.5, 35: 0.9}
    # The probabilities are 0.45, 0.05, 0.45 and 0.05.
    assert table_4.as_improbable([30], fair) == pytest.approx(0.1)
    assert table_4.as_improbable([30, 35], fair) == pytest.approx(1.0)
    assert table_4.runs_of([30, 35, 45, 60, 65], 5) == "30 to 35, 45, 60 to 65"


LOADS = [85, 90, 95, 100]


def curves(**ratios: list[float]) -> Curves:
    """The same ratios for every pattern; a little noise between ten task sets, the same for all."""
    noise = np.linspace(-0.01, 0.01, 10)[:, None]
    default = [1.0, 2.0, 4.0, 10.0]
    return figure_6.Curves(
        LOADS,
        {
            (pattern, policy): np.array(ratios.get(policy, default)) + noise
            for pattern in setup.PATTERNS
            for policy in setup.POLICIES
        },
    )


def test_capacity() -> None:
    assert figure_6.capacity(LOADS, np.array([1.0, 4.9, 5.0, 10.0])) == 90
    assert figure_6.capacity(LOADS, np.array([6.0, 7.0, 8.0, 9.0])) == 0
    steep = np.array([[1.0, 2.0, 3.0, 60.0], [1.0, 2.0, 9.0, 60.0]])
    assert figure_6.capacity_interval(LOADS, steep) == (90, 95)


def claim(word: str, found: Curves) -> list[str]:
    text = next(text for text in setup.FACTS["figure_6"]["claims"] if text.startswith(word))
    reasons = dict.fromkeys(
        (
            "credit",
            "sedf",
            *(
                f"{kind} {pattern}"
                for kind in ("capacity", "overload")
                for pattern in setup.PATTERNS
            ),
        ),
        "measured",
    )
    rows = figure_6.CLAIMS[word](text, found, reasons)
    assert all(row.why == ("" if row.verdict == "reproduced" else "measured") for row in rows)
    return [row.verdict for row in rows]


def test_claims_on_credit() -> None:
    assert set(claim("credit", curves(credit=[3.0, 6.0, 9.0, 12.0]))) == {"reproduced"}
    assert set(claim("credit", curves())) == {"differs"}


def test_claims_on_sedf() -> None:
    assert claim("sedf", curves(sedf=[1.0, 2.0, 6.0, 11.0])) == ["reproduced"] * 4
    assert claim("sedf", curves(sedf=[1.0, 2.0, 3.0, 4.0]))[3] == "differs"
    assert claim("sedf", curves(sedf=[6.0, 7.0, 8.0, 11.0])) == ["differs"] * 3 + ["reproduced"]


def test_claims_on_deferrable() -> None:
    best = claim("deferrable", curves(deferrable=[1.0, 2.0, 6.0, 9.0]))
    assert best == ["reproduced"] * 9
    # A server that is as good as the others in overload is not the best.
    assert claim("deferrable", curves())[6:] == ["differs"] * 3
    poor = claim("deferrable", curves(deferrable=[6.0, 7.0, 8.0, 9.0]))
    assert poor == ["differs"] * 6 + ["reproduced"] * 3


def test_claims_on_periodic() -> None:
    assert claim("periodic", curves(periodic=[1.0, 2.0, 4.0, 10.1])) == ["reproduced"] * 3
    assert claim("periodic", curves(periodic=[1.0, 2.0, 4.0, 9.9])) == ["differs"] * 3
    assert claim("periodic", curves()) == ["differs"] * 3


def test_no_misses_at_low_loads() -> None:
    def verdicts(missing: int) -> set[str]:
        ratios = np.zeros((100, 2))
        ratios[:missing, 1] = 1.0
        found = {
            (pattern, policy): ratios for pattern in setup.PATTERNS for policy in setup.POLICIES
        }
        rows = figure_6._none_missed(figure_6.Curves([30, 50], found), {})
        assert all(bool(row.why) == (row.verdict == "differs") for row in rows)
        return {row.verdict for row in rows}

    # Six policies, one set each: 0.6 ** 6 is 4.7 %, 0.61 ** 6 is 5.2 %.
    assert verdicts(39) == {"reproduced"}
    assert verdicts(40) == {"differs"}


# The table's words


def test_values_as_people_read_them() -> None:
    assert [shown(value) for value in (None, "a", 3.0, 12345.6, 0.12345, [1.0, 2.5])] == [
        "-",
        "a",
        "3",
        "12,346",
        "0.123",
        "1, 2.5",
    ]
    assert [digits(value, 2) for value in (0.0912, 5.34, 99.6, 2512.0)] == [
        "0.091",
        "5.3",
        "100",
        "2,500",
    ]
    assert shown(999.7) == "1,000"


def test_one_reason_is_told_once() -> None:
    rows = [Row(what, 1.0, 2.0, "differs", "the same cause") for what in ("this", "that")]
    experiment = Experiment("e", "t", "m", rows, [Measurement("beside", 5.0)], pd.DataFrame())
    text = text_of(Reproduction("p", "P", 2, quick=False, experiments=[experiment]), 80)
    assert text.count("the same cause") == 1
    assert re.search(r"^e +2  the same cause", text, re.MULTILINE)
    assert "with every reason in full and 1 measurement" in " ".join(text.split())
    assert "--quick" not in text


def test_prose_of_a_page_is_wrapped_and_stays_a_paragraph() -> None:
    words = " ".join(["word"] * 19)
    lines = wrapped(f"{words} - 3 % {words} 2. {words}", "1. ")
    assert lines[0].startswith("1. word")
    assert all(line.startswith("   ") for line in lines[1:])
    assert all(line.strip()[0] not in "-2" for line in lines[1:])
    assert max(map(len, lines)) <= COLUMNS
    assert " ".join(" ".join(lines).split()) == f"1. {words} - 3 % {words} 2. {words}"
