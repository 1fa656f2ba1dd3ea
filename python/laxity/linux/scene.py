"""What runs on this machine: calls, the media server they go through, signalling, neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from laxity.errors import InputError
from laxity.linux import signalling

if TYPE_CHECKING:
    from laxity.linux.signalling import Traffic

MediaProgram = Literal["laxity", "rtpengine"]

PACKET_NS = 20_000_000
"""G.711's, and that of everything here."""
SETUP_RATE_PER_S = 50.0
"""At which calls are set up that are to be there from the start."""


@dataclass(frozen=True)
class Share:
    """What a domain may have of the CPUs."""

    weight: int
    """Against the others'."""
    cap_percent: int
    """Of one CPU; 0 is no cap."""
    cpus: tuple[int, ...]
    """Those it may run on."""


@dataclass(frozen=True)
class Calls:
    """The load: calls of G.711, two streams each, a packet every 20 ms."""

    duration_ns: int
    streams: int | None = None
    """All there from the start; or else"""
    rate_per_s: float = 0.0
    """new calls, as regularly,"""
    hold_ns: int = 0
    """and each for so long."""
    playout_ns: int = 60 * 1_000_000
    """A packet that takes longer is late."""
    sample: int = 4
    """The times of each packet are kept of one call in so many."""

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if self.streams is None:
            if self.rate_per_s <= 0 or self.hold_ns <= 0:
                raise InputError("calls need streams, or a rate and a hold time")
        elif self.streams < 2 or self.streams % 2:  # noqa: PLR2004 - two parties
            raise InputError(
                f"{self.streams} streams are not the streams of calls",
                "each call has two: give an even number",
            )
        at_once = self.traffic.rate_per_s * self.hold_ns / 1e9
        if max(at_once, (self.streams or 0) / 2) > signalling.CALLS_MAX:
            raise InputError(
                "there are more calls at once than ports",
                f"at most {signalling.CALLS_MAX} calls, {2 * signalling.CALLS_MAX} streams",
            )

    @property
    def traffic(self) -> Traffic:
        """The calls as they are placed."""
        if self.streams is None:
            calls = max(1, round(self.rate_per_s * self.duration_ns / 1e9))
            return signalling.Traffic(calls, self.rate_per_s, self.hold_ns)
        calls = self.streams // 2
        # Nobody hangs up before all are there and the run is over.
        hold_ns = self.duration_ns + round(2e9 * calls / SETUP_RATE_PER_S) + 60 * 1_000_000_000
        return signalling.Traffic(calls, SETUP_RATE_PER_S, hold_ns)


@dataclass(frozen=True)
class Server:
    """The media server."""

    name: str
    share: Share
    threads: int
    work_ns: int = 0
    """CPU time of a packet, besides receiving, transcoding and sending."""
    transcode: bool = False
    program: MediaProgram = "laxity"


@dataclass(frozen=True)
class Signalling:
    """The registrar and proxy."""

    name: str
    share: Share


@dataclass(frozen=True)
class Neighbour:
    """A domain that never stops asking for CPU."""

    name: str
    share: Share
    threads: int


@dataclass(frozen=True)
class Scene:
    """One run."""

    calls: Calls
    server: Server
    neighbours: tuple[Neighbour, ...] = ()
    signalling: Signalling | None = None
    """Without it, calls are there because the media server is told so."""

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if self.server.program == "rtpengine" and self.server.work_ns:
            raise InputError(
                "rtpengine does no work of a given length for each packet",
                "leave the work out, or take Laxity's own media server",
            )
        if self.signalling is None and self.calls.streams is None:
            raise InputError(
                "calls by rate are set up by SIP, and no domain is their signalling server",
                "name one, or give streams in place of rate and hold",
            )
