"""A resolved host, as its JSON Schema has it: complete, in base units.

Written by tools/build/python_types.py. Do not edit.
"""

# ruff: noqa: D209

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Policy = Literal[
    "deferrable",
    "periodic",
    "polling",
    "sporadic",
    "credit",
    "sedf",
    "s-base",
    "s-a",
    "s-ab",
    "s-al",
    "s-all",
    "s-aill",
    "s-allc",
    "null",
    "rtds",
    "credit2",
    "fifo",
    "deadline",
    "eevdf",
    "arinc653",
    "lending",
    "s-abll",
    "global-deferrable",
    "global-periodic",
    "global-polling",
    "global-sporadic",
    "global-sedf",
]
"""The scheduling policies of `policy/`."""


class Settings(TypedDict):
    """Settings of a whole instance (`struct laxity_settings`). The default is each one's standard
    value."""

    quantum_ns: int
    """The longest time for which a decision holds; budgets are replenished at its multiples. 0 is
    event-driven: the scheduler decides only when something changes."""
    time_slice_ns: int
    """How long a VCPU runs before the next one of its class."""
    tick_ns: int
    """The time between two charges to the running VCPU."""
    accounting_ns: int
    """The time between two distributions of credits; a multiple of `tick`."""
    accounting_phase_ns: int
    """A time at which credits are distributed, and a tick comes. Other distributions and ticks come
    at whole steps from it."""
    jiffy_ns: int
    """The time between two timer interrupts of a Linux host, at which the kernel checks whether a
    VCPU has used up its slice or budget; 4 ms is HZ = 250. 0 is exact, as with the kernel's HRTICK;
    `eevdf` refuses 0."""
    base_slice_ns: int
    """How long a VCPU runs before the next one under Linux's fair class (base_slice_ns). 0 is
    Linux's own choice: 0.75 ms, and as much again for each doubling of the CPUs, up to 8."""
    run_queue_cpus: int
    """How many CPUs with consecutive numbers share a run queue of Xen's credit2: as many as a core
    has threads (credit2_runqueue=core), or a socket has CPUs (socket). 0 is all."""


class Costs(TypedDict):
    """The costs of scheduling, charged to the CPU that schedules."""

    schedule: dict[str, int]
    """The cost of every decision: one call of `schedule`."""
    context_switch: dict[str, int]
    """The additional cost of every decision that changes the running VCPU."""


class Parameters(TypedDict):
    """Parameters of a domain and its VCPUs (`struct laxity_parameters`). The default is each one's
    standard value."""

    budget_ns: int
    """The CPU time that each VCPU gets in every period; at most the period."""
    period_ns: int
    """The time between two replenishments of the budget."""
    laxity_ns: int
    """How long a VCPU of the domain may wait for a CPU once it has work: the scheduling latency
    that the domain asks for, as a hint. By default none. A domain that has one is real-time."""
    priority: int
    """The VCPU's rank among those of its CPU; 1 is the highest. By default rate-monotonic: the
    shorter the period, the higher."""
    extratime: bool
    """Whether a VCPU without budget runs when the CPU would be idle."""
    weight: int
    """The domain's share, relative to the others'."""
    cap_percent: int
    """The most CPU time that the domain gets, in percent of one CPU; 0 is no cap. At most 100 for
    each VCPU."""
    rt_priority: int
    """The priority of the domain's VCPUs under Linux's SCHED_FIFO; 99 is the highest."""
    quota_ns: int
    """The most CPU time that the domain gets in every `quota-period` under Linux's cpu.max, all
    VCPUs together; 0 is no limit."""
    quota_period_ns: int
    """The time between two replenishments of the quota."""
    quota_burst_ns: int
    """The most unused quota that is kept for later periods (cpu.max.burst)."""
    phase_ns: int
    """A time at which a period of the domain's VCPUs begins, under models that use phases. Other
    periods follow and precede it without gaps."""
    credit_ns: int
    """The credits with which each VCPU of the domain begins under Xen's credit2."""
    reclaim: bool
    """Whether the domain's VCPUs use bandwidth that others leave unused, under Linux's
    SCHED_DEADLINE (SCHED_FLAG_RECLAIM)."""


