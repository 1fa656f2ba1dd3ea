//! What each policy supplies to each VCPU of a CPU: from `docs/explanation/policies.md` to [`Supply`].
//!
//! # Who takes the CPU away
//!
//! VCPUs of a smaller priority number, and of the same: among equals the one that became eligible
//! first goes on, so an equal may have its whole budget first. In a window of length *w* a VCPU of
//! budget *C* and period *T* runs at most
//!
//! - deferrable: *C* for each period and once more, kept from the period before: releases with a
//!   jitter of *T - C* (Davis and Burns);
//! - periodic, polling, of a smaller priority number: *C* for each period, counted from the last
//!   time, up to the release that is looked at, at which no such VCPU had both budget and use for
//!   it. (A blocked VCPU under the periodic server uses its budget all the same; one under the
//!   polling server has none.) From then to the release only such VCPUs run;
//! - periodic, polling, of the same priority number: as deferrable, since the VCPU itself may
//!   have run at that time, in its place before the equal's, and made it wait;
//! - sporadic: *C* in any window of one period, so *C* for each period begun.
//!
//! SEDF: in any time that begins with a wake or a period and ends with a period a VCPU uses at most
//! its slice a period. If the slices of a CPU fit beside one another, all are served before their
//! periods end: were one not, then from the last time before at which no VCPU with as early an end had
//! use for the CPU, all together would have used more than all of it. If they do not fit, a VCPU
//! whose period of length *t* ends at *d* still waits only for those whose period ends at *d* or before. Of
//! another one that is the end of a period that began before, up to *C*, and then, if a whole period
//! fits into *t*, at most *C* a period. What is left of *t* is assured.
//!
//! # Quantum
//!
//! If it divides a period, replenishments are on time. If not, each is late by less than a quantum:
//! one more quantum of jitter as a rival; as a server the period is that much shorter, and the
//! first replenishment is awaited for up to two quanta more (both ends of a period can be late).
//! Under SEDF periods begin with wakes, so that any end can be late; a VCPU whose replenishment is
//! late keeps an end of its period that is past, and with it comes first: no guarantee is given.
//!
//! # Costs
//!
//! With a cost of at most *c* for a decision (schedule and switch together), decisions take CPU in
//! two ways:
//!
//! - *Time.* While the VCPU could run, decisions on its CPU are made only when a VCPU that comes
//!   before it, or is its equal, wakes, blocks, is replenished, exhausts its budget or has its
//!   budget's end moved; on such events of its own; at the end of a quantum; and one, for someone
//!   else, may be in progress at the start. Every one of these counts as contention, beside the
//!   budgets of those VCPUs; so it does not matter who is charged, nor if a decision in progress
//!   takes a budget beyond its end. Four decisions a replenishment, two a wake; four a wake under
//!   SEDF, where one may also fill up a slice.
//! - *Budget.* Each decision that chooses the VCPU costs it *c*: one at first, one to pay back an
//!   overrun, one at a change of its own budget, one for each time that another can have come
//!   between (wakes and replenishments of the others), and one a quantum. The guest gets the budget
//!   less these.

use laxity_host::{GuestScheduler, Host, Policy};

use crate::guest::GuestTask;
use crate::runs::{self, REPLENISHMENTS_MAX};
use crate::supply::{Competitor, Contention, Delay, Supply};
use crate::{Ns, ceiling_divide};

/// Decisions that one replenishment can bring: its own, the budget's end, and as many for a blocked
/// VCPU's budget running down.
const DECISIONS_PER_REPLENISHMENT: Ns = 4;

/// Decisions that one wake can bring: its own, and that of blocking again; under SEDF also the end of
/// the slice that it began, or of the one that it moved.
fn decisions_per_wake(policy: Policy) -> Ns {
    if policy == Policy::Sedf { 4 } else { 2 }
}

/// One, in the fixed-point fractions of rates, which are rounded up.
const ONE: Ns = 1 << 60;

/// A VCPU with a budget.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub budget_ns: Ns,
    pub period_ns: Ns,
    pub priority: u32,
    /// How late a replenishment can be.
    pub late_ns: Ns,
    pub guest: GuestScheduler,
    /// By rank, the highest first (EDF: any order), ticks before all.
    pub tasks: Vec<GuestTask>,
    pub cpu_bound: bool,
}

impl Server {
    /// How often the VCPU can wake within a window.
    pub fn wakes(&self, window_ns: Ns) -> Ns {
        let released =
            |task: &GuestTask| ceiling_divide(window_ns + task.jitter_ns, task.period_ns);
        self.tasks.iter().map(released).sum()
    }

    fn replenishments(&self, policy: Policy, window_ns: Ns) -> Ns {
        ((window_ns + self.late_ns) / self.period_ns + 1) * replenishments_per_period(policy)
    }
}

