"""RT-Xen's experiments on Xen by name: which windows each needs, and who judges them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.progress import silent
from laxity.substrates.xen import boot as xen
from laxity.substrates.xen import executors

from laxity_reproduce import published
from laxity_reproduce.reproduction import Reproduction
from laxity_reproduce.rt_xen.on_xen import calibration, causes, costs, fidelity, isolation, load
from laxity_reproduce.rt_xen.on_xen.boots import NoRunError, XenLab
from laxity_reproduce.rt_xen.on_xen.model import Calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from laxity.lab.modes import Mode
    from laxity.progress import Say
    from laxity.results.run import Run
    from laxity.substrates.xen.plan import Plan

    from laxity_reproduce.reproduction import Experiment
    from laxity_reproduce.rt_xen.on_xen.boots import Boot
    from laxity_reproduce.rt_xen.on_xen.window import Window

FIDELITY = "fidelity"
WHY = "why"
CALIBRATION = "calibration"

CORE_EVENTS = 0x00029000
"""Events of Xen's TRC_SCHED: what its core does under every scheduler, and the measured costs."""


def _compared(quick: bool) -> list[Window]:
    """Windows that the simulator is held against."""
    return [*isolation.windows(quick), *load.windows(quick)]


WINDOWS: dict[str, Callable[[bool], list[Window]]] = {
    "table-1": costs.windows,
    "table-1-many": costs.windows_of_many,
    "table-2": isolation.windows,
    "figure-6": load.windows,
    FIDELITY: _compared,
    WHY: _compared,
    CALIBRATION: lambda quick: [*calibration.windows(quick), *_compared(quick)],
}
"""What each experiment needs, if quick or not."""

JUDGES: dict[str, Callable[[XenLab], Experiment]] = {
    "table-1": costs.judge,
    "table-1-many": costs.judge_many,
    "table-2": isolation.judge,
    "figure-6": load.judge,
}

QUICK = ("table-1", "table-2", "figure-6", FIDELITY, WHY)
"""What is run in a hurry, unless one experiment is asked for."""


def reproduce(
    experiment: str | None = None,
    *,
    quick: bool = False,
    say: Say = silent,
    boot: Boot | None = None,
) -> tuple[Reproduction, Calibration | None]:
    """Runs all experiments, or one of them, in repeatable mode.

    The lab's emulated machine boots unless `boot` does. Also returns what the simulator's costs
    should be, if the experiment `calibration` was among them. A boot that fails is a row that says
    so. Raises InputError if there is no such experiment.
    """
    with tempfile.TemporaryDirectory(prefix="laxity-xen.") as directory:
        found, calibration = run(
            experiment, quick=quick, boot=boot or emulated, say=say, directory=Path(directory)
        )
    title: str = published.facts("rt_xen")["title"]
    seeds = len(isolation.seeds(quick))
    return Reproduction("rt-xen", title, seeds, quick, found, "xen"), calibration


def run(
    experiment: str | None, *, quick: bool, boot: Boot, say: Say, directory: Path
) -> tuple[list[Experiment], Calibration | None]:
    """Runs all experiments, or one of them; also returns the calibration, if one was derived.

    `directory` is for what the machines leave. Raises InputError if there is no such experiment.
    """
    if experiment is not None and experiment not in WINDOWS:
        raise InputError(
            f"rt-xen has no experiment `{experiment}` on Xen", f"it has {', '.join(WINDOWS)}"
        )
    names = [experiment] if experiment else list(QUICK if quick else WINDOWS)
    lab = XenLab(directory, boot=boot, say=say, quick=quick)
    lab.run(window for name in names for window in WINDOWS[name](quick))
    derived = _derive(lab) if CALIBRATION in names else "not asked for"
    say("comparing with the simulator")
    found = [_judge(lab, name, derived) for name in names]
    return found, derived if isinstance(derived, Calibration) else None


def _derive(lab: XenLab) -> Calibration | str:
    """The calibration, or why there is none."""
    try:
        return calibration.derive(lab)
    except NoRunError as reason:
        return str(reason)


def _judge(lab: XenLab, name: str, derived: Calibration | str) -> Experiment:
    if name in JUDGES:
        return JUDGES[name](lab)
    compared = _compared(lab.quick)
    if name == FIDELITY:
        return fidelity.judge(lab, compared)
    if name == WHY:
        return causes.judge(lab, compared)
    return calibration.judge(lab, derived, compared)


def emulated(windows: Sequence[Window], directory: Path, say: Say) -> Mapping[str, Run]:
    """Boots the lab's machine, with the hypervisor that traces what scheduling costs."""
    return xen.boot(
        {window.name: window.host.resolve(window.overrides) for window in windows},
        _Quiet(frozenset(window.name for window in windows if not window.policy_events)),
        directory,
        say,
        scheduler=windows[0].stock,
    )


@dataclass(frozen=True)
class _Quiet:
    """The lab's machine, which in some runs does not trace what policies say of themselves."""

    runs: frozenset[str]
    mode: Mode = "repeatable"

    def execute(self, plan: Plan, directory: Path, say: Say) -> None:
        """See laxity.substrates.xen.executors.Executor."""
        windows = (
            replace(window, events=CORE_EVENTS) if window.run in self.runs else window
            for window in plan.windows
        )
        quiet = replace(plan, windows=tuple(windows))
        executors.Emulated(self.mode, "measured").execute(quiet, directory, say)
