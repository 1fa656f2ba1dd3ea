//! Messages between two hosts, and their encoding.
//!
//! A frame, little-endian throughout:
//!
//! ```text
//! length    u32   of all that follows it
//! version   u8    4
//! kind      u8
//! zero      u16
//! sequence  u64   0, 1, 2 … in each direction of a connection
//! payload
//! checksum  u32   CRC-32C of all before it, the length included
//! ```
//!
//! Any bit that is wrong, and any frame that is missing, repeated or out of order, is refused: the
//! connection is closed then, and a new one begins with a greeting.

use thiserror::Error;

use super::checkpoint::{CheckpointId, Header, Part};
use super::settings::Mode;

/// Version of the format.
pub const VERSION: u8 = 4;
/// Most bytes of a part in one frame.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Size of the length, which precedes the rest of a frame.
pub const LENGTH_BYTES: usize = 4;
/// Size of the header before the payload.
const HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;
const ID_BYTES: usize = 16;
/// Limit of terms and numbers in a message. No real count reaches it, and additions to smaller
/// numbers cannot overflow.
pub const COUNTED_MAX: u64 = 1 << 62;
/// Size of the largest frame.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + CHUNK_BYTES_MAX + CHECKSUM_BYTES;

/// A standby's checkpoint, with which it could take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Identity of the last acknowledged checkpoint.
    pub id: CheckpointId,
    /// Whether the standby may take over with it.
    pub armed: bool,
}

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The host holds the guest.
    Primary,
    /// The host follows a primary, or is ready to.
    Standby {
        /// The checkpoint that it holds.
        held: Option<Held>,
        /// Whether it is about to take over, and acknowledges nothing until that is decided.
        claiming: bool,
        /// Whether it failed to make the guest run in its term, in which nobody was ever heard.
        unheard: bool,
    },
}

/// The greeting: the first message of each side on a connection, repeated after the other side's
/// greeting and when its contents change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Number of the virtual machine.
    pub vm: u64,
    /// Mode of protection, which must be the same on both sides.
    pub mode: Mode,
    /// Whether a witness is used, which must be the same on both sides.
    pub witness: bool,
    /// Length of the longest lease, which must be the same on both sides.
    pub lease_ns: i64,
    /// Number of the host.
    pub host: u64,
    /// Number of the process, which no other process has had.
    pub incarnation: u64,
    /// The highest term that the host knows of.
    pub term: u64,
    /// Role of the host.
    pub standing: Standing,
    /// The sender's number of the connection.
    pub connection: u64,
    /// The receiver's number of the connection, once the sender knows it.
    pub answers: Option<u64>,
}

/// The progress of the greetings on a connection.
///
/// A greeting counts only if it answers ours: it was said after both sides had this connection. One that does not
/// may have waited in a connection that was begun long ago, and tell of a time that is over, in which its sender had
/// nothing to take over with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greetings {
    /// Our number of the connection.
    pub connection: u64,
    /// The other side's number of the connection.
    pub answers: Option<u64>,
}

impl Greetings {
    /// The state of a new connection.
    pub fn new(connection: u64) -> Greetings {
        Greetings {
            connection,
            answers: None,
        }
    }

    /// Takes in the other side's greeting. Returns whether ours has to be repeated, and whether the
    /// other side's counts.
    pub fn hear(&mut self, hello: &Hello) -> (bool, bool) {
        let is_new = self.answers.replace(hello.connection) != Some(hello.connection);
        (is_new, hello.answers == Some(self.connection))
    }
}

/// Reasons for rejecting a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The standby has no room for it.
    Full,
    /// The checksum is wrong.
    Corrupt,
}

/// A message of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// The sender's greeting.
    Hello(Hello),
    /// A sign of life.
    Heartbeat,
    /// The beginning of a checkpoint.
    Begin(Header),
    /// The next bytes of a part of the checkpoint.
    Chunk(Part, &'a [u8]),
    /// The end of the checkpoint.
    End {
        /// Identity of the checkpoint.
        id: CheckpointId,
        /// The value of [`Digest`](super::checkpoint::Digest).
        checksum: u32,
    },
    /// The sender has the checkpoint, and will take over only from it or a later one.
    Acknowledge(CheckpointId),
    /// The sender does not have the checkpoint, and never will.
    Reject(CheckpointId, Reason),
    /// The receiver shall take over from the checkpoint now. The sender stays silent for good
    /// unless the receiver declines.
    Handover(CheckpointId),
    /// The receiver shall forget its checkpoints of this term, and greets as its answer.
    Disarm {
        /// Term of the primary.
        term: u64,
    },
    /// Sums of a piece of the sender's disks, since the checkpoint of this identity with all of the
    /// memory began to arrive.
    Sums(CheckpointId, &'a [u8]),
}

/// Errors of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// The length is outside the limits.
    #[error("a frame of {0} bytes: no frame has this length")]
    Length(u64),
    /// The frame has fewer or more bytes than its length says.
    #[error("a frame of {0} bytes of which only {1} arrived")]
    Cut(usize, usize),
    /// The checksum is wrong.
    #[error("a frame with a wrong checksum")]
    Checksum,
    /// The version is not supported.
    #[error(
        "version {0} of the protocol, but this host has {VERSION}: both hosts need the same release"
    )]
    Version(u8),
    /// The sequence number is wrong: a frame is missing or repeated.
    #[error("frame {got} in place of frame {wanted}")]
    Sequence {
        /// Sequence number of the frame.
        got: u64,
        /// Expected sequence number.
        wanted: u64,
    },
    /// The kind or the contents are unknown.
    #[error("a frame of kind {0} with {1} invalid bytes")]
    Meaning(u8, usize),
}

