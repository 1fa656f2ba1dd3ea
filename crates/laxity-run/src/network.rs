//! The results for the packets of a host without calls.

use crate::telephony::{Drops, InterfaceResult, NicResult};
use schemars::JsonSchema;
use serde::Serialize;

/// The packets of a host whose domains send and that has no calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NetworkResult {
    /// Where packets were dropped.
    pub drops: Drops,
    /// The network cards, in the order of the host file.
    pub nics: Vec<NicResult>,
    /// The domains whose packets go through the driver domain, in the order of the host file.
    pub interfaces: Vec<InterfaceResult>,
    /// The agreements about the link, in the order of the host file; empty without a link.
    pub agreements: Vec<AgreementResult>,
}

/// An agreement and what came of it. Rates are means over the run, of frames from their Ethernet header on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgreementResult {
    /// The name of the domain.
    pub domain: String,
    /// What it was to get whenever it asked for it, in bit/s.
    pub minimum_bit_s: i64,
    /// What it was never to exceed, in bit/s.
    pub maximum_bit_s: i64,
    /// What it wanted to send, in bit/s.
    pub offered_bit_s: i64,
    /// What left the host, in bit/s.
    pub sent_bit_s: i64,
    /// Whether it got at least 99 % of its minimum, or of what it wanted to send if that is less.
    pub is_held: bool,
}

impl AgreementResult {
    /// The part of a minimum that may be missing, as the daemon has it.
    const TOLERANCE_PARTS: i64 = 100;

    /// An agreement from what was counted of its domain's frames of `frame_bytes` in `duration_ns`.
    pub fn new(
        agreement: &laxity_host::LinkAgreement,
        interface: &InterfaceResult,
        frame_bytes: u32,
        duration_ns: i64,
    ) -> AgreementResult {
        let rate_bit_s = |frames: u64| {
            let bits = i128::from(frames) * i128::from(frame_bytes) * 8;
            (bits * 1_000_000_000 / i128::from(duration_ns)) as i64
        };
        let (offered_bit_s, sent_bit_s) =
            (rate_bit_s(interface.offered), rate_bit_s(interface.sent));
        let asked_bit_s = offered_bit_s.min(agreement.minimum_bit_s);
        AgreementResult {
            domain: interface.domain.clone(),
            minimum_bit_s: agreement.minimum_bit_s,
            maximum_bit_s: agreement.maximum_bit_s,
            offered_bit_s,
            sent_bit_s,
            is_held: sent_bit_s >= asked_bit_s - asked_bit_s / AgreementResult::TOLERANCE_PARTS,
        }
    }
}
