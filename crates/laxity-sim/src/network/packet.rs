//! The packets that travel through the host.

/// A packet, or something that takes a packet's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub kind: Kind,
    /// Number of its stream ([`Kind::Voice`]), its sender's domain ([`Kind::Bulk`]) or its call, from 0.
    pub of: u64,
    /// Its place in the stream; what a call is about to do.
    pub number: u32,
    /// How often the phone had sent it before; of calls and registrations.
    pub copy: u8,
    /// When it was sent.
    pub sent_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// RTP, towards the media server or on from it.
    Voice,
    /// A message of a call, from a phone to the signalling server or from there to a phone.
    Signalling,
    /// The signalling server's question to call control.
    Question,
    /// The answer.
    Answer,
    /// The signalling server's disk operation.
    Disk,
    /// It is done.
    DiskDone,
    /// What a sender sends; of a domain.
    Bulk,
    /// A segment of TCP without a message, from a phone to the signalling server or from there to a phone.
    Segment,
    /// The allocator's turn: not a packet, but work that comes like one.
    Look,
}

/// UDP, IP, Ethernet: what a payload has around it in a frame.
const HEADERS_BYTES: u32 = 8 + 20 + 14;
/// Preamble, checksum and gap: what a frame has around it on the wire.
pub const WIRE_BYTES: u32 = 24;
/// What the headers of a TCP segment without a message have more than UDP's.
const SEGMENT_BYTES: u32 = 24;
/// About the size of a SIP message, with its session description.
const MESSAGE_BYTES: u32 = 600;

impl Packet {
    /// From the Ethernet header on; not of [`Kind::Bulk`], whose sender says it.
    pub fn frame_bytes(&self, voice_payload_bytes: u32) -> u32 {
        HEADERS_BYTES
            + match self.kind {
                Kind::Voice => voice_payload_bytes,
                Kind::Segment => SEGMENT_BYTES,
                _ => MESSAGE_BYTES,
            }
    }
}
