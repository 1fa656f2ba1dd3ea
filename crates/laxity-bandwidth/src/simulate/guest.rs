//! Model senders: the traffic that virtual machines put into their queues.

use std::collections::VecDeque;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

/// Length of a step, in ns.
pub const STEP_NS: u64 = 1_000_000;
pub(super) const STEPS_A_SECOND: u64 = 1_000_000_000 / STEP_NS;

pub(super) const PACKET_BYTES: u64 = 1_500;
/// Room for a thousand packets, which is Linux's default for an Ethernet interface.
const QUEUE_BYTES: u64 = 1_000 * PACKET_BYTES;

/// The way in which a virtual machine sends. Rates are in bit/s, times in ms.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// A constant rate.
    Constant(u64),
    /// Pairs of a rate and the time for which it lasts; the last rate lasts to the end.
    Steps(Vec<(u64, u64)>),
    /// A rate for random times and silence for random times, each of about `mean_ms`.
    Bursty {
        /// Rate during a burst.
        bit_s: u64,
        /// Mean length of a burst and of a pause; at least 1.
        mean_ms: u64,
    },
    /// TCP with unlimited data: one more packet a round trip until a loss, then half the window.
    Tcp {
        /// The round trip without queues; at least 1.
        round_trip_ms: u64,
    },
    /// A sender that wants to look idle: it sends all it can between the daemon's reads of its
    /// counters, and nothing around them.
    Liar {
        /// Rate between the reads.
        bit_s: u64,
    },
}

/// The state of a sending machine.
pub(super) struct Guest {
    sender: Sender,
    random: Pcg64Mcg,
    /// Bytes that wait in the machine's own queue or, without limits, in the link's.
    pub queue_bytes: u64,
    /// Fraction of a byte that is still to be sent, in 1/8000 (bits a second times ms).
    owed: u64,
    /// End of the current burst or pause, for bursty senders.
    until_ms: u64,
    is_sending: bool,
    /// Packets in one round trip, for TCP.
    window: u64,
    /// Time before which the window is not halved again, for TCP.
    deaf_until_ms: u64,
}

impl Guest {
    pub fn new(sender: Sender, seed: u64) -> Guest {
        Guest {
            sender,
            random: Pcg64Mcg::seed_from_u64(seed),
            queue_bytes: 0,
            owed: 0,
            until_ms: 0,
            is_sending: false,
            window: 2,
            deaf_until_ms: 0,
        }
    }

    fn rate_bit_s(&mut self, now_ms: u64, period_ms: u64) -> u64 {
        match &self.sender {
            Sender::Constant(bit_s) => *bit_s,
            Sender::Steps(steps) => {
                let mut end_ms = 0;
                let now = steps.iter().find(|(ms, _)| {
                    end_ms += ms;
                    now_ms < end_ms
                });
                now.or(steps.last()).map_or(0, |(_, bit_s)| *bit_s)
            }
            Sender::Bursty { bit_s, mean_ms } => {
                if now_ms >= self.until_ms {
                    self.is_sending = !self.is_sending;
                    self.until_ms = now_ms + 1 + self.random.next_u64() % (2 * mean_ms);
                }
                if self.is_sending { *bit_s } else { 0 }
            }
            Sender::Tcp { round_trip_ms } => {
                // Queued packets are in flight, too.
                let in_flight = self.window * PACKET_BYTES;
                let sendable = in_flight.saturating_sub(self.queue_bytes);
                sendable * 8 * 1_000 / round_trip_ms
            }
            Sender::Liar { bit_s } => {
                let at = now_ms % period_ms;
                if at > 0 && at + 2 < period_ms {
                    *bit_s
                } else {
                    0
                }
            }
        }
    }

    /// The bytes that the machine offers in this step.
    pub fn offer(&mut self, now_ms: u64, period_ms: u64) -> u64 {
        let rate_bit_s = self.rate_bit_s(now_ms, period_ms);
        self.owed += rate_bit_s;
        let offered = self.owed / (8 * STEPS_A_SECOND);
        self.owed %= 8 * STEPS_A_SECOND;
        offered
    }

    /// The part of the offered bytes that its own queue takes.
    pub fn room_for(&self, offered: u64) -> u64 {
        offered.min(QUEUE_BYTES - self.queue_bytes)
    }

