"""Tells a media server of calls: the ng protocol of rtpengine, in JSON."""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import socket
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, TypedDict

from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WAIT_S = 1.0
TRIES = 120
"""Two minutes for one that a busy machine gives no CPU; one that is gone refuses at once."""
DATAGRAM_BYTES_MAX = 65_535
CLONE_NEWNET = 0x4000_0000
"""The flag of setns(2) for a network namespace."""

Reply = TypedDict(
    "Reply",
    {"result": str, "error-reason": str, "sdp": str, "statistics": "Statistics"},
    total=False,
)
"""An answer: to a description with a description, to `statistics` with these."""


class Statistics(TypedDict):
    """What rtpengine tells of itself, as far as it is read."""

    totalstatistics: TotalStatistics
    currentstatistics: CurrentStatistics


class TotalStatistics(TypedDict):
    """Since it started."""

    relayedpackets: int
    relayedpacketerrors: int
    managedsessions: int | str
    """The calls that are over."""


class CurrentStatistics(TypedDict):
    """Now."""

    sessionsown: int


def socket_in(
    namespace: Path,
    kind: socket.SocketKind = socket.SOCK_DGRAM,
    family: socket.AddressFamily = socket.AF_INET,
    protocol: int = 0,
) -> socket.socket:
    """A socket, of UDP by default, that stands in a network namespace, whoever uses it."""
    made: list[socket.socket | OSError] = []

    def make() -> None:
        # A thread may enter a namespace alone; it ends with it.
        libc = ctypes.CDLL(None, use_errno=True)
        with namespace.open() as file:
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                made.append(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
                return
        made.append(socket.socket(family, kind, protocol))

    thread = Thread(target=make)
    thread.start()
    thread.join()
    (result,) = made
    if isinstance(result, OSError):
        raise InputError(f"cannot enter a network namespace: {result}", "be root")
    return result


@dataclass(frozen=True)
class Media:
    """Where one party of a call is to send, and what."""

    address: str
    port: int
    payload_type: int


class Control:
    """A media server's control port."""

    def __init__(self, namespace: Path, address: str, port: int) -> None:
        """Connects to the server at `address` from within a namespace."""
        self._socket = socket_in(namespace)
        self._socket.connect((address, port))
        self._socket.settimeout(WAIT_S)

    def close(self) -> None:
        """Needs it no more."""
        self._socket.close()

    def ask(self, command: str, **keys: object) -> Reply:
        """Asks, again if no answer comes; the server does it once all the same."""
        question = {"command": command} | {
            key.replace("_", "-"): value for key, value in keys.items()
        }
        cookie = secrets.token_hex(8).encode()
        for _ in range(TRIES):
            try:
                self._socket.send(cookie + b" " + json.dumps(question).encode())
                while True:
                    datagram = self._socket.recv(DATAGRAM_BYTES_MAX)
                    # Another cookie is of an answer that came too late.
                    if datagram.startswith(cookie + b" "):
                        return _checked(command, json.loads(datagram[len(cookie) + 1 :]))
            except OSError:
                continue
        raise InputError(f"the media server does not answer `{command}`")

    def describe(self, command: str, call: str, media: Media, flags: Mapping[str, object]) -> Media:
        """Offers or answers a stream at `media`; returns where the other party is to send."""
        reply = self.ask(
            command,
            call_id=call,
            from_tag="caller",
            to_tag="callee",
            sdp=description(media),
            **flags,
        )
        return media_of(reply["sdp"])


def _checked(command: str, reply: Reply) -> Reply:
    if reply.get("result") == "error":
        raise InputError(f"the media server refuses `{command}`: {reply.get('error-reason')}")
    return reply


def description(media: Media) -> str:
    """A session description (RFC 8866) of one stream of G.711."""
    place = f"IN {'IP6' if ':' in media.address else 'IP4'} {media.address}"
    lines = [
        "v=0",
        f"o=- 1 1 {place}",
        "s=-",
        f"c={place}",
        "t=0 0",
        f"m=audio {media.port} RTP/AVP {media.payload_type}",
    ]
    return "".join(f"{line}\r\n" for line in lines)


def media_of(sdp: str) -> Media:
    """The stream that a session description has."""
    address = re.search(r"^c=IN IP[46] ([0-9a-f.:]+)", sdp, re.MULTILINE)
    media = re.search(r"^m=audio (\d+) (?:UDP/TLS/)?RTP/S?AVP (\d+)", sdp, re.MULTILINE)
    if address is None or media is None:
        raise InputError(f"the media server describes no voice: {sdp!r}")
    return Media(address[1], int(media[1]), int(media[2]))
