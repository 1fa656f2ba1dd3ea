//! Senders, a link and the controller in a model of time: what the agreements do before anyone is held
//! to them, and what the estimator and the allocator are tested by.
//!
//! Time goes in steps of one millisecond. In each, senders put bytes into their queues (what does not
//! fit is dropped there, which is in the guest), and the shapers take out what their limits allow; a
//! [`Shapers::Tree`] lends what is left as the kernel's does, by weight among those who may still send.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::control::{Controller, Limits, Shapers};
use crate::demand::Sample;
use crate::{Agreement, Claim, Sharing, allocate};

/// The step of time.
pub const STEP_NS: u64 = 1_000_000;
const STEPS_A_SECOND: u64 = 1_000_000_000 / STEP_NS;

/// How a virtual machine sends. Rates are in bit/s, times in ms.
#[derive(Debug, Clone, PartialEq)]
pub enum Sender {
    /// Always as much.
    Constant(u64),
    /// A rate for a time, then the next; the last one to the end.
    Steps(Vec<(u64, u64)>),
    /// A rate for random times, and silence for random times, of about `mean_ms` both.
    Bursty {
        /// While it sends.
        bit_s: u64,
        /// Of a burst and of a pause.
        mean_ms: u64,
    },
    /// As TCP would with all it has to send: more by one packet a round trip until it loses, then half.
    Tcp {
        /// The round trip without queues.
        round_trip_ms: u64,
    },
    /// Sends all that it can in the part of each period in which nobody looks, and nothing around the
    /// look: it wants to be taken for one that asks for nothing.
    Liar {
        /// While nobody looks.
        bit_s: u64,
    },
}

/// One virtual machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// What was agreed.
    pub agreement: Agreement,
    /// What it does.
    pub sender: Sender,
}

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What the link carries.
    pub link_bit_s: u64,
    /// How what is left is shared.
    pub sharing: Sharing,
    /// What enforces the limits.
    pub shapers: Shapers,
    /// Between two looks, in ms.
    pub period_ms: u64,
    /// Of all randomness.
    pub seed: u64,
    /// Who sends.
    pub machines: Vec<Machine>,
}

/// What one machine did in one period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What it wanted to send.
    pub offered_bytes: u64,
    /// What went out.
    pub delivered_bytes: u64,
    /// What its own queue did not take.
    pub dropped_bytes: u64,
    /// What the controller thought it wanted, in bit/s.
    pub demand_bit_s: u64,
    /// What it was granted for the next period, in bit/s.
    pub granted_bit_s: u64,
}

const PACKET_BYTES: u64 = 1_500;
/// A thousand packets, as Linux has it for an Ethernet interface.
const QUEUE_BYTES: u64 = 1_000 * PACKET_BYTES;

/// A machine at work.
struct Guest {
    sender: Sender,
    random: Pcg64Mcg,
    queue_bytes: u64,
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

    /// What it offers in this step, and what of it its queue does not take.
    fn offer(&mut self, now_ms: u64, period_ms: u64) -> (u64, u64) {
        let rate_bit_s = self.rate_bit_s(now_ms, period_ms);
        self.owed += rate_bit_s;
        let offered = self.owed / (8 * STEPS_A_SECOND);
        self.owed %= 8 * STEPS_A_SECOND;
        let taken = offered.min(QUEUE_BYTES - self.queue_bytes);
        self.queue_bytes += taken;
        if let Sender::Tcp { round_trip_ms } = self.sender {
            if taken < offered && now_ms >= self.deaf_until_ms {
                self.window = (self.window / 2).max(2);
                self.deaf_until_ms = now_ms + round_trip_ms;
            } else if now_ms.is_multiple_of(round_trip_ms) {
                self.window += 1 + self.window / 64;
            }
        }
        (offered, offered - taken)
    }
}

