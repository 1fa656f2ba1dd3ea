"""A signal at any point leaves nothing behind: real namespaces, groups and processes, as root.

And the bars of a terminal, whose cursor must be shown again.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from laxity.cli import console
from laxity.errors import InputError
from laxity.namespaces import groups as control_groups
from laxity.namespaces import network, process
from laxity.namespaces.groups import Share
from laxity.namespaces.process import Place
from laxity.uninterrupted import uninterrupted
from rich import live
from test_linux import traces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMESPACES = str(Path(network.__file__).parent)
RICH = live.__file__
"""What draws bars and takes them away again."""
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"
"""What a terminal gets for its cursor."""
SHARE = Share(256, 0, (0,))


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Whoever started the tests may have SIGINT ignored, as a shell does in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_waits_for_the_end() -> None:
    done = []

    def make() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("made")
        done.append("went on")

    with pytest.raises(KeyboardInterrupt):
        make()
    assert done == ["made"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_error_gives_way_to_the_signal() -> None:
    """What a terminal's Ctrl-C ends as well fails only because of that."""

    @uninterrupted()
    def fail() -> None:
        signal.raise_signal(signal.SIGINT)
        raise InputError("a program that was ended")

    with pytest.raises(KeyboardInterrupt):
        fail()


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_no_handlers() -> None:
    done = []

    def make() -> None:
        with uninterrupted():
            done.append("made")

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert done == ["made"]


Line = tuple[str, int]


class Interrupter:
    """Sends a signal before a line of the code at a place, when that is first reached."""

    def __init__(self, place: str, at: Line | None = None) -> None:
        self.lines: list[Line] = []
        """Those that were reached, each once."""
        self._place = place
        self._at = at

    def trace(self, frame: Any, event: str, _: object) -> Callable[..., Any] | None:
        path = frame.f_code.co_filename
        if not path.startswith(self._place):
            return None
        line = (path, frame.f_lineno)
        if event == "line" and line not in self.lines:
            self.lines.append(line)
            if line == self._at:
                signal.raise_signal(signal.SIGINT)
        return self.trace

    @contextmanager
    def works(self) -> Iterator[None]:
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(None)


def all_of_a_run(interrupter: Interrupter) -> None:
    """Makes what a run makes; the signal comes while that is made, if it comes."""
    with process.workplace() as files, interrupter.works(), network.network() as sides:
        namespace = network.NAMESPACES / sides[network.CLIENT]
        with (
            control_groups.groups({"domain-0": SHARE}) as made,
            process.process(
                "idle", ["sleep", "60"], Place(namespace, made, "domain-0", files=files)
            ),
        ):
            sys.settrace(None)


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_nothing_is_left_wherever_the_signal_comes() -> None:
    undisturbed = Interrupter(NAMESPACES)
    try:
        all_of_a_run(undisturbed)
    except InputError as error:
        pytest.skip(str(error))
    assert undisturbed.lines
    for line in undisturbed.lines:
        with pytest.raises(KeyboardInterrupt):
            all_of_a_run(Interrupter(NAMESPACES, line))
        assert traces_of(os.getpid()) == [], line


class Terminal(io.StringIO):
    """Takes all that is written, however slowly somebody reads."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", ["bar", "status"])
def test_a_terminal_has_its_cursor_again_wherever_the_signal_comes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "PROGRESS_AFTER_S", 0)
    monkeypatch.setenv("TERM", "xterm")

    def show(interrupter: Interrupter) -> str:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        try:
            with interrupter.works():
                if kind == "bar":
                    with console.progress_bar("running") as tell:
                        assert tell is not None
                        tell(1, 2)
                else:
                    with console.status("running"):
                        pass
        finally:
            written = terminal.getvalue()
            assert written.count(HIDDEN) == written.count(SHOWN)
        return written

    undisturbed = Interrupter(RICH)
    assert HIDDEN in show(undisturbed)
    assert undisturbed.lines
    for line in undisturbed.lines:
        with pytest.raises(KeyboardInterrupt):
            show(Interrupter(RICH, line))
