//! Time, step by step: `docs/explanation/policies.md`, "What happens at one instant".

use crate::budgets::Budgets;
use crate::credit::Credit;
use crate::guests::Guests;
use crate::scheduler_s::SchedulerS;
use crate::{Interval, Outcome, Refusal};
use laxity_host::{Host, Policy};

/// The most steps that a run may take: some seconds of work.
pub(crate) const STEPS_MAX: i64 = 20_000_000;

/// If others wait, a turn on extra time lasts this long.
pub(crate) const EXTRA_TURN_NS: i64 = 1_000_000;

/// A policy, as the instants drive it. VCPUs are numbered through the host in the order of the file.
pub(crate) trait Rules {
    /// Rule 1: a VCPU that was blocked gets work.
    fn wake(&mut self, vcpu: usize, now_ns: i64);
    /// Rule 1: a VCPU that is not blocked gets work.
    fn event(&mut self, vcpu: usize);
    /// Rule 2: everything that the policy does by the clock.
    fn timers(&mut self, now_ns: i64);
    /// Rule 3: a running VCPU has nothing left to do.
    fn block(&mut self, vcpu: usize);
    /// Rule 3: whether the CPU has a reason to decide.
    fn has_reason(&self, cpu: usize, now_ns: i64) -> bool;
    /// Rule 3: the CPU decides who runs.
    fn decide(&mut self, cpu: usize, now_ns: i64);
    /// Every CPU that had a reason has decided.
    fn settle(&mut self, now_ns: i64);
    /// All CPUs do for `unit_ns` what was decided.
    fn pass(&mut self, unit_ns: i64);
    /// Whether the VCPU is not blocked.
    fn is_awake(&self, vcpu: usize) -> bool;
    /// The VCPU that runs on the CPU by its last decision.
    fn running(&self, cpu: usize) -> Option<usize>;
}

/// Runs the host from 0 to its duration.
///
/// # Errors
///
/// Refuses a host with costs or jitter, and one whose duration is more than 20 million times the
/// greatest common divisor of its times.
pub fn simulate(host: &Host) -> Result<Outcome, Refusal> {
    if !host.costs.is_zero() {
        return Err(Refusal::Costs);
    }
    for domain in &host.domains {
        if let Some(task) = domain.tasks.iter().find(|task| task.jitter_ns != 0) {
            return Err(Refusal::Jitter {
                domain: domain.name.clone(),
                task: task.name.clone(),
                jitter_ns: task.jitter_ns,
            });
        }
    }
    let unit_ns = unit_ns(host);
    let steps = host.duration_ns / unit_ns;
    if steps > STEPS_MAX {
        return Err(Refusal::Steps { steps, unit_ns });
    }
    let mut rules: Box<dyn Rules> = match host.policy {
        Policy::Credit => Box::new(Credit::new(host)),
        policy if policy.is_scheduler_s() => Box::new(SchedulerS::new(host)),
        _ => Box::new(Budgets::new(host)),
    };
    Ok(run(host, rules.as_mut(), unit_ns))
}

fn run(host: &Host, rules: &mut dyn Rules, unit_ns: i64) -> Outcome {
    let mut guests = Guests::new(host);
    let mut vcpus = Guests::vcpus(host);
    let mut intervals: Vec<Interval> = Vec::new();
    let cpus = host.cpus as usize;

    let mut now_ns = 0;
    while now_ns < host.duration_ns {
        // 1. Jobs that complete; jobs that arrive; ticks. A VCPU that was blocked and gets one wakes.
        let number_of = |domain, vcpu| {
            vcpus
                .iter()
                .position(|one| (one.domain, one.vcpu) == (domain, vcpu))
                .expect("a VCPU is one of its domain's")
        };
        guests.complete(now_ns);
        for (domain, vcpu) in guests.arrive(now_ns) {
            let number = number_of(domain, vcpu);
            if !rules.is_awake(number) {
                rules.wake(number, now_ns);
            } else {
                rules.event(number);
            }
        }
        for (domain, vcpu) in guests.tick(now_ns) {
            let number = number_of(domain, vcpu);
            if !rules.is_awake(number) {
                rules.wake(number, now_ns);
            }
        }

        // 2. The policy's timers.
        rules.timers(now_ns);

        // 3. A VCPU with nothing left to do blocks; every CPU with a reason to decides, by number from
        //    the time's on; so do those that another's decision gave a reason, until none has one.
        let first = now_ns as usize % cpus;
        for cpu in 0..cpus {
            if let Some(number) = rules.running(cpu)
                && !guests.has_work(vcpus[number].domain, vcpus[number].vcpu)
            {
                rules.block(number);
            }
        }
        while (0..cpus).any(|cpu| rules.has_reason(cpu, now_ns)) {
            for cpu in (first..cpus).chain(0..first) {
                if rules.has_reason(cpu, now_ns) {
                    rules.decide(cpu, now_ns);
                }
            }
        }
        rules.settle(now_ns);

        // Then one unit of time passes.
        for cpu in 0..cpus {
            if let Some(number) = rules.running(cpu) {
                let vcpu = &mut vcpus[number];
                vcpu.cpu_ns += unit_ns;
                guests.work(vcpu.domain, vcpu.vcpu, unit_ns);
                intervals.push(Interval {
                    cpu,
                    domain: vcpu.domain,
                    vcpu: vcpu.vcpu,
                    start_ns: now_ns,
                    end_ns: now_ns + unit_ns,
                });
            }
        }
        rules.pass(unit_ns);
        now_ns += unit_ns;
    }
    guests.complete(now_ns);

    Outcome {
        jobs: guests.into_jobs(),
        vcpus,
        intervals: merged(intervals),
    }
}

/// By CPU and time, with adjacent intervals of one VCPU made one.
fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_by_key(|interval| (interval.cpu, interval.start_ns));
    let mut merged: Vec<Interval> = Vec::new();
    for interval in intervals {
        match merged.last_mut() {
            Some(last)
                if (last.cpu, last.domain, last.vcpu, last.end_ns)
                    == (
                        interval.cpu,
                        interval.domain,
                        interval.vcpu,
                        interval.start_ns,
                    ) =>
            {
                last.end_ns = interval.end_ns;
            }
            _ => merged.push(interval),
        }
    }
    merged
}

/// The greatest common divisor of all times that matter under the host's policy: nothing can
/// happen between its multiples.
fn unit_ns(host: &Host) -> i64 {
    let mut times_ns = vec![host.duration_ns];
    if host.policy.shares_by_weight() {
        times_ns.extend([
            host.settings.time_slice_ns,
            host.settings.tick_ns,
            host.settings.accounting_ns,
        ]);
    } else {
        times_ns.push(host.settings.quantum_ns);
    }
    for domain in &host.domains {
        if !host.policy.shares_by_weight() {
            times_ns.extend([domain.parameters.budget_ns, domain.parameters.period_ns]);
            if domain.parameters.extratime {
                times_ns.push(EXTRA_TURN_NS);
            }
        }
        for task in &domain.tasks {
            times_ns.extend([task.cost_ns, task.period_ns, task.offset_ns]);
        }
        if let Some(tick) = &domain.tick {
            times_ns.extend([tick.cost_ns, tick.period_ns, tick.offset_ns]);
        }
    }
    times_ns.into_iter().fold(0, greatest_common_divisor)
}

fn greatest_common_divisor(one: i64, other: i64) -> i64 {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}