class Vcpu(TypedDict):
    """A virtual CPU."""

    cpu: int
    """The CPU whose queue the VCPU starts in. Per-CPU policies keep it there."""
    affinity: list[int]
    """The CPUs that the VCPU may run on, ascending. They include `cpu`."""
    soft_affinity: list[int]
    """The CPUs that the VCPU prefers, ascending; empty: none."""


GuestScheduler = Literal["rate-monotonic", "edf"]
"""The order in which a guest runs its ready tasks. Preemptive, per VCPU."""


class Task(TypedDict):
    """A periodic task of a guest."""

    name: str
    """Unique in its domain."""
    vcpu: int
    """The VCPU on which the task runs."""
    cost_ns: int
    """The CPU time of every job; at least 1, at most the deadline."""
    period_ns: int
    """The time between arrivals; at least 1."""
    deadline_ns: int
    """The deadline, relative to the arrival; at least 1, at most the period."""
    offset_ns: int
    """The arrival of the first job."""
    jitter_ns: int
    """A job is released up to this much after its arrival, uniformly; response time and deadline
    count from the arrival. Below the period."""


class Server(TypedDict):
    """A pool of threads that take packets from their sockets."""

    threads: int
    """The number of threads; at least 1. At most as many as VCPUs work at a time."""
    work: dict[str, int]
    """The CPU time for each packet, its reception and sending not counted."""
    own_work: dict[str, int] | None
    """`work`, if the file gives it. Real servers are not told to work where it is missing."""
    transcode: bool
    """Whether a media server transcodes voice, which is part of `work`."""
    work_back: NotRequired[dict[str, int]]
    """The CPU time for each packet of every second stream, if it is not `work`: those that come
    from the other party of each call."""
    processing: NotRequired[list[str]]
    """The keys of what a media server does with voice besides, which is part of `work`. Real
    servers do none of it."""


class BurstsWorkload(TypedDict):
    """Computes, with pauses, on every VCPU."""

    kind: Literal["bursts"]

    run_ns: int
    """The CPU time of each computation; at least 1."""
    idle_ns: int
    """The time from the end of a computation to the start of the next; at least 1."""


class DriverWorkload(TypedDict):
    """Drives the network cards that no other domain has, and runs netback and the bridge."""

    kind: Literal["driver"]


class MediaServerWorkload(Server):
    """Receives voice, works on each packet and sends it on."""

    kind: Literal["media-server"]


class SignallingServerWorkload(Server):
    """Sets calls up and tears them down."""

    kind: Literal["signalling-server"]


class CallControlWorkload(Server):
    """Answers the signalling server's question about every call."""

    kind: Literal["call-control"]


class SenderWorkload(TypedDict):
    """Sends packets that nobody answers."""

    kind: Literal["sender"]

    rate_bit_s: int
    """The rate at which it sends; at least 1000."""
    frame_bytes: int
    """The size of a packet, from its Ethernet header on; 64 to 9014."""


Workload = (
    BurstsWorkload
    | DriverWorkload
    | MediaServerWorkload
    | SignallingServerWorkload
    | CallControlWorkload
    | SenderWorkload
)
"""What a domain does besides its tasks and an endless loop. A domain that has one has no tasks.
    """


class Tick(TypedDict):
    """The timer of a guest's kernel, on each VCPU: the rules of the policies, "Ticks of guests"."""

    period_ns: int
    """The time from one tick to the next; at least 2."""
    cost_ns: int
    """The CPU time of each tick; at least 1, below the period."""
    offset_ns: int
    """The time of the first tick; below the period."""
    min_delta_ns: int
    """The least time ahead for which the kernel sets its timer; below the period, 0 for any."""
    wake_ns: int
    """The CPU time in which the kernel wakes a task for a job, and puts it to sleep in the end;
    below the period."""


