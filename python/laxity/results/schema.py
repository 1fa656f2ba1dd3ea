"""The result of a run, as its JSON Schema has it (`laxity schema result`).

Written by tools/build/python_types.py. Do not edit.
"""

# ruff: noqa: D209

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the bytes of a run on the emulated machine depend on, beside the host file: its time
    counts instructions. Each part is the beginning of the SHA-256 of what it names. Machines that
    differ in one may take another path."""

    fingerprint: str
    """All parts together."""
    qemu: str
    """The emulator, behind its version."""
    firmware: str
    """What the emulator runs before the kernel."""
    xen: str | None = None
    """The hypervisor, as the compiler here made it; `null` where Linux is the hypervisor."""
    kernel: str
    """Linux, of the host (dom0 on Xen) and of guests that have one."""
    root: str
    """The rest of the host, from the distribution's packages."""
    programs: str
    """The programs and scripts of Laxity on the host and in guests, as the compilers here made
    them."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Times from when a VCPU could run to when it did: its scheduling latency."""

    count: int
    """How often."""
    total_ns: int
    """How long in all."""
    max_ns: int
    """The longest."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Quantiles, by nearest rank: each is a value that occurred. Null where there are no values."""

    p50: int | None = None
    """Median."""
    p99: int | None = None
    """99 % are at most this."""
    max: int | None = None
    """The greatest."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task's jobs."""

    name: str
    """Name in the host file."""
    jobs: int
    """Jobs whose deadline fell within the run."""
    missed: int
    """Those of them that were not complete at their deadline."""
    miss_ratio: float
    """`missed` / `jobs`; 0 where there are none."""
    unfinished: int
    """Those of `missed` that were not even complete when the run ended. They stand in the two
    distributions with the time they had by then, which is less than it would have become."""
    response_ns: Distribution
    """From arrival to completion, of all jobs."""
    lateness_ns: Distribution
    """From deadline to completion, of the missed jobs."""
    relative_error: float | None = None
    """The medians and 99 % quantiles may be longer than they were by this part of the response
    time; left out if they are exact. They are not for tasks with so many jobs that not each one's
    response time was kept."""


@dataclass(frozen=True, kw_only=True)
class DomainResult:
    """A domain's jobs and CPU time."""

    name: str
    """Name in the host file."""
    jobs: int
    """Jobs whose deadline fell within the run."""
    missed: int
    """Those of them that were not complete at their deadline."""
    miss_ratio: float
    """`missed` / `jobs`; 0 where there are none."""
    cpu_ns: int
    """CPU time of its VCPUs, the scheduler's own costs not counted."""
    reserved: float | None = None
    """CPUs that the budgets of its VCPUs reserve: 0.5 is half of one. Null under a policy that
    knows no budgets."""
    stalled_ns: int
    """What of it went into fetching what was not in a cache."""
    cache_misses: int
    """Lines of a cache that were fetched."""
    waits: Waits | None = None
    """How long its VCPUs waited for a CPU, each time that they could run and did not; null where
    that was not measured."""
    tasks: tuple[TaskResult, ...]
    """In the order of the host file."""


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Quantiles of many times, to three digits; mean, least and greatest are exact. Null where
    there are no values."""

    count: int
    """How many there are."""
    mean: float | None = None
    """Their mean."""
    min: int | None = None
    """The least."""
    p25: int | None = None
    """A quarter is at most this."""
    p50: int | None = None
    """Median."""
    p75: int | None = None
    """Three quarters are at most this."""
    p99: int | None = None
    """99 % are at most this."""
    p999: int | None = None
    """99.9 % are at most this."""
    max: int | None = None
    """The greatest."""


@dataclass(frozen=True, kw_only=True)
class WorstStream:
    """A stream that did badly."""

    stream: int
    """Its number, from 0, in the order of their beginning."""
    call: int | None = None
    """Its call; null for one of the streams that are always there."""
    lost: int
    """Packets that it lost …"""
    received: int
    """… and that arrived."""


@dataclass(frozen=True, kw_only=True)
class Voice:
    """Voice, end to end."""

    streams: int
    """Streams that there were."""
    streams_most: int
    """At most so many at a time."""
    sent: int
    """Packets that phones sent."""
    received: int
    """Packets that phones got."""
    lost: int
    """Packets that were dropped on the way."""
    on_their_way: int
    """Packets that were neither when the run ended."""
    loss_ratio: float
    """`lost` / (`lost` + `received`); 0 where there are none."""
    delay_ns: Quantiles
    """One way, from phone to phone."""
    jitter_ns_mean: float | None = None
    """RFC 3550's interarrival jitter, of each stream at its end: the mean."""
    jitter_ns_max: int | None = None
    """The greatest."""
    worst: WorstStream | None = None
    """The stream that lost the greatest part of its packets."""


