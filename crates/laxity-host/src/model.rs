//! A host as every other room sees it: checked, complete, in base units.
//!
//! Values of these types come out of [`crate::load`], so a reader of a [`Host`] may rely on what
//! the comments state. Times are nanoseconds.

use laxity_policies::{Parameters, Policy, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::telephony::{Cache, Calls, Network, Workload};

/// A described host: CPUs, a policy, domains with their guests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Host {
    /// How long a run lasts; at least 1.
    pub duration_ns: i64,
    /// Where all randomness comes from.
    pub seed: u64,
    /// Number of physical CPUs; at least 1.
    pub cpus: u32,
    /// Which policy schedules the VCPUs.
    pub policy: Policy,
    /// The policy's instance-wide settings.
    pub settings: Settings,
    /// What scheduling itself costs.
    pub costs: Costs,
    /// In the order of the file; at least one.
    pub domains: Vec<Domain>,
    /// May be empty: nothing is lost when a VCPU goes elsewhere.
    pub caches: Vec<Cache>,
    /// There if there are calls.
    pub network: Option<Network>,
    /// The telephone calls.
    pub calls: Option<Calls>,
    /// The profiles whose costs the host uses. Costs that the file gives itself have none.
    pub profiles: Vec<Profile>,
}

/// A profile of costs: its numbers are of one machine, and another machine has others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Profile {
    /// What the costs are of.
    pub of: ProfileOf,
    /// The profile's name in host files.
    pub name: String,
    /// Where its numbers come from: measured, fitted or estimated, and on which machine.
    pub source: String,
}

/// What a profile gives the costs of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileOf {
    /// Decisions and context switches: `costs` in a host file.
    Scheduling,
    /// What is done for packets: `network` in a host file.
    Packets,
}

/// What one call of `schedule` and one context switch cost the CPU they happen on.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Costs {
    /// Of every decision.
    pub schedule: Cost,
    /// Of every decision that changes the running VCPU, on top.
    pub context_switch: Cost,
}

impl Costs {
    /// Whether scheduling is free.
    pub fn is_zero(&self) -> bool {
        self.schedule.max_ns() == 0 && self.context_switch.max_ns() == 0
    }
}

/// A cost: constant, or drawn from a distribution given by three quantiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Cost {
    /// Always the same.
    Constant {
        /// The cost.
        ns: i64,
    },
    /// Quantiles, with straight lines between them; the 0 quantile is half the median.
    Quantiles {
        /// Half of the draws are below.
        median_ns: i64,
        /// 99 % of the draws are below.
        p99_ns: i64,
        /// No draw is above.
        max_ns: i64,
    },
}

impl Default for Cost {
    fn default() -> Self {
        Cost::Constant { ns: 0 }
    }
}

impl Cost {
    /// Both, drawn together.
    pub fn plus(self, other: Cost) -> Cost {
        let quantiles = |cost| match cost {
            Cost::Constant { ns } => (ns, ns, ns),
            Cost::Quantiles {
                median_ns,
                p99_ns,
                max_ns,
            } => (median_ns, p99_ns, max_ns),
        };
        if let (Cost::Constant { ns }, Cost::Constant { ns: more_ns }) = (self, other) {
            return Cost::Constant { ns: ns + more_ns };
        }
        let (one, two) = (quantiles(self), quantiles(other));
        Cost::Quantiles {
            median_ns: one.0 + two.0,
            p99_ns: one.1 + two.1,
            max_ns: one.2 + two.2,
        }
    }

    /// The most that one draw can be.
    pub fn max_ns(&self) -> i64 {
        match *self {
            Cost::Constant { ns } => ns,
            Cost::Quantiles { max_ns, .. } => max_ns,
        }
    }

    /// The value at `quantile` / 2^32, in integer arithmetic, so that every machine draws the same.
    pub fn at(&self, quantile: u32) -> i64 {
        let Cost::Quantiles {
            median_ns,
            p99_ns,
            max_ns,
        } = *self
        else {
            return self.max_ns();
        };
        const MEDIAN: u64 = 1 << 31;
        const P99: u64 = (1 << 32) * 99 / 100;
        const QUANTILES: [u64; 4] = [0, MEDIAN, P99, 1 << 32];
        let costs_ns = [median_ns / 2, median_ns, p99_ns, max_ns];
        let at = u64::from(quantile);
        let piece = usize::from(at >= MEDIAN) + usize::from(at >= P99);
        let rise_ns = (costs_ns[piece + 1] - costs_ns[piece]) as u64;
        let length = QUANTILES[piece + 1] - QUANTILES[piece];
        let along = at - QUANTILES[piece];
        let risen_ns = match rise_ns.checked_mul(along) {
            Some(product) => product / length,
            None => (u128::from(rise_ns) * u128::from(along) / u128::from(length)) as u64,
        };
        costs_ns[piece] + risen_ns as i64
    }
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Domain {
    /// Unique in the host.
    pub name: String,
    /// The scheduling parameters; every VCPU has these. What the host's policy uses is valid. Budget and period are
    /// 0 where the file gives none and the policy needs none.
    pub parameters: Parameters,
    /// One a VCPU; at least one.
    pub vcpus: Vec<Vcpu>,
    /// How the guest orders its ready tasks.
    pub guest: GuestScheduler,
    /// In the order of the file. May be empty.
    pub tasks: Vec<Task>,
    /// Whether each VCPU also has an endless loop that runs when no task is ready.
    pub cpu_bound: bool,
    /// What else it does.
    pub workload: Option<Workload>,
    /// How much of a cache each of its VCPUs uses; may be 0.
    pub working_set_bytes: u64,
    /// The timer interrupts of the guest's kernel; `None`: it has none.
    pub tick: Option<Tick>,
}

/// A virtual CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Vcpu {
    /// The CPU whose queue it starts in; per-CPU policies keep it there.
    pub cpu: u32,
    /// The CPUs that it may run on, ascending; holds `cpu`.
    pub affinity: Vec<u32>,
}

/// The timer interrupt of a guest's kernel, on each VCPU: `docs/explanation/policies.md`, "Ticks of guests".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tick {
    /// Between two ticks; at least 2.
    pub period_ns: i64,
    /// CPU time of each; at least 1, below the period.
    pub cost_ns: i64,
    /// The first; below the period.
    pub offset_ns: i64,
}

/// How a guest orders its ready tasks. Preemptive, per VCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestScheduler {
    /// Shorter period first; equal periods in the order of the file.
    RateMonotonic,
    /// Earlier absolute deadline first; equal ones in the order of the file.
    Edf,
}

/// A periodic task of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Unique in its domain.
    pub name: String,
    /// The VCPU that it runs on.
    pub vcpu: u32,
    /// CPU time of every job; at least 1, at most the deadline.
    pub cost_ns: i64,
    /// Between arrivals; at least 1.
    pub period_ns: i64,
    /// Relative to the arrival; at least 1, at most the period.
    pub deadline_ns: i64,
    /// Arrival of the first job.
    pub offset_ns: i64,
    /// A job is released up to this much after its arrival, uniformly; response time and deadline
    /// count from the arrival. Below the period.
    pub jitter_ns: i64,
}
