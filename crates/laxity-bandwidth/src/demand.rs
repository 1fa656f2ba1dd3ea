//! Estimates the rate at which a sender would send without limits, from its counters.
//!
//! The demand of a sender that is held back is not visible directly: it delivers its granted rate, and under
//! back-pressure its queue drops nothing. Visible are a queue that does not empty (backlog), and a sender that was
//! stopped for a while and has caught up since (overlimits). The estimate
//!
//! - doubles in every period at whose end there is a backlog, and is never below what was offered:
//!   what was delivered and what has joined the queue;
//! - stays while the sender was stopped now and then, or went up to what it was granted;
//! - comes down towards what is offered, by half the distance in a period, after [`HOLD_PERIODS`] in
//!   which nothing held it back: a burst that returns within them finds its share still there.

/// Number of periods without a hold before an estimate comes down.
const HOLD_PERIODS: u32 = 4;
/// Part of the offered rate that is added on top of it, as room for the sender to show more demand.
const HEADROOM_PARTS: u64 = 8;
/// Least estimate of a sender that is held back, from which doubling starts.
const FIRST_BIT_S: u64 = 1_000_000;
/// A sender within this part of its grant counts as held back by it.
const NEAR_PARTS: u64 = 16;

/// The counters of a sender over one period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// The period's length.
    pub elapsed_ns: u64,
    /// Bytes that the sender sent.
    pub delivered_bytes: u64,
    /// Packets that were dropped from its queue.
    pub dropped_packets: u64,
    /// Bytes that wait in its queue at the end of the period.
    pub backlog_bytes: u64,
    /// Number of times that the shaper stopped the sender in this period.
    pub overlimits: u64,
}

impl Sample {
    /// The rate at which it sent, in bit/s.
    pub fn delivered_bit_s(&self) -> u64 {
        rate_bit_s(self.delivered_bytes, self.elapsed_ns)
    }

    /// Whether the sender was held back at the period's end.
    pub fn is_held(&self) -> bool {
        self.backlog_bytes > 0
    }

    /// Whether the sender sent nothing, and nothing of it waits.
    pub fn is_quiet(&self) -> bool {
        self.delivered_bytes == 0 && !self.is_held()
    }
}

fn rate_bit_s(bytes: u64, ns: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(ns.max(1))).unwrap_or(u64::MAX)
}

/// The demand estimate of one sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Estimator {
    demand_bit_s: u64,
    backlog_bytes: u64,
    calm_periods: u32,
}

impl Estimator {
    /// Takes in one period, in which `granted_bit_s` was the highest sustained rate. Returns the
    /// estimate for the next period, in bit/s: at most `maximum_bit_s`.
    pub fn observe(&mut self, sample: &Sample, granted_bit_s: u64, maximum_bit_s: u64) -> u64 {
        let joined_bytes = sample.backlog_bytes.saturating_sub(self.backlog_bytes);
        self.backlog_bytes = sample.backlog_bytes;
        let delivered_bit_s = sample.delivered_bit_s();
        let offered_bit_s = rate_bit_s(
            sample.delivered_bytes.saturating_add(joined_bytes),
            sample.elapsed_ns,
        );
        let was_stopped =
            sample.overlimits > 0 || delivered_bit_s >= granted_bit_s - granted_bit_s / NEAR_PARTS;
        let wanted_bit_s = offered_bit_s.saturating_add(offered_bit_s / HEADROOM_PARTS);
        if sample.is_held() {
            self.calm_periods = 0;
            let doubled_bit_s = self.demand_bit_s.max(delivered_bit_s).saturating_mul(2);
            self.demand_bit_s = doubled_bit_s.max(wanted_bit_s).max(FIRST_BIT_S);
        } else if was_stopped && sample.delivered_bytes > 0 {
            self.calm_periods = 0;
            self.demand_bit_s = self.demand_bit_s.max(wanted_bit_s);
        } else if wanted_bit_s >= self.demand_bit_s {
            self.calm_periods = 0;
            self.demand_bit_s = wanted_bit_s;
        } else if self.calm_periods < HOLD_PERIODS {
            self.calm_periods += 1;
        } else {
            // Halving is rounded up, so that the estimate reaches the offered rate.
            self.demand_bit_s -= (self.demand_bit_s - wanted_bit_s).div_ceil(2);
        }
        self.demand_bit_s = self.demand_bit_s.min(maximum_bit_s);
        self.demand_bit_s
    }

