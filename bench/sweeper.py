"""Does one sweep for each line of its input, and answers with a line: FILE DURATION AXIS SEEDS."""

from __future__ import annotations

import sys

import laxity


def main() -> None:
    """The first sweep, which loads what later ones find, comes before the first line."""
    file, duration, axis, seeds = sys.argv[1:]
    host = laxity.Host.load(file)

    def sweep() -> None:
        host.sweep([axis, f"duration={duration}"], seeds=int(seeds))

    sweep()
    for _ in sys.stdin:
        sweep()
        print("done", flush=True)


if __name__ == "__main__":
    main()
