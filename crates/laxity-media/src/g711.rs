//! The two laws of G.711, and conversion between them.

use audio_codec_algorithms::{decode_alaw, decode_ulaw, encode_alaw, encode_ulaw};
use serde::Serialize;

/// Samples a second, which are also octets a second: G.711 has one octet a sample.
pub const SAMPLES_PER_SECOND: u32 = 8_000;
/// Length of a sample, in nanoseconds.
pub const SAMPLE_NS: i64 = 1_000_000_000 / SAMPLES_PER_SECOND as i64;

/// One of the two companding laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// mu-law: PCMU, RTP's payload type 0.
    Mu,
    /// A-law: PCMA, RTP's payload type 8.
    A,
}

impl Law {
    /// RTP's payload type (RFC 3551, section 6, table 4).
    pub fn payload_type(self) -> u8 {
        match self {
            Law::Mu => 0,
            Law::A => 8,
        }
    }

    /// The law of an RTP payload type, if it is G.711's.
    pub fn of_payload_type(payload_type: u8) -> Option<Law> {
        match payload_type {
            0 => Some(Law::Mu),
            8 => Some(Law::A),
            _ => None,
        }
    }

    /// The other law.
    pub fn other(self) -> Law {
        match self {
            Law::Mu => Law::A,
            Law::A => Law::Mu,
        }
    }

    /// The octet of a 16-bit linear sample.
    pub fn encode(self, sample: i16) -> u8 {
        match self {
            Law::Mu => encode_ulaw(sample),
            Law::A => encode_alaw(sample),
        }
    }

    /// The 16-bit linear sample of an octet.
    pub fn decode(self, octet: u8) -> i16 {
        match self {
            Law::Mu => decode_ulaw(octet),
            Law::A => decode_alaw(octet),
        }
    }
}

/// Converts octets from the law `from` to the other one, each through its linear sample, as in a
/// media server that also processes the samples.
pub fn transcode(from: Law, octets: &mut [u8]) {
    let to = from.other();
    for octet in octets {
        *octet = to.encode(from.decode(*octet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_octets() {
        // G.711, tables 1 and 2: silence, and the ends of the range.
        assert_eq!(Law::Mu.encode(0), 0xFF);
        assert_eq!(Law::A.encode(0), 0xD5);
        assert_eq!(Law::Mu.encode(i16::MAX), 0x80);
        assert_eq!(Law::Mu.encode(i16::MIN), 0x00);
        assert_eq!(Law::A.encode(i16::MAX), 0xAA);
        assert_eq!(Law::A.encode(i16::MIN), 0x2A);
        assert_eq!(Law::Mu.decode(0x80), 32_124);
        assert_eq!(Law::A.decode(0xAA), 32_256);
    }

    #[test]
    fn transcoding_keeps_the_sample_within_the_coarser_step() {
        for law in [Law::Mu, Law::A] {
            for octet in 0..=u8::MAX {
                let mut there = [octet];
                transcode(law, &mut there);
                let before = i32::from(law.decode(octet));
                let after = i32::from(law.other().decode(there[0]));
                // A step is a sixteenth of its segment, and at least 16 in A-law.
                let step = (before.abs() / 16).max(16);
                assert!(
                    (before - after).abs() <= step,
                    "{law:?} {octet}: {before} {after}"
                );
            }
        }
    }
}
