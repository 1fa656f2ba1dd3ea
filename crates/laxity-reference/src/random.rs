//! Random hosts for comparing two opinions: small, and full of coincidences.

use laxity_host::{
    Costs, Domain, GuestScheduler, Host, Parameters, Policy, Settings, Substrate, Task, Tick, Vcpu,
};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// The unit of all times of a host is one of these. Each divides the 1 ms of a turn on extra time,
/// so that the reference's steps stay this long.
const UNITS_NS: [i64; 7] = [1, 8, 1_000, 100_000, 250_000, 500_000, 1_000_000];

/// Scheduler S compares waits with 2 ms and balances by the second.
const UNITS_OF_SCHEDULER_S_NS: [i64; 7] = [
    1_000, 250_000, 500_000, 1_000_000, 4_000_000, 16_000_000, 16_000_000,
];

/// Credit2 compares credits with 0.5 and 10 ms, and runs with 1 ms.
const UNITS_OF_CREDIT2_NS: [i64; 7] = [
    1_000, 50_000, 250_000, 500_000, 700_000, 1_000_000, 3_000_000,
];

/// Draws that read like the sentences that describe them.
struct Draw(Pcg64);

impl Draw {
    /// From `least` to `most`, both included. The bias of the remainder is far below what matters.
    fn between(&mut self, least: i64, most: i64) -> i64 {
        least + (self.0.next_u64() % (most - least + 1) as u64) as i64
    }

    fn percent(&mut self, percent: i64) -> bool {
        self.between(1, 100) <= percent
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as i64 - 1) as usize]
    }
}

/// A valid host without costs and jitter, the same for the same seed on every machine.
///
/// 1 to 3 CPUs, 1 to 6 domains of 1 to 3 VCPUs, any policy, a laxity or none, 50 to 400 units of time. All times are
/// small multiples of one unit, so that many things fall on one instant.
pub fn random_host(seed: u64) -> Host {
    let draw = &mut Draw(Pcg64::seed_from_u64(seed));
    let policy = policy(draw);
    let unit_ns = draw.one_of(match policy {
        Policy::Credit2 => &UNITS_OF_CREDIT2_NS,
        policy if policy.is_scheduler_s() => &UNITS_OF_SCHEDULER_S_NS,
        _ => &UNITS_NS,
    });
    let cpus = draw.one_of(&[1, 1, 2, 3]);
    let domains = draw.one_of(&[1, 2, 2, 3, 3, 4, 5, 6]);
    // Host-wide habits: with few different periods and priorities, equals are frequent.
    let habits = Habits {
        unit_ns,
        cpus,
        priorities: draw.between(1, 4),
        // A unit is a trifle of the long periods.
        period_units: draw.one_of(&[
            &[6, 12],
            &[5, 10, 20],
            &[4, 6, 8, 12, 24],
            &[3, 7, 10, 16],
            &[48, 64, 100],
        ]),
        load_percent: draw.one_of(&[20, 50, 90, 150]),
        domains,
        extratime_percent: draw.one_of(&[0, 30, 100]),
        cpu_bound_percent: draw.one_of(&[0, 25, 60]),
    };
    let mut host = Host {
        duration_ns: unit_ns * draw.between(50, 400),
        seed,
        cpus: cpus as u32,
        policy,
        settings: settings(draw, unit_ns),
        costs: Costs::default(),
        domains: (0..domains)
            .map(|number| domain(draw, &habits, number))
            .collect(),
        timer_latency_ns: 0,
        caches: Vec::new(),
        network: None,
        calls: None,
        profiles: Vec::new(),
    };
    if policy == Policy::Eevdf {
        host.settings.jiffy_ns = host.settings.jiffy_ns.max(unit_ns);
    }
    let ticking_percent = draw.one_of(&[0, 0, 50, 100]);
    for domain in &mut host.domains {
        if draw.percent(ticking_percent) {
            domain.tick = Some(tick(draw, unit_ns));
        }
    }
    if policy.own_of() == Some(Substrate::Linux) {
        let helped_percent = draw.one_of(&[0, 0, 50, 100]);
        for owner in 0..domains {
            if draw.percent(helped_percent) {
                let helper = helper(draw, &habits, owner as u32, &host.domains[owner as usize]);
                host.domains.push(helper);
            }
        }
    }
    if policy == Policy::Credit2 {
        let preferring_percent = draw.one_of(&[0, 0, 60]);
        for vcpu in host.domains.iter_mut().flat_map(|domain| &mut domain.vcpus) {
            if draw.percent(preferring_percent) {
                let all = 0..host.cpus;
                vcpu.soft_affinity = all.filter(|_| draw.percent(50)).collect();
            }
        }
    }
    if policy == Policy::Deadline {
        let reclaiming_percent = draw.one_of(&[0, 40, 100]);
        for domain in &mut host.domains {
            domain.parameters.reclaim = draw.percent(reclaiming_percent);
        }
    }
    if let Some(global) = policy.on_all_cpus()
        && draw.percent(40)
    {
        host.policy = global;
    }
    for tick in host.domains.iter_mut().flat_map(|domain| &mut domain.tick) {
        let last_ns = tick.period_ns - unit_ns;
        tick.min_delta_ns = last_ns.min(unit_ns * draw.one_of(&[0, 0, 1, 2, 3, 11]));
        tick.wake_ns = last_ns.min(unit_ns * draw.one_of(&[0, 0, 0, 1, 2]));
    }
    host
}

