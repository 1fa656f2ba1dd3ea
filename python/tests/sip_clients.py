"""Clients who register, look up, call and hang up at once, and write down what they saw.

A request is sent once, over UDP or TCP: what is not answered may have arrived, and is never sent
again. Its outcome is not known then, which `linearizable` takes into account.
"""

from __future__ import annotations

import math
import random
import re
import socket
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from laxity.servers.control import socket_in
from laxity.servers.signalling import SIP_PORT
from linearizable import Kind, Operation, Seen, first_impossible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MESSAGE_BYTES_MAX = 65_535
LOOK_EVERY_S = 0.2
PATIENCE_S = 40.0
"""How long a client waits for an answer: longer than a host needs to take over. It is no verdict:
the client then does not know."""


@dataclass
class History:
    """What all clients saw, by user."""

    operations: dict[str, list[Operation]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def begin(self, user: str, operation: Operation) -> None:
        """Notes an operation that goes on: it may take effect from now on."""
        with self._lock:
            self.operations.setdefault(user, []).append(operation)

    def end(self, user: str, operation: Operation, seen: Seen) -> None:
        """Notes the answer to an operation that was begun."""
        answered = replace(operation, seen=seen, end=time.monotonic())
        with self._lock:
            operations = self.operations[user]
            operations[operations.index(operation)] = answered

    def answered(self, since: float = -math.inf) -> dict[str, int]:
        """The number of operations that began since then and were answered, by user."""
        with self._lock:
            return {
                user: sum(each.is_answered and each.begin >= since for each in operations)
                for user, operations in self.operations.items()
            }

    def impossible(self) -> dict[str, Operation]:
        """The first answer of each user that nothing explains."""
        with self._lock:
            histories = {user: list(each) for user, each in self.operations.items()}
        found = {user: first_impossible(each) for user, each in histories.items()}
        return {user: operation for user, operation in found.items() if operation is not None}


def _headers(message: str, name: str) -> list[str]:
    return re.findall(rf"^{name}: *(.*?)\r?$", message, re.MULTILINE | re.IGNORECASE)


class Phone(Thread):
    """A phone that accepts every call."""

    def __init__(self, namespace: Path, address: str, name: str, over: Event) -> None:
        super().__init__(daemon=True)
        self._over = over
        self._socket = socket_in(namespace)
        self._socket.bind((address, 0))
        self._socket.settimeout(LOOK_EVERY_S)
        self.contact = f"sip:{name}@{address}:{self._socket.getsockname()[1]}"
        self._calls: set[str] = set()
        self._answers: dict[tuple[str, str], str] = {}
        """By method and first Via: a request that comes once more is answered as before (RFC 3261,
        17.2). A server that takes over from the last checkpoint may not know of an answer."""

    def run(self) -> None:
        with closing(self._socket):
            while not self._over.is_set():
                try:
                    datagram, sender = self._socket.recvfrom(MESSAGE_BYTES_MAX)
                except OSError:
                    continue
                answer = self._answer(datagram.decode())
                if answer is not None:
                    self._socket.sendto(answer.encode(), sender)

    def _answer(self, request: str) -> str | None:
        method = request.split(" ", 1)[0]
        if method not in {"INVITE", "BYE", "CANCEL"}:
            return None
        transaction = method, _headers(request, "Via")[0]
        if transaction in self._answers:
            return self._answers[transaction]
        (call,) = _headers(request, "Call-ID")
        stands = call in self._calls
        if method == "INVITE":
            self._calls.add(call)
        elif method == "BYE":
            self._calls.discard(call)
        status = "481 No Such Call" if method == "BYE" and not stands else "200 OK"
        (to,) = _headers(request, "To")
        lines = [f"SIP/2.0 {status}"]
        for name in ("Via", "Record-Route", "From", "Call-ID", "CSeq"):
            lines += [f"{name}: {value}" for value in _headers(request, name)]
        lines += [f"To: {to}" if "tag=" in to else f"To: {to};tag=phone"]
        lines += [f"Contact: <{self.contact}>", "Content-Length: 0", "", ""]
        self._answers[transaction] = "\r\n".join(lines)
        return self._answers[transaction]


class Datagrams:
    """A client's way to all servers over UDP."""

    name = "UDP"

    def __init__(self, namespace: Path, address: str) -> None:
        self._socket = socket_in(namespace)
        self._socket.bind((address, 0))
        self._socket.settimeout(LOOK_EVERY_S)

    def here(self, _: str) -> str:
        address, port = self._socket.getsockname()
        return f"{address}:{port}"

    def send(self, server: str, message: str) -> None:
        self._socket.sendto(message.encode(), (server, SIP_PORT))

    def receive(self, _: str) -> str:
        return self._socket.recv(MESSAGE_BYTES_MAX).decode()

    def close(self) -> None:
        self._socket.close()


class Streams:
    """A client's connections over TCP, one to each server, which are kept through all failures."""

    name = "TCP"

    def __init__(self, namespace: Path, _: str) -> None:
        self._namespace = namespace
        self._connections: dict[str, socket.socket] = {}
        self._received: dict[str, bytes] = {}

    def here(self, server: str) -> str:
        address, port = self._to(server).getsockname()
        return f"{address}:{port}"

    def _to(self, server: str) -> socket.socket:
        if server not in self._connections:
            connection = socket_in(self._namespace, socket.SOCK_STREAM)
            connection.settimeout(PATIENCE_S)
            try:
                connection.connect((server, SIP_PORT))
            except OSError:
                connection.close()
                raise
            connection.settimeout(LOOK_EVERY_S)
            self._connections[server] = connection
            self._received[server] = b""
        return self._connections[server]

    def send(self, server: str, message: str) -> None:
        try:
            self._to(server).sendall(message.encode())
        except OSError:
            self._end(server)
            raise

    def receive(self, server: str) -> str:
        """The next message without a body; OSError if there is none."""
        end = b"\r\n\r\n"
        while end not in self._received.get(server, b""):
            octets = self._to(server).recv(MESSAGE_BYTES_MAX)
            if not octets:
                self._end(server)
                raise ConnectionResetError
            self._received[server] += octets
        message, _, self._received[server] = self._received[server].partition(end)
        return (message + end).decode()

    def _end(self, server: str) -> None:
        ended = self._connections.pop(server, None)
        if ended is not None:
            ended.close()

    def close(self) -> None:
        for server in list(self._connections):
            self._end(server)


class Client(Thread):
    """Somebody who does one thing after the other with the same users as others."""

    def __init__(
        self,
        way: Datagrams | Streams,
        servers: Sequence[str],
        users: Sequence[str],
        contacts: Sequence[str],
        history: History,
        over: Event,
        number: int,
        seed: int,
    ) -> None:
        super().__init__(daemon=True)
        self._way, self._servers, self._users = way, servers, users
        self._contacts, self._history, self._over = contacts, history, over
        self._number = number
        self._draw = random.Random(f"{seed} {number}")  # noqa: S311 - no secret
        self._requests = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with closing(self._way):
                while not self._over.is_set():
                    self._do_something(self._draw.choice(self._users))
        except Exception as failure:  # noqa: BLE001 - whoever joins it says so
            self.failure = failure

    def _do_something(self, user: str) -> None:
        kind = self._draw.choice(("register", "register", "unregister", "lookup", "lookup", "call"))
        server = self._draw.choice(self._servers)
        if kind == "call":
            self._call(server, user)
            return
        contact = self._draw.choice(self._contacts)
        about = {
            "register": [f"Contact: <{contact}>", "Expires: 3600"],
            "unregister": ["Contact: *", "Expires: 0"],
            "lookup": [],
        }[kind]
        to = f"<sip:{user}@{server}>"
        operation, call = self._begun(user, kind, contact if kind == "register" else "")
        answer = self._ask(server, "REGISTER", f"sip:{server}", to, to, call, 1, about)
        seen: Seen = None
        if answer is not None and kind == "lookup":
            seen = frozenset(re.findall(r"<(sip:[^>]+)>", " ".join(_headers(answer, "Contact"))))
        self._ended(user, operation, seen, answer is not None and answer.startswith("SIP/2.0 200 "))

    def _call(self, server: str, user: str) -> None:
        """Calls a user, and hangs up if the call stands; sometimes once more."""
        here = self._here(server)
        sender, to = f"<sip:client@{here}>", f"<sip:{user}@{server}>"
        operation, call = self._begun(user, "invite", "")
        about = [f"Contact: <sip:client@{here}>"]
        answer = self._ask(server, "INVITE", f"sip:{user}@{server}", sender, to, call, 1, about)
        status = "" if answer is None else answer.split(" ", 2)[1]
        if answer is None or status != "200":
            self._ended(user, operation, None, status == "404")
            return
        contact = _headers(answer, "Contact")[0].strip("<>")
        self._ended(user, operation, contact, is_answered=True)
        (to,) = _headers(answer, "To")
        recorded = ",".join(_headers(answer, "Record-Route")).split(",")
        routes = ", ".join(reversed(recorded))
        within = [f"Route: {routes}"] if routes else []
        hop = re.search(r"<sip:([\d.]+)", routes)
        next_hop = hop[1] if hop else server
        self._send(next_hop, "ACK", contact, sender, to, call, 1, within)
        for number in range(2, self._draw.choice((3, 3, 4))):
            bye, _ = self._begun(user, "bye", call)
            answer = self._ask(next_hop, "BYE", contact, sender, to, call, number, within)
            status = "" if answer is None else answer.split(" ", 2)[1]
            self._ended(user, bye, status == "200", status in {"200", "481"})

    def _here(self, server: str) -> str:
        """Where the client is for a server; nowhere if the server cannot be reached now."""
        try:
            return self._way.here(server)
        except OSError:
            return "unreached.invalid"

    def _begun(self, user: str, kind: Kind, about: str) -> tuple[Operation, str]:
        """An operation from now on, and a call for it, which `invite` is about."""
        self._requests += 1
        call = f"client{self._number}-{self._requests}"
        about = call if kind == "invite" else about
        operation = Operation(kind, about, None, time.monotonic())
        self._history.begin(user, operation)
        return operation, call

    def _ended(self, user: str, operation: Operation, seen: Seen, is_answered: bool) -> None:
        if is_answered:
            self._history.end(user, operation, seen)

    def _ask(self, server: str, method: str, *rest: object) -> str | None:
        """The final answer to a request; None if there is none for long."""
        call, number = self._send(server, method, *rest)
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s and not self._over.is_set():
            try:
                answer = self._way.receive(server)
            except OSError:
                # Nothing yet; or the system says that nobody has the address now.
                self._over.wait(0.01)
                continue
            is_it = f"Call-ID: {call}\r\n" in answer and f"CSeq: {number} {method}" in answer
            if is_it and not answer.startswith("SIP/2.0 1"):
                return answer
        return None

    def _send(
        self, server: str, method: str, uri: str, sender: str, to: str, call: str, number: int,
        about: Sequence[str],
    ) -> tuple[str, int]:  # fmt: skip
        here = self._here(server)
        lines = [
            f"{method} {uri} SIP/2.0",
            f"Via: SIP/2.0/{self._way.name} {here};branch=z9hG4bK{call}-{method}-{number}",
            f"From: {sender};tag=client",
            f"To: {to}",
            f"Call-ID: {call}",
            f"CSeq: {number} {method}",
            "Max-Forwards: 70",
            *about,
            *("Content-Length: 0", "", ""),
        ]
        try:
            self._way.send(server, "\r\n".join(lines))
        except OSError:
            # Nobody has the address, and the client does not know for how long.
            self._over.wait(LOOK_EVERY_S)
        return call, number


@contextmanager
def clients(
    namespace: Path,
    address: str,
    servers: Sequence[str],
    users: Sequence[str],
    *,
    number: int,
    seed: int,
) -> Iterator[History]:
    """A number of clients ask these servers about these users until the end, half over TCP."""
    history, over = History(), Event()
    phones = [Phone(namespace, address, f"phone{each}", over) for each in range(3)]
    asking: list[Client] = []
    for each in range(number):
        way = (Datagrams, Streams)[each % 2](namespace, address)
        contacts = [phone.contact for phone in phones]
        asking.append(Client(way, servers, users, contacts, history, over, each, seed))
    try:
        for thread in (*phones, *asking):
            thread.start()
        yield history
    finally:
        over.set()
        for thread in (*phones, *asking):
            thread.join()
    for client in asking:
        if client.failure is not None:
            raise client.failure
