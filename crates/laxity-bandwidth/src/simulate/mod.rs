//! A model in time of senders, a link and its division: shows the effect of agreements before they are enforced, and
//! tests the estimator and the allocator.
//!
//! Time goes in steps of one millisecond. In each, senders put bytes into their queues (what does not fit is dropped
//! there, which is in the guest), and the shapers take out what their limits allow; a [`Shapers::Tree`] lends what is
//! left as the kernel's does, by weight among those who may still send. Without limits all packets go to one queue
//! before the link, and are dropped there if it is full.

mod guest;

use guest::{Guest, PACKET_BYTES, STEPS_A_SECOND, SharedQueue};
pub use guest::{STEP_NS, Sender};
use serde::{Deserialize, Serialize};

use crate::control::{Controller, Limits, Shapers, Watch};
use crate::demand::Sample;
use crate::{Agreement, Claim, Sharing, allocate};

/// One virtual machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Machine {
    /// The machine's agreement.
    pub agreement: Agreement,
    /// The machine's traffic.
    pub sender: Sender,
    /// Times of arrival and departure: the machine exists from the first until before the second;
    /// `None` stands for always.
    #[serde(default)]
    pub present_ms: Option<(u64, u64)>,
}

impl Machine {
    /// A machine that exists all the time.
    pub fn new(agreement: Agreement, sender: Sender) -> Machine {
        Machine {
            agreement,
            sender,
            present_ms: None,
        }
    }

    fn is_present(&self, now_ms: u64) -> bool {
        self.present_ms
            .is_none_or(|(from_ms, until_ms)| (from_ms..until_ms).contains(&now_ms))
    }
}

/// The way in which the link is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// Without limits.
    Native,
    /// Through single limits, whose rates follow from measured ones as the caller of [`simulate`] says.
    Given,
    /// By the controller, through these shapers.
    Held(Shapers),
}

/// A scenario to simulate.
#[derive(Debug, Clone, Deserialize)]
pub struct Scenario {
    /// The link's rate, in bit/s.
    pub link_bit_s: u64,
    /// How the rate that the minima leave over is shared.
    pub sharing: Sharing,
    /// The way in which the link is divided.
    pub regime: Regime,
    /// Interval between two reads of the counters, in ms; at least 1.
    pub period_ms: u64,
    /// Seed of all randomness.
    pub seed: u64,
    /// The machines that send.
    pub machines: Vec<Machine>,
}

/// The traffic of one machine in one period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Bytes that the machine wanted to send.
    pub offered_bytes: u64,
    /// Bytes that left by the link.
    pub delivered_bytes: u64,
    /// Bytes that the machine's own queue did not take.
    pub dropped_bytes: u64,
    /// Bytes that were brought to the queue before the link and found no room there.
    pub dropped_at_link_bytes: u64,
    /// The controller's estimate of the demand, in bit/s.
    pub demand_bit_s: u64,
    /// Rate granted for the next period, in bit/s.
    pub granted_bit_s: u64,
    /// Number of changes of the limit.
    pub changes: u64,
    /// Number of seconds ending here in which the machine asked for its minimum all the time and
    /// got less than 99 % of it.
    pub denied: u64,
}

impl Outcome {
    /// Adds the next period: amounts add up, estimates and grants are replaced.
    fn extend(&mut self, next: &Outcome) {
        self.offered_bytes += next.offered_bytes;
        self.delivered_bytes += next.delivered_bytes;
        self.dropped_bytes += next.dropped_bytes;
        self.dropped_at_link_bytes += next.dropped_at_link_bytes;
        self.demand_bit_s = next.demand_bit_s;
        self.granted_bit_s = next.granted_bit_s;
        self.changes += next.changes;
        self.denied += next.denied;
    }
}

/// A machine as an allocator sees it that measures rates, and knows nothing of demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The machine's agreement.
    pub agreement: Agreement,
    /// The rate at which it sent in the last period, in bit/s.
    pub measured_bit_s: u64,
}

