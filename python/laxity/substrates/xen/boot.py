"""From hosts to runs on one boot of real Xen: the plan, who carries it out, what came of it."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.lab import fingerprint
from laxity.lab.errors import LabError
from laxity.lab.files import CONSOLE, RESULTS
from laxity.substrates.xen import collect
from laxity.substrates.xen.plan import EVENTS, Plan, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.substrates.xen.executors import Executor

RUN = "run"
"""The name of the window of a boot that has only one."""

SECONDS_A_MINUTE = 60


def boot(
    hosts: Mapping[str, Resolved],
    executor: Executor,
    directory: Path,
    say: Say,
    *,
    scheduler: str | None = None,
    options: Sequence[str] = (),
    events: int = EVENTS,
) -> dict[str, Run]:
    """Runs hosts on one boot of Xen, one after the other; returns the run of each name.

    All have the same domains, and policies that a running Xen can change into one another.
    `directory`, a new one, gets the console's log, all that dom0 wrote, in `results`, and the trace
    of each run, NAME.laxtrace. `scheduler` is one of Xen's own, in place of the policy; `events` is
    what Xen traces; `options` name the substrate on the command line.

    Raises InputError before anything boots if Xen cannot run it, LabError if the machine fails; it
    says where the console's log is then.
    """
    plan = Plan.of(
        [Window(name, host.host, events=events) for name, host in hosts.items()],
        mode=executor.mode,
        scheduler=scheduler,
    )
    try:
        (directory / RESULTS).mkdir(parents=True)
    except FileExistsError:
        raise InputError(f"{directory} is there already", "name a new directory") from None
    say(f"{_who(plan)} on Xen: about {_time(plan.estimate_s)}")
    began_ns = time.monotonic_ns()
    with _log_kept(directory):
        executor.execute(plan, directory, say)
        wall_ns = time.monotonic_ns() - began_ns
        return {
            window.run: collect.run(
                host,
                window,
                directory / RESULTS / window.run,
                directory / f"{window.run}.laxtrace",
                scheduler=plan.scheduler,
                wall_ns=wall_ns,
                machine=fingerprint.read(directory),
                options=options,
            )
            for window, host in zip(plan.windows, hosts.values(), strict=True)
        }


@contextmanager
def temporary() -> Iterator[Path]:
    """Gives the name of a new directory, which is removed in the end."""
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
