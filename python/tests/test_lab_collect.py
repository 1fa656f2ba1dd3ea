"""From what dom0 left to a run: a directory as dom0 leaves it, made here."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import numpy as np
import pytest
from laxity import Host, Run, _core, tracefile
from laxity import report as reports
from laxity.lab.errors import LabError
from laxity.results.schema import Machine
from laxity.substrates.xen import collect
from laxity.substrates.xen.plan import Window
from test_xen_trace import BATCH, CONTROL, HOST, IDLE, MS, START_REALTIME_NS, dump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMPLETIONS_MS = (2, 12)


def report(tasks: list[list[int]], duration_ns: int = 20 * MS, note: str = "") -> str:
    """A guest's, as guest/report.h has it; each task has two jobs."""
    lines = [f"laxity-report run {duration_ns} {len(tasks)} 1", "laxity-speed 7812 1500"]
    lines += ["laxity-tick 4000000 1500000"]
    lines += [f"laxity-note {note}"] if note else []
    for number, completions_ns in enumerate(tasks):
        lines.append(f"laxity-task {number} 2 {len(completions_ns)}")
        lines += [" ".join(map(str, np.diff([0, *completions_ns])))] if completions_ns else []
    body = "".join(f"{line}\n" for line in [*lines, "laxity-vcpu 0 0 0"])
    return f"{body}laxity-crc {zlib.crc32(body.encode()):08x}\nlaxity-report-end run\n"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    directory = tmp_path / "results"
    directory.mkdir()
    (directory / "start").write_text(f"{START_REALTIME_NS}\n")
    (directory / "domids").write_text("laxity-control 3\nlaxity-batch 7\n")
    (directory / "laxity-control.jobs").write_text(report([[ms * MS for ms in COMPLETIONS_MS]]))
    (directory / "laxity-batch.jobs").write_text(report([]))
    dump(
        directory / "trace.bin",
        [
            (0, IDLE, CONTROL),
            (2 * MS, CONTROL, BATCH),
            (7 * MS, BATCH, IDLE),
            (10 * MS, IDLE, CONTROL),
            (12 * MS, CONTROL, BATCH),
            (17 * MS, BATCH, IDLE),
        ],
    )
    return directory


def collected(results: Path, scheduler: str | None = None) -> Run:
    host = Host(HOST, "host.toml")
    window = Window("run", host.resolved())
    trace = results.parent / "run.laxtrace"
    return collect.run(host.resolve(), window, results, trace, scheduler=scheduler, wall_ns=5)


def test_the_machine_is_in_the_result(results: Path) -> None:
    parts = ("fingerprint", "qemu", "firmware", "xen", "kernel", "root", "programs")
    run = replace(collected(results), machine=Machine(**{part: part for part in parts}))
    schema = json.loads(_core.result_schema())
    for told in (run.to_json(), collected(results).to_json()):
        jsonschema.Draft202012Validator(schema).validate(told)
        assert Run.from_json(told, run.origin).machine == (told["machine"] and run.machine)
    assert run.to_json()["machine"] == {part: part for part in parts}


def test_a_run_is_as_simulated(results: Path, tmp_path: Path) -> None:
    real = collected(results)
    sim = Host(HOST, "host.toml").run(trace=tmp_path / "sim.laxtrace")
    assert real.substrate == "xen"
    # Real guests do not tell how long they waited.
    assert real.domains == tuple(replace(domain, waits=None) for domain in sim.domains)
    assert real.responses.keys() == sim.responses.keys()
    assert real.responses["control", "loop"].tolist() == [2 * MS, 2 * MS]
    assert (real.overhead.schedule_calls, real.overhead.context_switches) == (6, 6)
    assert real.engine.wall_ns == 5
    assert real.trace is not None
    assert real.engine.events == len(tracefile.records(real.trace))
    agreement = json.loads(_core.agreement(str(sim.trace), str(real.trace)))
    assert agreement["same_ratio"] == 1
    summary = json.loads((tmp_path / "run.summary.json").read_text())
    assert summary["cpu_ns"] == [[4 * MS], [10 * MS]]
    assert summary["ticks"] == [{"period_ns": 4 * MS, "offset_ns": 1_500_000}] * 2


def test_it_is_saved_and_reported_as_a_simulated_one(results: Path, tmp_path: Path) -> None:
    real = collected(results)
    assert reports.write(real.save(tmp_path / "out")).is_file()
    loaded = Run.load(tmp_path / "out")
    assert loaded == real.__class__(**{**vars(real), "origin": loaded.origin})


def test_a_stock_scheduler_has_its_name(results: Path) -> None:
    real = collected(results, "credit2")
    assert real.policy == "xen:credit2"
    assert real.trace is not None
    assert tracefile.metadata(real.trace)["policy"] == "xen:credit2"


