//! Opus in captures: what says that a payload type is Opus, and which of its packets are speech.

use laxity_media::{
    capture::Capture,
    opus::{Bandwidth, Coding},
    signalling::PayloadTypes,
    speech::{Codec, Playable, Unplayable},
    streams::read,
};
use std::net::SocketAddr;

const START_NS: i64 = 1_700_000_000_000_000_000;
const PACKET_NS: i64 = 20_000_000;
const CALLER: &str = "192.0.2.1:40000";
const CALLEE: &str = "192.0.2.2:30000";
const SIP: &str = "192.0.2.3:5060";
/// 20 ms of wide-band SILK, mono: with a copy of the packet before if the second bit of the frame is set.
const SPEECH: [u8; 4] = [9 << 3, 0b1000_0000, 1, 2];
const SILENCE: [u8; 1] = [9 << 3];

struct Wire {
    capture: Capture<Vec<u8>>,
    now_ns: i64,
    sequence: u16,
    timestamp: u32,
}

impl Wire {
    fn new() -> Wire {
        Wire {
            capture: Capture::new(Vec::new()).unwrap(),
            now_ns: START_NS,
            // Both counters wrap soon.
            sequence: 65_530,
            timestamp: u32::MAX - 9_000,
        }
    }

    fn write(&mut self, from: &str, to: &str, octets: &[u8]) {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (from, to) = (address(from), address(to));
        self.capture.write(self.now_ns, from, to, octets).unwrap();
    }

    /// A party says where it receives which payload types.
    fn describe(&mut self, receiver: &str, first_line: &str, types: &str, maps: &[&str]) {
        let (address, port) = receiver.split_once(':').unwrap();
        let maps: String = maps
            .iter()
            .map(|map| format!("a=rtpmap:{map}\r\n"))
            .collect();
        let message = format!(
            "{first_line}\r\nContent-Type: application/sdp\r\n\r\nv=0\r\no=- 1 1 IN IP4 {address}\r\n\
             s=-\r\nc=IN IP4 {address}\r\nt=0 0\r\nm=audio {port} RTP/AVP {types}\r\n{maps}"
        );
        self.write(receiver, SIP, message.as_bytes());
    }

    fn send(&mut self, payload_type: u8, payload: &[u8], ssrc: u32) {
        let mut octets = vec![0x80, payload_type];
        octets.extend(self.sequence.to_be_bytes());
        octets.extend(self.timestamp.to_be_bytes());
        octets.extend(ssrc.to_be_bytes());
        octets.extend(payload);
        self.write(CALLER, CALLEE, &octets);
        self.sequence = self.sequence.wrapping_add(1);
        self.pass(1);
    }

    fn pass(&mut self, packets: u32) {
        self.now_ns += i64::from(packets) * PACKET_NS;
        self.timestamp = self.timestamp.wrapping_add(packets * 960);
    }

    fn speak(&mut self, payload_type: u8, packets: usize, ssrc: u32) {
        for _ in 0..packets {
            self.send(payload_type, &SPEECH, ssrc);
        }
    }

    fn calls(self, told: &[u8]) -> Vec<Result<Playable, Unplayable>> {
        let told = PayloadTypes::of_opus(told).unwrap();
        let found = read(&self.capture.into_inner()[..], told).unwrap();
        found
            .streams
            .iter()
            .map(|stream| stream.playable())
            .collect()
    }

    fn call(self, told: &[u8]) -> Result<Playable, Unplayable> {
        let mut calls = self.calls(told);
        assert_eq!(calls.len(), 1);
        calls.remove(0)
    }
}

#[test]
fn a_payload_type_is_what_the_receiver_said() {
    for (first_line, maps, is_opus) in [
        ("INVITE sip:a@b SIP/2.0", &["111 opus/48000/2"][..], true),
        ("SIP/2.0 200 OK", &["0 PCMU/8000", "111 OPUS/48000/2"], true),
        ("INVITE sip:a@b SIP/2.0", &["111 speex/16000"], false),
    ] {
        let mut wire = Wire::new();
        wire.describe(CALLEE, first_line, "0 111", maps);
        wire.speak(111, 50, 7);
        // What the command line says counts only where signalling says nothing.
        match wire.call(&[111]) {
            Ok(call) => assert!(is_opus && call.codec == Codec::Opus),
            Err(error) => {
                assert!(!is_opus);
                assert_eq!(error, Unplayable::PayloadType(111));
            }
        }
    }
}

