"""How long `laxity design` takes for what it is asked, and how good its answers are.

python -m bench.design [--domains 1000] [--cpus 32] [--load 0.6] [--seed 1]

The three loops of the examples, many random domains, and the telephone host. All that a caller of
`laxity.Host.design` waits for is measured, by the clock: the machine should have nothing else to
do.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import laxity

if TYPE_CHECKING:
    from laxity.results.design import Design

EXAMPLES = Path(__file__).parents[1] / "examples"

PERIODS_MS = (4, 5, 8, 10, 20, 40)


def of_many(domains: int, cpus: int, load: float, seed: int) -> str:
    """A host file of random domains without budgets, whose tasks need that part of all CPUs."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    parts = [draw.uniform(0.2, 1.8) for _ in range(domains)]
    scale = load * cpus / sum(parts)
    lines = [
        'duration = "1 s"',
        f'[host]\ncpus = {cpus}\npolicy = "deferrable"',
        'costs = { schedule = "200 ns", context-switch = "2 us" }',
    ]
    for number, part in enumerate(parts):
        period_ms = draw.choice(PERIODS_MS)
        cost_ns = round(part * scale * period_ms * 1e6)
        lines.append(
            f'[[domain]]\nname = "d{number}"\n'
            f'tasks = [{{ name = "t", cost = "{cost_ns} ns", period = "{period_ms} ms" }}]'
        )
    return "\n".join(lines) + "\n"


def told(what: str, host: laxity.Host, asked: str) -> Design:
    """Designs a host, and prints how long it took."""
    begin_s = time.monotonic()
    found = host.design()
    share = "" if found.cpu_share is None else f", {100 * found.cpu_share:.2f} % of CPU"
    taken_s = time.monotonic() - begin_s
    print(f"{what}: {taken_s:.2f} s ({asked}), {found.verdict}{share}", flush=True)
    return found


def main() -> None:
    """Prints a line for each answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domains", type=int, default=1000)
    parser.add_argument("--cpus", type=int, default=32)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    loops = laxity.Host.load(EXAMPLES / "three-loops.toml")
    told("three loops", loops, "asked: under 2 s, at most 66.7 %")
    text = of_many(asked.domains, asked.cpus, asked.load, asked.seed)
    what = f"{asked.domains} domains on {asked.cpus} CPUs, load {asked.load}"
    told(what, laxity.Host.parse(text), "asked: under 10 s")
    telephony = laxity.Host.load(EXAMPLES / "telephony.toml")
    found = told("telephone host", telephony, "asked: under 60 s")
    print(f"  {found.remedies[0].what}: {found.remedies[0].streams:,} streams")


if __name__ == "__main__":
    main()
