"""Real Xen, by default in an emulated machine that repeats to the byte.

`plan` says what dom0 does with a host, pure; `executors` are who carries a plan out; `collect`
makes results of what is left; `boot` is all three.
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
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from laxity.progress import Progress, Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.substrates.kernel import Kernel
    from laxity.substrates.xen.executors import Executor


@dataclass(frozen=True)
class Xen(Substrate):
    """Boots the real hypervisor with a host's domains."""

    name: ClassVar[str] = "xen"
    label: ClassVar[str] = "Xen"
    summary: ClassVar[str] = "the real hypervisor"
    setting: ClassVar[str] = "real Xen 4.17 in the emulated machine of the lab, repeatable, one CPU"
    is_model: ClassVar[bool] = False
    traces: ClassVar[bool] = True

    at: str = option(
        "emulator",
        "--at",
        "emulator, local (this is dom0) or ssh://root@HOST.",
        metavar="PLACE",
    )
    mode: Mode = option(
        "repeatable",
        "--mode",
        "repeatable gives the same bytes every time, on one CPU; live runs in wall time.",
        metavar="repeatable|live",
    )
    scheduler: str | None = option(
        None,
        "--scheduler",
        "Xen's own credit, credit2, rtds or null in place of the policy.",
        metavar="NAME",
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

    def executor(self) -> Executor:
        """Returns who carries out plans; InputError if there is no such place."""
        from laxity.substrates.xen import executors

        return executors.executor(self.at, self.mode)

    def refusals(self, host: Resolved) -> list[InputError]:
        """See Substrate."""
        from laxity.substrates.xen.boot import RUN
        from laxity.substrates.xen.plan import Plan, Window

        try:
            self.executor()
            Plan.of([Window(RUN, host.host)], mode=self.mode, scheduler=self.scheduler)
        except InputError as refusal:
            return [refusal]
        return []

    def refuse_together(self, hosts: Sequence[Resolved]) -> None:
        """See Substrate: a real host's running Xen cannot change all policies into one another."""
        from laxity.policies import TABLE, can_switch
        from laxity.substrates.xen.executors import RealHost

        policies = list(dict.fromkeys(host.host["policy"] for host in hosts))
        if len(policies) == 1:
            return
        if self.scheduler is not None:
            raise InputError(
                f"Xen's {self.scheduler} runs in place of each of {', '.join(policies)}",
                "leave --scheduler out, or choose one policy",
            )
        if isinstance(self.executor(), RealHost) and not can_switch(policies):
            groups: dict[str, list[str]] = {}
            for name, policy in TABLE.items():
                groups.setdefault(policy.switch_group, []).append(name)
            choices = " or ".join(",".join(group) for group in groups.values() if len(group) > 1)
            raise InputError(
                f"a running Xen cannot change its policy among {', '.join(policies)}",
                f"add --policy with some of {choices}, or leave --at out: the emulated machine "
                "boots for each policy",
            )

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
        from laxity.substrates.xen import boot

        place: AbstractContextManager[Path] = nullcontext(keep) if keep else boot.temporary()
        with place as directory:
            runs = boot.boot(
                {boot.RUN: host},
                self.executor(),
                directory,
                say,
                scheduler=self.scheduler,
                options=self.words,
            )
            run = runs[boot.RUN]
            if trace is None:
                return run if keep else replace(run, trace=None)
            shutil.move(str(run.trace), trace)
        return replace(run, trace=trace)

    def settled(self, keep: Path, host: Resolved) -> list[str]:
        """See Substrate: how the run stood when it began, and what is known of the lab.

        The emulated machine that repeats to the byte has known costs. Where the file gives none,
        those of scheduling and of the guests' kernels are added.
        """
        from laxity.substrates.xen import boot, collect, known

        summary = keep / f"{boot.RUN}{collect.SUMMARY}"
        if not self._is_known:
            return collect.settled(host.host, summary)
        return known.settled(host, summary)

    def machine(self, host: Resolved) -> list[str]:
        """See Substrate."""
        from laxity.substrates.xen import known

        return known.machine(host) if self._is_known else []

    def kernel(self, host: Resolved) -> Kernel:
        """See Substrate."""
        from laxity.substrates.xen import known

        return known.kernel(host) if self._is_known else super().kernel(host)

    def period_ends_ns(self, keep: Path) -> Sequence[Sequence[int | None]]:
        """See Substrate."""
        from laxity.substrates.xen import boot, collect

        summary = keep / f"{boot.RUN}{collect.SUMMARY}"
        return collect.deadlines_ns(summary) if summary.is_file() else ()

    @property
    def _is_known(self) -> bool:
        """Whether it is the machine of which is known what kernels take."""
        return self.at == "emulator" and self.repeatable


SUBSTRATE = Xen
