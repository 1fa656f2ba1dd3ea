//! Telephony as it is written in a host file.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{Duration, Field, Flag, List, Name, Part, Quantity, SECOND_NS, Whole, suggest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::costs::PROFILES;
use super::{Codec, Transport};
use crate::file::{CPUS_MAX, CostChoice, NotNegative, Positive};
use crate::quantities::{Bits, Bytes, Often};

pub(crate) const STREAMS_MAX: i64 = 100_000;
const RING_MAX: i64 = 65_536;
const THREADS_MAX: i64 = 4096;

/// A cache that some CPUs share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { cpus = [0, 1], size = \"4 MiB\" }"
)]
#[schemars(extend("required" = ["cpus", "size"]))]
pub(crate) struct CacheTable {
    /// The numbers of the CPUs.
    #[schemars(extend("minItems" = 1, "uniqueItems" = true))]
    pub cpus: Field<List<Whole<0, { CPUS_MAX - 1 }>>>,
    /// How much it holds.
    pub size: Field<Quantity<Bytes>>,
    /// How long it takes to get a KiB into it from memory: 16 lines of 64 bytes, by default 100 ns
    /// each.
    #[schemars(extend("default" = "1600 ns"))]
    pub refill: Field<NotNegative>,
}

/// What else a guest does.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { kind = \"cpu-bound\" }"
)]
#[schemars(extend("required" = ["kind"]))]
pub(crate) struct WorkloadTable {
    /// The kind of workload.
    pub kind: Field<WorkloadKind>,
    /// Cpu-bound: it computes for so long, and then pauses for `idle`. By default it never pauses.
    pub run: Field<Positive>,
    /// Cpu-bound: the pause.
    pub idle: Field<Positive>,
    /// Servers: how many threads take packets.
    #[schemars(extend("default" = 4))]
    pub threads: Field<Whole<1, THREADS_MAX>>,
    /// Servers: CPU time for each packet, reception and sending not counted. By default what the
    /// network's profile says.
    pub work: Field<CostChoice>,
    /// Sender: how much it sends.
    pub rate: Field<Quantity<Bits>>,
    /// Sender: how large its packets are, from the Ethernet header on; 64 to 9014 bytes.
    #[schemars(extend("default" = "1514 B"))]
    pub size: Field<Quantity<Bytes>>,
    /// Media server: packets are decoded and coded again, at the cost that the network's profile
    /// says.
    #[schemars(extend("default" = false))]
    pub transcode: Field<Flag>,
}

/// The kinds of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkloadKind {
    /// A loop on every VCPU, when no task is ready. It never ends, or pauses now and then.
    CpuBound,
    /// The driver domain: it has the network cards, netback and the bridge.
    Driver,
    /// A pool of threads that receive voice, work on each packet and send it on.
    MediaServer,
    /// A pool of threads that set calls up and tear them down.
    SignallingServer,
    /// A pool of threads that the signalling server asks about every call.
    CallControl,
    /// A thread that sends packets which nobody answers.
    Sender,
}

impl WorkloadKind {
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::CpuBound => "cpu-bound",
            WorkloadKind::Driver => "driver",
            WorkloadKind::MediaServer => "media-server",
            WorkloadKind::SignallingServer => "signalling-server",
            WorkloadKind::CallControl => "call-control",
            WorkloadKind::Sender => "sender",
        }
    }
}

/// A network interface card.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct NicTable {
    /// Unique in the host.
    pub name: Field<Name>,
    /// How much goes through it, each way.
    #[schemars(extend("default" = "1 Gbit/s"))]
    pub rate: Field<Quantity<Bits>>,
    /// Who drives it: by default the driver domain. A server that drives its own card receives and
    /// sends without the driver domain (VMM bypass).
    pub domain: Field<Name>,
    /// How many packets wait in it, in each direction, before it drops some.
    #[schemars(extend("default" = 256))]
    pub ring: Field<Whole<1, RING_MAX>>,
    /// Interrupt coalescing. By default every packet interrupts.
    pub coalesce: Field<CoalesceTable>,
}

/// When a network card interrupts: so long after the first packet, or after so many, whichever comes
/// first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { time = \"40 us\", packets = 3 }"
)]
#[schemars(extend("required" = ["time", "packets"]))]
pub(crate) struct CoalesceTable {
    /// So long after the first packet.
    pub time: Field<Duration<1, SECOND_NS>>,
    /// After so many packets.
    pub packets: Field<Whole<1, RING_MAX>>,
}

