//! Statistics of streams against a second, slow calculation from the list of all packets, on random
//! orders of arrival; against a case computed by hand; and against the wrap of every number that
//! wraps.

use laxity_media::{
    g711::Law,
    rtp::{self, HEADER_BYTES, Header, PACKET_BYTES},
    session::{Got, Plan, Session},
    stamp::Stamp,
    statistics::{Arrival, StreamStatistics, position},
};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

const MS: i64 = 1_000_000;

/// A datagram that was fetched as soon as it arrived.
fn at(arrived_ns: i64) -> Got {
    Got {
        arrived_ns,
        fetched_ns: arrived_ns,
    }
}

/// A second calculation that goes through all packets again for each number.
mod slow {
    use super::{Arrival, MS};

    pub struct Answer {
        pub received: usize,
        pub lost: usize,
        pub bursts: Vec<usize>,
        pub duplicates: usize,
        pub reordered: usize,
        pub late: usize,
        pub stray: usize,
        pub delays_ns: Vec<i64>,
        pub jitter_ns: f64,
    }

    pub fn answer(packets: i64, playout_ns: i64, arrivals: &[Arrival]) -> Answer {
        let places: Vec<&Arrival> = arrivals
            .iter()
            .filter(|a| a.position >= 0 && a.position < packets)
            .collect();
        let first: Vec<&Arrival> = places
            .iter()
            .enumerate()
            .filter(|(at, a)| places[..*at].iter().all(|b| b.position != a.position))
            .map(|(_, a)| *a)
            .collect();
        let came = |place: i64| first.iter().any(|a| a.position == place);
        let bursts = (0..packets)
            .filter(|&place| !came(place) && (place == 0 || came(place - 1)))
            .map(|begin| (begin..packets).take_while(|&place| !came(place)).count())
            .collect();
        // RFC 3550, 6.4.1: D(i-1, i) = (R_i - S_i) - (R_(i-1) - S_(i-1)), J += (|D| - J) / 16; times in 1/8 ms as the
        // RFC has them. The timestamps of these streams do not wrap.
        let transit: Vec<f64> = first
            .iter()
            .map(|a| a.arrived_ns as f64 / MS as f64 * 8.0 - f64::from(a.timestamp))
            .collect();
        let jitter = transit
            .windows(2)
            .fold(0.0, |j, pair| j + ((pair[1] - pair[0]).abs() - j) / 16.0);
        Answer {
            received: first.len(),
            lost: (0..packets).filter(|&place| !came(place)).count(),
            bursts,
            duplicates: places.len() - first.len(),
            reordered: first
                .iter()
                .enumerate()
                .filter(|(at, a)| first[..*at].iter().any(|b| b.position > a.position))
                .count(),
            late: first
                .iter()
                .filter(|a| a.arrived_ns > a.sent_ns + playout_ns)
                .count(),
            stray: arrivals.len() - places.len(),
            delays_ns: first.iter().map(|a| a.arrived_ns - a.sent_ns).collect(),
            jitter_ns: jitter / 8.0 * MS as f64,
        }
    }
}

fn below(random: &mut impl RngCore, bound: i64) -> i64 {
    (random.next_u64() % bound as u64) as i64
}

/// A random stream with bursts of loss, duplicates, strays, and delays that reorder.
fn random_arrivals(random: &mut impl RngCore, packets: i64) -> Vec<Arrival> {
    let (loss_percent, copy_percent) = (below(random, 40), below(random, 20));
    let spread_ns = [1, 1000, 10 * MS, 100 * MS][below(random, 4) as usize];
    let mut losing = false;
    let mut arrivals = Vec::new();
    for position in 0..packets {
        // The state, in a burst or outside, changes at random.
        if below(random, 3) == 0 {
            losing = below(random, 100) < loss_percent;
        }
        let copies = i64::from(!losing) + i64::from(below(random, 100) < copy_percent);
        for _ in 0..copies {
            let sent_ns = position * 20 * MS;
            let position = match below(random, 200) {
                0 => -1 - below(random, 5),
                1 => packets + below(random, 5),
                _ => position,
            };
            arrivals.push(Arrival {
                position,
                timestamp: 160 * (sent_ns / (20 * MS)) as u32,
                sent_ns,
                arrived_ns: sent_ns + below(random, spread_ns),
            });
        }
    }
    arrivals.sort_by_key(|arrival| arrival.arrived_ns);
    arrivals
}

