//! No run of the simulator may show a job later than its bound: with costs, jitter, quanta
//! and late timers, which the reference does not have.

use laxity_analysis::{TaskCheck, check};
use laxity_host::{Cost, Costs, GuestScheduler, Host, Policy, Task};
use laxity_reference::random_host;
use laxity_trials::{Draw, seeds};

/// Whether any bound was tried.
fn compare(seed: u64, host: &Host) -> bool {
    let check = check(host);
    let (outcome, _) = laxity_sim::run(host, laxity_trace::Off).expect("the host is valid");
    let mut tried = false;
    for (domain, responses) in check.domains.iter().zip(&outcome.responses) {
        for (task, responses) in domain.tasks.iter().zip(responses) {
            let TaskCheck {
                bound_ns: Some(bound_ns),
                ..
            } = *task
            else {
                continue;
            };
            let Some(worst_ns) = responses.max_ns() else {
                continue;
            };
            assert!(
                worst_ns <= bound_ns,
                "seed {seed}: {worst_ns} ns for {task:?}\n{host:#?}"
            );
            tried = true;
        }
    }
    for (domain, result) in check.domains.iter().zip(&outcome.result.domains) {
        for (task, result) in domain.tasks.iter().zip(&result.tasks) {
            assert!(
                !task.guaranteed || result.missed == 0,
                "seed {seed}: {task:?} missed\n{host:#?}"
            );
        }
    }
    tried
}

/// A random host, sparse, with jitter on some tasks and costs of up to some percent of a budget.
fn costly_host(seed: u64, policy: Policy) -> Host {
    let mut host = random_host(seed);
    host.policy = policy;
    let shortest_ns = host
        .domains
        .iter()
        .map(|domain| domain.parameters.budget_ns)
        .min()
        .expect("a host has domains");
    let cost_ns = shortest_ns / [20, 100, 400, 2000][seed as usize % 4];
    host.costs = Costs {
        schedule: Cost::Constant { ns: cost_ns / 3 },
        context_switch: Cost::Quantiles {
            median_ns: cost_ns / 2,
            p90_ns: None,
            p99_ns: cost_ns * 2 / 3,
            p999_ns: None,
            max_ns: cost_ns * 2 / 3,
        },
    };
    let stretch = 1 + (seed / 4) as i64 % 8;
    // Often all budgets fit beside one another, which matters to SEDF.
    let vcpus: usize = host.domains.iter().map(|domain| domain.vcpus.len()).sum();
    let room = if !seed.is_multiple_of(3) {
        2 * vcpus as i64
    } else {
        1
    };
    for (number, domain) in host.domains.iter_mut().enumerate() {
        if !seed.is_multiple_of(3) {
            domain.parameters.priority = number as u32 + 1;
        }
        domain.parameters.period_ns *= room;
        domain.tasks.truncate(1 + (seed as usize + number) % 2);
        for task in &mut domain.tasks {
            task.period_ns *= stretch * room;
            task.deadline_ns *= stretch * room;
            if seed.is_multiple_of(2) {
                task.jitter_ns = task.period_ns * (seed as i64 % 7) / 16;
            }
        }
    }
    host.duration_ns *= 8;
    host
}

/// Whether more than one host in thirty had a bound, of those that a test has by default or of fewer.
fn is_enough(tried: usize, by_default: u64) -> bool {
    30 * tried > seeds(by_default).count()
}

#[test]
fn bounds_hold_with_costs_and_jitter() {
    for policy in Policy::ALL.into_iter().filter(|policy| !policy.is_model()) {
        let tried = seeds(600)
            .filter(|&seed| compare(seed, &costly_host(seed, policy)))
            .count();
        println!("{}: {tried}", policy.name());
        assert!(
            policy.shares_by_weight() || policy.is_model() || is_enough(tried, 600),
            "only {tried} hosts under {} had a bound",
            policy.name()
        );
    }
}

/// Timers are late by up to a fifth of the shortest period; a third of the hosts also have costs.
fn late_host(seed: u64, policy: Policy) -> Host {
    let mut host = costly_host(seed, policy);
    if !seed.is_multiple_of(3) {
        host.costs = random_host(seed).costs;
    }
    let periods_ns = host
        .domains
        .iter()
        .map(|domain| domain.parameters.period_ns);
    let shortest_ns = periods_ns.min().expect("a host has domains");
    host.timer_latency_ns = shortest_ns / [5, 20, 100][seed as usize / 3 % 3];
    host
}

#[test]
fn bounds_hold_with_late_timers() {
    let has_bounds = |policy: &Policy| {
        (policy.is_partitioned() || policy.is_global()) && *policy != Policy::Lending
    };
    for policy in Policy::ALL.into_iter().filter(has_bounds) {
        let tried = seeds(300)
            .filter(|&seed| compare(seed, &late_host(seed, policy)))
            .count();
        println!("{}: {tried}", policy.name());
        assert!(
            is_enough(tried, 300),
            "only {tried} hosts under {} had a bound",
            policy.name()
        );
    }
}

/// Short, frequent work above long, split work: runs of the lower VCPU are cut into more pieces
/// than a sporadic server's 32 replenishments. Times fit nothing. In every other host budgets are so long that 32
/// replenishments which are not small fit into them.
fn fragmented_host(seed: u64) -> Host {
    let mut draw = Draw::new(seed);
    let mut between = |least: i64, most: i64| draw.between(least, most);
    let mut host = random_host(0);
    host.cpus = 1;
    host.settings.quantum_ns = 0;
    host.policy = Policy::Sporadic;
    let unit = [1, 10_000][seed as usize % 2];
    let pattern = host.domains[0].clone();
    host.domains = (0..2)
        .map(|number| {
            let mut domain = pattern.clone();
            let scale = [100, between(3_000, 8_000)][number as usize] * unit;
            domain.name = format!("domain-{number}");
            domain.vcpus = vec![laxity_host::Vcpu {
                cpu: 0,
                affinity: vec![0],
                soft_affinity: Vec::new(),
            }];
            domain.guest = GuestScheduler::RateMonotonic;
            domain.cpu_bound = between(0, 3) == 0;
            domain.parameters.extratime = false;
            domain.parameters.priority = number as u32 + 1;
            domain.parameters.period_ns = scale + between(0, scale / 3);
            domain.parameters.budget_ns = between(scale / 5, scale * 2 / 5);
            domain.tasks = (0..between(1, 3))
                .map(|number| {
                    let period_ns = scale * between(1, 8) + between(0, scale);
                    Task {
                        name: format!("task-{number}"),
                        vcpu: 0,
                        cost_ns: between(1, scale / 5),
                        period_ns,
                        deadline_ns: period_ns,
                        offset_ns: between(0, period_ns),
                        jitter_ns: between(0, period_ns / 4),
                    }
                })
                .collect();
            domain
        })
        .collect();
    host.duration_ns = 2_000_000 * unit;
    host
}

#[test]
fn bounds_hold_for_sporadic_servers_in_pieces() {
    let tried = seeds(600)
        .filter(|&seed| compare(seed, &fragmented_host(seed)))
        .count();
    assert!(
        6 * tried > seeds(600).count(),
        "only {tried} hosts had a bound"
    );
}