def rewrite(name: str, text: str) -> Callable[[Path], object]:
    return lambda results: (results / name).write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda results: (results / "laxity-batch.jobs").unlink(), r"no laxity-batch\.jobs"),
        (lambda results: (results / "trace.bin").unlink(), r"trace\.bin"),
        (rewrite("trace.bin", "LAXITY"), "dump"),
        (rewrite("laxity-batch.jobs", ""), "no report of run 'run'"),
        (rewrite("laxity-batch.jobs", report([], duration_ns=1)), "another run: it has 1 ns"),
        (rewrite("laxity-control.jobs", report([])), "and 0 tasks"),
        (rewrite("laxity-batch.jobs", report([], note="no priorities")), "batch: no priorities"),
        (rewrite("laxity-control.jobs", report([[MS, 2 * MS]])), "job 1 cannot have completed"),
        (rewrite("start", "soon"), "'soon' and not a number"),
        (rewrite("start", str(START_REALTIME_NS + 5 * MS)), "not within the traced time"),
        (rewrite("domids", "laxity-control 3\n"), "does not name all domains"),
        (rewrite("domids", "laxity-control 3 4\n"), "does not name all domains"),
    ],
)
def test_what_is_missing_or_damaged_is_told(
    results: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(results)
    with pytest.raises(LabError, match=message):
        collected(results)


CALLS = """
duration = "20 ms"
[host]
cpus = 1
policy = "credit"
[[domain]]
name = "dom0"
workload = { kind = "driver" }
[[domain]]
name = "control"
workload = { kind = "media-server" }
[[domain]]
name = "batch"
workload = { kind = "cpu-bound" }
[calls]
streams = 3
media-server = "control"
"""
QUANTILES = {
    "count": 2,
    "mean_ns": 3.0,
    "min_ns": 2,
    "max_ns": 4,
    **{f"p{part}_ns": 3 for part in (25, 50, 75, 99, 999)},
}


def calls_report() -> dict[str, object]:
    streams = [
        {"stream": stream, "expected": 1, "received": came, "lost": 1 - came, "jitter_ns": None}
        for stream, came in ((0, 1), (1, 0), (2, 1))
    ]
    sink = {"received": 2, "lost": 1, "dropped": 0, "duplicates": 0, "delay": QUANTILES}
    return {
        "calls": {"streams_most": 3},
        "load": {"streams": 3, "sent": 3, "failed": 0},
        "sink": {**sink, "per_stream": streams},
        "relay": None,
    }


@pytest.fixture
def results_of_calls(results: Path) -> Path:
    (results / "laxity-control.jobs").write_text(report([]))
    (results / "calls.json").write_text(json.dumps(calls_report()))
    relay = {"relay": {"received": 2, "dropped": 1, "forwarded": 2, "failed": 0}}
    # The console cuts what is long.
    text = json.dumps(relay).replace(" ", "\n")
    (results / "laxity-control.output").write_text(
        f"laxity-output run\n{text}\nlaxity-output-end run\n"
    )
    packets = np.array([(0, 0, 5, 9), (2, 0, 6, 10)], collect.PACKET)
    packets.tofile(results / "packets")
    return results


def collected_calls(results: Path) -> Run:
    host = Host.parse(CALLS)
    window = Window("run", host.resolved())
    trace = results.parent / "run.laxtrace"
    return collect.run(host.resolve(), window, results, trace, scheduler=None, wall_ns=5)


def test_calls_are_in_the_result(results_of_calls: Path) -> None:
    run = collected_calls(results_of_calls)
    assert run.telephony is not None
    assert (run.telephony.voice.sent, run.telephony.voice.lost) == (3, 1)
    assert run.telephony.drops.socket == 1
    assert [stream.stream for stream in run.streams] == [0, 2]
    assert [domain.name for domain in run.domains] == ["dom0", "control", "batch"]
    assert [domain.cpu_ns for domain in run.domains] == [0, 4 * MS, 10 * MS]
    summary = json.loads((results_of_calls.parent / "run.summary.json").read_text())
    assert summary["ticks"][0] is None, "dom0 reports none"


@pytest.mark.parametrize("name", ["calls.json", "laxity-control.output"])
def test_calls_that_are_damaged_are_told(results_of_calls: Path, name: str) -> None:
    (results_of_calls / name).write_text("laxity-output run\n{\nlaxity-output-end run\n")
    with pytest.raises(LabError, match=f"{name} is damaged"):
        collected_calls(results_of_calls)
    (results_of_calls / name).unlink()
    with pytest.raises(LabError, match=f"dom0 left no {name}"):
        collected_calls(results_of_calls)
