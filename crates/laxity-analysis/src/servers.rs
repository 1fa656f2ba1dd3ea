//! The [`Supply`] of each policy to each VCPU of a CPU, under the rules of `docs/explanation/policies.md`.
//!
//! # Contention for the CPU
//!
//! VCPUs of a smaller priority number, and of the same: among equals the one that became eligible
//! first goes on, so an equal may have its whole budget first. In a window of length *w* a VCPU of
//! budget *C* and period *T* runs at most
//!
//! - deferrable: *C* for each period and once more, kept from the period before: releases with a
//!   jitter of *T - C* (Davis and Burns). In a window that begins at a replenishment of the VCPU that waits it
//!   is less: all VCPUs begin at once, so the other's period that began before goes on for a multiple of the
//!   periods' greatest common divisor *g*, at least *g*, and the jitter is at most *T - g*;
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
//! whose period of length *t* ends at *d* still waits only for those whose period ends at *d* or
//! before. Another VCPU first takes up to *C* at the end of a period that began before, and then, if a
//! whole period fits into *t*, at most *C* a period. What is left of *t* is assured.
//!
//! Whatever its budget lets it run, a VCPU runs no more than its guest asks for: in a window, all jobs that
//! are not complete before it. Those are known once the response times of its tasks are bounded, so
//! bounds are found in rounds, each with what the one before found (`check`). A periodic server's budget runs
//! down all the same.
//!
//! Rtds: `cluster`.
//!
//! # One order for all CPUs
//!
//! A cluster of one CPU has the policy of each CPU. On more CPUs, where scheduling is free, a VCPU waits only while
//! all of them are used by VCPUs that come before it or are its equals (`supply`, "Several CPUs"): the response-time
//! analysis of Bertogna and Cirinei ("Response-Time Analysis for Globally Scheduled Symmetric Multiprocessor
//! Platforms", RTSS 2007). A rival runs as much in a window as on one CPU, with the budgets of a deferrable server
//! back to back; but periodic and polling servers count as deferrable ones do, since no time need come before a
//! release at which no rival has use for a CPU. A blocked periodic server takes its CPU all the same.
//!
//! SEDF has two tests. What a VCPU uses between wakes is a job whose density is at most that of its slice, and jobs
//! with such densities are all in time under global EDF on *m* CPUs if the densities add up to *m - (m - 1) u* at
//! most, where *u* is the greatest (Goossens, Funk and Baruah, "Priority-Driven Scheduling of Periodic Task Systems on
//! Multiprocessors", Real-Time Systems 25, 2003: each VCPU alone on a CPU of the speed of its density would be in
//! time). Otherwise a VCPU waits in its period only while all CPUs are used by VCPUs whose periods end no later
//! (Bertogna, Cirinei and Lipari, ECRTS 2005), each for at most what is said of one CPU. Only this test is used where
//! decisions cost time.
//!
//! # Quantum
//!
//! If it divides a period, replenishments are on time. If not, each is late by less than a quantum:
//! one more quantum of jitter as a rival; as a server the period is that much shorter, and the
//! first replenishment is awaited for up to two quanta more (both ends of a period can be late).
//! Under SEDF periods begin with wakes, so that any end can be late; a VCPU whose replenishment is
//! late keeps an end of its period that is past, and with it comes first: no guarantee is given.
//!
//! # Late timers
//!
//! The timers of a policy may be late by *l*. The end of a running VCPU's budget is the end of a decision, and so on
//! time. Replenishments are late by up to *l*, unless a wake finds them due, which counts as with a quantum. Three
//! things are different.
//!
//! - The first budget of a deferrable server comes at *l*: a VCPU that has used nothing may wait for it.
//! - The budget of a blocked periodic server runs down until a timer ends it. What it is overrun by is owed, so that
//!   all budgets of a VCPU within any time are overrun by *l* at most, and each may lack *l*.
//! - Under SEDF a VCPU whose replenishment is late goes on with what is left of its slice, with the end of a period
//!   that is past. A slice is therefore used up to *l* after its end, and what is used in a window is what could be
//!   used in one that is longer by *l* if all were on time. Slices that end no later than the period of a VCPU are
//!   counted in the whole period and *l* before it, and the VCPU has the period but *l*. That all slices fit is no
//!   argument then.
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
//!
//! # Costs with one order for all CPUs
//!
//! A decision costs up to *c* with a switch and *s* without. A CPU is *handed over* from the instant at which the order
//! gives it to another VCPU, or to none, until that VCPU runs there. This takes *2c + s* at most: the CPU may be in a
//! decision (*c*); the VCPU may run elsewhere until that CPU has decided, so that this one decides to idle (*c*); and
//! the VCPU's state may not be saved then, so that it decides to idle once more (*s*) and looks again when it is. It
//! is saved within *2c*, since the CPU where it ran decides within *c* and saves it in *c*.
//!
//! A VCPU *k* that could run is kept from it
//!
//! - while a CPU is handed over to *k*, and for *c* each time that *k* is chosen;
//! - while *k* waits and a CPU is handed over to another VCPU;
//! - else while all CPUs run VCPUs that come before *k*, on their budgets.
//!
//! A wake or a replenishment lets one VCPU come, which takes one CPU, and later leave, which frees one. Under SEDF a
//! replenishment moves a VCPU that stands in the order instead, which changes one CPU. One event is therefore two
//! handovers; *k* loses its CPU once for it at most, and is chosen once more for that. Events of VCPUs that come after
//! *k* change nothing while *k* waits, and *k* keeps its CPU. Once come the handovers that are under way at first,
//! which end together, one for each VCPU before *k* that leaves, and the first choice of *k*. At the end of a quantum
//! one CPU is handed over to an equal of its VCPU.
//!
//! Two bounds hold for what all CPUs run: what the guests of the others do, and the decisions that choose these; and
//! the budgets of the others, of which each can be overrun by *c*. An event brings three such decisions: that of the
//! VCPU that comes, that of the one that loses its CPU and comes back, and one that lets a CPU idle on the budget of a
//! blocked VCPU, or that lets a VCPU go on.

