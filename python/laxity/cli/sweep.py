"""`laxity sweep`."""

from __future__ import annotations

from typing import Annotated

import typer

from laxity.cli import substrate
from laxity.cli.command import examples, judge, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say_written
from laxity.cli.options import (
    DurationOption,
    HostArgument,
    JsonOption,
    LongOption,
    OutputOption,
    PoliciesOption,
    SeedOption,
    SeedsOption,
    StrictOption,
    names_of,
)
from laxity.cli.outputs import directory_for

app = typer_app()


@app.command(
    epilog=examples(
        "sweep examples/rt-xen.toml --set draw.load=0.3..1.0:0.05 --seeds 10",
        "sweep examples/rt-xen.toml --set 'domain.dom1.budget=1..5:0.5 ms'",
        "sweep examples/rt-xen.toml --set 'host.quantum=0 ms|1 ms' -o out",
    )
)
def sweep(
    host: HostArgument,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=A..B:STEP",
            help="A range, both ends included; or a list, KEY=A|B|C; or one value. "
            "Several are combined with each other.",
        ),
    ] = None,
    policy: PoliciesOption = None,
    seed: SeedOption = None,
    seeds: SeedsOption = 1,
    duration: DurationOption = None,
    output: OutputOption = None,
    long: LongOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the host over ranges of values, on all CPUs.

    It names the cheapest point that passes: every deadline is met, and loss and delay of calls are
    accepted. --strict asks that all points do.
    """
    with directory_for(output) as place:
        with progress_bar("sweeping") as progress:
            result = substrate.simulated(host, long=long).sweep(
                settings or (),
                seed=seed,
                duration=duration,
                seeds=seeds,
                policies=names_of(policy) or (),
                progress=progress,
            )
        if output is not None:
            result.write(place)
    if as_json:
        print_json(result.to_json())
    else:
        from laxity.tables.calls import calls_sweep_table
        from laxity.tables.sweep import sweep_table

        with_calls = "packet_loss_ratio" in result.table.column_names
        print_rich((calls_sweep_table if with_calls else sweep_table)(result))
        say_written(output)
    judge(all(point.holds for point in result.points()), strict)
