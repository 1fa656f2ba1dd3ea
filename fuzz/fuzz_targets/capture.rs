//! Captures: whatever a file holds, every packet is counted in exactly one place, and a stream that can be played has
//! one number and one time for each of its packets of speech, and a length that what was received bounds.
#![no_main]

use laxity_media::{
    signalling::PayloadTypes,
    speech::{Codec, DROPOUT_MAX},
    streams::read,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Signalling in the capture may say otherwise of these.
    let told = PayloadTypes::of_opus(&[96, 111]).unwrap();
    let Ok(found) = read(data, told) else { return };
    let in_streams: u64 = found
        .streams
        .iter()
        .map(|stream| stream.packets.len() as u64)
        .sum();
    assert_eq!(found.packets, found.not_udp + found.not_rtp + in_streams);
    for stream in &found.streams {
        let Ok(playable) = stream.playable() else {
            continue;
        };
        let left_out = playable.left_out;
        let speech = playable.sequence.len() as u64;
        let others =
            left_out.event_packets + left_out.comfort_noise_packets + left_out.stray_packets;
        assert_eq!(speech + others, stream.packets.len() as u64);
        assert_eq!(playable.arrived_ns.len(), playable.sequence.len());
        assert!(playable.packet_ns > 0);
        assert_eq!(playable.opus.is_some(), playable.codec == Codec::Opus);
        if playable.opus.is_some() {
            assert_eq!(playable.packet_ns % 2_500_000, 0);
            assert!(playable.packet_ns <= 120_000_000);
        }
        assert!(left_out.silent_ns >= 0);
        assert!(playable.sequence.is_sorted());
        let steps = playable.sequence.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(steps.max() <= Some(DROPOUT_MAX));
        let numbers = playable.sequence[speech as usize - 1] - playable.sequence[0] + 1;
        assert!(numbers <= DROPOUT_MAX + 100 * speech as i64);
    }
});