/// A thread with parameters of its own, but for what its domain has for all its threads.
fn helper(draw: &mut Draw, habits: &Habits, helper_of: u32, owner: &Domain) -> Domain {
    let parameters = parameters(draw, habits);
    Domain {
        name: format!("{}:helper", owner.name),
        parameters: Parameters {
            budget_ns: parameters.budget_ns,
            period_ns: parameters.period_ns,
            rt_priority: parameters.rt_priority,
            ..owner.parameters
        },
        vcpus: vec![vcpu(draw, habits.cpus)],
        tasks: vec![task(draw, habits, 1, 1, 0)],
        cpu_bound: false,
        tick: None,
        helper_of: Some(helper_of),
        ..owner.clone()
    }
}

/// Often enough that ticks fall together with all else, and sometimes so costly that one is due again
/// before it is done.
fn tick(draw: &mut Draw, unit_ns: i64) -> Tick {
    let period_units = draw.one_of(&[2, 3, 4, 5, 8, 12, 40]);
    let cost_units = match draw.between(1, 4) {
        1 => draw.between(1, period_units - 1),
        _ => 1,
    };
    Tick {
        period_ns: unit_ns * period_units,
        cost_ns: unit_ns * cost_units,
        offset_ns: unit_ns * draw.between(0, period_units - 1),
        min_delta_ns: 0,
        wake_ns: 0,
    }
}

/// A policy: those of scheduler S, which are many and much alike, a fifth of the time, and models a fifth.
fn policy(draw: &mut Draw) -> Policy {
    let kind = (draw.between(1, 5) - 1).min(2);
    let kind_of = |policy: &Policy| match policy {
        policy if policy.is_scheduler_s() => 0,
        policy if policy.is_model() => 1,
        _ => 2,
    };
    let policies: Vec<Policy> = (Policy::ALL.into_iter())
        .filter(|policy| !policy.is_global())
        .filter(|policy| kind_of(policy) == kind)
        .collect();
    draw.one_of(&policies)
}

struct Habits {
    unit_ns: i64,
    cpus: i64,
    priorities: i64,
    period_units: &'static [i64],
    load_percent: i64,
    domains: i64,
    extratime_percent: i64,
    cpu_bound_percent: i64,
}

fn settings(draw: &mut Draw, unit_ns: i64) -> Settings {
    let tick_ns = unit_ns * draw.between(1, 10);
    let accounting_ns = tick_ns * draw.between(1, 4);
    let last_phase = accounting_ns / unit_ns - 1;
    Settings {
        quantum_ns: unit_ns * draw.one_of(&[0, 0, 0, 1, 2, 3, 5, 10]),
        time_slice_ns: unit_ns * draw.between(1, 30),
        tick_ns,
        accounting_ns,
        accounting_phase_ns: unit_ns * draw.one_of(&[0, 0, 1, last_phase]).min(last_phase),
        jiffy_ns: unit_ns * draw.one_of(&[0, 0, 1, 2, 3, 5]),
        base_slice_ns: unit_ns * draw.one_of(&[0, 1, 1, 2, 3, 7]),
        run_queue_cpus: draw.one_of(&[0, 1, 1, 2]),
    }
}

fn domain(draw: &mut Draw, habits: &Habits, number: i64) -> Domain {
    let vcpus = draw.one_of(&[1, 1, 1, 2, 2, 3]);
    let cpu_bound = draw.percent(habits.cpu_bound_percent);
    let tasks = draw.one_of(if cpu_bound {
        &[0, 0, 1, 2]
    } else {
        &[0, 1, 1, 2, 2, 3, 4]
    });
    let mut domain = Domain {
        name: format!("domain-{number}"),
        parameters: parameters(draw, habits),
        vcpus: (0..vcpus).map(|_| vcpu(draw, habits.cpus)).collect(),
        guest: draw.one_of(&[GuestScheduler::RateMonotonic, GuestScheduler::Edf]),
        tasks: (0..tasks)
            .map(|number| task(draw, habits, vcpus, tasks, number))
            .collect(),
        cpu_bound,
        workload: None,
        working_set_bytes: 0,
        tick: None,
        helper_of: None,
    };
    if draw.percent(4) {
        fragment(draw, habits.unit_ns, &mut domain);
    }
    domain
}

