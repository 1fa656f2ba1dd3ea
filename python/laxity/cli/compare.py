"""`laxity compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    SetOption,
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
        "compare examples/overload.toml",
        "compare examples/overload.toml --policy credit,deferrable -o out",
        "compare examples/rt-xen.toml --seeds 10",
        "compare examples/overload.toml --on xen --duration '2 s'",
    )
)
@with_substrate
def compare(
    *,
    host: HostArgument,
    policy: PoliciesOption = None,
    settings: SetOption = None,
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
    """Compare several policies on one workload, in one table.

    Compares by default all policies that the file has parameters for, and says why it leaves the
    others out. On Xen, each run has its own boot.
    """
    from laxity.host import Host
    from laxity.workers import opened

    file = Host.load(host)
    with (
        directory_for(output) as place,
        opened(workers, cluster) as simulating,
        progress_bar("comparing") as progress,
    ):
        result = file.compare(
            names_of(policy),
            on=on,
            seed=seed,
            seeds=seeds,
            duration=duration,
            set=settings or (),
            keep=place / on.name,
            say=say,
            progress=progress,
            workers=simulating,
        )
        if output is not None:
            result.write(place)
    if as_json:
        print_json(result.to_json())
    else:
        from laxity.tables.calls import calls_comparison_table
        from laxity.tables.comparison import comparison_table

        with_calls = result.runs[0].telephony is not None
        print_rich((calls_comparison_table if with_calls else comparison_table)(result))
        say_written(output)
    judge(result.passed, strict)
