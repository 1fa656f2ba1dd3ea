"""`laxity fidelity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say
from laxity.cli.options import (
    DurationOption,
    HostArgument,
    JsonOption,
    OutputOption,
    PolicyOption,
    SeedOption,
    SetOption,
)
from laxity.cli.outputs import directory_for, temporary_directory
from laxity.cli.substrate import ON, with_substrates
from laxity.errors import InputError

if TYPE_CHECKING:
    from laxity.substrates.substrate import Substrate

app = typer_app()


@app.command(
    epilog=examples(
        "fidelity examples/rt-xen.toml --duration '10 s'",
        "fidelity examples/overload.toml --policy periodic -o out",
        "fidelity seen/host.toml --against seen",
    )
)
@with_substrates(
    on=(ON, "xen", "The reference"),
    model=("--model", "sim", "The model that is compared with it"),
)
def fidelity(
    *,
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    on: Substrate,
    model: Substrate,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE",
            help="A trace of the host, or the output of a run, in place of a run with --on.",
        ),
    ] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far is the simulator from real Xen, or one substrate from another?

    With --against TRACE: how well does the simulator predict what the host did?

    Runs the host on both, with the same tasks, and compares how many deadlines each misses, which
    VCPU runs when, and when jobs are complete. With -o each run is in the directory of its
    substrate, for report, trace and diff.
    """
    from laxity.host import Host
    from laxity.observe.against import measure_against
    from laxity.resolved import overrides_of
    from laxity.tables.fidelity import fidelity_table

    if against is not None and on.name != "xen":
        raise InputError(
            f"--on {on.name} and --against {against} both give the run to compare with",
            "leave one of them out",
        )
    file = Host.load(host)
    with directory_for(output) as directory, temporary_directory() as keep:
        with progress_bar("running") as progress:
            if against is not None:
                resolved = file.resolve(
                    overrides_of(settings or (), policy=policy, seed=seed, duration=duration)
                )
                result = measure_against(
                    resolved, model, against, keep / "runs", say=say, progress=progress
                )
            else:
                result = file.fidelity(
                    model,
                    on,
                    seed=seed,
                    policy=policy,
                    duration=duration,
                    set=settings or (),
                    keep=keep / "runs",
                    say=say,
                    progress=progress,
                )
        if output is not None:
            result.write(directory)
    if as_json:
        print_json(result.to_json())
    else:
        print_rich(fidelity_table(result))
