//! Computes the limits for the next period from one period's samples of all holders, without I/O.
//!
//! Two kinds of shapers are told apart. In a **tree** the kernel divides the link itself: each class has a rate that it
//! gets whenever it asks and a ceiling, and borrows in between. Minima hold there whatever the ceilings are, so only
//! senders that are held back need a ceiling at their allocation; the others may begin at once, up to their maximum.
//! **Single** limits are independent of each other: each is the allocation, and never below the minimum.
//!
//! A holder that has been quiet for so long that its estimate is zero is at rest: another quiet period changes nothing
//! about it, and as it demands nothing, nothing about others. The controller passes over holders at rest, so that a
//! period takes as long as there are holders that are not.

use serde::Deserialize;

use crate::demand::{Estimator, Sample};
use crate::{Agreement, Claim, Sharing, allocate};

/// Lowest ceiling, as a part of the link, unless a maximum is lower: a packet queued under a very
/// low ceiling would wait at that rate even after the ceiling is raised. Single limits divide at
/// most half of the link in this way.
const FLOOR_PARTS: u64 = 100;

/// Whether the shapers of several holders lend rate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shapers {
    /// One tree that divides the link among its classes.
    Tree,
    /// A separate limit for each holder.
    Single,
}

/// The settings of one shaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Guaranteed rate, in bit/s.
    pub rate_bit_s: u64,
    /// Rate that is never exceeded, in bit/s; at least the guaranteed rate.
    pub ceiling_bit_s: u64,
}

/// State of one holder.
#[derive(Debug, Clone)]
struct Known {
    agreement: Agreement,
    /// The holder's minimum, or its share of the link where all holders ask and the minima do not
    /// fit.
    assured_bit_s: u64,
    estimator: Estimator,
    demand_bit_s: u64,
    allocated_bit_s: u64,
    limits: Limits,
    watch: Watch,
}

/// One direction of a link with the agreements about it.
#[derive(Debug, Clone)]
pub struct Controller {
    link_bit_s: u64,
    sharing: Sharing,
    shapers: Shapers,
    floor_bit_s: u64,
    known: Vec<Known>,
    /// Places of the holders that are not at rest, in order.
    awake: Vec<usize>,
    /// The last period's samples of the holders that it may have changed, with their places in order.
    stepped: Vec<(usize, Sample)>,
}

impl Controller {
    /// A controller for agreements; all slices passed in and out have the order of `agreements`
    /// from then on.
    pub fn new(
        link_bit_s: u64,
        sharing: Sharing,
        shapers: Shapers,
        agreements: &[Agreement],
    ) -> Controller {
        let asking: Vec<Claim> = agreements
            .iter()
            .map(|&agreement| Claim {
                agreement,
                demand_bit_s: agreement.minimum_bit_s,
            })
            .collect();
        let assured = allocate(link_bit_s, sharing, &asking);
        let known = agreements.iter().zip(assured);
        let parts = match shapers {
            Shapers::Tree => FLOOR_PARTS,
            Shapers::Single => FLOOR_PARTS.max(2 * agreements.len() as u64),
        };
        let floor_bit_s = link_bit_s / parts;
        Controller {
            link_bit_s,
            sharing,
            shapers,
            floor_bit_s,
            known: known
                .map(|(&agreement, assured_bit_s)| Known {
                    agreement,
                    assured_bit_s,
                    estimator: Estimator::default(),
                    demand_bit_s: 0,
                    allocated_bit_s: 0,
                    limits: Limits {
                        rate_bit_s: assured_bit_s,
                        ceiling_bit_s: match shapers {
                            Shapers::Tree => agreement.maximum_bit_s,
                            Shapers::Single => {
                                assured_bit_s.max(floor_bit_s.min(agreement.maximum_bit_s))
                            }
                        },
                    },
                    watch: Watch::default(),
                })
                .collect(),
            awake: (0..agreements.len()).collect(),
            stepped: Vec::new(),
        }
    }

    /// Takes over the state that `other` has of the holders that it knew under the numbers in
    /// `others`.
    pub fn inherit(&mut self, other: &Controller, others: &[Option<usize>]) {
        for (known, other_index) in self.known.iter_mut().zip(others) {
            if let Some(before) = other_index.map(|index| &other.known[index]) {
                known.estimator = before.estimator.clone();
                known.watch = before.watch.clone();
            }
        }
    }

    /// The limits in force of one holder.
    pub fn limits(&self, index: usize) -> Limits {
        self.known[index].limits
    }

