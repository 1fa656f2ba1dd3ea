//! Telephony in a host: caches, network cards, what packets cost, who serves them, the calls.

pub(crate) mod costs;
pub(crate) mod file;
pub(crate) mod link;
pub(crate) mod protect;
pub(crate) mod resolve;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use link::{Link, LinkAgreement, LinkSharing};
pub use protect::{Failure, PAGE_BYTES, Protect, ProtectMode, Protected};

use crate::model::Cost;

/// A cache that some CPUs share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// Ascending; a CPU has at most one cache.
    pub cpus: Vec<u32>,
    /// Its size; at least 64.
    pub bytes: u64,
    /// How long it takes to get a KiB into it from memory.
    pub refill_kib_ns: i64,
}

/// What a domain does besides its tasks and an endless loop. A domain that has one has no tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// Computes, with pauses, on every VCPU.
    Bursts {
        /// CPU time of each computation; at least 1.
        run_ns: i64,
        /// From its end to the next one's start; at least 1.
        idle_ns: i64,
    },
    /// The driver domain: the network cards that nobody else has, netback and the bridge.
    Driver,
    /// Receives voice, works on each packet and sends it on.
    MediaServer(Server),
    /// Sets calls up and tears them down.
    SignallingServer(Server),
    /// Is asked by the signalling server about every call.
    CallControl(Server),
    /// Sends packets that nobody answers.
    Sender {
        /// What it sends; at least 1000.
        rate_bit_s: i64,
        /// Of a packet, from its Ethernet header on; 64 to 9014.
        frame_bytes: u32,
    },
}

/// A pool of threads that take packets from their sockets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Server {
    /// At least 1. No more of them than VCPUs work at a time.
    pub threads: u32,
    /// CPU time for each packet, its reception and sending not counted.
    pub work: Cost,
    /// The same, if the file says it; without it a real server takes what it takes.
    pub own_work: Option<Cost>,
    /// Whether a media server codes voice anew, which is part of `work`.
    pub transcode: bool,
}

/// Network cards, and what packets cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Network {
    /// At least one.
    pub nics: Vec<Nic>,
    /// The driver domain, if there is one. There is one, unless every server has a card of its own.
    pub driver: Option<usize>,
    /// What packets cost.
    pub costs: NetworkCosts,
    /// What was agreed about the driver domain's cards, if something was.
    pub link: Option<Link>,
    /// Who is protected, if somebody is.
    pub protect: Option<Protect>,
}

/// A network interface card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// Unique in the host.
    pub name: String,
    /// Bits a second, each way; at least 1000.
    pub rate_bit_s: i64,
    /// The domain whose kernel drives it. Not the driver domain: VMM bypass.
    pub domain: usize,
    /// Packets that wait in it, in each direction, before it drops; at least 1.
    pub ring: u32,
    /// It interrupts this long after the first packet of which its driver does not know; 0 is at once …
    pub coalesce_ns: i64,
    /// … or after this many packets, whichever comes first; at least 1.
    pub coalesce_packets: u32,
}

/// CPU time of what is done for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct NetworkCosts {
    /// Taking an interrupt or an event, up to the first packet.
    pub interrupt: Cost,
    /// A packet out of a card, up to the bridge or the IP layer.
    pub receive: Cost,
    /// A packet into a card.
    pub transmit: Cost,
    /// Netback, a packet towards a guest.
    pub netback_receive: Cost,
    /// Netback, a packet from a guest, and the bridge.
    pub netback_transmit: Cost,
    /// Netfront, a packet from netback, up to the IP layer.
    pub netfront_receive: Cost,
    /// Netfront, a packet to netback.
    pub netfront_transmit: Cost,
    /// IP, UDP and the socket, inwards, and waking a thread.
    pub socket_receive: Cost,
    /// The same outwards, the system call included.
    pub socket_send: Cost,
    /// A media server's work on a packet, unless the domain says otherwise.
    pub relay: Cost,
    /// On top, if it transcodes.
    pub transcode: Cost,
    /// Signalling's and call control's work on a message, unless the domain says otherwise.
    pub signalling: Cost,
    /// The driver domain's part of a disk operation.
    pub disk: Cost,
    /// How long the disk itself takes.
    pub disk_latency: Cost,
    /// The allocator's look at a domain's network backend, and setting its rate.
    pub look: Cost,
}

/// The calls of a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calls {
    /// Streams of voice through the media server from the beginning to the end, at random phases; may be 0.
    pub streams: u32,
    /// Calls that come evenly, from the start, in 3600 millionths a second; 0 is none.
    pub rate: i64,
    /// How long they speak; at least 1 if calls come.
    pub hold_ns: i64,
    /// How voice is coded.
    pub codec: Codec,
    /// The domain through which voice goes.
    pub media_server: usize,
    /// The part of the calls whose voice, a stream each way, goes through it; the others' goes from phone to phone.
    pub through_media_server: f64,
    /// The domain that sets calls up, if one is to.
    pub signalling_server: Option<usize>,
    /// The domain that it asks, if one is there.
    pub call_control: Option<usize>,
    /// Of every so many streams, the packets of one are kept, for its voice quality.
    pub sample: u32,
    /// Registrations that come evenly, in 3600 millionths a second; 0 is none.
    pub registrations: i64,
    /// What they travel over.
    pub registration_transport: Transport,
    /// What is good enough.
    pub acceptance: Acceptance,
}

/// What registrations travel over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// A packet, and one that answers it.
    #[default]
    Udp,
    /// One connection of TCP for all, made before: the answer is acknowledged.
    Tcp,
    /// A connection of TCP for each, made and ended: nine segments.
    TcpEach,
}

/// How voice is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Codec {
    /// 64 kbit/s: 160 bytes of voice every 20 ms, with RTP's header 172 bytes of UDP payload.
    #[serde(rename = "G.711")]
    G711,
}

impl Codec {
    /// From one packet to the next.
    pub fn interval_ns(self) -> i64 {
        match self {
            Codec::G711 => 20_000_000,
        }
    }

    /// UDP payload of a packet.
    pub fn payload_bytes(self) -> u32 {
        match self {
            Codec::G711 => 172,
        }
    }
}

/// What is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Acceptance {
    /// A smaller part of all packets is lost.
    pub loss: f64,
    /// A shorter delay than this, of 99.9 % of the packets.
    pub delay_ns: i64,
    /// The mean opinion score is at least this.
    pub mos: f64,
}

impl Default for Acceptance {
    fn default() -> Self {
        Acceptance {
            loss: 0.01,
            delay_ns: 150_000_000,
            mos: 4.0,
        }
    }
}
