"""`laxity appliance`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.cli.console import say

app = typer_app()


@app.command(epilog=examples("appliance signalling", "appliance media -o vms"))
def appliance(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=(
                "signalling (Kamailio), media (Laxity's own media server), or rtpengine (Debian's)."
            ),
        ),
    ],
    directory: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The directory for its files.")
    ] = Path("appliances"),
    users: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "For signalling: the users that may register and call, one USER:REALM:HA1 a"
                " line, as htdigest writes them. Without it, any user may."
            ),
        ),
    ] = None,
) -> None:
    """Make a small virtual machine without a disk that runs one server.

    Writes a kernel and NAME.cpio, which any QEMU boots in seconds. The kernel's command line gives
    the address of the server: address=192.0.2.10/24. For signalling there is also signalling.crt,
    by which balancers know the server when they use TLS (tls=1).
    """
    from laxity.appliances import image
    from laxity.servers import users as registrar_users

    accounts = None if users is None else registrar_users.read(users)
    made = image.build(name, directory, say, accounts)
    for path in (made.kernel, made.root):
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")
