"""`laxity report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laxity import _core
from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json
from laxity.cli.options import JsonOption
from laxity.errors import InputError

app = typer_app()


@app.command(epilog=examples("run examples/integrator.toml -o out", "report out"))
def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The directory that run, compare, sweep or reproduce wrote with -o."
        ),
    ],
    window: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO",
            help=(
                'The time that the timeline of a run shows, such as "1.2 s..1.3 s". By default'
                " it is around the first missed deadline or lost packet, or a host's failure."
            ),
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report with plots.

    One self-contained HTML file, and its plots as PNG and SVG beside it.
    """
    from laxity.directory import Manifest

    Manifest.load(directory)
    # Matplotlib, which takes a second to load, comes after the refusal of what is no output.
    from laxity import report as reports

    written = reports.write(directory, None if window is None else _window_ns(window))
    if as_json:
        print_json({"directory": str(directory), "report": str(written)})
    else:
        print(f"wrote {written}")


def _window_ns(text: str) -> tuple[int, int]:
    """Returns the two times, ns, of "FROM..TO"."""
    example = 'write two times, such as --window "1.2 s..1.3 s"'
    ends = text.split("..")
    if len(ends) != 2:  # noqa: PLR2004 - the two ends of a window
        raise InputError(f"the window {text!r} is not FROM..TO", example)
    try:
        from_ns, to_ns = (_core.parse_duration(end) for end in ends)
    except ValueError as error:
        why = str(error).split("\n")[0]
        raise InputError(f"the window {text!r}: a time {why}", example) from None
    if from_ns >= to_ns:
        raise InputError(f"the window {text!r} is empty", example)
    return from_ns, to_ns