    /// Whether a period in which the sender is quiet would leave the estimate as it is.
    pub fn is_at_rest(&self) -> bool {
        *self == Estimator::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 10_000_000;
    const MBIT: u64 = 1_000_000;
    const MAXIMUM_BIT_S: u64 = 1_000 * MBIT;

    fn sample(delivered_mbit_s: u64, backlog_bytes: u64) -> Sample {
        Sample {
            elapsed_ns: PERIOD_NS,
            delivered_bytes: delivered_mbit_s * MBIT * PERIOD_NS / 8_000_000_000,
            backlog_bytes,
            ..Sample::default()
        }
    }

    fn observe(estimator: &mut Estimator, sample: &Sample, granted_mbit_s: u64) -> u64 {
        estimator.observe(sample, granted_mbit_s * MBIT, MAXIMUM_BIT_S) / MBIT
    }

    #[test]
    fn a_free_sender_is_heard_at_once() {
        let mut estimator = Estimator::default();
        assert_eq!(observe(&mut estimator, &sample(80, 0), 600), 90);
        assert_eq!(observe(&mut estimator, &sample(160, 0), 600), 180);
    }

    #[test]
    fn one_that_is_held_back_doubles_up_to_its_maximum() {
        let mut estimator = Estimator::default();
        let demands: Vec<u64> = (0..6)
            .map(|_| observe(&mut estimator, &sample(100, 1500), 100))
            .collect();
        assert_eq!(demands, [200, 400, 800, 1000, 1000, 1000]);
    }

    #[test]
    fn a_queue_that_grows_says_how_much() {
        let mut estimator = Estimator::default();
        // 100 Mbit/s delivered and 400 Mbit/s queued give 500 Mbit/s, plus an eighth.
        let queued_bytes = 400 * MBIT * PERIOD_NS / 8_000_000_000;
        assert_eq!(
            observe(&mut estimator, &sample(100, queued_bytes), 100),
            562
        );
        // An unchanged queue gives no new information, so the estimate doubles.
        assert_eq!(
            observe(&mut estimator, &sample(100, queued_bytes), 100),
            1000
        );
    }

    #[test]
    fn one_that_was_stopped_and_caught_up_keeps_its_estimate() {
        let mut estimator = Estimator::default();
        assert_eq!(observe(&mut estimator, &sample(400, 0), 600), 450);
        let stopped = Sample {
            overlimits: 1,
            ..sample(80, 0)
        };
        for _ in 0..20 {
            assert_eq!(observe(&mut estimator, &stopped, 600), 450);
        }
        // The estimate of a sender that gets no more than it sends stays, too.
        for _ in 0..20 {
            assert_eq!(observe(&mut estimator, &sample(80, 0), 80), 450);
        }
    }

    #[test]
    fn an_idle_sender_gives_its_share_away_but_not_in_a_pause() {
        let mut estimator = Estimator::default();
        observe(&mut estimator, &sample(400, 0), 600);
        let demands: Vec<u64> = (0..7)
            .map(|_| observe(&mut estimator, &sample(0, 0), 600))
            .collect();
        assert_eq!(demands, [450, 450, 450, 450, 225, 112, 56]);
        let last = (0..40).map(|_| estimator.observe(&sample(0, 0), 0, MAXIMUM_BIT_S));
        assert_eq!(last.last(), Some(0));
    }
}