class Domain(TypedDict):
    """A virtual machine."""

    name: str
    """The name, unique in the host."""
    parameters: Parameters
    """The scheduling parameters of every VCPU. What the host's policy uses is valid. Budget and
    period are 0 where the file gives none and the policy needs none."""
    vcpus: list[Vcpu]
    """The virtual CPUs; at least one."""
    guest: GuestScheduler
    """The order in which the guest runs its ready tasks."""
    tasks: list[Task]
    """The tasks, in the order of the file. May be empty."""
    cpu_bound: bool
    """Whether each VCPU also has an endless loop that runs when no task is ready."""
    workload: Workload | None
    """What the domain does besides its tasks and an endless loop."""
    working_set_bytes: int
    """The size of what each of the domain's VCPUs uses of a cache; may be 0."""
    tick: Tick | None
    """The timer interrupts of the guest's kernel; `None`: it has none."""
    helper_of: int | None
    """The number of the domain whose helper it is: a thread of the host beside that domain's VCPUs,
    with one task. `None`: it is a domain of the file."""


class Cache(TypedDict):
    """A cache that some CPUs share."""

    cpus: list[int]
    """The CPUs, ascending; a CPU has at most one cache."""
    bytes: int
    """The size; at least 64."""
    refill_kib_ns: int
    """The time to load 1 KiB into the cache from memory."""


class Nic(TypedDict):
    """A network interface card."""

    name: str
    """Unique in the host."""
    rate_bit_s: int
    """The rate, each way; at least 1000."""
    domain: int
    """The domain whose kernel drives the card. Any but the driver domain has it by VMM bypass."""
    ring: int
    """The number of packets that wait in the card, in each direction, before it drops some; at
    least 1."""
    coalesce_ns: int
    """The card interrupts this long after the first packet of which its driver does not know; 0 is
    at once."""
    coalesce_packets: int
    """The card also interrupts after this many packets, if that comes first; at least 1."""


class NetworkCosts(TypedDict):
    """CPU time of each step of packet processing."""

    interrupt: dict[str, int]
    """Handling an interrupt or an event, up to the first packet."""
    receive: dict[str, int]
    """Receiving a packet from a card, up to the bridge or the IP layer."""
    transmit: dict[str, int]
    """Sending a packet to a card."""
    netback_receive: dict[str, int]
    """Netback: passing a packet to a guest."""
    netback_transmit: dict[str, int]
    """Netback: taking a packet from a guest, and the bridge."""
    netfront_receive: dict[str, int]
    """Netfront: receiving a packet from netback, up to the IP layer."""
    netfront_transmit: dict[str, int]
    """Netfront: passing a packet to netback."""
    socket_receive: dict[str, int]
    """IP, UDP and the socket on reception, and waking a thread."""
    wake_up_latency: dict[str, int]
    """How long an idle thread takes to wake up when a packet has come to its socket. This takes no
    CPU time."""
    socket_send: dict[str, int]
    """IP, UDP and the socket on sending, including the system call."""
    after_send: dict[str, int]
    """A thread's work once its packet has left: the rest of the system call, and a look for the
    next packet."""
    relay: dict[str, int]
    """A media server's work on a packet, unless the domain says otherwise."""
    transcode: dict[str, int]
    """Transcoding a packet, on top of the media server's other work."""
    signalling: dict[str, int]
    """Signalling's and call control's work on a message, unless the domain says otherwise."""
    disk: dict[str, int]
    """The driver domain's part of a disk operation."""
    disk_latency: dict[str, int]
    """The latency of the disk itself."""
    look: dict[str, int]
    """Reading the counters of a domain's network backend and setting its rate, by the allocator."""
    decode_g711: NotRequired[dict[str, int]]
    """Decoding a packet of G.711, for a media server with `transcode-to` or `conference`."""
    encode_g711: NotRequired[dict[str, int]]
    """Encoding a packet of G.711, for a media server with `transcode-to` or `conference`."""
    decode_g722: NotRequired[dict[str, int]]
    """Decoding a packet of G.722, for a media server with `transcode-to`."""
    encode_g722: NotRequired[dict[str, int]]
    """Encoding a packet of G.722, for a media server with `transcode-to`."""
    decode_opus: NotRequired[dict[str, int]]
    """Decoding a packet of Opus, for a media server with `transcode-to`."""
    encode_opus: NotRequired[dict[str, int]]
    """Encoding a packet of Opus, for a media server with `transcode-to`."""
    decode_g729: NotRequired[dict[str, int]]
    """Decoding a packet of G.729, for a media server with `transcode-to`."""
    encode_g729: NotRequired[dict[str, int]]
    """Encoding a packet of G.729, for a media server with `transcode-to`."""
    srtp: NotRequired[dict[str, int]]
    """Unprotecting a packet of SRTP and protecting it again, for a media server with `srtp`."""
    mix: NotRequired[dict[str, int]]
    """A packet's part in mixing, for a media server with `conference`."""
    record: NotRequired[dict[str, int]]
    """Recording a packet, for a media server with `record`."""


