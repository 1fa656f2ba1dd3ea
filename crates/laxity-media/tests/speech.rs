//! Extraction of speech: telephone events, comfort noise, pauses, hold and restarts are left out,
//! lost packets are not, and no capture claims a call longer than its contents.

use laxity_media::{
    capture::Capture,
    rtp::HEADER_BYTES,
    signalling::PayloadTypes,
    speech::{LeftOut, Playable, Unplayable},
    streams::{Found, read},
};
use std::net::SocketAddr;

const START_NS: i64 = 1_700_000_000_000_000_000;
const PACKET_NS: i64 = 20_000_000;
const SAMPLES: u32 = 160;
const SECOND_NS: i64 = 1_000_000_000;
const EVENT: u8 = 101;
const COMFORT_NOISE: u8 = 13;

/// A sender of G.711, and the capture of what it sends.
struct Sender {
    capture: Capture<Vec<u8>>,
    now_ns: i64,
    sequence: u16,
    timestamp: u32,
    ssrc: u32,
    marker: bool,
}

impl Sender {
    fn new() -> Sender {
        Sender {
            capture: Capture::new(Vec::new()).unwrap(),
            now_ns: START_NS,
            // Both counters wrap soon.
            sequence: 65_500,
            timestamp: u32::MAX - 1_000,
            ssrc: 7,
            marker: true,
        }
    }

