"""`laxity site`: a whole site on this machine, until the command ends."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import say
from laxity.cli.options import time_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from laxity.site.site import Row, Site

app = typer_app()

LOOK_EVERY_S = 1.0
USERS = 40
"""Number of users that the proposed load registers."""
USERS_FILE = "users.csv"


@app.command(
    epilog=examples("site examples/site.toml", "site examples/site.toml --duration '5 min'")
)
def site(
    file: Annotated[Path, typer.Argument(metavar="SITE", help="The site file.")],
    duration: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help='End after this time, such as "5 min". Ctrl-C ends the site, too.'
        ),
    ] = None,
) -> None:
    """Start a site of protected telephony on this machine: DNS, balancers, hosts, appliances.

    Each host and balancer is a network namespace, and clients have one, too. Shows what runs where,
    and shows it again after each change. Removes everything when it ends. Needs root.
    """
    from laxity.site import site as sites

    duration_ns = None if duration is None else time_ns(duration, "--duration", "5 min")
    # The signals of a service manager and of a closed terminal end the site like Ctrl-C, which does
    # not reach a command that a shell has started in the background.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    description = sites.read(file)
    with sites.site(description, say) as running:
        _watch(running, None if duration_ns is None else duration_ns / 1e9)


def _watch(running: Site, duration_s: float | None) -> None:
    from rich.console import Console

    console = Console()
    ends_s = None if duration_s is None else time.monotonic() + duration_s
    shown: list[Row] = []
    try:
        while ends_s is None or time.monotonic() < ends_s:
            rows = running.rows()
            if rows != shown:
                console.print(table(rows))
            if not shown:
                console.print(how_to_try(running, rows), soft_wrap=True, highlight=False)
            shown = rows
            left_s = LOOK_EVERY_S if ends_s is None else ends_s - time.monotonic()
            time.sleep(max(0.0, min(LOOK_EVERY_S, left_s)))
    except KeyboardInterrupt:
        say("ending")


def table(rows: Sequence[Row]) -> Table:
    """What runs where, and how it is."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("what", "name", "address", "on", "state"):
        shown.add_column(head)
    for row in rows:
        shown.add_row(row.kind, row.name, row.address, row.where, row.state)
    return shown


def how_to_try(running: Site, rows: Sequence[Row]) -> str:
    """Commands for another terminal, which work without changes."""
    from laxity.servers.addresses import literal
    from laxity.servers.signalling import CALLEE_PORT, FILES, REGISTER_PORT, SIP_PORT

    said = running.description
    enter = f"ip netns exec {running.clients.namespace.name}"
    lines = ["From another terminal, as root:"]
    if said.domain is not None:
        lines += [
            "",
            "  # the hosts that clients are sent to",
            f"  {enter} dig +short @{running.address} SRV _sip._udp.{said.domain}",
        ]
    if said.registrars:
        callee = f"{literal(running.address)}:{CALLEE_PORT}"
        users = "".join(f"user{number};{callee};\n" for number in range(USERS))
        (running.files / USERS_FILE).write_text(f"SEQUENTIAL\n{users}")
        register = f"sipp -sf {FILES / 'register.xml'} -inf {running.files / USERS_FILE}"
        register += f" -i {running.address} -p {REGISTER_PORT} -m {USERS} -r 20"
        address = (said.balancers or said.registrars)[0].addresses[0]
        lines += [
            "",
            f"  # {USERS} users register",
            f"  {enter} {register} {literal(address)}:{SIP_PORT}",
        ]
    lines += ["", "  # a power failure of each host and balancer"]
    lines += [f"  kill -9 -- -{row.group}    # {row.kind} {row.name}" for row in rows if row.group]
    lines += ["", "  # checkpoints, pauses and delays, every second"]
    lines += [f"  laxity protect status --socket {running.control(host)}" for host in said.hosts]
    return "\n".join(lines) + "\n"
