"""Speed beside that of another checkout: both run each host by turns.

.venv/bin/python -m bench.beside OTHER, with OTHER set up by `make setup`; prints a table.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, Self

from bench import measure, page
from bench.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNER = Path(__file__).with_name("runner.py")
ROUNDS = 15
RATIO_LEAST = 0.97


class Row(NamedTuple):
    """A host that both run."""

    name: str
    host: str
    """The text of its file."""
    set: list[str]
    is_traced: bool = False


def rows() -> Iterator[Row]:
    """What `make bench` measures by running hosts, but for SimSo, sweeps and `why`."""
    for name, file, set in measure.speed_hosts():
        yield Row(name, file.read_text(), set)
    for streams in measure.STREAMS:
        set = [f"calls.streams={streams}", "duration=5 s"]
        yield Row(f"calls, {streams:,} streams", measure.TELEPHONY.read_text(), set)
    for name, file, set in measure.TRACED:
        yield Row(f"{name}, traced", file.read_text(), set, is_traced=True)
    for what, sizes, host_of in (
        ("VCPUs", measure.VCPU_COUNTS, measure.many_vcpus),
        ("tasks", measure.TASK_COUNTS, measure.many_tasks),
    ):
        for size in (sizes[len(sizes) // 2], sizes[-1]):
            for policy in measure.CURVE_POLICIES:
                set = [f"host.policy={policy}"]
                yield Row(f"{policy}, {size:,} {what}", host_of(size), set)


class Runner:
    """A process that runs hosts with the package of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - a checkout that the user names
            [checkout / ".venv/bin/python", RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def seconds(self, row: Row) -> float:
        """How long a run takes; NaN if this checkout does not know what the host has."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the runner has no pipes")
        self._process.stdin.write(json.dumps(row._asdict()) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def main() -> None:
    """Prints the table. The exit code is 1 if a row is slower than it may be."""
    other = Path(sys.argv[1])
    every = list(rows())
    lines: list[list[str]] = []
    slower: list[str] = []
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(Runner(place)) for place in (measure.ROOT, other))
        for number, row in enumerate(every, 1):
            print(f"{number} of {len(every)}: {row.name}", file=sys.stderr)
            if math.isnan(theirs.seconds(row) + ours.seconds(row)):
                lines.append([row.name, "", "", "not there"])
                continue
            pairs = [(ours.seconds(row), theirs.seconds(row)) for _ in range(ROUNDS)]
            ratio = Spread(tuple(theirs_s / ours_s for ours_s, theirs_s in pairs))
            ms = [f"{1e3 * median(times):.1f}" for times in zip(*pairs, strict=True)]
            lines.append(
                [row.name, *ms, f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})"]
            )
            if ratio.median < RATIO_LEAST:
                slower.append(row.name)
    print("\n".join(page.table(["host", "here, ms", "other, ms", "times as fast"], lines)))
    if slower:
        sys.exit(f"below {RATIO_LEAST}: {', '.join(slower)}")


if __name__ == "__main__":
    main()
