"""Signals that wait until what is being made can be removed again."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals whose handlers may raise an error."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Puts off the handlers of signals until this is left, where they may raise their errors.

    An error between the making of something and the note that it is there would leave it behind.
    Handlers run in the main thread alone, so that other threads need no protection. The first
    signal that comes counts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    came: list[int] = []
    try:
        for number in SIGNALS:
            if callable(handlers[number]):
                signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number in SIGNALS:
            if callable(handlers[number]):
                signal.signal(number, handlers[number])
        if came:
            signal.raise_signal(came[0])