/// Runs a scenario for some periods; for each the machines in their order.
pub fn simulate(scenario: &Scenario, periods: u64) -> Vec<Vec<Outcome>> {
    let agreements: Vec<Agreement> = scenario
        .machines
        .iter()
        .map(|each| each.agreement)
        .collect();
    let mut controller = Controller::new(
        scenario.link_bit_s,
        scenario.sharing,
        scenario.shapers,
        &agreements,
    );
    let guest = |(index, machine): (usize, &Machine)| Guest {
        sender: machine.sender.clone(),
        random: Pcg64Mcg::seed_from_u64(scenario.seed.wrapping_mul(1 << 20) + index as u64),
        queue_bytes: 0,
        owed: 0,
        until_ms: 0,
        is_sending: false,
        window: 2,
        deaf_until_ms: 0,
    };
    let mut guests: Vec<Guest> = scenario.machines.iter().enumerate().map(guest).collect();
    let period = |number: u64| {
        let mut outcomes = vec![Outcome::default(); guests.len()];
        let mut was_stopped = vec![0; guests.len()];
        for step in 0..scenario.period_ms {
            let now_ms = number * scenario.period_ms + step;
            for (guest, outcome) in guests.iter_mut().zip(&mut outcomes) {
                let (offered, dropped) = guest.offer(now_ms, scenario.period_ms);
                outcome.offered_bytes += offered;
                outcome.dropped_bytes += dropped;
            }
            let limits: Vec<Limits> = (0..guests.len()).map(|at| controller.limits(at)).collect();
            let sent = dequeue(scenario, &limits, &guests);
            for (at, (guest, sent)) in guests.iter_mut().zip(sent).enumerate() {
                guest.queue_bytes -= sent;
                outcomes[at].delivered_bytes += sent;
                was_stopped[at] += u64::from(guest.queue_bytes > 0);
            }
        }
        let sample = |at: usize| Sample {
            elapsed_ns: scenario.period_ms * STEP_NS,
            delivered_bytes: outcomes[at].delivered_bytes,
            dropped_packets: outcomes[at].dropped_bytes.div_ceil(PACKET_BYTES),
            backlog_bytes: guests[at].queue_bytes,
            overlimits: was_stopped[at],
        };
        let samples: Vec<Sample> = (0..guests.len()).map(sample).collect();
        controller.step(&samples);
        for (at, outcome) in outcomes.iter_mut().enumerate() {
            outcome.demand_bit_s = controller.demand_bit_s(at);
            outcome.granted_bit_s = controller.granted_bit_s(at);
        }
        outcomes
    };
    (0..periods).map(period).collect()
}

/// What leaves the queues in one step, in bytes.
fn dequeue(scenario: &Scenario, limits: &[Limits], guests: &[Guest]) -> Vec<u64> {
    let in_a_step = |bit_s: u64| bit_s / (8 * STEPS_A_SECOND);
    let claims = limits.iter().zip(guests).zip(&scenario.machines);
    let claims = claims.map(|((limits, guest), machine)| Claim {
        agreement: Agreement {
            // The kernel's minima know no classes.
            class: match scenario.sharing {
                Sharing::Weighted => 1,
                Sharing::ByClass => machine.agreement.class,
            },
            minimum_bit_s: match scenario.shapers {
                Shapers::Tree => in_a_step(limits.rate_bit_s),
                Shapers::Single => 0,
            },
            maximum_bit_s: in_a_step(limits.ceiling_bit_s),
            weight: match scenario.shapers {
                Shapers::Tree => machine.agreement.weight,
                Shapers::Single => 1,
            },
        },
        demand_bit_s: guest.queue_bytes,
    });
    let claims: Vec<Claim> = claims.collect();
    let sharing = match scenario.shapers {
        Shapers::Tree => scenario.sharing,
        // One queue beyond the limits serves all alike.
        Shapers::Single => Sharing::Weighted,
    };
    allocate(in_a_step(scenario.link_bit_s), sharing, &claims)
}
