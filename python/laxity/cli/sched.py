"""`laxity sched`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app

app = typer_app()


@app.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "sched get",
        "sched --at ssh://root@server set web budget=2ms period=10ms",
        "sched set --pool 0 policy=polling",
    ),
)
def sched(
    words: Annotated[
        list[str], typer.Argument(metavar="get|set|pool ...", help="As laxity-sched takes them.")
    ],
    at: Annotated[
        str, typer.Option("--at", metavar="PLACE", help="local (this is dom0) or ssh://root@HOST.")
    ] = "local",
) -> None:
    """Parameters of a live Xen host, by Laxity's scheduler in it.

    Runs laxity-sched there, which explains itself: laxity sched -- --help.
    """
    from laxity.substrates.xen import executors

    code, text, complaint = executors.real_host(at).sched(words)
    print(text, end="")
    print(complaint, end="", file=sys.stderr)
    if code:
        raise typer.Exit(code)