LinkSharing = Literal["weighted", "by-class"]
"""The sharing of a link's rate left after the minima."""


LinkAgreement = TypedDict(
    "LinkAgreement",
    {
        "domain": "int",
        "class": "int",
        "minimum_bit_s": "int",
        "maximum_bit_s": "int",
        "weight": "int",
    },
)
"""The rates agreed with a domain for its sending."""


class Link(TypedDict):
    """The agreements that hold for what the driver domain's cards send."""

    rate_bit_s: int
    """The rate that is divided; at least 1000."""
    period_ns: int
    """The period of the allocator; 1 ms to 10 s."""
    sharing: LinkSharing
    """The sharing of the rate left after the minima."""
    agreements: list[LinkAgreement]
    """The agreements; at least one. Their minima fit the link."""


class Failure(TypedDict):
    """The failure of the host of the protected domains."""

    at_ns: int
    """The time of the failure; at most the end of the run."""
    detection_ns: int
    """The silence after which the standby takes over; at least 3 ms."""
    activation_ns: int
    """The time from the takeover until the domains run on the standby."""


ProtectMode = Literal["net", "no-net"]
"""Whether the output of a protected domain waits for its checkpoint."""


class Protected(TypedDict):
    """A domain that is protected."""

    domain: int
    """The domain: a server whose packets go through the driver domain. No other entry has it."""
    mode: ProtectMode
    """Whether the domain's output waits."""
    interval_ns: int
    """The time from the beginning of one checkpoint to that of the next, at least; 1 ms to 60 s."""
    pages: int
    """The number of pages that change in every epoch; at most `pages_most`."""
    pages_per_packet: int
    """The number of pages that change with each packet that the domain handles."""
    pages_most: int
    """The number of pages that the domain has, and that can change; at least 1."""
    held: int
    """The greatest number of its packets that are held; at least 1."""


class Protect(TypedDict):
    """The protected domains, what a checkpoint costs, and the failure of the host."""

    pause_ns: int
    """The time for which each checkpoint pauses a protected domain."""
    page_pause_ns: int
    """The additional pause for each changed page."""
    checkpoint_ns: int
    """The driver domain's CPU time for each checkpoint."""
    page_ns: int
    """The driver domain's additional CPU time for each page."""
    rate_bit_s: int
    """The rate of the link to the standby; at least 1000."""
    acknowledgement_ns: int
    """The time from the last byte of a checkpoint to its acknowledgement."""
    failure: Failure | None
    """The failure of the protected domains' host; `None`: it does not fail."""
    domains: list[Protected]
    """The protected domains; at least one."""


