//! RTP packets that carry G.711 (RFC 3550, section 5.1; RFC 3551, section 4.5.14).

use crate::g711::Law;
use rtp_types::{RtpPacket, RtpPacketBuilder, RtpParseError};
use std::ops::Range;

/// RTP's fixed header, in octets.
pub const HEADER_BYTES: usize = RtpPacket::MIN_RTP_PACKET_LEN;
/// G.711 of 20 ms, in octets.
pub const PAYLOAD_BYTES: usize = 160;
/// A packet of the load, in octets: the paper's 172 (section 4).
pub const PACKET_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES;

/// Where RTP's second octet has the payload type, beneath the marker bit.
const PAYLOAD_TYPE_MASK: u8 = 0x7F;

/// What stands in an RTP packet's header, and where its payload is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Begins a talk spurt.
    pub marker: bool,
    /// The law of the payload.
    pub law: Law,
    /// Of the packet within its stream, modulo 2^16.
    pub sequence: u16,
    /// Of the first sample, in samples modulo 2^32.
    pub timestamp: u32,
    /// The stream's source.
    pub ssrc: u32,
    /// The payload's octets within the packet: without contributing sources, extension and padding.
    pub payload: Range<usize>,
}

/// Why octets are not a G.711 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its header says.
    #[error("is truncated: {actual} octets where the header asks for at least {expected}")]
    Truncated {
        /// Octets that the header asks for.
        expected: usize,
        /// Octets there are.
        actual: usize,
    },
    /// Of another version of RTP, or not RTP.
    #[error("has RTP version {0}; version 2 was expected")]
    Version(u8),
    /// The last octet says that there is no padding, the header that there is.
    #[error("says that it has padding, and then that the padding has no octets")]
    Padding,
    /// Not G.711.
    #[error("has payload type {0}; 0 (PCMU) or 8 (PCMA) was expected")]
    PayloadType(u8),
}

/// The header of the G.711 packet in `octets`.
///
/// # Errors
///
/// What makes it none. Nothing is guessed: contributing sources, extension and padding must fit.
pub fn parse(octets: &[u8]) -> Result<Header, Malformed> {
    let packet = packet(octets)?;
    let law = Law::of_payload_type(packet.payload_type())
        .ok_or(Malformed::PayloadType(packet.payload_type()))?;
    let begin = packet.payload_offset();
    Ok(Header {
        marker: packet.marker_bit(),
        law,
        sequence: packet.sequence_number(),
        timestamp: packet.timestamp(),
        ssrc: packet.ssrc(),
        payload: begin..begin + packet.payload_len(),
    })
}

/// The RTP packet of whatever payload in `octets`.
pub(crate) fn packet(octets: &[u8]) -> Result<RtpPacket<'_>, Malformed> {
    RtpPacket::parse(octets).map_err(|error| match error {
        RtpParseError::UnsupportedVersion(version) => Malformed::Version(version),
        RtpParseError::Truncated { expected, actual } => Malformed::Truncated { expected, actual },
        RtpParseError::PaddingInvalid(_) => Malformed::Padding,
    })
}

/// Writes `header` (but for its `payload`, which is all that follows) to the beginning of `packet`.
pub fn write_header(header: &Header, packet: &mut [u8; PACKET_BYTES]) {
    RtpPacketBuilder::<&[u8], &[u8]>::new()
        .marker_bit(header.marker)
        .payload_type(header.law.payload_type())
        .sequence_number(header.sequence)
        .timestamp(header.timestamp)
        .ssrc(header.ssrc)
        .write_into_unchecked(&mut packet[..HEADER_BYTES]);
}

/// Changes the payload type of a packet that [`parse`] took to that of `law`.
pub fn set_law(packet: &mut [u8], law: Law) {
    packet[1] = packet[1] & !PAYLOAD_TYPE_MASK | law.payload_type();
}
