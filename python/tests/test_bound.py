"""Processes that end with the one that starts them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from laxity.bound import bound

if TYPE_CHECKING:
    from pathlib import Path

ENDS_S_MAX = 600
"""For a killed process to end, however busy the machine is; one that was not killed has no end."""

STARTS_AND_DIES = """if True:
    import os, subprocess, sys
    from laxity.bound import bound
    tell = "echo $$; exec sleep infinity"
    subprocess.Popen(bound(["sh", "-c", tell]), stdout=sys.stdout)
    sys.stdin.readline()
    os._exit(0)
"""


def test_a_command_is_what_was_started() -> None:
    started = subprocess.Popen(bound(["sh", "-c", "echo $$ $PPID"]), stdout=subprocess.PIPE)
    said, _ = started.communicate()
    assert said.split() == [str(started.pid).encode(), str(os.getpid()).encode()]
    assert started.returncode == 0


def test_a_command_ends_with_whom_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_DIES], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.stdin.close()
        assert parent.wait() == 0
    ended, _, _ = select.select([child], [], [], ENDS_S_MAX)
    if not ended:
        signal.pidfd_send_signal(child, signal.SIGKILL)
    os.close(child)
    assert ended


def test_a_command_whose_parent_has_ended_does_not_run(tmp_path: Path) -> None:
    """Another process starts it, as if this one had ended before the kernel was asked."""
    ran = tmp_path / "ran"
    words = bound(["touch", str(ran)])
    other = ["/bin/sh", "-c", '"$@"; true', "sh"]
    done = subprocess.run([*other, *words], check=False)
    assert done.returncode == 0
    assert not ran.exists()
    subprocess.run(words, check=True)
    assert ran.exists()
