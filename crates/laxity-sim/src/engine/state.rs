//! A simulated host at one instant: its tasks, VCPUs, CPUs, and what is to come.

use super::cpus::Cpus;
use super::saving::Saving;
use crate::caches::Caches;
use crate::guest::Ready;
use crate::random::{Drawn, uniform_ns};
use crate::timers::{NEVER, Slots, Timers};
use laxity_host::{Host, Tick};
use laxity_policy::Instance;
use laxity_run::{Responses, Waits};
use laxity_trace::{OwnWake, Tie};
use rand_pcg::Pcg32;
use std::ops::Range;

/// No task runs, or no VCPU.
pub const NOBODY: u32 = u32::MAX;

/// In place of the number of a task: the VCPU's kernel serves an interrupt.
pub const TICK: u32 = NOBODY - 1;

/// The ticks of a domain.
pub struct Ticks {
    pub tick: Tick,
    pub vcpus: Range<usize>,
}

/// What a VCPU has to do for its kernel.
#[derive(Default)]
pub struct Due {
    /// CPU time that the interrupt that is due still needs, of a tick or of jobs; 0 if none is.
    pub left_ns: i64,
    /// CPU time of the interrupt by which jobs come; 0 if they come by none.
    pub interrupt_ns: i64,
    /// A job has arrived since the last tick that found none.
    pub had_job: bool,
    /// The least time ahead for which the kernel sets its timer; 0 for any.
    pub min_delta_ns: i64,
}

/// A periodic task. Its jobs are known by number, and their arrivals follow from it, so a queue of late
/// jobs is two numbers.
pub struct Task {
    pub vcpu: u32,
    /// Place among the tasks of its VCPU by period.
    pub rank: u32,
    /// Place among the tasks of its domain in the host file.
    pub place: u32,
    /// The job to do, or the next one to be released.
    pub current: u64,
    /// The next job to be released.
    pub next: u64,
    /// CPU time that the current job still needs.
    pub remaining_ns: i64,
    /// The next job to be released comes later than it is due, since the kernel could not set its timer for that.
    pub is_put_off: bool,
    pub cost_ns: i64,
    /// CPU time in which the kernel wakes the task for a job.
    pub wake_ns: i64,
    pub period_ns: i64,
    pub deadline_ns: i64,
    pub offset_ns: i64,
    pub jitter_ns: i64,
    pub random: Pcg32,
    /// Jobs whose deadline falls within the run.
    pub counted: u64,
    pub responses: Responses,
}

impl Task {
    #[inline]
    pub fn arrival_ns(&self, number: u64) -> i64 {
        self.offset_ns + number as i64 * self.period_ns
    }

    #[inline]
    pub fn deadline_of_job_ns(&self, number: u64) -> i64 {
        self.arrival_ns(number) + self.deadline_ns
    }

    /// Every job that was released is complete, so that the task waits for its next one.
    #[inline]
    pub fn waits(&self) -> bool {
        self.current == self.next
    }

    /// When the next job is due: its arrival, late by its jitter.
    #[inline]
    pub fn next_due_ns(&mut self) -> i64 {
        let mut due_ns = self.arrival_ns(self.next);
        if self.jitter_ns > 0 {
            due_ns += uniform_ns(self.jitter_ns + 1, &mut self.random);
        }
        due_ns
    }
}

pub struct Vcpu {
    pub domain: u16,
    pub id: u16,
    pub ready: Ready,
    /// Tasks by rank.
    pub tasks: Vec<u32>,
    /// The task whose job runs, or ran when the VCPU was last on a CPU; or TICK.
    pub task: u32,
    /// What its guest told last: the task and the number of the job, if any, and whether it does a tick first.
    pub told: (Option<(u32, u64)>, bool),
    pub tick: Due,
    /// The CPU that it runs on, or NOBODY.
    pub cpu: u32,
    pub blocked: bool,
    pub cpu_bound: bool,
    /// What it does is told by [`Workloads`]; only where there are any.
    pub has_workload: bool,
    pub cpu_ns: i64,
    /// What of `cpu_ns` went into fetching what was not in a cache.
    pub stalled_ns: i64,
    /// Since when it could run and does not.
    pub waiting_since_ns: i64,
    pub waits: Waits,
}

/// What scheduling costs.
pub struct Costs {
    pub schedule: Drawn,
    pub context_switch: Drawn,
}

/// A set of CPUs that are to decide.
pub struct Pending {
    /// A bit each, if there are several.
    pub words: Vec<u64>,
    pub any: bool,
}

impl Pending {
    #[inline]
    pub fn insert<C: Cpus>(&mut self, cpu: u32) {
        if !C::ONE {
            self.words[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        self.any = true;
    }
}

/// What is to come, by what it is: at one instant the kinds are served in this order, and what is of one
/// kind by number. Each kind has timers of its own, so that what happens most costs least: with one CPU
/// only arrivals have to be compared with each other.
pub struct Agenda<C: Cpus> {
    /// One a CPU: its running job is done.
    pub completions: C::Timers,
    /// One a task: its next job is released; behind them one a domain with ticks: they fall due.
    pub arrivals: Timers,
    /// One a CPU: what the policy armed.
    pub policy: C::Timers,
    /// When the policy accounts.
    pub accounting_ns: i64,
    /// One a CPU: its decision holds no longer.
    pub decisions: C::Timers,
}

impl<C: Cpus> Agenda<C> {
    pub fn new(cpus: usize, tasks: usize, ticking: usize) -> Self {
        Agenda {
            completions: C::Timers::new(cpus),
            arrivals: Timers::new(tasks + ticking),
            policy: C::Timers::new(cpus),
            accounting_ns: NEVER,
            decisions: C::Timers::new(cpus),
        }
    }

    /// When the next thing happens.
    #[inline]
    pub fn next_ns(&self) -> i64 {
        let Agenda {
            completions,
            arrivals,
            policy,
            accounting_ns,
            decisions,
        } = self;
        (completions.first().0)
            .min(arrivals.first().0)
            .min(policy.first().0)
            .min(*accounting_ns)
            .min(decisions.first().0)
    }
}

pub struct Simulation<'host, W, S, C: Cpus> {
    pub host: &'host Host,
    /// Instants to come whose releases have an order of their own.
    pub ties: &'host [Tie],
    /// Wakes to come that no job explains.
    pub own_wakes: &'host [OwnWake],
    pub policy: Instance,
    /// Whether it makes something of the deadlines that guests tell.
    pub policy_listens: bool,
    pub agenda: Agenda<C>,
    pub tasks: Vec<Task>,
    pub ticks: Vec<Ticks>,
    pub vcpus: Vec<Vcpu>,
    pub cpus: C,
    pub pending: Pending,
    pub saving: Saving,
    pub costs: Costs,
    pub workloads: W,
    pub caches: Option<Caches>,
    pub sink: S,
    pub events: u64,
    pub schedule_calls: u64,
    pub context_switches: u64,
    pub schedule_ns: i64,
    pub context_switch_ns: i64,
}
