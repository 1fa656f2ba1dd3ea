"""Gives each fuzzer the same CPU time, some at a time, and says what each got and did.

    tools/check/fuzz_hours.py CPU_S [FUZZER...]

CPU_S is the CPU time of each fuzzer, in seconds; without names, all fuzzers get it. Slices of five
minutes go to whichever fuzzer had the least so far, so that an early end (Ctrl-C) leaves about the
same to all. CPU time is what the kernel counted for the fuzzer's processes, user and system. The
corpora in fuzz/*/corpus are kept: the next call goes on from there. Exit code 1 if a fuzzer found
something, else 0.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import STDOUT, Popen, run

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "fuzz"
SLICE_S = 300
EXECUTIONS = re.compile(rb"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)


@dataclass
class Fuzzer:
    """What a fuzzer had and did."""

    name: str
    cpu_s: float = 0.0
    executions: int = 0
    is_running: bool = False
    has_found: bool = False
    said: bytes = field(default=b"", repr=False)
    """What it said of its finding."""

    def fuzz(self, seconds: int) -> None:
        """Runs the fuzzer for so long; CPU time of one thread is at most that."""
        command = [os.environ.get("MAKE", "make"), "-C", str(FUZZ), f"one-{self.name}"]
        with tempfile.TemporaryFile() as log:
            # A group of its own, so that Ctrl-C reaches this program alone, which then ends all.
            made = Popen(
                [*command, f"SECONDS={seconds}"], stdout=log, stderr=STDOUT, process_group=0
            )
            started.append(made)
            _, status, usage = os.wait4(made.pid, 0)
            made.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            said = log.read()
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.executions += sum(int(each) for each in EXECUTIONS.findall(said))
        if made.returncode and not is_ended.is_set():
            self.has_found, self.said = True, said


started: list[Popen[bytes]] = []
is_ended = threading.Event()


def work(fuzzers: list[Fuzzer], asked_s: int, turn: threading.Condition) -> None:
    """Runs slices until no fuzzer needs any."""
    while not is_ended.is_set():
        with turn:
            waiting = [
                each
                for each in fuzzers
                if not each.is_running and not each.has_found and each.cpu_s < asked_s
            ]
            if not waiting:
                return
            fuzzer = min(waiting, key=lambda each: each.cpu_s)
            fuzzer.is_running = True
        fuzzer.fuzz(max(1, min(SLICE_S, round(asked_s - fuzzer.cpu_s))))
        with turn:
            fuzzer.is_running = False
            print(row(fuzzer), flush=True)
            if fuzzer.has_found:
                sys.stdout.buffer.write(fuzzer.said)
                sys.stdout.flush()


def row(fuzzer: Fuzzer) -> str:
    """One line of the table."""
    verdict = "FOUND SOMETHING" if fuzzer.has_found else "nothing found"
    return f"{fuzzer.name:12}{fuzzer.cpu_s:9.0f} s{fuzzer.executions:15,}  {verdict}"


def end(*_: object) -> None:
    """Ends all fuzzers; what they had so far is counted."""
    is_ended.set()
    for each in started:
        if each.returncode is None:
            os.killpg(each.pid, signal.SIGINT)


def main(words: list[str]) -> int:
    """1 if a fuzzer found something, 2 if one does not exist, else 0."""
    asked_s, *names = words
    manifest = tomllib.loads((FUZZ / "Cargo.toml").read_text("utf-8"))
    there = [each["name"] for each in manifest["bin"]]
    if unknown := set(names) - set(there):
        print(f"error: there is no fuzzer {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    run([os.environ.get("MAKE", "make"), "-C", str(FUZZ), "build"], check=True)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    fuzzers = [Fuzzer(name) for name in names or there]
    turn = threading.Condition()
    workers = [
        threading.Thread(target=work, args=(fuzzers, int(asked_s), turn))
        for _ in range(os.cpu_count() or 1)
    ]
    print(f"{'fuzzer':12}{'CPU time':>11}{'executions':>15}")
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    print(f"\n{'fuzzer':12}{'CPU time':>11}{'executions':>15}")
    for fuzzer in fuzzers:
        print(row(fuzzer))
    return 1 if any(each.has_found for each in fuzzers) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
