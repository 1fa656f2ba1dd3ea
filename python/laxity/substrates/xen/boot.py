"""From a host file to runs on real Xen: the plan, who carries it out, and what came of it."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.lab import fingerprint
from laxity.lab.errors import LabError
from laxity.substrates.xen import collect
from laxity.substrates.xen.executors import CONSOLE, RESULTS, Emulated
from laxity.substrates.xen.plan import EVENTS, Plan, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from laxity.host import Host
    from laxity.results.run import Run
    from laxity.substrates.xen.executors import Place, Say

RUN = "run"
"""The name of the window of a boot that has only one."""

SECONDS_A_MINUTE = 60


def boot(
    host: Host,
    windows: Mapping[str, Sequence[str]],
    place: Place,
    directory: Path,
    say: Say,
    *,
    scheduler: str | None = None,
    events: int = EVENTS,
) -> dict[str, Run]:
    """Runs a host file on one boot of Xen: for each name, with these overrides.

    All have the same domains, and policies that a running Xen can change into one another.
    `directory`, a new one, gets the console's log, all that dom0 wrote, in `results`, and the trace
    of each run, NAME.laxtrace. `scheduler` is one of Xen's own, in place of the policy; `events` is
    what Xen traces.

    Raises InputError before anything boots if Xen cannot run it, LabError if the machine fails; it
    says where the console's log is then.
    """
    plan = Plan.of(
        [
            Window(name, host.resolved(overrides), events=events)
            for name, overrides in windows.items()
        ],
        mode=place.mode,
        scheduler=scheduler,
    )
    try:
        (directory / RESULTS).mkdir(parents=True)
    except FileExistsError:
        raise InputError(f"{directory} is there already", "name a new directory") from None
    say(f"{_who(plan)} on Xen: about {_time(plan.estimate_s)}")
    began_ns = time.monotonic_ns()
    with _log_kept(directory):
        place.execute(plan, directory, say)
        wall_ns = time.monotonic_ns() - began_ns
        own = () if scheduler is None else ("--scheduler", scheduler)
        runs = {}
        for window, overrides in zip(plan.windows, windows.values(), strict=True):
            run = collect.run(
                host,
                overrides,
                window,
                directory / RESULTS / window.run,
                directory / f"{window.run}.laxtrace",
                scheduler=scheduler,
                wall_ns=wall_ns,
                machine=fingerprint.read(directory),
            )
            origin = replace(run.origin, options=("--on", "xen", *place.options, *own))
            runs[window.run] = replace(run, origin=origin)
        return runs


def run(
    host: Host,
    overrides: Sequence[str],
    place: Place | None = None,
    *,
    scheduler: str | None = None,
    keep: Path | None = None,
    say: Say | None = None,
) -> Run:
    """One run on one boot. See `Host.run_on_xen`."""
    directory: AbstractContextManager[Path] = nullcontext(keep) if keep else _temporary()
    with directory as kept:
        runs = boot(
            host,
            {RUN: overrides},
            place or Emulated("repeatable"),
            kept,
            say or _silent,
            scheduler=scheduler,
        )
    return runs[RUN] if keep else replace(runs[RUN], trace=None)


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="laxity-xen.") as directory:
        yield Path(directory) / "boot"


@contextmanager
def _log_kept(directory: Path) -> Iterator[None]:
    """When the machine fails somebody has to look at its console, whatever becomes of the rest."""
    try:
        yield
    except LabError as error:
        log = directory / CONSOLE
        if not log.is_file():
            raise
        kept = Path(tempfile.mkdtemp(prefix="laxity-xen.")) / CONSOLE
        shutil.copyfile(log, kept)
        where = f"the console is in {kept}"
        help = (error.help or where).replace(str(log), str(kept))
        raise LabError(error.message, help if str(kept) in help else f"{help}; {where}") from None


def _who(plan: Plan) -> str:
    if plan.scheduler is not None:
        return f"Xen's {plan.scheduler}"
    return " and ".join(dict.fromkeys(window.host["policy"] for window in plan.windows))


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), SECONDS_A_MINUTE)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _silent(line: str) -> None:
    del line
