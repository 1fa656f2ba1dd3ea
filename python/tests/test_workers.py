"""Workers: the same results wherever and in whatever order parts are done, and whoever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import HOST
from laxity import Host, HostError, InputError, workers
from laxity.errors import core_errors
from laxity.lab.errors import LabError
from laxity.workers import workers as common
from laxity.workers.cluster import Cluster
from laxity.workers.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Laxity

RANGES = ("draw.load=0.3..0.8:0.05", "domain.control.budget=1..2:1 ms")
SWEPT = {"duration": "200 ms", "seeds": 3, "policies": ["deferrable", "credit"]}
RUNS = 11 * 2 * 2 * 3


# The order of results


class Shuffled(common.Workers):
    """Workers of this process that answer in any order."""

    memory_bytes = None

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.asked: deque[tuple[int, Any, Any]] = deque()
        self.most = -1

    def _ask(self, number: int, function: Callable[[Any], Any], part: Any) -> None:
        self.asked.append((number, function, part))
        self.most = max(self.most, number)

    def _answers(self) -> list[tuple[int, Any]]:
        answers = []
        for _ in range(self.random.randint(1, len(self.asked))):
            self.asked.rotate(self.random.randrange(len(self.asked)))
            number, function, part = self.asked.popleft()
            answers.append((number, function(part)))
        return answers

    def _forget(self) -> None:
        self.asked.clear()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(200))
def test_results_come_in_order_and_within_a_bound(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    items = list(range(draw.randint(1, 5000)))
    shuffled = Shuffled(draw.randint(1, 4), seed)
    told: list[tuple[int, int]] = []
    found: list[int] = []
    results = shuffled.results(list, items, lambda done, total: told.append((done, total)))
    for given, (first, part) in enumerate(results):
        assert first == len(found)
        found += part
        assert shuffled.most < given + common.AHEAD * shuffled.count
    assert found == items
    assert all(before <= after for (before, _), (after, _) in pairwise(told))
    assert told[-1] == (len(items), len(items))
    assert not shuffled.asked


@pytest.mark.parametrize("seed", range(50))
def test_parts_are_all_items_and_none_is_large(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    items = range(draw.randint(1, 100_000))
    parts = common.split(items, draw.randint(1, 64))
    assert [item for part in parts for item in part] == list(items)
    assert max(map(len, parts)) <= common.PART_MAX


# What workers are asked here


def squares(part: list[int]) -> list[tuple[int, int]]:
    """Says who did it."""
    return [(item * item, os.getpid()) for item in part]


def dies_once(marker: str, part: list[int]) -> list[int]:
    """Ends its process, but for the first part only once."""
    if 0 in part and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def dies(part: list[int]) -> list[int]:
    """Ends its process."""
    if 7 in part:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def fails(part: list[int]) -> list[int]:
    """Refuses one part."""
    if 7 in part:
        raise InputError("no seven here", "take eight")
    return part


@pytest.fixture(autouse=True)
def _these_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets workers import this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


# Processes of this machine


def test_each_process_does_some() -> None:
    with workers.opened(count=2) as two:
        assert isinstance(two, Processes)
        pids = set(two.pids)
        found = [each for _, part in two.results(squares, range(1000)) for each in part]
    assert [square for square, _ in found] == [item * item for item in range(1000)]
    assert {pid for _, pid in found} == pids
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_part_of_a_dead_process_is_done_again(tmp_path: Path) -> None:
    with workers.opened(count=2) as two:
        assert two is not None
        before = set(two.pids)  # type: ignore[attr-defined]
        call = partial(dies_once, str(tmp_path / "marker"))
        found = [each for _, part in two.results(call, range(500)) for each in part]
        assert found == list(range(500))
        # One was replaced, and the other goes on.
        assert len(before & set(two.pids)) == 1  # type: ignore[attr-defined]


def test_a_part_that_ends_every_process_is_given_up() -> None:
    with workers.opened(count=2) as two:
        assert two is not None
        with pytest.raises(LabError, match="ended 3 workers"):
            list(two.results(dies, range(10)))
        # What was asked then is forgotten.
        assert [part for _, part in two.results(list, range(3))] == [[0], [1], [2]]


def test_what_a_process_raises_is_raised_here() -> None:
    with workers.opened(count=1) as one:
        assert one is not None
        with pytest.raises(InputError, match="no seven here"):
            list(one.results(fails, range(10)))
        file = Host.parse(HOST).resolve().file
        with pytest.raises(HostError) as refused, core_errors():
            list(one.results(file.sweep, [["domain.control.budgte=1 ms"]]))
    assert "did you mean `budget`" in str(refused.value)


# Sweeps


def swept(path: Path, **options: Any) -> bytes:
    """The bytes of the table of a sweep."""
    sweep = Host.parse(HOST).sweep(RANGES, into=path, **SWEPT, **options)  # type: ignore[arg-type]
    assert sweep.table.num_rows > RUNS
    return path.read_bytes()


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes of the table of the sweep that threads have done, in several row groups."""
    monkeypatch.setattr("laxity.sweep.GROUP_RUNS", 50)
    monkeypatch.setattr("laxity.substrates.sim.many.RUNS_AT_A_TIME", 70)
    return swept(tmp_path / "threads.parquet")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_processes_find_the_same_bytes(count: int, expected: bytes, tmp_path: Path) -> None:
    told: list[int] = []
    with workers.opened(count=count) as some:
        found = swept(tmp_path / "found", workers=some, progress=lambda done, _: told.append(done))
    assert found == expected
    assert told[-1] == RUNS
    assert len(set(told)) > 3


