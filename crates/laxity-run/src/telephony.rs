//! The results for calls and packets.

use crate::distribution::{Quantiles, ratio};
use laxity_host::{Acceptance, Playout};
use schemars::JsonSchema;
use serde::Serialize;

/// Calls and voice, and what was lost where.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Telephony {
    /// Voice, end to end.
    pub voice: Voice,
    /// Where packets were dropped, signalling included.
    pub drops: Drops,
    /// Calls that were set up; null without a signalling server.
    pub calls: Option<CallsResult>,
    /// The network cards, in the order of the host file.
    pub nics: Vec<NicResult>,
    /// The domains whose packets go through the driver domain, in the order of the host file.
    pub interfaces: Vec<InterfaceResult>,
    /// Users who registered; null if none were to.
    pub registrations: Option<RegistrationsResult>,
    /// The protected domains, in the order of the host file.
    pub protection: Vec<ProtectionResult>,
    /// What was heard; null until the sampled streams are scored.
    pub quality: Option<Quality>,
    /// The playout buffer through which the sampled streams are heard.
    pub playout: Playout,
    /// What is good enough for this host.
    pub limits: Acceptance,
    /// Whether it was: every limit held, that of the opinion score if there is `quality`. Null in what the simulator
    /// itself gives.
    pub accepted: Option<bool>,
}

/// What was heard of the sampled streams, or of pieces of 30 s of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Quality {
    /// Streams that were scored.
    pub scored: u64,
    /// PESQ (ITU-T P.862) of 4 or better.
    pub toll_quality: u64,
    /// Streams that had nothing to hear; their PESQ is 0.
    pub dead: u64,
    /// PESQ.
    pub pesq: Scores,
    /// The same as a mean opinion score (ITU-T P.862.1).
    pub mos_lqo: Scores,
    /// The E-model's mean opinion score (ITU-T G.107), from delay and loss.
    pub e_model_mos: Scores,
    /// Median delay from the mouth to the ear, ns: the time to fill a packet, that on the way, and that in the playout
    /// buffer. Null if nothing arrived.
    pub delay_ns: Option<u64>,
    /// The part of their packets that arrived, and too late to be heard. Null in results of versions that did not
    /// count it.
    pub late_ratio: Option<f64>,
    /// The one of the lowest PESQ.
    pub worst: WorstCall,
}

/// Each is that of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Scores {
    /// The lowest.
    pub min: f64,
    /// 5 % are at most this.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// The highest.
    pub max: f64,
}

/// What was heard of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorstCall {
    /// Its number.
    pub stream: u64,
    /// Its call; null for one of the streams that are always there.
    pub call: Option<u64>,
    /// PESQ.
    pub pesq: f64,
    /// The E-model's mean opinion score.
    pub e_model_mos: f64,
    /// The part of its packets that did not arrive …
    pub loss_ratio: f64,
    /// … or arrived too late to be heard.
    pub late_ratio: f64,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NicResult {
    /// Name in the host file.
    pub name: String,
    /// Packets that came.
    pub received: u64,
    /// Packets that left.
    pub sent: u64,
    /// Interrupts that it raised.
    pub interrupts: u64,
}

/// What a domain sent towards the driver domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InterfaceResult {
    /// Its name.
    pub domain: String,
    /// Packets that it wanted to send.
    pub offered: u64,
    /// Packets that it dropped itself, as its queue was full.
    pub dropped_in_guest: u64,
    /// Packets that the driver domain took and dropped, as its card's queue was full.
    pub dropped_at_card: u64,
    /// Packets that left the card, or went on to another guest or a disk. The others were on their way at the end.
    pub sent: u64,
}

