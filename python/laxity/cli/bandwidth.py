"""`laxity bandwidth`."""

from __future__ import annotations

import typer

from laxity.cli import passed_on
from laxity.cli.command import examples, typer_app

app = typer_app()


@app.command(context_settings=passed_on.SETTINGS, epilog=examples("bandwidth --help"))
def bandwidth(context: typer.Context) -> None:
    """Hold virtual machines to agreements about a link: check, run, status.

    Passes everything on to the daemon's own program; `laxity bandwidth --help` shows what it takes.
    """
    passed_on.pass_on("laxity-bandwidth", context.args)
