"""This machine: real packets, real processes, the kernel's own scheduler and traffic control.

`scene` is what a run needs to know, pure; `media` runs it in network namespaces and control groups
that end with it; `run` makes the result.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from laxity.errors import InputError
from laxity.servers import MediaProgram  # noqa: TC001 - the command line reads the types of options
from laxity.substrates.substrate import REAL_TIME, Substrate, option

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.progress import Progress, Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run


@dataclass(frozen=True)
class Linux(Substrate):
    """Makes a host's calls on this machine, as root."""

    name: ClassVar[str] = "linux"
    label: ClassVar[str] = "Linux"
    summary: ClassVar[str] = "this machine with real packets"
    setting: ClassVar[str] = (
        "real packets through the kernel's traffic control, in network namespaces"
    )
    is_model: ClassVar[bool] = False
    traces: ClassVar[bool] = False

    media_server: MediaProgram = option(
        "laxity",
        "--media-server",
        "The media server: Laxity's own model, or rtpengine.",
        metavar="laxity|rtpengine",
    )

    @property
    def repeatable(self) -> bool:
        """See Substrate."""
        return False

    @property
    def repeats(self) -> str:
        """See Substrate."""
        return REAL_TIME

    def refusals(self, host: Resolved) -> list[InputError]:
        """See Substrate."""
        from laxity.substrates.linux.scene import scene

        try:
            scene(host.host, self.media_server, os.cpu_count() or 1)
        except InputError as refusal:
            return [refusal]
        return []

    def run(
        self,
        host: Resolved,
        *,
        trace: Path | None = None,
        keep: Path | None = None,
        seen: Path | None = None,
        say: Say,
        progress: Progress | None = None,
    ) -> Run:
        """See Substrate: nothing but the trace is left behind."""
        del keep, seen, progress
        from laxity.substrates.linux import run

        return run.run(host, self.media_server, say, self.words, trace)


SUBSTRATE = Linux