#[test]
fn random_orders_of_arrival() {
    for seed in 0..400 {
        println!("seed {seed}");
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let packets = 1 + below(&mut random, 200);
        let playout_ns = below(&mut random, 60 * MS);
        let arrivals = random_arrivals(&mut random, packets);
        let mut statistics = StreamStatistics::new(packets as u32, playout_ns);
        for arrival in &arrivals {
            statistics.record(arrival);
        }
        let ours = statistics.report(0);
        let theirs = slow::answer(packets, playout_ns, &arrivals);
        let counts = &ours.counts;
        assert_eq!(counts.expected, packets as u64);
        assert_eq!(counts.received, theirs.received as u64);
        assert_eq!(counts.lost, theirs.lost as u64);
        assert_eq!(counts.loss_bursts, theirs.bursts.len() as u64);
        let longest = theirs.bursts.iter().max().copied().unwrap_or(0);
        assert_eq!(counts.loss_burst_max, longest as u64);
        assert_eq!(counts.duplicates, theirs.duplicates as u64);
        assert_eq!(counts.reordered, theirs.reordered as u64);
        assert_eq!(counts.late, theirs.late as u64);
        assert_eq!(counts.stray, theirs.stray as u64);
        let mut delays_ns = theirs.delays_ns;
        delays_ns.sort_unstable();
        let Some(delay) = ours.delay else {
            assert!(delays_ns.is_empty() && ours.jitter_ns.is_none());
            continue;
        };
        // The histogram keeps two digits.
        let close = |ours: f64, theirs: i64| (ours - theirs as f64).abs() <= theirs as f64 / 64.0;
        let rank = |quantile: f64| (quantile * delays_ns.len() as f64).ceil().max(1.0) as usize - 1;
        assert_eq!(delay.count, delays_ns.len() as u64);
        assert!(close(delay.max_ns as f64, *delays_ns.last().unwrap()));
        assert!(close(delay.p50_ns as f64, delays_ns[rank(0.5)]));
        assert!(close(delay.p99_ns as f64, delays_ns[rank(0.99)]));
        assert!((ours.jitter_ns.unwrap() - theirs.jitter_ns).abs() < 1.0);
        assert!(ours.jitter_ns_max.unwrap() >= ours.jitter_ns.unwrap());
    }
}

#[test]
fn jitter_by_hand() {
    // Packets are sent every 20 ms with delays of 5, 7, 4 and 4 ms: D = +2, -3, 0 ms.
    let mut statistics = StreamStatistics::new(4, MS * 60);
    let mut jitters_ns = Vec::new();
    for (position, delay_ms) in [5, 7, 4, 4].into_iter().enumerate() {
        let sent_ns = position as i64 * 20 * MS;
        statistics.record(&Arrival {
            position: position as i64,
            timestamp: (u32::MAX - 100).wrapping_add(160 * position as u32),
            sent_ns,
            arrived_ns: sent_ns + delay_ms * MS,
        });
        jitters_ns.push(statistics.report(0).jitter_ns.unwrap());
    }
    // 2/16 = 0.125 ms; + (3 - 0.125)/16 = 0.3046875 ms; - 0.3046875/16 = 0.28564453125 ms.
    assert_eq!(jitters_ns, [0.0, 125_000.0, 304_687.5, 285_644.531_25]);
    assert_eq!(statistics.report(0).jitter_ns_max, Some(304_687.5));
}

