//! Captures: whatever a file holds, every packet is counted in exactly one place, and a stream that can be played has
//! one number and one time for each of its packets.
#![no_main]

use laxity_media::streams::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(found) = read(data) else { return };
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
        assert_eq!(playable.sequence.len(), stream.packets.len());
        assert_eq!(playable.arrived_ns.len(), stream.packets.len());
        assert!(playable.packet_samples > 0);
        for (number, packet) in playable.sequence.iter().zip(&stream.packets) {
            assert_eq!(*number as u16, packet.sequence);
        }
    }
});
