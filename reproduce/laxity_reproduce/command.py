"""The command `laxity reproduce`, which this package adds to Laxity's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from laxity.cli.command import FAILED_VERDICT, examples, typer_app
from laxity.cli.console import print_json, print_rich, progress_bar, say, say_written
from laxity.cli.options import ClusterOption, JsonOption, OutputOption, WorkersOption
from laxity.cli.substrate import with_substrate_name
from laxity.errors import InputError

if TYPE_CHECKING:
    from laxity_reproduce.reproduction import Reproduction
    from laxity_reproduce.rt_xen.on_xen.model import Calibration

app = typer_app()


@app.command(
    epilog=examples(
        "reproduce rt-xen --quick",
        "reproduce rt-xen figure-6 --seeds 100",
        "reproduce rt-xen table-2 --on xen",
        "reproduce bandwidth drops --on linux",
    )
)
@with_substrate_name
def reproduce(
    *,
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PAPER", help="rt-xen, telephony, soft-real-time, bandwidth or availability."
        ),
    ],
    experiment: Annotated[
        str | None, typer.Argument(metavar="EXPERIMENT", help="By default all of the paper.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, fewer seeds.")] = False,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Random seeds at each point.")
    ] = None,
    on: str,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="With --on xen, in a checkout: write the costs that were measured into it, as the "
            "simulator's.",
        ),
    ] = False,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = None,
    docs: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write the results as a page of documentation."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Published against ours, with a verdict.

    Runs the experiments of a paper again and sets the results beside the published ones.
    """
    from laxity import directory
    from laxity.workers import opened

    from laxity_reproduce import papers

    if output is not None:
        directory.refuse_unless_ours(output)
    if calibrate:
        _refuse_to_calibrate(paper, experiment, quick, seeds, on)
        if workers is not None or cluster is not None:
            raise InputError("workers simulate, and costs are measured", "leave them out")
        from laxity_reproduce.rt_xen.on_xen import experiments

        result, calibration = experiments.reproduce(experiment, say=say)
        _calibrate(calibration)
    else:
        with opened(workers, cluster) as simulating, progress_bar("reproducing") as progress:
            result = papers.run(
                paper, experiment, quick, seeds, progress, on=on, say=say, workers=simulating
            )
    if docs is not None:
        from laxity_reproduce.page import write_page

        write_page(result, docs)
    _give(result, output, as_json)


def _give(result: Reproduction, output: Path | None, as_json: bool) -> None:
    if output is not None:
        result.save(output)
    if as_json:
        print_json(result.to_json())
    else:
        print_rich(result)
        say_written(output)
    if not result.reproduced:
        raise typer.Exit(FAILED_VERDICT)


def _refuse_to_calibrate(
    paper: str, experiment: str | None, quick: bool, seeds: int | None, on: str
) -> None:
    """Raises InputError unless the run measures the costs of scheduling, and for long enough."""
    if on != "xen":
        raise InputError("costs are measured on Xen", "add --on xen, or leave --calibrate out")
    if seeds is not None:
        raise InputError("the task sets on Xen are fixed", "leave --seeds out")
    if paper != "rt-xen" or quick or experiment not in (None, "calibration"):
        raise InputError(
            "costs are not measured in this experiment, or not long enough",
            "write `laxity reproduce rt-xen calibration --on xen --calibrate`",
        )


def _calibrate(calibration: Calibration | None) -> None:
    from laxity.lab.errors import LabError
    from laxity.places import CHECKOUT

    if CHECKOUT is None:
        raise InputError("measured costs are written into a checkout of Laxity, and this is none")
    if calibration is None:
        raise LabError("no costs were measured, and none are written")
    say(f"wrote {calibration.save(CHECKOUT)}")
