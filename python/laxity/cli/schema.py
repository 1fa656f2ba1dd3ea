"""`laxity schema`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from laxity import _core
from laxity.cli.command import examples, typer_app

app = typer_app()


@app.command(epilog=examples("schema host > host.schema.json", "schema fleet", "schema result"))
def schema(
    of: Annotated[
        Literal["host", "fleet", "result"],
        typer.Argument(metavar="host|fleet|result", help="The files that the schema describes."),
    ] = "host",
) -> None:
    """Print a JSON Schema.

    The schemas of host files and fleet files are for editors; that of results describes the output
    of `run --json`.
    """
    schemas = {
        "host": _core.host_schema,
        "fleet": _core.fleet_schema,
        "result": _core.result_schema,
    }
    print(schemas[of]())