#[test]
fn what_nobody_says_must_be_told() {
    let of_types = |told: &[u8]| {
        let mut wire = Wire::new();
        // The other party's payload types are its own, and what is no SIP says nothing.
        wire.describe(
            CALLER,
            "INVITE sip:a@b SIP/2.0",
            "111",
            &["111 opus/48000/2"],
        );
        wire.describe(
            CALLEE,
            "INVITE sip:a@b HTTP/1.1",
            "111",
            &["111 opus/48000/2"],
        );
        wire.describe(CALLEE, "INVITE sip:a@b SIP/2.0", "0", &["112 opus/48000/2"]);
        wire.speak(111, 50, 7);
        wire.call(told)
    };
    let unknown = of_types(&[]).unwrap_err();
    assert_eq!(unknown, Unplayable::Unknown(111));
    assert!(
        unknown
            .to_string()
            .ends_with("say --opus 111 if it is Opus")
    );
    assert_eq!(of_types(&[96, 111]).unwrap().codec, Codec::Opus);
    assert_eq!(PayloadTypes::of_opus(&[95]), None);
    assert_eq!(PayloadTypes::of_opus(&[128]), None);
}

#[test]
fn a_port_that_another_call_has_later_means_what_it_meant() {
    let mut wire = Wire::new();
    wire.describe(
        CALLEE,
        "INVITE sip:a@b SIP/2.0",
        "111",
        &["111 opus/48000/2"],
    );
    wire.speak(111, 50, 7);
    wire.pass(500);
    wire.describe(CALLEE, "INVITE sip:a@b SIP/2.0", "111", &["111 iLBC/8000"]);
    wire.speak(111, 50, 8);
    let [first, second] = &wire.calls(&[])[..] else {
        panic!("two streams")
    };
    assert_eq!(first.as_ref().unwrap().codec, Codec::Opus);
    assert_eq!(*second, Err(Unplayable::PayloadType(111)));
}

#[test]
fn silence_is_left_out_and_what_was_lost_is_not() {
    let mut wire = Wire::new();
    wire.speak(111, 50, 7);
    // Silence that is sent, and silence that is not.
    for _ in 0..10 {
        wire.send(111, &SILENCE, 7);
    }
    wire.pass(20);
    wire.speak(111, 20, 7);
    wire.sequence = wire.sequence.wrapping_add(3);
    wire.pass(3);
    wire.speak(111, 30, 7);
    let call = wire.call(&[111]).unwrap();
    let numbers: Vec<_> = (call.sequence.iter())
        .map(|number| number - call.sequence[0])
        .collect();
    assert_eq!(numbers, (0..70).chain(73..103).collect::<Vec<_>>());
    assert_eq!(call.packet_ns, PACKET_NS);
    let left_out = call.left_out;
    assert_eq!((left_out.comfort_noise_packets, left_out.pauses), (10, 1));
    assert_eq!(left_out.silent_ns, 30 * PACKET_NS);
    let times = numbers.iter().map(|number| START_NS + number * PACKET_NS);
    assert_eq!(call.arrived_ns, times.collect::<Vec<_>>());
}

#[test]
fn the_coding_is_that_of_most_packets() {
    let mut wire = Wire::new();
    for number in 0..50 {
        // Two frames of 10 ms in full-band CELT, stereo; one of 20 ms in wide-band SILK, with a copy.
        match number % 5 {
            0 => wire.send(111, &[9 << 3, 0b1100_0000, 1, 2], 7),
            _ => wire.send(111, &[30 << 3 | 0b101, 1, 2, 3, 4, 5, 6, 7, 8], 7),
        }
    }
    let coding = wire.call(&[111]).unwrap().opus.unwrap();
    let expected = Coding {
        // (4 * 9 + 4) octets in 100 ms.
        bit_s: 4_000,
        bandwidth: Bandwidth::Full,
        low_delay: true,
        stereo: true,
        error_correction: true,
    };
    assert_eq!(coding, expected);
}

#[test]
fn what_is_no_single_call_of_opus_says_why() {
    for (payload, why) in [
        (&[11 << 3, 0, 0, 0][..], "has packets of 20 ms and of 60 ms"),
        (
            &[9 << 3 | 3, 0, 0, 0],
            "has payload type 111, which is Opus, and a packet that is none of Opus",
        ),
    ] {
        let mut wire = Wire::new();
        wire.speak(111, 50, 7);
        wire.send(111, payload, 7);
        assert_eq!(wire.call(&[111]).unwrap_err().to_string(), why);
    }
}
