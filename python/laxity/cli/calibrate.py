"""`laxity calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say
from laxity.cli.options import JsonOption, time_ns
from laxity.cli.outputs import refuse_unwritable_file

DURATION = "15 s"
STREAMS = 100
PARTICIPANTS = 8
CPU_PART = 0.5

app = typer_app()


@app.command(
    epilog=examples(
        "calibrate",
        "calibrate --cpu-part 0.7 --participants 20",
        "calibrate --toml",
        "calibrate examples/telephony.toml --write calibrated.toml",
    )
)
def calibrate(
    *,
    host: Annotated[
        Path | None,
        typer.Argument(metavar="[HOST]", help="The host file that --write completes."),
    ] = None,
    streams: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1000, help="Measure packets of this many streams."),
    ] = STREAMS,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long packets are sent, in all.")
    ] = DURATION,
    participants: Annotated[
        int, typer.Option(metavar="N", min=2, max=1000, help="Participants of a conference.")
    ] = PARTICIPANTS,
    cpu_part: Annotated[
        float,
        typer.Option(
            metavar="PART",
            min=0.01,
            max=1.0,
            help="How much of a CPU streams may take on the average, for their number.",
        ),
    ] = CPU_PART,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write HOST, with the costs in it, to this file."),
    ] = None,
    as_toml: Annotated[
        bool, typer.Option("--toml", help="Print the costs as a table of a host file.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """What does a packet cost on this machine, and how many streams does a CPU carry?

    Sends real packets through Laxity's media server, as --on linux does, and measures each step of
    their way: the costs of [host] network with which the simulator predicts this machine. Codecs,
    SRTP, conferences and recording are measured by the libraries that media servers use. Needs
    root, and leaves nothing behind. Other work on the machine is measured, too.
    """
    from laxity.calibration import calibrate as measure
    from laxity.calibration import check_fits
    from laxity.errors import InputError
    from laxity.host import Host
    from laxity.tables.calibration import calibration_table

    if (host is None) != (write is None):
        raise InputError(
            "a host file is written from another one", "give both HOST and --write FILE, or neither"
        )
    if as_toml and as_json:
        raise InputError("--toml and --json both say what is printed", "leave one of them out")
    file = None if host is None else Host.load(host)
    if file is not None and write is not None:
        # What cannot be written is told before anything is measured.
        refuse_unwritable_file(write, "--write")
        check_fits(file)
    with progress_bar("measuring") as progress:
        found = measure(
            streams=streams,
            duration_ns=time_ns(duration, "--duration", DURATION),
            participants=participants,
            cpu_part=cpu_part,
            progress=progress,
        )
    if as_json:
        print_json(found.to_json())
    elif as_toml:
        print(found.toml)
    else:
        print_rich(calibration_table(found))
    if file is not None and write is not None:
        write.write_bytes(found.calibrated(file).text)
        say(f"wrote {write}")