const HELLO: u8 = 1;
const HEARTBEAT: u8 = 2;
const BEGIN: u8 = 3;
const RAM: u8 = 4;
const DEVICE: u8 = 5;
const END: u8 = 6;
const ACKNOWLEDGE: u8 = 7;
const REJECT: u8 = 8;
const HANDOVER: u8 = 9;
const DISARM: u8 = 10;
const DISK: u8 = 11;
const SUMS: u8 = 12;

/// Appends the frame of a message to `out`.
///
/// # Panics
///
/// On a chunk of more than [`CHUNK_BYTES_MAX`], or on as many sums with their identity.
pub fn encode(message: &Message, sequence: u64, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, VERSION, kind(message), 0, 0]);
    out.extend_from_slice(&sequence.to_le_bytes());
    put_payload(message, out);
    let length = out.len() + CHECKSUM_BYTES - LENGTH_BYTES - begin;
    out[begin..begin + LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    let checksum = crc32c::crc32c(&out[begin..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// The number of bytes after the length of a frame.
///
/// # Errors
///
/// If no frame is so short or so long.
pub fn rest_bytes(length: [u8; LENGTH_BYTES]) -> Result<usize, Refused> {
    let rest = u32::from_le_bytes(length);
    let limits = HEADER_BYTES + CHECKSUM_BYTES - LENGTH_BYTES..=FRAME_BYTES_MAX - LENGTH_BYTES;
    usize::try_from(rest)
        .ok()
        .filter(|rest| limits.contains(rest))
        .ok_or(Refused::Length(rest.into()))
}

/// The message of a complete frame, length included, with the expected sequence number.
///
/// # Errors
///
/// Whatever is wrong with it.
pub fn decode(frame: &[u8], sequence: u64) -> Result<Message<'_>, Refused> {
    let length = frame
        .first_chunk()
        .ok_or(Refused::Cut(LENGTH_BYTES, frame.len()))?;
    let bytes = LENGTH_BYTES + rest_bytes(*length)?;
    if frame.len() != bytes {
        return Err(Refused::Cut(bytes, frame.len()));
    }
    let (content, checksum) = frame.split_at(bytes - CHECKSUM_BYTES);
    if crc32c::crc32c(content).to_le_bytes() != checksum {
        return Err(Refused::Checksum);
    }
    let (header, payload) = content.split_at(HEADER_BYTES);
    if header[4] != VERSION {
        return Err(Refused::Version(header[4]));
    }
    let kind = header[5];
    let got = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
    if got != sequence {
        return Err(Refused::Sequence {
            got,
            wanted: sequence,
        });
    }
    if header[6..8] != [0, 0] {
        return Err(Refused::Meaning(kind, payload.len()));
    }
    take_payload(kind, payload).ok_or(Refused::Meaning(kind, payload.len()))
}

fn kind(message: &Message) -> u8 {
    match message {
        Message::Hello(_) => HELLO,
        Message::Heartbeat => HEARTBEAT,
        Message::Begin(_) => BEGIN,
        Message::Chunk(Part::Ram, _) => RAM,
        Message::Chunk(Part::Device, _) => DEVICE,
        Message::Chunk(Part::Disk, _) => DISK,
        Message::End { .. } => END,
        Message::Acknowledge(_) => ACKNOWLEDGE,
        Message::Reject(..) => REJECT,
        Message::Handover(_) => HANDOVER,
        Message::Disarm { .. } => DISARM,
        Message::Sums(..) => SUMS,
    }
}

fn put_payload(message: &Message, out: &mut Vec<u8>) {
    let put_id = |id: &CheckpointId, out: &mut Vec<u8>| {
        out.extend_from_slice(&id.term.to_le_bytes());
        out.extend_from_slice(&id.number.to_le_bytes());
    };
    match message {
        Message::Hello(hello) => {
            let (standing, held) = match hello.standing {
                Standing::Primary => (0, None),
                Standing::Standby {
                    held,
                    claiming,
                    unheard,
                } => {
                    let armed = held.is_some_and(|held| held.armed);
                    let bits = u8::from(held.is_some()) << 1 | u8::from(armed) << 2;
                    let bits = bits | u8::from(claiming) << 3 | u8::from(unheard) << 4;
                    (1 | bits, held)
                }
            };
            let agreed = u8::from(hello.mode == Mode::NoNet) | u8::from(hello.witness) << 1;
            let agreed = agreed | u8::from(hello.answers.is_some()) << 2;
            out.extend_from_slice(&[agreed, standing]);
            out.extend_from_slice(&hello.lease_ns.to_le_bytes());
            let Hello {
                vm,
                host,
                incarnation,
                term,
                connection,
                answers,
                ..
            } = *hello;
            let numbers = [vm, host, incarnation, term, connection];
            for number in numbers.into_iter().chain(answers) {
                out.extend_from_slice(&number.to_le_bytes());
            }
            if let Some(held) = held {
                put_id(&held.id, out);
            }
        }
        Message::Heartbeat => {}
        Message::Begin(header) => {
            out.push(u8::from(header.full) | u8::from(header.arms) << 1);
            put_id(&header.id, out);
            out.extend_from_slice(&header.lease_ns.to_le_bytes());
            out.extend_from_slice(&header.ram_bytes.to_le_bytes());
            out.extend_from_slice(&header.device_bytes.to_le_bytes());
            out.extend_from_slice(&header.disk_bytes.to_le_bytes());
        }
        Message::Chunk(_, data) => {
            assert!(data.len() <= CHUNK_BYTES_MAX, "{} bytes", data.len());
            out.extend_from_slice(data);
        }
        Message::Sums(id, sums) => {
            let most = CHUNK_BYTES_MAX - ID_BYTES;
            assert!(sums.len() <= most, "{} bytes", sums.len());
            put_id(id, out);
            out.extend_from_slice(sums);
        }
        Message::End { id, checksum } => {
            put_id(id, out);
            out.extend_from_slice(&checksum.to_le_bytes());
        }
        Message::Acknowledge(id) | Message::Handover(id) => put_id(id, out),
        Message::Reject(id, reason) => {
            put_id(id, out);
            out.push(match reason {
                Reason::Full => 0,
                Reason::Corrupt => 1,
            });
        }
        Message::Disarm { term } => out.extend_from_slice(&term.to_le_bytes()),
    }
}

fn take_payload(kind: u8, payload: &[u8]) -> Option<Message<'_>> {
    let mut rest = Rest(payload);
    let message = match kind {
        HELLO => {
            let (agreed, standing) = (rest.below(8)?, rest.below(32)?);
            let lease_ns = rest.number()? as i64;
            let [vm, host, incarnation, term] = [
                rest.number()?,
                rest.number()?,
                rest.number()?,
                rest.counted()?,
            ];
            let connection = rest.number()?;
            let answers = match agreed & 4 {
                0 => None,
                _ => Some(rest.number()?),
            };
            let has = |bit| standing & bit != 0;
            let held = match (has(2), has(4)) {
                (false, true) => return None,
                (false, false) => None,
                (true, armed) => Some(Held {
                    id: rest.id()?,
                    armed,
                }),
            };
            let standing = match (has(1), standing) {
                (true, _) => Standing::Standby {
                    held,
                    claiming: has(8),
                    unheard: has(16),
                },
                (false, 0) => Standing::Primary,
                _ => return None,
            };
            Message::Hello(Hello {
                vm,
                mode: if agreed & 1 != 0 {
                    Mode::NoNet
                } else {
                    Mode::Net
                },
                witness: agreed & 2 != 0,
                lease_ns,
                host,
                incarnation,
                term,
                standing,
                connection,
                answers,
            })
        }
        HEARTBEAT => Message::Heartbeat,
        BEGIN => {
            let bits = rest.below(4)?;
            Message::Begin(Header {
                full: bits & 1 != 0,
                arms: bits & 2 != 0,
                id: rest.id()?,
                lease_ns: rest.number()? as i64,
                ram_bytes: rest.number()?,
                device_bytes: rest.number()?,
                disk_bytes: rest.number()?,
            })
        }
        RAM => Message::Chunk(Part::Ram, std::mem::take(&mut rest.0)),
        DEVICE => Message::Chunk(Part::Device, std::mem::take(&mut rest.0)),
        DISK => Message::Chunk(Part::Disk, std::mem::take(&mut rest.0)),
        SUMS => Message::Sums(rest.id()?, std::mem::take(&mut rest.0)),
        END => Message::End {
            id: rest.id()?,
            checksum: u32::from_le_bytes(rest.take()?),
        },
        ACKNOWLEDGE => Message::Acknowledge(rest.id()?),
        REJECT => {
            let id = rest.id()?;
            let reason = if rest.below(2)? == 0 {
                Reason::Full
            } else {
                Reason::Corrupt
            };
            Message::Reject(id, reason)
        }
        HANDOVER => Message::Handover(rest.id()?),
        DISARM => Message::Disarm {
            term: rest.counted()?,
        },
        _ => return None,
    };
    rest.0.is_empty().then_some(message)
}

/// The unread rest of a payload.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A term or a number below its limit.
    fn counted(&mut self) -> Option<u64> {
        self.number().filter(|number| *number < COUNTED_MAX)
    }

    fn below(&mut self, limit: u8) -> Option<u8> {
        let [byte] = self.take()?;
        (byte < limit).then_some(byte)
    }

    fn id(&mut self) -> Option<CheckpointId> {
        Some(CheckpointId {
            term: self.counted()?,
            number: self.counted()?,
        })
    }
}
