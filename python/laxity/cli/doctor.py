"""`laxity doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say
from laxity.cli.options import (
    DurationOption,
    JsonOption,
    PlaceOption,
    PolicyOption,
    SeedOption,
    SetOption,
    time_ns,
)

if TYPE_CHECKING:
    from laxity.host import Host

WATCHED = "10 s"
"""How long a running host is observed by default."""

app = typer_app()


@app.command(
    epilog=examples(
        "doctor examples/overload.toml",
        "doctor examples/overload.toml --policy credit --json",
        "doctor --at ssh://root@xen.example.com --duration '30 s'",
    )
)
def doctor(
    host: Annotated[
        Path | None,
        typer.Argument(metavar="HOST", help="The host file; - is the standard input."),
    ] = None,
    at: PlaceOption = None,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which known problems does a host have, what do they cost, and what helps?

    Each finding is simulated: the host runs with and without the remedy, and a problem that the
    remedy does not improve is no finding. With --at in place of a file, the host that runs there is
    observed for --duration, and a host that does the same is simulated.
    """
    from laxity.doctor.diagnosis import diagnose
    from laxity.errors import InputError
    from laxity.host import Host
    from laxity.resolved import overrides_of
    from laxity.tables.doctor import doctor_table

    if (host is None) == (at is None):
        raise InputError("one host is asked for", "give a host file, or --at PLACE without one")
    file = Host.load(host) if host is not None else _observed(at or "", duration)
    overrides = overrides_of(settings or (), policy=policy, seed=seed, duration=duration)
    with progress_bar("simulating remedies") as progress:
        found = diagnose(file, overrides, progress)
    if as_json:
        print_json(found.to_json())
    else:
        print_rich(doctor_table(found))


def _observed(at: str, duration: str | None) -> Host:
    """The host file of a host that runs."""
    from laxity.cli.outputs import temporary_directory
    from laxity.observe.live import observe_live

    seconds = time_ns(duration or WATCHED, "--duration", WATCHED) / 1e9
    with temporary_directory() as directory, progress_bar("observing") as progress:
        return observe_live(at, (), seconds, directory, say, progress).host