/// The calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["media-server"]))]
pub(crate) struct CallsTable {
    /// So many streams of voice through the media server, from the beginning to the end.
    #[schemars(extend("default" = 0))]
    pub streams: Field<Whole<1, STREAMS_MAX>>,
    /// How many calls come, evenly: "4 /s". Each is set up, if there is a signalling server, and is then a
    /// stream of voice each way.
    pub rate: Field<Quantity<Often>>,
    /// How long a call's voice lasts.
    pub hold: Field<Positive>,
    /// How voice is coded.
    #[schemars(extend("default" = "G.711"))]
    pub codec: Field<Codec>,
    /// The domain through which voice goes.
    pub media_server: Field<Name>,
    /// The part of the calls whose voice goes through the media server; that of the others goes from
    /// phone to phone.
    #[schemars(extend("default" = 1.0))]
    pub through_media_server: Field<Part>,
    /// The domain that sets calls up; voice begins when it has. By default at once.
    pub signalling_server: Field<Name>,
    /// The domain that the signalling server asks.
    pub call_control: Field<Name>,
    /// How many users register, evenly: "1400 /s". Each is a message to the signalling server and its
    /// answer.
    pub registrations: Field<Quantity<Often>>,
    /// What registrations travel over: UDP, one connection of TCP for all, or one for each.
    #[schemars(extend("default" = "udp"))]
    pub registration_transport: Field<Transport>,
    /// Of every so many streams the packets of one are kept, for its voice quality.
    #[schemars(extend("default" = 4))]
    pub sample: Field<Whole<1, STREAMS_MAX>>,
    /// What is good enough.
    pub acceptance: Field<AcceptanceTable>,
}

/// What is good enough.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub(crate) struct AcceptanceTable {
    /// A smaller part of the packets is lost.
    #[schemars(extend("default" = "1 %"))]
    pub loss: Field<Part>,
    /// 99.9 % of the packets come sooner, one way.
    #[schemars(extend("default" = "150 ms"))]
    pub delay: Field<Positive>,
    /// Every sampled call's mean opinion score is at least this.
    #[schemars(extend("default" = 4.0))]
    pub mos: Field<Score>,
}

/// A mean opinion score: 1 to 4.5.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score(pub f64);

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScoreVisitor;

        impl Visitor<'_> for ScoreVisitor {
            type Value = Score;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a mean opinion score, such as 4.0")
            }

            fn visit_f64<E: Error>(self, score: f64) -> Result<Score, E> {
                if (1.0..=4.5).contains(&score) {
                    return Ok(Score(score));
                }
                Err(E::custom(format!(
                    "is out of bounds: {score}\nopinion scores go from 1 (bad) to 4.5; 4 is toll quality"
                )))
            }

            fn visit_i64<E: Error>(self, score: i64) -> Result<Score, E> {
                self.visit_f64(score as f64)
            }
        }

        deserializer.deserialize_any(ScoreVisitor)
    }
}

impl JsonSchema for Score {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Score".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 1, "maximum": 4.5 })
    }
}

/// `network`: a profile's name, or the costs themselves.
#[derive(Debug)]
pub(crate) enum NetworkChoice {
    Profile(&'static str),
    Given(Box<NetworkTable>),
}

/// What is done for packets, in CPU time. What is not given costs nothing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub(crate) struct NetworkTable {
    /// Taking an interrupt or an event, up to the first packet.
    pub interrupt: Field<CostChoice>,
    /// A packet out of a card, up to the bridge or the IP layer.
    pub receive: Field<CostChoice>,
    /// A packet into a card.
    pub transmit: Field<CostChoice>,
    /// Netback, a packet towards a guest.
    pub netback_receive: Field<CostChoice>,
    /// Netback, a packet from a guest, and the bridge.
    pub netback_transmit: Field<CostChoice>,
    /// Netfront, a packet from netback, up to the IP layer.
    pub netfront_receive: Field<CostChoice>,
    /// Netfront, a packet to netback.
    pub netfront_transmit: Field<CostChoice>,
    /// IP, UDP and the socket, inwards, and waking a thread.
    pub socket_receive: Field<CostChoice>,
    /// The same outwards, the system call included.
    pub socket_send: Field<CostChoice>,
    /// A media server's work on a packet.
    pub relay: Field<CostChoice>,
    /// On top, if it transcodes.
    pub transcode: Field<CostChoice>,
    /// Signalling's and call control's work on a message.
    pub signalling: Field<CostChoice>,
    /// The driver domain's part of a disk operation.
    pub disk: Field<CostChoice>,
    /// How long the disk itself takes.
    pub disk_latency: Field<CostChoice>,
    /// The allocator's look at a domain's network backend, and setting its rate.
    pub look: Field<CostChoice>,
}

impl<'de> Deserialize<'de> for NetworkChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NetworkVisitor;

        impl<'de> Visitor<'de> for NetworkVisitor {
            type Value = NetworkChoice;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a profile's name or a table, such as { receive = \"4 us\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<NetworkChoice, E> {
                match PROFILES.into_iter().find(|name| *name == text) {
                    Some(name) => Ok(NetworkChoice::Profile(name)),
                    None => Err(E::custom(suggest::unknown(text, PROFILES.into_iter()))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<NetworkChoice, A::Error> {
                Box::deserialize(MapAccessDeserializer::new(entries)).map(NetworkChoice::Given)
            }
        }

        deserializer.deserialize_any(NetworkVisitor)
    }
}

impl JsonSchema for NetworkChoice {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NetworkChoice".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<NetworkTable>();
        json_schema!({ "anyOf": [{ "enum": PROFILES }, table] })
    }
}
