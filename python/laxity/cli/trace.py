"""`laxity trace`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json
from laxity.cli.options import JsonOption
from laxity.errors import InputError

app = typer_app()


@app.command(
    epilog=examples("trace out --text", "trace out --perfetto out.pftrace", "trace out --parquet")
)
def trace(
    source: Annotated[
        Path, typer.Argument(metavar="DIR_OR_FILE", help="The output of a run, or a trace.")
    ],
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT", help="The file to write. By default beside the trace; text is printed."
        ),
    ] = None,
    perfetto: Annotated[
        bool, typer.Option("--perfetto", help="A file for https://ui.perfetto.dev.")
    ] = False,
    text: Annotated[bool, typer.Option("--text", help="Text, one line for each record.")] = False,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="A table, one row for each record.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Export a trace: to Perfetto, as text, as Parquet."""
    from laxity import tracefile

    if perfetto + text + parquet != 1:
        raise InputError(
            "a trace is exported to one format", "add one of --perfetto, --text and --parquet"
        )
    path = tracefile.find(source)
    if text and (str(out) == "-" or (out is None and not as_json)):
        tracefile.print_text(path, sys.stdout.buffer)
        return
    if perfetto:
        suffix, write = ".pftrace", tracefile.write_perfetto
    elif parquet:
        suffix, write = ".parquet", tracefile.write_parquet
    else:
        suffix, write = ".txt", tracefile.write_text
    out = out or path.with_suffix(suffix)
    if out.exists() and out.samefile(path):
        raise InputError(f"{out} is the trace itself", "name another file to write")
    write(path, out)
    if as_json:
        print_json({"trace": str(path), "written": str(out)})
    else:
        print(f"wrote {out}")
