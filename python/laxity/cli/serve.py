"""`laxity serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.command import examples, typer_app
from laxity.errors import InputError

app = typer_app()

FIRST = """\
duration = "10 s"
host = { cpus = 1, policy = "deferrable", costs = "emsoft-2011" }

[[domain]]
name = "control"
budget = "2 ms"
period = "10 ms"
priority = 1
tasks = [{ name = "loop", cost = "5 ms", period = "200 ms" }]

[[domain]]
name = "batch"
budget = "7 ms"
period = "10 ms"
priority = 2
workload = { kind = "cpu-bound" }
"""
"""What the page begins with, unless a file is given."""


@app.command(
    epilog=examples("serve", "serve examples/integrator.toml", "serve host.toml --port 8080")
)
def serve(
    host: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The host file that the page begins with."),
    ] = None,
    port: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=65535, help="The port; by default any that is free."),
    ] = 0,
) -> None:
    """Serve a page that answers check, run, why and design while a host file is written.

    Prints the address of the page, which contains a token. Only requests from this machine with
    that token are answered. The file itself is not changed. Ctrl-C ends the server.
    """
    from laxity import files
    from laxity.serve.server import Server

    text = FIRST
    if host is not None:
        content = files.read(host, files.HOST_BYTES_MAX, "a host file, such as host.toml")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InputError(f"{host} is not text", "host files are UTF-8") from None
    try:
        server = Server(text, port)
    except OSError as error:
        raise InputError(f"port {port}: {error.strerror}", "leave --port out") from None
    with server:
        print(f"Open {server.address}", flush=True)
        server.serve_forever()
