//! Time, step by step: `docs/explanation/policies.md`, "What happens at one instant".

use crate::arinc653::Arinc653;
use crate::budgets::Budgets;
use crate::credit::Credit;
use crate::credit2::Credit2;
use crate::eevdf::Eevdf;
use crate::global::Global;
use crate::global_servers::GlobalServers;
use crate::guests::Guests;
use crate::null::Null;
use crate::outcome::{Interval, Outcome, Refusal, STEPS_MAX, VcpuTime};
use crate::rtds::Rtds;
use crate::rules::{EXTRA_TURN_NS, Rules, Told};
use crate::scheduler_s::SchedulerS;
use laxity_host::{Host, Parameter, Policy};

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
    if host.timer_latency_ns > 0 {
        return Err(Refusal::TimerLatency);
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
        Policy::Arinc653 => Box::new(Arinc653::new(host)),
        Policy::Credit => Box::new(Credit::new(host)),
        Policy::Credit2 => Box::new(Credit2::new(host)),
        Policy::Null => Box::new(Null::new(host)),
        Policy::Rtds => Box::new(Rtds::new(host)),
        Policy::Fifo | Policy::Deadline => Box::new(Global::new(host)),
        Policy::Eevdf => Box::new(Eevdf::new(host)),
        policy if policy.is_global() => Box::new(GlobalServers::new(host)),
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
    let mut told = vec![None; vcpus.len()];

    let mut now_ns = 0;
    tell(&guests, rules, &vcpus, &mut told, now_ns);
    while now_ns < host.duration_ns {
        // 1. Jobs that complete; jobs that arrive; ticks. A VCPU that was blocked and gets one wakes.
        let number_of = |domain, vcpu| {
            vcpus
                .iter()
                .position(|one| (one.domain, one.vcpu) == (domain, vcpu))
                .expect("a VCPU is one of its domain's")
        };
        guests.complete(now_ns);
        tell(&guests, rules, &vcpus, &mut told, now_ns);
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
        tell(&guests, rules, &vcpus, &mut told, now_ns);

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
        loop {
            while (0..cpus).any(|cpu| rules.has_reason(cpu, now_ns)) {
                for cpu in (first..cpus).chain(0..first) {
                    if rules.has_reason(cpu, now_ns) {
                        rules.decide(cpu, now_ns);
                    }
                }
            }
            if !rules.is_due_again(now_ns) {
                break;
            }
            rules.timers(now_ns);
        }
        rules.settle(now_ns);

        // Then time passes: one unit, or less where a decision or work ends or a job comes before.
        let mut until_ns = (now_ns / unit_ns + 1) * unit_ns;
        until_ns = until_ns.min(rules.next_ns()).min(guests.next_ns());
        for number in (0..cpus).filter_map(|cpu| rules.running(cpu)) {
            let left_ns = guests.left_ns(vcpus[number].domain, vcpus[number].vcpu);
            until_ns = until_ns.min(now_ns.saturating_add(left_ns));
        }
        let passed_ns = until_ns - now_ns;
        for cpu in 0..cpus {
            if let Some(number) = rules.running(cpu) {
                let vcpu = &mut vcpus[number];
                vcpu.cpu_ns += passed_ns;
                guests.work(vcpu.domain, vcpu.vcpu, passed_ns);
                intervals.push(Interval {
                    cpu,
                    domain: vcpu.domain,
                    vcpu: vcpu.vcpu,
                    start_ns: now_ns,
                    end_ns: until_ns,
                });
            }
        }
        rules.pass(passed_ns);
        now_ns = until_ns;
    }
    guests.complete(now_ns);

    Outcome {
        jobs: guests.into_jobs(),
        vcpus,
        intervals: merged(intervals),
    }
}

/// Guests tell what has changed since they told last.
fn tell(
    guests: &Guests<'_>,
    rules: &mut dyn Rules,
    vcpus: &[VcpuTime],
    told: &mut [Option<Told>],
    now_ns: i64,
) {
    for (number, (vcpu, told)) in vcpus.iter().zip(told).enumerate() {
        if let Some(news) = guests.tell(vcpu.domain, vcpu.vcpu)
            && told.replace(news) != Some(news)
        {
            rules.tell(number, news, now_ns);
        }
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
    for (parameter, time_ns) in [
        (Parameter::TimeSlice, host.settings.time_slice_ns),
        (Parameter::Tick, host.settings.tick_ns),
        (Parameter::Accounting, host.settings.accounting_ns),
        (
            Parameter::AccountingPhase,
            host.settings.accounting_phase_ns,
        ),
        (Parameter::Quantum, host.settings.quantum_ns),
        (Parameter::Jiffy, host.settings.jiffy_ns),
    ] {
        if host.policy.uses(parameter) {
            times_ns.push(time_ns);
        }
    }
    for domain in &host.domains {
        if host.policy.uses(Parameter::Quota) {
            times_ns.push(domain.parameters.quota_period_ns);
        }
        if host.policy.uses(Parameter::Phase) {
            times_ns.push(domain.parameters.phase_ns);
        }
        if host.policy.has_budgets() {
            times_ns.extend([domain.parameters.budget_ns, domain.parameters.period_ns]);
            if domain.parameters.extratime {
                times_ns.push(EXTRA_TURN_NS);
            }
        }
        for task in &domain.tasks {
            times_ns.extend([task.cost_ns, task.period_ns, task.offset_ns]);
        }
        if let Some(tick) = &domain.tick {
            times_ns.extend([
                tick.cost_ns,
                tick.period_ns,
                tick.offset_ns,
                tick.min_delta_ns,
                tick.wake_ns,
            ]);
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
