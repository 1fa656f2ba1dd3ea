//! What a packet of Opus says of itself, without decoding it (RFC 6716, sections 3 and 4.2.3), and what the packets of
//! a stream have in common. Pure.

use serde::Serialize;
use std::num::NonZeroU8;

/// Rate of RTP's timestamps, whatever rate was sampled at (RFC 7587, section 4.1).
pub const CLOCK_HZ: i64 = 48_000;
/// The shortest frame; each duration is a multiple of it.
const STEP_NS: i64 = 2_500_000;
/// The longest packet, in steps: 120 ms.
const STEPS_MAX: u8 = 48;
/// The largest frame, in octets.
const FRAME_BYTES_MAX: usize = 1_275;
/// Packets of up to this size say that silence goes on, and need not be sent (RFC 6716, section 2.1.9; `opus_encode`).
pub const SILENCE_BYTES: u16 = 2;
/// The first configuration that is CELT alone, without SILK.
const CELT: u8 = 16;

/// What the packet's octets say. It is kept for each packet of a capture, and takes two octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    steps: NonZeroU8,
    /// Configuration, whether the packet is stereo, and whether it has another copy of the packet before.
    marks: u8,
}

/// The audio that is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bandwidth {
    /// 4 kHz.
    Narrow,
    /// 6 kHz.
    Medium,
    /// 8 kHz.
    Wide,
    /// 12 kHz.
    Superwide,
    /// 20 kHz.
    Full,
}

/// How the packets of a stream are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Coding {
    /// The mean bit rate while something was sent, rounded up to whole kbit/s: calls that are coded alike have one.
    pub bit_s: u64,
    /// The bandwidth of most packets.
    pub bandwidth: Bandwidth,
    /// Whether most packets are CELT alone, which encoders choose for the least delay.
    pub low_delay: bool,
    /// Whether most packets are stereo.
    pub stereo: bool,
    /// Whether a packet has another copy of the packet before (forward error correction).
    pub error_correction: bool,
}

impl Packet {
    /// What a payload says of itself; `None` if it is no packet of Opus.
    pub fn parse(payload: &[u8]) -> Option<Packet> {
        let (&first, rest) = payload.split_first()?;
        let (configuration, is_stereo) = (first >> 3, first >> 2 & 1 == 1);
        let (frames, frame) = frames(first & 3, rest)?;
        let frame_steps = frame_steps(configuration);
        let steps = frames.checked_mul(frame_steps)?;
        if steps > STEPS_MAX {
            return None;
        }
        let has_copy = configuration < CELT
            && frame.first().is_some_and(|&octet| {
                // A frame of 20 ms has its flags once, one of 60 ms three times.
                let flags = (frame_steps / 8).max(1);
                let of_side = is_stereo && octet >> (6 - 2 * flags) & 1 == 1;
                octet >> (7 - flags) & 1 == 1 || of_side
            });
        Some(Packet {
            steps: NonZeroU8::new(steps)?,
            marks: configuration << 2 | u8::from(is_stereo) << 1 | u8::from(has_copy),
        })
    }

    /// The audio in the packet, in the units of RTP's timestamps.
    pub fn ticks(self) -> u16 {
        (i64::from(self.steps.get()) * STEP_NS * CLOCK_HZ / 1_000_000_000) as u16
    }

    fn configuration(self) -> u8 {
        self.marks >> 2
    }

    fn is_stereo(self) -> bool {
        self.marks & 2 != 0
    }

    fn has_copy(self) -> bool {
        self.marks & 1 != 0
    }

    fn bandwidth(self) -> Bandwidth {
        use Bandwidth::{Full, Medium, Narrow, Superwide, Wide};
        match self.configuration() {
            0..4 => Narrow,
            4..8 => Medium,
            8..12 => Wide,
            12..14 => Superwide,
            14..16 => Full,
            celt => [Narrow, Wide, Superwide, Full][usize::from((celt - CELT) / 4)],
        }
    }
}

