"""Real Linux with KVM, in an emulated machine that repeats to the byte.

`plan` says what the host does, pure; `boot` has it done; `collect` makes results of what is left.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from laxity.errors import InputError
from laxity.lab.modes import Mode  # noqa: TC001 - the command line reads the types of options
from laxity.substrates.substrate import REAL_TIME, Substrate, option

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from laxity.progress import Progress, Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.substrates.kernel import Kernel


@dataclass(frozen=True)
class Kvm(Substrate):
    """Boots a Linux host with KVM, and a host's domains as virtual machines on it."""

    name: ClassVar[str] = "kvm"
    label: ClassVar[str] = "KVM"
    summary: ClassVar[str] = "Linux with KVM"
    setting: ClassVar[str] = "Linux's KVM in the emulated machine of the lab, repeatable, one CPU"
    is_model: ClassVar[bool] = False
    traces: ClassVar[bool] = True

    mode: Mode = option(
        "repeatable",
        "--mode",
        "repeatable gives the same bytes every time, on one CPU; live runs in wall time.",
        metavar="repeatable|live",
    )
    exits: bool = option(
        False,
        "--exits",
        "The trace also has when guests were left and entered, and why; it costs CPU time.",
    )

    @property
    def repeatable(self) -> bool:
        """See Substrate."""
        return self.mode == "repeatable"

    @property
    def repeats(self) -> str:
        """See Substrate."""
        if self.repeatable:
            return "the same file, seed, kernel and packages give the same results to the byte"
        return REAL_TIME

    def refusals(self, host: Resolved) -> list[InputError]:
        """See Substrate."""
        from laxity.substrates.kvm.plan import Plan

        try:
            Plan.of(host.host, mode=self.mode)
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
        """See Substrate; the trace is in `keep`, if it is not asked for elsewhere."""
        del seen, progress
        from laxity.substrates.kvm import boot

        place: AbstractContextManager[Path] = nullcontext(keep) if keep else boot.temporary()
        with place as directory:
            run = boot.boot(host, self.mode, directory, say, options=self.words, exits=self.exits)
            if trace is None:
                return run if keep else replace(run, trace=None)
            shutil.move(str(run.trace), trace)
        return replace(run, trace=trace)

    def settled(self, keep: Path, host: Resolved) -> list[str]:
        """See Substrate: what is known of the machine that repeats to the byte."""
        del keep
        from laxity.substrates.kvm import known

        return known.settled(host) if self.repeatable else []

    def machine(self, host: Resolved) -> list[str]:
        """See Substrate."""
        from laxity.substrates.kvm import known

        return known.machine(host) if self.repeatable else []

    def kernel(self, host: Resolved) -> Kernel:
        """See Substrate."""
        from laxity.substrates.kvm import known

        return known.kernel(host) if self.repeatable else super().kernel(host)


SUBSTRATE = Kvm