    fn write(&mut self, payload_type: u8, timestamp: u32, payload_bytes: usize) {
        let mut octets = vec![0x80, payload_type | u8::from(self.marker) << 7];
        octets.extend(self.sequence.to_be_bytes());
        octets.extend(timestamp.to_be_bytes());
        octets.extend(self.ssrc.to_be_bytes());
        assert_eq!(octets.len(), HEADER_BYTES);
        octets.resize(HEADER_BYTES + payload_bytes, 0xFF);
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (from, to) = (address("192.0.2.1:40000"), address("192.0.2.2:30000"));
        self.capture.write(self.now_ns, from, to, &octets).unwrap();
        self.marker = false;
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Lets time pass, on the sender's clock, too.
    fn pass(&mut self, packets: u32) {
        self.now_ns += i64::from(packets) * PACKET_NS;
        self.timestamp = self.timestamp.wrapping_add(packets * SAMPLES);
    }

    fn speak(&mut self, packets: u32) {
        for _ in 0..packets {
            self.write(0, self.timestamp, SAMPLES as usize);
            self.pass(1);
        }
    }

    fn lose(&mut self, packets: u16) {
        self.sequence = self.sequence.wrapping_add(packets);
        self.pass(packets.into());
    }

    /// Presses a key: packets with one timestamp, the last of them sent three times.
    fn press(&mut self, packets: u32) {
        let begin = self.timestamp;
        self.marker = true;
        for _ in 0..packets {
            self.write(EVENT, begin, 4);
            self.pass(1);
        }
        self.write(EVENT, begin, 4);
        self.write(EVENT, begin, 4);
    }

    fn found(self) -> Found {
        read(&self.capture.into_inner()[..], PayloadTypes::default()).unwrap()
    }

    fn call(self) -> Result<Playable, Unplayable> {
        let found = self.found();
        assert_eq!(found.streams.len(), 1, "{found:?}");
        found.streams[0].playable()
    }
}

/// Checks that there are `count` packets without a gap, each received when it was spoken.
fn is_unbroken(call: &Playable, count: usize) {
    let first = call.sequence[0];
    assert_eq!(
        call.sequence,
        (first..first + count as i64).collect::<Vec<_>>()
    );
    let times = (0..count as i64).map(|place| START_NS + place * PACKET_NS);
    assert_eq!(call.arrived_ns, times.collect::<Vec<_>>());
}

#[test]
fn telephone_events_are_left_out() {
    let mut sender = Sender::new();
    sender.speak(50);
    sender.press(5);
    sender.speak(50);
    let call = sender.call().unwrap();
    is_unbroken(&call, 100);
    assert_eq!(
        call.left_out,
        LeftOut {
            event_packets: 7,
            pauses: 1,
            silent_ns: 5 * PACKET_NS,
            ..LeftOut::default()
        }
    );
}

#[test]
fn events_that_were_lost_are_no_lost_speech() {
    let mut sender = Sender::new();
    sender.speak(50);
    let begin = sender.timestamp;
    for lost in [0, 2, 0, 1] {
        sender.sequence = sender.sequence.wrapping_add(lost);
        sender.write(EVENT, begin, 4);
        sender.pass(2);
    }
    sender.speak(50);
    is_unbroken(&sender.call().unwrap(), 100);
}

#[test]
fn comfort_noise_and_what_it_stands_for_is_left_out() {
    let mut sender = Sender::new();
    sender.speak(50);
    for _ in 0..4 {
        sender.write(COMFORT_NOISE, sender.timestamp, 11);
        sender.pass(10);
    }
    sender.marker = true;
    sender.speak(50);
    let call = sender.call().unwrap();
    is_unbroken(&call, 100);
    assert_eq!(call.left_out.comfort_noise_packets, 4);
    assert_eq!(call.left_out.silent_ns, 40 * PACKET_NS);
}

#[test]
fn silence_and_hold_are_left_out_and_what_was_lost_beside_them_is_not() {
    let mut sender = Sender::new();
    for silent in [3, 50, 5 * 60 * 50] {
        sender.speak(40);
        sender.lose(2);
        sender.speak(10);
        sender.pass(silent);
        sender.marker = true;
    }
    sender.speak(10);
    // The last packet of a talk spurt is lost.
    sender.lose(1);
    sender.pass(30);
    sender.speak(10);
    let call = sender.call().unwrap();
    assert_eq!(call.sequence.len(), 3 * 50 + 20);
    let numbers = call.sequence[call.sequence.len() - 1] - call.sequence[0] + 1;
    assert_eq!(numbers, 3 * 52 + 21, "seven are lost");
    assert_eq!(call.left_out.pauses, 4);
    let silent = 3 + 50 + 5 * 60 * 50 + 30;
    assert_eq!(call.left_out.silent_ns, silent * PACKET_NS);
    for (number, arrived_ns) in call.sequence.iter().zip(&call.arrived_ns) {
        let spoken_ns = (number - call.sequence[0]) * PACKET_NS;
        assert_eq!(arrived_ns - START_NS, spoken_ns);
    }
}

#[test]
fn a_stream_that_is_begun_anew_is_one_call() {
    type Change = fn(&mut Sender);
    let changes: [Change; 4] = [
        |sender| sender.sequence = 20_000,
        |sender| sender.timestamp = 77,
        |sender| {
            sender.ssrc = 8;
            sender.sequence = 0;
            sender.timestamp = 0;
        },
        // The sender's clock stood still on hold, and the next packet marks a new talk spurt.
        |sender| {
            sender.now_ns += 20 * SECOND_NS - SECOND_NS;
            sender.marker = true;
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut sender = Sender::new();
        sender.speak(50);
        sender.now_ns += SECOND_NS;
        change(&mut sender);
        sender.speak(50);
        let call = sender.call().unwrap();
        is_unbroken(&call, 100);
        assert_eq!(call.left_out.restarts, 1, "{number}");
        let silent_ns = if number == 3 { 20 } else { 1 } * SECOND_NS;
        assert_eq!(call.left_out.silent_ns, silent_ns, "{number}");
    }
}

#[test]
fn another_source_that_speaks_meanwhile_or_much_later_is_another_call() {
    for wait_ns in [-SECOND_NS, 3 * SECOND_NS] {
        let mut sender = Sender::new();
        sender.speak(100);
        sender.now_ns += wait_ns;
        sender.ssrc = 8;
        sender.speak(100);
        assert_eq!(sender.found().streams.len(), 2, "{wait_ns}");
    }
}

#[test]
fn packets_that_came_late_are_late_and_not_left_out() {
    // Nothing arrives for 2 s and then everything at once: no sender has paused.
    let mut sender = Sender::new();
    sender.speak(50);
    let stalled_ns = sender.now_ns + 2 * SECOND_NS;
    for _ in 0..100 {
        sender.now_ns = stalled_ns;
        sender.speak(1);
    }
    let call = sender.call().unwrap();
    assert_eq!(call.left_out, LeftOut::default());
    assert_eq!(call.sequence.len(), 150);
    assert_eq!(call.arrived_ns[50], stalled_ns);
}

#[test]
fn a_packet_that_fits_no_other_is_a_stray() {
    let mut sender = Sender::new();
    sender.speak(50);
    let (sequence, timestamp) = (sender.sequence, sender.timestamp);
    sender.sequence = 9_999;
    sender.write(0, 1, SAMPLES as usize);
    (sender.sequence, sender.timestamp) = (sequence, timestamp);
    sender.speak(50);
    let call = sender.call().unwrap();
    is_unbroken(&call, 100);
    assert_eq!(call.left_out.stray_packets, 1);
    assert_eq!(call.left_out.restarts, 0);
}

#[test]
fn a_call_is_as_long_as_what_came_of_it_bears_out() {
    // Each number is 2,900 after the previous one: first within no time, then with times that allow
    // it.
    for packets_ns in [PACKET_NS, 2_900 * PACKET_NS] {
        let mut sender = Sender::new();
        sender.speak(2);
        for _ in 0..2_000 {
            let now_ns = sender.now_ns;
            sender.lose(2_899);
            sender.now_ns = now_ns;
            sender.write(0, sender.timestamp, SAMPLES as usize);
            sender.pass(1);
            sender.now_ns = now_ns + packets_ns;
        }
        match sender.call() {
            Ok(call) => {
                let numbers = call.sequence[call.sequence.len() - 1] - call.sequence[0] + 1;
                let received_ns = 2_002 * PACKET_NS;
                assert!(
                    numbers * PACKET_NS <= received_ns + 10 * SECOND_NS,
                    "{numbers}"
                );
            }
            Err(Unplayable::Sparse { received, numbers }) => {
                assert_eq!(received, 2_002);
                assert!(numbers > 1_999 * 2_900, "{numbers}");
            }
            Err(why) => panic!("{why}"),
        }
    }
}
