"""What the page asks of a host file, and the answers: text as on the command line, and a verdict.

Each question is a function of the text of a host file. It runs in a process of its own, which can
be ended, and shortens what would take long.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from laxity.errors import HostError, InputError
from laxity.host import Host
from laxity.resolved import ending
from laxity.substrates.sim import Sim
from laxity.tables.layout import WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType


NAME = "host.toml"
"""How messages call the text of the page."""

RUN_NS = 60_000_000
"""A run that is estimated to take longer is shortened to this."""

TRACED_RUN_NS = 30_000_000
"""The same for a run that is traced and explained, which takes nearly twice as long."""

WORST = 4
"""How many are explained one by one: one of each kind, if all were late."""


class Said(TypedDict, total=False):
    """What a question adds to an answer."""

    text: str
    good: bool | None
    host: str | None
    note: str | None


class Answer(TypedDict):
    """An answer, as the page takes it."""

    text: str
    """Its text in a terminal."""
    good: bool | None
    """The verdict, if there is one."""
    problems: list[dict[str, object]]
    """What is wrong with the file, each with `line` and `column` from 1."""
    host: str | None
    """The host file that a design has found."""
    note: str | None
    """What was left out."""


def answered(asked: tuple[str, str]) -> Answer:
    """Returns the answer to a question, by its name, about the text of a host file."""
    question, text = asked
    blank: Answer = {"text": "", "good": None, "problems": [], "host": None, "note": None}
    try:
        return {**blank, **QUESTIONS[question](Host.parse(text, NAME))}
    except HostError as error:
        problems = [vars(problem) for problem in error.problems]
        return {**blank, "good": False, "problems": problems}
    except InputError as error:
        return {**blank, "good": False, "text": str(error)}


def _shown(table: RenderableType) -> str:
    from rich.console import Console  # noqa: PLC0415 - it takes longer to import than a check

    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _check(host: Host) -> Said:
    from laxity.tables.check import check_table  # noqa: PLC0415

    check = host.check()
    return {"text": _shown(check_table(check)), "good": check.is_schedulable}


def _shortened(host: Host, most_ns: int) -> tuple[list[str], str | None]:
    """Overrides with which a run takes no more CPU time than that, and what to say of them."""
    resolved = host.resolve()
    duration_ns = resolved.host["duration_ns"]
    takes_ns = Sim().estimate([resolved]).cpu_ns
    if takes_ns <= most_ns:
        return [], None
    short_ns = max(duration_ns * most_ns // takes_ns, 1_000_000)
    return (
        ending(resolved.host, short_ns),
        f"The first {short_ns / 1e9:.3g} s of {duration_ns / 1e9:.3g} s; laxity run takes all.",
    )


def _run(host: Host) -> Said:
    from laxity.tables.calls import calls_table  # noqa: PLC0415
    from laxity.tables.run import run_table  # noqa: PLC0415

    overrides, note = _shortened(host, RUN_NS)
    run = host.run(set=overrides)
    calls = run.telephony
    table = run_table(run) if calls is None else calls_table(run, calls, host.resolved(overrides))
    return {"text": _shown(table), "good": run.passed, "note": note}


def _why(host: Host) -> Said:
    from laxity import why  # noqa: PLC0415
    from laxity.tables.why import why_table  # noqa: PLC0415

    overrides, note = _shortened(host, TRACED_RUN_NS)
    with tempfile.TemporaryDirectory(prefix="laxity.") as directory:
        trace = Path(directory) / "trace.laxtrace"
        run = host.run(set=overrides, trace=trace)
        found = why.why(trace, worst=WORST)
    return {"text": _shown(why_table(found, run.policy)), "good": run.passed, "note": note}


def _design(host: Host) -> Said:
    from laxity.tables.design import design_table  # noqa: PLC0415

    design = host.design()
    return {"text": _shown(design_table(design)), "good": design.holds, "host": design.host}


QUESTIONS: dict[str, Callable[[Host], Said]] = {
    "check": _check,
    "run": _run,
    "why": _why,
    "design": _design,
}
"""The questions, by name."""