class Network(TypedDict):
    """Network cards, the CPU time for packets, and the agreements and the protection that apply to
    sent packets."""

    nics: list[Nic]
    """The cards; at least one."""
    driver: int | None
    """The driver domain, if there is one. There is one, unless every server has a card of its own.
    """
    costs: NetworkCosts
    """The CPU time for packets."""
    native: bool
    """Whether servers are processes of the host's own kernel."""
    link: Link | None
    """Agreements about the driver domain's cards, if there are any."""
    protect: Protect | None
    """Protection by checkpoint, if a domain is protected."""


class ArrivalRate(TypedDict):
    """The rate of arrivals that come evenly spaced, such as calls: 1 an hour to 10,000 a second.
    The base unit makes one an hour, one a minute and one a second whole numbers."""

    millionths_per_hour: int
    """Arrivals in an hour, in millionths; at least 1,000,000."""


Codec = Literal["G.711"]
"""A codec of voice."""


Playout = Literal["fixed", "adaptive"]
"""A playout buffer, which holds packets until their turn to be heard comes."""


Transport = Literal["udp", "tcp", "tcp-each"]
"""The transport of registrations."""


class Acceptance(TypedDict):
    """The limits within which voice is good enough."""

    loss: float
    """The part of all packets that is lost is smaller than this."""
    delay_ns: int
    """The delay of 99.9 % of the packets is shorter than this."""
    mos: float
    """The mean opinion score is at least this."""
    failed: float
    """The part of the calls, and of the registrations, that fail is smaller than this."""


class Calls(TypedDict):
    """The calls of a host."""

    streams: int
    """The number of streams of voice through the media server from the beginning to the end, at
    random phases; may be 0."""
    rate: ArrivalRate | None
    """The rate of calls, which come evenly spaced from the start; `None`: no calls come."""
    hold_ns: int
    """The time that the voice of a call lasts; at least 1 if calls come."""
    codec: Codec
    """The codec of the voice."""
    media_server: int
    """The domain through which voice goes."""
    through_media_server: float
    """The part of the calls whose voice, a stream each way, goes through the media server. The
    voice of the others goes from phone to phone."""
    signalling_server: int | None
    """The domain that sets calls up, if there is one."""
    call_control: int | None
    """The domain that the signalling server asks, if there is one."""
    sample: int
    """The packets of one stream in `sample` are kept to compute its voice quality."""
    playout: Playout
    """The playout buffer of the phones, through which sampled streams are heard."""
    registrations: ArrivalRate | None
    """The rate of registrations, which come evenly spaced; `None`: no registrations come."""
    registration_transport: Transport
    """The transport of registrations."""
    acceptance: Acceptance
    """The acceptance limits of the voice."""


ProfileOf = Literal["scheduling", "packets"]
"""What a profile gives the costs of."""


class Profile(TypedDict):
    """A profile of costs. Its numbers are those of one machine."""

    of: ProfileOf
    """What the costs are of."""
    name: str
    """The profile's name in host files."""
    source: str
    """Where the numbers come from: measured, fitted or estimated, and on which machine."""


class ResolvedHost(TypedDict):
    """A described host: CPUs, a policy, domains with their guests. [`load`](crate::load) makes
    hosts, and checks what the comments of the fields state. Times are nanoseconds."""

    duration_ns: int
    """The duration of a run; at least 1."""
    seed: int
    """The seed of all randomness."""
    cpus: int
    """The number of physical CPUs; at least 1."""
    policy: Policy
    """The policy that schedules the VCPUs."""
    settings: Settings
    """The policy's instance-wide settings."""
    costs: Costs
    """The costs of scheduling itself."""
    timer_latency_ns: int
    """The time from when a timer of the policy is due to when the policy serves it."""
    domains: list[Domain]
    """The virtual machines, in the order of the file; at least one."""
    caches: list[Cache]
    """The caches. May be empty: a VCPU then loses nothing when it migrates."""
    network: Network | None
    """The network; there if there are calls."""
    calls: Calls | None
    """The telephone calls."""
    profiles: list[Profile]
    """The profiles whose costs the host uses. Costs that the file gives itself have none."""
