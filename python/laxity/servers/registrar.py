"""What a registrar knows, asked by SIP; it may stand behind balancers."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.servers.addresses import family, literal
from laxity.servers.control import socket_in
from laxity.servers.signalling import SIP_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TRIES = 120
ASKED_AT_ONCE = 10
ANSWER_S = 1.0
DATAGRAM_BYTES_MAX = 65_535


def bindings(namespace: Path, address: str, users: Iterable[str]) -> list[str]:
    """Those of the users whom the registrar knows; asked for each (RFC 3261, 10.2.3)."""
    has_contact = re.compile(rb"^Contact: *<", re.MULTILINE)
    users = list(users)
    # In mode Net an answer waits for its checkpoint, and one checkpoint lets many go.
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = pool.map(
            lambda user: ask(namespace, address, "REGISTER", f"{user}@{literal(address)}"), users
        )
        return [
            user for user, answer in zip(users, answers, strict=True) if has_contact.search(answer)
        ]


def ask(
    namespace: Path,
    address: str,
    method: str,
    about: str,
    *,
    route: str | None = None,
    tries: int = TRIES,
) -> bytes:
    """The answer to a request outside of any dialog, sent again until there is one.

    Raises InputError if there is none.
    """
    with closing(socket_in(namespace, family=family(address))) as asking:
        asking.connect((address, SIP_PORT))
        asking.settimeout(ANSWER_S)
        here, port = asking.getsockname()[:2]
        call = f"{method}-{port}-{time.monotonic_ns()}"
        lines = [
            f"{method} sip:{literal(address)}:{SIP_PORT} SIP/2.0",
            f"Via: SIP/2.0/UDP {literal(here)}:{port};branch=z9hG4bK{call}",
            f"From: <sip:{about}>;tag=1",
            f"To: <sip:{about}>",
            f"Call-ID: {call}",
            *([] if route is None else [f"Route: {route}"]),
            *(f"CSeq: 1 {method}", "Max-Forwards: 70", "Content-Length: 0", "", ""),
        ]
        for _ in range(tries):
            try:
                asking.send("\r\n".join(lines).encode())
                while True:
                    answer = asking.recv(DATAGRAM_BYTES_MAX)
                    if call.encode() in answer:
                        return answer
            except TimeoutError:
                continue
            except OSError:
                # Refused, or nobody has the address: somebody may come up.
                time.sleep(ANSWER_S)
    raise InputError(f"nobody answers {method} at {address}", "see that it is up")
