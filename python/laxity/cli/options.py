"""Options and arguments that several commands take, each with one wording."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from laxity import _core
from laxity.errors import InputError
from laxity.lab.modes import Mode

HostArgument = Annotated[
    Path, typer.Argument(metavar="HOST", help="The host file; - is the standard input.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key of the host file; may be repeated."
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The scheduling policy, in place of the file's; laxity policies lists them.",
    ),
]
PoliciesOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME,NAME,...",
        help="The policies, with commas; laxity policies lists them.",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(metavar="N", help="The seed, in place of the file's.")
]
DurationOption = Annotated[
    str | None, typer.Option(metavar="TIME", help='How long the run lasts, such as "5 s".')
]
SeedsOption = Annotated[
    int,
    typer.Option(
        "--seeds", metavar="N", min=1, help="Run with this many seeds, one after the other."
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit code 1 if a deadline was missed, calls not accepted, or agreements not held.",
    ),
]
PlaceOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="The running host: local, or ssh://root@HOST for one with Xen.",
    ),
]
LabModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode",
        metavar="repeatable|live",
        help="repeatable gives the same bytes every time, on one CPU; live runs in wall time.",
    ),
]
SoakModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode",
        metavar="repeatable|live",
        help="repeatable gives the same bytes every time; live runs in wall time.",
    ),
]
SoakSeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="The seed of the random operations.")
]
SoakMinutesOption = Annotated[
    float,
    typer.Option(
        "--minutes", metavar="M", min=0, help="The length of the soak, in the machine's time."
    ),
]
SOAK_SEED, SOAK_MINUTES = 1, 10.0
"""What a soak takes unless it is told otherwise."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Also write all results to this directory."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=1024,
        help="Simulate in this many processes, with the same results. One that dies costs only the "
        "part that it was doing.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Simulate on the workers of a scheduler of Dask, such as tcp://host:8786.",
    ),
]


def names_of(text: str | None) -> list[str] | None:
    """Splits the comma-separated names of --policy; raises InputError if one is empty."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(
            f"a name is missing in --policy {text!r}", "write --policy credit,deferrable"
        )
    return names


def time_ns(text: str, option: str, example: str) -> int:
    """Returns a duration such as "60 ms" in ns; raises InputError, which names the option."""
    try:
        return _core.parse_duration(text)
    except ValueError as error:
        why = str(error).split("\n")[0]
        raise InputError(f"{option}: the time {why}", f"write {option} '{example}'") from None


def ratio(text: str, option: str, example: str) -> float:
    """Returns a part of a whole such as "0.1 %" or 0.001, below 1.

    Raises InputError, which names the option.
    """
    number, _, rest = text.partition("%")
    try:
        value = float(number) / 100 if "%" in text else float(number)
    except ValueError:
        value = math.nan
    if rest.strip() or not 0 <= value < 1:
        raise InputError(
            f"{option}: {text!r} is no part of a whole, at least 0 and below 100 %",
            f"write {option} '{example}'",
        )
    return value
