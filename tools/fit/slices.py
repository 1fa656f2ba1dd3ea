"""How late time slices end: how much longer VCPUs had the CPU that were preempted at the end."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from laxity import tracefile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.resolved import Resolved
    from laxity.results.run import Run

LATE_PARTS = 50
"""A turn that is longer than its slice by less than this part of it ended with the slice."""


def latencies_ns(run: Run, slice_ns: int) -> list[int]:
    """Returns how late the slices of a run ended."""
    found, since_ns = [], 0
    for record in tracefile.records(run.trace):
        kind, time_ns = tracefile.KINDS[record["kind"] - 1], int(record["time_ns"])
        if kind == "run":
            since_ns = time_ns
        elif kind == "stop" and 0 <= (late_ns := time_ns - since_ns - slice_ns) < (
            slice_ns // LATE_PARTS
        ):
            found.append(late_ns)
    return found


def print_latency(hosts: Mapping[str, Resolved], runs: Mapping[str, Run]) -> None:
    """Prints how late the slices of all hosts ended, in the median."""
    found_ns = [
        late_ns
        for name, host in hosts.items()
        for late_ns in latencies_ns(runs[name], host.host["settings"]["time_slice_ns"])
    ]
    print(f"{len(found_ns)} slices: they end {statistics.median(found_ns):.0f} ns late")
