"""Many runs of one host file: on all CPUs of this machine, or by workers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from laxity.errors import core_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from laxity.progress import Progress
    from laxity.workers.workers import Workers

Result = TypeVar("Result")

RUNS_AT_A_TIME = 4096
"""Runs of this process whose results are in memory before they are given."""


def results(
    runs: Callable[..., Result],
    overrides: Sequence[list[str]],
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Iterator[tuple[int, Result]]:
    """Yields what `runs` returns for parts of the runs, with the number of each part's first run.

    `runs` is `HostFile.run_many` or `HostFile.sweep`. `overrides` has a list for each run.
    """
    with core_errors():
        if workers is not None:
            yield from workers.results(partial(runs, threads=1), overrides, progress)
            return
        for first in range(0, len(overrides), RUNS_AT_A_TIME):
            part = overrides[first : first + RUNS_AT_A_TIME]
            yield first, runs(part, progress=_of(progress, first, len(overrides)))


def _of(progress: Progress | None, first: int, total: int) -> Callable[[int], Any] | None:
    return None if progress is None else lambda done: progress(first + done, total)