/// Says no rates, for regimes that ask for none.
///
/// # Panics
///
/// If it is asked, as it is by [`Regime::Given`].
pub fn no_rates(_: &[Measured]) -> Vec<u64> {
    unreachable!("only the regime `Given` asks for rates")
}

/// Runs a scenario for some periods. Returns for each period the machines in their order. After
/// each period of [`Regime::Given`], `rates` is told of all machines that exist, and answers with
/// their rates, in bit/s.
pub fn simulate(
    scenario: &Scenario,
    periods: u64,
    rates: impl FnMut(&[Measured]) -> Vec<u64>,
) -> Vec<Vec<Outcome>> {
    let mut all = Vec::new();
    run(scenario, periods, rates, |_, outcomes| {
        all.push(outcomes.to_vec());
    });
    all
}

/// Runs a scenario for `duration_ms`, rounded up to whole periods. Returns the sums over every
/// `every_ms`; a period belongs to the interval in which it begins. `rates` is as for [`simulate`].
pub fn record(
    scenario: &Scenario,
    duration_ms: u64,
    every_ms: u64,
    rates: impl FnMut(&[Measured]) -> Vec<u64>,
) -> Vec<Vec<Outcome>> {
    let mut all: Vec<Vec<Outcome>> = Vec::new();
    let periods = duration_ms.div_ceil(scenario.period_ms);
    run(scenario, periods, rates, |number, outcomes| {
        let at = (number * scenario.period_ms / every_ms) as usize;
        if all.len() <= at {
            all.resize(at + 1, vec![Outcome::default(); outcomes.len()]);
        }
        for (sum, outcome) in all[at].iter_mut().zip(outcomes) {
            sum.extend(outcome);
        }
    });
    all
}

/// The source of limits, with those in force for the machines that exist.
enum Divider {
    Native(SharedQueue),
    Given(Vec<u64>),
    Held(Controller),
}

struct Run<'s> {
    scenario: &'s Scenario,
    guests: Vec<Guest>,
    divider: Divider,
    /// Watches over the minima, by machine.
    watches: Vec<Watch>,
    /// The machines that exist.
    present: Vec<usize>,
}

fn run(
    scenario: &Scenario,
    periods: u64,
    mut rates: impl FnMut(&[Measured]) -> Vec<u64>,
    mut each: impl FnMut(u64, &[Outcome]),
) {
    let guest = |(index, machine): (usize, &Machine)| {
        let seed = scenario.seed.wrapping_mul(1 << 20) + index as u64;
        Guest::new(machine.sender.clone(), seed)
    };
    let mut run = Run {
        scenario,
        guests: scenario.machines.iter().enumerate().map(guest).collect(),
        divider: match scenario.regime {
            Regime::Native => Divider::Native(SharedQueue::default()),
            Regime::Given => Divider::Given(Vec::new()),
            Regime::Held(shapers) => Divider::Held(Controller::new(
                scenario.link_bit_s,
                scenario.sharing,
                shapers,
                &[],
            )),
        },
        watches: vec![Watch::default(); scenario.machines.len()],
        present: Vec::new(),
    };
    for number in 0..periods {
        run.come_and_go(number * scenario.period_ms);
        each(number, &run.period(number, &mut rates));
    }
}

