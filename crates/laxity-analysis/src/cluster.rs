//! The supply of rtds to VCPUs that share several CPUs, as [`Contention`]. "Rtds" in `docs/explanation/policies.md` has
//! the rules.
//!
//! A *cluster* is a set of CPUs and the VCPUs that may run on these and no others. Without `extratime` all VCPUs have
//! level 0, and a VCPU with work and budget waits only while every CPU of its cluster runs a VCPU whose deadline is no
//! later. A deadline is that at the CPU's last decision: where clusters share rtds's queue, a running VCPU with a new
//! period may go on until its CPU decides next, which is when the rest of its old budget is used.
//!
//! # Tests
//!
//! A server is like a sporadic task that may wait with its job until the end of the period, and whose job is dropped
//! there. A job therefore never runs after its deadline, and no VCPU is late because another one is; each VCPU is
//! tested by itself.
//!
//! - *Bertogna, Cirinei and Lipari* ("Improved Schedulability Analysis of EDF on Multiprocessor Platforms", ECRTS 2005,
//!   section 4). In a period of the VCPU count those budgets of each other VCPU whose periods end no later. The test
//!   has them used as late as can be, which is what a deferrable server may do: it holds for these servers as it
//!   stands. (That a deferrable server's budgets can come back to back, of which the second has a later deadline, adds
//!   nothing here.)
//! - *Bertogna and Cirinei* ("Response-Time Analysis for Globally Scheduled Symmetric Multiprocessor Platforms", RTSS
//!   2007). The longest response for any order of the VCPUs, in which budgets do come back to back: releases with a
//!   jitter of *T - C*. It also bounds waits that begin within a period. The slack of the paper, by which a VCPU has
//!   its budget before the end of its period, holds only for a VCPU that always has work.
//!
//! The density bound of Goossens, Funk and Baruah (2003) and the test of Baruah (RTSS 2007) are not used. Both take a
//! job to be ready from its release: two servers of 5 of 10 and 2 of 4 on one CPU have a density of 1, and the second
//! gets 1 of 4 if the first begins late.
//!
//! # Costs
//!
//! A decision costs up to *c* with a switch and *s* without. A VCPU *k* that could run is kept from it
//!
//! - while its state is saved, for *c* after each time that it lost its CPU;
//! - for *c* from each time that it begins to wait: a CPU that is called may be in a decision that it made before, and
//!   a CPU that decides while *k* waits takes no VCPU of a later deadline. The same holds after a replenishment of
//!   another VCPU, whose deadline is then later than at its CPU's decision;
//! - for *c* at each time that it is chosen, and for *s* at each decision of its CPU that it survives;
//! - else while all CPUs of the cluster run VCPUs of no later deadlines. Decisions that choose these are a part of
//!   their budgets, of which each can be overrun by *c*.
//!
//! Each time that *k* loses its CPU, one more CPU runs a VCPU of no later deadline. Their number is at most that of the
//! CPUs, and falls only when such a VCPU blocks, uses its budget up or has a new period; so *k* loses its CPU no more
//! often than that happens, and once more for each CPU. The same holds for each other VCPU. Decisions are counted with
//! that: a VCPU calls a CPU when it wakes, is replenished, uses its budget up or loses its CPU, and once more when its
//! state is saved; a CPU decides when it is called, and at the end of what its VCPU has to do or had of budget.

use crate::server::Server;
use crate::supply::{Competitor, Contention, Everywhere, Limit, Rival};
use crate::time::Ns;

/// How often the slacks of VCPUs that always have work are looked for again with those that were found.
const ROUNDS_MAX: usize = 4;

/// What each event of a cluster costs a VCPU that could run.
#[derive(Debug, Clone, Copy)]
struct Costs {
    /// A job that arrives or a tick that falls due, at another VCPU.
    wake_ns: Ns,
    /// The same at the VCPU itself.
    own_wake_ns: Ns,
    replenishment_ns: Ns,
    once_ns: Ns,
}

