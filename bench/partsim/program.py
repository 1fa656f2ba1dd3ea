"""PARTSim on this machine: a build of it, our program beside it, and runs of both."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.partsim import sets, trace

if TYPE_CHECKING:
    from bench.partsim.sets import Set
    from bench.partsim.trace import Job, Trace

DRIVER = Path(__file__).with_name("driver.cpp")
LIBRARIES = ("rtsim", "metasim")


class UnusableError(Exception):
    """PARTSim is not there, or does not run."""


class StoppedError(Exception):
    """PARTSim has given up a run."""


STOPPED = 2
"""The exit code of our program then."""


@dataclass(frozen=True)
class Partsim:
    """A build of PARTSim, and a directory for what belongs to runs."""

    build: Path
    source: Path
    out: Path

    @classmethod
    def found(cls, build: Path, out: Path) -> Partsim:
        """A build, with our program compiled; UnusableError, with what is missing."""
        cache = build / "CMakeCache.txt"
        if not cache.is_file():
            raise UnusableError(f"{build} is no build of PARTSim's: it has no CMakeCache.txt")
        source = _cached(cache, "CMAKE_HOME_DIRECTORY")
        partsim = cls(build.resolve(), Path(source), out)
        for needed in (partsim.command, *(partsim._library(name) for name in LIBRARIES)):
            if not needed.is_file():
                raise UnusableError(f"{needed} is missing: build PARTSim's target rtsim-exe")
        out.mkdir(parents=True, exist_ok=True)
        (out / "plain.csv").write_text(sets.SPEEDS)
        for scheduler in ("fp", "edf", "rm"):
            (out / f"{scheduler}.yml").write_text(sets.SYSTEM.format(scheduler=scheduler))
        partsim._compile()
        return partsim

    @property
    def command(self) -> Path:
        """PARTSim's own."""
        return self.build / "rtsim" / "rtsim"

    @property
    def build_type(self) -> str:
        """CMake's word for how it was optimized."""
        return _cached(self.build / "CMakeCache.txt", "CMAKE_BUILD_TYPE") or "Release"

    @property
    def revision(self) -> str:
        """The commit of the sources, with a word if they have changed since; empty if unknown."""
        command = ["git", "-C", str(self.source), "describe", "--always", "--abbrev=40", "--dirty"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return done.stdout.strip()

    def driven(self, set: Set, *, traced: bool = False) -> tuple[int, dict[str, list[Job]]]:
        """What our program says of a set: CPU time in ns, and the jobs that ended."""
        output = self._run(
            self.out / "driver",
            self.out / f"{set.rule.scheduler}.yml",
            self._written("set.txt", set.driver()),
            str(set.duration_ns + 1),  # so that it serves what happens at the very end
            *([self.out / "driver-trace.txt"] if traced else []),
        )
        return trace.driven(output)

    def traced(self, set: Set) -> Trace:
        """All jobs of a set, from the trace that PARTSim writes under our program."""
        _, ended = self.driven(set, traced=True)
        whole = trace.parsed((self.out / "driver-trace.txt").read_bytes())
        of_trace = {
            task: [(job.arrival, job.end) for job in of_task if job.end is not None]
            for task, of_task in whole.jobs.items()
        }
        of_memory = {
            task: [(job.arrival, job.end) for job in of_task] for task, of_task in ended.items()
        }
        if {task: of_task for task, of_task in of_trace.items() if of_task} != of_memory:
            raise UnusableError("PARTSim's trace and its events differ")
        return whole

    def commanded(self, set: Set, scheduler: str | None = None) -> Trace:
        """The same from PARTSim's own command, with the rule's scheduler or another."""
        written = self.out / "command-trace.txt"
        written.unlink(missing_ok=True)
        self._run(
            self.command,
            "-t",
            written,
            self.out / f"{scheduler or set.rule.scheduler}.yml",
            self._written("set.yml", set.command()),
            str(set.duration_ns + 1),
        )
        return trace.parsed(written.read_bytes())

    def _compile(self) -> None:
        paths = [self.build / f"lib{name}" for name in LIBRARIES]
        command = [
            *(os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-DNDEBUG"),
            *(str(word) for word in ("-o", self.out / "driver", DRIVER)),
            # Warnings about PARTSim's headers are not ours to mend.
            *(
                word
                for name in LIBRARIES
                for word in ("-isystem", str(self.source / f"lib{name}" / "include"))
            ),
            *(f"-L{path}" for path in paths),
            *(f"-l{name}" for name in LIBRARIES),
            *(f"-Wl,-rpath,{path}" for path in paths),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise UnusableError(f"{DRIVER.name} does not compile:\n{done.stderr[-4000:]}")

    def _library(self, name: str) -> Path:
        return self.build / f"lib{name}" / f"lib{name}.so"

    def _written(self, name: str, text: str) -> Path:
        path = self.out / name
        path.write_text(text)
        return path

    def _run(self, *command: str | Path) -> bytes:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0:
            error = done.stderr.decode(errors="replace")[-4000:]
            if done.returncode == STOPPED:
                raise StoppedError(error.strip())
            raise UnusableError(f"{' '.join(words)}: exit code {done.returncode}\n{error}")
        return done.stdout


def _cached(cache: Path, key: str) -> str:
    for line in cache.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return line.partition("=")[2]
    return ""
