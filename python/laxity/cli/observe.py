"""`laxity observe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar
from laxity.cli.options import JsonOption, OutputOption, time_ns
from laxity.cli.outputs import directory_for

DURATION = "10 s"
RECORDING = "trace.dat"
"""What was recorded, as trace-cmd and KernelShark read it."""

app = typer_app()


@app.command(
    epilog=examples(
        "observe -o seen --duration '30 s'",
        "observe trace.dat --domain media=4711,4712 -o seen",
        "observe out -o seen && laxity run seen/host.toml",
        "observe out/trace.laxtrace -o seen && laxity why seen",
    )
)
def observe(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="A trace, the output of a run, or a file of trace-cmd. By default this machine.",
        ),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=THREAD,...",
            help="Threads of Linux that are the VCPUs of a domain; may be repeated. By default the "
            "virtual machines of QEMU.",
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long this machine is observed.")
    ] = DURATION,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """What does a host do, and which host file would do the same?

    Looks at nothing but who ran when, and how the host is configured. Periodic tasks are recognized
    by their periods, offsets and costs. With -o it writes host.toml, in which each value says where
    it comes from, and the trace with the tasks' jobs, for why, report and trace.
    """
    from laxity import directory as directories
    from laxity.errors import InputError
    from laxity.observe import observed, tracefs
    from laxity.tables.observe import observe_table

    seconds = time_ns(duration, "--duration", DURATION) / 1e9
    with directory_for(output) as directory:
        trace = directory / directories.TRACE
        if source is None:
            recording = directory / RECORDING
            with progress_bar("observing") as progress:
                tracefs.record(recording, seconds, progress)
            found = observed.observe_recording(recording, domain or (), trace, is_here=True)
        elif observed.is_recording(source):
            found = observed.observe_recording(source, domain or (), trace)
        elif domain:
            raise InputError(
                f"{source} knows its domains", "give --domain with files of trace-cmd alone"
            )
        else:
            found = observed.observe(source, trace)
        if output is not None:
            found.run.write(directory)
        if as_json:
            print_json(found.to_json())
        else:
            print_rich(observe_table(found))
