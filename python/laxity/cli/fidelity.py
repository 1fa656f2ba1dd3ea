"""`laxity fidelity`."""

from __future__ import annotations

from laxity.cli import substrate
from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, say
from laxity.cli.options import (
    AtOption,
    DurationOption,
    HostArgument,
    JsonOption,
    ModeOption,
    OutputOption,
    PolicyOption,
    SeedOption,
    SetOption,
)
from laxity.cli.outputs import directory_for, temporary_directory

app = typer_app()


@app.command(
    epilog=examples(
        "fidelity examples/rt-xen.toml --duration '10 s'",
        "fidelity examples/overload.toml --policy periodic -o out",
    )
)
def fidelity(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    at: AtOption = "emulator",
    mode: ModeOption = "repeatable",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far is the simulator from real Xen?

    Runs the host on both, with the same tasks: how many deadlines each misses, who runs when, when
    jobs are complete. With -o the two runs are in sim and xen, for report, trace and diff.
    """
    from laxity.host import Host
    from laxity.tables.fidelity import fidelity_table

    place = substrate.xen("xen", at, mode, None)
    file = Host.load(host)
    with directory_for(output) as directory, temporary_directory() as keep:
        result = file.fidelity(
            place,
            seed=seed,
            policy=policy,
            duration=duration,
            set=settings or (),
            keep=keep / "boot",
            say=say,
        )
        if output is not None:
            result.write(directory)
    if as_json:
        print_json(result.to_json())
    else:
        print_rich(fidelity_table(result))
