"""A small DNS server that knows one domain: dnsmasq, of Debian's."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.namespaces.process import Place, Process, process
from laxity.servers.signalling import SIP_PORT, TLS_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PORT = 53


@dataclass(frozen=True)
class Balancer:
    """A balancer to which DNS sends clients (RFC 2782)."""

    name: str
    """In the domain."""
    addresses: tuple[str, ...]
    priority: int
    weight: int


def records(domain: str, balancers: Iterable[Balancer], *, has_tls: bool) -> list[str]:
    """Options of dnsmasq: where the domain's SIP is served (RFC 2782), and the addresses."""
    services = {"_sip._udp": SIP_PORT, "_sip._tcp": SIP_PORT}
    if has_tls:
        services["_sips._tcp"] = TLS_PORT
    options = []
    for each in balancers:
        name = f"{each.name}.{domain}"
        for service, port in services.items():
            record = [f"{service}.{domain}", name, port, each.priority, each.weight]
            options.append(f"--srv-host={','.join(map(str, record))}")
        options.append(f"--host-record={name},{','.join(each.addresses)}")
    return options


@contextmanager
def server(
    domain: str, balancers: Iterable[Balancer], address: str, place: Place, *, has_tls: bool
) -> Iterator[Process]:
    """Answers for the domain at an address, and for nothing else."""
    command = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file="]
    command += ["--no-resolv", "--no-hosts", "--no-poll", "--bind-interfaces", "--log-facility=-"]
    # It would give up root for a user that a bare Debian does not have.
    command += ["--user=root", f"--listen-address={address}", "--except-interface=lo"]
    command += [f"--local=/{domain}/", *records(domain, balancers, has_tls=has_tls)]
    with process("dns", command, place) as started:
        started.wait_for_port(PORT)
        yield started