@dataclass(frozen=True, kw_only=True)
class Drops:
    """Where packets were dropped."""

    wire: int
    """The wire towards a card was full, and so was the switch before it."""
    nic_receive: int
    """A network card's ring was full: its driver did not come to take packets out."""
    netback: int
    """A guest's ring and netback's queue before it were full: the guest did not come to take
    packets out."""
    socket: int
    """A socket's buffer was full: no thread came to take packets out."""
    netfront: int
    """A guest's ring towards netback and the queue before it were full: netback did not come."""
    nic_transmit: int
    """A network card's queue towards the wire was full."""
    held: int
    """More output of a protected domain waited for its checkpoint than may."""
    failure: int
    """The host of a protected domain had died."""


@dataclass(frozen=True, kw_only=True)
class CallsResult:
    """Calls that were to be set up."""

    offered: int
    """Calls that began."""
    answered: int
    """Calls that were set up."""
    failed: int
    """Calls that were given up."""
    retransmissions: int
    """Messages that phones sent again."""
    setup_ns: Quantiles
    """From the first message to the answer."""


@dataclass(frozen=True, kw_only=True)
class NicResult:
    """A network card."""

    name: str
    """Name in the host file."""
    received: int
    """Packets that came."""
    sent: int
    """Packets that left."""
    interrupts: int
    """Interrupts that it raised."""


@dataclass(frozen=True, kw_only=True)
class InterfaceResult:
    """What a domain sent towards the driver domain."""

    domain: str
    """Its name."""
    offered: int
    """Packets that it wanted to send."""
    dropped_in_guest: int
    """Packets that it dropped itself, as its queue was full."""
    dropped_at_card: int
    """Packets that the driver domain took and dropped, as its card's queue was full."""
    sent: int
    """Packets that left the card, or went on to another guest or a disk. The others were on their
    way at the end."""


@dataclass(frozen=True, kw_only=True)
class RegistrationsResult:
    """Users who were to be registered."""

    offered: int
    """Users who began to register."""
    succeeded: int
    """Users who were told that they are registered."""
    failed: int
    """Users who gave up. What is missing had not ended when the run did."""
    retransmissions: int
    """Messages and segments that phones sent again."""
    delay_ns: Quantiles
    """From the first packet to the answer."""


@dataclass(frozen=True, kw_only=True)
class ProtectionResult:
    """What protection did to a domain."""

    domain: str
    """Its name."""
    checkpoints: int
    """Checkpoints that began."""
    acknowledged: int
    """Checkpoints that the standby acknowledged."""
    pages: int
    """Pages that they had."""
    paused_ns: int
    """The domain stood still for so long for them."""
    acknowledged_after_ns_max: int
    """From the beginning of a checkpoint to its acknowledgement, at most."""
    held: int
    """Packets that waited for a checkpoint; those that were dropped, as too many did, are not among
    them."""
    held_most: int
    """At most so many at a time."""
    released: int
    """Held packets that were released."""
    lost: int
    """Held packets that were lost with the host."""
    waiting: int
    """Held packets that still waited when the run ended."""
    outage_ns: int | None = None
    """From the failure to the domain's running on; null without a failure."""
    forgotten: int
    """Registrations whose answer had left, and that the domain did not know when it ran on."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Each is that of a stream."""

    min: float
    """The lowest."""
    p5: float
    """5 % are at most this."""
    p50: float
    """Median."""
    max: float
    """The highest."""


@dataclass(frozen=True, kw_only=True)
class WorstCall:
    """What was heard of a stream."""

    stream: int
    """Its number."""
    call: int | None = None
    """Its call; null for one of the streams that are always there."""
    pesq: float
    """PESQ."""
    e_model_mos: float
    """The E-model's mean opinion score."""
    loss_ratio: float
    """The part of its packets that did not arrive …"""
    late_ratio: float
    """… or arrived too late to be heard."""


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What was heard of the sampled streams, or of pieces of 30 s of them."""

    scored: int
    """Streams that were scored."""
    toll_quality: int
    """PESQ (ITU-T P.862) of 4 or better."""
    dead: int
    """Streams that had nothing to hear; their PESQ is 0."""
    pesq: Scores
    """PESQ."""
    mos_lqo: Scores
    """The same as a mean opinion score (ITU-T P.862.1)."""
    e_model_mos: Scores
    """The E-model's mean opinion score (ITU-T G.107), from delay and loss."""
    delay_ns: int | None = None
    """Median delay from the mouth to the ear, ns: the time to fill a packet, that on the way, and
    that in the playout buffer. Null if nothing arrived."""
    late_ratio: float | None = None
    """The part of their packets that arrived, and too late to be heard. Null in results of versions
    that did not count it."""
    worst: WorstCall
    """The one of the lowest PESQ."""


