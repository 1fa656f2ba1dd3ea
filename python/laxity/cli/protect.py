"""`laxity protect`."""

from __future__ import annotations

import typer

from laxity.cli import passed_on
from laxity.cli.command import examples, typer_app

app = typer_app()


@app.command(context_settings=passed_on.SETTINGS, epilog=examples("protect --help"))
def protect(context: typer.Context) -> None:
    """Keep virtual machines going when their host fails: check, keys, run, status, switchover.

    Passes everything on to the daemon's own program; `laxity protect --help` shows what it takes.
    """
    passed_on.pass_on("laxity-protect", context.args)
