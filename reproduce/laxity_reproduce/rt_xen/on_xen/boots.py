"""Windows on real Xen: which ones, a boot for each scheduler, and what came of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from laxity import _core
from laxity.errors import core_errors
from laxity.lab.errors import LabError
from laxity.substrates.xen.collect import SUMMARY

from laxity_reproduce.reproduction import Row
from laxity_reproduce.rt_xen.on_xen import guests
from laxity_reproduce.rt_xen.on_xen.model import MEASURED, Calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from laxity.progress import Say
    from laxity.results.run import Run
    from laxity.substrates.xen.collect import RunSummary
    from laxity.trace_schema import Agreement, Needs

    from laxity_reproduce.reproduction import Value
    from laxity_reproduce.rt_xen.on_xen.model import Costs
    from laxity_reproduce.rt_xen.on_xen.window import Window

    Boot = Callable[[Sequence["Window"], Path, Say], Mapping[str, Run]]
    """Boots Xen for windows of one scheduler and host; their runs by name. What the machine leaves
    goes into a new directory. Raises LabError if the machine fails."""


WINDOWS_MAX = 24
"""In one boot. dom0 keeps what comes of them in memory until the end."""

FREE = ["host.costs={}"]

NUDGES_NS = (-2000, -1000, 1000, 2000)
"""What jobs are made longer by to see how much hangs on it: less than their overhead varies."""


@dataclass(frozen=True)
class Found:
    """What came of a window."""

    run: Run
    trace: Path
    summary: RunSummary

    @property
    def ticks(self) -> list[dict[str, int]]:
        """The tick of each guest's kernel: dom0, which tells none, is no domain of these hosts."""
        return [tick for tick in self.summary["ticks"] if tick is not None]


@dataclass(frozen=True)
class Compared:
    """A window beside the simulator's run of it."""

    sim: Run
    xen: Run
    agreement: Agreement
    """How far the traces agree, the simulator's first."""

    @property
    def differences(self) -> list[float]:
        """Differences of the domains' miss ratios, in points: Xen's less the simulator's."""
        return [
            100 * (real.miss_ratio - simulated.miss_ratio)
            for simulated, real in zip(self.sim.domains, self.xen.domains, strict=True)
        ]

    @property
    def largest_difference(self) -> float:
        """The largest difference of the domains' miss ratios, in points, without its sign."""
        return max(map(abs, self.differences))


class NoRunError(Exception):
    """A window that was asked for did not come to be."""


