"""What the tests share: a small host, and the command line as people call it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import typer
from laxity import cli
from laxity.tracefs import TRACING
from laxity.voice import spandsp

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a shell starts in the background ignores interrupts, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_spandsp() -> bool:
    try:
        ctypes.CDLL(spandsp.LIBRARY)
    except OSError:
        return False
    return True


needs_spandsp = pytest.mark.skipif(
    not _has_spandsp(), reason="there is no spandsp (Debian package libspandsp2)"
)

UNSHARE = shutil.which("unshare") or "unshare"


def can_trace() -> bool:
    """Whether this machine lets itself be traced, in a namespace of mounts of one's own."""
    words = [UNSHARE, "-m", "mount", "-t", "tracefs", "nodev", str(TRACING)]
    done = subprocess.run(words, check=False, capture_output=True)
    return os.geteuid() == 0 and done.returncode == 0


EXAMPLES = Path(__file__).parents[2] / "examples"
SITE = EXAMPLES / "site.toml"
"""A site file: what `laxity site` takes."""
FLEET = EXAMPLES / "fleet.toml"
"""A fleet file: what `laxity design` takes, and nothing else."""
OPEN = EXAMPLES / "three-loops.toml"
"""A host file with open values: what `laxity design` takes, and nothing else."""
HOST_FILES = sorted(set(EXAMPLES.glob("*.toml")) - {SITE, FLEET, OPEN})

HOST = """\
duration = "1 s"
seed = 3

[host]
cpus = 1
policy = "deferrable"

[draw]
load = 0.9
tasks = 3

[[domain]]
name = "control"
budget = "2 ms"
period = "10 ms"
tasks = [{ name = "loop", cost = "4 ms", period = "40 ms" }]

[[domain]]
name = "late"
budget = "1 ms"
period = "20 ms"
tasks = [{ name = "hungry", cost = "10 ms", period = "100 ms" }]

[[domain]]
name = "random"
budget = "10 ms"
period = "40 ms"
tasks = "drawn"

[[domain]]
name = "batch"
budget = "1 ms"
period = "50 ms"
workload = { kind = "cpu-bound" }
"""

BESIDE = """
duration = "1 s"
[host]
cpus = 2
policy = "credit"
costs = "emsoft-2011"
network = "iptcomm-2009"
[[domain]]
name = "dom0"
workload = { kind = "driver" }
[[domain]]
name = "media"
workload = { kind = "media-server" }
[[domain]]
name = "control"
tasks = [{ name = "loop", cost = "2 ms", period = "5 ms" }]
[[domain]]
name = "batch"
vcpus = 2
workload = { kind = "cpu-bound" }
[calls]
streams = 100
media-server = "media"
"""
"""Calls, and a task whose deadlines are tight beside them."""


class Laxity(Protocol):
    """Runs the command."""

    def __call__(
        self, *words: object, code: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """`code` is the exit code that is expected."""
        ...


def commands(
    group: Any = None, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands of the command line, those of groups too: the words of each, and itself."""
    group = group or typer.main.get_command(cli.app)
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


@pytest.fixture
def host(tmp_path: Path) -> Path:
    path = tmp_path / "host.toml"
    path.write_text(HOST)
    return path


@pytest.fixture
def laxity(capfd: pytest.CaptureFixture[str]) -> Laxity:
    def call(*words: object, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        arguments = ["laxity", *map(str, words)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", arguments)
            for name, value in {"COLUMNS": "80", **environment}.items():
                patch.setenv(name, value)
            capfd.readouterr()
            exit_code = cli.guarded()
            sys.stdout.flush()
            output, error = capfd.readouterr()
        # One text: what pytest makes of several values, it cuts.
        assert exit_code == code, f"{words}: exit code {exit_code}\n{output}\n{error}"
        assert "Traceback" not in error
        return subprocess.CompletedProcess(arguments, exit_code, output, error)

    return call
