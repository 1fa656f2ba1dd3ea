"""Options and arguments that several commands take, each with one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from laxity import _core
from laxity.errors import InputError

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
    str | None, typer.Option(metavar="NAME", help="The scheduling policy, in place of the file's.")
]
PoliciesOption = Annotated[
    str | None, typer.Option("--policy", metavar="NAME,NAME,...", help="The policies, with commas.")
]
SeedOption = Annotated[
    int | None, typer.Option(metavar="N", help="The seed, in place of the file's.")
]
DurationOption = Annotated[
    str | None, typer.Option(metavar="TIME", help='How long the run lasts, such as "5 s".')
]
LongOption = Annotated[
    bool,
    typer.Option("--long", help="Also run what is estimated to take more than an hour."),
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
        "--strict", help="Exit code 1 if a deadline was missed, or calls were not accepted."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Also write all that was found here."),
]
OnOption = Annotated[
    Literal["sim", "xen"],
    typer.Option("--on", metavar="sim|xen", help="The simulator, or the real hypervisor."),
]
OnAnyOption = Annotated[
    Literal["sim", "xen", "linux"],
    typer.Option(
        "--on",
        metavar="sim|xen|linux",
        help="The simulator, the real hypervisor, or this machine with real packets.",
    ),
]
MediaServerOption = Annotated[
    Literal["laxity", "rtpengine"],
    typer.Option(
        "--media-server",
        metavar="laxity|rtpengine",
        help="With --on linux: whose media server it is.",
    ),
]
AtOption = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="With --on xen: emulator, local (this is dom0) or ssh://root@HOST.",
    ),
]
ModeOption = Annotated[
    Literal["repeatable", "live"],
    typer.Option(
        "--mode",
        metavar="repeatable|live",
        help="With --on xen: the same bytes every time, on one CPU; or time as on the wall.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="NAME",
        help="With --on xen: Xen's own credit, credit2, rtds or null in place of the policy.",
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
