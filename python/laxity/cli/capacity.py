"""`laxity capacity`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import FAILED_VERDICT, examples, judge, typer_app
from laxity.cli.console import print_json, print_rich, say, say_written, status
from laxity.cli.options import (
    DurationOption,
    HostArgument,
    JsonOption,
    OutputOption,
    PolicyOption,
    SeedOption,
    SeedsOption,
    SetOption,
    StrictOption,
)
from laxity.cli.outputs import directory_for
from laxity.cli.substrate import with_substrate
from laxity.telephony import SEEDS

if TYPE_CHECKING:
    from laxity.substrates.substrate import Substrate

app = typer_app()


@app.command(
    epilog=examples(
        "capacity examples/telephony.toml --duration '20 s'",
        "capacity examples/telephony.toml --duration '20 s' --seeds 10 -o out",
        "capacity examples/telephony.toml --duration '20 s' --remedies",
    )
)
@with_substrate
def capacity(
    *,
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    seeds: SeedsOption = SEEDS,
    duration: DurationOption = None,
    remedies: Annotated[
        bool,
        typer.Option(
            "--remedies", help="Also rank changes to the host by the maximum load that they give."
        ),
    ] = False,
    on: Substrate,
    output: OutputOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """What is the maximum load of the host, and its first bottleneck?

    Runs the host with different numbers of streams, each with several seeds. The maximum load is
    the largest up to which every load that was tried keeps the limits of [calls.acceptance]: loss,
    delay, and the quality of the worst sampled stream. Exit code 1 if no load does; with --strict,
    if the maximum is below the load of the host file.
    """
    from laxity.host import Host
    from laxity.tables.capacity import capacity_table

    file = Host.load(host)
    with directory_for(output) as place:
        with status("looking") as looking:
            found = file.capacity(
                on=on,
                policy=policy,
                seed=seed,
                seeds=seeds,
                duration=duration,
                set=settings or (),
                remedies=remedies,
                say=say,
                looking=looking,
            )
        if output is not None:
            found.write(place)
    if as_json:
        print_json(found.to_json())
    else:
        print_rich(capacity_table(found))
        say_written(output)
    if found.carried is None:
        raise typer.Exit(FAILED_VERDICT)
    judge(found.passed, strict)
