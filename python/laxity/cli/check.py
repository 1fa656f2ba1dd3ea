"""`laxity check`."""

from __future__ import annotations

from typing import Annotated

import typer

from laxity.cli.command import FAILED_VERDICT, examples, typer_app
from laxity.cli.console import print_json, print_rich
from laxity.cli.options import HostArgument, JsonOption, PolicyOption, SeedOption, SetOption

app = typer_app()


@app.command(
    epilog=examples(
        "check examples/integrator.toml",
        "check examples/integrator.toml --budgets",
        "check examples/integrator.toml --set 'domain.control.budget=400 us'",
    )
)
def check(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    budgets: Annotated[
        bool,
        typer.Option(
            "--budgets", help="Also find the smallest budget of each domain at its period."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Will every deadline hold? Bounds by analysis.

    Gives each task a bound on its response time, and names the test behind it, before anything
    runs. Calls are not analysed: the output says so, and names the command to run instead. Exit
    code 1 unless every deadline is guaranteed.
    """
    from laxity.host import Host
    from laxity.tables.check import check_table

    file = Host.load(host)
    result = file.check(policy=policy, seed=seed, set=settings or ())
    smallest = (
        file.minimum_budgets(policy=policy, seed=seed, set=settings or ()) if budgets else None
    )
    if as_json:
        content = result.to_json()
        if smallest is not None:
            content["budgets"] = [vars(budget) for budget in smallest]
        print_json(content)
    else:
        print_rich(check_table(result, smallest))
    if not result.is_schedulable:
        raise typer.Exit(FAILED_VERDICT)
