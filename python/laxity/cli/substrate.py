"""From the options of a command to the host and to where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.cli.console import say
from laxity.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.host import Host
    from laxity.substrates.xen.executors import Place
    from laxity.substrates.xen.plan import Mode


def simulated(path: Path, *, long: bool) -> Host:
    """Loads a host whose simulations tell beforehand if they take a while."""
    from laxity.host import Host

    host = Host.load(path)
    host.long, host.say = long, say
    return host


def xen(on: str, at: str, mode: Mode, scheduler: str | None) -> Place | None:
    """Returns where Xen runs the host; None for the other substrates."""
    if on == "xen":
        from laxity.substrates.xen import executors as where

        return where.place(at, mode)
    if (at, mode, scheduler) != ("emulator", "repeatable", None):
        raise InputError("--at, --mode and --scheduler are for Xen", "add --on xen")
    return None