/// Makes the domain one that uses its budget in many runs within one long period, close together and
/// farther apart, so that the bound on pending replenishments is met.
fn fragment(draw: &mut Draw, unit_ns: i64, domain: &mut Domain) {
    domain.parameters.period_ns = unit_ns * draw.between(80, 160);
    domain.parameters.budget_ns = unit_ns * draw.between(33, 80);
    domain.parameters.phase_ns = 0;
    domain.parameters.priority = 1;
    domain.cpu_bound = false;
    let task = |draw: &mut Draw, number: i64, period_units: i64| Task {
        name: format!("task-{number}"),
        vcpu: 0,
        cost_ns: unit_ns,
        period_ns: unit_ns * period_units,
        deadline_ns: unit_ns * period_units,
        offset_ns: unit_ns * draw.between(0, 2),
        jitter_ns: 0,
    };
    domain.tasks = vec![task(draw, 0, 2)];
    if draw.percent(70) {
        let other_units = draw.between(5, 9);
        domain.tasks = vec![task(draw, 0, 3), task(draw, 1, other_units)];
    }
}

fn parameters(draw: &mut Draw, habits: &Habits) -> Parameters {
    let period_units = draw.one_of(habits.period_units);
    let budget_units = match draw.between(1, 10) {
        1 => 1,
        2 => period_units,
        3..=5 => draw.between(1, period_units),
        _ => draw.between(1, (period_units / 2).max(1)),
    };
    let quota_ns = habits.unit_ns * draw.one_of(&[0, 0, 1, budget_units, 2 * period_units]);
    Parameters {
        budget_ns: habits.unit_ns * budget_units,
        period_ns: habits.unit_ns * period_units,
        laxity_ns: habits.unit_ns * draw.one_of(&[0, 0, 1, 2, 5, 30]),
        priority: draw.between(1, habits.priorities) as u32,
        extratime: draw.percent(habits.extratime_percent),
        weight: draw.one_of(&[1, 64, 128, 256, 256, 256, 512, 1000, 65_535]),
        cap_percent: draw.one_of(&[0, 0, 0, 10, 33, 50, 100, 150]),
        rt_priority: draw.between(1, habits.priorities) as u32,
        quota_ns,
        quota_period_ns: habits.unit_ns * period_units,
        quota_burst_ns: draw.one_of(&[0, 0, quota_ns / 3, quota_ns]),
        phase_ns: habits.unit_ns * draw.one_of(&[0, 0, 1, period_units / 2, period_units]),
        credit_ns: draw.one_of(&[0, 1, 3_333_333, 10_000_000, 10_000_000, 10_500_000]),
        reclaim: false,
    }
}

/// On any of the CPUs, which are its affinity.
fn vcpu(draw: &mut Draw, cpus: i64) -> Vcpu {
    let cpu = draw.between(0, cpus - 1) as u32;
    let affinity = (0..cpus as u32)
        .filter(|&other| other == cpu || draw.percent(60))
        .collect();
    Vcpu {
        cpu,
        affinity,
        soft_affinity: Vec::new(),
    }
}

fn task(draw: &mut Draw, habits: &Habits, vcpus: i64, tasks: i64, number: i64) -> Task {
    let period_units = draw.one_of(habits.period_units) * draw.one_of(&[1, 1, 1, 2, 3]);
    // About the habitual load on all CPUs together, give or take a factor of two.
    let share = period_units * habits.load_percent * habits.cpus / (100 * habits.domains * tasks);
    let cost_units = draw.between(share / 2, share * 2).clamp(1, period_units);
    let deadline_units = if draw.percent(60) {
        period_units
    } else {
        draw.between(cost_units, period_units)
    };
    let offset_units = if draw.percent(50) {
        0
    } else {
        draw.between(0, period_units)
    };
    Task {
        name: format!("task-{number}"),
        vcpu: draw.between(0, vcpus - 1) as u32,
        cost_ns: habits.unit_ns * cost_units,
        period_ns: habits.unit_ns * period_units,
        deadline_ns: habits.unit_ns * deadline_units,
        offset_ns: habits.unit_ns * offset_units,
        jitter_ns: 0,
    }
}