    /// The estimated demand, in bit/s.
    pub fn demand_bit_s(&self, index: usize) -> u64 {
        self.known[index].demand_bit_s
    }

    /// The rate granted for this period, in bit/s: the allocation or the guaranteed rate, whichever
    /// is more.
    pub fn granted_bit_s(&self, index: usize) -> u64 {
        let known = &self.known[index];
        known.allocated_bit_s.max(known.assured_bit_s)
    }

    /// Takes in one period's samples of all holders and sets the limits for the next period. Returns
    /// the numbers of the holders that were denied their minimum over a second that ended in this
    /// period.
    pub fn step(&mut self, samples: &[Sample]) -> Vec<usize> {
        let elapsed_ns = samples.first().map_or(0, |sample| sample.elapsed_ns);
        self.step_those(elapsed_ns, samples.iter().copied().enumerate())
    }

    /// Does the same with samples of some holders, in order; all others were quiet for the
    /// `elapsed_ns` of the period.
    pub fn step_those(
        &mut self,
        elapsed_ns: u64,
        samples: impl Iterator<Item = (usize, Sample)>,
    ) -> Vec<usize> {
        let quiet = Sample {
            elapsed_ns,
            ..Sample::default()
        };
        let mut stepped = std::mem::take(&mut self.stepped);
        stepped.clear();
        stepped.extend(samples);
        stepped.extend(self.awake.iter().map(|&at| (at, quiet)));
        // The sort keeps the order of equals, so that a sample that was passed in stays.
        stepped.sort_by_key(|(at, _)| *at);
        stepped.dedup_by_key(|(at, _)| *at);
        let claims: Vec<Claim> = stepped
            .iter()
            .map(|(at, sample)| {
                let known = &mut self.known[*at];
                let Known {
                    agreement, limits, ..
                } = known;
                known.demand_bit_s =
                    known
                        .estimator
                        .observe(sample, limits.ceiling_bit_s, agreement.maximum_bit_s);
                // A holder in a tree needs no spare rate to show a higher demand, because it can
                // borrow at once.
                let is_free = self.shapers == Shapers::Tree && !sample.is_held();
                Claim {
                    agreement: *agreement,
                    demand_bit_s: if is_free {
                        sample.delivered_bit_s()
                    } else {
                        known.demand_bit_s
                    },
                }
            })
            .collect();
        let allocation = allocate(self.link_bit_s, self.sharing, &claims);
        let mut denied = Vec::new();
        self.awake.clear();
        for ((at, sample), allocated_bit_s) in stepped.iter().zip(allocation) {
            let known = &mut self.known[*at];
            known.allocated_bit_s = allocated_bit_s;
            let is_free = self.shapers == Shapers::Tree && !sample.is_held();
            known.limits.ceiling_bit_s = if is_free {
                known.agreement.maximum_bit_s
            } else {
                let floor_bit_s = self.floor_bit_s.min(known.agreement.maximum_bit_s);
                allocated_bit_s.max(known.assured_bit_s).max(floor_bit_s)
            };
            if known
                .watch
                .sees_denied(sample, known.agreement.minimum_bit_s)
            {
                denied.push(*at);
            }
            if !(sample.is_quiet() && known.estimator.is_at_rest()) {
                self.awake.push(*at);
            }
        }
        self.stepped = stepped;
        denied
    }

    /// The last period's samples of all holders whose state that period may have changed, with their
    /// numbers in order.
    pub fn stepped(&self) -> &[(usize, Sample)] {
        &self.stepped
    }
}

/// Checks second by second whether a holder that asked all the time got its minimum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    asked_ns: u64,
    delivered_bytes: u64,
}

impl Watch {
    const WINDOW_NS: u64 = 1_000_000_000;
    /// Part of the minimum that may be missing.
    const TOLERANCE_PARTS: u64 = 100;

    /// Takes in one period. Returns whether a second ended in which the minimum was denied.
    pub fn sees_denied(&mut self, sample: &Sample, minimum_bit_s: u64) -> bool {
        if !sample.is_held() {
            *self = Watch::default();
            return false;
        }
        self.asked_ns += sample.elapsed_ns;
        self.delivered_bytes += sample.delivered_bytes;
        if self.asked_ns < Watch::WINDOW_NS {
            return false;
        }
        let window = std::mem::take(self);
        let got = u128::from(window.delivered_bytes) * 8 * 1_000_000_000;
        let least_bit_s = minimum_bit_s - minimum_bit_s / Watch::TOLERANCE_PARTS;
        got < u128::from(least_bit_s) * u128::from(window.asked_ns)
    }
}
