"""Writes docs/results/remus.md: what Xen's Remus costs a guest, and how hosts fail, in the lab.

.venv/bin/python tools/pages/remus.py

It takes about a quarter of an hour, on a machine that should do nothing else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.lab import remus

if TYPE_CHECKING:
    from laxity.lab.failover import Failover, Mode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "remus.md"
OUTPUT = ROOT / "out" / "remus-results"
SEEDS: dict[Mode, range] = {"net": range(1, 5), "no-net": range(1, 4)}

HEAD = """\
# Remus on Xen: what it costs, and what failures do

Written by `make results-remus`: `laxity lab remus` with several seeds. Two emulated Xen hosts
(TCG, one CPU each) on a computer with {cpus} CPUs; load average {before:.1f} before and {after:.1f}
after, of which the hosts themselves are up to 2. Emulation is far slower than a processor: the
times show which steps there are to wait for, and not how long they take on a real host.

A guest sends consecutive numbers, ten a second. The power of the first host is cut at a random
moment of an epoch. *Seen and sent again* counts the numbers that a listener had from the first
host and that the guest on the second one, which goes on from the last checkpoint, sends once more:
output that was seen is undone. *Held and never seen* counts those that were held when the host
failed.
"""

SECTION = """
## Mode {mode}

|{head}| asked for |
|---|{bars}---|
{lines}
"""


def section(mode: Mode, done: dict[int, Failover]) -> str:
    """The runs of one mode, side by side."""
    tables = [remus.rows(mode, each) for each in done.values()]
    lines = []
    for same in zip(*tables, strict=True):
        (name, _, asked), values = same[0], " | ".join(row[1] for row in same)
        lines.append(f"| {name} | {values} | {asked} |")
    return SECTION.format(
        mode=mode,
        head=" |" + " |".join(f" seed {seed}" for seed in done) + " ",
        bars="---:|" * len(done),
        lines="\n".join(lines),
    )


def main() -> None:
    """Writes the page."""
    before = os.getloadavg()[0]
    done = {
        mode: {
            seed: remus.fail_over(
                mode, seed, OUTPUT / f"{mode}-{seed}", lambda line: print(line, file=sys.stderr)
            )
            for seed in seeds
        }
        for mode, seeds in SEEDS.items()
    }
    head = HEAD.format(cpus=os.cpu_count(), before=before, after=os.getloadavg()[0])
    PAGE.write_text(head + "".join(section(mode, runs) for mode, runs in done.items()))
    if any(run.undone for run in done["net"].values()):
        sys.exit("in mode net something that was seen is undone")


if __name__ == "__main__":
    main()
