from __future__ import annotations

import json
from typing import TYPE_CHECKING

import laxity
import pyarrow.parquet as pq
import pytest
from conftest import HOST
from laxity import _core, tracefile
from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> laxity.Run:
    return laxity.Host.parse(HOST).run(trace=tmp_path / "trace.laxtrace")


@pytest.fixture
def trace(run: laxity.Run) -> Path:
    assert run.trace is not None
    return run.trace


def test_the_table_says_what_the_text_says(trace: Path, tmp_path: Path) -> None:
    tracefile.write_text(trace, tmp_path / "text")
    lines = [line for line in (tmp_path / "text").read_text().splitlines() if line[0] != "#"]
    table = tracefile.table(trace).to_pylist()
    assert len(table) == len(lines) == len(tracefile.records(trace))
    for row, line in zip(table, lines, strict=True):
        time_ms, cpu, vcpu, kind, *rest = line.split()
        assert row["time_ns"] == round(float(time_ms) * 1e6)
        assert row["cpu"] == (None if cpu == "-" else int(cpu))
        assert vcpu == ("-" if row["domain"] is None else f"{row['domain']}/{row['vcpu']}")
        assert row["kind"] == kind
        if row["task"] is not None:
            assert rest[:2] == [row["task"], f"#{row['job']}" + ("," if len(rest) > 2 else "")]


def test_the_table_has_the_jobs_of_the_result(run: laxity.Run, trace: Path) -> None:
    table = tracefile.table(trace).to_pandas()
    completed = table[table["kind"] == "complete"]
    for domain in run.domains:
        for task in domain.tasks:
            times = run.responses[domain.name, task.name]
            assert len(times) == task.jobs - task.unfinished
            is_of_task = (completed["domain"] == domain.name) & (completed["task"] == task.name)
            # Jobs may complete before the run ends with a deadline after it.
            assert set(completed[is_of_task]["job"]) >= set(range(len(times))), (
                domain.name,
                task.name,
            )
    assert (table["time_ns"].diff().dropna() >= 0).all()


def test_parquet_is_the_table(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tracefile.table(trace)
    # Several batches.
    monkeypatch.setattr(tracefile, "BATCH_RECORDS", 100)
    tracefile.write_parquet(trace, tmp_path / "parquet")
    assert pq.read_table(tmp_path / "parquet").to_pylist() == whole.to_pylist()


def _packets(data: bytes) -> Iterator[bytes]:
    """The packets of a Perfetto trace: fields 1, length-delimited (protobuf wire format)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        assert varint() == 1 << 3 | 2
        length = varint()
        yield data[at : at + length]
        at += length
    assert at == len(data)


def test_perfetto_is_packets_to_the_end(trace: Path, tmp_path: Path) -> None:
    tracefile.write_perfetto(trace, tmp_path / "pftrace")
    packets = list(_packets((tmp_path / "pftrace").read_bytes()))
    assert len(packets) > len(tracefile.records(trace)) / 2
    for name in (b"control", b"hungry"):
        assert any(name in packet for packet in packets)


def test_kinds_have_their_names(trace: Path) -> None:
    counts = json.loads(_core.diff(str(trace), str(trace))[2])["counts"]
    numbers = tracefile.records(trace)["kind"]
    assert counts
    for count in counts:
        number = tracefile.number_of(count["kind"])
        assert (numbers == number).sum() == count["a"], count["kind"]


def test_damaged_traces_are_refused(trace: Path, tmp_path: Path) -> None:
    whole = trace.read_bytes()
    for name, damaged in {
        "cut": whole[:-5],
        "empty": b"",
        "other": b"something else altogether",
        "header": whole[:20],
    }.items():
        path = tmp_path / name
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            tracefile.table(path)


def test_a_trace_is_found_in_a_directory(run: laxity.Run, tmp_path: Path) -> None:
    directory = run.save(tmp_path / "out")
    assert tracefile.find(directory) == directory / "trace.laxtrace"
    (directory / "trace.laxtrace").unlink()
    with pytest.raises(InputError, match="no trace"):
        tracefile.find(directory)
    with pytest.raises(InputError, match="not an output directory"):
        tracefile.find(tmp_path)
    with pytest.raises(InputError, match="no file"):
        tracefile.find(tmp_path / "nothing")
