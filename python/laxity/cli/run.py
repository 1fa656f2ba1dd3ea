"""`laxity run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import FAILED_VERDICT, examples, judge, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say, say_written
from laxity.cli.options import (
    DurationOption,
    HostArgument,
    JsonOption,
    OutputOption,
    PolicyOption,
    SeedOption,
    SetOption,
    StrictOption,
)
from laxity.cli.outputs import directory_for, temporary_directory
from laxity.cli.substrate import with_substrate
from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity.host import Host
    from laxity.results.run import Run
    from laxity.substrates.substrate import Substrate

app = typer_app()


@app.command(
    epilog=examples(
        "run examples/rt-xen.toml",
        "run examples/rt-xen.toml --policy sedf --seed 7 --duration '10 s'",
        "run examples/rt-xen.toml --set draw.load=0.8 --json",
        "run examples/integrator.toml -o out",
        "run examples/rt-xen.toml --on xen --duration '10 s' -o out",
        "run examples/telephony.toml --on linux --set host.cpus=2",
    )
)
@with_substrate
def run(
    *,
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    on: Substrate,
    output: OutputOption = None,
    no_trace: Annotated[
        bool, typer.Option("--no-trace", help="With -o: leave out the trace, which may be large.")
    ] = False,
    check_determinism: Annotated[
        bool, typer.Option("--check-determinism", help="Run twice here and compare all bytes.")
    ] = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the host: which jobs are late, and by how much?

    Shows how many jobs of each task met their deadline, how late the others were, and what the
    scheduler itself cost.
    """
    from laxity import directory
    from laxity.host import Host
    from laxity.resolved import overrides_of

    if check_determinism and not on.repeatable:
        raise InputError("time on the wall does not repeat", "leave out one of the two options")
    file = Host.load(host)
    overrides = overrides_of(settings or (), policy=policy, seed=seed, duration=duration)
    file.resolve(overrides).require_scorer()
    is_kept = output is not None and not no_trace

    def once(place: Path) -> Run:
        """A second run must write the same bytes as this one."""
        with progress_bar("running") as progress:
            return file.run(
                on=on,
                set=overrides,
                trace=place / directory.TRACE if is_kept or check_determinism else None,
                keep=place / on.name,
                say=say,
                progress=progress,
            )

    difference = None
    with directory_for(output) as place:
        result = once(place)
        if check_determinism:
            difference = _difference(result, place, once)
        if result.trace is not None and not is_kept:
            result.trace.unlink()
        if result.telephony is not None:
            result = _scored(result)
        if output is not None:
            result.write(place)
    if as_json:
        print_json(result.to_json())
    else:
        _print_run(result, file)
        say_written(output)
    if difference:
        print(f"Not deterministic: two runs differ\n{difference}", end="", file=sys.stderr)
        raise typer.Exit(FAILED_VERDICT)
    if check_determinism:
        print("Deterministic: two runs, the same result, the same bytes of trace", file=sys.stderr)
    judge(result.passed, strict)


def _scored(run: Run) -> Run:
    from laxity.voice.scoring import scored

    with progress_bar("listening") as progress:
        return scored(run, progress)


def _difference(first: Run, directory: Path, once: Callable[[Path], Run]) -> str | None:
    """Runs the host again; the difference as text, or None if only the wall time differs."""
    from laxity import _core, files
    from laxity.errors import core_errors

    with temporary_directory() as place:
        second = once(place)
        different = files.differing(directory, place)
        if not different:
            results = [
                {**run.to_json(), "engine": {"events": run.engine.events}}
                for run in (first, second)
            ]
            return None if results[0] == results[1] else "the results differ, the traces do not\n"
        assert first.trace is not None  # noqa: S101, for the types: the caller traced it.
        assert second.trace is not None  # noqa: S101, as above.
        with core_errors():
            traces = _core.diff(str(first.trace), str(second.trace))[1]
        return f"These files have other bytes: {', '.join(different)}\n{traces}"


def _print_run(result: Run, file: Host) -> None:
    from laxity.tables.calls import calls_table
    from laxity.tables.run import run_table

    if result.telephony is None:
        print_rich(run_table(result))
    else:
        host = file.resolved(result.origin.overrides)
        print_rich(calls_table(result, result.telephony, host))
