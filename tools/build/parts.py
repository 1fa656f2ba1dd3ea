"""Makes each part of the tests, also when one fails, and says at the end how each went.

    tools/build/parts.py PART[:NEEDED[,NEEDED...]]...

A part is a target of the Makefile in the current directory. Three are made at a time, in the order
in which they are named, each once the parts that it needs, named before it, are made; what a part
says is shown when it has ended. A part that needs one that failed is not made: its own failure
would say nothing. The table says how long each took and how much CPU time, user and system: on a
machine that others use, too, that is what can be compared. The last line is `N passed, N failed`,
and the exit code is 1 if any part failed or was not made, else 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

SECONDS_A_MINUTE = 60
AT_A_TIME = 3
"""How many parts are made at a time: so many that two CPUs are busy while one part waits, for a
lock of cargo's or for a guest, and another has one thread left."""


@dataclass(frozen=True)
class Part:
    """A part that is to be made."""

    name: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """A part that was made, or was not as one that it needs failed."""

    name: str
    is_good: bool
    verdict: str
    took_s: float | None = None
    cpu_s: float | None = None
    """CPU time of all that it started and waited for."""
    said: bytes = b""


def make(name: str) -> Made:
    """Makes a part, and keeps what it says."""
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as said:
        started = subprocess.Popen(
            [os.environ.get("MAKE", "make"), name],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return Made(
            name,
            is_good=started.returncode == 0,
            verdict="passed" if started.returncode == 0 else "failed",
            took_s=time.monotonic() - began_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            said=said.read(),
        )


def make_all(parts: list[Part]) -> dict[str, Made]:
    """Makes all parts that can be made, and shows what each says."""
    made: dict[str, Made] = {}
    waiting = list(parts)
    running: set[Future[Made]] = set()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        while waiting or running:
            for part in tuple(waiting):
                needed = [made[name] for name in part.needed if name in made]
                if failed := [each.name for each in needed if not each.is_good]:
                    verdict = f"not made: it needs {failed[0]}, which failed"
                    made[part.name] = Made(part.name, is_good=False, verdict=verdict)
                    waiting.remove(part)
                elif len(needed) == len(part.needed) and len(running) < AT_A_TIME:
                    print(f"==> make {part.name}", flush=True)
                    running.add(pool.submit(make, part.name))
                    waiting.remove(part)
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for each in ended:
                one = each.result()
                made[one.name] = one
                print(f"==> make {one.name} has {one.verdict} and said:", flush=True)
                sys.stdout.buffer.write(one.said)
                sys.stdout.flush()
    return made


def planned(words: list[str]) -> list[Part]:
    """The parts that are named; each needs only those before it."""
    parts: list[Part] = []
    for word in words:
        name, _, needed = word.partition(":")
        part = Part(name, tuple(needed.split(",")) if needed else ())
        for other in part.needed:
            if other not in {each.name for each in parts}:
                sys.exit(f"error: {name} needs {other}, which does not stand before it")
        parts.append(part)
    return parts


def minutes(seconds: float | None) -> str:
    """The time as the table has it."""
    return "" if seconds is None else f"{seconds / SECONDS_A_MINUTE:.1f} min"


def main(words: list[str]) -> int:
    """0 if every part passes."""
    parts = planned(words)
    made = make_all(parts)
    print()
    print(f"{'part':18}{'':42}{'time':>9}{'CPU time':>10}")
    for part in parts:
        one = made[part.name]
        times = f"{minutes(one.took_s):>9}{minutes(one.cpu_s):>10}"
        print(f"{one.name:18}{one.verdict:42}{times}".rstrip())
    failed = sum(not one.is_good for one in made.values())
    print(f"{len(made) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
