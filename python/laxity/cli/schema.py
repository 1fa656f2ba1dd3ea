"""`laxity schema`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from laxity import _core
from laxity.cli.command import examples, typer_app

app = typer_app()


@app.command(epilog=examples("schema host > host.schema.json", "schema result"))
def schema(
    of: Annotated[
        Literal["host", "result"], typer.Argument(metavar="host|result", help="Of which files.")
    ] = "host",
) -> None:
    """Print a JSON Schema.

    That of host files is for editors, that of results says what `run --json` prints.
    """
    print(_core.host_schema() if of == "host" else _core.result_schema())
