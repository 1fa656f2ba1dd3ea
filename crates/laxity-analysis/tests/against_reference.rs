//! No run of the reference simulator may show a job later than its bound.

mod bounds;

use laxity_host::{Host, Policy};
use laxity_reference::random_host;
use laxity_trials::seeds;

/// Bounds that were tried by some job, and those that some job reached to the nanosecond.
#[derive(Debug, Default)]
struct Seen {
    bounds: usize,
    tight: usize,
}

fn compare(seed: u64, host: &Host, seen: &mut Seen) {
    let (tried, reached) = bounds::tried(seed, host);
    seen.bounds += tried;
    seen.tight += reached;
}

/// The reference's own random hosts: many policies, mostly overloaded.
#[test]
fn bounds_hold_on_random_hosts() {
    let mut seen = Seen::default();
    for seed in seeds(1500) {
        compare(seed, &random_host(seed), &mut seen);
    }
    assert!(
        seen.bounds > 100,
        "too few bounds to mean anything: {seen:?}"
    );
}

/// The same hosts made sparse, under every policy: most tasks get a bound.
#[test]
fn bounds_hold_on_sparse_hosts() {
    for policy in Policy::ALL.into_iter().filter(|policy| !policy.is_model()) {
        let mut seen = Seen::default();
        for seed in seeds(1500) {
            let mut host = random_host(seed);
            host.policy = policy;
            let members = host.domains.len() as i64;
            // Half of the time all budgets fit beside one another, which matters to SEDF.
            let vcpus: usize = host.domains.iter().map(|domain| domain.vcpus.len()).sum();
            let room = if seed % 4 < 2 { vcpus as i64 } else { 1 };
            for (number, domain) in host.domains.iter_mut().enumerate() {
                domain.parameters.period_ns *= room * (1 + seed as i64 % 2);
                if seed % 3 != 0 {
                    domain.parameters.priority = number as u32 + 1;
                }
                let keep = 1 + (seed as usize + number) % 2;
                domain.tasks.truncate(keep);
                for task in &mut domain.tasks {
                    let stretch = 1 + (seed as i64 / 2) % (2 * members);
                    task.period_ns *= stretch * room;
                    task.deadline_ns *= stretch * room;
                }
            }
            host.duration_ns *= 2;
            compare(seed, &host, &mut seen);
        }
        println!("{}: {seen:?}", policy.name());
        assert!(
            policy.shares_by_weight() || policy.is_model() || seen.bounds > 100,
            "too few bounds to mean anything under {}: {seen:?}",
            policy.name()
        );
    }
}
