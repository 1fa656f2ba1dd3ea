"""`laxity why`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar
from laxity.cli.options import DurationOption, JsonOption, PolicyOption, SeedOption, SetOption
from laxity.cli.outputs import temporary_directory
from laxity.errors import InputError

if TYPE_CHECKING:
    from laxity.host import Host
    from laxity.why import Why

WORST = 4
"""Default number of explanations: one of each kind, if all kinds were late."""

WORST_MAX = 1_000_000_000
"""A limit that exceeds the length of any trace."""

app = typer_app()


@app.command(
    epilog=examples(
        "why examples/overload.toml",
        "run examples/overload.toml -o out && laxity why out",
        "why out --task control/loop --worst 10",
        "why out --json",
    )
)
def why(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="The output of a run, a trace, or a host file, which is run."
        ),
    ],
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    task: Annotated[
        str | None, typer.Option(metavar="DOMAIN/TASK", help="Only the jobs of this task.")
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=WORST_MAX,
            help=(
                "Explain this many jobs, packets, messages and outages, the latest ones, and"
                f" simulate what would help them. By default {WORST}; with --json all are"
                " explained, without what would help."
            ),
        ),
    ] = None,
    every_job: Annotated[
        bool, typer.Option("--every-job", help="Explain jobs that were in time, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Why was it late: which causes sum to each job's or packet's lateness?

    The response of each late job and packet of voice is split into causes: its own work, tasks of
    its guest, budget that was used up, other VCPUs and why they ran, decisions and context
    switches. Messages of registrations and outages of protected domains are split in the same way.
    Remedies are simulated, not guessed.
    """
    from laxity import tracefile
    from laxity.tables.why import why_table

    changes = [policy, seed, duration, *(settings or ())]
    if not as_json and worst is None and not every_job:
        worst = WORST

    def answer(trace: Path) -> Why:
        from laxity import why as explanations

        return explanations.why(trace, task=task, worst=worst, every_job=every_job)

    if _is_result(source):
        if any(change is not None for change in changes):
            raise InputError(
                f"{source} has already run", "name a host file to run it with other values"
            )
        trace = tracefile.find(source)
        found = answer(trace)
        host, overrides = _host_of(source)
        name = tracefile.metadata(trace)["policy"]
    else:
        from laxity.host import Host
        from laxity.resolved import overrides_of

        host = Host.load(source)
        overrides = overrides_of(settings or (), policy=policy, seed=seed, duration=duration)
        with temporary_directory() as place, progress_bar("running") as progress:
            trace = place / "trace.laxtrace"
            host.run(set=overrides, trace=trace, progress=progress)
            found = answer(trace)
            name = tracefile.metadata(trace)["policy"]
    if host is not None and worst is not None:
        from laxity.why import with_remedies

        found = with_remedies(found, host, overrides)
    if as_json:
        print_json(found.to_json())
    else:
        print_rich(why_table(found, name))


def _is_result(source: Path) -> bool:
    """Whether it is a directory or a trace, and not a host file."""
    if source.is_dir():
        return True
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(8) == b"LAXTRACE"


def _host_of(source: Path) -> tuple[Host | None, list[str]]:
    """The host of a run's directory, with its overrides; None for a bare trace."""
    from laxity import files
    from laxity.directory import HOST, Manifest
    from laxity.host import Host

    if not source.is_dir():
        return None, []
    manifest = Manifest.load(source)
    if manifest.host is None:
        return None, []
    host = Host(files.read(source / HOST, files.HOST_BYTES_MAX), HOST)
    return host, list(manifest.overrides)
