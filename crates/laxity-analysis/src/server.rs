//! A VCPU with a budget, as the analysis models it.

use laxity_host::{GuestScheduler, Host, Parameter, Policy};

use crate::guest::{self, GuestTask};
use crate::supply::Workload;
use crate::time::{Ns, ceiling_divide};

/// Pending replenishments of one VCPU (`SERVER_REPLENISHMENTS_MAX` in `policy/src/server.h`).
pub(crate) const REPLENISHMENTS_MAX: Ns = 32;

/// A VCPU with a budget.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub budget_ns: Ns,
    pub period_ns: Ns,
    /// A time at which a period begins.
    pub phase_ns: Ns,
    pub priority: u32,
    /// How late a replenishment can be.
    pub late_ns: Ns,
    pub guest: GuestScheduler,
    /// By rank, the highest first (EDF: any order), ticks before all.
    pub tasks: Vec<GuestTask>,
    /// Bounds on the response times of `tasks`, in their order, as far as they are known.
    pub responses_ns: Vec<Option<Ns>>,
    pub cpu_bound: bool,
}

impl Server {
    /// What the guest asks for, if all of it is bounded.
    pub fn demand(&self) -> Option<Vec<Workload>> {
        if self.cpu_bound {
            return None;
        }
        guest::workloads(&self.tasks, &self.responses_ns)
    }

    /// How often the VCPU can wake within a window.
    pub fn wakes(&self, window_ns: Ns) -> Ns {
        let released =
            |task: &GuestTask| ceiling_divide(window_ns + task.jitter_ns, task.period_ns);
        self.tasks.iter().map(released).sum()
    }

    /// How often the budget can come within a window.
    pub fn replenishments(&self, policy: Policy, window_ns: Ns) -> Ns {
        ((window_ns + self.late_ns) / self.period_ns + 1) * replenishments_per_period(policy)
    }
}

/// The most that fall within one period.
pub(crate) fn replenishments_per_period(policy: Policy) -> Ns {
    if policy == Policy::Sporadic {
        REPLENISHMENTS_MAX
    } else {
        1
    }
}

/// The host's quantum, where the policy has one.
pub(crate) fn quantum_ns(host: &Host) -> i64 {
    match host.policy.uses(Parameter::Quantum) {
        true => host.settings.quantum_ns,
        false => 0,
    }
}
