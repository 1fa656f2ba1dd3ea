//! `[calls]`: the telephone calls.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{Field, Measured, Name, Part, Problems, Span, Whole, format_duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

use super::domain::Domains;
use super::workload::WorkloadKind;
use crate::quantities::{ArrivalRate, Positive};

/// T1 of RFC 3261, section 17.1.1.1.
const T1_NS: i64 = 500_000_000;

/// How long a phone waits for the answer to each copy of a message until it sends the next one; after the last it gives
/// up, 32 s after the first (RFC 3261, section 17.1.1.2).
pub const ANSWER_WAITS_NS: [i64; 7] = [
    T1_NS,
    2 * T1_NS,
    4 * T1_NS,
    8 * T1_NS,
    16 * T1_NS,
    32 * T1_NS,
    T1_NS,
];

pub(crate) const STREAMS_MAX: i64 = 100_000;
const SAMPLE: i64 = 4;

/// The calls of a host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Calls {
    /// The number of streams of voice through the media server from the beginning to the end, at random phases; may be
    /// 0.
    pub streams: u32,
    /// The rate of calls, which come evenly spaced from the start; `None`: no calls come.
    pub rate: Option<ArrivalRate>,
    /// The time that the voice of a call lasts; at least 1 if calls come.
    pub hold_ns: i64,
    /// The codec of the voice.
    pub codec: Codec,
    /// The domain through which voice goes.
    pub media_server: usize,
    /// The part of the calls whose voice, a stream each way, goes through the media server. The voice of the others
    /// goes from phone to phone.
    pub through_media_server: f64,
    /// The domain that sets calls up, if there is one.
    pub signalling_server: Option<usize>,
    /// The domain that the signalling server asks, if there is one.
    pub call_control: Option<usize>,
    /// The packets of one stream in `sample` are kept to compute its voice quality.
    pub sample: u32,
    /// The playout buffer of the phones, through which sampled streams are heard.
    pub playout: Playout,
    /// The rate of registrations, which come evenly spaced; `None`: no registrations come.
    pub registrations: Option<ArrivalRate>,
    /// The transport of registrations.
    pub registration_transport: Transport,
    /// The acceptance limits of the voice.
    pub acceptance: Acceptance,
}

/// The transport of registrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// A packet, and another one that answers it.
    #[default]
    Udp,
    /// One connection of TCP for all registrations, made before the run; the answer is acknowledged.
    Tcp,
    /// A connection of TCP for each registration, made and ended: nine segments.
    TcpEach,
}

/// A playout buffer, which holds packets until their turn to be heard comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Playout {
    /// Each packet is played as long after the first one as it was spoken.
    #[default]
    Fixed,
    /// The depth follows the delay from one talk spurt to the next.
    Adaptive,
}

/// A codec of voice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Codec {
    /// 64 kbit/s: 160 bytes of voice every 20 ms, with RTP's header 172 bytes of UDP payload.
    #[default]
    #[serde(rename = "G.711")]
    G711,
}

impl Codec {
    /// The time from one packet to the next, in nanoseconds.
    pub fn interval_ns(self) -> i64 {
        match self {
            Codec::G711 => 20_000_000,
        }
    }

    /// The UDP payload of a packet, in bytes.
    pub fn payload_bytes(self) -> u32 {
        match self {
            Codec::G711 => 172,
        }
    }
}

/// The limits within which voice is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Acceptance {
    /// The part of all packets that is lost is smaller than this.
    pub loss: f64,
    /// The delay of 99.9 % of the packets is shorter than this.
    pub delay_ns: i64,
    /// The mean opinion score is at least this.
    pub mos: f64,
    /// The part of the calls, and of the registrations, that fail is smaller than this.
    pub failed: f64,
}

impl Default for Acceptance {
    fn default() -> Self {
        Acceptance {
            loss: 0.01,
            delay_ns: 150_000_000,
            mos: 4.0,
            failed: 0.01,
        }
    }
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
    /// The number of streams of voice through the media server, from the beginning to the end.
    #[schemars(extend("default" = 0))]
    pub streams: Field<Whole<1, STREAMS_MAX>>,
    /// The rate of calls, which come evenly spaced: "4 /s". Each is set up, if there is a signalling server, and is
    /// then a stream of voice each way.
    pub rate: Field<Measured<ArrivalRate>>,
    /// The time that the voice of a call lasts.
    pub hold: Field<Positive>,
    /// The codec of the voice.
    #[schemars(extend("default" = Codec::default()))]
    pub codec: Field<Codec>,
    /// The domain through which voice goes.
    pub media_server: Field<Name>,
    /// The part of the calls whose voice goes through the media server. The voice of the others goes from
    /// phone to phone.
    #[schemars(extend("default" = 1.0))]
    pub through_media_server: Field<Part>,
    /// The domain that sets calls up; voice begins when a call is set up. Without one, voice begins at once.
    pub signalling_server: Field<Name>,
    /// The domain that the signalling server asks.
    pub call_control: Field<Name>,
    /// The rate of registrations, which come evenly spaced: "1400 /s". Each is a message to the signalling server and
    /// its answer.
    pub registrations: Field<Measured<ArrivalRate>>,
    /// The transport of registrations: UDP, one connection of TCP for all, or one for each.
    #[schemars(extend("default" = Transport::default()))]
    pub registration_transport: Field<Transport>,
    /// One stream in this many is sampled: its packets are kept to compute its voice quality.
    #[schemars(extend("default" = SAMPLE))]
    pub sample: Field<Whole<1, STREAMS_MAX>>,
    /// The playout buffer of the phones, through which sampled streams are heard: fixed, or adaptive, which follows the
    /// delay from one talk spurt to the next. Both begin with a depth of three packets.
    #[schemars(extend("default" = Playout::default()))]
    pub playout: Field<Playout>,
    /// The acceptance limits of the voice.
    pub acceptance: Field<AcceptanceTable>,
}

