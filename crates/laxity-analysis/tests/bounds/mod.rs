//! Bounds held against a run of the reference simulator.

use std::collections::BTreeMap;

use laxity_analysis::{Check, check};
use laxity_host::Host;
use laxity_reference::{Outcome, Refusal, simulate};

/// Runs a host. Returns how many tasks with a bound had a job, and how many of these reached it to the nanosecond; none
/// where the reference would take too many steps.
///
/// # Panics
///
/// If a job takes longer than its bound.
pub fn tried(seed: u64, host: &Host) -> (usize, usize) {
    let outcome: Outcome = match simulate(host) {
        Ok(outcome) => outcome,
        Err(Refusal::Steps { .. }) => return (0, 0),
        Err(refusal) => panic!("seed {seed}: {refusal}"),
    };
    let check: Check = check(host);
    let mut tried = BTreeMap::new();
    for job in &outcome.jobs {
        let task = &check.domains[job.domain].tasks[job.task];
        let Some(bound_ns) = task.bound_ns else {
            continue;
        };
        let end_ns = job.completion_ns.unwrap_or(host.duration_ns + 1);
        let response_ns = end_ns - job.arrival_ns;
        assert!(
            response_ns <= bound_ns
                || (job.completion_ns.is_none() && host.duration_ns - job.arrival_ns < bound_ns),
            "seed {seed}: job {} of {} of {} took {response_ns} ns, its bound is {bound_ns} ns: {task:?}\n{host:#?}",
            job.number,
            task.name,
            check.domains[job.domain].name,
        );
        let is_reached = tried.entry((job.domain, job.task)).or_insert(false);
        *is_reached |= response_ns == bound_ns;
    }
    let reached = tried.values().filter(|&&is_reached| is_reached).count();
    (tried.len(), reached)
}
