"""`laxity apply`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich
from laxity.cli.options import JsonOption, PolicyOption, SetOption
from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity.apply.agent.settings import Change
    from laxity.apply.place import Place

app = typer_app()


@app.command(
    epilog=examples(
        "apply host.toml --dry-run",
        "apply host.toml --at ssh://root@server --helpers 0-1 --interrupts eth0=0",
        "apply --revert --at ssh://root@server",
    )
)
def apply(
    host: Annotated[
        Path | None, typer.Argument(metavar="HOST", help="The host file; - is the standard input.")
    ] = None,
    at: Annotated[
        str,
        typer.Option("--at", metavar="PLACE", help="local (this machine) or ssh://USER@HOST."),
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show each setting that would change; change none.")
    ] = False,
    revert: Annotated[
        bool, typer.Option("--revert", help="Put everything back as it was before the first apply.")
    ] = False,
    policy: PolicyOption = None,
    settings: SetOption = None,
    helpers: Annotated[
        str | None,
        typer.Option(
            "--helpers",
            metavar="CPUS",
            help="The CPUs of emulators, iothreads and vhost, such as 0-1.",
        ),
    ] = None,
    interrupts: Annotated[
        list[str] | None,
        typer.Option(
            "--interrupts",
            metavar="NIC=CPUS",
            help="The CPUs that handle a network card's interrupts; may be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Give a KVM host the policy, parameters and CPUs that a file states for its guests' VCPUs.

    Domains are running guests of the same name. Every old value is kept on the host before it
    changes. With libvirt, guests get their settings again when they start.
    """
    from laxity.apply.place import Place

    place = Place(at)
    if revert:
        if host is not None or policy or settings or helpers or interrupts:
            raise InputError("--revert puts back what was there", "name no host file or setting")
        _revert(place, dry_run, as_json)
        return
    if host is None:
        raise InputError("there is no host file", "name one, or add --revert")
    _apply(
        place, _resolved(host, policy, settings), _helpers(helpers, interrupts), dry_run, as_json
    )


def _resolved(host: Path, policy: str | None, settings: list[str] | None) -> Any:  # noqa: ANN401
    from laxity.host import Host
    from laxity.resolved import overrides_of

    return Host.load(host).resolved(overrides_of(settings or (), policy=policy))


def _helpers(cpus: str | None, interrupts: list[str] | None) -> Any:  # noqa: ANN401
    from laxity.apply.wanted import Helpers, cpus_of

    nics = []
    for text in interrupts or ():
        nic, equals, listed = text.partition("=")
        if not nic or not equals:
            raise InputError(f"--interrupts {text!r} is not NIC=CPUS", "write --interrupts eth0=0")
        nics.append((nic, cpus_of(listed, "--interrupts")))
    return Helpers(None if cpus is None else cpus_of(cpus, "--helpers"), tuple(nics))


def _apply(place: Place, host: Any, helpers: Any, dry_run: bool, as_json: bool) -> None:  # noqa: ANN401
    from laxity.apply.wanted import ask

    seen = place.observe([nic for nic, _ in helpers.interrupts])
    asked = ask(host, seen, helpers)
    notes = list(asked.notes)
    notes += [f"{name} does not run, and stays as it is" for name in asked.missing]
    if dry_run:
        _show(place.plan(asked.wanted), "would change", place, notes, as_json)
        return
    made = place.apply(asked.wanted, programs=_programs(host["policy"]))
    notes += [f"{label} ended meanwhile" for label in made["vanished"]]
    if any(change["what"] == "hook" and change["old"] is None for change in made["changes"]):
        notes.append(
            "a libvirt that had no hook before calls this one after `systemctl restart virtqemud` "
            "(or `libvirtd`); guests go on meanwhile"
        )
    _show(made["changes"], "changed", place, notes, as_json)


def _programs(policy: str) -> dict[str, bytes]:
    """Returns the files that load a policy of Laxity; none for one of Linux's own."""
    from laxity.cli.console import say
    from laxity.lab import kvm_policies
    from laxity.policies import TABLE

    if TABLE[policy].own_of is not None:
        return {}
    return kvm_policies.build([TABLE[policy]], say).loading(policy)


def _revert(place: Place, dry_run: bool, as_json: bool) -> None:
    from laxity.lab.errors import LabError

    if dry_run:
        _show(place.plan_revert(), "would be put back", place, [], as_json)
        return
    done = place.revert()
    notes = [
        f"{each['label']} {each['what']} had been changed by somebody else"
        for each in done["meanwhile"]
    ]
    _show(done["changes"], "put back", place, notes, as_json)
    if done["failed"]:
        failed = "; ".join(f"{each['label']}: {each['why']}" for each in done["failed"])
        raise LabError(
            f"on {place.name}, not all could be put back: {failed}",
            "the journal is kept: remove the reason, and run laxity apply --revert again",
        )


def _show(
    changes: Sequence[Change], done: str, place: Place, notes: Sequence[str], as_json: bool
) -> None:
    from rich.text import Text

    from laxity.tables.apply import changes_table
    from laxity.text import number

    if as_json:
        print_json({"changes": list(changes), "notes": list(notes)})
        return
    if changes:
        print_rich(changes_table(changes))
        print_rich("")
    print_rich(Text(f"{number(len(changes), 'setting')} {done} on {place.name}", "bold"))
    for note in notes:
        print_rich(Text(f"note: {note}", "yellow"))
