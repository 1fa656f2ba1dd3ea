//! Senders: what virtual machines put into their queues.

use std::collections::VecDeque;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

use super::{PACKET_BYTES, QUEUE_BYTES, STEPS_A_SECOND};

/// How a virtual machine sends. Rates are in bit/s, times in ms.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// Always as much.
    Constant(u64),
    /// A rate for a time, then the next; the last one to the end.
    Steps(Vec<(u64, u64)>),
    /// A rate for random times, and silence for random times, of about `mean_ms` both.
    Bursty {
        /// While it sends.
        bit_s: u64,
        /// Of a burst and of a pause; at least 1.
        mean_ms: u64,
    },
    /// As TCP would with all it has to send: more by one packet a round trip until it loses, then half.
    Tcp {
        /// The round trip without queues; at least 1.
        round_trip_ms: u64,
    },
    /// Sends all that it can in the part of each period in which nobody looks, and nothing around the
    /// look: it wants to be taken for one that asks for nothing.
    Liar {
        /// While nobody looks.
        bit_s: u64,
    },
}

/// A machine at work.
pub(super) struct Guest {
    sender: Sender,
    random: Pcg64Mcg,
    /// What waits: in its own queue or, where nobody limits it, in the link's.
    pub queue_bytes: u64,
    /// Parts of a byte that are still to be sent, in 1/8000 (bits a second times ms).
    owed: u64,
    /// Bursty: until when it stays as it is.
    until_ms: u64,
    is_sending: bool,
    /// TCP: packets in a round trip.
    window: u64,
    /// TCP: when it may be halved again.
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
                // What is in the queue is in flight, too.
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

    /// What it offers in this step, in bytes.
    pub fn offer(&mut self, now_ms: u64, period_ms: u64) -> u64 {
        let rate_bit_s = self.rate_bit_s(now_ms, period_ms);
        self.owed += rate_bit_s;
        let offered = self.owed / (8 * STEPS_A_SECOND);
        self.owed %= 8 * STEPS_A_SECOND;
        offered
    }

    /// What its own queue takes of what is offered.
    pub fn room_for(&self, offered: u64) -> u64 {
        offered.min(QUEUE_BYTES - self.queue_bytes)
    }

    /// Of what it offered in this step so much found room in a queue.
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

    /// It is gone, and so is what waited.
    pub fn leave(&mut self) {
        self.queue_bytes = 0;
    }
}

/// One queue before the link, for all: first come, first served, whoever it is. What comes while it is full
/// is dropped, of everybody as much as of what came.
#[derive(Default)]
pub(super) struct SharedQueue {
    /// What came in a step, machine by machine, the oldest first.
    steps: VecDeque<Vec<u64>>,
    bytes: u64,
}

impl SharedQueue {
    /// What of the bytes that come in a step finds room, if the link takes `link_bytes` meanwhile.
    pub fn join(&mut self, offered: &[u64], link_bytes: u64) -> Vec<u64> {
        let taken = parts(offered, QUEUE_BYTES + link_bytes - self.bytes);
        self.bytes += taken.iter().sum::<u64>();
        self.steps.push_back(taken.clone());
        taken
    }

    /// What leaves in a step, machine by machine.
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

/// All of it, or `room` of it divided in proportion, to the byte.
fn parts(amounts: &[u64], room: u64) -> Vec<u64> {
    let sum: u64 = amounts.iter().sum();
    if sum <= room {
        return amounts.to_vec();
    }
    // Each one's end on the line of all, less that of its beginning.
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
        // Three quarters of what waits are the first one's, to the bytes of rounding in each step.
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
