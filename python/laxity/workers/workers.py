"""What workers are, and the order in which their results are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from laxity.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laxity.progress import Progress

    Part = Sequence[Any]

Result = TypeVar("Result")

AHEAD = 16
"""Parts for each worker that are begun, or done, before the result of an earlier one is there."""

PARTS = 32
"""Parts that each worker gets of long work: few enough to cost little, many enough to share out."""

PART_MAX = 256
"""Items of a part; a worker that dies costs so much."""

ATTEMPTS = 3
"""A part that so many workers died of is not tried again."""


class Workers(ABC):
    """Processes that call functions with parts of long work."""

    count: int
    """Parts that are done at a time."""
    memory_bytes: int | None
    """The memory of all of them; None for that of this machine."""

    def results(
        self,
        function: Callable[[Any], Result],
        items: Sequence[Any],
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Calls `function` with parts of `items`, and yields what it returns, in their order.

        With each result comes the number of the part's first item. Function, items and results
        cross between processes (pickle). `progress` is told how many items are done, by whichever
        worker. An exception of `function` is raised here. Raises LabError if the workers are lost,
        or if a part ends each worker that does it.
        """
        parts = split(items, self.count)
        ready: dict[int, Result] = {}
        asked = done = first = 0
        try:
            for number, part in enumerate(parts):
                while number not in ready:
                    window = min(len(parts), number + AHEAD * self.count)
                    while asked < window:
                        self._ask(asked, function, parts[asked])
                        asked += 1
                    for finished, result in self._answers():
                        ready[finished] = result
                        done += len(parts[finished])
                    if progress is not None:
                        progress(done, len(items))
                yield first, ready.pop(number)
                first += len(part)
        finally:
            self._forget()

    @abstractmethod
    def _ask(self, number: int, function: Callable[[Any], Any], part: Part) -> None:
        """Gives a part to a worker, now or when one is idle."""

    @abstractmethod
    def _answers(self) -> Iterable[tuple[int, Any]]:
        """Waits for at least one part, and returns the number and result of each that is done."""

    @abstractmethod
    def _forget(self) -> None:
        """Gives up what was asked and not answered."""

    @abstractmethod
    def close(self) -> None:
        """Ends all work."""


def split(items: Sequence[Any], workers: int) -> list[Part]:
    """Returns parts of items, in order: several for each worker, none of them large."""
    size = min(max(len(items) // (PARTS * workers), 1), PART_MAX)
    return [items[start : start + size] for start in range(0, len(items), size)]


def died_of(part: Part) -> LabError:
    """What to say if a part ended each worker that did it."""
    what = "a run" if len(part) == 1 else f"a part of {len(part)} runs"
    return LabError(
        f"{what} ended {ATTEMPTS} workers, one after the other",
        "see whether the machines have memory enough, and try the run by itself",
    )
