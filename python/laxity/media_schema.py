"""The reports of `laxity-media --json`.

Written by tools/build/python_types.py. Do not edit.
"""

# ruff: noqa: D209

from __future__ import annotations

from typing import NotRequired, TypedDict


class Quantiles(TypedDict):
    """Summary of a distribution, in nanoseconds. A quantile is the smallest recorded time that at
    least this share of the times does not exceed."""

    count: int
    """Number of times."""
    min_ns: int
    """The shortest time."""
    mean_ns: float
    """The mean."""
    p25_ns: int
    """The first quartile."""
    p50_ns: int
    """The median."""
    p75_ns: int
    """The third quartile."""
    p99_ns: int
    """The 99th percentile."""
    p999_ns: int
    """The 99.9th percentile."""
    max_ns: int
    """The longest time."""


class CallsReport(TypedDict):
    """Results of all calls."""

    calls: int
    """Number of calls of which at least one party had a port."""
    streams_most: int
    """Highest number of streams that were sent at the same time."""
    refused: int
    """Number of parties for whom there was no port."""
    error: str | None
    """The system's error for the last of these."""
    setup: Quantiles | None
    """Setup times, from when the first party of a call had its port to when it was to send."""


class LoadReport(TypedDict):
    """Results of the load, with its own lateness."""

    streams: int
    """Number of streams."""
    due: int
    """Number of packets that were due."""
    threads: int
    """Number of sending threads."""
    tick_ns: int
    """Interval between two wake-ups."""
    real_time: bool
    """Whether the threads ran with real-time priority (SCHED_FIFO), which needs a permission.
    Without it other work on the machine delays them."""
    sent: int
    """Packets that the system accepted."""
    failed: int
    """Packets that the system refused."""
    error: str | None
    """The system's error for the last of these."""
    measured_duration_ns: int
    """Time from the intended start to the end of the last thread, measured by the threads' clock.
    """
    wake_up_late: Quantiles | None
    """Lateness of a thread's wake-ups."""
    packet_late: Quantiles | None
    """Time from when a packet was due to the end of the system call that sent it."""


class Invalid(TypedDict):
    """Numbers of datagrams that are no G.711 packets, by reason."""

    truncated: int
    """Shorter than the header says."""
    version: int
    """Not RTP's version 2."""
    padding: int
    """Padding with a length of zero octets."""
    payload_type: int
    """A payload type other than 0 and 8."""
    too_long: int
    """Longer than any packet of voice."""


class RelayReport(TypedDict):
    """Totals of the media server."""

    calls: int
    """Number of announced calls; 0 where all streams share a port."""
    expired: int
    """Number of calls that ended because neither media nor requests came any more."""
    refused: int
    """Number of requests about calls from clients without the right."""
    received: int
    """Packets that the server received from its socket."""
    forwarded: int
    """Packets that the server sent on."""
    dropped: int
    """Packets that the kernel dropped because the server's receive buffer was full."""
    failed: int
    """Packets that the system did not send."""
    invalid: Invalid
    """Datagrams that are no G.711 packets."""
    cpu_ns: int
    """CPU time of the pool."""
    unwritten: int
    """Packets whose passage was to be written down, and of which too many others were."""


class StreamReport(TypedDict):
    """Results of a stream. Delay and jitter are missing if nothing arrived."""

    stream: int
    """Number of the stream, from 0."""
    expected: int
    """Packets that were sent."""
    received: int
    """Distinct packets that arrived."""
    lost: int
    """Packets that did not arrive."""
    loss_bursts: int
    """Runs of packets that were lost in a row."""
    loss_burst_max: int
    """Length of the longest such run."""
    duplicates: int
    """Packets that arrived again."""
    reordered: int
    """Packets that arrived after one that was sent later (RFC 4737, section 3.3)."""
    late: int
    """Packets that arrived after the playout delay and could not be played."""
    stray: int
    """Packets whose sequence number has no place in the stream."""
    delay: Quantiles | None
    """One-way delay from the sender's system call to the sink's socket, with two digits."""
    jitter_ns: float | None
    """Interarrival jitter after the last packet (RFC 3550, section 6.4.1 and A.8)."""
    jitter_ns_max: float | None
    """Highest value of the jitter."""


class SinkReport(TypedDict):
    """The received load, and the quality of the measurement."""

    streams: int
    """Number of streams of the load."""
    dead_streams: int
    """Number of streams without any received packet."""
    expected: int
    """Packets that were sent."""
    received: int
    """Distinct packets that arrived."""
    lost: int
    """Packets that did not arrive."""
    loss_bursts: int
    """Runs of packets that were lost in a row."""
    loss_burst_max: int
    """Length of the longest such run."""
    duplicates: int
    """Packets that arrived again."""
    reordered: int
    """Packets that arrived after one that was sent later (RFC 4737, section 3.3)."""
    late: int
    """Packets that arrived after the playout delay and could not be played."""
    stray: int
    """Packets whose sequence number has no place in the stream."""
    loss_percent: float
    """Share of the packets that did not arrive, in percent."""
    loss_burst_mean: float
    """Mean number of packets that were lost in a row."""
    playout_ns: int
    """Delay beyond which a packet is late."""
    delay: Quantiles | None
    """One-way delay of all packets."""
    jitter: Quantiles | None
    """Final jitter of the streams."""
    worst_stream: StreamReport | None
    """The stream with the most loss, and among equals the one with the longest p99 of delay."""
    invalid: Invalid
    """Datagrams that are no G.711."""
    foreign: int
    """G.711 packets that do not belong to this load."""
    misdirected: int
    """Packets of one call that arrived at another call's port."""
    mistimed: int
    """Packets whose stamp of arrival is before their sending or after their fetching, because the
    stamping clock was set. Their time of fetching counts as their arrival."""
    per_stream: list[StreamReport]
    """Results of each stream."""
    real_time: bool
    """Whether the sink ran with real-time priority; see
    [`LoadReport::real_time`](crate::load::LoadReport)."""
    dropped: int
    """Packets that the kernel dropped because the sink did not fetch them in time. They count as
    lost, but the media server did not lose them."""
    fetched_late: Quantiles | None
    """Time from the kernel's reception of a packet to its fetching by the sink; not part of the
    delay."""


class Machine(TypedDict):
    """The machine's load during a measurement."""

    cpus: int
    """Number of CPUs."""
    cpus_busy: float
    """Mean number of busy CPUs."""
    cpus_own: float
    """Mean number of CPUs that this process kept busy."""


class Report(TypedDict):
    """The measurements of one command; parts that did not run are left out."""

    calls: NotRequired[CallsReport]
    """The calls that carried the load."""
    load: NotRequired[LoadReport]
    """The load and its own lateness."""
    relay: NotRequired[RelayReport]
    """The media server."""
    sink: NotRequired[SinkReport]
    """The received streams."""
    machine: Machine
    """The machine's load during the measurement."""
