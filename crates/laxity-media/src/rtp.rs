//! RTP packets that carry G.711 (RFC 3550, section 5.1; RFC 3551, section 4.5.14).

use crate::g711::Law;
use rtp_types::{RtpPacket, RtpPacketBuilder, RtpParseError};
use std::ops::Range;

/// Size of RTP's fixed header, in octets.
pub const HEADER_BYTES: usize = RtpPacket::MIN_RTP_PACKET_LEN;
/// Size of 20 ms of G.711, in octets.
pub const PAYLOAD_BYTES: usize = 160;
/// Size of a packet of the load, in octets: the paper's 172 (section 4).
pub const PACKET_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES;

/// Mask of the payload type in RTP's second octet, beneath the marker bit.
const PAYLOAD_TYPE_MASK: u8 = 0x7F;

/// Fields of an RTP packet's header, and the place of its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Marks the beginning of a talk spurt.
    pub marker: bool,
    /// The law of the payload.
    pub law: Law,
    /// Number of the packet in its stream, modulo 2^16.
    pub sequence: u16,
    /// Time of the first sample, in samples modulo 2^32.
    pub timestamp: u32,
    /// Identifier of the stream's source.
    pub ssrc: u32,
    /// Range of the payload in the packet, without contributing sources, extension and padding.
    pub payload: Range<usize>,
}

/// Reasons why octets are no G.711 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The packet is shorter than its header says.
    #[error("is truncated: {actual} octets where the header asks for at least {expected}")]
    Truncated {
        /// Octets that the header asks for.
        expected: usize,
        /// Octets that exist.
        actual: usize,
    },
    /// The version of RTP is not 2.
    #[error("has RTP version {0}; version 2 was expected")]
    Version(u8),
    /// The header announces padding, and the last octet says that there is none.
    #[error("has the padding bit set, but its padding has 0 octets")]
    Padding,
    /// The payload type is not G.711.
    #[error("has payload type {0}; 0 (PCMU) or 8 (PCMA) was expected")]
    PayloadType(u8),
}

/// Parses the header of a G.711 packet. Contributing sources, extension and padding must fit
/// exactly.
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

/// The RTP packet with any payload type in `octets`.
pub(crate) fn packet(octets: &[u8]) -> Result<RtpPacket<'_>, Malformed> {
    RtpPacket::parse(octets).map_err(|error| match error {
        RtpParseError::UnsupportedVersion(version) => Malformed::Version(version),
        RtpParseError::Truncated { expected, actual } => Malformed::Truncated { expected, actual },
        RtpParseError::PaddingInvalid(_) => Malformed::Padding,
    })
}

/// Writes `header` to the beginning of `packet`; the payload is everything after it.
pub fn write_header(header: &Header, packet: &mut [u8; PACKET_BYTES]) {
    RtpPacketBuilder::<&[u8], &[u8]>::new()
        .marker_bit(header.marker)
        .payload_type(header.law.payload_type())
        .sequence_number(header.sequence)
        .timestamp(header.timestamp)
        .ssrc(header.ssrc)
        .write_into_unchecked(&mut packet[..HEADER_BYTES]);
}

/// Sets the payload type of a packet accepted by [`parse`] to that of `law`.
pub fn set_law(packet: &mut [u8], law: Law) {
    packet[1] = packet[1] & !PAYLOAD_TYPE_MASK | law.payload_type();
}
