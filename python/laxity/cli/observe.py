"""`laxity observe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say
from laxity.cli.options import JsonOption, OutputOption, PlaceOption, time_ns
from laxity.cli.outputs import directory_for

DURATION = "10 s"
PACKET_DELAY = "1 ms"
app = typer_app()


@app.command(
    epilog=examples(
        "observe -o seen --duration '30 s'",
        "observe --at ssh://root@xen.example.com -o seen",
        "observe trace.dat --domain media=4711,4712 -o seen",
        "observe --packet-delay '1 ms' -o seen && laxity why seen",
        "observe out -o seen && laxity run seen/host.toml",
        "observe out/trace.laxtrace -o seen && laxity why seen",
    )
)
def observe(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SOURCE]",
            help=(
                "A trace, the output of a run, or a file of trace-cmd; without it, a running"
                " host is observed."
            ),
        ),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=THREAD,...[+THREAD,...]",
            help="Threads of Linux that are the VCPUs of a domain, and behind a + others that take "
            "its packets; may be repeated. By default the virtual machines of QEMU.",
        ),
    ] = None,
    at: PlaceOption = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long a host is observed.")
    ] = DURATION,
    packet_delay: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Record packets, too, in Linux or in dom0 of Xen: one that waits for longer until "
            "its domain has it is late, and `laxity why` says why.",
        ),
    ] = None,
    exits: Annotated[
        bool,
        typer.Option(
            "--exits",
            help="On Linux, record when KVM left guests, and why: `laxity why` tells the time of "
            "the host from theirs. A file of trace-cmd that has this is always read so.",
        ),
    ] = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """What does a host do, and which host file would do the same?

    Uses only which VCPU ran when, the configuration of the host and, with --packet-delay, when its
    kernel and its domains had packets. Periodic tasks are recognized by their periods, offsets and
    costs. With -o it writes host.toml, in which each value says where
    it comes from, and the trace with the tasks' jobs, for why, report and trace.
    """
    from laxity import directory as directories
    from laxity.errors import InputError
    from laxity.observe import observed
    from laxity.observe.live import observe_live
    from laxity.shell import LOCAL
    from laxity.tables.observe import observe_table

    seconds = time_ns(duration, "--duration", DURATION) / 1e9
    delay_ns = None
    if packet_delay is not None:
        delay_ns = time_ns(packet_delay, "--packet-delay", PACKET_DELAY)
    if source is not None and at is not None:
        raise InputError(f"{source} is observed, or {at}, not both", "leave one of them out")
    if source is not None and exits:
        raise InputError(f"{source} has the exits of guests, or has them not", "leave --exits out")
    with directory_for(output) as directory:
        trace = directory / directories.TRACE
        if source is None:
            with progress_bar("observing") as progress:
                place, domains = at or LOCAL, domain or ()
                found = observe_live(
                    place,
                    domains,
                    seconds,
                    directory,
                    say,
                    progress,
                    packet_delay_ns=delay_ns,
                    exits=exits,
                )
        elif observed.is_recording(source):
            found = observed.observe_recording(
                source, domain or (), trace, packet_delay_ns=delay_ns
            )
        elif domain:
            raise InputError(
                f"{source} knows its domains", "give --domain with files of trace-cmd alone"
            )
        elif delay_ns is not None:
            raise InputError(
                f"{source} has late packets by a limit of its own, or none",
                "give --packet-delay with files of trace-cmd alone",
            )
        else:
            found = observed.observe(source, trace)
        if output is not None:
            found.run.write(directory)
        if as_json:
            print_json(found.to_json())
        else:
            print_rich(observe_table(found))
