//! The schedule of the load.
//!
//! Each stream has a packet every 20 ms. The 20 ms are cut into slots of one tick; the streams are
//! spread evenly over the slots, in order, and the slots in turn over the threads. A thread wakes
//! for its slots only, sends what is due in one go, and sleeps to the *absolute* time of its next:
//! what makes one wake-up late does not move the ones after it.

use crate::{
    MediaError,
    stamp::{PACKETS_MAX, STREAMS_MAX},
};
use std::ops::Range;

/// Interval between two packets of a stream (the paper's section 4).
pub const PERIOD_NS: i64 = 20_000_000;
/// Samples in a packet.
pub const PERIOD_SAMPLES: u32 = 160;

/// The due times of all packets of all streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    streams: u32,
    packets: u32,
    tick_ns: i64,
    threads: u32,
}

/// The time in which packets are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first instant of the window.
    pub begin_ns: i64,
    /// The first instant after the window.
    pub end_ns: i64,
}

impl Window {
    /// A window without limits.
    pub const ALWAYS: Window = Window {
        begin_ns: i64::MIN,
        end_ns: i64::MAX,
    };
    /// A window that has not been decided yet: nothing is sent.
    pub const NOT_YET: Window = Window {
        begin_ns: i64::MAX,
        end_ns: i64::MAX,
    };

    /// The phase of packets that are due at this time, whenever a thread gets to them.
    pub fn at(&self, due_ns: i64) -> Phase {
        if due_ns >= self.end_ns {
            Phase::After
        } else if due_ns < self.begin_ns {
            Phase::Before
        } else {
            Phase::Within
        }
    }
}

/// The place of an instant relative to a [`Window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is sent yet.
    Before,
    /// What is due is sent.
    Within,
    /// Sending is over.
    After,
}

/// One wake-up of a thread: packet number `packet` of all these streams is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Time after the load's start.
    pub due_ns: i64,
    /// Number of the packet in each stream.
    pub packet: u32,
    /// The streams.
    pub streams: Range<u32>,
}

impl Schedule {
    /// A schedule of `streams` streams, each with the packets that fit into `duration_ns`, sent by
    /// `threads` threads that together wake every `tick_ns`.
    ///
    /// # Errors
    ///
    /// What does not fit, and what would.
    pub fn new(
        streams: u32,
        duration_ns: i64,
        tick_ns: i64,
        threads: u32,
    ) -> Result<Schedule, MediaError> {
        let refused = |text: String| Err(MediaError::Refused(text));
        let packets = duration_ns / PERIOD_NS;
        if streams == 0 {
            return refused("there are no streams; a load has at least 1".into());
        }
        if streams > STREAMS_MAX {
            return refused(format!(
                "{streams} streams are too many; a load has at most {STREAMS_MAX}"
            ));
        }
        if packets == 0 || duration_ns % PERIOD_NS != 0 {
            return refused(
                "the duration is not a whole number of packets; give a multiple of 20 ms".into(),
            );
        }
        if packets > i64::from(PACKETS_MAX) {
            return refused("the duration is too long; a load lasts at most 24 h".into());
        }
        if tick_ns <= 0 || PERIOD_NS % tick_ns != 0 {
            return refused(
                "the tick does not divide 20 ms; give 1 ms, 500 us, 250 us, 200 us or 100 us"
                    .into(),
            );
        }
        let slots = PERIOD_NS / tick_ns;
        if threads == 0 || i64::from(threads) > slots {
            return refused(format!(
                "{threads} threads cannot share {slots} ticks; give 1 to {slots} threads"
            ));
        }
        Ok(Schedule {
            streams,
            packets: packets as u32,
            tick_ns,
            threads,
        })
    }

    /// Number of streams.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// Number of packets of each stream.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Number of threads.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Interval between two wake-ups, over all threads.
    pub fn tick_ns(&self) -> i64 {
        self.tick_ns
    }

    /// Time from the first packet to the end of the last packet's 20 ms.
    pub fn duration_ns(&self) -> i64 {
        i64::from(self.packets) * PERIOD_NS
    }