use std::cell::RefCell;

use laxity_host::{Host, Policy};

use crate::cluster::{Cluster, Sure};
use crate::effort::Effort;
use crate::runs;
use crate::server::{Server, quantum_ns, replenishments_per_period};
use crate::supply::{
    Competitor, Contention, Deficits, Delay, Delays, Everywhere, Limit, ONE, Rival, Supply,
    Workload, demanded, longest_wait_ns, rate,
};
use crate::time::{Ns, ceiling_divide};

/// Decisions that one replenishment can bring: its own, the budget's end, and as many for a blocked
/// VCPU's budget running down.
const DECISIONS_PER_REPLENISHMENT: Ns = 4;

/// Decisions that one wake can bring: its own, and that of blocking again; under SEDF also the end of
/// the slice that it began, or of the one that it moved.
fn decisions_per_wake(policy: Policy) -> Ns {
    if policy == Policy::Sedf { 4 } else { 2 }
}

/// Decisions that choose rivals and that one wake or replenishment can bring in an order of several CPUs: of the VCPU
/// that comes, of the one that loses its CPU to it, and one of a blocked VCPU that keeps its CPU.
const CHOICES_PER_EVENT: Ns = 3;

/// What each event takes.
struct EventCosts {
    wake_ns: Ns,
    replenishment_ns: Ns,
    quantum_ns: Ns,
}

/// What decisions take in windows: once, and as windows grow.
struct Overheads {
    once_ns: Ns,
    events: Vec<Competitor>,
}

impl Overheads {
    fn within(self, window_ns: Ns) -> Ns {
        Contention::new(self.once_ns, self.events, Vec::new()).within(window_ns)
    }
}

/// A number of periods in which what happens once does not matter.
const PERIODS_MANY: Ns = 1 << 20;

/// A sporadic server that is not served its budget within so many periods is assured nothing.
const HORIZON_PERIODS: Ns = 64;

/// A time in which a VCPU could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    /// From any time on.
    Anywhere,
    /// From a replenishment of the VCPU on, until it has run for as long as it is looked at. All policies that
    /// replenish at multiples of the periods begin with all VCPUs at once.
    Response,
    /// From a replenishment of the VCPU on, for whole periods.
    Periods,
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}

