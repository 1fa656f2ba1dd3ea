//! The stamp that the load writes into each payload and the sink reads: the identity of the packet
//! and its time of sending.
//!
//! The paper hides a timestamp in the payload (section 4). Here it is hidden as sound, so that it survives a media
//! server that transcodes, whichever that is: each half-octet is one sample of one of 16 levels, 6 dB apart, which
//! both laws tell apart by far. 56 of the payload's 160 samples carry it.

use crate::g711::Law;

/// Samples that a stamp takes, in octets of G.711.
pub const STAMP_SAMPLES: usize = 2 * STAMP_BYTES;

/// Most packets of one stream: those of a day.
pub const PACKETS_MAX: u32 = 24 * 3600 * 50;
/// Most streams of one load.
pub const STREAMS_MAX: u32 = u16::MAX as u32;

const STAMP_BYTES: usize = 28;
const MAGIC: [u8; 2] = *b"LX";
/// The quietest level. It is well above A-law's smallest step of 16, and its double is three times
/// as far from silence as mu-law's noise.
const LEVEL_MIN: i16 = 192;

/// The identity of a packet and its time of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Number that distinguishes one run of a load from another.
    pub run: u32,
    /// Number of the stream, from 0.
    pub stream: u16,
    /// Number of streams of the load.
    pub streams: u16,
    /// Number of the packet in its stream, from 0.
    pub packet: u32,
    /// Number of packets that the stream will have.
    pub packets: u32,
    /// CLOCK_MONOTONIC of the sending machine just before the system call.
    pub sent_ns: i64,
}

impl Stamp {
    /// Writes the stamp as `law`'s samples at the beginning of a payload.
    ///
    /// # Panics
    ///
    /// If `payload` is shorter than [`STAMP_SAMPLES`].
    pub fn write(&self, law: Law, payload: &mut [u8]) {
        let levels = Levels::of(law);
        for (pair, byte) in payload[..STAMP_SAMPLES]
            .chunks_exact_mut(2)
            .zip(self.to_bytes())
        {
            pair[0] = levels.encode[usize::from(byte >> 4)];
            pair[1] = levels.encode[usize::from(byte & 0xF)];
        }
    }

    /// The stamp at the beginning of a payload in `law`; `None` unless it is complete and a load
    /// can have written it.
    pub fn read(law: Law, payload: &[u8]) -> Option<Stamp> {
        let levels = Levels::of(law);
        let samples = payload.get(..STAMP_SAMPLES)?;
        let mut bytes = [0; STAMP_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(samples.chunks_exact(2)) {
            let half = |octet: u8| levels.decode[usize::from(octet)];
            *byte = half(pair[0]) << 4 | half(pair[1]);
        }
        Stamp::from_bytes(&bytes)
    }

    fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC);
        bytes[2..6].copy_from_slice(&self.run.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.streams.to_be_bytes());
        bytes[10..14].copy_from_slice(&self.packet.to_be_bytes());
        bytes[14..18].copy_from_slice(&self.packets.to_be_bytes());
        bytes[18..26].copy_from_slice(&self.sent_ns.to_be_bytes());
        let check = checksum(&bytes[..26]);
        bytes[26..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; STAMP_BYTES]) -> Option<Stamp> {
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
        let stamp = Stamp {
            run: u32_at(2),
            stream: u16_at(6),
            streams: u16_at(8),
            packet: u32_at(10),
            packets: u32_at(14),
            sent_ns: (u64::from(u32_at(18)) << 32 | u64::from(u32_at(22))) as i64,
        };
        let whole = bytes[..2] == MAGIC && checksum(&bytes[..26]) == u16_at(26);
        let sensible = stamp.stream < stamp.streams
            && stamp.packet < stamp.packets
            && stamp.packets <= PACKETS_MAX
            && stamp.sent_ns >= 0;
        (whole && sensible).then_some(stamp)
    }
}

/// Fletcher's checksum modulo 255, which detects exchanged octets, unlike a sum.
fn checksum(bytes: &[u8]) -> u16 {
    let (low, high) = bytes.iter().fold((1u16, 0u16), |(low, high), &byte| {
        let low = (low + u16::from(byte)) % 255;
        (low, (high + low) % 255)
    });
    high << 8 | low
}

/// The 16 levels of a half-octet in one law: bit 3 is the sign, bits 0 to 2 the level.
struct Levels {
    encode: [u8; 16],
    decode: [u8; 256],
}

impl Levels {
    fn of(law: Law) -> &'static Levels {
        static LEVELS: std::sync::LazyLock<[Levels; 2]> =
            std::sync::LazyLock::new(|| [Levels::new(Law::Mu), Levels::new(Law::A)]);
        match law {
            Law::Mu => &LEVELS[0],
            Law::A => &LEVELS[1],
        }
    }

    fn new(law: Law) -> Levels {
        let level = |half: usize| {
            let magnitude = LEVEL_MIN << (half & 7);
            if half & 8 == 0 { magnitude } else { -magnitude }
        };
        let nearest = |octet: usize| {
            let sample = f64::from(law.decode(octet as u8));
            // Levels are compared in decibels: the boundary between two levels is 3 dB from both.
            let steps = (sample.abs().max(1.0) / f64::from(LEVEL_MIN))
                .log2()
                .round();
            steps.clamp(0.0, 7.0) as u8 | if sample < 0.0 { 8 } else { 0 }
        };
        Levels {
            encode: std::array::from_fn(|half| law.encode(level(half))),
            decode: std::array::from_fn(nearest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::g711::transcode;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn survives_any_number_of_transcodings(
            (streams, stream) in (1..=u16::MAX).prop_flat_map(|streams| (Just(streams), 0..streams)),
            (packets, packet) in (1..=PACKETS_MAX).prop_flat_map(|packets| (Just(packets), 0..packets)),
            run: u32,
            sent_ns in 0..i64::MAX,
            times in 0..4,
            mu: bool,
        ) {
            let stamp = Stamp { run, stream, streams, packet, packets, sent_ns };
            let mut law = if mu { Law::Mu } else { Law::A };
            let mut payload = [0; 160];
            stamp.write(law, &mut payload);
            for _ in 0..times {
                transcode(law, &mut payload);
                law = law.other();
            }
            prop_assert_eq!(Stamp::read(law, &payload), Some(stamp));
        }

        #[test]
        fn noise_is_no_stamp(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Chance of a false stamp by magic and checksum: one in 2^32.
            prop_assert_eq!(Stamp::read(Law::Mu, &payload), None);
        }
    }

    #[test]
    fn one_changed_level_is_noticed() {
        let stamp = Stamp {
            run: 7,
            stream: 1,
            streams: 2,
            packet: 3,
            packets: 4,
            sent_ns: 5,
        };
        let mut whole = [0; STAMP_SAMPLES];
        stamp.write(Law::Mu, &mut whole);
        for at in 0..STAMP_SAMPLES {
            for half in 0..16 {
                let mut changed = whole;
                changed[at] = Levels::of(Law::Mu).encode[half];
                if changed != whole {
                    assert_eq!(
                        Stamp::read(Law::Mu, &changed),
                        None,
                        "sample {at}, half-octet {half}"
                    );
                }
            }
        }
    }
}