    /// Notes how much of what was offered in this step found room in a queue.
    pub fn queued(&mut self, offered: u64, taken: u64, now_ms: u64) {
        self.queue_bytes += taken;
        if let Sender::Tcp { round_trip_ms } = self.sender {
            if taken < offered && now_ms >= self.deaf_until_ms {
                self.window = (self.window / 2).max(2);
                self.deaf_until_ms = now_ms + round_trip_ms;
            } else if now_ms.is_multiple_of(round_trip_ms) {
                self.window += 1 + self.window / 64;
            }
        }
    }

    /// Empties the queue of a machine that has gone.
    pub fn leave(&mut self) {
        self.queue_bytes = 0;
    }
}

/// One queue before the link for all machines, first come, first served. While it is full, each
/// machine loses in proportion to what it sends.
#[derive(Default)]
pub(super) struct SharedQueue {
    /// Bytes that arrived in each step, by machine, the oldest step first.
    steps: VecDeque<Vec<u64>>,
    bytes: u64,
}

impl SharedQueue {
    /// The bytes of this step that find room, by machine, if the link takes `link_bytes` meanwhile.
    pub fn join(&mut self, offered: &[u64], link_bytes: u64) -> Vec<u64> {
        let taken = parts(offered, QUEUE_BYTES + link_bytes - self.bytes);
        self.bytes += taken.iter().sum::<u64>();
        self.steps.push_back(taken.clone());
        taken
    }

    /// The bytes that leave in a step, by machine.
    pub fn leave(&mut self, link_bytes: u64) -> Vec<u64> {
        let mut left = link_bytes;
        let mut sent = vec![0; self.steps.front().map_or(0, Vec::len)];
        while let Some(oldest) = self.steps.front_mut()
            && left > 0
        {
            let now = parts(oldest, left);
            for ((sent, waits), now) in sent.iter_mut().zip(oldest.iter_mut()).zip(now) {
                *sent += now;
                *waits -= now;
                left -= now;
            }
            if oldest.iter().sum::<u64>() == 0 {
                self.steps.pop_front();
            }
        }
        self.bytes -= sent.iter().sum::<u64>();
        sent
    }
}

/// The whole of each amount, or `room` divided among them in proportion, to the byte.
fn parts(amounts: &[u64], room: u64) -> Vec<u64> {
    let sum: u64 = amounts.iter().sum();
    if sum <= room {
        return amounts.to_vec();
    }
    // Each machine gets its end on the line of all amounts, less that of its beginning.
    let end_of = |upto: u64| (u128::from(upto) * u128::from(room) / u128::from(sum)) as u64;
    let mut upto = 0;
    let part = |&amount: &u64| {
        let begin = end_of(upto);
        upto += amount;
        end_of(upto) - begin
    };
    amounts.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_queue_loses_nothing_that_it_took() {
        let mut queue = SharedQueue::default();
        let link_bytes = 100_000;
        let mut taken = [0; 2];
        for _ in 0..100 {
            let joined = queue.join(&[300_000, 100_000], link_bytes);
            taken = [taken[0] + joined[0], taken[1] + joined[1]];
            let sent = queue.leave(link_bytes);
            assert_eq!(sent.iter().sum::<u64>(), link_bytes);
            taken = [taken[0] - sent[0], taken[1] - sent[1]];
        }
        // Three quarters of the waiting bytes belong to the first machine, up to rounding in each
        // step.
        assert_eq!(taken[0] + taken[1], QUEUE_BYTES);
        assert!(taken[0].abs_diff(QUEUE_BYTES * 3 / 4) < 100, "{taken:?}");
    }

    #[test]
    fn who_comes_last_to_a_shared_queue_waits_until_all_before_have_gone() {
        let mut queue = SharedQueue::default();
        queue.join(&[200_000, 0], 100_000);
        queue.join(&[0, 1_000], 100_000);
        queue.join(&[500, 500], 100_000);
        let sent: Vec<Vec<u64>> = (0..3).map(|_| queue.leave(100_000)).collect();
        assert_eq!(sent, [[100_000, 0], [100_000, 0], [500, 1_500]]);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn parts_are_whole_and_add_up() {
        assert_eq!(parts(&[3, 0, 4], 7), [3, 0, 4]);
        assert_eq!(parts(&[3, 0, 4], 5), [2, 0, 3]);
        assert_eq!(parts(&[1, 1, 1], 0), [0, 0, 0]);
    }
}