impl Run<'_> {
    fn agreement(&self, machine: usize) -> Agreement {
        self.scenario.machines[machine].agreement
    }

    /// Lets machines come and go between periods; the others keep their limits.
    fn come_and_go(&mut self, now_ms: u64) {
        let scenario = self.scenario;
        let is_present = |&at: &usize| scenario.machines[at].is_present(now_ms);
        let present: Vec<usize> = (0..self.guests.len()).filter(is_present).collect();
        if present == self.present {
            return;
        }
        let before = std::mem::replace(&mut self.present, present);
        for at in &before {
            if !self.present.contains(at) {
                self.guests[*at].leave();
                self.watches[*at] = Watch::default();
            }
        }
        let place_before = |at: &usize| before.iter().position(|other| other == at);
        let kept: Vec<Option<usize>> = self.present.iter().map(place_before).collect();
        match &mut self.divider {
            Divider::Native(_) => {}
            Divider::Given(rates) => {
                // No machine is held back before the first read.
                let rate = |kept: &Option<usize>| kept.map_or(scenario.link_bit_s, |at| rates[at]);
                *rates = kept.iter().map(rate).collect();
            }
            Divider::Held(controller) => {
                let Regime::Held(shapers) = scenario.regime else {
                    return;
                };
                let agreements: Vec<Agreement> = (self.present.iter())
                    .map(|&at| scenario.machines[at].agreement)
                    .collect();
                let mut new =
                    Controller::new(scenario.link_bit_s, scenario.sharing, shapers, &agreements);
                new.inherit(controller, &kept);
                *controller = new;
            }
        }
    }

    fn period(
        &mut self,
        number: u64,
        rates: &mut impl FnMut(&[Measured]) -> Vec<u64>,
    ) -> Vec<Outcome> {
        let scenario = self.scenario;
        let mut outcomes = vec![Outcome::default(); self.guests.len()];
        let mut was_stopped = vec![0; self.guests.len()];
        for step in 0..scenario.period_ms {
            let now_ms = number * scenario.period_ms + step;
            let sent = self.step(now_ms, &mut outcomes);
            for (&at, sent) in self.present.iter().zip(sent) {
                self.guests[at].queue_bytes -= sent;
                outcomes[at].delivered_bytes += sent;
                was_stopped[at] += u64::from(self.guests[at].queue_bytes > 0);
            }
        }
        self.look(&mut outcomes, &was_stopped, rates);
        outcomes
    }

    /// Puts the offered bytes into the queues. Returns what leaves, for the machines that exist.
    fn step(&mut self, now_ms: u64, outcomes: &mut [Outcome]) -> Vec<u64> {
        let scenario = self.scenario;
        let link_bytes = bytes_a_step(scenario.link_bit_s);
        let offered: Vec<u64> = (self.present.iter())
            .map(|&at| self.guests[at].offer(now_ms, scenario.period_ms))
            .collect();
        let taken: Vec<u64> = match &mut self.divider {
            Divider::Native(queue) => {
                // The link's queue is by machine, because it may hold bytes of machines that have
                // gone.
                let mut all = vec![0; self.guests.len()];
                for (&at, offered) in self.present.iter().zip(&offered) {
                    all[at] = *offered;
                }
                let taken = queue.join(&all, link_bytes);
                self.present.iter().map(|&at| taken[at]).collect()
            }
            Divider::Given(_) | Divider::Held(_) => (self.present.iter().zip(&offered))
                .map(|(&at, &offered)| self.guests[at].room_for(offered))
                .collect(),
        };
        let is_native = scenario.regime == Regime::Native;
        for ((&at, offered), taken) in self.present.iter().zip(offered).zip(taken) {
            self.guests[at].queued(offered, taken, now_ms);
            let outcome = &mut outcomes[at];
            outcome.offered_bytes += offered;
            if is_native {
                outcome.dropped_at_link_bytes += offered - taken;
            } else {
                outcome.dropped_bytes += offered - taken;
            }
        }
        match &mut self.divider {
            Divider::Native(queue) => {
                let sent = queue.leave(link_bytes);
                // Bytes of a machine that has gone are lost together with its queue.
                let own = |&at: &usize| sent.get(at).map_or(0, |&sent| sent);
                let waits = |&at: &usize| self.guests[at].queue_bytes;
                self.present
                    .iter()
                    .map(|at| own(at).min(waits(at)))
                    .collect()
            }
            Divider::Given(_) | Divider::Held(_) => self.shaped(),
        }
    }

    /// The bytes that the limits let out of the queues in one step.
    fn shaped(&self) -> Vec<u64> {
        let shapers = match self.scenario.regime {
            Regime::Held(shapers) => shapers,
            Regime::Native | Regime::Given => Shapers::Single,
        };
        let limits = (0..self.present.len()).map(|place| match &self.divider {
            Divider::Held(controller) => controller.limits(place),
            Divider::Given(rates) => Limits {
                rate_bit_s: rates[place],
                ceiling_bit_s: rates[place],
            },
            Divider::Native(_) => Limits {
                rate_bit_s: 0,
                ceiling_bit_s: u64::MAX,
            },
        });
        let sharing = match shapers {
            Shapers::Tree => self.scenario.sharing,
            // The queue behind single limits serves all machines alike.
            Shapers::Single => Sharing::Weighted,
        };
        let claims = self.present.iter().zip(limits).map(|(&at, limits)| Claim {
            agreement: Agreement {
                // The kernel's minima have no classes.
                class: match self.scenario.sharing {
                    Sharing::Weighted => 1,
                    Sharing::ByClass => self.agreement(at).class,
                },
                minimum_bit_s: match shapers {
                    Shapers::Tree => bytes_a_step(limits.rate_bit_s),
                    Shapers::Single => 0,
                },
                maximum_bit_s: bytes_a_step(limits.ceiling_bit_s),
                weight: match shapers {
                    Shapers::Tree => self.agreement(at).weight,
                    Shapers::Single => 1,
                },
            },
            demand_bit_s: self.guests[at].queue_bytes,
        });
        let claims: Vec<Claim> = claims.collect();
        allocate(bytes_a_step(self.scenario.link_bit_s), sharing, &claims)
    }

    /// Ends a period: reads the counters and sets new limits.
    fn look(
        &mut self,
        outcomes: &mut [Outcome],
        was_stopped: &[u64],
        rates: &mut impl FnMut(&[Measured]) -> Vec<u64>,
    ) {
        let elapsed_ns = self.scenario.period_ms * STEP_NS;
        let samples = self.present.iter().map(|&at| Sample {
            elapsed_ns,
            delivered_bytes: outcomes[at].delivered_bytes,
            dropped_packets: outcomes[at].dropped_bytes.div_ceil(PACKET_BYTES),
            backlog_bytes: self.guests[at].queue_bytes,
            overlimits: was_stopped[at],
        });
        let samples: Vec<Sample> = samples.collect();
        for (&at, sample) in self.present.iter().zip(&samples) {
            let minimum_bit_s = self.scenario.machines[at].agreement.minimum_bit_s;
            let is_denied = self.watches[at].sees_denied(sample, minimum_bit_s);
            outcomes[at].denied = is_denied.into();
        }
        match &mut self.divider {
            Divider::Native(_) => {}
            Divider::Given(given) => {
                let measured = self.present.iter().zip(&samples);
                let measured = measured.map(|(&at, sample)| Measured {
                    agreement: self.scenario.machines[at].agreement,
                    measured_bit_s: sample.delivered_bit_s(),
                });
                let measured: Vec<Measured> = measured.collect();
                let new = rates(&measured);
                for (place, &at) in self.present.iter().enumerate() {
                    outcomes[at].demand_bit_s = measured[place].measured_bit_s;
                    outcomes[at].granted_bit_s = new[place];
                    outcomes[at].changes = u64::from(new[place] != given[place]);
                }
                *given = new;
            }
            Divider::Held(controller) => {
                let places = 0..self.present.len();
                let before: Vec<Limits> = places.map(|place| controller.limits(place)).collect();
                controller.step(&samples);
                for (place, &at) in self.present.iter().enumerate() {
                    outcomes[at].demand_bit_s = controller.demand_bit_s(place);
                    outcomes[at].granted_bit_s = controller.granted_bit_s(place);
                    outcomes[at].changes = u64::from(controller.limits(place) != before[place]);
                }
            }
        }
    }
}

fn bytes_a_step(bit_s: u64) -> u64 {
    bit_s / (8 * STEPS_A_SECOND)
}