/// What a policy assures a VCPU.
#[derive(Debug, Clone)]
pub(crate) struct Assured {
    /// Each by itself; at least one.
    pub supplies: Vec<Supply>,
    /// The part of the budget that is sure to come in every period, if not all.
    pub short_ns: Option<Ns>,
    /// The test of the literature by which VCPUs that share several CPUs have their budgets.
    pub test: Option<&'static str>,
}

/// Why a policy assures nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    Shares,
    SedfQuantum,
    Crowded,
    Costs,
}

/// The VCPUs of one CPU, or of those of a cluster, under a policy with budgets.
pub(crate) struct Servers {
    /// With one order for all CPUs the policy whose budgets the VCPUs have.
    policy: Policy,
    cpus: Ns,
    /// Whether the VCPUs have one order for several CPUs.
    has_one_order: bool,
    /// The most that a decision without a switch costs.
    schedule_ns: Ns,
    /// The most that a decision costs.
    decision_ns: Ns,
    quantum_ns: Ns,
    timer_latency_ns: Ns,
    pub effort: Effort,
    pub servers: Vec<Server>,
    /// Rtds: how long before the end of its period each has its budget for sure, if it always has work.
    slacks_ns: Vec<Ns>,
    /// The VCPU whose budget varies, while all other VCPUs stay as they are.
    varied: Option<usize>,
    /// What takes the CPU away from it, which does not depend on its budget.
    known: RefCell<Vec<(Window, Contention)>>,
    /// What decisions take of its budget within windows, if its policy is not sporadic.
    charged: RefCell<Vec<(Ns, Ns)>>,
}

impl Servers {
    /// The VCPUs that share `cpus` CPUs.
    pub fn new(host: &Host, effort: Effort, cpus: usize, servers: Vec<Server>) -> Servers {
        let costs = &host.costs;
        let schedule_ns = Ns::from(costs.schedule.max_ns());
        let mut servers = Servers {
            policy: host.policy.on_each_cpu().unwrap_or(host.policy),
            cpus: cpus as Ns,
            has_one_order: host.policy.is_global() && cpus > 1,
            schedule_ns,
            decision_ns: schedule_ns + Ns::from(costs.context_switch.max_ns()),
            quantum_ns: quantum_ns(host).into(),
            timer_latency_ns: host.timer_latency_ns.into(),
            effort,
            slacks_ns: vec![0; servers.len()],
            servers,
            varied: None,
            known: RefCell::default(),
            charged: RefCell::default(),
        };
        servers.find_slacks();
        servers
    }

    /// Looks anew at how long before the end of its period each has its budget for sure, after budgets or demands have
    /// changed.
    pub fn find_slacks(&mut self) {
        if self.policy == Policy::Rtds {
            self.slacks_ns = self.cluster().slacks();
        }
    }

    /// Whether a VCPU may run on any of several CPUs, and the policy of its budget.
    pub fn sharing(&self) -> (bool, Policy) {
        (
            self.has_one_order || self.policy == Policy::Rtds,
            self.policy,
        )
    }

