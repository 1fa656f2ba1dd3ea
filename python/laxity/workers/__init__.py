"""Processes, on this machine or on others, that do the parts of long work.

Results come in the order of the parts, whoever did them and in whatever order. What is not yet
wanted waits within a bound, and a part whose process dies is done again by another one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.workers.workers import Workers

__all__ = ["opened"]


@contextmanager
def opened(count: int | None = None, cluster: str | None = None) -> Iterator[Workers | None]:
    """Gives that many processes of this machine, or those of a cluster, and ends their work.

    `cluster` is the address of a scheduler of Dask, such as "tcp://host:8786". Gives None, for
    threads of this process, if neither is wanted. Raises InputError if both are, or if no cluster
    of this version of Laxity answers there.
    """
    if count is None and cluster is None:
        yield None
        return
    if count is not None and cluster is not None:
        raise InputError(
            "--workers and --cluster say both where hosts are simulated", "keep one of them"
        )
    # Most commands use neither, and Dask takes longer to import than most runs take.
    if cluster is not None:
        from laxity.workers.cluster import Cluster  # noqa: PLC0415

        workers: Workers = Cluster(cluster)
    else:
        from laxity.workers.processes import Processes  # noqa: PLC0415

        workers = Processes(count or 1)
    try:
        yield workers
    finally:
        workers.close()
