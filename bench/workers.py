"""How long a sweep of 10,000 runs takes on one worker and on two, by turns.

python -m bench.workers [--runs 10000] [--rounds 5]

The host is RT-Xen's, for 10 s of model time. All that a caller of `laxity.Host.sweep` waits for is
measured, by the clock, from the start of the workers to the Parquet file: the machine should have
nothing else to do. The CPU time of this process tells how much of it two workers cannot share.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from pathlib import Path

import laxity
from laxity.workers import opened

from bench.measure import RT_XEN

AXIS, POINTS = "draw.load=0.3..1.0:0.05", 15

ASKED_RATIO = 1.8

ASKED_S = 10


def main() -> None:
    """Prints a line for each round, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    seeds = -(-asked.runs // POINTS)
    host = laxity.Host.load(RT_XEN)
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory, "sweep.parquet")

        def swept(workers: int, seeds: int) -> tuple[float, float, str]:
            """Seconds by the clock, CPU seconds of this process, and what the table is."""
            begin_s, cpu_begin_s = time.perf_counter(), time.process_time()
            with opened(workers) as processes:
                host.sweep([AXIS, "duration=10 s"], seeds=seeds, workers=processes, into=table)
                took_s = time.perf_counter() - begin_s
            cpu_s = time.process_time() - cpu_begin_s
            return took_s, cpu_s, hashlib.sha256(table.read_bytes()).hexdigest()

        swept(1, 1)  # Loads what later ones find.
        rounds = []
        for _ in range(asked.rounds):
            one, two = swept(1, seeds), swept(2, seeds)
            rounds.append((one[0] / two[0], two[0]))
            same = "the same bytes" if one[2] == two[2] else "OTHER BYTES"
            print(
                f"{POINTS * seeds:,} runs: {one[0]:.2f} s on one worker, {two[0]:.2f} s on two "
                f"({one[0] / two[0]:.2f} times as fast), {two[1]:.2f} CPU s of the one who asks, "
                f"{same}",
                flush=True,
            )
    ratio, took_s = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(
        f"median: {ratio:.2f} times as fast on two (asked for: {ASKED_RATIO}), {took_s:.2f} s "
        f"(asked for: below {ASKED_S} s)"
    )


if __name__ == "__main__":
    main()
