//! The voice of a conference: each participant hears all others.

use crate::clock;

/// Adds up what the participants of a conference say in the time of a packet, and gives each one what all others say.
/// `said` and `heard` have the samples of one participant after the other, `packet_samples` of each; a sum that no
/// sample can hold becomes the nearest one that does.
pub fn mix(said: &[i16], packet_samples: usize, heard: &mut [i16]) {
    let mut all = vec![0_i32; packet_samples];
    for packet in said.chunks_exact(packet_samples) {
        for (sum, &sample) in all.iter_mut().zip(packet) {
            *sum += i32::from(sample);
        }
    }
    let packets = (said.chunks_exact(packet_samples)).zip(heard.chunks_exact_mut(packet_samples));
    for (own, heard) in packets {
        for ((sum, &own), heard) in all.iter().zip(own).zip(heard) {
            let others = sum - i32::from(own);
            *heard = others.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        }
    }
}

/// The CPU time of [`mix`] for each of `times` packets' times, in nanoseconds, without that of reading the clock.
/// Participants say `speech`, each from another place on; it has at least `packet_samples` samples.
pub fn mixing_ns(
    speech: &[i16],
    participants: usize,
    packet_samples: usize,
    times: usize,
) -> Vec<i64> {
    let places = speech.len() - packet_samples + 1;
    let mut said = vec![0; participants * packet_samples];
    let mut heard = said.clone();
    let mut taken_ns = Vec::with_capacity(times);
    for time in 0..times {
        for (participant, packet) in said.chunks_exact_mut(packet_samples).enumerate() {
            let from = (time * packet_samples + participant * places / participants) % places;
            packet.copy_from_slice(&speech[from..from + packet_samples]);
        }
        let start_ns = clock::thread_cpu_ns();
        let begun_ns = clock::thread_cpu_ns();
        mix(&said, packet_samples, std::hint::black_box(&mut heard));
        let end_ns = clock::thread_cpu_ns();
        taken_ns.push((end_ns - begun_ns) - (begun_ns - start_ns));
    }
    taken_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_hears_all_others() {
        let said = [1, 2, 10, 20, 100, 200];
        let mut heard = [0; 6];
        mix(&said, 2, &mut heard);
        assert_eq!(heard, [110, 220, 101, 202, 11, 22]);
    }

    #[test]
    fn a_sum_is_as_loud_as_a_sample_can_be() {
        let said = [i16::MAX, i16::MIN, 30_000, -30_000, 20_000, -20_000];
        let mut heard = [0; 6];
        mix(&said, 2, &mut heard);
        let (most, least) = (i16::MAX, i16::MIN);
        assert_eq!(heard, [most, least, most, least, most, least]);
    }

    #[test]
    fn every_time_is_told() {
        let speech: Vec<i16> = (0..300).collect();
        assert_eq!(mixing_ns(&speech, 3, 160, 5).len(), 5);
        assert_eq!(mixing_ns(&speech[..160], 1, 160, 1).len(), 1);
    }
}
