"""`laxity sched`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich

app = typer_app()


@app.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "sched get",
        "sched set web policy=deadline budget=2ms period=10ms",
        "sched set --pool 0 policy=polling",
    ),
)
def sched(
    words: Annotated[
        list[str],
        typer.Argument(metavar="get|set|pool ...", help="On Xen, as laxity-sched takes them."),
    ],
    at: Annotated[
        str, typer.Option("--at", metavar="PLACE", help="local or ssh://root@HOST.")
    ] = "local",
) -> None:
    """Show or set parameters of a running host: of domains of Xen, or of guests of KVM.

    On Xen, laxity-sched runs on the host; laxity sched -- --help shows its words. On KVM: get
    [--json] [DOMAIN[/VCPU]], or set DOMAIN[/VCPU] KEY=VALUE with the keys of host files; laxity
    apply --revert puts back what was set.
    """
    from laxity.shell import Shell
    from laxity.substrates.xen.watch import is_dom0

    if is_dom0(Shell.at(at)):
        _on_xen(at, words)
    else:
        _on_kvm(at, words)


def _on_xen(at: str, words: list[str]) -> None:
    from laxity.substrates.xen import executors

    code, text, complaint = executors.real_host(at).sched(words)
    print(text, end="")
    print(complaint, end="", file=sys.stderr)
    if code:
        raise typer.Exit(code)


def _on_kvm(at: str, given: list[str]) -> None:
    from laxity.apply import live
    from laxity.apply.place import Place
    from laxity.tables.apply import changes_table, parameters_table

    words, place = live.parse(given), Place(at)
    seen = place.observe([])
    if words.command == "set":
        made = place.apply(live.change(seen, words), keep=True, persist=False)
        print_rich(changes_table(made["changes"]))
    elif words.as_json:
        print_json({"domains": [guest.to_json() for guest in live.parameters(seen, words)]})
    elif not seen["guests"]:
        print(f"No guests run on {place.name}")
    else:
        print_rich(parameters_table(live.parameters(seen, words)))
