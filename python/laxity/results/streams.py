"""The packets of the sampled streams, and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from laxity import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

    Times = np.ndarray[tuple[int], np.dtype[np.int64]]


LOST = _core.LOST
"""In place of a packet's time of arrival."""

PACKET_NS = 20_000_000
"""Between the packets of a stream: G.711, the one codec."""


@dataclass(frozen=True)
class KeptStream:
    """The packets of a sampled stream, or of 30 s of one."""

    stream: int
    call: int | None
    start_ns: int
    """When the first packet was sent; the others follow evenly."""
    arrived_ns: Times
    """When each arrived; LOST for those that did not."""
    pesq: float | None = None
    """What was heard (P.862); 0 if nothing was, None until it is scored."""

    def delays_ns(self) -> Times:
        """How long each took that arrived."""
        sent_ns = self.start_ns + np.arange(self.arrived_ns.size) * PACKET_NS
        delays_ns: Times = (self.arrived_ns - sent_ns)[self.arrived_ns != LOST]
        return delays_ns


def streams_of_core(streams: Iterable[_core.Kept]) -> tuple[KeptStream, ...]:
    """Makes objects of what the extension module gives."""
    return tuple(
        KeptStream(stream, call, start_ns, np.frombuffer(arrived, np.int64))
        for stream, call, start_ns, arrived in streams
    )


_SCHEMA = pa.schema(
    [
        ("stream", pa.int64()),
        ("call", pa.int64()),
        ("start_ns", pa.int64()),
        ("arrived_ns", pa.list_(pa.int64())),
        ("pesq", pa.float64()),
    ]
)


def table_of_streams(streams: Iterable[KeptStream]) -> pa.Table:
    """One row for each stream."""
    rows = [(each.stream, each.call, each.start_ns, each.arrived_ns, each.pesq) for each in streams]
    columns = zip(*rows, strict=True) if rows else [[] for _ in _SCHEMA]
    return pa.table([pa.array(list(column)) for column in columns], schema=_SCHEMA)


_SUMMARY_SCHEMA = pa.schema(
    [
        *(("stream", pa.int64()), ("call", pa.int64()), ("start_ns", pa.int64())),
        *(("packets", pa.int64()), ("lost", pa.int64())),
        *(("delay_ns_p50", pa.int64()), ("delay_ns_max", pa.int64()), ("pesq", pa.float64())),
    ]
)


def summary_of_streams(streams: Iterable[KeptStream]) -> pa.Table:
    """One row for each stream: what became of its packets."""
    rows = []
    for each in streams:
        delays_ns = each.delays_ns()
        rows.append(
            {
                "stream": each.stream,
                "call": each.call,
                "start_ns": each.start_ns,
                "packets": each.arrived_ns.size,
                "lost": each.arrived_ns.size - delays_ns.size,
                "delay_ns_p50": int(np.median(delays_ns)) if delays_ns.size else None,
                "delay_ns_max": int(delays_ns.max()) if delays_ns.size else None,
                "pesq": each.pesq,
            }
        )
    return pa.Table.from_pylist(rows, schema=_SUMMARY_SCHEMA)


def streams_of_table(streams: pa.Table) -> tuple[KeptStream, ...]:
    """Reads `table_of_streams` back."""
    return tuple(
        KeptStream(
            row["stream"],
            row["call"],
            row["start_ns"],
            np.array(row["arrived_ns"], np.int64),
            row["pesq"],
        )
        for row in streams.to_pylist()
    )
