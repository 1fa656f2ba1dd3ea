//! What two hosts say to each other, in bytes.
//!
//! A frame, little-endian throughout:
//!
//! ```text
//! length    u32   of all that follows it
//! version   u8    2
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

/// Of the format.
pub const VERSION: u8 = 2;
/// Bytes of a part that a frame holds at most.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Of the length, which stands before the rest of a frame.
pub const LENGTH_BYTES: usize = 4;
/// Before the payload.
const HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;
/// Nobody has counted terms or checkpoints so far; whatever is added to a number below it fits.
pub const COUNTED_MAX: u64 = 1 << 62;
/// Of a whole frame.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + CHUNK_BYTES_MAX + CHECKSUM_BYTES;

/// What a standby has and could take over with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The last checkpoint that it acknowledged.
    pub id: CheckpointId,
    /// Whether it may take over with it.
    pub armed: bool,
}

/// What a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It holds the guest.
    Primary,
    /// It follows a primary, or would.
    Standby {
        /// What it has.
        held: Option<Held>,
        /// It is about to take over, and acknowledges nothing until that is decided.
        claiming: bool,
        /// Its term is one in which it could not make the guest run: nobody was ever heard in it.
        unheard: bool,
    },
}

/// The first message of each side on a connection; again when the other side's has come, and when what it says
/// has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The virtual machine.
    pub vm: u64,
    /// Must be the same on both sides.
    pub mode: Mode,
    /// Must be the same on both sides.
    pub witness: bool,
    /// Must be the same on both sides.
    pub lease_ns: i64,
    /// The host, by a number of its own.
    pub host: u64,
    /// The process on it, by a number that no other had.
    pub incarnation: u64,
    /// The highest that it knows of.
    pub term: u64,
    /// What it is.
    pub standing: Standing,
    /// The connection, by the sender's number.
    pub connection: u64,
    /// The same connection, by the other side's number, from when on that is known here.
    pub answers: Option<u64>,
}

/// How far the greetings of a connection have come.
///
/// A greeting counts only if it answers ours: it was said after both sides had this connection. One that does not
/// may have waited in a connection that was begun long ago, and tell of a time that is over, in which its sender had
/// nothing to take over with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greetings {
    /// Our number of the connection.
    pub connection: u64,
    /// The other side's.
    pub answers: Option<u64>,
}

impl Greetings {
    /// Of a connection on which nothing has come.
    pub fn new(connection: u64) -> Greetings {
        Greetings {
            connection,
            answers: None,
        }
    }

    /// Takes in the other side's greeting: whether ours is to be said again, and whether that one counts.
    pub fn hear(&mut self, hello: &Hello) -> (bool, bool) {
        let is_new = self.answers.replace(hello.connection) != Some(hello.connection);
        (is_new, hello.answers == Some(self.connection))
    }
}

/// Why a checkpoint is not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There is no room for it.
    Full,
    /// It is not what it was when it was sent.
    Corrupt,
}

/// What one side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Who I am.
    Hello(Hello),
    /// I am alive.
    Heartbeat,
    /// A checkpoint begins.
    Begin(Header),
    /// The next bytes of a part of it.
    Chunk(Part, &'a [u8]),
    /// That was all of it.
    End {
        /// Which one.
        id: CheckpointId,
        /// Of [`Digest`](super::checkpoint::Digest).
        checksum: u32,
    },
    /// I have it, and shall take over from it or a later one only.
    Acknowledge(CheckpointId),
    /// I do not have it, and shall not.
    Reject(CheckpointId, Reason),
    /// Take over from it now; I am silent for good unless you say that you will not.
    Handover(CheckpointId),
    /// Forget what you have of this term; your greeting is the answer.
    Disarm {
        /// The primary's.
        term: u64,
    },
}

/// Why bytes are no frame that could come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// No frame is so short or so long.
    #[error("a frame of {0} bytes: there are none of this length")]
    Length(u64),
    /// It ends before its end, or goes on behind it.
    #[error("a frame of {0} bytes, of which {1} came")]
    Cut(usize, usize),
    /// The checksum is another.
    #[error("a frame whose checksum is not that of its bytes")]
    Checksum,
    /// It is of a version that is not spoken here.
    #[error("version {0} of the protocol; here it is {VERSION}: both hosts need the same release")]
    Version(u8),
    /// One is missing, or comes again.
    #[error("frame {got}, where {wanted} comes next")]
    Sequence {
        /// As it says.
        got: u64,
        /// What would be right.
        wanted: u64,
    },
    /// Such a message does not exist.
    #[error("a frame of kind {0} with {1} bytes that mean nothing")]
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

/// Appends the frame of a message to `out`.
///
/// # Panics
///
/// On a chunk of more than [`CHUNK_BYTES_MAX`].
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

/// How many bytes follow the length of a frame.
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

/// The message of a whole frame, length included, that is to be the one with this number.
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
        Message::End { .. } => END,
        Message::Acknowledge(_) => ACKNOWLEDGE,
        Message::Reject(..) => REJECT,
        Message::Handover(_) => HANDOVER,
        Message::Disarm { .. } => DISARM,
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
            out.extend_from_slice(&header.ram_bytes.to_le_bytes());
            out.extend_from_slice(&header.device_bytes.to_le_bytes());
        }
        Message::Chunk(_, data) => {
            assert!(data.len() <= CHUNK_BYTES_MAX, "{} bytes", data.len());
            out.extend_from_slice(data);
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
                ram_bytes: rest.number()?,
                device_bytes: rest.number()?,
            })
        }
        RAM | DEVICE => {
            let part = if kind == RAM { Part::Ram } else { Part::Device };
            Message::Chunk(part, std::mem::take(&mut rest.0))
        }
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

/// What has not been read of a payload.
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

    /// What goes up by one.
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
