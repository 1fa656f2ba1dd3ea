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
after, of which the hosts themselves are up to 2. The times are those of an emulation, which is far
slower than a processor: they show what there is to wait for, and not for how long on a real host.

A guest says numbers to whoever listens, ten a second. The first host's power is cut at a random
moment of an epoch. *Said again* counts numbers that somebody had heard of the first host, and that
the second one's guest, set back to its last checkpoint, says once more: what was seen is undone.
*Never heard* are those that were held when the host failed.
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
