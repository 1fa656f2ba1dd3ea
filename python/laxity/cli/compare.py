"""`laxity compare`."""

from __future__ import annotations

from laxity.cli import substrate
from laxity.cli.command import examples, judge, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say, say_written
from laxity.cli.options import (
    AtOption,
    DurationOption,
    HostArgument,
    JsonOption,
    LongOption,
    ModeOption,
    OnOption,
    OutputOption,
    PoliciesOption,
    SeedOption,
    SeedsOption,
    SetOption,
    StrictOption,
    names_of,
)
from laxity.cli.outputs import directory_for

app = typer_app()


@app.command(
    epilog=examples(
        "compare examples/overload.toml",
        "compare examples/overload.toml --policy credit,deferrable -o out",
        "compare examples/rt-xen.toml --seeds 10",
        "compare examples/overload.toml --on xen --duration '2 s'",
    )
)
def compare(
    host: HostArgument,
    policy: PoliciesOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    seeds: SeedsOption = 1,
    duration: DurationOption = None,
    on: OnOption = "sim",
    at: AtOption = "emulator",
    mode: ModeOption = "repeatable",
    output: OutputOption = None,
    long: LongOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """One workload, several policies, one table.

    By default all policies that the file has parameters for; it says why the others are left out.
    On Xen each run has a boot of its own.
    """
    from laxity import directory

    xen = substrate.xen(on, at, mode, None)
    file = substrate.simulated(host, long=long)
    with directory_for(output) as place:
        if xen is not None:
            result = file.compare_on_xen(
                names_of(policy),
                xen,
                seed=seed,
                seeds=seeds,
                duration=duration,
                set=settings or (),
                keep=place / directory.XEN,
                say=say,
            )
        else:
            with progress_bar("comparing") as progress:
                result = file.compare(
                    names_of(policy),
                    seed=seed,
                    seeds=seeds,
                    duration=duration,
                    set=settings or (),
                    progress=progress,
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
