"""`laxity reproduce soft-real-time`: what it measures, and what it says of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from laxity import Host, tracefile
from laxity.plots.style import svg
from laxity.results.run import mean_wait_ns
from laxity.results.streams import LOST, KeptStream
from laxity_reproduce import papers as reproduce
from laxity_reproduce import published, quality
from laxity_reproduce.lab import Lab
from laxity_reproduce.page import write_page
from laxity_reproduce.quality import Outcome, Use
from laxity_reproduce.soft_real_time import expected, queues, setup
from laxity_reproduce.soft_real_time.setup import Several, alike, better, good

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

HOST = published.host_file("soft_real_time", setup.HOST)
SHORT = ("calls.hold=4 s", "calls.sample=2", "duration=8 s")
GOOD, BAD = 4.2, 2.0


def outcome(good_calls: int, bad_calls: int, cpus: float = 0.5, wait_us: int = 10) -> Outcome:
    use = Use(int(cpus * 1e9), 0, 1000, 100, 100 * wait_us * 1000, wait_us * 5000)
    domains = dict.fromkeys(("dom0", "media", "call", "sip", "c-dom"), use)
    pesq = [GOOD] * good_calls + [BAD] * bad_calls
    return Outcome(pesq, 0.01, 10**6, 10**7, 0, 10**9, domains)


# What is measured


def test_a_run_is_that_of_its_host_and_its_whole_calls_are_judged() -> None:
    overrides = [*setup.cpuload("ALL").overrides(), *SHORT]
    found = quality.measure(HOST, "telephony.toml", overrides)
    run = Host(HOST, "telephony.toml").run(set=overrides)
    assert run.telephony is not None
    assert found.loss_ratio == run.telephony.voice.loss_ratio
    assert found.duration_ns == 8_000_000_000
    for domain in run.domains:
        use = found.domains[domain.name]
        assert (use.cpu_ns, use.cache_misses) == (domain.cpu_ns, domain.cache_misses)
        assert domain.waits is not None
        assert use.wait_mean_us == pytest.approx(mean_wait_ns(domain.waits) / 1000)
    whole = [stream for stream in run.streams if stream.arrived_ns.size == 200]
    assert 0 < len(whole) < len(run.streams)
    assert len(found.pesq) == len(whole)
    assert found.toll_percent > 50


def test_calls_that_lose_the_same_packets_score_the_same_and_a_dead_one_0() -> None:
    arrived = np.arange(250) * quality.PACKET_NS + 10**6
    lossy = np.where(np.arange(250) % 10 == 0, LOST, arrived)
    dead = np.full(250, LOST)
    streams = [KeptStream(i, 0, 0, a) for i, a in enumerate((arrived, lossy, arrived))]
    streams += [KeptStream(3, 0, 0, dead), KeptStream(4, 0, 0, arrived[:249])]
    first, second, third, fourth = quality.scores(streams, 250 * quality.PACKET_NS)
    assert first == third > 4 > second > fourth == 0


def test_all_configurations_are_hosts() -> None:
    host = Host(HOST, "telephony.toml")
    for policy in setup.POLICIES:
        for of in (setup.standard, setup.cpuload):
            for changes in ((), setup.PINNED, (setup.SHARED,)):
                resolved = host.resolved(of(policy, *changes).overrides())
                assert resolved["policy"] == setup.POLICIES[policy]


def test_nothing_runs_in_c_dom_in_the_standard_configuration() -> None:
    found = {
        name: quality.measure(HOST, "telephony.toml", [*of("base").overrides(), *SHORT])
        for name, of in (("std", setup.standard), ("cpuload", setup.cpuload))
    }
    assert found["std"].domains["c-dom"].cpu_ns < 1_000_000
    assert found["cpuload"].domains["c-dom"].cpu_ns > 8_000_000_000


def test_queue_metrics_of_a_trace_by_hand() -> None:
    steps = [  # time, kind, argument: boost, preempted while boost, under at a tick, preempted
        *((0, "class", 0), (0, "wake", 0), (5, "run", 0), (15, "stop", 1)),
        *((20, "run", 0), (22, "class", 1), (30, "stop", 1), (40, "run", 0), (70, "stop", 0)),
    ]
    records = np.zeros(len(steps) + 1, tracefile.RECORD)
    for record, (time_ns, kind, argument) in zip(records, steps, strict=False):
        record["time_ns"], record["argument"] = time_ns, argument
        record["kind"], record["domain"] = tracefile.number_of(kind), 2
    found = queues.runs(records, 2, 0)
    assert found.queued_ns.tolist() == [0, 15, 30]
    assert found.started_ns.tolist() == [5, 20, 40]
    assert found.stopped_ns.tolist() == [15, 30, 70]
    assert found.queued_class.tolist() == [0, 0, 1]
    assert found.run_class.tolist() == [0, 0, 1]


def test_expected_waits_by_hand() -> None:
    def vcpu(*times_ns: tuple[int, int, int]) -> queues.Runs:
        queued, started, stopped = np.array(times_ns, np.int64).T
        nothing = np.zeros(len(times_ns), np.int64)
        return queues.Runs(queued, started, stopped, nothing, nothing, nothing)

    first = vcpu((0, 0, 30), (50, 60, 80))
    # Behind the first, which ran for 30 the last time and not for 20 as now; then behind nobody.
    second = vcpu((55, 82, 90), (95, 100, 110))
    found = expected.differences_ns({"one": [first], "two": [second]})
    assert found["one"].tolist() == [0, 10]
    assert found["two"].tolist() == [27 - 30, 5]


def test_figures_are_drawn_of_what_is_measured() -> None:
    for name in ("figure-3", "figure-11"):
        found = reproduce.run("soft-real-time", name, quick=True).experiments[0]
        assert found.draw is not None
        assert svg(found.draw(found.data)).startswith(b"<?xml")


def test_queue_metrics_of_a_run() -> None:
    found = reproduce.run("soft-real-time", "figure-11", quick=True).experiments[0]
    media = found.data[found.data.domain == "media"]
    assert set(media.configuration) == {"credit-std", "base-cpuload", "A-cpuload", "AL-cpuload"}
    assert (found.data.uc >= 0).all()
    assert media.uc.sum() > 0
    assert sum(found.measurements[0].ours) == pytest.approx(100)  # type: ignore[arg-type]


# What is said


@pytest.mark.parametrize(
    ("ours", "other", "is_good", "is_better", "is_alike"),
    [
        ((95, 5), (85, 15), True, True, False),
        ((94, 6), (85, 15), False, False, True),
        ((80, 20), (75, 25), False, False, True),
    ],
)
def test_verdicts(
    ours: tuple[int, int],
    other: tuple[int, int],
    is_good: bool,
    is_better: bool,
    is_alike: bool,
) -> None:
    found = {"ours": Several((outcome(*ours),)), "other": Several((outcome(*other),))}
    rows = (
        good("ours", found["ours"]),
        better("ours", "other", found),
        alike("ours", "other", found, "as good"),
    )
    for row, holds in zip(rows, (is_good, is_better, is_alike), strict=True):
        assert (row.verdict == "reproduced") == holds
        assert bool(row.why) != holds


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs take no time, and come to something else each."""

    def measure_all(
        host: bytes,
        name: str,
        overrides: Sequence[Sequence[str]],
        progress: Callable[[int], None],
    ) -> list[Outcome]:
        assert (host, name) == (HOST, "telephony.toml")
        progress(len(overrides))
        return [
            outcome(100 - hash_, hash_, 0.1 + hash_ / 200, 1 + hash_)
            for hash_ in (sum(map(ord, "".join(each))) % 40 for each in overrides)
        ]

    monkeypatch.setattr(setup, "measure_all", measure_all)
    for module in (queues, expected):
        monkeypatch.setattr(module, "traced", traced)


