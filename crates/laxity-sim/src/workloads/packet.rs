//! What travels through the host.

/// A packet, or something that takes a packet's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub kind: Kind,
    /// Of a stream ([`Kind::Voice`]) or a call, from 0.
    pub of: u64,
    /// Its place in the stream; what a call is about to do.
    pub number: u32,
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
/// Of a TCP segment without a message: what its headers have more than UDP's.
const SEGMENT_BYTES: u32 = 24;
/// Of a SIP message, with its session description; about.
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

/// Where packets were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
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
