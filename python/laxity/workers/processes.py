"""Workers that are processes of this machine.

Each is a program of its own (`laxity.workers.process`), and not a fork or a copy of the caller's:
the caller may be a notebook, a script without a guard, or a process with threads.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from laxity.workers.workers import ATTEMPTS, Workers, died_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laxity.workers.workers import Part


@dataclass
class _Task:
    number: int
    function: Callable[[Any], Any]
    part: Part
    deaths: int = 0


class Process:
    """One process and the connection to it."""

    def __init__(self) -> None:
        """Starts it."""
        here, there = socket.socketpair()
        with there:
            self.program = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "laxity.workers.process", str(there.fileno())],
                pass_fds=(there.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A part has one thread, whatever libraries may think of the machine.
                env={**os.environ, "RAYON_NUM_THREADS": "1"},
                # Ctrl-C is heard by the one who asks, and ends the workers.
                start_new_session=True,
            )
        self.connection = Connection(here.detach())

    def end(self) -> None:
        """Ends it, whatever it does."""
        self.connection.close()
        self.program.kill()
        self.program.wait()


class Processes(Workers):
    """Processes of this machine, each of which does one part at a time, on one CPU."""

    memory_bytes = None

    def __init__(self, count: int) -> None:
        """Starts that many processes."""
        self.count = count
        self._idle = [Process() for _ in range(count)]
        self._busy: dict[Connection, tuple[Process, _Task]] = {}
        self._waiting: deque[_Task] = deque()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes, as the system has them."""
        busy = [process for process, _ in self._busy.values()]
        return [process.program.pid for process in (*self._idle, *busy)]

    def _ask(self, number: int, function: Callable[[Any], Any], part: Part) -> None:
        self._waiting.append(_Task(number, function, part))

    def _answers(self) -> Iterator[tuple[int, Any]]:
        self._give()
        answers = []
        for connection in wait(list(self._busy)):
            assert isinstance(connection, Connection)  # noqa: S101 - for the types
            process, task = self._busy.pop(connection)
            try:
                returned, value = connection.recv()
            except (EOFError, ConnectionResetError):
                self._again(process, task)
                continue
            self._idle.append(process)
            if not returned:
                raise value
            answers.append((task.number, value))
        # They go on while the caller looks at what they have done.
        self._give()
        yield from answers

    def _give(self) -> None:
        """Gives waiting parts to idle workers, and to new ones in place of those that died."""
        while self._waiting and len(self._busy) < self.count:
            process = self._idle.pop() if self._idle else Process()
            task = self._waiting.popleft()
            try:
                process.connection.send((task.function, task.part))
            except (BrokenPipeError, ConnectionResetError):
                self._again(process, task)
            else:
                self._busy[process.connection] = process, task

    def _again(self, process: Process, task: _Task) -> None:
        """Lets a part of which a process died be done before all others."""
        process.end()
        task.deaths += 1
        if task.deaths >= ATTEMPTS:
            raise died_of(task.part)
        self._waiting.appendleft(task)

    def _forget(self) -> None:
        self._waiting.clear()
        for process, _ in self._busy.values():
            process.end()
        self._busy.clear()

    def close(self) -> None:
        """Ends all processes."""
        self._forget()
        for process in self._idle:
            process.end()
        self._idle.clear()