def traced(*_: Any) -> dict[str, list[queues.Runs]]:
    times = np.arange(0, 1200, 10)
    classes = times // 10 % 2
    runs = queues.Runs(times, times + 1, times + 5, classes, classes, 0 * times)
    return {"media": [runs], "dom0": [runs]}


@pytest.mark.usefixtures("made_up")
def test_every_experiment_has_rows_reasons_and_a_page(tmp_path: Path) -> None:
    done: list[int] = []
    found = reproduce.run(
        "soft-real-time", quick=True, progress=lambda at, total: done.append(at * 1000 // total)
    )
    assert done == sorted(done)
    assert done[-1] == 1000
    json.dumps(found.to_json(), allow_nan=False)
    assert [experiment.name for experiment in found.experiments] == list(
        reproduce.PAPERS["soft-real-time"].experiments
    )
    for experiment in found.experiments:
        assert experiment.rows
        assert len({row.what for row in experiment.rows}) == len(experiment.rows)
        for row in experiment.rows:
            assert row.verdict == "reproduced" or row.why, row
    write_page(found, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    for experiment in found.experiments:
        drawn = f"page/{experiment.name}.svg" in page
        assert drawn == (experiment.draw is not None)
        if drawn:
            assert (tmp_path / "page" / f"{experiment.name}.svg").stat().st_size > 1000


@pytest.mark.usefixtures("made_up")
def test_what_was_run_for_one_experiment_is_not_run_again() -> None:
    lab = Lab("soft_real_time", seeds=2, quick=True, progress=None)
    wanted = {"base": setup.standard("base"), "again": setup.standard("base")}
    found = setup.measured(lab, wanted)
    assert found["base"] is found["again"]
    assert setup.measured(lab, {"other": setup.standard("base")})["other"] is found["base"]
    assert len(found["base"].runs) == 2
