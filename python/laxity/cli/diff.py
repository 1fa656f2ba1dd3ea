"""`laxity diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import FAILED_VERDICT, examples, typer_app
from laxity.cli.console import print_json
from laxity.cli.options import JsonOption

app = typer_app()


@app.command(
    epilog=examples("diff out-deferrable out-periodic", "diff a.laxtrace b.laxtrace --json")
)
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="The output of a run, or a trace.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    as_json: JsonOption = False,
) -> None:
    """Where do two traces differ first?

    Exit code 0 if they do not differ: both have the same records of the same run, whichever
    substrates ran it.
    """
    from laxity import _core, tracefile
    from laxity.errors import core_errors

    paths = tracefile.find(a), tracefile.find(b)
    with core_errors():
        is_equal, for_people, difference = _core.diff(str(paths[0]), str(paths[1]))
    if as_json:
        print_json({"equal": is_equal, **json.loads(difference)})
    else:
        print(for_people, end="")
    if not is_equal:
        raise typer.Exit(FAILED_VERDICT)
