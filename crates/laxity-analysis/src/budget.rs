//! The smallest budget that makes a guest schedulable: the inverse of the check.

use laxity_host::{Host, Policy};
use serde::Serialize;

use crate::check::{has_bounds, is_accepted};
use crate::runs;
use crate::time::Ns;

/// The smallest budget of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DomainBudget {
    /// The domain's name.
    pub name: String,
    /// The period that the host gives it; 0 if none.
    pub period_ns: i64,
    /// The smallest budget for each of its VCPUs; `None` if not even the whole period is enough, or
    /// the policy knows no budgets. 0 if the domain has no tasks.
    pub budget_ns: Option<i64>,
}

/// What is searched to, once it is known that a budget is enough.
const STEP_NS: i64 = 1_000;

/// The smallest budget with which [`crate::check`] guarantees all tasks of the domain of that number, beside the
/// others as the host has them, costs and quantum included: with a microsecond less it does not. `None` if no budget
/// up to the whole period is enough, or under a policy without budgets; 0 if the domain has no tasks.
pub fn minimum_budget(host: &Host, number: usize) -> Option<i64> {
    let domain = &host.domains[number];
    if domain.tasks.is_empty() {
        return Some(0);
    }
    let period_ns = domain.parameters.period_ns;
    if period_ns < 1 || !has_bounds(host.policy) {
        return None;
    }
    // Sporadic servers' bounds are lower again from here down.
    let decision_ns =
        Ns::from(host.costs.schedule.max_ns()) + Ns::from(host.costs.context_switch.max_ns());
    let policy = host.policy.on_each_cpu().unwrap_or(host.policy);
    let prompt_ns = matches!(policy, Policy::Sporadic | Policy::Lending)
        .then(|| runs::most_never_too_many_ns(period_ns.into(), decision_ns))
        .and_then(|budget_ns| i64::try_from(budget_ns).ok());
    let mut tried = host.clone();
    let mut is_enough = |budget_ns: i64| {
        tried.domains[number].parameters.budget_ns = budget_ns;
        is_accepted(&tried, number)
    };
    // The whole period may exceed what other VCPUs leave, and be refused where a smaller budget is accepted.
    let most_ns = (0..8)
        .map(|eighths| period_ns - period_ns / 8 * eighths)
        .find(|&budget_ns| is_enough(budget_ns))?;
    let mut enough_ns = most_ns;
    loop {
        let mut too_small_ns = 0;
        while enough_ns - too_small_ns > 1 {
            let middle_ns = too_small_ns + (enough_ns - too_small_ns) / 2;
            if is_enough(middle_ns) {
                enough_ns = middle_ns;
            } else {
                too_small_ns = middle_ns;
            }
        }
        // Bounds need not grow with every nanosecond less; then the search goes on below.
        let less_ns = [Some(enough_ns - STEP_NS), prompt_ns]
            .into_iter()
            .flatten()
            .find(|&less_ns| 1 <= less_ns && less_ns < enough_ns && is_enough(less_ns));
        let Some(less_ns) = less_ns else {
            return Some(enough_ns);
        };
        enough_ns = less_ns;
    }
}

/// The smallest budget of every domain, at its own period.
pub fn minimum_budgets(host: &Host) -> Vec<DomainBudget> {
    (host.domains.iter().enumerate())
        .map(|(number, domain)| DomainBudget {
            name: domain.name.clone(),
            period_ns: domain.parameters.period_ns,
            budget_ns: minimum_budget(host, number),
        })
        .collect()
}
