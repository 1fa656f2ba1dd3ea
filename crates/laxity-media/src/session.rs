//! All streams of one load, as they arrive at the sink. Pure: octets and times in, a report out.

use crate::{
    MediaError,
    distribution::{Distribution, Quantiles},
    relay::Invalid,
    rtp,
    schedule::PERIOD_NS,
    stamp::Stamp,
    statistics::{Arrival, Counts, StreamReport, StreamStatistics, position},
};
use serde::Serialize;
use std::cmp::Reverse;

/// What a load is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Streams.
    pub streams: u32,
    /// Packets of each.
    pub packets: u32,
}

/// What has arrived of a load.
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

/// A packet of the load that came for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its stream.
    pub stream: u16,
    /// Its number within the stream.
    pub packet: u32,
    /// When it was sent.
    pub sent_ns: i64,
    /// When it arrived: when it was fetched, if it is mistimed.
    pub arrived_ns: i64,
}

/// When the sink got a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    /// When it arrived, as the kernel stamped it by a clock that may be set meanwhile.
    pub arrived_ns: i64,
    /// When the sink fetched it, by the clock of those who send.
    pub fetched_ns: i64,
}

#[derive(Debug, Clone)]
struct Stream {
    first_sequence: u16,
    statistics: StreamStatistics,
}

/// What became of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionReport {
    /// Streams of the load.
    pub streams: u32,
    /// Streams of which nothing came.
    pub dead_streams: u32,
    /// Packets of all streams.
    #[serde(flatten)]
    pub counts: Counts,
    /// Share of the packets that did not come.
    pub loss_percent: f64,
    /// Packets, on average, that were lost one after the other.
    pub loss_burst_mean: f64,
    /// A packet is late if it takes longer.
    pub playout_ns: i64,
    /// One way, of all packets.
    pub delay: Option<Quantiles>,
    /// Of the streams' jitter, after the last packet of each.
    pub jitter: Option<Quantiles>,
    /// The stream with the most loss, and of those the one with the longest p99 of delay.
    pub worst_stream: Option<StreamReport>,
    /// Datagrams that are no G.711.
    pub invalid: Invalid,
    /// G.711 packets that are not of this load.
    pub foreign: u64,
    /// Packets of one call that came to another's port.
    pub misdirected: u64,
    /// Packets whose stamp of arrival is before they were sent or after they were fetched, as the clock that stamps was
    /// set. They count as arrived when they were fetched.
    pub mistimed: u64,
    /// Each stream.
    pub per_stream: Vec<StreamReport>,
}

impl Session {
    /// Takes in the first load that comes; with a plan, only one that follows it. A packet that takes longer than
    /// `playout_ns` is late.
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

    /// Takes in the streams of calls of one run, which begin and end as they please; nobody knows beforehand how many.
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

    /// Counts a datagram that was too long to be received whole.
    pub fn count_too_long(&mut self) {
        self.invalid.too_long += 1;
    }

    /// Takes in a datagram that came to a port; to the port of one stream, if a stream has a port of its own. Answers
    /// which packet it is, if it is one that counts.
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
        // The load keeps to its schedule, so that one packet tells the end of all.
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
            // A server may number packets anew; where 16 bits leave a choice, the stamp tells.
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

    /// Packets that have come, each once.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn is_mine(&self, stamp: &Stamp) -> bool {
        self.run.is_none_or(|run| run == stamp.run)
            && self.plan.is_none_or(|plan| plan == plan_of(stamp))
    }

    /// Whether a packet of the load has come.
    pub fn has_begun(&self) -> bool {
        self.run.is_some()
    }

    /// Whether every packet has come.
    pub fn is_complete(&self) -> bool {
        self.plan
            .is_some_and(|plan| self.received == u64::from(plan.streams) * u64::from(plan.packets))
    }

    /// When the load will have sent its last packet, by what has come of it; never, if nothing has.
    pub fn end_ns(&self) -> i64 {
        self.end_ns
    }

    /// What became of a load that has a plan, if nothing more comes.
    pub fn report(&self) -> SessionReport {
        let packets = self.plan.map_or(0, |plan| plan.packets);
        self.report_of(&vec![packets; self.streams.len()])
    }

    /// What became of streams of which so many packets were sent, if nothing more comes. A stream of which none was sent
    /// is none.
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

/// One clock has no packet fetched before it is sent, nor hours later.
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
