//! The result of a run: one JSON object, the same from every substrate.

use crate::distribution::{Distribution, ratio};
use crate::jobs::jobs_due;
use crate::network::NetworkResult;
use crate::responses::Responses;
use crate::telephony::Telephony;
use laxity_host::{Domain, Host, Policy, Profile, Task};
use schemars::JsonSchema;
use serde::Serialize;

/// What a run of a host found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunResult {
    /// The policy that scheduled the VCPUs.
    pub policy: String,
    /// Where all randomness came from: the same host file and seed give the same run.
    pub seed: u64,
    /// What ran it: `sim`, `xen` or `linux`.
    pub substrate: String,
    /// The emulated machine that Xen ran on; null elsewhere.
    pub machine: Option<Machine>,
    /// How long the run lasted, ns of the host's time.
    pub duration_ns: i64,
    /// The same as measured by those who sent its calls, where real packets were sent; null
    /// elsewhere. A run that differs by more than 1 % is none.
    pub measured_duration_ns: Option<i64>,
    /// In the order of the host file.
    pub domains: Vec<DomainResult>,
    /// Calls and voice; null without calls.
    pub telephony: Option<Telephony>,
    /// Packets of a host without calls; null with calls, of which `telephony` tells, and without packets.
    pub network: Option<NetworkResult>,
    /// What the scheduler itself cost.
    pub overhead: Overhead,
    /// The profiles whose costs a simulated run used: its verdict is that of the machines they come from. Empty of a
    /// run that was measured, and where the host file gives all costs itself.
    pub profiles: Vec<Profile>,
    /// What the run cost whoever ran it.
    pub engine: Engine,
}

/// What the bytes of a run on the emulated machine depend on, beside the host file: its time counts instructions. Each
/// part is the beginning of the SHA-256 of what it names. Machines that differ in one may take another path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Machine {
    /// All parts together.
    pub fingerprint: String,
    /// The emulator, behind its version.
    pub qemu: String,
    /// What the emulator runs before the kernel.
    pub firmware: String,
    /// The hypervisor, as the compiler here made it; `null` where Linux is the hypervisor.
    pub xen: Option<String>,
    /// Linux, of the host (dom0 on Xen) and of guests that have one.
    pub kernel: String,
    /// The rest of the host, from the distribution's packages.
    pub root: String,
    /// The programs and scripts of Laxity on the host and in guests, as the compilers here made them.
    pub programs: String,
}

/// A domain's jobs and CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DomainResult {
    /// Name in the host file.
    pub name: String,
    /// Jobs whose deadline fell within the run.
    pub jobs: u64,
    /// Those of them that were not complete at their deadline.
    pub missed: u64,
    /// `missed` / `jobs`; 0 where there are none.
    pub miss_ratio: f64,
    /// CPU time of its VCPUs, the scheduler's own costs not counted.
    pub cpu_ns: i64,
    /// CPUs that the budgets of its VCPUs reserve: 0.5 is half of one. Null under a policy that knows no budgets.
    pub reserved: Option<f64>,
    /// What of it went into fetching what was not in a cache.
    pub stalled_ns: i64,
    /// Lines of a cache that were fetched.
    pub cache_misses: u64,
    /// How long its VCPUs waited for a CPU, each time that they could run and did not; null where
    /// that was not measured.
    pub waits: Option<Waits>,
    /// In the order of the host file.
    pub tasks: Vec<TaskResult>,
}

/// What a domain's VCPUs got of the CPUs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    /// CPU time.
    pub used_ns: i64,
    /// What of it went into fetching.
    pub stalled_ns: i64,
    /// Lines fetched.
    pub cache_misses: u64,
    /// Their waiting.
    pub waits: Waits,
}

/// Times from when a VCPU could run to when it did: its scheduling latency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Waits {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub total_ns: i64,
    /// The longest.
    pub max_ns: i64,
}

