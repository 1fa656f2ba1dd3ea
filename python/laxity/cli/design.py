"""`laxity design`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import FAILED_VERDICT, examples, typer_app
from laxity.cli.console import print_json, print_rich, say, status
from laxity.cli.options import (
    ClusterOption,
    HostArgument,
    JsonOption,
    PolicyOption,
    SetOption,
    WorkersOption,
    ratio,
)
from laxity.cli.outputs import refuse_unwritable_file
from laxity.errors import InputError
from laxity.text import number

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer_app()


@app.command(
    epilog=examples(
        "design examples/three-loops.toml",
        "design examples/three-loops.toml --any-phase",
        "design examples/three-loops.toml --any-phase --missed '0.1 %'",
        "design examples/three-loops.toml --room --write host.toml",
        "design examples/three-loops.toml --growth 1.2",
        "design examples/three-loops.toml --set 'domain.servo.period=1 ms'",
        "design examples/fleet.toml",
    )
)
def design(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    room: Annotated[
        bool,
        typer.Option(
            "--room",
            help=(
                "Find the values with the most room for all costs to grow, instead of the least"
                " CPU."
            ),
        ),
    ] = False,
    growth: Annotated[
        float | None,
        typer.Option(
            "--growth",
            metavar="FACTOR",
            help="Find the least CPU with which every cost may grow by this factor, such as 1.2.",
        ),
    ] = None,
    any_phase: Annotated[
        bool,
        typer.Option(
            "--any-phase", help="Guarantee deadlines for any offsets, instead of those of the file."
        ),
    ] = False,
    missed: Annotated[
        str | None,
        typer.Option(
            "--missed",
            metavar="PART",
            help="Let each task miss this part of its deadlines in simulation, such as '0.1 %', "
            "and guarantee none.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help=(
                "Write the host file with the values found to this file, or the host files of a"
                " fleet to this directory."
            ),
        ),
    ] = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the budgets, periods, priorities and CPUs that hold with the least CPU time.

    Values that the host file leaves out, or writes as "?", are found: every deadline is then
    guaranteed by analysis, and none is missed in a simulation with other seeds and phases. With
    --missed, at most that part is missed. Says why, or which demands cannot hold together. Exit
    code 1 if nothing holds.

    The guests of a fleet file are placed so that each of its hosts holds, also after the failure of
    any one host.
    """
    from laxity import _core, files

    text = files.read(host, files.HOST_BYTES_MAX, "a host file, such as host.toml")
    is_fleet = _core.is_fleet(text)
    if write is not None:
        _refuse_unwritable(write, is_directory=is_fleet)
    if is_fleet:
        given = (policy, growth, missed)
        if room or any_phase or any(each is not None for each in given):
            raise InputError(
                "--policy, --room, --growth, --any-phase and --missed are for one host",
                "leave them out; the hosts of a fleet file say their policy",
            )
        _fleet(text, str(host), settings or (), write, (workers, cluster), as_json=as_json)
        return
    from laxity.host import Host
    from laxity.tables.design import design_table
    from laxity.workers import opened

    file = Host(text, str(host))
    with opened(workers, cluster) as simulating, status("looking") as looking:
        found = file.design(
            policy=policy,
            set=settings or (),
            growth=growth,
            most_room=room,
            any_phase=any_phase,
            missed_max=None if missed is None else ratio(missed, "--missed", "0.1 %"),
            looking=looking,
            workers=simulating,
        )
    if as_json:
        print_json(found.to_json())
    else:
        print_rich(design_table(found))
        if write is None and found.host is not None:
            print(f"\nThe host file, which --write FILE writes:\n\n{found.host}")
    if write is not None and found.host is not None:
        write.write_text(found.host, encoding="utf-8")
        say(f"wrote {write}")
    if not found.holds:
        raise typer.Exit(FAILED_VERDICT)


def _refuse_unwritable(path: Path, *, is_directory: bool) -> None:
    """Raises InputError where nothing can be written: a search may take minutes."""
    if is_directory:
        if path.exists() and not path.is_dir():
            raise InputError(f"--write {path} is a file", "name a directory for the host files")
    else:
        refuse_unwritable_file(path, "--write")


def _fleet(
    text: bytes,
    name: str,
    settings: Sequence[str],
    write: Path | None,
    where: tuple[int | None, str | None],
    *,
    as_json: bool,
) -> None:
    from laxity.fleet.fleet import Fleet
    from laxity.tables.fleet import fleet_table
    from laxity.workers import opened

    fleet = Fleet(text, name)
    if where != (None, None) and not fleet.has_calls(settings):
        raise InputError(
            "no guest of this fleet has calls, so nothing is simulated",
            "leave --workers and --cluster out",
        )
    with opened(*where) as simulating, status("looking") as looking:
        found = fleet.design(set=settings, looking=looking, workers=simulating)
    if as_json:
        print_json(found.to_json())
    else:
        print_rich(fleet_table(found))
    if write is not None and found.holds:
        write.mkdir(parents=True, exist_ok=True)
        written = [host for host in found.hosts if host.host is not None]
        for host in written:
            (write / f"{host.name}.toml").write_text(host.host or "", encoding="utf-8")
        say(f"wrote {number(len(written), 'host file')} into {write}")
    if not found.holds:
        raise typer.Exit(FAILED_VERDICT)
