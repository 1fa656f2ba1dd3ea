//! RTP: whatever datagrams come, each is counted in exactly one place, and the counts of a stream agree
//! with each other. The input is datagrams, each after an octet with its length.
#![no_main]

use laxity_media::{
    g711::Law,
    rtp::{self, HEADER_BYTES, PACKET_BYTES},
    session::{Got, Session},
    stamp::Stamp,
};
use libfuzzer_sys::fuzz_target;

/// As long as it may be counted in.
const STREAMS: u16 = 3;
const PACKETS: u32 = 70;

fuzz_target!(|data: &[u8]| {
    let mut session = Session::new(60_000_000, None);
    let mut datagrams = 0;
    let mut rest = data;
    let mut time_ns = 0;
    while let [length, after @ ..] = rest {
        let (datagram, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        time_ns += i64::from(*length) * 1_000_000;

        if let Ok(header) = rtp::parse(datagram) {
            assert!(header.payload.start >= HEADER_BYTES && header.payload.end <= datagram.len());
            let mut other = datagram.to_vec();
            rtp::set_law(&mut other, header.law.other());
            let other = rtp::parse(&other).expect("only the law has changed");
            assert_eq!(other.law, header.law.other());
            assert_eq!(other.payload, header.payload);
        }
        let got = Got {
            arrived_ns: time_ns,
            fetched_ns: time_ns,
        };
        // A clock that is another machine's ends a session; nothing of the datagram is counted then.
        datagrams += u64::from(session.record(datagram, got, None).is_ok());
        if let Some(own) = own_packet(datagram, time_ns) {
            datagrams += u64::from(session.record(&own, got, None).is_ok());
        }
    }

    let report = session.report();
    let counts = &report.counts;
    let not_received = report.invalid.total() + report.foreign + counts.stray + counts.duplicates;
    assert_eq!(counts.received + not_received, datagrams);
    for stream in &report.per_stream {
        let counts = &stream.counts;
        assert_eq!(counts.received + counts.lost, counts.expected);
        assert!(counts.reordered + counts.late <= 2 * counts.received);
        assert!(counts.loss_burst_max <= counts.lost && counts.loss_bursts <= counts.lost);
        assert_eq!(counts.loss_bursts == 0, counts.lost == 0);
        assert_eq!(stream.delay.is_some(), counts.received > 0);
        assert_eq!(stream.delay.map_or(0, |delay| delay.count), counts.received);
    }
});

/// A packet as a load sends it, with numbers from the datagram: chance alone makes no stamp.
fn own_packet(datagram: &[u8], time_ns: i64) -> Option<Vec<u8>> {
    let &[stream, packet, sequence, delay_ms, ..] = datagram else {
        return None;
    };
    let header = rtp::Header {
        marker: false,
        law: if stream & 1 == 0 { Law::Mu } else { Law::A },
        sequence: u16::from(packet).wrapping_sub(u16::from(sequence >> 6)),
        timestamp: u32::from(packet) * 160,
        ssrc: stream.into(),
        payload: HEADER_BYTES..PACKET_BYTES,
    };
    let mut octets = [0; PACKET_BYTES];
    rtp::write_header(&header, &mut octets);
    let stamp = Stamp {
        run: u32::from(stream >> 7),
        stream: u16::from(stream) % STREAMS,
        streams: STREAMS,
        packet: u32::from(packet) % PACKETS,
        packets: PACKETS,
        sent_ns: (time_ns - i64::from(delay_ms) * 1_000_000).max(0),
    };
    stamp.write(header.law, &mut octets[HEADER_BYTES..]);
    Some(octets.to_vec())
}