#[test]
fn late_is_later_than_the_playout_delay() {
    let mut statistics = StreamStatistics::new(2, 60 * MS);
    for (position, delay_ns) in [(0, 60 * MS), (1, 60 * MS + 1)] {
        statistics.record(&Arrival {
            position,
            timestamp: 0,
            sent_ns: 0,
            arrived_ns: delay_ns,
        });
        assert_eq!(statistics.report(0).counts.late, position as u64);
    }
}

#[test]
fn sequence_numbers_wrap() {
    assert_eq!(position(65_530, 65_530, 0), 0);
    assert_eq!(position(65_530, 4, 5), 10);
    // A packet from before the wrap, with a reference after it.
    assert_eq!(position(65_530, 65_535, 10), 5);
    assert_eq!(position(0, 0, 65_535), 65_536);
    assert_eq!(position(0, 65_535, 65_536), 65_535);
    assert_eq!(position(7, 7, 3 * 65_536 - 20), 3 * 65_536);
    // A packet from before the first one.
    assert_eq!(position(0, 65_535, 3), -1);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..10_000 {
        let first = random.next_u32() as u16;
        let place = below(&mut random, 1 << 40);
        let reference = place + below(&mut random, 65_535) - 32_767;
        let sequence = first.wrapping_add(place as u16);
        assert_eq!(position(first, sequence, reference), place);
    }
}

/// Packet `packet` of stream `stream` of `plan`, in the form that the load sends.
fn octets(run: u32, plan: Plan, stream: u16, packet: u32, sequence: u16, sent_ns: i64) -> Vec<u8> {
    let mut octets = [0xFF; PACKET_BYTES];
    let header = Header {
        marker: packet == 0,
        law: Law::Mu,
        sequence,
        timestamp: packet.wrapping_mul(160),
        ssrc: u32::from(stream),
        payload: HEADER_BYTES..PACKET_BYTES,
    };
    rtp::write_header(&header, &mut octets);
    let stamp = Stamp {
        run,
        stream,
        streams: plan.streams as u16,
        packet,
        packets: plan.packets,
        sent_ns,
    };
    stamp.write(Law::Mu, &mut octets[HEADER_BYTES..]);
    octets.to_vec()
}

#[test]
fn a_session_counts_what_is_and_is_not_its_own() {
    let plan = Plan {
        streams: 3,
        packets: 100_000,
    };
    let mut session = Session::new(60 * MS, None);
    assert!(!session.has_begun() && session.end_ns() == i64::MAX);
    // Other octets are not counted as a load.
    session.record(&[0x80], at(0), None).unwrap();
    session
        .record(&octets(1, plan, 0, 0, 0, 0)[..40], at(0), None)
        .unwrap();
    session.count_too_long();
    assert!(!session.has_begun());

    // Stream 0 has every packet over more than one wrap; stream 1 only its second half, after
    // 50,000 lost packets.
    let send = |session: &mut Session, stream: u16, packet: u32| {
        let sent_ns = i64::from(packet) * 20 * MS;
        let sequence = (60_000u32 + packet) as u16;
        let octets = octets(1, plan, stream, packet, sequence, sent_ns);
        session.record(&octets, at(sent_ns + MS), None).unwrap();
    };
    for packet in 0..plan.packets {
        send(&mut session, 0, packet);
        if packet >= 50_000 {
            send(&mut session, 1, packet);
        }
    }
    assert_eq!(session.end_ns(), 100_000 * 20 * MS);
    // A duplicate; a packet of another run; one of another plan; and one whose sequence number does
    // not fit its stamp.
    send(&mut session, 1, 99_999);
    session
        .record(&octets(2, plan, 0, 5, 5, 0), at(MS), None)
        .unwrap();
    let smaller = Plan { streams: 2, ..plan };
    session
        .record(&octets(1, smaller, 0, 5, 5, 0), at(MS), None)
        .unwrap();
    session
        .record(&octets(1, plan, 0, 0, 59_999, 0), at(MS), None)
        .unwrap();
    assert!(!session.is_complete());

    let report = session.report();
    assert_eq!((report.streams, report.dead_streams), (3, 1));
    assert_eq!(report.invalid.total(), 2);
    assert_eq!((report.invalid.truncated, report.invalid.too_long), (1, 1));
    assert_eq!(
        report.foreign, 3,
        "one cut, one of another run, one of another plan"
    );
    let counts = &report.counts;
    assert_eq!((counts.received, counts.lost), (150_000, 150_000));
    assert_eq!((counts.loss_bursts, counts.loss_burst_max), (2, 100_000));
    assert_eq!((counts.duplicates, counts.reordered), (1, 0));
    assert_eq!((counts.stray, counts.late), (1, 0));
    assert_eq!(report.loss_percent, 50.0);
    let worst = report.worst_stream.unwrap();
    assert_eq!((worst.stream, worst.delay), (2, None));
    assert_eq!(report.per_stream[1].counts.lost, 50_000);
    assert_eq!(report.delay.unwrap().count, 150_000);
}