/// The VCPUs of a cluster.
pub(crate) struct Cluster<'a> {
    pub cpus: Ns,
    /// The most that a decision without a switch costs.
    pub schedule_ns: Ns,
    /// The most that any decision costs.
    pub decision_ns: Ns,
    pub servers: &'a [Server],
    /// How long before the end of its period each has its budget for sure, if it always has work.
    pub slacks_ns: &'a [Ns],
}

/// What is assured to a VCPU with work in each of its periods.
pub(crate) struct Sure {
    /// How much of its budget it gets by the end of the period; less than 1 is nothing.
    pub budget_ns: Ns,
    /// Whether that is all that decisions leave of it.
    pub is_whole: bool,
    /// Whether it would be less without the slacks of others.
    pub needs_slack: bool,
    /// The longest time for which it is kept from running before that.
    pub delay_ns: Ns,
    pub contention: Contention,
}

impl Cluster<'_> {
    /// What the policy assures to `number`.
    pub fn sure(&self, number: usize) -> Sure {
        let server = &self.servers[number];
        let uncharged_ns = server.budget_ns - self.charged_ns(number, server.period_ns);
        let budget_ns = |delay_ns| uncharged_ns.min(server.period_ns - delay_ns);
        let delay_ns = self.delay_by_deadline_ns(number);
        let without_slack = Cluster {
            slacks_ns: &vec![0; self.servers.len()],
            ..*self
        };
        Sure {
            budget_ns: budget_ns(delay_ns),
            is_whole: delay_ns <= server.period_ns - uncharged_ns,
            needs_slack: budget_ns(without_slack.delay_by_deadline_ns(number))
                < budget_ns(delay_ns),
            delay_ns,
            contention: self.contention(number),
        }
    }

    /// All that keeps `number` from running in a window in which it could run.
    pub fn contention(&self, number: usize) -> Contention {
        let releases = |budget_ns, server: &Server| {
            let jitter_ns = server.period_ns - server.budget_ns;
            Limit::Releases(Competitor::new(budget_ns, server.period_ns, jitter_ns))
        };
        let (once_ns, overheads) = self.events(number, self.overheads());
        Contention::of_cluster(once_ns, overheads, self.everywhere(number, releases))
    }

    /// The longest time for which `number` is kept from running in a period, before it ends or the budget is used.
    fn delay_by_deadline_ns(&self, number: usize) -> Ns {
        let due = |budget_ns, server: &Server| Limit::Due {
            budget_ns,
            period_ns: server.period_ns,
            slack_ns: 0,
        };
        let mut everywhere = self.everywhere(number, due);
        let slacks_ns: Vec<Ns> = self.rivals(number).map(|of| self.slacks_ns[of]).collect();
        for rivals in [&mut everywhere.rivals, &mut everywhere.charged] {
            for (rival, slack) in rivals.iter_mut().zip(&slacks_ns) {
                if let Limit::Due { slack_ns, .. } = &mut rival.limit {
                    *slack_ns = *slack;
                }
            }
        }
        let period_ns = self.servers[number].period_ns;
        let (once_ns, overheads) = self.events(number, self.overheads());
        Contention::of_cluster(once_ns, overheads, everywhere).within(period_ns)
    }

    /// What decisions take of the budget of `number` within a window, but for those that its own wakes bring.
    pub fn charged_ns(&self, number: usize, window_ns: Ns) -> Ns {
        let (once_ns, events) = self.events(number, self.charges());
        Contention::new(once_ns, events, Vec::new()).within(window_ns)
    }

    /// How long before the end of each period each VCPU that always has work, and had it when its first period began,
    /// has used its budget for sure; 0 for the others.
    pub fn slacks(&self) -> Vec<Ns> {
        let mut slacks_ns = vec![0; self.servers.len()];
        for _ in 0..ROUNDS_MAX {
            let found: Vec<Ns> = (0..self.servers.len())
                .map(|number| {
                    let known = Cluster {
                        slacks_ns: &slacks_ns,
                        ..*self
                    };
                    known.slack_ns(number)
                })
                .collect();
            if found == slacks_ns {
                break;
            }
            slacks_ns = found;
        }
        slacks_ns
    }

    fn slack_ns(&self, number: usize) -> Ns {
        let server = &self.servers[number];
        if !server.cpu_bound || server.phase_ns % server.period_ns != 0 {
            return 0;
        }
        let by_deadline_ns = server.budget_ns + self.delay_by_deadline_ns(number);
        let in_any_order_ns =
            (self.contention(number)).serve(server.budget_ns, server.period_ns.min(by_deadline_ns));
        let used_ns = in_any_order_ns.unwrap_or(by_deadline_ns);
        (server.period_ns - used_ns).max(0)
    }

    /// How many decisions a wake and a replenishment bring in the cluster at most, and how many come once.
    fn decisions_per_event(&self) -> (Ns, Ns, Ns) {
        let vcpus = self.servers.len() as Ns;
        if self.cpus == 1 {
            // A VCPU that loses the CPU does not come before the one that gets it.
            return (2, 4, 2 * vcpus + 1);
        }
        // Each VCPU may lose its CPU for it, and calls at once and when its state is saved.
        let losses = 2 * vcpus;
        (
            3 + losses,
            5 + losses,
            (3 + 2 * self.cpus) * vcpus + losses * vcpus + 1,
        )
    }

    /// What all decisions of the cluster cost, where several CPUs may decide for different VCPUs.
    fn decisions(&self) -> Costs {
        let cost_ns = match self.cpus {
            1 => 0,
            _ => self.decision_ns,
        };
        let (per_wake, per_replenishment, once) = self.decisions_per_event();
        Costs {
            wake_ns: per_wake * cost_ns,
            own_wake_ns: per_wake * cost_ns,
            replenishment_ns: per_replenishment * cost_ns,
            once_ns: once * cost_ns,
        }
    }

    /// The time for which decisions keep a VCPU from running.
    fn overheads(&self) -> Costs {
        let (per_wake, per_replenishment, once) = self.decisions_per_event();
        let (all_ns, stay_ns) = (self.decision_ns, self.schedule_ns);
        if self.cpus == 1 {
            return Costs {
                wake_ns: per_wake * all_ns,
                own_wake_ns: 0,
                replenishment_ns: per_replenishment * all_ns,
                once_ns: once * all_ns,
            };
        }
        // Its state is saved, it waits for a CPU that decides, and it is chosen.
        let loss_ns = 3 * all_ns;
        let losses_once = 1 + self.cpus + self.servers.len() as Ns;
        Costs {
            wake_ns: loss_ns + per_wake * stay_ns,
            own_wake_ns: per_wake * stay_ns,
            replenishment_ns: loss_ns + all_ns + per_replenishment * stay_ns,
            once_ns: losses_once * loss_ns + once * stay_ns,
        }
    }

    /// What decisions that choose a VCPU take of its budget.
    fn charges(&self) -> Costs {
        let (per_wake, per_replenishment, once) = self.decisions_per_event();
        let (all_ns, stay_ns) = (self.decision_ns, self.schedule_ns);
        if self.cpus == 1 {
            return Costs {
                wake_ns: all_ns,
                own_wake_ns: 0,
                replenishment_ns: all_ns,
                once_ns: 3 * all_ns,
            };
        }
        let losses_once = 1 + self.cpus + self.servers.len() as Ns;
        Costs {
            wake_ns: all_ns + per_wake * stay_ns,
            own_wake_ns: per_wake * stay_ns,
            replenishment_ns: all_ns + per_replenishment * stay_ns,
            once_ns: losses_once * all_ns + once * stay_ns,
        }
    }

    /// What costs take in windows: once, and as windows grow. An event is counted at both ends of a window. Events of
    /// one period and jitter are one competitor.
    fn events(&self, number: usize, costs: Costs) -> (Ns, Vec<Competitor>) {
        let mut events: Vec<Competitor> = Vec::new();
        let mut add = |cost_ns: Ns, period_ns: Ns, jitter_ns: Ns| {
            if cost_ns == 0 {
                return;
            }
            let new = Competitor::new(cost_ns, period_ns, jitter_ns + 1);
            let is_like = |known: &&mut Competitor| {
                (known.period_ns, known.jitter_ns) == (new.period_ns, new.jitter_ns)
            };
            match events.iter_mut().find(is_like) {
                Some(known) => known.cost_ns += new.cost_ns,
                None => events.push(new),
            }
        };
        for (other, server) in self.servers.iter().enumerate() {
            add(costs.replenishment_ns, server.period_ns, 0);
            let wake_ns = if other == number {
                costs.own_wake_ns
            } else {
                costs.wake_ns
            };
            for task in &server.tasks {
                add(wake_ns, task.period_ns, task.jitter_ns);
            }
        }
        (costs.once_ns, events)
    }

    fn rivals(&self, number: usize) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(move |&other| other != number)
    }

    fn everywhere(&self, number: usize, limit: impl Fn(Ns, &Server) -> Limit) -> Everywhere {
        let (decisions_once_ns, decisions) = self.events(number, self.decisions());
        let rivals = |charge_ns: Option<Ns>| -> Vec<Rival> {
            (self.rivals(number))
                .map(|other| {
                    let server = &self.servers[other];
                    Rival {
                        limit: limit(server.budget_ns + charge_ns.unwrap_or(0), server),
                        demand: match charge_ns {
                            Some(_) => None,
                            None => server.demand(),
                        },
                    }
                })
                .collect()
        };
        Everywhere {
            cpus: self.cpus,
            rivals: rivals(None),
            decisions_once_ns,
            decisions,
            charged: match (self.cpus, self.decision_ns) {
                (1, _) | (_, 0) => Vec::new(),
                (_, overrun_ns) => rivals(Some(overrun_ns)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laxity_host::GuestScheduler;

    /// A server that uses any of its budget at any time.
    fn server(budget_ns: Ns, period_ns: Ns) -> Server {
        Server {
            budget_ns,
            period_ns,
            phase_ns: 1,
            priority: 1,
            late_ns: 0,
            guest: GuestScheduler::RateMonotonic,
            tasks: Vec::new(),
            responses_ns: Vec::new(),
            cpu_bound: true,
        }
    }

    /// The test of Bertogna, Cirinei and Lipari as it is published, for every amount and every wait in turn: an amount
    /// is sure if the others can fill no wait that leaves less than it.
    fn sure_slowly(cpus: Ns, servers: &[Server]) -> Ns {
        let (own, others) = servers.split_first().expect("there are servers");
        let due_ns = |other: &Server| -> Ns {
            let mut end_ns = own.period_ns;
            let mut sum_ns = 0;
            while end_ns > 0 {
                sum_ns += other.budget_ns.min(end_ns);
                end_ns -= other.period_ns;
            }
            sum_ns
        };
        let is_filled = |wait_ns: Ns| {
            let filled_ns: Ns = others.iter().map(|of| due_ns(of).min(wait_ns)).sum();
            filled_ns >= cpus * wait_ns
        };
        (1..=own.budget_ns)
            .rev()
            .find(|amount_ns| {
                (own.period_ns - amount_ns + 1..=own.period_ns).all(|of| !is_filled(of))
            })
            .unwrap_or(0)
    }

    #[test]
    fn what_is_sure_is_what_the_published_test_says() {
        for cpus in 1..5 {
            for seed in 0..600_i128 {
                let servers: Vec<Server> = (0..2 + seed % 6)
                    .map(|number| {
                        let period_ns =
                            [4, 6, 9, 10, 15, 20][((seed * 7 + number * 5) % 6) as usize];
                        server(1 + (seed * 13 + number * 11) % period_ns, period_ns)
                    })
                    .collect();
                let cluster = Cluster {
                    cpus,
                    schedule_ns: 0,
                    decision_ns: 0,
                    servers: &servers,
                    slacks_ns: &vec![0; servers.len()],
                };
                let found_ns = cluster.sure(0).budget_ns.max(0);
                assert_eq!(
                    found_ns,
                    sure_slowly(cpus, &servers),
                    "{cpus} CPUs: {servers:?}"
                );
            }
        }
    }
}
