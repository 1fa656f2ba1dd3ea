"""What is too much for a machine is refused before it begins, and what takes a while is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import laxity as package
import numpy as np
import pytest
from conftest import EXAMPLES
from laxity import _core, report
from laxity.errors import InputError
from laxity.substrates.sim import Sim
from laxity.substrates.sim.estimate import Estimate, Resources

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity

GB = 10**9
MACHINE = Resources(cpus=2, memory_bytes=8 * GB, disk_bytes=None)
ESTIMATE = Estimate(
    runs=1,
    tasks=5,
    jobs=1_200_000,
    packets=0,
    events=5_000_000,
    cpu_ns=200 * GB,
    memory_bytes=240_000_000,
    trace_bytes=2 * GB,
)
FLAT = str(EXAMPLES / "flat.toml")
TICKING = ["--set", "host.quantum=1 us"]


def test_an_estimate_is_one_line_for_people() -> None:
    said = ESTIMATE.say(MACHINE)
    assert said == "about 3 min: 1,200,000 jobs, 5,000,000 events; 240 MB of memory"
    traced = ESTIMATE.say(replace(MACHINE, disk_bytes=9 * GB))
    assert traced.endswith("240 MB of memory, 2 GB of trace")
    many = replace(ESTIMATE, runs=40).say(MACHINE)
    assert many.startswith("about 100 s: 40 runs, ")
    assert many.endswith("480 MB of memory"), "of as many runs as there are CPUs"


@pytest.mark.parametrize(
    ("estimate", "machine", "message", "help"),
    [
        ({"memory_bytes": 9 * GB}, {}, "needs 9 GB of memory, and 8 GB are free", "5 tasks"),
        ({}, {"disk_bytes": GB}, "the trace would have 2 GB, and 1 GB", "--no-trace"),
        ({"cpu_ns": 36_000 * GB}, {}, "takes about 10 h", "take 10 % of the duration"),
        ({"cpu_ns": 4_000 * GB}, {}, "takes about 67 min", "90 % of the duration"),
    ],
)
def test_too_much_is_refused(
    estimate: dict[str, int], machine: dict[str, int], message: str, help: str
) -> None:
    excess = replace(ESTIMATE, **estimate).excess(replace(MACHINE, **machine), long=False)
    assert excess is not None
    assert message in excess.message
    assert help in str(excess.help)


def test_an_hour_and_more_can_be_asked_for_and_memory_cannot() -> None:
    assert ESTIMATE.excess(MACHINE, long=False) is None
    assert replace(ESTIMATE, cpu_ns=36_000 * GB).excess(MACHINE, long=True) is None
    assert replace(ESTIMATE, memory_bytes=9 * GB).excess(MACHINE, long=True) is not None


@pytest.mark.parametrize(
    "words",
    [
        ["run", FLAT, *TICKING, "--duration", "10000 h"],
        ["compare", FLAT, *TICKING, "--duration", "10000 h"],
        ["sweep", FLAT, *TICKING, "--set", "duration=9999 h|10000 h"],
        ["capacity", str(EXAMPLES / "telephony.toml"), "--duration", "10000 h"],
    ],
    ids=lambda words: words[0],
)
def test_no_command_begins_what_takes_days(laxity: Laxity, words: list[str]) -> None:
    result = laxity(*words, code=2)
    assert "error: this takes about" in result.stderr
    assert "add --long, if that is meant" in result.stderr


def test_tasks_are_counted_before_they_are_drawn() -> None:
    domain = '[[domain]]\nname = "d{}"\nbudget = "1 us"\nperiod = "1 ms"\ntasks = "drawn"\n'
    host = package.Host.parse(
        'duration = "1 s"\n[host]\ncpus = 1\npolicy = "deferrable"\n'
        "[draw]\nload = 0.7\ntasks = 1000\n" + "".join(domain.format(n) for n in range(1000))
    )
    with pytest.raises(InputError, match="more than 100000 tasks"):
        Sim().estimate([host.resolve()])


def test_what_takes_a_while_is_told_beforehand() -> None:
    told: list[str] = []
    host = package.Host.load(FLAT)
    host.run(duration="1 s", say=told.append)
    assert told == []

    def stop(done: int, total: int) -> None:
        raise RuntimeError(done, total)

    with pytest.raises(RuntimeError):
        host.run(duration="10000 h", say=told.append, progress=stop)
    assert len(told) == 1
    assert told[0].startswith("about ")


def test_responses_that_were_counted_are_saved_drawn_and_told(tmp_path: Path) -> None:
    host = package.Host.parse(
        'duration = "11 s"\n[host]\ncpus = 1\npolicy = "deferrable"\n'
        '[[domain]]\nname = "control"\nbudget = "40 us"\nperiod = "50 us"\n'
        'tasks = [{ name = "short", cost = "1 us", period = "10 us" },\n'
        '{ name = "rare", cost = "30 us", period = "1 ms" }]\n'
    )
    run = host.run()
    short, rare = run.domain("control").tasks
    assert (short.relative_error, rare.relative_error) == (0.001, None)
    assert run.responses.keys() == {("control", "rare")}
    assert run.counted.keys() == {("control", "short")}
    counts = run.counted["control", "short"]
    assert counts.jobs.sum() == short.jobs == 1_100_000
    assert counts.response_ns.max() == short.response_ns.max
    assert short.unfinished == 0
    loaded = package.Run.load(run.save(tmp_path / "out"))
    np.testing.assert_array_equal(
        loaded.counted["control", "short"].response_ns, counts.response_ns
    )
    np.testing.assert_array_equal(loaded.counted["control", "short"].jobs, counts.jobs)
    assert loaded.to_json() == run.to_json()
    jsonschema.validate(run.to_json(), json.loads(_core.result_schema()))
    tasks = run.to_json()["domains"][0]["tasks"]
    assert [task.get("relative_error") for task in tasks] == [0.001, None]
    assert "relative_error" not in tasks[1]
    page = report.write(run.save(tmp_path / "report"))
    assert "p50 and p99 of 1 of 2 tasks" in page.read_text()
