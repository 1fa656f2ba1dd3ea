//! The load sends every packet of the schedule, and none before its time.

use laxity_media::{
    clock,
    g711::Law,
    load::load,
    rtp::{self, Header, PACKET_BYTES},
    schedule::{PERIOD_NS, Schedule},
    socket::{self, BATCH_MAX, Receiver},
    stamp::Stamp,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
};

const STREAMS: u32 = 12;
const PACKETS: u32 = 10;

#[test]
fn every_packet_once_and_none_before_its_time() {
    for (law, senders) in [(Law::Mu, 1), (Law::A, 3)] {
        let sink = socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = socket::address(&sink).unwrap();
        let from = socket::bind(socket::any_address_to(to)).unwrap();
        let duration_ns = i64::from(PACKETS) * PERIOD_NS;
        let schedule = Schedule::new(STREAMS, duration_ns, 2_500_000, senders).unwrap();
        let before_ns = clock::monotonic_ns();
        let report = load(&from, to, law, &schedule, &AtomicBool::new(false)).unwrap();
        assert_eq!(report.sent, u64::from(STREAMS * PACKETS));
        assert_eq!(report.packet_late.unwrap().count, report.sent);

        let due_ns: BTreeMap<(u32, u32), i64> = (0..senders)
            .flat_map(|sender| schedule.turns(sender))
            .flat_map(|turn| {
                turn.streams
                    .map(move |stream| ((stream, turn.packet), turn.due_ns))
            })
            .collect();
        let packets = receive(&sink, due_ns.len());
        assert!(due_ns.keys().eq(packets.keys()));
        let mut sources = BTreeSet::new();
        for (&(stream, packet), (header, sent_ns)) in &packets {
            assert!(*sent_ns >= before_ns + due_ns[&(stream, packet)]);
            let (first, _) = &packets[&(stream, 0)];
            assert_eq!((header.law, header.ssrc), (law, first.ssrc));
            assert_eq!(header.marker, packet == 0);
            let numbered = first.sequence.wrapping_add(packet as u16);
            assert_eq!(header.sequence, numbered);
            let timed = first.timestamp.wrapping_add(160 * packet);
            assert_eq!(header.timestamp, timed);
            sources.insert(header.ssrc);
        }
        assert_eq!(sources.len(), STREAMS as usize);
    }
}

/// Receives `count` distinct packets, by stream and number; fails if they do not arrive within 30
/// s.
fn receive(sink: &std::net::UdpSocket, count: usize) -> BTreeMap<(u32, u32), (Header, i64)> {
    let mut receiver = Receiver::new(BATCH_MAX);
    let mut packets = BTreeMap::new();
    let deadline_ns = clock::monotonic_ns() + 30_000_000_000;
    while packets.len() < count {
        assert!(
            clock::monotonic_ns() < deadline_ns,
            "{} came",
            packets.len()
        );
        receiver.receive(sink).unwrap();
        for (_, octets) in receiver.datagrams() {
            assert_eq!(octets.len(), PACKET_BYTES);
            let header = rtp::parse(octets).unwrap();
            let stamp = Stamp::read(header.law, &octets[header.payload.clone()]).unwrap();
            let place = (stamp.stream.into(), stamp.packet);
            let again = packets.insert(place, (header, stamp.sent_ns));
            assert_eq!(again, None);
        }
    }
    packets
}

#[test]
fn a_load_that_is_stopped_says_what_it_sent() {
    let sink = socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = socket::address(&sink).unwrap();
    let schedule = Schedule::new(3, 24 * 3600 * 1_000_000_000, 1_000_000, 2).unwrap();
    let report = load(&sink, to, Law::Mu, &schedule, &AtomicBool::new(true)).unwrap();
    assert_eq!((report.sent, report.failed), (0, 0));
    assert_eq!((report.wake_up_late, report.packet_late), (None, None));
}
