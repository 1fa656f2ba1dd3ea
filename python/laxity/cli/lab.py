"""`laxity lab`: the emulated machines that boot the real hypervisor, and real Linux with KVM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from laxity.cli import lab_kvm
from laxity.cli.command import FAILED_VERDICT, typer_app
from laxity.cli.console import say
from laxity.cli.options import (
    SOAK_MINUTES,
    SOAK_SEED,
    LabModeOption,
    SetOption,
    SoakMinutesOption,
    SoakModeOption,
    SoakSeedOption,
)
from laxity.cli.outputs import print_machine, refuse_file
from laxity.errors import InputError
from laxity.lab.modes import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity.substrates.xen.plan import Plan

app = typer_app("lab", "Boot the real Xen hypervisor, or Linux with KVM, in an emulated machine.")
app.add_typer(lab_kvm.app)

RUN = "boot"

VariantOption = Annotated[
    Variant,
    typer.Option(
        "--variant",
        metavar="release|debug|measured",
        help=(
            "The build of the hypervisor: as on a host, with assertions, or with costs in its"
            " trace."
        ),
    ),
]


@app.command()
def build(variant: VariantOption = "release") -> None:
    """Build the hypervisor and all that it boots.

    Keeps what has not changed. Prints the hypervisor's path.
    """
    from laxity.lab import image

    hypervisor = image.hypervisor(variant, say)
    image.programs(say)
    image.build(say=say)
    print(hypervisor)


@app.command()
def boot(
    host: Annotated[
        Path | None,
        typer.Argument(metavar="HOST", help="The host file whose policy and domains are booted."),
    ] = None,
    settings: SetOption = None,
    mode: LabModeOption = "repeatable",
    variant: VariantOption = "release",
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            help="Open a shell in dom0 on this terminal; Ctrl-A X turns the machine off.",
        ),
    ] = False,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="The directory for the console's log."),
    ] = Path("out/boot"),
) -> None:
    """Boot Xen with Laxity's scheduler, dom0, and a host's domains.

    Without a host file, dom0 boots alone, under the deferrable server.
    """
    import tempfile

    from laxity.host import Host
    from laxity.lab import image
    from laxity.lab.files import HOME, SCRIPT
    from laxity.lab.xen_machine import XenMachine
    from laxity.substrates.xen.plan import Plan, Window

    if interactive and not sys.stdin.isatty():
        raise InputError("a shell in dom0 needs a terminal", "leave --interactive out")
    refuse_file(output)
    plan = None
    if host is not None:
        resolved = Host.load(host).resolved(settings or ())
        plan = Plan.of([Window(RUN, resolved)], mode=mode)
    elif settings:
        raise InputError("--set changes a host file, and there is none", "name a host file")
    hypervisor = image.hypervisor(variant, say)
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        directory = Path(temporary)
        arguments: Sequence[str] = ("sched=laxity", "laxity=deferrable")
        cpus = 1
        if plan is not None:
            plan.write(directory, HOME)
            arguments, cpus = plan.hypervisor_arguments, plan.cpus
        # Interactively the whole plan is there for the shell.
        if not interactive:
            (directory / SCRIPT).write_text(_script(plan), "utf-8")
        machine = XenMachine(
            hypervisor,
            image.build(say=say),
            directory,
            mode=mode,
            cpus=cpus,
            xen_arguments=" ".join(arguments),
        )
        if interactive:
            machine.interact()
            return
        results = machine.run(output, say)
    print((results / "shown").read_text("utf-8"), end="")
    print(f"console: {output / 'console.log'}")


@app.command()
def soak(
    seed: SoakSeedOption = SOAK_SEED,
    minutes: SoakMinutesOption = SOAK_MINUTES,
    mode: SoakModeOption = "repeatable",
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="The directory for the console's log."),
    ] = Path("out/soak"),
) -> None:
    """Change domains and CPU pools at random, as an administrator may.

    Runs the hypervisor with assertions, on three CPUs with five guests. Fails if the hypervisor
    complains, a guest or VCPU stops, or a budget is not kept.
    """
    from laxity.lab import soak as soaking

    refuse_file(output)
    soaking.soak(seed, minutes, mode, output, say)
    print_machine(output)
    print(f"console: {output / 'console.log'}")


@app.command()
def remus(
    mode: Annotated[
        Literal["net", "no-net"],
        typer.Option(
            "--mode", metavar="net|no-net", help="What the guest sends waits for its checkpoint."
        ),
    ] = "net",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="The seed of the failure's moment.")
    ] = 1,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="The directory for the consoles' logs."),
    ] = Path("out/remus"),
) -> None:
    """Let a guest outlive its Xen host: two hosts, `laxity protect` on both, and a failure.

    Both are emulated, in wall time. Fails if the guest does not go on, or, in mode net, if output
    that was seen outside is undone.
    """
    from laxity.lab import remus as protecting

    refuse_file(output)
    done = protecting.fail_over(mode, seed, output, say)
    print(protecting.shown(mode, done))
    print(f"consoles: {output}")
    if mode == "net" and done.undone:
        raise typer.Exit(FAILED_VERDICT)


def _script(plan: Plan | None) -> str:
    """Creates the domains of a plan and lists them."""
    create = [f"create {name}" for name in plan.domains] if plan else []
    lines = [*create, "start_all", "xl list >$RESULTS/shown", "laxity-sched get >>$RESULTS/shown"]
    return "\n".join(["set -eu", ": >>$RESULTS/domids", *lines]) + "\n"
