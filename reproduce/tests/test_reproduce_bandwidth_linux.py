"""The paper's bandwidths with real packets, in a hurry; every rule of a verdict, both outcomes."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from laxity.errors import InputError
from laxity_reproduce import papers as reproduce
from laxity_reproduce.bandwidth import on_linux
from laxity_reproduce.page import write_page
from laxity_reproduce.reproduction import Reproduction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from laxity_reproduce.reproduction import Experiment


def namespaces() -> set[str]:
    """Those of scenes that are there."""
    words = ["ip", "netns", "list"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line.startswith("laxity-bw-")}


def test_real_packets_in_a_hurry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for tool in ("cargo", "ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    # The tests in Rust were built with this profile.
    monkeypatch.setattr(on_linux, "PROFILE", "checked")
    before = namespaces()
    found = on_linux.experiments(["drops", "wake"], quick=True)
    assert namespaces() <= before
    drops, wake = found
    # Rates and times are the machine's own: that all was measured is what can be said of them.
    assert [each.what.split(",")[0] for each in drops.measurements[:3]] == [
        "dropped at the guest",
        "dropped at the bridge",
        "dropped at the link",
    ]
    for experiment in (drops, wake):
        for each in experiment.measurements:
            assert isinstance(each.ours, float), each
            # A difference of two times that were measured may have either sign on a busy machine.
            assert each.ours > 0 or "saved" in each.what, each
    page = tmp_path / "page.md"
    write_page(
        Reproduction("bandwidth", "title", 1, quick=True, experiments=found, on="linux"), page
    )
    assert "dropped at the guest" in " ".join(page.read_text().split())


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(InputError, match="no experiment `figure-9` on Linux"):
        reproduce.run("bandwidth", "figure-9", on="linux")
    with pytest.raises(InputError, match="availability has no shorter runs"):
        reproduce.run("availability", quick=True, on="linux")


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="need root"):
        reproduce.run("bandwidth", "drops", on="linux")


def paper(loss: float, used: float) -> list[dict[str, Any]]:
    """Three runs: without, with the daemon, and with other maxima."""
    count = 30 * 4
    common = {"every_s": 0.25, "shorter": 1, "mbit_s": [[used - 20, 10, 10]] * count}
    common |= {"loss_of_schedule_percent": loss, "unheard": 0, "load": 0.5}
    return [
        common | {"maxima_mbit_s": None, "class_1_loss_percent": 55.9},
        common | {"maxima_mbit_s": [60, 30, 10], "class_1_loss_percent": loss},
        common | {"maxima_mbit_s": [60, 60, 40], "class_1_loss_percent": 1.0},
    ]


def period(number: int | None, loss: float, packets: float, daemon: float) -> dict[str, Any]:
    return {
        "period_ms": number,
        "loss_percent": loss,
        "packets_cpu_percent": packets,
        "daemon_cpu_percent": daemon,
        "timer_interrupts_s": None if number is None else 1000,
    }


def dropped(*us: float) -> list[dict[str, Any]]:
    spread = {"rounds": 1, "packets": 1000, "min_us": 1.0, "max_us": 9.0}
    places = ("guest", "bridge", "link")
    return [
        {"place": place, "median_us": each} | spread for place, each in zip(places, us, strict=True)
    ]


def random(worst: float, violations: int) -> list[dict[str, Any]]:
    found = {"worst_percent": worst, "violations": violations, "busy_seconds_of_machines": 9}
    return [found | {"loop_ms_max": 1.0, "periods_missed": 0, "machines": 100, "seconds": 3}]


def waited(median: float) -> list[dict[str, Any]]:
    return [{"median_ms": median, "p90_ms": 11.0, "max_ms": 12.0, "rounds": 4}]


def looked(all_us: float, active_us: float) -> list[dict[str, Any]]:
    found = {"interfaces": 1000, "busy": 0, "all_us": all_us, "active_us": active_us}
    return [found | {"rounds": 20, "load": 0.1}]


def costs(percent: float, missed: int, busy: int = 0) -> list[dict[str, Any]]:
    found = {"interfaces": 1000, "busy": busy, "period_ms": 100, "cpu_percent": percent}
    found |= {"loop_ms": 0.1, "loop_ms_max": 1.0, "periods": 10, "load": 0.1}
    return [found | {"periods_missed": missed, "what": ""}]


def costs_of_many(percent: float, busy: int) -> list[dict[str, Any]]:
    return [costs(percent, 0, busy)[0] | {"interfaces": 10_000, "period_ms": 10}]


GOOD, BAD = "reproduced", "differs"


@pytest.mark.parametrize(
    ("make", "parts", "verdicts"),
    [
        (on_linux.throughput, paper(16.6, 99.5), [GOOD, GOOD, GOOD, GOOD]),
        (on_linux.throughput, paper(17.3, 95.0), [GOOD, BAD, BAD, BAD]),
        (
            on_linux.periods,
            [period(None, 0, 50, 0), period(10, 25, 50, 12), period(100, 25.2, 51, 1)],
            [GOOD, GOOD, GOOD],
        ),
        (
            on_linux.periods,
            [period(None, 0, 50, 0), period(10, 25, 50, 2), period(100, 26, 60, 1)],
            [BAD, BAD, BAD],
        ),
        (on_linux.drops, dropped(1, 2, 3), [GOOD]),
        (on_linux.drops, dropped(2, 1, 3), [BAD]),
        (on_linux.wake, waited(9.9), [GOOD]),
        (on_linux.wake, waited(10.1), [BAD]),
        (on_linux.random, random(0.9, 0), [GOOD, GOOD]),
        (on_linux.random, random(1.1, 1), [BAD, BAD]),
        (on_linux.look, looked(2000, 50), [GOOD]),
        (on_linux.look, looked(50, 60), [BAD]),
        (on_linux.cost, costs(1.9, 0), [GOOD, GOOD]),
        (on_linux.cost, costs(2.1, 3), [BAD, BAD]),
        (on_linux.cost, costs(1.9, 3, busy=50), [GOOD]),
        (on_linux.cost, costs_of_many(4.9, busy=50), [GOOD]),
        (on_linux.cost, costs_of_many(5.1, busy=50), [BAD]),
        (on_linux.cost, costs_of_many(90.0, busy=500), []),
    ],
)
def test_verdicts(
    make: Callable[[list[dict[str, Any]]], Experiment],
    parts: list[dict[str, Any]],
    verdicts: list[str],
) -> None:
    rows = make(parts).rows
    assert [row.verdict for row in rows] == verdicts
    assert all(row.why for row in rows if row.verdict == BAD)


def test_why_an_agreement_costs_cpu_time() -> None:
    """Only what was measured is said to be the cause."""
    short, long = period(10, 25, 50, 2), period(100, 25, 60, 1)
    for interrupts, why in (
        (None, "not been measured"),
        (950, "not been measured"),
        (500, "1,000"),
    ):
        native = period(None, 0, 50, 0) | {"timer_interrupts_s": interrupts}
        row = on_linux.periods([native, short, long]).rows[1]
        assert row.verdict == BAD
        assert why in row.why