    fn cluster(&self) -> Cluster<'_> {
        Cluster {
            cpus: self.cpus,
            schedule_ns: self.schedule_ns,
            decision_ns: self.decision_ns,
            servers: &self.servers,
            slacks_ns: &self.slacks_ns,
        }
    }

    /// Says that from now on nothing changes but the budget of `number`.
    pub fn vary(&mut self, number: usize) {
        self.varied = Some(number);
    }

    /// Those that may run although `number` could.
    fn rivals(&self, number: usize) -> impl Iterator<Item = usize> {
        let (policy, own) = (self.policy, self.servers[number].priority);
        (0..self.servers.len()).filter(move |&other| {
            other != number && (policy == Policy::Sedf || self.servers[other].priority <= own)
        })
    }

    /// The longest time from the instant at which a CPU has another VCPU until that VCPU runs there, in an order of
    /// several CPUs.
    fn handover_ns(&self) -> Ns {
        2 * self.decision_ns + self.schedule_ns
    }

    /// The time for which decisions keep `number` from running while it could.
    fn overheads(&self, number: usize) -> Overheads {
        let decision_ns = self.decision_ns;
        if self.has_one_order {
            let handover_ns = self.handover_ns();
            // One VCPU comes into the order, another one leaves it, and `number` is chosen.
            let event_ns = 2 * handover_ns + decision_ns;
            let leaving = self.rivals(number).count() as Ns;
            return self.events(
                number,
                decision_ns + (1 + leaving) * handover_ns,
                EventCosts {
                    wake_ns: event_ns,
                    replenishment_ns: event_ns,
                    quantum_ns: self.cpus * handover_ns + decision_ns,
                },
            );
        }
        self.events(
            number,
            decision_ns,
            EventCosts {
                wake_ns: decisions_per_wake(self.policy) * decision_ns,
                replenishment_ns: DECISIONS_PER_REPLENISHMENT * decision_ns,
                quantum_ns: decision_ns,
            },
        )
    }

    /// What decisions that choose rivals of `number` take of several CPUs, beside what the rivals' guests do.
    fn choices(&self, number: usize) -> Overheads {
        let choosing_ns = CHOICES_PER_EVENT * self.decision_ns;
        let begun = self.cpus + self.rivals(number).count() as Ns;
        self.events(
            number,
            begun * self.decision_ns,
            EventCosts {
                wake_ns: choosing_ns,
                replenishment_ns: choosing_ns,
                quantum_ns: self.cpus * choosing_ns,
            },
        )
    }

    /// What the wakes of rivals, all replenishments of them and of `number`, and quanta cost, and `once_ns`.
    fn events(&self, number: usize, once_ns: Ns, costs: EventCosts) -> Overheads {
        let mut decisions: Vec<Competitor> = Vec::new();
        if self.decision_ns == 0 {
            return Overheads {
                once_ns: 0,
                events: decisions,
            };
        }
        // An event is counted at both ends of a window. Events of one period and jitter are one competitor: there are
        // far fewer of these than VCPUs, and what they take in a window is most of the work of analysis.
        let mut events = |cost_ns: Ns, period_ns: Ns, jitter_ns: Ns| {
            let new = Competitor::new(cost_ns, period_ns, jitter_ns + 1);
            let is_like = |known: &&mut Competitor| {
                (known.period_ns, known.jitter_ns) == (new.period_ns, new.jitter_ns)
            };
            match decisions.iter_mut().find(is_like) {
                Some(known) => known.cost_ns += new.cost_ns,
                None => decisions.push(new),
            }
        };
        let period_ns = costs.replenishment_ns * replenishments_per_period(self.policy);
        for other in self.rivals(number) {
            let server = &self.servers[other];
            events(period_ns, server.period_ns, server.late_ns);
            for task in &server.tasks {
                events(costs.wake_ns, task.period_ns, task.jitter_ns);
            }
        }
        let own = &self.servers[number];
        events(period_ns, own.period_ns, own.late_ns);
        if self.quantum_ns > 0 {
            events(costs.quantum_ns, self.quantum_ns, 0);
        }
        Overheads {
            once_ns,
            events: decisions,
        }
    }

    /// All that takes the CPU away from `number` while it could run.
    fn contention(&self, number: usize) -> Contention {
        self.contention_in(number, Window::Anywhere)
    }

    fn contention_in(&self, number: usize, window: Window) -> Contention {
        if self.varied != Some(number) {
            return self.contention_anew(number, window);
        }
        let mut known = self.known.borrow_mut();
        if let Some((_, contention)) = known.iter().find(|(of, _)| *of == window) {
            return contention.clone();
        }
        let contention = self.contention_anew(number, window);
        known.push((window, contention.clone()));
        contention
    }

    fn contention_anew(&self, number: usize, window: Window) -> Contention {
        if self.policy == Policy::Rtds {
            return self.cluster().contention(number);
        }
        // How much of another's period, at least, comes after the begin of a window that begins in it.
        let own = &self.servers[number];
        let rest_ns = |other: &Server| match window {
            Window::Anywhere => 0,
            _ if own.late_ns > 0 || other.late_ns > 0 => 0,
            _ => greatest_common_divisor(own.period_ns as u64, other.period_ns as u64).into(),
        };
        let own = self.servers[number].priority;
        let rival = |other: usize, overrun_ns: Ns, demand: Option<Vec<Workload>>| {
            let server = &self.servers[other];
            let (budget_ns, period_ns) = (server.budget_ns + overrun_ns, server.period_ns);
            let releases =
                |jitter_ns| Limit::Releases(Competitor::new(budget_ns, period_ns, jitter_ns));
            let limit = match self.policy {
                Policy::Sedf => Limit::Slices {
                    budget_ns,
                    period_ns,
                    late_ns: server.late_ns,
                },
                Policy::Sporadic => releases(0),
                Policy::Periodic | Policy::Polling
                    if server.priority < own
                        && window != Window::Periods
                        && !self.has_one_order =>
                {
                    releases(server.late_ns)
                }
                _ => releases(period_ns - server.budget_ns.max(rest_ns(server)) + server.late_ns),
            };
            Rival { limit, demand }
        };
        let rivals = (self.rivals(number))
            .map(|other| rival(other, 0, self.demand(other)))
            .collect();
        let overheads = self.overheads(number);
        // What a budget is overrun by is owed, so that all budgets of a rival are overrun by it together.
        let overruns_ns = self.rivals(number).count() as Ns * self.idle_overrun_ns();
        if !self.has_one_order {
            return Contention::new(overheads.once_ns + overruns_ns, overheads.events, rivals);
        }
        let choices = self.choices(number);
        let overrun_ns = self.decision_ns + self.idle_overrun_ns();
        let everywhere = Everywhere {
            cpus: self.cpus,
            rivals,
            decisions_once_ns: choices.once_ns + overruns_ns,
            decisions: choices.events,
            charged: match self.decision_ns {
                0 => Vec::new(),
                _ => (self.rivals(number))
                    .map(|other| rival(other, overrun_ns, None))
                    .collect(),
            },
        };
        Contention::of_cluster(overheads.once_ns, overheads.events, everywhere)
    }

    /// How far the budget of a blocked VCPU can run down beyond its end, which a timer notices.
    fn idle_overrun_ns(&self) -> Ns {
        match self.policy {
            Policy::Periodic => self.timer_latency_ns,
            _ => 0,
        }
    }

    /// What the guest of `number` asks for, if that bounds what the VCPU takes of the CPU.
    fn demand(&self, number: usize) -> Option<Vec<Workload>> {
        if self.policy == Policy::Periodic {
            // A blocked VCPU's budget runs down all the same.
            return None;
        }
        self.servers[number].demand()
    }

    /// What decisions take of the budget of `number` within a window.
    fn charged_ns(&self, number: usize, window_ns: Ns) -> Ns {
        if self.varied != Some(number) || self.policy == Policy::Sporadic {
            return self.charged_anew_ns(number, window_ns);
        }
        let mut charged = self.charged.borrow_mut();
        if let Some(&(_, charged_ns)) = charged.iter().find(|&&(of_ns, _)| of_ns == window_ns) {
            return charged_ns;
        }
        let charged_ns = self.charged_anew_ns(number, window_ns);
        charged.push((window_ns, charged_ns));
        charged_ns
    }

    fn charged_anew_ns(&self, number: usize, window_ns: Ns) -> Ns {
        if self.policy == Policy::Rtds {
            return self.cluster().charged_ns(number, window_ns);
        }
        let (policy, quantum_ns) = (self.policy, self.quantum_ns);
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
        choices * self.decision_ns
    }

    /// What the policy assures to `number`.
    pub fn assured(&self, number: usize) -> Result<Assured, Nothing> {
        let by_budget = self.by_budget(number);
        let Some(free) = self.never_waits(number) else {
            return by_budget;
        };
        let mut assured = by_budget.unwrap_or(Assured {
            supplies: Vec::new(),
            short_ns: None,
            test: None,
        });
        assured.supplies.push(free);
        Ok(assured)
    }

    /// The same of a VCPU that may use up its budget.
    pub fn by_budget(&self, number: usize) -> Result<Assured, Nothing> {
        match self.policy {
            Policy::Sporadic => self.sporadic(number),
            Policy::Sedf => self.sedf(number),
            Policy::Rtds => self.rtds(number),
            Policy::Deferrable | Policy::Periodic | Policy::Polling => self.fixed_period(number),
            _ => Err(Nothing::Shares),
        }
    }

    /// How late the first budget is that counts as kept. Sporadic servers begin with theirs, and a wake brings it under
    /// SEDF.
    fn first_ns(&self) -> Ns {
        match self.policy {
            Policy::Deferrable => self.timer_latency_ns,
            _ => 0,
        }
    }

    /// The supply of a VCPU that cannot use up its budget, if `number` is one.
    pub fn never_waits(&self, number: usize) -> Option<Supply> {
        let is_late = match self.policy {
            Policy::Deferrable | Policy::Sporadic | Policy::Rtds => false,
            Policy::Sedf => self.quantum_ns > 0,
            _ => return None,
        };
        let server = &self.servers[number];
        if is_late || server.cpu_bound || server.tasks.is_empty() {
            return None;
        }
        let contention = self.contention(number);
        let window_ns = server.period_ns + 2 * server.late_ns;
        let decisions_ns = self.charged_ns(number, window_ns) + self.woken_ns(number, window_ns);
        let spare_ns = match self.policy {
            Policy::Sporadic => {
                let merged_ns = self.return_ns(number, &contention) - server.period_ns;
                runs::on_time_ns(server.budget_ns, server.period_ns) - merged_ns
            }
            _ => server.budget_ns,
        } - decisions_ns;
        let first_ns = self.first_ns();
        let used_ns =
            runs::used_without_server_ns(server, &contention, window_ns, first_ns, self.effort)?;
        (used_ns <= spare_ns).then(|| Supply::free(contention, first_ns))
    }

    /// What the decisions that its own wakes bring take of the budget of `number` within a window.
    pub fn woken_ns(&self, number: usize, window_ns: Ns) -> Ns {
        self.servers[number].wakes(window_ns) * self.decision_ns
    }

    fn fixed_period(&self, number: usize) -> Result<Assured, Nothing> {
        let after_release = self.contention_in(number, Window::Response);
        let server = &self.servers[number];
        let window_ns = server.period_ns - server.late_ns;
        let sure_ns = after_release.most_served(server.budget_ns, window_ns);
        let is_deferrable = self.policy == Policy::Deferrable;
        let uncharged_ns = self.uncharged_ns(number);
        // If replenishments are so late that not even a VCPU that is alone gets all of it, no period has all of it.
        let fits = uncharged_ns <= window_ns;
        let delay = if sure_ns < uncharged_ns && fits {
            let deficits = Deficits {
                whole_ns: uncharged_ns,
                sure_ns,
                window_ns,
            };
            Delay::SomePeriods {
                after_release,
                in_periods: self.contention_in(number, Window::Periods),
                deficits,
            }
        } else {
            Delay::LastPeriod {
                after_release,
                anywhere: self.contention(number),
            }
        };
        let keeps = is_deferrable && sure_ns == server.budget_ns;
        self.fixed_releases(number, sure_ns, keeps, delay)
    }

    fn sedf(&self, number: usize) -> Result<Assured, Nothing> {
        if self.quantum_ns > 0 {
            return Err(Nothing::SedfQuantum);
        }
        let server = &self.servers[number];
        // A slice comes late, and with it the slices of others that end no later have begun before.
        let sure_in_ns = server.period_ns - server.late_ns;
        let window_ns = server.period_ns + server.late_ns;
        let slices_ns = |other: usize| {
            let Server {
                budget_ns,
                period_ns,
                ..
            } = self.servers[other];
            if window_ns < period_ns {
                return budget_ns.min(window_ns);
            }
            // The first whole period begins when the end of one before is used, or the last fits.
            let begun_ns = budget_ns.min(window_ns - period_ns);
            begun_ns + (window_ns - begun_ns) * budget_ns / period_ns
        };
        let used_ns = |other: usize| match self.demand(other) {
            Some(demand) => slices_ns(other).min(demanded(&demand, window_ns)),
            None => slices_ns(other),
        };
        let others_ns = match self.has_one_order {
            true => {
                let used_ns = self.rivals(number).map(used_ns).collect();
                let charged_ns = (self.rivals(number))
                    .map(|other| slices_ns(other) + self.decision_ns)
                    .collect();
                let choices_ns = self.choices(number).within(window_ns);
                longest_wait_ns(self.cpus, used_ns, choices_ns)
                    .min(longest_wait_ns(self.cpus, charged_ns, 0))
            }
            false => self.rivals(number).map(used_ns).sum(),
        };
        let contention = self.contention(number);
        let delay_ns = others_ns + self.overheads(number).within(window_ns);
        let fits = self.slices_fit(number);
        let (sure_ns, delay_ns) = if fits {
            (server.budget_ns, delay_ns.min(window_ns - server.budget_ns))
        } else {
            ((server.budget_ns).min(sure_in_ns - delay_ns), delay_ns)
        };
        let test = match fits {
            true => "goossens-funk-baruah-2003",
            false => "bertogna-cirinei-lipari-2005",
        };
        let delay = Delay::Deadline(delay_ns, contention);
        let assured = self.fixed_releases(number, sure_ns, fits, delay)?;
        Ok(Assured {
            test: self.has_one_order.then_some(test),
            ..assured
        })
    }

    /// SEDF: whether all slices and all decisions together fit into every time that is not shorter than
    /// the period of `number`.
    fn slices_fit(&self, number: usize) -> bool {
        if self.timer_latency_ns > 0 {
            return false; // A slice whose period is over is used before all others.
        }
        if self.has_one_order {
            let density = |server: &Server| rate(server.budget_ns, server.period_ns);
            let sum: Ns = self.servers.iter().map(density).sum();
            let most = self.servers.iter().map(density).max().unwrap_or(0);
            // The test has no place for the time that decisions take.
            return self.decision_ns == 0 && sum <= self.cpus * ONE - (self.cpus - 1) * most;
        }
        let server = &self.servers[number];
        let mut decisions = self.overheads(number).events;
        for task in &server.tasks {
            decisions.push(Competitor::new(
                decisions_per_wake(Policy::Sedf) * self.decision_ns,
                task.period_ns,
                task.jitter_ns + 1,
            ));
        }
        let slices: Ns = (self.servers.iter())
            .map(|server| rate(server.budget_ns, server.period_ns))
            .sum();
        let costs: Ns = decisions.iter().map(Competitor::rate).sum();
        // Decisions within a window are at most its length at that rate, and as many as fall within the
        // jitter, and one of each kind.
        let once_ns: Ns = (decisions.iter())
            .map(|events| {
                let cost_ns = Ns::from(events.cost_ns);
                let within_jitter_ns = Ns::from(events.jitter_ns) * cost_ns;
                cost_ns + ceiling_divide(within_jitter_ns, events.period_ns.into())
            })
            .sum::<Ns>()
            + self.decision_ns;
        // Slices are whole nanoseconds: what rounding adds is below one within 2^60 ns for each server.
        let spare = ONE + self.servers.len() as Ns - slices - costs;
        spare >= 0 && spare.saturating_mul(server.period_ns) >= once_ns.saturating_mul(ONE)
    }

    /// The supply of a server that is replenished at multiples of its period, and keeps its budget.
    fn rtds(&self, number: usize) -> Result<Assured, Nothing> {
        let Sure {
            budget_ns,
            is_whole,
            needs_slack,
            delay_ns,
            contention,
        } = self.cluster().sure(number);
        if budget_ns < 1 {
            return Err(if is_whole {
                Nothing::Costs
            } else {
                Nothing::Crowded
            });
        }
        let period_ns = self.servers[number].period_ns;
        Ok(Assured {
            supplies: vec![Supply {
                gap_ns: period_ns - budget_ns,
                period_ns,
                budget_ns,
                most_ns: budget_ns,
                memory_ns: is_whole.then_some(period_ns),
                first_ns: 0,
                delay: Delay::Cluster(delay_ns, contention),
            }],
            short_ns: (!is_whole).then_some(budget_ns),
            test: Some(if needs_slack {
                "bertogna-cirinei-2007"
            } else {
                "bertogna-cirinei-lipari-2005"
            }),
        })
    }

    /// What decisions leave of the budget of `number` in every period, if anything.
    fn uncharged_ns(&self, number: usize) -> Ns {
        let server = &self.servers[number];
        server.budget_ns
            - self.charged_ns(number, server.period_ns + server.late_ns)
            - self.idle_overrun_ns()
    }

    /// The supply of a server that is replenished at multiples of its period, and of whose budget
    /// `sure_ns` can be used in every period. `keeps`: only use takes budget away.
    fn fixed_releases(
        &self,
        number: usize,
        sure_ns: Ns,
        keeps: bool,
        delay: Delay,
    ) -> Result<Assured, Nothing> {
        let server = &self.servers[number];
        let lacks_some = matches!(delay, Delay::SomePeriods { .. });
        if sure_ns < 1 && !lacks_some {
            return Err(Nothing::Crowded);
        }
        let budget_ns = sure_ns.min(self.uncharged_ns(number));
        if budget_ns < 1 && !lacks_some {
            return Err(Nothing::Costs);
        }
        let gap_ns = match self.policy {
            Policy::Polling => server.period_ns,
            _ => server.period_ns - budget_ns,
        };
        let most_ns = match &delay {
            Delay::SomePeriods {
                in_periods,
                deficits,
                ..
            } => {
                let others_ns = in_periods.rate() * server.period_ns / ONE;
                deficits.supplied(PERIODS_MANY, PERIODS_MANY * others_ns) / PERIODS_MANY + 1
            }
            _ => budget_ns,
        };
        Ok(Assured {
            supplies: vec![Supply {
                gap_ns: gap_ns + 2 * server.late_ns,
                period_ns: server.period_ns,
                budget_ns,
                most_ns,
                memory_ns: keeps.then_some(server.period_ns + server.late_ns),
                first_ns: self.first_ns(),
                delay,
            }],
            short_ns: (sure_ns < server.budget_ns).then_some(sure_ns),
            test: self.has_one_order.then_some("bertogna-cirinei-2007"),
        })
    }

    /// Sporadic: within what time all of the budget of `number` but a trifle is back.
    fn return_ns(&self, number: usize, contention: &Contention) -> Ns {
        let server = &self.servers[number];
        if runs::are_never_too_many(server, self.decision_ns) {
            return server.period_ns;
        }
        let rivals: Vec<(&Server, Contention)> = self
            .rivals(number)
            .map(|other| (&self.servers[other], self.contention(other)))
            .collect();
        let never_merged = !self.has_one_order
            && self.decision_ns == 0
            && server.late_ns == 0
            && runs::are_never_merged(server, &rivals, contention, self.effort);
        if never_merged {
            server.period_ns
        } else {
            runs::return_ns(server.period_ns, server.late_ns)
        }
    }

    fn sporadic(&self, number: usize) -> Result<Assured, Nothing> {
        let server = &self.servers[number];
        let contention = self.contention(number);
        let horizon_ns = HORIZON_PERIODS * server.period_ns;
        let Some(whole_ns) = contention.serve(server.budget_ns, horizon_ns) else {
            return Err(Nothing::Crowded);
        };
        let is_schedulable = whole_ns <= server.period_ns;
        let return_ns = self.return_ns(number, &contention) + 2 * server.late_ns;
        let budget_ns = runs::on_time_ns(server.budget_ns, server.period_ns)
            - self.charged_ns(number, return_ns + whole_ns);
        if budget_ns < 1 {
            return Err(Nothing::Costs);
        }
        let short_ns =
            (!is_schedulable).then(|| contention.most_served(server.budget_ns, server.period_ns));
        let delays: Vec<Delays> = (self.effort.stretches().iter())
            .filter_map(|&stretches| {
                Delays::new(
                    &contention,
                    server.budget_ns,
                    return_ns,
                    stretches,
                    is_schedulable,
                )
            })
            .collect();
        let beside_others_ns = budget_ns * (ONE - contention.rate()).max(0) / ONE + 1;
        let most_ns = (delays.iter())
            .map(|delays| delays.most_ns(return_ns, budget_ns))
            .fold(beside_others_ns, Ns::max);
        Ok(Assured {
            supplies: vec![Supply {
                gap_ns: return_ns - budget_ns,
                period_ns: return_ns,
                budget_ns,
                most_ns,
                memory_ns: Some(return_ns),
                first_ns: 0,
                delay: Delay::Stretches(contention, delays),
            }],
            short_ns,
            test: self.has_one_order.then_some("bertogna-cirinei-2007"),
        })
    }
}
