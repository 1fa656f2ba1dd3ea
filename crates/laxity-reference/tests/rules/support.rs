//! Hosts in a few words, and outcomes as pictures.

use laxity_host::{Costs, Domain, GuestScheduler, Host, Parameters, Policy, Settings, Task, Vcpu};
use laxity_reference::{Outcome, simulate};

/// The unit of all times in the hosts of these tests.
pub const MS: i64 = 1_000_000;

pub fn host(policy: Policy, duration: i64, domains: Vec<Domain>) -> Host {
    Host {
        duration_ns: duration * MS,
        seed: 1,
        cpus: 1,
        policy,
        settings: Settings::default(),
        costs: Costs::default(),
        domains,
        timer_latency_ns: 0,
        caches: Vec::new(),
        network: None,
        calls: None,
        profiles: Vec::new(),
    }
}

/// A domain with one VCPU on CPU 0, a budget every period, and no work.
pub fn domain(priority: u32, budget: i64, period: i64) -> Domain {
    Domain {
        name: "domain".to_string(),
        parameters: Parameters {
            budget_ns: budget * MS,
            period_ns: period * MS,
            laxity_ns: 0,
            priority,
            extratime: false,
            weight: 256,
            cap_percent: 0,
            rt_priority: 1,
            quota_ns: 0,
            quota_period_ns: 100_000_000,
            quota_burst_ns: 0,
            phase_ns: 0,
            credit_ns: 10_000_000,
            reclaim: false,
        },
        vcpus: vec![Vcpu {
            cpu: 0,
            affinity: vec![0],
            soft_affinity: Vec::new(),
        }],
        guest: GuestScheduler::RateMonotonic,
        tasks: Vec::new(),
        cpu_bound: false,
        workload: None,
        working_set_bytes: 0,
        tick: None,
        helper_of: None,
    }
}

/// What may be said about a domain after its budget.
pub trait Also {
    /// A task on VCPU 0 whose deadline is its period.
    fn task(self, offset: i64, cost: i64, period: i64) -> Self;
    fn deadline(self, deadline: i64) -> Self;
    fn busy(self) -> Self;
    fn extratime(self) -> Self;
    fn laxity(self, laxity: i64) -> Self;
    fn edf(self) -> Self;
    fn on(self, cpu: u32, affinity: &[u32]) -> Self;
}

impl Also for Domain {
    fn task(mut self, offset: i64, cost: i64, period: i64) -> Self {
        self.tasks.push(Task {
            name: format!("task-{}", self.tasks.len()),
            vcpu: 0,
            cost_ns: cost * MS,
            period_ns: period * MS,
            deadline_ns: period * MS,
            offset_ns: offset * MS,
            jitter_ns: 0,
        });
        self
    }

    fn deadline(mut self, deadline: i64) -> Self {
        self.tasks.last_mut().expect("a task").deadline_ns = deadline * MS;
        self
    }

    fn busy(mut self) -> Self {
        self.cpu_bound = true;
        self
    }

    fn extratime(mut self) -> Self {
        self.parameters.extratime = true;
        self
    }

    fn laxity(mut self, laxity: i64) -> Self {
        self.parameters.laxity_ns = laxity * MS;
        self
    }

    fn edf(mut self) -> Self {
        self.guest = GuestScheduler::Edf;
        self
    }

    fn on(mut self, cpu: u32, affinity: &[u32]) -> Self {
        self.vcpus[0] = Vcpu {
            cpu,
            affinity: affinity.to_vec(),
            soft_affinity: Vec::new(),
        };
        self
    }
}

/// The domain that runs on a CPU, a letter a millisecond: domain 0 is A, `.` is idle.
pub fn timeline(host: &Host, cpu: usize) -> String {
    picture(host, &simulate(host).expect("a host that is modelled"), cpu)
}

fn picture(host: &Host, outcome: &Outcome, cpu: usize) -> String {
    (0..host.duration_ns / MS)
        .map(|time| {
            (outcome.intervals.iter())
                .find(|one| one.cpu == cpu && (one.start_ns..one.end_ns).contains(&(time * MS)))
                .map_or('.', |one| (b'A' + one.domain as u8) as char)
        })
        .collect()
}

/// (task, number, completion in ms) of every job of domain 0, by task and number.
pub fn completions(host: &Host) -> Vec<(usize, u64, Option<i64>)> {
    let outcome = simulate(host).expect("a host that is modelled");
    (outcome.jobs.iter())
        .filter(|job| job.domain == 0)
        .map(|job| (job.task, job.number, job.completion_ns.map(|ns| ns / MS)))
        .collect()
}
