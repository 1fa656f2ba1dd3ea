"""Runs the host of each line of its input, and answers with the seconds that it took.

It runs under the Python of a checkout of any age, so it uses only what every one has. The answer is
NaN where the host is refused.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from pathlib import Path

import laxity


def main() -> None:
    """Until the end of the input."""
    with tempfile.TemporaryDirectory() as directory:
        for line in sys.stdin:
            row = json.loads(line)
            trace = Path(directory) / "trace.laxtrace" if row["is_traced"] else None
            if trace is not None:
                trace.unlink(missing_ok=True)
            try:
                host = laxity.Host.parse(row["host"])
                start = time.perf_counter()
                host.run(set=row["set"], trace=trace)
            except Exception as error:  # noqa: BLE001 - refusals were not always of one type
                print(f"{row['name']}: {error}", file=sys.stderr)
                print(math.nan, flush=True)
                continue
            print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