#[test]
fn a_session_is_complete_with_its_last_packet_and_dead_without_any() {
    let plan = Plan {
        streams: 2,
        packets: 2,
    };
    let mut session = Session::new(60 * MS, Some(plan));
    let dead = session.report();
    assert_eq!((dead.dead_streams, dead.counts.lost), (2, 4));
    assert_eq!((dead.delay, dead.loss_percent), (None, 100.0));
    for (stream, packet) in [(0, 1), (0, 1), (1, 0), (0, 0), (1, 1)] {
        assert!(!session.is_complete());
        session
            .record(
                &octets(9, plan, stream, packet, packet as u16, 0),
                at(61 * MS),
                None,
            )
            .unwrap();
    }
    assert!(session.is_complete());
    let report = session.report();
    assert_eq!((report.counts.lost, report.counts.late), (0, 4));
    assert_eq!((report.counts.duplicates, report.counts.reordered), (1, 1));
}

#[test]
fn another_machines_clock_is_refused() {
    let plan = Plan {
        streams: 1,
        packets: 1,
    };
    for (sent_ns, arrived_ns) in [(2_000 * MS, 0), (0, 3_601_000 * MS), (i64::MAX, 0)] {
        let mut session = Session::new(60 * MS, None);
        let error = session
            .record(&octets(1, plan, 0, 0, 0, sent_ns), at(arrived_ns), None)
            .unwrap_err();
        assert!(error.to_string().contains("must run on one machine"));
    }
}

#[test]
fn a_clock_that_is_set_meanwhile_costs_no_run() {
    let plan = Plan {
        streams: 1,
        packets: 4,
    };
    let mut session = Session::new(60 * MS, Some(plan));
    // The clock that stamps arrivals is set back by 5 s, and ahead by the same time.
    let stamps_ns = [1_003 * MS, -3_980 * MS, 6_043 * MS, 1_063 * MS];
    for (packet, arrived_ns) in stamps_ns.into_iter().enumerate() {
        let sent_ns = 1_000 * MS + 20 * MS * packet as i64;
        let got = Got {
            arrived_ns,
            fetched_ns: sent_ns + 4 * MS,
        };
        let octets = octets(1, plan, 0, packet as u32, packet as u16, sent_ns);
        let taken = session.record(&octets, got, None).unwrap().unwrap();
        let delay_ns = taken.arrived_ns - taken.sent_ns;
        assert_eq!(delay_ns, if [0, 3].contains(&packet) { 3 } else { 4 } * MS);
    }
    let report = session.report();
    assert_eq!((report.counts.received, report.mistimed), (4, 2));
    assert_eq!(report.counts.late, 0);
}
