"""How signals end a command: after it has removed what is temporary.

The signals are those that a terminal, a service manager or `timeout` sends, and that of a standard
stream that has lost its reader. The process still ends by the signal, as other tools do. SIGPIPE is
not left to the system, which would end the command for any pipe or socket without a reader: the
loss of a browser, a worker or a guest must not end it.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from laxity.errors import InputError

if TYPE_CHECKING:
    from types import FrameType


STREAMS = {1: "stdout", 2: "stderr"}
"""The standard streams that a command writes to, by their numbers."""


class EndedError(BaseException):
    """A signal ends the command."""

    def __init__(self, number: int) -> None:
        """Takes the number of the signal."""
        super().__init__(number)
        self.number = number

    def end_process(self) -> NoReturn:
        """Ends this process by that signal."""
        signal.signal(self.number, signal.SIG_DFL)
        os.kill(os.getpid(), self.number)
        raise AssertionError("the signal has ended the process")


def end_tidily() -> None:
    """Lets signals raise EndedError, and standard streams that have lost their readers."""
    end_by_signals()
    for descriptor, errors in ((1, "replace"), (2, "backslashreplace")):
        name = STREAMS[descriptor]
        setattr(sys, name, _stream(getattr(sys, name), descriptor, errors))


def end_by_signals() -> None:
    """Lets signals raise EndedError; one that is ignored, as by nohup, stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise EndedError(number)


class _Output(io.FileIO):
    """A standard stream."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - whatever has bytes
        """Raises EndedError if nobody reads it, and InputError if there is no room for it."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise EndedError(signal.SIGPIPE) from None
        except OSError as error:
            # What is left in the buffers would fail once more when Python ends.
            setattr(sys, STREAMS[self.fileno()], _nowhere())
            raise InputError(f"cannot write the output: {error.strerror}") from None


def _stream(given: TextIO | None, descriptor: int, errors: str) -> TextIO:
    """Returns a standard stream like that which Python has made."""
    if given is None:
        return _nowhere()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(descriptor, "w", closefd=False)),
        given.encoding,
        errors,
        line_buffering=bool(given.line_buffering),
    )


def _nowhere() -> TextIO:
    """Takes the place of a stream that is closed, and its number, which no file may have."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it stays open
