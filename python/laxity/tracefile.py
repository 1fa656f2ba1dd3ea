"""A trace as NumPy records, as an Arrow table, as Parquet; and its other exports."""

from __future__ import annotations

import json
import os
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from laxity import _core, files
from laxity import directory as directories
from laxity.errors import InputError, core_errors
from laxity.tracefs import FAIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from laxity.observation_schema import Thread
    from laxity.trace_schema import DomainMetadata, Metadata

RECORD = np.dtype(
    [
        ("time_ns", "<i8"),
        ("argument", "<i8"),
        ("cpu", "<u2"),
        ("domain", "<u2"),
        ("vcpu", "<u2"),
        ("kind", "u1"),
        ("reserved", "u1"),
    ]
)
"""The layout of a record in the file (crates/laxity-trace)."""

KINDS = tuple(_core.trace_kinds())
"""By their numbers, from 1."""

EXITS = tuple(_core.trace_exits())
"""Why guests are left, by the arguments of records of that kind."""


def number_of(kind: str) -> int:
    """Returns the number of a kind, as records have it."""
    return 1 + KINDS.index(kind)


NONE = 0xFFFF
"""In `cpu`, `domain` and `vcpu`."""

JOB_KINDS = tuple(map(number_of, ("release", "complete", "execute")))
"""Their argument is a job: the task's place in its domain above the job's number."""

JOB_NUMBER_BITS = 40

BATCH_RECORDS = 1 << 20
"""What is in memory at a time when a trace is exported."""

_SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("cpu", pa.uint16()),
        ("domain", pa.dictionary(pa.int32(), pa.string())),
        ("vcpu", pa.uint16()),
        ("task", pa.dictionary(pa.int32(), pa.string())),
        ("job", pa.int64()),
        ("argument", pa.int64()),
    ]
)


def find(path: str | Path) -> Path:
    """The trace that is meant by a file or an output directory; InputError if there is none."""
    path = Path(path)
    if path.is_dir():
        directories.Manifest.load(path)
        trace = path / directories.TRACE
        if not trace.exists():
            raise InputError(
                f"there is no trace in {path}",
                "`laxity run HOST -o DIR` writes one, without --no-trace",
            )
        return trace
    if not path.exists():
        raise InputError(f"there is no file {path}", "name a trace, or the directory of a run")
    return path


def metadata(trace: Path) -> Metadata:
    """What the trace says of its run: policy, seed, domains and tasks (crates/laxity-trace)."""
    with core_errors():
        content: Metadata = json.loads(_core.trace_metadata(str(trace)))
    return content


def records(trace: Path) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """All records, mapped from the file, as `RECORD`; InputError if it is no whole trace."""
    metadata(trace)
    with files.open_regular(trace) as file:
        header = file.read(16)
        (length,) = struct.unpack_from("<I", header, 12)
        offset = 16 + length
        size = os.fstat(file.fileno()).st_size - offset
    if size % RECORD.itemsize:
        raise InputError(f"{trace}: the trace ends within a record")
    if size == 0:
        return np.empty(0, RECORD)
    return np.memmap(trace, RECORD, mode="r", offset=offset)


def accounting_phase_ns(trace: Path, accounting_ns: int) -> int | None:
    """When credits are distributed, every `accounting_ns`; None if they never are.

    A distribution comes when the hypervisor's timer brings it, which is never too early: the phase
    is that of the one that is the least late.
    """
    told = records(trace)
    times_ns = told["time_ns"][told["kind"] == number_of("replenish")]
    if not len(times_ns):
        return None
    # From half a step before the first one: the least late may be on the other side of a multiple.
    from_ns = int(times_ns[0]) - accounting_ns // 2
    return (from_ns + int(((times_ns - from_ns) % accounting_ns).min())) % accounting_ns


def has(trace: Path, kind: str) -> bool:
    """Whether there is a record of that kind; InputError if it is no whole trace."""
    return bool((records(trace)["kind"] == number_of(kind)).any())


def table(trace: Path) -> pa.Table:
    """All records with names in place of numbers; times in ns.

    `cpu`, `domain` and `vcpu` are null where a record has none; `task` and `job` (its number, from
    0) are those of records about jobs; `argument` is as in the file.
    """
    return pa.Table.from_batches(list(_batches(trace)), _SCHEMA)


def write_parquet(trace: Path, out: Path) -> None:
    """Writes `table` as Parquet, a batch at a time."""
    records(trace)
    batches = _batches(trace)
    try:
        with pq.ParquetWriter(out, _SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}") from None