class XenLab:
    """Boots Xen for the experiments, and keeps what came of it.

    >>> lab = XenLab(directory, boot=…, say=print, quick=False, calibration=None)
    >>> lab.run(windows)
    >>> lab.found(windows[0]).run.miss_ratio
    """

    def __init__(
        self,
        directory: Path,
        *,
        boot: Boot,
        say: Say,
        quick: bool,
        calibration: Calibration | None,
    ) -> None:
        """`directory` is for the traces; `calibration` is what the simulator's runs take, too."""
        self.quick = quick
        self.calibration = calibration
        self._directory = directory
        self._boot = boot
        self._say = say
        self._found: dict[str, Found | str] = {}
        self._compared: dict[tuple[str, Calibration | None], Compared] = {}
        self._sensitivity: dict[str, list[float]] = {}

    def run(self, windows: Iterable[Window]) -> None:
        """Runs all windows, each once; a boot that fails costs its own windows only."""
        unique = {window.name: window for window in windows}
        boots = _boots(list(unique.values()))
        for number, members in enumerate(boots, start=1):
            who = f"{members[0].scheduler}, {members[0].host.name}"
            self._say(f"boot {number} of {len(boots)}: {who}, windows: {len(members)}")
            directory = self._directory / f"boot-{number}"
            try:
                runs = self._boot(members, directory, self._say)
                for window in members:
                    self._found[window.name] = _found(runs[window.name])
            except LabError as error:
                self._say(f"boot {number} failed: {error}")
                # The help is for who is there now: it names a directory that goes.
                told = error.message.splitlines()[0]
                self._found |= {window.name: told for window in members}

    def found(self, window: Window) -> Found:
        """What came of a window. Raises NoRunError, with the reason, if nothing did."""
        found = self._found[window.name]
        if isinstance(found, str):
            raise NoRunError(found)
        return found

    def simulated(self, window: Window, calibration: Calibration | None) -> Compared:
        """A window beside the simulator's run of the same host: with costs, or with none.

        Raises NoRunError if nothing came of the window.
        """
        key = (window.name, calibration)
        if key not in self._compared:
            found = self.found(window)
            trace = self._directory / f"{window.name}-{len(self._compared)}.sim.laxtrace"
            if calibration is None:
                free = [*window.overrides, *FREE]
                sim = window.host.run(set=free, trace=trace, seen=found.trace)
            else:
                host = calibration.host(window, found.ticks)
                sim = host.run(trace=trace, seen=found.trace)
            with core_errors():
                agreement: Agreement = json.loads(_core.agreement(str(trace), str(found.trace)))
            trace.unlink()
            self._compared[key] = Compared(sim, found.run, agreement)
        return self._compared[key]

    def job_cost_ns(self, window: Window, costs: Costs) -> int:
        """What a job takes longer in a window than in the simulator with these costs: see guests.

        Raises NoRunError if nothing came of the window.
        """
        found, trace = self.found(window), self._directory / f"{window.name}.jobs.laxtrace"
        calibration = Calibration((costs,) * len(MEASURED))
        # Guests whose jobs take less fall idle earlier, and do not wake for all the ticks that were
        # seen.
        run = calibration.host(window, found.ticks).run(trace=trace)
        job_ns = guests.job_cost_ns(trace, found.trace, len(run.domains))
        trace.unlink()
        return job_ns

    def sensitivity(self, window: Window) -> list[float]:
        """How far the miss ratio of each domain in the simulator alone goes, in points, when all
        jobs take a little more or less (NUDGES_NS).

        Raises NoRunError if nothing came of the window.
        """
        if window.name not in self._sensitivity:
            ticks = self.found(window).ticks
            calibration = self.calibration or Calibration.free()
            runs = (
                calibration.longer(nudge_ns).host(window, ticks).run()
                for nudge_ns in (0, *NUDGES_NS)
            )
            ratios = np.array([[domain.miss_ratio for domain in run.domains] for run in runs])
            self._sensitivity[window.name] = list(100 * np.abs(ratios - ratios[0]).max(axis=0))
        return self._sensitivity[window.name]

    def beside(self, window: Window) -> Compared:
        """The same with the lab's calibration, if there is one: the best that the simulator can."""
        return self.simulated(window, self.calibration)


def try_row(what: str, published: Value, make: Callable[..., Row], *arguments: object) -> Row:
    """The row that `make(what, *arguments)` makes, or one that says why there is none."""
    try:
        return make(what, *arguments)
    except NoRunError as reason:
        return Row(what, published, "no run", "differs", str(reason))


def needs_of(trace: Path) -> Needs:
    """How many decisions and switches a trace has and needs."""
    with core_errors():
        needs: Needs = json.loads(_core.needs(str(trace)))
    return needs


def _found(run: Run) -> Found:
    assert run.trace is not None  # noqa: S101, for the types: runs on Xen are traced.
    summary: RunSummary = json.loads(run.trace.with_suffix(SUMMARY).read_text("utf-8"))
    return Found(run, run.trace, summary)


def _boots(windows: list[Window]) -> list[list[Window]]:
    """Windows that one boot can have, in the order in which their schedulers come first."""
    together: dict[tuple[str, str], list[Window]] = {}
    for window in windows:
        together.setdefault((window.scheduler, window.host.name), []).append(window)
    return [
        members[start : start + WINDOWS_MAX]
        for members in together.values()
        for start in range(0, len(members), WINDOWS_MAX)
    ]
