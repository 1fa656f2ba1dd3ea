//! The metadata of a trace, which precede its first record.

use crate::NONE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// VCPUs of a whole trace: exporters keep state for each, and a damaged or hostile file must not be
/// able to ask for all memory.
const VCPUS_MAX: u64 = 1 << 20;

/// Characters of a name that is refused which are shown.
const NAME_CHARS_SHOWN: usize = 64;

/// The run that a trace is of; JSON at the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The calls; a trace with them tells of late and lost packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallsMetadata>,
    /// The domain in which the programs beside the domains run, by its place: their CPUs are its VCPUs, which records
    /// number behind the physical ones. Where it is not there, these programs run on the physical CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs_in: Option<u16>,
}

/// The calls of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallsMetadata {
    /// A packet of voice that takes longer is late.
    pub delay_ns: i64,
    /// How long a phone waits for the answer to each copy of a registration's message; none where nobody registers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answer_waits_ns: Vec<i64>,
    /// What of the calls the trace does not tell, as sentences without their full stops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_seen: Vec<String>,
}

/// A domain of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainMetadata {
    /// Name in the host file; in parentheses that of a program which ran beside it.
    pub name: String,
    /// Number of VCPUs.
    pub vcpus: u32,
    /// Budget of each VCPU; 0 where there is none.
    pub budget_ns: i64,
    /// Period of the budget; 0 where there is none.
    pub period_ns: i64,
    /// Whether its VCPUs run before all those that are not real-time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub real_time: bool,
    /// In the order of the host file.
    pub tasks: Vec<TaskMetadata>,
}

/// A task of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskMetadata {
    /// Name in the host file.
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
    /// The number of VCPUs and of tasks of each domain.
    ///
    /// # Errors
    ///
    /// What no trace can have: too many CPUs, domains, VCPUs or tasks, a task on a VCPU that is not there, or a name
    /// that a terminal would obey.
    pub fn sizes(&self) -> Result<Vec<(u16, u32)>, String> {
        if let Some(name) = self.names().find(|name| name.chars().any(char::is_control)) {
            let name: String = name.chars().take(NAME_CHARS_SHOWN).collect();
            return Err(format!(
                "the name {name:?}; a name has no control characters, which a terminal would obey"
            ));
        }
        if !(1..=u32::from(NONE)).contains(&self.cpus) {
            return Err(format!("{} CPUs; a trace has 1 to {NONE}", self.cpus));
        }
        if self.duration_ns < 0 {
            return Err(format!("a run of {} ns", self.duration_ns));
        }
        if self.domains.len() > usize::from(NONE) {
            return Err(format!(
                "{} domains; a trace has at most {NONE}",
                self.domains.len()
            ));
        }
        let vcpus: u64 = self
            .domains
            .iter()
            .map(|domain| u64::from(domain.vcpus))
            .sum();
        if vcpus > VCPUS_MAX {
            return Err(format!("{vcpus} VCPUs; a trace has at most {VCPUS_MAX}"));
        }
        if let Some(domain) = self.programs_in
            && (self.domains.get(usize::from(domain))).is_none_or(DomainMetadata::is_beside)
        {
            return Err(format!("programs in domain {domain}, which is none"));
        }
        if self.lanes() > u32::from(NONE) {
            return Err(format!(
                "{} CPUs with those of programs; a trace has at most {NONE}",
                self.lanes()
            ));
        }
        let mut sizes = Vec::with_capacity(self.domains.len());
        for domain in &self.domains {
            let vcpus = u16::try_from(domain.vcpus).map_err(|_| {
                format!(
                    "domain {}: {} VCPUs; it has at most {NONE}",
                    domain.name, domain.vcpus
                )
            })?;
            let tasks = u32::try_from(domain.tasks.len())
                .ok()
                .filter(|tasks| *tasks <= 1 << 24)
                .ok_or_else(|| format!("domain {}: more than 2^24 tasks", domain.name))?;
            if let Some(task) = domain.tasks.iter().find(|task| task.vcpu >= domain.vcpus) {
                return Err(format!(
                    "task {} of domain {} is on VCPU {}, of {}",
                    task.name, domain.name, task.vcpu, domain.vcpus
                ));
            }
            sizes.push((vcpus, tasks));
        }
        Ok(sizes)
    }

    /// The number of CPUs that records name: the physical ones, and behind them the VCPUs of the domain in which
    /// programs run.
    pub fn lanes(&self) -> u32 {
        let inside = self
            .programs_in
            .and_then(|domain| self.domains.get(usize::from(domain)));
        self.cpus
            .saturating_add(inside.map_or(0, |domain| domain.vcpus))
    }

    /// All names, and what else terminals are shown.
    fn names(&self) -> impl Iterator<Item = &str> {
        let of_domains = self.domains.iter().flat_map(|domain| {
            let tasks = domain.tasks.iter().map(|task| &*task.name);
            std::iter::once(&*domain.name).chain(tasks)
        });
        let not_seen = self.calls.iter().flat_map(|calls| &calls.not_seen);
        [&*self.substrate, &*self.policy]
            .into_iter()
            .chain(not_seen.map(String::as_str))
            .chain(of_domains)
    }

    /// The VCPU as people read it: `domain/vcpu`.
    pub fn vcpu_name(&self, domain: u16, vcpu: u16) -> String {
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

impl DomainMetadata {
    /// Whether it is a program that ran beside the host's domains, whose names have no parentheses. Its VCPUs are its
    /// threads.
    pub fn is_beside(&self) -> bool {
        self.name.starts_with('(')
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands fields over by reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

fn saturate(time_ns: i128) -> i64 {
    time_ns.clamp(0, i64::MAX.into()) as i64
}