impl Waits {
    /// Takes in one more.
    #[inline]
    pub fn record(&mut self, ns: i64) {
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Takes in those of another VCPU.
    pub fn add(&mut self, other: &Waits) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// A task's jobs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskResult {
    /// Name in the host file.
    pub name: String,
    /// Jobs whose deadline fell within the run.
    pub jobs: u64,
    /// Those of them that were not complete at their deadline.
    pub missed: u64,
    /// `missed` / `jobs`; 0 where there are none.
    pub miss_ratio: f64,
    /// Those of `missed` that were not even complete when the run ended. They stand in the two
    /// distributions with the time they had by then, which is less than it would have become.
    pub unfinished: u64,
    /// From arrival to completion, of all jobs.
    pub response_ns: Distribution,
    /// From deadline to completion, of the missed jobs.
    pub lateness_ns: Distribution,
    /// The medians and 99 % quantiles may be longer than they were by this part of the response
    /// time; left out if they are exact. They are not for tasks with so many jobs that not each
    /// one's response time was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_error: Option<f64>,
}

/// What the scheduler itself cost. What was not measured is null.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Overhead {
    /// Decisions.
    pub schedule_calls: Option<u64>,
    /// Decisions that changed what runs on the CPU, idle included.
    pub context_switches: Option<u64>,
    /// Time that decisions took.
    pub schedule_ns: Option<i64>,
    /// Time that context switches took.
    pub context_switch_ns: Option<i64>,
    /// Both times, of the time of all CPUs.
    pub loss_ratio: Option<f64>,
}

/// What the run cost whoever ran it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Engine {
    /// Things that happened: arrivals, completions, timers, decisions.
    pub events: u64,
    /// Time on the wall. The only part of a result that two runs do not share.
    pub wall_ns: u64,
}

/// The JSON Schema of [`RunResult`].
pub fn schema() -> String {
    let schema = schemars::schema_for!(RunResult);
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

impl DomainResult {
    /// From the response times of each task's completed jobs, as far as they are due within the run.
    pub fn of(
        policy: Policy,
        domain: &Domain,
        responses: &[Responses],
        cpu: Cpu,
        duration_ns: i64,
    ) -> DomainResult {
        let tasks: Vec<TaskResult> = domain
            .tasks
            .iter()
            .zip(responses)
            .map(|(task, responses)| TaskResult::of(task, responses, duration_ns))
            .collect();
        let jobs = tasks.iter().map(|task| task.jobs).sum();
        let missed = tasks.iter().map(|task| task.missed).sum();
        DomainResult {
            name: domain.name.clone(),
            jobs,
            missed,
            miss_ratio: ratio(missed, jobs),
            cpu_ns: cpu.used_ns,
            reserved: reserved(policy, domain),
            stalled_ns: cpu.stalled_ns,
            cache_misses: cpu.cache_misses,
            waits: (cpu.waits.count > 0).then_some(cpu.waits),
            tasks,
        }
    }
}

fn reserved(policy: Policy, domain: &Domain) -> Option<f64> {
    let parameters = &domain.parameters;
    let has_budget = policy.has_budgets() && parameters.period_ns > 0;
    has_budget.then(|| {
        domain.vcpus.len() as f64 * parameters.budget_ns as f64 / parameters.period_ns as f64
    })
}

impl TaskResult {
    fn of(task: &Task, responses: &Responses, duration_ns: i64) -> TaskResult {
        let jobs = jobs_due(task, duration_ns);
        let summary = responses.summary(task, duration_ns);
        TaskResult {
            name: task.name.clone(),
            jobs,
            missed: summary.missed,
            miss_ratio: ratio(summary.missed, jobs),
            unfinished: summary.unfinished,
            response_ns: summary.response_ns,
            lateness_ns: summary.lateness_ns,
            relative_error: summary.relative_error,
        }
    }
}

impl Overhead {
    /// Numbers of decisions and of context switches, and the time that they took.
    pub fn of(
        host: &Host,
        (schedule_calls, schedule_ns): (Option<u64>, Option<i64>),
        (context_switches, context_switch_ns): (Option<u64>, Option<i64>),
    ) -> Overhead {
        let available_ns = host.duration_ns as f64 * f64::from(host.cpus);
        Overhead {
            schedule_calls,
            context_switches,
            schedule_ns,
            context_switch_ns,
            loss_ratio: schedule_ns
                .zip(context_switch_ns)
                .map(|(schedule_ns, switch_ns)| (schedule_ns + switch_ns) as f64 / available_ns),
        }
    }
}
