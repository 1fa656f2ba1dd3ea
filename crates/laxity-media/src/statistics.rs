//! Statistics of one stream: delay, jitter, loss and its bursts, order, duplicates, lateness.

use crate::{
    distribution::{Distribution, Quantiles},
    g711::SAMPLE_NS,
};
use schemars::JsonSchema;
use serde::Serialize;

/// A packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Place in the stream, from 0 and beyond 16 bits: see [`position`].
    pub position: i64,
    /// RTP's timestamp, in samples modulo 2^32.
    pub timestamp: u32,
    /// Time of sending.
    pub sent_ns: i64,
    /// Time of arrival, by the same clock.
    pub arrived_ns: i64,
}

/// The place in its stream of a packet with RTP sequence number `sequence`, where the stream's first packet has
/// `first_sequence`: of all places with that number, modulo 2^16, the one nearest to `reference`.
pub fn position(first_sequence: u16, sequence: u16, reference: i64) -> i64 {
    let wrapped = sequence
        .wrapping_sub(first_sequence)
        .wrapping_sub(reference as u16);
    reference + i64::from(wrapped as i16)
}

/// The received part of one stream.
#[derive(Debug, Clone)]
pub struct StreamStatistics {
    packets: u32,
    playout_ns: i64,
    /// A bit for each place whose packet has arrived, up to the highest such place.
    arrived: Vec<u64>,
    highest: i64,
    counts: Counts,
    delay: Distribution,
    /// The previous packet in order of arrival; the jitter so far, and its highest value.
    last: Option<(u32, i64)>,
    jitter_ns: f64,
    jitter_ns_max: f64,
}

/// Numbers of packets of one stream or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Packets that were sent.
    pub expected: u64,
    /// Distinct packets that arrived.
    pub received: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Runs of packets that were lost in a row.
    pub loss_bursts: u64,
    /// Length of the longest such run.
    pub loss_burst_max: u64,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets that arrived after one that was sent later (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Packets that arrived after the playout delay and could not be played.
    pub late: u64,
    /// Packets whose sequence number has no place in the stream.
    pub stray: u64,
}

impl Counts {
    /// Adds `other`.
    pub fn add(&mut self, other: &Counts) {
        self.expected += other.expected;
        self.received += other.received;
        self.lost += other.lost;
        self.loss_bursts += other.loss_bursts;
        self.loss_burst_max = self.loss_burst_max.max(other.loss_burst_max);
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.late += other.late;
        self.stray += other.stray;
    }

    /// Share of the packets that did not arrive, in percent.
    pub fn loss_percent(&self) -> f64 {
        percent(self.lost, self.expected)
    }

    /// Mean length of a burst of loss; 0 without loss.
    pub fn loss_burst_mean(&self) -> f64 {
        if self.loss_bursts == 0 {
            return 0.0;
        }
        self.lost as f64 / self.loss_bursts as f64
    }
}

pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    100.0 * part as f64 / whole as f64
}

/// Results of a stream. Delay and jitter are missing if nothing arrived.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StreamReport {
    /// Number of the stream, from 0.
    pub stream: u32,
    /// Numbers of its packets.
    #[serde(flatten)]
    pub counts: Counts,
    /// One-way delay from the sender's system call to the sink's socket, with two digits.
    pub delay: Option<Quantiles>,
    /// Interarrival jitter after the last packet (RFC 3550, section 6.4.1 and A.8).
    pub jitter_ns: Option<f64>,
    /// Highest value of the jitter.
    pub jitter_ns_max: Option<f64>,
}

impl StreamStatistics {
    /// Statistics of a stream of `packets` packets. A packet with a delay above `playout_ns` is
    /// late.
    pub fn new(packets: u32, playout_ns: i64) -> StreamStatistics {
        StreamStatistics {
            packets,
            playout_ns,
            arrived: Vec::new(),
            highest: -1,
            counts: Counts::default(),
            delay: Distribution::coarse(),
            last: None,
            jitter_ns: 0.0,
            jitter_ns_max: 0.0,
        }
    }

    /// Records a packet. Returns whether it is the first for its place; only then it counts for
    /// delay, jitter and lateness.
    pub fn record(&mut self, arrival: &Arrival) -> bool {
        if !(0..i64::from(self.packets)).contains(&arrival.position) {
            self.counts.stray += 1;
            return false;
        }
        if !self.mark(arrival.position as usize) {
            self.counts.duplicates += 1;
            return false;
        }
        self.counts.received += 1;
        if arrival.position < self.highest {
            self.counts.reordered += 1;
        }
        self.highest = self.highest.max(arrival.position);
        let delay_ns = arrival.arrived_ns - arrival.sent_ns;
        if delay_ns > self.playout_ns {
            self.counts.late += 1;
        }
        self.delay.record(delay_ns, 1);
        self.update_jitter(arrival);
        true
    }

    /// Updates the jitter (RFC 3550, A.8): D is the difference between two packets' distance of
    /// arrival and the distance of their timestamps, and J follows |D| with a gain of 1/16.
    fn update_jitter(&mut self, arrival: &Arrival) {
        if let Some((timestamp, arrived_ns)) = self.last {
            let apart_samples = arrival.timestamp.wrapping_sub(timestamp) as i32;
            let difference_ns =
                (arrival.arrived_ns - arrived_ns) - i64::from(apart_samples) * SAMPLE_NS;
            self.jitter_ns += (difference_ns.abs() as f64 - self.jitter_ns) / 16.0;
            self.jitter_ns_max = self.jitter_ns_max.max(self.jitter_ns);
        }
        self.last = Some((arrival.timestamp, arrival.arrived_ns));
    }

    /// Marks a place. Returns whether it was free.
    fn mark(&mut self, place: usize) -> bool {
        let (word, bit) = (place / 64, 1u64 << (place % 64));
        if word >= self.arrived.len() {
            self.arrived.resize(word + 1, 0);
        }
        let free = self.arrived[word] & bit == 0;
        self.arrived[word] |= bit;
        free
    }

    fn has(&self, place: usize) -> bool {
        self.arrived
            .get(place / 64)
            .is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// The results of a complete stream, assuming that nothing more arrives.
    pub fn report(&self, stream: u32) -> StreamReport {
        self.report_of(stream, self.packets)
    }

    /// The results of a stream of `packets` packets, assuming that nothing more arrives.
    pub fn report_of(&self, stream: u32, packets: u32) -> StreamReport {
        let mut counts = self.counts;
        counts.expected = u64::from(packets);
        counts.lost = counts.expected.saturating_sub(counts.received);
        let mut burst = 0;
        for place in 0..packets as usize {
            if self.has(place) {
                burst = 0;
                continue;
            }
            burst += 1;
            counts.loss_bursts += u64::from(burst == 1);
            counts.loss_burst_max = counts.loss_burst_max.max(burst);
        }
        let heard = self.last.is_some();
        StreamReport {
            stream,
            counts,
            delay: self.delay.quantiles(),
            jitter_ns: heard.then_some(self.jitter_ns),
            jitter_ns_max: heard.then_some(self.jitter_ns_max),
        }
    }
}