    /// The wake-ups of one thread, in order.
    pub fn turns(&self, thread: u32) -> impl Iterator<Item = Turn> + '_ {
        let slots = (PERIOD_NS / self.tick_ns) as u64;
        let first_stream = move |slot: u64| (slot * u64::from(self.streams)).div_ceil(slots) as u32;
        (0..self.packets).flat_map(move |packet| {
            (u64::from(thread)..slots)
                .step_by(self.threads as usize)
                .map(move |slot| Turn {
                    due_ns: i64::from(packet) * PERIOD_NS + slot as i64 * self.tick_ns,
                    packet,
                    streams: first_stream(slot)..first_stream(slot + 1),
                })
                .filter(|turn| !turn.streams.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn every_packet_once_and_every_stream_every_20_ms(
            streams in 1..700u32,
            packets in 1..5i64,
            tick_ns in prop::sample::select(vec![20_000_000i64, 1_000_000, 250_000, 100_000]),
            threads in 1..9u32,
        ) {
            prop_assume!(i64::from(threads) <= PERIOD_NS / tick_ns);
            let schedule = Schedule::new(streams, packets * PERIOD_NS, tick_ns, threads).unwrap();
            let mut due_ns = BTreeMap::new();
            for thread in 0..threads {
                let mut before_ns = -1;
                for turn in schedule.turns(thread) {
                    prop_assert!(turn.due_ns > before_ns);
                    before_ns = turn.due_ns;
                    for stream in turn.streams {
                        prop_assert_eq!(due_ns.insert((stream, turn.packet), turn.due_ns), None);
                    }
                }
            }
            prop_assert_eq!(due_ns.len() as u64, u64::from(streams) * packets as u64);
            for (&(stream, packet), &at_ns) in &due_ns {
                prop_assert_eq!(at_ns, due_ns[&(stream, 0)] + i64::from(packet) * PERIOD_NS);
                // Every due time is within one tick of an even spread.
                let ideal_ns = i64::from(stream) * PERIOD_NS / i64::from(streams);
                let off_ns = ideal_ns - due_ns[&(stream, 0)];
                prop_assert!((0..=tick_ns).contains(&off_ns), "{off_ns}");
            }
        }
    }

    /// A thread that is always late sends the same packets: only the due times decide.
    #[test]
    fn a_window_has_as_many_packets_as_its_length_says() {
        let window = Window {
            begin_ns: 1_003_000_000,
            end_ns: 1_003_000_000 + 8_000_000_000,
        };
        for slot_ns in (0..PERIOD_NS).step_by(250_000) {
            let due = (0..1_000).map(|round| slot_ns + round * PERIOD_NS);
            let sent = due.filter(|due_ns| window.at(*due_ns) == Phase::Within);
            assert_eq!(sent.count(), 400);
        }
        assert_eq!(window.at(window.end_ns), Phase::After);
        assert_eq!(Window::NOT_YET.at(0), Phase::Before);
        assert_eq!(Window::ALWAYS.at(0), Phase::Within);
    }

    #[test]
    fn nonsense_is_refused() {
        let refusal = |streams, duration_ns, tick_ns, threads| {
            Schedule::new(streams, duration_ns, tick_ns, threads)
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(0, 1_000_000_000, 250_000, 1).contains("at least 1"));
        assert!(refusal(65_536, 1_000_000_000, 250_000, 1).contains("at most 65535"));
        assert!(refusal(1, 0, 250_000, 1).contains("multiple of 20 ms"));
        assert!(refusal(1, 30_000_000, 250_000, 1).contains("multiple of 20 ms"));
        assert!(refusal(1, 25 * 3600 * 1_000_000_000, 250_000, 1).contains("at most 24 h"));
        assert!(refusal(1, 20_000_000, 300_000, 1).contains("does not divide"));
        assert!(refusal(1, 20_000_000, -1, 1).contains("does not divide"));
        assert!(refusal(1, 20_000_000, 10_000_000, 3).contains("1 to 2 threads"));
        assert!(refusal(1, 20_000_000, 10_000_000, 0).contains("1 to 2 threads"));
    }
}
