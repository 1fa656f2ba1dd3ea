//! All streams of one load as they arrive at the sink, without I/O: takes octets and times, and
//! gives a report.

use crate::{
    MediaError,
    distribution::{Distribution, Quantiles},
    relay::Invalid,
    rtp,
    schedule::PERIOD_NS,
    stamp::Stamp,
    statistics::{Arrival, Counts, StreamReport, StreamStatistics, position},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;

/// The size of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of streams.
    pub streams: u32,
    /// Number of packets of each stream.
    pub packets: u32,
}

/// The received part of a load.
#[derive(Debug, Clone)]
pub struct Session {
    playout_ns: i64,
    run: Option<u32>,
    plan: Option<Plan>,
    end_ns: i64,
    streams: Vec<Option<Stream>>,
    received: u64,
    delay: Distribution,
    invalid: Invalid,
    foreign: u64,
    misdirected: u64,
    mistimed: u64,
}

/// A packet of the load that arrived for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Number of the stream.
    pub stream: u16,
    /// Number of the packet in its stream.
    pub packet: u32,
    /// Time of sending.
    pub sent_ns: i64,
    /// Time of arrival; for a mistimed packet the time at which the sink fetched it.
    pub arrived_ns: i64,
}

/// The times at which the sink received a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    /// Time of arrival by the kernel's stamp, whose clock may be set in the meantime.
    pub arrived_ns: i64,
    /// Time at which the sink fetched the datagram, by the senders' clock.
    pub fetched_ns: i64,
}

#[derive(Debug, Clone)]
struct Stream {
    first_sequence: u16,
    statistics: StreamStatistics,
}

/// Results of a load.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionReport {
    /// Number of streams of the load.
    pub streams: u32,
    /// Number of streams without any received packet.
    pub dead_streams: u32,
    /// Totals of all streams.
    #[serde(flatten)]
    pub counts: Counts,
    /// Share of the packets that did not arrive, in percent.
    pub loss_percent: f64,
    /// Mean number of packets that were lost in a row.
    pub loss_burst_mean: f64,
    /// Delay beyond which a packet is late.
    pub playout_ns: i64,
    /// One-way delay of all packets.
    pub delay: Option<Quantiles>,
    /// Final jitter of the streams.
    pub jitter: Option<Quantiles>,
    /// The stream with the most loss, and among equals the one with the longest p99 of delay.
    pub worst_stream: Option<StreamReport>,
    /// Datagrams that are no G.711.
    pub invalid: Invalid,
    /// G.711 packets that do not belong to this load.
    pub foreign: u64,
    /// Packets of one call that arrived at another call's port.
    pub misdirected: u64,
    /// Packets whose stamp of arrival is before their sending or after their fetching, because the
    /// stamping clock was set. Their time of fetching counts as their arrival.
    pub mistimed: u64,
    /// Results of each stream.
    pub per_stream: Vec<StreamReport>,
}

impl Session {
    /// A session for the first load that arrives, or with a plan for the first that matches it. A
    /// packet with a delay above `playout_ns` is late.
    pub fn new(playout_ns: i64, plan: Option<Plan>) -> Session {
        let mut session = Session {
            playout_ns,
            run: None,
            plan: None,
            end_ns: i64::MAX,
            streams: Vec::new(),
            received: 0,
            delay: Distribution::default(),
            invalid: Invalid::default(),
            foreign: 0,
            misdirected: 0,
            mistimed: 0,
        };
        if let Some(plan) = plan {
            session.follow(plan);
        }
        session
    }

    /// A session for the streams of one run's calls, which begin and end at any time; their number
    /// is not known beforehand.
    pub fn of_calls(playout_ns: i64, run: u32) -> Session {
        Session {
            run: Some(run),
            ..Session::new(playout_ns, None)
        }
    }

    fn follow(&mut self, plan: Plan) {
        self.plan = Some(plan);
        self.streams = vec![None; plan.streams as usize];
    }

    /// Counts a datagram that was too long to be received completely.
    pub fn count_too_long(&mut self) {
        self.invalid.too_long += 1;
    }

