//! The encoding of messages: every message survives it, and no other bytes are accepted.

use laxity_protect::protocol::message::{
    CHUNK_BYTES_MAX, COUNTED_MAX, FRAME_BYTES_MAX, Held, LENGTH_BYTES, Refused, Standing, VERSION,
    decode, encode, rest_bytes,
};
use laxity_protect::protocol::{CheckpointId, Header, Hello, Message, Mode, Part, Reason};
use proptest::prelude::*;

fn id() -> impl Strategy<Value = CheckpointId> {
    (0..COUNTED_MAX, 0..COUNTED_MAX).prop_map(|(term, number)| CheckpointId { term, number })
}

fn standing() -> impl Strategy<Value = Standing> {
    let held = (id(), any::<bool>()).prop_map(|(id, armed)| Held { id, armed });
    prop_oneof![
        Just(Standing::Primary),
        (proptest::option::of(held), any::<bool>(), any::<bool>()).prop_map(
            |(held, claiming, unheard)| Standing::Standby {
                held,
                claiming,
                unheard
            }
        ),
    ]
}

fn hello() -> impl Strategy<Value = Hello> {
    let numbers = any::<(u64, u64, u64, i64, u64)>();
    let bits = any::<(bool, bool, Option<u64>)>();
    (numbers, 0..COUNTED_MAX, bits, standing()).prop_map(
        |(
            (vm, host, incarnation, lease_ns, connection),
            term,
            (net, witness, answers),
            standing,
        )| Hello {
            vm,
            mode: if net { Mode::Net } else { Mode::NoNet },
            witness,
            lease_ns,
            host,
            incarnation,
            term,
            standing,
            connection,
            answers,
        },
    )
}

/// Any message; a chunk has these bytes.
fn message(data: &'static [u8]) -> impl Strategy<Value = Message<'static>> {
    let header = (id(), any::<(bool, bool, i64, u64, u64, u64)>()).prop_map(
        |(id, (full, arms, lease_ns, ram_bytes, device_bytes, disk_bytes))| Header {
            id,
            full,
            arms,
            lease_ns,
            ram_bytes,
            device_bytes,
            disk_bytes,
        },
    );
    prop_oneof![
        hello().prop_map(Message::Hello),
        Just(Message::Heartbeat),
        header.prop_map(Message::Begin),
        Just(Message::Chunk(Part::Ram, data)),
        Just(Message::Chunk(Part::Device, data)),
        Just(Message::Chunk(Part::Disk, data)),
        id().prop_map(|id| Message::Sums(id, data)),
        (id(), any::<u32>()).prop_map(|(id, checksum)| Message::End { id, checksum }),
        id().prop_map(Message::Acknowledge),
        (id(), any::<bool>()).prop_map(|(id, full)| {
            Message::Reject(id, if full { Reason::Full } else { Reason::Corrupt })
        }),
        id().prop_map(Message::Handover),
        (0..COUNTED_MAX).prop_map(|term| Message::Disarm { term }),
    ]
}

const DATA: &[u8] = b"what the memory of a guest may hold";

proptest! {
    #[test]
    fn what_goes_in_comes_out(message in message(DATA), sequence: u64) {
        let mut frames = b"before".to_vec();
        encode(&message, sequence, &mut frames);
        let frame = &frames[6..];
        prop_assert_eq!(decode(frame, sequence), Ok(message));
        prop_assert_eq!(rest_bytes(*frame.first_chunk().unwrap()), Ok(frame.len() - LENGTH_BYTES));
    }

    #[test]
    fn nothing_else_comes_out(message in message(DATA), sequence: u64, bits in any::<[prop::sample::Index; 3]>()) {
        let mut frame = Vec::new();
        encode(&message, sequence, &mut frame);
        for bytes in 0..frame.len() {
            prop_assert!(decode(&frame[..bytes], sequence).is_err(), "cut at {}", bytes);
        }
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&frame, sequence).is_err(), "bit {}", bit);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        // Three flipped bits, of which two may cancel each other.
        for bit in bits.map(|bit| bit.index(frame.len() * 8)) {
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        prop_assert!(decode(&frame, sequence).is_err());
    }

    #[test]
    fn bytes_of_chance_are_refused(bytes: Vec<u8>, sequence: u64) {
        prop_assert!(decode(&bytes, sequence).is_err());
    }
}

#[test]
fn a_frame_that_is_missing_or_comes_again() {
    let mut frame = Vec::new();
    encode(&Message::Heartbeat, 7, &mut frame);
    let refused = |wanted| Err(Refused::Sequence { got: 7, wanted });
    assert_eq!(decode(&frame, 6), refused(6));
    assert_eq!(decode(&frame, 8), refused(8));
}

#[test]
fn the_longest_and_what_is_longer() {
    let data = vec![7; CHUNK_BYTES_MAX];
    let mut frame = Vec::new();
    let message = Message::Chunk(Part::Ram, &data);
    encode(&message, 0, &mut frame);
    assert_eq!(frame.len(), FRAME_BYTES_MAX);
    assert_eq!(decode(&frame, 0), Ok(message));
    let length = (FRAME_BYTES_MAX - LENGTH_BYTES) as u32;
    for length in [0, 15, length + 1, u32::MAX] {
        assert_eq!(
            rest_bytes(length.to_le_bytes()),
            Err(Refused::Length(length.into()))
        );
    }
}

#[test]
fn another_version_is_named() {
    let mut frame = Vec::new();
    encode(&Message::Heartbeat, 0, &mut frame);
    let end = frame.len() - 4;
    frame[4] = VERSION + 1;
    let checksum = crc32c::crc32c(&frame[..end]).to_le_bytes();
    frame[end..].copy_from_slice(&checksum);
    assert_eq!(decode(&frame, 0), Err(Refused::Version(VERSION + 1)));
}
