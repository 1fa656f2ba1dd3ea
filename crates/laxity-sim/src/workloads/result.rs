//! What a run says about calls and packets.

use super::packet::Drops;
use super::phones::{CallsResult, RegistrationsResult, Voice};
use super::protect::ProtectionResult;
use laxity_host::Acceptance;
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
    /// Users who registered; null if none were to.
    pub registrations: Option<RegistrationsResult>,
    /// Of the protected domains, in the order of the host file.
    pub protection: Vec<ProtectionResult>,
    /// In the order of the host file.
    pub nics: Vec<NicResult>,
    /// Of the domains whose packets go through the driver domain, in the order of the host file.
    pub interfaces: Vec<InterfaceResult>,
    /// What was heard; null until the sampled streams are scored.
    pub quality: Option<Quality>,
    /// What is good enough for this host.
    pub limits: Acceptance,
    /// Whether it was: every limit held, that of the opinion score if there is `quality`. Null in what the simulator
    /// itself gives.
    pub accepted: Option<bool>,
}

/// What was heard of the sampled streams, or of pieces of 30 s of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Quality {
    /// So many were scored.
    pub scored: u64,
    /// PESQ (ITU-T P.862) of 4 or better.
    pub toll_quality: u64,
    /// So many had nothing to hear; their PESQ is 0.
    pub dead: u64,
    /// PESQ.
    pub pesq: Scores,
    /// The same as a mean opinion score (ITU-T P.862.1).
    pub mos_lqo: Scores,
    /// The E-model's mean opinion score (ITU-T G.107), from delay and loss.
    pub e_model_mos: Scores,
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
    /// As in the host file.
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
    /// Of these it dropped so many itself, as its queue was full.
    pub dropped_in_guest: u64,
    /// So many the driver domain dropped, which had taken them: its card's queue was full.
    pub dropped_at_card: u64,
    /// So many left the card, or went on to another guest or a disk. What is missing was on its way at the end.
    pub sent: u64,
}