/// The most that fall within one period.
fn replenishments_per_period(policy: Policy) -> Ns {
    if policy == Policy::Sporadic {
        REPLENISHMENTS_MAX
    } else {
        1
    }
}

/// What a policy assures a VCPU.
#[derive(Debug, Clone)]
pub(crate) struct Assured {
    pub supply: Supply,
    /// The part of the budget that is sure to come in every period, if not all.
    pub short_ns: Option<Ns>,
}

/// Why a policy assures nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    Shares,
    SedfQuantum,
    Crowded,
    SporadicCrowded,
    Costs,
}

/// The VCPUs of one CPU under a policy with budgets.
pub(crate) struct Servers<'h> {
    host: &'h Host,
    pub servers: Vec<Server>,
}

impl<'h> Servers<'h> {
    pub fn new(host: &'h Host, servers: Vec<Server>) -> Servers<'h> {
        Servers { host, servers }
    }

    fn decision_ns(&self) -> Ns {
        Ns::from(self.host.costs.schedule.max_ns())
            + Ns::from(self.host.costs.context_switch.max_ns())
    }

    fn quantum_ns(&self) -> Ns {
        self.host.settings.quantum_ns.into()
    }

    /// Those that may run although `number` could.
    fn rivals(&self, number: usize) -> impl Iterator<Item = usize> {
        let (policy, own) = (self.host.policy, self.servers[number].priority);
        (0..self.servers.len()).filter(move |&other| {
            other != number && (policy == Policy::Sedf || self.servers[other].priority <= own)
        })
    }

    /// All decisions while `number` could run, as contention.
    fn decisions(&self, number: usize) -> Contention {
        let (policy, cost_ns) = (self.host.policy, self.decision_ns());
        let mut contention = Contention {
            blocking_ns: cost_ns,
            competitors: Vec::new(),
        };
        if cost_ns == 0 {
            return contention;
        }
        // An event is counted at both ends of a window.
        let mut events = |count: Ns, period_ns: Ns, jitter_ns: Ns| {
            contention.competitors.push(Competitor {
                cost_ns: count * cost_ns,
                period_ns,
                jitter_ns: jitter_ns + 1,
            });
        };
        let per_period = DECISIONS_PER_REPLENISHMENT * replenishments_per_period(policy);
        for other in self.rivals(number) {
            let server = &self.servers[other];
            events(per_period, server.period_ns, server.late_ns);
            for task in &server.tasks {
                events(decisions_per_wake(policy), task.period_ns, task.jitter_ns);
            }
        }
        events(
            per_period,
            self.servers[number].period_ns,
            self.servers[number].late_ns,
        );
        if self.quantum_ns() > 0 {
            events(1, self.quantum_ns(), 0);
        }
        contention
    }

    /// All that takes the CPU away from `number` while it could run (not for SEDF).
    fn contention(&self, number: usize) -> Contention {
        let own = self.servers[number].priority;
        let mut contention = self.decisions(number);
        for other in self.rivals(number) {
            let server = &self.servers[other];
            contention.competitors.push(Competitor {
                cost_ns: server.budget_ns,
                period_ns: server.period_ns,
                jitter_ns: match self.host.policy {
                    Policy::Sporadic => 0,
                    Policy::Periodic | Policy::Polling if server.priority < own => server.late_ns,
                    _ => server.period_ns - server.budget_ns + server.late_ns,
                },
            });
        }
        contention
    }

    /// What decisions take of the budget of `number` within a window.
    fn charged_ns(&self, number: usize, window_ns: Ns) -> Ns {
        let (policy, quantum_ns) = (self.host.policy, self.quantum_ns());
        let mut choices = 3;
        for other in self.rivals(number) {
            let server = &self.servers[other];
            choices += server.wakes(window_ns) + server.replenishments(policy, window_ns);
        }
        if quantum_ns > 0 {
            choices += window_ns / quantum_ns + 1;
        }
        if policy == Policy::Sporadic {
            choices += self.servers[number].replenishments(policy, window_ns);
        }
        choices * self.decision_ns()
    }

    /// What the policy assures to `number`.
    pub fn assured(&self, number: usize) -> Result<Assured, Nothing> {
        match self.host.policy {
            Policy::Sporadic => self.sporadic(number),
            Policy::Sedf => self.sedf(number),
            Policy::Deferrable | Policy::Periodic | Policy::Polling => self.fixed_period(number),
            _ => Err(Nothing::Shares),
        }
    }

    fn fixed_period(&self, number: usize) -> Result<Assured, Nothing> {
        let contention = self.contention(number);
        let server = &self.servers[number];
        let sure_ns = contention.most_served(server.budget_ns, server.period_ns - server.late_ns);
        self.fixed_releases(number, sure_ns, Delay::LastPeriod(contention))
    }

    fn sedf(&self, number: usize) -> Result<Assured, Nothing> {
        if self.quantum_ns() > 0 {
            return Err(Nothing::SedfQuantum);
        }
        let server = &self.servers[number];
        let window_ns = server.period_ns;
        let others_ns: Ns = self
            .rivals(number)
            .map(|other| {
                let Server {
                    budget_ns,
                    period_ns,
                    ..
                } = self.servers[other];
                if window_ns < period_ns {
                    budget_ns.min(window_ns)
                } else {
                    // The first whole period begins when the end of one before is used, or the last fits.
                    let begun_ns = budget_ns.min(window_ns - period_ns);
                    begun_ns + (window_ns - begun_ns) * budget_ns / period_ns
                }
            })
            .sum();
        let delay_ns = others_ns + self.decisions(number).within(window_ns);
        let (sure_ns, delay_ns) = if self.slices_fit(number) {
            (server.budget_ns, delay_ns.min(window_ns - server.budget_ns))
        } else {
            (server.budget_ns.min(window_ns - delay_ns), delay_ns)
        };
        self.fixed_releases(number, sure_ns, Delay::Fixed(delay_ns))
    }

    /// SEDF: whether all slices and all decisions together fit into every time that is not shorter than
    /// the period of `number`.
    fn slices_fit(&self, number: usize) -> bool {
        let server = &self.servers[number];
        let mut decisions = self.decisions(number);
        for task in &server.tasks {
            decisions.competitors.push(Competitor {
                cost_ns: decisions_per_wake(Policy::Sedf) * self.decision_ns(),
                period_ns: task.period_ns,
                jitter_ns: task.jitter_ns + 1,
            });
        }
        let rate = |cost_ns: Ns, period_ns: Ns| ceiling_divide(cost_ns * ONE, period_ns);
        let slices: Ns = (self.servers.iter())
            .map(|server| rate(server.budget_ns, server.period_ns))
            .sum();
        let costs: Ns = (decisions.competitors.iter())
            .map(|events| rate(events.cost_ns, events.period_ns))
            .sum();
        // Decisions within a window are at most its length at that rate, and as many as fall within the
        // jitter, and one of each kind.
        let once_ns: Ns = (decisions.competitors.iter())
            .map(|events| {
                events.cost_ns + ceiling_divide(events.jitter_ns * events.cost_ns, events.period_ns)
            })
            .sum::<Ns>()
            + decisions.blocking_ns;
        // Slices are whole nanoseconds: what rounding adds is below one within 2^60 ns for each server.
        let spare = ONE + self.servers.len() as Ns - slices - costs;
        spare >= 0 && spare.saturating_mul(server.period_ns) >= once_ns.saturating_mul(ONE)
    }

    /// The supply of a server that is replenished at multiples of its period, and of whose budget
    /// `sure_ns` can be used in every period.
    fn fixed_releases(&self, number: usize, sure_ns: Ns, delay: Delay) -> Result<Assured, Nothing> {
        let server = &self.servers[number];
        if sure_ns < 1 {
            return Err(Nothing::Crowded);
        }
        let uncharged_ns =
            server.budget_ns - self.charged_ns(number, server.period_ns + server.late_ns);
        let budget_ns = sure_ns.min(uncharged_ns);
        if budget_ns < 1 {
            return Err(Nothing::Costs);
        }
        let gap_ns = match self.host.policy {
            Policy::Polling => server.period_ns,
            _ => server.period_ns - budget_ns,
        };
        Ok(Assured {
            supply: Supply {
                gap_ns: gap_ns + 2 * server.late_ns,
                period_ns: server.period_ns,
                budget_ns,
                delay,
            },
            short_ns: (sure_ns < server.budget_ns).then_some(sure_ns),
        })
    }

    fn sporadic(&self, number: usize) -> Result<Assured, Nothing> {
        let server = &self.servers[number];
        let contention = self.contention(number);
        let Some(whole_ns) = contention.serve(server.budget_ns, server.period_ns) else {
            return Err(Nothing::SporadicCrowded);
        };
        let rivals: Vec<(&Server, Contention)> = self
            .rivals(number)
            .map(|other| (&self.servers[other], self.contention(other)))
            .collect();
        let never_merged = self.host.costs.is_zero()
            && self.quantum_ns() == 0
            && runs::are_never_merged(server, &rivals, &contention);
        let return_ns = if never_merged {
            server.period_ns
        } else {
            runs::return_ns(server.period_ns, server.late_ns)
        } + 2 * server.late_ns;
        let budget_ns = runs::on_time_ns(server.budget_ns, server.period_ns)
            - self.charged_ns(number, return_ns + whole_ns);
        if budget_ns < 1 {
            return Err(Nothing::Costs);
        }
        Ok(Assured {
            supply: Supply {
                gap_ns: return_ns - budget_ns,
                period_ns: return_ns,
                budget_ns,
                delay: Delay::EachBudget {
                    each_ns: whole_ns - server.budget_ns,
                    contention,
                },
            },
            short_ns: None,
        })
    }
}