    /// Records a datagram that arrived at a port, or at the port of `stream` if each stream has its
    /// own. Returns the packet if it is one that counts.
    ///
    /// # Errors
    ///
    /// If its times show that it was sent by another clock.
    pub fn record(
        &mut self,
        octets: &[u8],
        got: Got,
        port_of: Option<u16>,
    ) -> Result<Option<Taken>, MediaError> {
        let header = match rtp::parse(octets) {
            Ok(header) => header,
            Err(malformed) => {
                self.invalid.count(malformed);
                return Ok(None);
            }
        };
        let stamp = Stamp::read(header.law, &octets[header.payload]);
        let Some(stamp) = stamp.filter(|stamp| self.is_mine(stamp)) else {
            self.foreign += 1;
            return Ok(None);
        };
        if port_of.is_some_and(|stream| stream != stamp.stream) {
            self.misdirected += 1;
            return Ok(None);
        }
        check_clock(stamp.sent_ns, got.fetched_ns)?;
        let is_timed = (stamp.sent_ns..=got.fetched_ns).contains(&got.arrived_ns);
        let arrived_ns = if is_timed {
            got.arrived_ns
        } else {
            got.fetched_ns
        };
        if self.run.is_none() {
            self.run = Some(stamp.run);
            self.follow(plan_of(&stamp));
        }
        // The load keeps to its schedule, so that any packet tells the end of the load.
        let to_come = i64::from(stamp.packets - stamp.packet);
        self.end_ns = stamp.sent_ns + to_come * PERIOD_NS;

        let place = usize::from(stamp.stream);
        if place >= self.streams.len() {
            self.streams.resize(place + 1, None);
        }
        let stream = self.streams[place].get_or_insert_with(|| Stream {
            first_sequence: header.sequence.wrapping_sub(stamp.packet as u16),
            statistics: StreamStatistics::new(stamp.packets, self.playout_ns),
        });
        let arrival = Arrival {
            // A server may renumber packets; the stamp decides where 16 bits are ambiguous.
            position: position(
                stream.first_sequence,
                header.sequence,
                i64::from(stamp.packet),
            ),
            timestamp: header.timestamp,
            sent_ns: stamp.sent_ns,
            arrived_ns,
        };
        if !stream.statistics.record(&arrival) {
            return Ok(None);
        }
        self.received += 1;
        self.mistimed += u64::from(!is_timed);
        self.delay.record(arrived_ns - stamp.sent_ns, 1);
        Ok(Some(Taken {
            stream: stamp.stream,
            packet: arrival.position as u32,
            sent_ns: stamp.sent_ns,
            arrived_ns,
        }))
    }

    /// Number of distinct packets received.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn is_mine(&self, stamp: &Stamp) -> bool {
        self.run.is_none_or(|run| run == stamp.run)
            && self.plan.is_none_or(|plan| plan == plan_of(stamp))
    }

    /// Whether any packet of the load has arrived.
    pub fn has_begun(&self) -> bool {
        self.run.is_some()
    }

    /// Whether every packet has arrived.
    pub fn is_complete(&self) -> bool {
        self.plan
            .is_some_and(|plan| self.received == u64::from(plan.streams) * u64::from(plan.packets))
    }

    /// The expected time of the load's last packet, estimated from the received ones; the far
    /// future if there are none.
    pub fn end_ns(&self) -> i64 {
        self.end_ns
    }

    /// The results of a load with a plan, assuming that nothing more arrives.
    pub fn report(&self) -> SessionReport {
        let packets = self.plan.map_or(0, |plan| plan.packets);
        self.report_of(&vec![packets; self.streams.len()])
    }

    /// The results of streams of which `sent` packets each were sent, assuming that nothing more
    /// arrives. Streams without a sent packet are left out.
    pub fn report_of(&self, sent: &[u32]) -> SessionReport {
        let mut jitter = Distribution::default();
        let mut counts = Counts::default();
        let mut per_stream = Vec::with_capacity(sent.len());
        for (number, &packets) in sent.iter().enumerate().filter(|(_, packets)| **packets > 0) {
            let report = match self.streams.get(number) {
                Some(Some(stream)) => stream.statistics.report_of(number as u32, packets),
                _ => StreamStatistics::new(packets, self.playout_ns).report(number as u32),
            };
            if let Some(jitter_ns) = report.jitter_ns {
                jitter.record(jitter_ns.round() as i64, 1);
            }
            counts.add(&report.counts);
            per_stream.push(report);
        }
        let badness = |report: &&StreamReport| {
            let p99_ns = report.delay.map_or(u64::MAX, |delay| delay.p99_ns);
            (report.counts.lost, p99_ns, Reverse(report.stream))
        };
        SessionReport {
            streams: per_stream.len() as u32,
            dead_streams: per_stream
                .iter()
                .filter(|stream| stream.counts.received == 0)
                .count() as u32,
            loss_percent: counts.loss_percent(),
            loss_burst_mean: counts.loss_burst_mean(),
            counts,
            playout_ns: self.playout_ns,
            delay: self.delay.quantiles(),
            jitter: jitter.quantiles(),
            worst_stream: per_stream.iter().max_by_key(badness).cloned(),
            invalid: self.invalid,
            foreign: self.foreign,
            misdirected: self.misdirected,
            mistimed: self.mistimed,
            per_stream,
        }
    }
}

fn plan_of(stamp: &Stamp) -> Plan {
    Plan {
        streams: u32::from(stamp.streams),
        packets: stamp.packets,
    }
}

/// Times of one clock never show a packet fetched before it was sent, nor hours later.
fn check_clock(sent_ns: i64, fetched_ns: i64) -> Result<(), MediaError> {
    const DELAY_NS_MAX: i128 = 3600 * 1_000_000_000;
    if (0..=DELAY_NS_MAX).contains(&(i128::from(fetched_ns) - i128::from(sent_ns))) {
        return Ok(());
    }
    Err(MediaError::OtherClock {
        sent_ns,
        arrived_ns: fetched_ns,
    })
}
