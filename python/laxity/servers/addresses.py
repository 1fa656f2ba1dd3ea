"""Addresses of both families of the Internet Protocol, as programs are given them."""

from __future__ import annotations

import socket


def family(address: str) -> socket.AddressFamily:
    """The family of an address, for a socket."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def literal(address: str) -> str:
    """An address as a URI has it, or whatever else has a port behind it (RFC 3986, 3.2.2)."""
    return f"[{address}]" if ":" in address else address
