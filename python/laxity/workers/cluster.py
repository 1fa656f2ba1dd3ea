"""Workers of a cluster of Dask, which run anywhere.

Dask gives parts to idle workers, and gives a part again to another one if its worker is lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from laxity import _core, extras
from laxity.errors import InputError
from laxity.lab.errors import LabError
from laxity.workers.workers import Workers, died_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laxity.workers.workers import Part

ANSWER_S = 10
"""The seconds in which a scheduler must answer."""


def version() -> str:
    """The version of Laxity where this is called."""
    return _core.__version__


class Cluster(Workers):
    """The workers that a scheduler has when it is asked; those that come later work too."""

    def __init__(self, address: str) -> None:
        """Connects. Raises InputError if no cluster of this version of Laxity answers."""
        extras.require("distributed")
        import distributed  # noqa: PLC0415 - an extra

        try:
            self._client = distributed.Client(address, timeout=ANSWER_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no scheduler of Dask answers at {address}: {error}",
                "start one with `dask scheduler`, and give its address, such as tcp://host:8786",
            ) from None
        try:
            self._take_in(address)
        except BaseException:
            self._client.close()
            raise
        self._asked: dict[Any, tuple[int, Part]] = {}
        self._completed = distributed.as_completed(loop=self._client.loop)
        self._lost = distributed.KilledWorker

    def _take_in(self, address: str) -> None:
        """Finds out how many workers there are, and whether they have the same Laxity."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise InputError(
                f"the scheduler at {address} has no workers",
                f"start some with `dask worker {address}`",
            )
        versions = self._client.run(version, on_error="return")
        for worker, found in versions.items():
            if found != version():
                has = f"Laxity {found}" if isinstance(found, str) else f"no Laxity ({found})"
                raise InputError(
                    f"the worker {worker} has {has}, and results would not be the same",
                    f"install Laxity {version()} there",
                )
        self.count = sum(worker["nthreads"] for worker in workers.values())
        self.memory_bytes = sum(worker["memory_limit"] for worker in workers.values())

    def _ask(self, number: int, function: Callable[[Any], Any], part: Part) -> None:
        future = self._client.submit(function, part, pure=False)
        self._asked[future.key] = number, part
        self._completed.add(future)

    def _answers(self) -> Iterator[tuple[int, Any]]:
        future = next(self._completed)
        number, part = self._asked.pop(future.key)
        try:
            # Asked for here, and not by what tells that it is there: whose worker dies while a
            # result is fetched is then done again, by another worker.
            result = future.result()
        except self._lost:
            raise died_of(part) from None
        except (Exception, asyncio.CancelledError):
            if future.status == "error":
                raise
            raise LabError("the scheduler of the cluster is gone", "see what it said") from None
        yield number, result

    def _forget(self) -> None:
        if self._asked:
            self._client.cancel(list(self._completed.futures), force=True)
            self._completed.clear()
            self._asked.clear()

    def close(self) -> None:
        """Ends the connection; the cluster stays."""
        self._client.close()
