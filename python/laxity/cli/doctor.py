"""`laxity doctor`."""

from __future__ import annotations

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar
from laxity.cli.options import (
    DurationOption,
    HostArgument,
    JsonOption,
    PolicyOption,
    SeedOption,
    SetOption,
)

app = typer_app()


@app.command(
    epilog=examples(
        "doctor examples/overload.toml", "doctor examples/overload.toml --policy credit --json"
    )
)
def doctor(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """What is known to go wrong with such a host, what does it cost, and what helps?

    Each finding is simulated: the host is run with and without the remedy, and what the remedy does
    not improve is no finding.
    """
    from laxity.doctor.diagnosis import diagnose
    from laxity.host import Host
    from laxity.resolved import overrides_of
    from laxity.tables.doctor import doctor_table

    file = Host.load(host)
    overrides = overrides_of(settings or (), policy=policy, seed=seed, duration=duration)
    with progress_bar("simulating remedies") as progress:
        found = diagnose(file, overrides, progress)
    if as_json:
        print_json(found.to_json())
    else:
        print_rich(doctor_table(found))
