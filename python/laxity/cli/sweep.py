"""`laxity sweep`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import examples, judge, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say, say_written
from laxity.cli.options import (
    ClusterOption,
    DurationOption,
    HostArgument,
    JsonOption,
    OutputOption,
    PoliciesOption,
    SeedOption,
    SeedsOption,
    StrictOption,
    WorkersOption,
    names_of,
)
from laxity.cli.outputs import directory_for
from laxity.cli.substrate import with_substrate

if TYPE_CHECKING:
    from laxity.substrates.substrate import Substrate

app = typer_app()


@app.command(
    epilog=examples(
        "sweep examples/rt-xen.toml --set draw.load=0.3..1.0:0.05 --seeds 10",
        "sweep examples/rt-xen.toml --set 'domain.dom1.budget=1..5:0.5 ms'",
        "sweep examples/rt-xen.toml --set 'host.quantum=0 ms|1 ms' -o out",
        "sweep examples/overload.toml --set 'duration=1|2 s' --on xen",
        "sweep examples/rt-xen.toml --set draw.load=0.3..1.0:0.1 --workers 4",
    )
)
@with_substrate
def sweep(
    *,
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
    on: Substrate,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the host over ranges of values: in the simulator on all CPUs.

    Names the cheapest point that passes: every deadline is met, and loss, delay and calls given
    up are within [calls.acceptance]. With --strict, all points must pass.
    """
    from laxity.host import Host
    from laxity.sweep import SWEEP
    from laxity.workers import opened

    file = Host.load(host)
    with directory_for(output) as place:
        with opened(workers, cluster) as simulating, progress_bar("sweeping") as progress:
            result = file.sweep(
                settings or (),
                on=on,
                seed=seed,
                duration=duration,
                seeds=seeds,
                policies=names_of(policy) or (),
                into=place / SWEEP,
                say=say,
                progress=progress,
                workers=simulating,
            )
        if output is not None:
            result.write(place)
        if as_json:
            print_json(result.to_json())
        else:
            from laxity.tables.calls import calls_sweep_table
            from laxity.tables.sweep import sweep_table

            with_calls = "packet_loss_ratio" in result.schema.names
            print_rich((calls_sweep_table if with_calls else sweep_table)(result))
        holds = all(point.holds for point in result.points())
    if not as_json:
        say_written(output)
    judge(holds, strict)
