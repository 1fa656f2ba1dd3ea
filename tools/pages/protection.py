"""Writes docs/results/protection.md: what protecting a real guest costs, and how hosts fail.

.venv/bin/python tools/pages/protection.py            the whole page
.venv/bin/python tools/pages/protection.py NAME...    only these measurements of the page

The names are pause, large, failovers, sqlite, postgresql, throughput and soak. All of them take
about an hour, as root, on a machine that should do nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "protection.md"
FAILOVERS, SQLITE_FAILOVERS, POSTGRESQL_FAILOVERS, SOAK_S = 200, 100, 80, 60
INTERVALS_MS = (25, 10)
"""Intervals of checkpoints without failures."""
PACKAGE = ("--package", "laxity-protect")
TEST = ("cargo", "test", "--quiet", "--profile", "checked", *PACKAGE)
PAUSE = ("cargo", "bench", "--quiet", *PACKAGE, "--bench", "pause", "--")
FAILOVER = (*TEST, "--test", "failover", "--", "--nocapture")
DISKS = (*TEST, "--test", "disks", "--", "--nocapture", "--exact")

HEAD = """\
# Protection: what it costs, and what failures do

Written by `make results-protection`, with guests under emulation (TCG) on {cpus} CPUs. The guests
themselves are about 1 of each load average.

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

## A large guest

It has 1 GiB and four VCPUs, which share two CPUs with all else, and writes to 5,000 pages every
10 ms as far as it gets on. What is copied in the pause lies apart and is in no cache, so that the
machine's memory decides how long it takes; both CPUs copy while the guest is paused.

```text
{large}
```

## Failures

Guests have 96 MiB, and hosts are killed at steps of the protocol and at random moments. The guest
that answers next must know each answer that a client has seen. The time from a death on is that of
a guest that had begun to answer; its client asks again every 20 ms.

```text
{failovers}
```

## A database

A guest of 96 MiB runs SQLite on ext4, with a rollback journal, on virtio-blk, and a host is killed
each time. Each transaction that was confirmed to a client must be in the database of the dead host
and of the survivor, and SQLite's own check must accept both databases.

```text
{sqlite}
```

## PostgreSQL

A guest of 128 MiB has its root and a server of PostgreSQL 15 on one disk of ext4, with checksums of
pages and the default settings of durability. The rules are those for SQLite; PostgreSQL's own
checks are `pg_checksums` and amcheck.

```text
{postgresql}
```

## What a database does meanwhile

The guests of the two sections before, and SQLite with a write-ahead log on virtio-scsi and images
of the format qcow2. Each of 40 clients asks again when it is answered. A guest does one transaction
after the other, so that more clients wait than are answered in an epoch: the figures tell how much
a guest does, and not how long its answers are held. The stock QEMU opens the same image itself and
has two CPUs alone; a protected guest shares them with both daemons. Images are in memory, where a
flush costs nothing. In parentheses are the least and the most of three rounds, in each of which
all ways have their turn.

```text
{throughput}
```

## Epochs of 25 and of 10 ms

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


def pause() -> str:
    """The parts of a checkpoint."""
    return said((*PAUSE, "small"))


def large() -> str:
    """The same of a guest that has much memory and writes to much of it."""
    return said((*PAUSE, "large"))


def failovers() -> str:
    """Failures of a guest without a disk."""
    return fail((*FAILOVER, "nothing_seen_is_forgotten"), FAILOVERS, seed=1)


def sqlite() -> str:
    """Failures of a guest with SQLite."""
    test = (*DISKS, "nothing_committed_is_missing_from_a_database")
    return fail(test, SQLITE_FAILOVERS, seed=19)


def postgresql() -> str:
    """Failures of a guest with PostgreSQL."""
    test = (*DISKS, "nothing_committed_is_missing_from_postgresql")
    return fail(test, POSTGRESQL_FAILOVERS, seed=23)


def fail(test: tuple[str, ...], count: int, seed: int) -> str:
    """What a test says of so many failures."""
    return said(test, LAXITY_FAILOVERS=str(count), LAXITY_SEED=str(seed))


def soak() -> str:
    """Epochs without failures."""
    test = (*FAILOVER, "--ignored", "soak")
    return "\n".join(
        said(test, LAXITY_SOAK_S=str(SOAK_S), LAXITY_INTERVAL_MS=str(interval_ms))
        for interval_ms in INTERVALS_MS
    )


def throughput() -> str:
    """What guests with databases do beside what they do in a stock QEMU."""
    test = ("cargo", "test", "--quiet", "--release", *PACKAGE, "--test", "disks")
    return said((*test, "--", "--nocapture", "--ignored", "throughput"))


MEASUREMENTS = {
    each.__name__: each for each in (pause, large, failovers, sqlite, postgresql, throughput, soak)
}


def under_load(measure: Callable[[], str]) -> str:
    """What is measured, and the load of the machine before and after it."""
    before = os.getloadavg()[0]
    text = measure()
    return f"load average {before:.1f} before and {os.getloadavg()[0]:.1f} after\n{text}"


def with_text(page: str, name: str, text: str) -> str:
    """The page with another text for one measurement."""
    heading = HEAD[: HEAD.index(f"{{{name}}}")].rpartition("\n## ")[2].partition("\n")[0]
    block = re.compile(rf"(\n## {re.escape(heading)}\n.*?```text\n).*?(\n```)", re.DOTALL)
    return block.sub(lambda found: found[1] + text + found[2], page, count=1)


def main() -> None:
    """Writes the page, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    if unknown := set(names) - MEASUREMENTS.keys():
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}")
    texts = {name: under_load(MEASUREMENTS[name]) for name in names or MEASUREMENTS}
    if names:
        page = PAGE.read_text()
        for name, text in texts.items():
            page = with_text(page, name, text)
    else:
        page = HEAD.format(cpus=os.cpu_count(), **texts)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