def test_a_killed_process_changes_no_byte(expected: bytes, tmp_path: Path) -> None:
    killed: list[int] = []
    with workers.opened(count=2) as two:
        assert isinstance(two, Processes)

        def kill(done: int, total: int) -> None:
            if not killed and done < total / 2:
                killed.append(two.pids[-1])
                os.kill(killed[0], signal.SIGKILL)

        assert swept(tmp_path / "found", workers=two, progress=kill) == expected
        assert killed
        assert killed[0] not in two.pids


def test_a_table_in_memory_is_written_as_the_same_bytes(expected: bytes, tmp_path: Path) -> None:
    sweep = Host.parse(HOST).sweep(RANGES, **SWEPT)  # type: ignore[arg-type]
    sweep.save(tmp_path / "out")
    assert (tmp_path / "out/sweep.parquet").read_bytes() == expected
    (tmp_path / "file").write_bytes(expected)
    of_file = type(sweep)(sweep.axes, tmp_path / "file", sweep.origin)
    assert of_file.points() == sweep.points()
    assert of_file.to_json() == sweep.to_json()


# Other commands


def without_engine(text: str) -> list[dict[str, Any]]:
    """The results of a comparison, but for the time that they took."""
    return [{**result, "engine": None} for result in json.loads(text)["results"]]


@pytest.mark.slow
def test_commands_find_the_same_with_workers(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    words = ("compare", host, "--seeds", 2, "--policy", "deferrable,credit", "--json")
    one, two = laxity(*words).stdout, laxity(*words, "--workers", 2).stdout
    assert without_engine(one) == without_engine(two)
    words = ("sweep", host, "--set", "draw.load=0.3..0.6:0.1", "--duration", "100 ms")
    tables = []
    for more in ((), ("--workers", 2)):
        laxity(*words, *more, "-o", tmp_path / "out")
        tables.append((tmp_path / "out/sweep.parquet").read_bytes())
    assert tables[0] == tables[1]
    words = ("design", "examples/three-loops.toml", "--json")
    assert laxity(*words).stdout == laxity(*words, "--workers", 2).stdout


def test_where_workers_are_of_no_use_is_said(laxity: Laxity, host: Path) -> None:
    both = laxity("compare", host, "--workers", 2, "--cluster", "tcp://127.0.0.1:1", code=2)
    assert "keep one of them" in both.stderr
    xen = laxity("compare", host, "--workers", 2, "--on", "xen", code=2)
    assert "leave --workers and --cluster out" in xen.stderr


# A cluster


@contextmanager
def dask_program(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs one of Dask's programs as long as it is wanted."""
    program = subprocess.Popen(
        [sys.executable, "-m", "dask", *words, "--no-dashboard"], stderr=subprocess.DEVNULL
    )
    try:
        yield program
    finally:
        program.kill()
        program.wait()


@contextmanager
def cluster_of_two(directory: Path) -> Iterator[tuple[Cluster, list[subprocess.Popen[bytes]]]]:
    """A scheduler on loopback with two workers; gives its programs, the scheduler's last."""
    pytest.importorskip("distributed")
    at = str(directory / "scheduler.json")
    here = ("--host", "127.0.0.1")
    worker = ("worker", "--scheduler-file", at, "--no-nanny", "--nthreads", "1", *here)
    with (
        dask_program("scheduler", "--scheduler-file", at, "--port", "0", *here) as scheduler,
        dask_program(*worker, "--local-directory", str(directory)) as first,
        dask_program(*worker, "--local-directory", str(directory)) as second,
    ):
        while not Path(at).exists() or not Path(at).read_text():
            time.sleep(0.1)
        address = json.loads(Path(at).read_text())["address"]
        while True:
            try:
                with workers.opened(cluster=address) as cluster:
                    assert isinstance(cluster, Cluster)
                    if cluster.count == 2:
                        yield cluster, [first, second, scheduler]
                        return
            except InputError as error:
                # They come, though late where the computer is busy.
                said = ("has no workers", "no scheduler of Dask answers", "has no Laxity")
                assert any(each in str(error) for each in said)  # noqa: PT017
            assert all(each.poll() is None for each in (scheduler, first, second))
            time.sleep(0.1)


@pytest.mark.slow
def test_a_cluster_finds_the_same_bytes_when_a_worker_is_killed(
    expected: bytes, tmp_path: Path
) -> None:
    with cluster_of_two(tmp_path) as (cluster, programs):
        told: list[int] = []
        found = swept(
            tmp_path / "found", workers=cluster, progress=lambda done, _: told.append(done)
        )
        assert found == expected
        assert told[-1] == RUNS

        with pytest.raises(InputError, match="no seven here"):
            list(cluster.results(fails, range(10)))

        def kill(done: int, total: int) -> None:
            if done < total / 2 and programs[0].poll() is None:
                programs[0].kill()
                programs[0].wait()

        assert swept(tmp_path / "found", workers=cluster, progress=kill) == expected
        assert programs[0].poll() is not None


@pytest.mark.slow
def test_a_scheduler_that_is_gone_is_missed(tmp_path: Path) -> None:
    with cluster_of_two(tmp_path) as (cluster, programs):
        results = cluster.results(list, range(5000))
        assert next(results) is not None
        programs[-1].kill()
        with pytest.raises(LabError, match="the scheduler of the cluster is gone"):
            list(results)


def test_an_address_without_a_scheduler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("laxity.workers.cluster.ANSWER_S", 1)
    with (
        pytest.raises(InputError, match=r"no scheduler of Dask answers at tcp://127.0.0.1:1"),
        workers.opened(cluster="tcp://127.0.0.1:1"),
    ):
        pass
    with (
        pytest.raises(InputError, match="no scheduler of Dask answers"),
        workers.opened(cluster="nowhere at all"),
    ):
        pass