def write_perfetto(trace: Path, out: Path) -> None:
    """Writes the trace for https://ui.perfetto.dev."""
    with core_errors():
        _core.write_perfetto(str(trace), str(out))


def write_text(trace: Path, out: Path) -> None:
    """Writes the trace as text, a line a record."""
    with core_errors():
        _core.write_text(str(trace), str(out))


def print_text(trace: Path, out: BinaryIO) -> None:
    """Writes the same to an open stream."""
    read_end, write_end = os.pipe()
    problems: list[InputError] = []

    def write() -> None:
        try:
            write_text(trace, Path(f"/dev/fd/{write_end}"))
        except InputError as error:
            problems.append(error)
        finally:
            os.close(write_end)

    writer = threading.Thread(target=write)
    writer.start()
    with open(read_end, "rb") as text:  # noqa: PTH123 - a file descriptor has no path
        while chunk := text.read1():
            out.write(chunk)
    writer.join()
    if problems:
        raise problems[0]


def _batches(trace: Path) -> Iterator[pa.RecordBatch]:
    of_run = metadata(trace)["domains"]
    domains = pa.array([domain["name"] for domain in of_run], pa.string())
    tasks = pa.array([task["name"] for domain in of_run for task in domain["tasks"]], pa.string())
    first_task = np.cumsum([0, *(len(domain["tasks"]) for domain in of_run)])
    kinds = pa.array(KINDS)
    everything = records(trace)
    for start in range(0, len(everything), BATCH_RECORDS):
        part = everything[start : start + BATCH_RECORDS]
        no_domain = part["domain"] == NONE
        no_job = ~np.isin(part["kind"], JOB_KINDS)
        domain = np.where(no_domain, 0, part["domain"]).astype(np.int32)
        task = first_task[domain] + (part["argument"] >> JOB_NUMBER_BITS)
        job = part["argument"] & ((1 << JOB_NUMBER_BITS) - 1)
        columns = [
            pa.array(part["time_ns"]),
            pa.DictionaryArray.from_arrays(pa.array((part["kind"] - 1).astype(np.int8)), kinds),
            pa.array(part["cpu"], mask=part["cpu"] == NONE),
            pa.DictionaryArray.from_arrays(pa.array(domain, mask=no_domain), domains),
            pa.array(part["vcpu"], mask=part["vcpu"] == NONE),
            pa.DictionaryArray.from_arrays(
                pa.array(np.where(no_job, 0, task).astype(np.int32), mask=no_job), tasks
            ),
            pa.array(job, mask=no_job),
            pa.array(part["argument"]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def bare_domain(name: str, vcpus: int) -> DomainMetadata:
    """A domain in a trace's metadata of which only this is known."""
    return {"name": name, "vcpus": vcpus, "budget_ns": 0, "period_ns": 0, "tasks": []}


REAL_TIME = ", real-time"
"""What those threads of a program are called, too, that run before all others."""


def domains_of_threads(
    named: Iterable[tuple[str, Sequence[int]]],
    recorded: Sequence[Thread],
    programs: Mapping[int, str],
) -> tuple[list[DomainMetadata], list[list[int]]]:
    """The domains of a trace of Linux, and the threads of each one's VCPUs.

    Behind those that are `named`, with their threads, come the programs that ran beside them. They
    have parentheses, which no domain of a host file has. `programs` are the names of some threads'
    programs, by thread; all others are called as the kernel says.
    """
    domains = [(name, list(threads)) for name, threads in named]
    known = {thread for _, threads in domains for thread in threads}
    real_time = {each["thread"] for each in recorded if 0 <= each["priority"] < FAIR}
    beside: dict[str, list[int]] = {}
    for each in recorded:
        thread = each["thread"]
        if thread not in known:
            # Threads of the kernel have a CPU or the like behind a slash.
            program = programs.get(thread) or each["name"].split("/")[0]
            program = "".join(sign if sign.isprintable() else "?" for sign in program)
            if thread in real_time:
                program += REAL_TIME
            beside.setdefault(f"({program})", []).append(thread)
    domains += sorted(beside.items())
    traced: list[DomainMetadata] = [
        {**bare_domain(name, len(threads)), "real_time": real_time.issuperset(threads)}
        if threads
        else bare_domain(name, 0)
        for name, threads in domains
    ]
    return traced, [threads for _, threads in domains]


def is_beside(domain: DomainMetadata) -> bool:
    """Whether it is a program that ran beside a host's domains."""
    return domain["name"].startswith("(")
