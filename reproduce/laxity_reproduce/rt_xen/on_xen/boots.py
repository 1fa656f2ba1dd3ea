"""Windows on real Xen: which ones, a boot for each scheduler, and what came of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from laxity import _core
from laxity.errors import core_errors
from laxity.lab.errors import LabError
from laxity.substrates.xen import known
from laxity.substrates.xen.collect import SUMMARY

from laxity_reproduce.reproduction import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from laxity.progress import Say
    from laxity.results.run import Run
    from laxity.substrates.xen.collect import RunSummary
    from laxity.trace_schema import Agreement, Needs

    from laxity_reproduce.reproduction import Value
    from laxity_reproduce.rt_xen.on_xen.window import Window

    Boot = Callable[[Sequence["Window"], Path, Say], Mapping[str, Run]]
    """Boots Xen for windows of one scheduler and host; their runs by name. What the machine leaves
    goes into a new directory. Raises LabError if the machine fails."""


WINDOWS_MAX = 24
"""In one boot. dom0 keeps what comes of them in memory until the end."""

FREE = ["host.costs={}"]

NUDGES_NS = (-2000, -1000, 1000, 2000)
"""What the wakes of tasks are made longer by to see how much hangs on it: less than they vary."""


@dataclass(frozen=True)
class Found:
    """What came of a window."""

    run: Run
    trace: Path
    summary: RunSummary


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

    >>> lab = XenLab(directory, boot=…, say=print, quick=False)
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
    ) -> None:
        """`directory` is for the traces."""
        self.quick = quick
        self._directory = directory
        self._boot = boot
        self._say = say
        self._found: dict[str, Found | str] = {}
        self._compared: dict[tuple[str, bool], Compared] = {}
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

    def simulated(self, window: Window, *, with_costs: bool) -> Compared:
        """A window beside the simulator's run of the same host: with all that is known, or with no
        costs.

        Raises NoRunError if nothing came of the window.
        """
        key = (window.name, with_costs)
        if key not in self._compared:
            found = self.found(window)
            trace = self._directory / f"{window.name}-{len(self._compared)}.sim.laxtrace"
            added = self._known(window) if with_costs else FREE
            sim = window.host.run(set=[*window.overrides, *added], trace=trace, seen=found.trace)
            with core_errors():
                agreement: Agreement = json.loads(_core.agreement(str(trace), str(found.trace)))
            trace.unlink()
            self._compared[key] = Compared(sim, found.run, agreement)
        return self._compared[key]

    def sensitivity(self, window: Window) -> list[float]:
        """How far the miss ratio of each domain in the simulator alone goes, in points, when the
        wakes of all tasks take a little more or less (NUDGES_NS).

        Raises NoRunError if nothing came of the window.
        """
        if window.name not in self._sensitivity:
            settled = [*window.overrides, *self._known(window)]
            runs = (
                window.host.run(set=[*settled, *_wakes_longer(window, nudge_ns)])
                for nudge_ns in (0, *NUDGES_NS)
            )
            ratios = np.array([[domain.miss_ratio for domain in run.domains] for run in runs])
            self._sensitivity[window.name] = list(100 * np.abs(ratios - ratios[0]).max(axis=0))
        return self._sensitivity[window.name]

    def beside(self, window: Window) -> Compared:
        """The same with all that is known of the lab: the best that the simulator can."""
        return self.simulated(window, with_costs=True)

    def _known(self, window: Window) -> list[str]:
        """Overrides for the simulator: what is known of the lab, whatever the paper's file says of
        costs, and what the run there settled.
        """
        host = window.host.resolve(window.overrides)
        costs = f"host.costs={known.table(host)}"
        summary = self.found(window).trace.with_suffix(SUMMARY)
        return [costs, *known.settled(host.changed([costs]), summary)]


def _wakes_longer(window: Window, by_ns: int) -> list[str]:
    """Overrides: what a wake of a task takes in each guest, longer by so much."""
    return [
        f"domain.{domain['name']}.tick.wake={known.WAKE_NS + by_ns} ns"
        for domain in window.host.resolved(window.overrides)["domains"]
    ]


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