impl Coding {
    /// What packets have in common, given with their sizes in octets; `None` if there are none.
    pub fn of(packets: impl Iterator<Item = (Packet, u16)>) -> Option<Coding> {
        let (mut count, mut octets, mut ticks) = (0_u64, 0_u64, 0_u64);
        let (mut celt, mut stereo, mut copies) = (0_u64, 0_u64, 0_u64);
        let mut of_bandwidth = [0_u64; 5];
        for (packet, payload_bytes) in packets {
            count += 1;
            octets += u64::from(payload_bytes);
            ticks += u64::from(packet.ticks());
            celt += u64::from(packet.configuration() >= CELT);
            stereo += u64::from(packet.is_stereo());
            copies += u64::from(packet.has_copy());
            of_bandwidth[packet.bandwidth() as usize] += 1;
        }
        use Bandwidth::{Full, Medium, Narrow, Superwide, Wide};
        let bandwidth = [Narrow, Medium, Wide, Superwide, Full]
            .into_iter()
            .max_by_key(|&bandwidth| of_bandwidth[bandwidth as usize])?;
        (count > 0).then(|| Coding {
            bit_s: (octets * 8 * CLOCK_HZ as u64 / ticks).next_multiple_of(1_000),
            bandwidth,
            low_delay: 2 * celt > count,
            stereo: 2 * stereo > count,
            error_correction: copies > 0,
        })
    }
}

/// The duration of a frame of this configuration, in steps (RFC 6716, table 2).
fn frame_steps(configuration: u8) -> u8 {
    let place = usize::from(configuration % 4);
    match configuration {
        0..12 => [4, 8, 16, 24][place],
        12..CELT => [4, 8][place % 2],
        _ => [1, 2, 4, 8][place],
    }
}

/// How many frames the octets after the first one have, and the first of them (RFC 6716, sections 3.2 and 3.4).
fn frames(code: u8, rest: &[u8]) -> Option<(u8, &[u8])> {
    let fits = |frame: &[u8]| frame.len() <= FRAME_BYTES_MAX;
    match code {
        0 => fits(rest).then_some((1, rest)),
        1 => {
            let (one, other) = rest.split_at(rest.len() / 2);
            (one.len() == other.len() && fits(one)).then_some((2, one))
        }
        2 => {
            let (length, rest) = frame_length(rest)?;
            let (one, other) = rest.split_at_checked(length)?;
            fits(other).then_some((2, one))
        }
        _ => several_frames(rest),
    }
}

/// The same for any number of frames, and padding.
fn several_frames(rest: &[u8]) -> Option<(u8, &[u8])> {
    let (&first, mut rest) = rest.split_first()?;
    let (count, is_padded, is_variable) = (first & 0x3F, first & 0x40 != 0, first & 0x80 != 0);
    let mut padding = 0;
    let mut goes_on = is_padded;
    while goes_on {
        let (&octet, after) = rest.split_first()?;
        rest = after;
        padding += usize::from(octet.min(254));
        goes_on = octet == 255;
    }
    let mut lengths = Vec::new();
    if is_variable {
        for _ in 1..count {
            let (length, after) = frame_length(rest)?;
            rest = after;
            lengths.push(length);
        }
    }
    let rest = &rest[..rest.len().checked_sub(padding)?];
    let length = if is_variable {
        let last = rest.len().checked_sub(lengths.iter().sum())?;
        if last > FRAME_BYTES_MAX {
            return None;
        }
        lengths.first().copied().unwrap_or(last)
    } else {
        let length = rest.len().checked_div(count.into())?;
        if length * usize::from(count) != rest.len() || length > FRAME_BYTES_MAX {
            return None;
        }
        length
    };
    (count > 0).then_some((count, &rest[..length]))
}

/// The length of a frame, in one octet or two (RFC 6716, section 3.2.1), and what comes after it.
fn frame_length(octets: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = octets.split_first()?;
    if first < 252 {
        return Some((first.into(), rest));
    }
    let (&second, rest) = rest.split_first()?;
    Some((usize::from(second) * 4 + usize::from(first), rest))
}
