"""`laxity lab kvm`: the emulated machine that boots Linux with KVM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import FAILED_VERDICT, examples, typer_app
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
from laxity.cli.outputs import print_machine, refuse_file, temporary_directory
from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity.lab.kvm_machine import KvmMachine
    from laxity.lab.modes import Mode

app = typer_app("kvm", "Boot Linux with KVM in an emulated machine.")

SHOWN = "shown"
SHOW = f"""\
set -eu
{{
    uname -sr
    echo "CPUs: $(nproc)"
    ls /dev/kvm
    echo "memory: $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
    echo "control groups: $(cat /sys/fs/cgroup/cgroup.controllers)"
    echo "scheduler: $(cat /sys/kernel/debug/sched/features)"
}} >$RESULTS/{SHOWN}
"""
"""The plan of a host without guests."""


@app.command()
def build() -> None:
    """Fetch the kernel, and build all that the host boots.

    Keeps what has not changed. Prints the kernel's path.
    """
    from laxity.lab import kvm_image

    image = kvm_image.build(say)
    kvm_image.programs(say)
    print(image.kernel)


@app.command(
    epilog=examples(
        "lab kvm boot --check-determinism",
        "lab kvm boot host.toml --set host.policy=fifo --interactive",
    )
)
def boot(
    host: Annotated[
        Path | None,
        typer.Argument(metavar="HOST", help="The host file whose plan is carried out."),
    ] = None,
    settings: SetOption = None,
    mode: LabModeOption = "repeatable",
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            help="Open a shell on this terminal, with the plan; Ctrl-A X turns the machine off.",
        ),
    ] = False,
    check_determinism: Annotated[
        bool, typer.Option("--check-determinism", help="Boot twice and compare all bytes.")
    ] = False,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="The directory for the console's log."),
    ] = Path("out/boot-kvm"),
) -> None:
    """Boot the host and show its kernel and CPUs, or carry out the plan of a host file.

    Keeps the files of the plan as the host wrote them; `laxity run HOST --on kvm` makes results of
    such files.
    """
    import tempfile

    if interactive and not sys.stdin.isatty():
        raise InputError("a shell on the host needs a terminal", "leave --interactive out")
    if check_determinism and (interactive or mode != "repeatable"):
        raise InputError(
            "--check-determinism needs boots that repeat", "leave --interactive and --mode out"
        )
    refuse_file(output)
    different: list[str] = []
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        machine = _machine(host, settings or (), mode, Path(temporary))
        if interactive:
            machine.interact()
            return
        results = machine.run(output, say)
        if check_determinism:
            different = _boot_again(machine, output)
    _show(output, results)
    if different:
        print(f"Not deterministic: two boots differ in {', '.join(different)}", file=sys.stderr)
        raise typer.Exit(FAILED_VERDICT)
    if check_determinism:
        print("Deterministic: two boots, the same bytes", file=sys.stderr)


@app.command(epilog=examples("lab kvm soak --policy sedf --minutes 1"))
def soak(
    policy: Annotated[
        str, typer.Option("--policy", metavar="POLICY", help="The policy that schedules.")
    ] = "deferrable",
    seed: SoakSeedOption = SOAK_SEED,
    minutes: SoakMinutesOption = SOAK_MINUTES,
    mode: SoakModeOption = "repeatable",
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="The directory for logs and the trace."),
    ] = Path("out/soak-kvm"),
) -> None:
    """Let guests come, go, change and pause at random, under a policy of Laxity.

    Runs a host of two CPUs with four guests and ordinary tasks. Fails if the kernel complains or
    takes the scheduler off, a VCPU waits for long, a guest stops, or a budget is not kept.
    """
    from laxity.policies import TABLE
    from laxity.substrates.kvm import soak as soaking

    there = [each.name for each in TABLE.values() if not each.own_of and "kvm" in each.substrates]
    if policy not in there:
        raise InputError(
            f"{policy!r} is no policy of Laxity that runs on KVM", f"name one of {', '.join(there)}"
        )
    if minutes > soaking.MINUTES_MAX:
        raise InputError(
            f"a soak of {minutes:g} minutes leaves more than the machine can give back",
            f"add --minutes {soaking.MINUTES_MAX:g}, and repeat it with other seeds",
        )
    refuse_file(output)
    for sentence in soaking.soak(policy, seed, minutes, mode, output, say):
        print(sentence)
    print_machine(output)
    print(f"console, trace and what was done: {output}")


def _machine(host: Path | None, settings: Sequence[str], mode: Mode, directory: Path) -> KvmMachine:
    """Returns the machine, whose plan is written into the directory."""
    from laxity.host import Host
    from laxity.lab import kvm_image
    from laxity.lab.kvm_machine import KvmMachine
    from laxity.substrates.kvm.plan import SCRIPT, Plan

    if host is None and settings:
        raise InputError("--set changes a host file, and there is none", "name a host file")
    plan = None if host is None else Plan.of(Host.load(host).resolved(settings), mode=mode)
    image = kvm_image.build(say)
    kvm_image.programs(say)
    if plan is None:
        (directory / SCRIPT).write_text(SHOW, "utf-8")
        return KvmMachine(image, directory, mode=mode)
    plan.write(directory)
    cpus = int(plan.host["cpus"])
    return KvmMachine(image, directory, memory_mib=plan.memory_mib, mode=mode, cpus=cpus)


def _boot_again(machine: KvmMachine, output: Path) -> list[str]:
    """Returns the names of files that the machine leaves otherwise than the first time."""
    from laxity import files
    from laxity.lab.files import CONSOLE, RESULTS

    with temporary_directory() as second:
        machine.run(second, say)
        different = files.differing(output / RESULTS, second / RESULTS)
        if (output / CONSOLE).read_bytes() != (second / CONSOLE).read_bytes():
            different.append(CONSOLE)
    return different


def _show(output: Path, results: Path) -> None:
    if (results / SHOWN).exists():
        print((results / SHOWN).read_text("utf-8"), end="")
    print_machine(output)
    print(f"console and results: {output}")