/// Voice, end to end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Voice {
    /// Streams that there were.
    pub streams: u64,
    /// At most so many at a time.
    pub streams_most: u64,
    /// Packets that phones sent.
    pub sent: u64,
    /// Packets that phones got.
    pub received: u64,
    /// Packets that were dropped on the way.
    pub lost: u64,
    /// Packets that were neither when the run ended.
    pub on_their_way: u64,
    /// `lost` / (`lost` + `received`); 0 where there are none.
    pub loss_ratio: f64,
    /// One way, from phone to phone.
    pub delay_ns: Quantiles,
    /// RFC 3550's interarrival jitter, of each stream at its end: the mean.
    pub jitter_ns_mean: Option<f64>,
    /// The greatest.
    pub jitter_ns_max: Option<i64>,
    /// The stream that lost the greatest part of its packets.
    pub worst: Option<WorstStream>,
}

/// A stream that did badly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct WorstStream {
    /// Its number, from 0, in the order of their beginning.
    pub stream: u64,
    /// Its call; null for one of the streams that are always there.
    pub call: Option<u64>,
    /// Packets that it lost …
    pub lost: u32,
    /// … and that arrived.
    pub received: u32,
}

impl WorstStream {
    /// The part of its packets that it lost.
    pub fn loss(&self) -> f64 {
        ratio(u64::from(self.lost), u64::from(self.lost + self.received))
    }
}

/// Calls that were to be set up.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CallsResult {
    /// Calls that began.
    pub offered: u64,
    /// Calls that were set up.
    pub answered: u64,
    /// Calls that were given up.
    pub failed: u64,
    /// Messages that phones sent again.
    pub retransmissions: u64,
    /// From the first message to the answer.
    pub setup_ns: Quantiles,
}

/// Users who were to be registered.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RegistrationsResult {
    /// Users who began to register.
    pub offered: u64,
    /// Users who were told that they are registered.
    pub succeeded: u64,
    /// Users who gave up. What is missing had not ended when the run did.
    pub failed: u64,
    /// Messages and segments that phones sent again.
    pub retransmissions: u64,
    /// From the first packet to the answer.
    pub delay_ns: Quantiles,
}

/// Where packets were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Drops {
    /// The wire towards a card was full, and so was the switch before it.
    pub wire: u64,
    /// A network card's ring was full: its driver did not come to take packets out.
    pub nic_receive: u64,
    /// A guest's ring and netback's queue before it were full: the guest did not come to take packets out.
    pub netback: u64,
    /// A socket's buffer was full: no thread came to take packets out.
    pub socket: u64,
    /// A guest's ring towards netback and the queue before it were full: netback did not come.
    pub netfront: u64,
    /// A network card's queue towards the wire was full.
    pub nic_transmit: u64,
    /// More output of a protected domain waited for its checkpoint than may.
    pub held: u64,
    /// The host of a protected domain had died.
    pub failure: u64,
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.wire
            + self.nic_receive
            + self.netback
            + self.socket
            + self.netfront
            + self.nic_transmit
            + self.held
            + self.failure
    }
}

/// What protection did to a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProtectionResult {
    /// Its name.
    pub domain: String,
    /// Checkpoints that began.
    pub checkpoints: u64,
    /// Checkpoints that the standby acknowledged.
    pub acknowledged: u64,
    /// Pages that they had.
    pub pages: u64,
    /// The domain stood still for so long for them.
    pub paused_ns: i64,
    /// From the beginning of a checkpoint to its acknowledgement, at most.
    pub acknowledged_after_ns_max: i64,
    /// Packets that waited for a checkpoint; those that were dropped, as too many did, are not among them.
    pub held: u64,
    /// At most so many at a time.
    pub held_most: u64,
    /// Held packets that were released.
    pub released: u64,
    /// Held packets that were lost with the host.
    pub lost: u64,
    /// Held packets that still waited when the run ended.
    pub waiting: u64,
    /// From the failure to the domain's running on; null without a failure.
    pub outage_ns: Option<i64>,
    /// Registrations whose answer had left, and that the domain did not know when it ran on.
    pub forgotten: u64,
}
