"""A host that runs, observed for a while: this Linux machine, or a Xen host here or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity import directory as directories
from laxity import tracefs
from laxity.errors import InputError
from laxity.observe import observed, xen
from laxity.shell import LOCAL, Shell
from laxity.substrates.xen.watch import is_dom0, watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from laxity.observe.observed import Observed
    from laxity.progress import Progress, Say

RECORDING = "trace.dat"
"""What was recorded on Linux, as trace-cmd and KernelShark read it."""


def observe_live(
    at: str,
    domains: Sequence[str],
    duration_s: float,
    directory: Path,
    say: Say,
    progress: Progress | None = None,
    *,
    packet_delay_ns: int | None = None,
    exits: bool = False,
) -> Observed:
    """Observes the host at `local` or `ssh://root@HOST`, and leaves what was recorded there.

    `domains` are threads of Linux. `packet_delay_ns` is a limit for packets, as in
    `observed.observe_recording` and `xen.observe`. With `exits` it is recorded when KVM left and
    entered guests. Raises InputError if the host does not let itself be observed from here, and
    LabError if something fails on the way.
    """
    shell = Shell.at(at)
    trace = directory / directories.TRACE
    if is_dom0(shell):
        if domains:
            raise InputError("Xen knows its domains", "leave --domain out")
        if exits:
            raise InputError("Xen's trace has no exits of guests", "leave --exits out")
        seen = watch(shell, duration_s, directory, say, packets=packet_delay_ns is not None)
        return xen.observe(seen, trace, packet_delay_ns)
    if at != LOCAL:
        raise InputError(
            f"{shell.name} does not run Xen, and Linux is observed where it runs",
            "call laxity observe there, or record with trace-cmd there and give the file",
        )
    recording = directory / RECORDING
    tracefs.record(
        recording, duration_s, progress, packets=packet_delay_ns is not None, exits=exits
    )
    return observed.observe_recording(
        recording, domains, trace, is_here=True, packet_delay_ns=packet_delay_ns
    )
