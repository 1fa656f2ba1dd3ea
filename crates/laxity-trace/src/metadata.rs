//! What a trace says about the run before its first record.

use serde::{Deserialize, Serialize};

/// The run that a trace is of; JSON at the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// `sim`, `xen` or `linux`.
    pub substrate: String,
    /// The policy's name in host files.
    pub policy: String,
    /// Where the run's randomness came from.
    pub seed: u64,
    /// How long the run lasts.
    pub duration_ns: i64,
    /// Number of physical CPUs.
    pub cpus: u32,
    /// In the order of the host file.
    pub domains: Vec<DomainMetadata>,
}

/// A domain of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainMetadata {
    /// As in the host file.
    pub name: String,
    /// Number of VCPUs.
    pub vcpus: u32,
    /// Of each VCPU; 0 where there is none.
    pub budget_ns: i64,
    /// Of the budget; 0 where there is none.
    pub period_ns: i64,
    /// In the order of the host file.
    pub tasks: Vec<TaskMetadata>,
}

/// A task of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskMetadata {
    /// As in the host file.
    pub name: String,
    /// The VCPU that it runs on.
    pub vcpu: u32,
    /// CPU time of every job.
    pub cost_ns: i64,
    /// Between arrivals.
    pub period_ns: i64,
    /// Relative to the arrival.
    pub deadline_ns: i64,
    /// Arrival of the first job.
    pub offset_ns: i64,
}

impl Metadata {
    /// The VCPU as people read it: `domain/vcpu`.
    pub(crate) fn vcpu_name(&self, domain: u16, vcpu: u16) -> String {
        format!("{}/{vcpu}", self.domains[usize::from(domain)].name)
    }

    /// The task that a job's record is of.
    pub(crate) fn task(&self, domain: u16, task: u32) -> &TaskMetadata {
        &self.domains[usize::from(domain)].tasks[task as usize]
    }

    /// The budget of each of the domain's VCPUs at time 0: the whole of it, and no credits.
    pub(crate) fn initial_budget_ns(&self, domain: &DomainMetadata) -> i64 {
        if self.has_credits() {
            0
        } else {
            domain.budget_ns
        }
    }

    /// Whether VCPUs have credits, which are charged in steps and may be negative, and not a budget,
    /// which runs down as it is used.
    pub(crate) fn has_credits(&self) -> bool {
        self.policy == "credit"
    }
}

impl TaskMetadata {
    /// When job `number` (from 0) arrives; `i64::MAX` if that is beyond all time.
    pub fn arrival_ns(&self, number: u64) -> i64 {
        saturate(self.arrival(number))
    }

    /// When job `number` (from 0) must be complete; `i64::MAX` if that is beyond all time.
    pub fn deadline_of_job_ns(&self, number: u64) -> i64 {
        saturate(self.arrival(number) + i128::from(self.deadline_ns))
    }

    fn arrival(&self, number: u64) -> i128 {
        i128::from(self.offset_ns) + i128::from(self.period_ns) * i128::from(number)
    }
}

fn saturate(time_ns: i128) -> i64 {
    time_ns.clamp(0, i64::MAX.into()) as i64
}
