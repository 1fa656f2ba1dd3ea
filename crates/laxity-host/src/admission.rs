//! The admission test of Linux's SCHED_DEADLINE: `docs/explanation/policies.md`, "Deadline".

use laxity_config::{Problem, Problems, Span};

use crate::sections::domain::Domain;

/// The part of each CPU that SCHED_DEADLINE gives away: `kernel.sched_rt_runtime_us` of `kernel.sched_rt_period_us`.
const ADMITTED_PERCENT: i64 = 95;

/// The unit in which the kernel adds up bandwidths.
const BANDWIDTH_UNIT: i64 = 1 << 20;

fn bandwidth(budget_ns: i64, period_ns: i64) -> i64 {
    (i128::from(budget_ns) * i128::from(BANDWIDTH_UNIT) / i128::from(period_ns)) as i64
}

/// Reports domains whose clusters of CPUs overlap, and a cluster whose VCPUs need more than the kernel admits.
pub(crate) fn check(domains: &[Domain], spans: &[Span], problems: &Problems) {
    let affinity = |domain: usize| &domains[domain].vcpus[0].affinity;
    for later in 0..domains.len() {
        let overlaps = |&earlier: &usize| {
            affinity(earlier) != affinity(later)
                && (affinity(earlier).iter()).any(|cpu| affinity(later).contains(cpu))
        };
        if let Some(earlier) = (0..later).find(overlaps) {
            problems.push(Problem {
                help: Some("under deadline two domains share all of their CPUs or none".into()),
                related: Some((spans[earlier], "the other domain")),
                ..Problem::new(
                    spans[later],
                    format!(
                        "domains `{}` and `{}` share some of their CPUs, but not all",
                        domains[later].name, domains[earlier].name
                    ),
                )
            });
            return;
        }
    }
    for later in 0..domains.len() {
        let cpus = affinity(later).len() as i64;
        let needed: i64 = (domains[..=later].iter())
            .filter(|domain| domain.vcpus[0].affinity == *affinity(later))
            .map(|domain| {
                let parameters = &domain.parameters;
                let each = bandwidth(parameters.budget_ns, parameters.period_ns);
                domain.vcpus.len() as i64 * each
            })
            .sum();
        if needed > cpus * bandwidth(ADMITTED_PERCENT, 100) {
            let percent = 100.0 * needed as f64 / BANDWIDTH_UNIT as f64;
            let plural = if cpus == 1 { "CPU" } else { "CPUs" };
            let message = format!(
                "with domain `{}` the budgets add up to {percent:.1} % of a CPU, but deadline admits {} % on {cpus} {plural}",
                domains[later].name,
                ADMITTED_PERCENT * cpus,
            );
            problems.report(
                spans[later],
                message,
                "write lower budgets or longer periods",
            );
            return;
        }
    }
}