/// The limits within which voice is good enough.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub(crate) struct AcceptanceTable {
    /// The part of the packets that is lost is smaller than this.
    #[schemars(extend("default" = "1 %"))]
    pub loss: Field<Part>,
    /// The delay of 99.9 % of the packets, one way, is shorter than this.
    #[schemars(extend("default" = format_duration(Acceptance::default().delay_ns)))]
    pub delay: Field<Positive>,
    /// The mean opinion score of every sampled call is at least this.
    #[schemars(extend("default" = Acceptance::default().mos))]
    pub mos: Field<Score>,
    /// The part of the calls that the phones give up is smaller than this, and so is that of the registrations.
    #[schemars(extend("default" = "1 %"))]
    pub failed: Field<Part>,
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

/// The calls; `None` if there are none, or something that they need is missing.
pub(crate) fn resolve(
    calls: &Field<CallsTable>,
    domains: &Domains<'_>,
    problems: &Problems,
) -> Option<Calls> {
    let (table, span) = calls.given()?;
    if table
        .media_server
        .is_missing("media-server", span, problems)
    {
        let help = "name a domain whose workload is of the kind \"media-server\"";
        problems.report(span, "`[calls]` has no `media-server`", help);
    }
    let server = |field, wanted| server(field, wanted, domains, problems);
    let media_server = server(&table.media_server, WorkloadKind::MediaServer);
    let signalling_server = server(&table.signalling_server, WorkloadKind::SignallingServer);
    let call_control = server(&table.call_control, WorkloadKind::CallControl);
    signalling_is_there(table, problems);
    some_come(table, span, problems);
    Some(Calls {
        streams: table.streams.or(0) as u32,
        rate: table.rate.value.map(|rate| rate.0),
        hold_ns: table.hold.ns_or(1),
        codec: table.codec.value.unwrap_or_default(),
        media_server: media_server?,
        through_media_server: table.through_media_server.value.map_or(1.0, |part| part.0),
        signalling_server,
        call_control,
        registrations: table.registrations.value.map(|rate| rate.0),
        registration_transport: table.registration_transport.value.unwrap_or_default(),
        sample: table.sample.or(SAMPLE) as u32,
        playout: table.playout.value.unwrap_or_default(),
        acceptance: acceptance(table.acceptance.value.as_ref()),
    })
}

/// The domain that the field names, whose workload must be of the kind that is wanted.
fn server(
    field: &Field<Name>,
    wanted: WorkloadKind,
    domains: &Domains<'_>,
    problems: &Problems,
) -> Option<usize> {
    let (domain, span) = domains.find(field, problems)?;
    if domains.kind(domain) != Some(wanted) {
        problems.report(
            span,
            format!("{} is not a {}", domains.title(domain), wanted.name()),
            format!("give it workload = {{ kind = {:?} }}", wanted.name()),
        );
    }
    Some(domain)
}

/// Reports keys that need a signalling server where there is none, and a transport without registrations.
fn signalling_is_there(table: &CallsTable, problems: &Problems) {
    const HELP: &str = "write signalling-server = \"signalling\", say";
    if table.signalling_server.is_absent() {
        if let Some(span) = table.call_control.span {
            let message =
                "the signalling server asks `call-control`, but there is no signalling server";
            problems.report(span, message, HELP);
        }
        for (key, span) in [
            ("registrations", table.registrations.span),
            ("registration-transport", table.registration_transport.span),
        ] {
            if let Some(span) = span {
                let message = format!("`{key}` needs a signalling server, but there is none");
                problems.report(span, message, HELP);
            }
        }
    }
    if let Some(span) = table.registration_transport.span
        && table.registrations.is_absent()
    {
        let message = "`registration-transport` has no effect without `registrations`";
        problems.report(span, message, "write registrations = \"100 /s\", say");
    }
}

/// Limits that are not given are the default ones.
fn acceptance(table: Option<&AcceptanceTable>) -> Acceptance {
    let default = Acceptance::default();
    table.map_or(default, |table| Acceptance {
        loss: table.loss.value.map_or(default.loss, |part| part.0),
        delay_ns: table.delay.ns_or(default.delay_ns),
        mos: table.mos.value.map_or(default.mos, |score| score.0),
        failed: table.failed.value.map_or(default.failed, |part| part.0),
    })
}

/// Reports calls without any load: streams, calls or registrations; and calls that lack a rate or a hold time.
fn some_come(table: &CallsTable, span: Span, problems: &Problems) {
    let keys = [
        (
            "rate",
            table.rate.is_absent(),
            table.rate.is_missing("rate", span, problems),
        ),
        (
            "hold",
            table.hold.is_absent(),
            table.hold.is_missing("hold", span, problems),
        ),
    ];
    if keys.iter().all(|(_, absent, _)| *absent) {
        if !table.registrations.is_absent() {
            return;
        }
        if table.streams.is_missing("streams", span, problems) {
            let message = "`[calls]` has neither `streams`, nor a `rate`, nor `registrations`";
            let help = "write streams = 800, or rate = \"4 /s\" and hold = \"30 s\", say";
            problems.report(span, message, help);
        }
        return;
    }
    for (key, _, missing) in keys {
        if missing {
            let help = "write both: rate = \"4 /s\" and hold = \"30 s\", say";
            problems.report(span, format!("`[calls]` has no `{key}`"), help);
        }
    }
}
