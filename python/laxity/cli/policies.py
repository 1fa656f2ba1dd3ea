"""`laxity policies`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.cli.command import examples, typer_app
from laxity.cli.console import print_json, print_rich
from laxity.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.table import Table

app = typer_app()


@app.command(epilog=examples("policies", "policies --json"))
def policies(as_json: JsonOption = False) -> None:
    """List the scheduling policies, where each runs, and the parameters that it uses."""
    from laxity.policies import TABLE

    if as_json:
        print_json({"policies": [policy.to_json() for policy in TABLE.values()]})
    else:
        print_rich(_table())


def _table() -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from laxity.policies import TABLE

    table = Table(box=box.SIMPLE, pad_edge=False)
    for head in ("policy", "family", "runs on", "what it is, and its parameters"):
        table.add_column(head, overflow="fold")
    for policy in TABLE.values():
        about = Text(policy.about.replace("`", ""))
        about.append(f"\n{', '.join(policy.parameters)}", style="dim")
        table.add_row(policy.name, policy.family, " ".join(policy.substrates), about)
    return table
