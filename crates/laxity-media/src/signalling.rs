//! What SIP says of the payload types of RTP: descriptions of sessions (SDP, RFC 8866) in its messages. Pure.

use sdp_types::{Media, Session};
use std::net::{IpAddr, SocketAddr};

/// Payload types whose meaning each call negotiates.
pub const DYNAMIC: std::ops::RangeInclusive<u8> = 96..=127;

/// What is known of the payload types that are negotiated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PayloadTypes {
    /// A bit for each that is Opus; bit 0 is payload type 96.
    opus: u32,
    /// A bit for each that has another meaning.
    other: u32,
}

impl PayloadTypes {
    /// These payload types are Opus; nothing is known of the others. `None` if one of them cannot be.
    pub fn of_opus(payload_types: &[u8]) -> Option<PayloadTypes> {
        let mut known = PayloadTypes::default();
        for &payload_type in payload_types {
            known.opus |= bit(payload_type)?;
        }
        Some(known)
    }

    /// Whether the payload type is Opus.
    pub fn is_opus(self, payload_type: u8) -> bool {
        bit(payload_type).is_some_and(|bit| self.opus & bit != 0)
    }

    /// Whether the payload type could be anything.
    pub fn is_unknown(self, payload_type: u8) -> bool {
        bit(payload_type).is_some_and(|bit| (self.opus | self.other) & bit == 0)
    }

    /// What is known here, and from `others` what is not.
    #[must_use]
    pub fn or(self, others: PayloadTypes) -> PayloadTypes {
        PayloadTypes {
            opus: self.opus | others.opus & !self.other,
            other: self.other | others.other & !self.opus,
        }
    }
}

fn bit(payload_type: u8) -> Option<u32> {
    DYNAMIC
        .contains(&payload_type)
        .then(|| 1 << (payload_type - DYNAMIC.start()))
}

/// The addresses at which the sender of a SIP message wants to receive audio, and the payload types there; nothing if
/// the octets are no SIP message with a description.
pub fn described(datagram: &[u8]) -> Vec<(SocketAddr, PayloadTypes)> {
    let line = datagram.split(|&octet| octet == b'\r').next();
    let is_sip = |line: &[u8]| line.starts_with(b"SIP/2.0 ") || line.ends_with(b" SIP/2.0");
    if !line.is_some_and(is_sip) {
        return Vec::new();
    }
    let body = datagram.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(Ok(session)) = body.map(|body| Session::parse(&datagram[body + 4..])) else {
        return Vec::new();
    };
    let is_audio = |media: &&Media| media.media == "audio" && media.port != 0;
    let audio = session.medias.iter().filter(is_audio);
    let described = audio.filter_map(|media| {
        let connection = media.connections.first().or(session.connection.as_ref())?;
        let address: IpAddr = connection.connection_address.parse().ok()?;
        Some((SocketAddr::new(address, media.port), payload_types(media)))
    });
    described.collect()
}

/// The payload types that have an `a=rtpmap:TYPE NAME/RATE`.
fn payload_types(media: &Media) -> PayloadTypes {
    let mut known = PayloadTypes::default();
    for attribute in &media.attributes {
        let Some(("rtpmap", value)) = attribute
            .value
            .as_deref()
            .map(|value| (attribute.attribute.as_str(), value))
        else {
            continue;
        };
        let Some((payload_type, encoding)) = value.split_once(' ') else {
            continue;
        };
        let Some(bit) = payload_type.parse().ok().and_then(bit) else {
            continue;
        };
        let name = encoding.trim_start().split('/').next().unwrap_or_default();
        if name.eq_ignore_ascii_case("opus") {
            known.opus |= bit;
        } else {
            known.other |= bit;
        }
    }
    known
}