Playout = Literal["fixed", "adaptive"]
"""A playout buffer, which holds packets until their turn to be heard comes."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """The limits within which voice is good enough."""

    loss: float
    """The part of all packets that is lost is smaller than this."""
    delay_ns: int
    """The delay of 99.9 % of the packets is shorter than this."""
    mos: float
    """The mean opinion score is at least this."""
    failed: float
    """The part of the calls, and of the registrations, that fail is smaller than this."""


@dataclass(frozen=True, kw_only=True)
class Telephony:
    """Calls and voice, and what was lost where."""

    voice: Voice
    """Voice, end to end."""
    drops: Drops
    """Where packets were dropped, signalling included."""
    calls: CallsResult | None = None
    """Calls that were set up; null without a signalling server."""
    nics: tuple[NicResult, ...]
    """The network cards, in the order of the host file."""
    interfaces: tuple[InterfaceResult, ...]
    """The domains whose packets go through the driver domain, in the order of the host file."""
    registrations: RegistrationsResult | None = None
    """Users who registered; null if none were to."""
    protection: tuple[ProtectionResult, ...]
    """The protected domains, in the order of the host file."""
    quality: Quality | None = None
    """What was heard; null until the sampled streams are scored."""
    playout: Playout
    """The playout buffer through which the sampled streams are heard."""
    limits: Acceptance
    """What is good enough for this host."""
    accepted: bool | None = None
    """Whether it was: every limit held, that of the opinion score if there is `quality`. Null in
    what the simulator itself gives."""


@dataclass(frozen=True, kw_only=True)
class AgreementResult:
    """An agreement and what came of it. Rates are means over the run, of frames from their Ethernet
    header on."""

    domain: str
    """The name of the domain."""
    minimum_bit_s: int
    """What it was to get whenever it asked for it, in bit/s."""
    maximum_bit_s: int
    """What it was never to exceed, in bit/s."""
    offered_bit_s: int
    """What it wanted to send, in bit/s."""
    sent_bit_s: int
    """What left the host, in bit/s."""
    is_held: bool
    """Whether it got at least 99 % of its minimum, or of what it wanted to send if that is less."""


@dataclass(frozen=True, kw_only=True)
class NetworkResult:
    """The packets of a host whose domains send and that has no calls."""

    drops: Drops
    """Where packets were dropped."""
    nics: tuple[NicResult, ...]
    """The network cards, in the order of the host file."""
    interfaces: tuple[InterfaceResult, ...]
    """The domains whose packets go through the driver domain, in the order of the host file."""
    agreements: tuple[AgreementResult, ...]
    """The agreements about the link, in the order of the host file; empty without a link."""


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """What the scheduler itself cost. What was not measured is null."""

    schedule_calls: int | None = None
    """Decisions."""
    context_switches: int | None = None
    """Decisions that changed what runs on the CPU, idle included."""
    schedule_ns: int | None = None
    """Time that decisions took."""
    context_switch_ns: int | None = None
    """Time that context switches took."""
    loss_ratio: float | None = None
    """Both times, of the time of all CPUs."""


ProfileOf = Literal["scheduling", "packets"]
"""What a profile gives the costs of."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A profile of costs. Its numbers are those of one machine."""

    of: ProfileOf
    """What the costs are of."""
    name: str
    """The profile's name in host files."""
    source: str
    """Where the numbers come from: measured, fitted or estimated, and on which machine."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What the run cost whoever ran it."""

    events: int
    """Things that happened: arrivals, completions, timers, decisions."""
    wall_ns: int
    """Time on the wall. The only part of a result that two runs do not share."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run of a host found."""

    policy: str
    """The policy that scheduled the VCPUs."""
    seed: int
    """Where all randomness came from: the same host file and seed give the same run."""
    substrate: str
    """What ran it: `sim`, `xen` or `linux`."""
    machine: Machine | None = None
    """The emulated machine that Xen ran on; null elsewhere."""
    duration_ns: int
    """How long the run lasted, ns of the host's time."""
    measured_duration_ns: int | None = None
    """The same as measured by those who sent its calls, where real packets were sent; null
    elsewhere. A run that differs by more than 1 % is none."""
    domains: tuple[DomainResult, ...]
    """In the order of the host file."""
    telephony: Telephony | None = None
    """Calls and voice; null without calls."""
    network: NetworkResult | None = None
    """Packets of a host without calls; null with calls, of which `telephony` tells, and without
    packets."""
    overhead: Overhead
    """What the scheduler itself cost."""
    profiles: tuple[Profile, ...]
    """The profiles whose costs a simulated run used: its verdict is that of the machines they come
    from. Empty of a run that was measured, and where the host file gives all costs itself."""
    engine: Engine
    """What the run cost whoever ran it."""
