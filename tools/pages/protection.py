"""Writes docs/results/protection.md: what protecting a real guest costs, and how hosts fail.

.venv/bin/python tools/pages/protection.py

It takes about twenty minutes, as root, on a machine that should do nothing else.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "protection.md"
FAILOVERS, DATABASE_FAILOVERS, SOAK_S = 50, 100, 60
TEST = ("cargo", "test", "--quiet", "--profile", "checked", "--package", "laxity-protect")
DATABASE = "nothing_committed_is_missing_from_a_database"

HEAD = """\
# Protection: what it costs, and what failures do

Written by `make results-protection`, with guests under emulation (TCG) on {cpus} CPUs; load average
{before:.1f} before and {after:.1f} after, of which the guests themselves are about 1.

## Where the time of a checkpoint goes

`before` is the time from the order to save until the guest stands still. `pause` contains
`devices`, `find` and `copy`, the cut of the guest's output, and QEMU's own share; `resume` follows
it. Nothing was measured with KVM: there the guest is faster and changes more in an epoch, and what
QEMU and the daemon do in a pause is the same. Without the tracker (`comparison`) all memory is
compared with fingerprints. For 512 MiB the comparison takes nearly an epoch, so the guest hardly
runs, and changes little.

```text
{pause}
```

## Failures

Guests have 96 MiB, and hosts are killed at steps of the protocol and at random moments. The guest
that answers next must know each answer that a client has seen.

```text
{failovers}
```

## A database

A guest of 96 MiB runs SQLite on ext4, with a rollback journal, on virtio-blk, and a host is killed
each time. Each transaction that was confirmed to a client must be in the database of the dead host
and of the survivor, and SQLite's own check must accept both databases.

```text
{database}
```

## Epochs of 25 ms

```text
{soak}
```
"""


def said(command: tuple[str, ...], **environment: str) -> str:
    """What it prints, without what a test framework says around it."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    noise = ("running ", "test ", ".", "warning")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith(noise))


def main() -> None:
    """Writes the page."""
    before = os.getloadavg()[0]
    pause = said(("cargo", "bench", "--quiet", "--package", "laxity-protect", "--bench", "pause"))
    failover = (*TEST, "--test", "failover", "--", "--nocapture")
    failovers = said(
        (*failover, "nothing_seen_is_forgotten"), LAXITY_FAILOVERS=str(FAILOVERS), LAXITY_SEED="1"
    )
    database = said(
        (*TEST, "--test", "disks", "--", "--nocapture", "--exact", DATABASE),
        LAXITY_FAILOVERS=str(DATABASE_FAILOVERS),
        LAXITY_SEED="19",
    )
    soak = said((*failover, "--ignored", "soak"), LAXITY_SOAK_S=str(SOAK_S))
    PAGE.write_text(
        HEAD.format(
            cpus=os.cpu_count(),
            before=before,
            after=os.getloadavg()[0],
            pause=pause,
            failovers=failovers,
            database=database,
            soak=soak,
        )
    )


if __name__ == "__main__":
    main()
