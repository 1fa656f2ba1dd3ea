//! The smallest budget that makes a guest schedulable: the analysis the other way round.

use laxity_host::{GuestScheduler, Host, Policy, Task};
use serde::Serialize;

use crate::Ns;
use crate::guest::{self, GuestTask};
use crate::supply::{Delay, Supply};

/// The smallest budget of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DomainBudget {
    /// The domain's name.
    pub name: String,
    /// The period that the host gives it; 0 if none.
    pub period_ns: i64,
    /// The smallest budget for each of its VCPUs; `None` if not even the whole period is enough, or the
    /// policy knows no budgets. 0 if the domain has no tasks.
    pub budget_ns: Option<i64>,
}

/// The smallest budget that, delivered in every `period_ns`, meets all deadlines of `tasks` on one VCPU,
/// whatever else the CPU does: the periodic resource model (Shin and Lee, RTSS 2003), with `policy`'s own
/// wait for the first replenishment. `None` if even the whole period is not enough, if `period_ns` is not
/// positive, or under credit.
///
/// The budget is useful only where its VCPU is schedulable as a server; scheduling is taken as free.
pub fn minimum_budget(
    tasks: &[Task],
    scheduler: GuestScheduler,
    period_ns: i64,
    policy: Policy,
) -> Option<i64> {
    if tasks.is_empty() {
        return Some(0);
    }
    if period_ns < 1 || policy == Policy::Credit {
        return None;
    }
    let mut guest_tasks: Vec<GuestTask> = tasks
        .iter()
        .map(|task| GuestTask::new(task, false))
        .collect();
    guest_tasks.sort_by_key(|task| task.period_ns);
    let is_enough = |budget_ns: i64| {
        let supply = supply_of(policy, period_ns.into(), budget_ns.into());
        match scheduler {
            GuestScheduler::Edf => guest::edf_is_schedulable(&guest_tasks, &supply),
            GuestScheduler::RateMonotonic => guest::fixed_priority(&guest_tasks, &supply)
                .iter()
                .zip(&guest_tasks)
                .all(|(response, task)| {
                    response.is_some_and(|response| response.bound_ns <= task.deadline_ns)
                }),
        }
    };
    if !is_enough(period_ns) {
        return None;
    }
    let (mut too_small_ns, mut enough_ns) = (0, period_ns);
    while enough_ns - too_small_ns > 1 {
        let middle_ns = too_small_ns + (enough_ns - too_small_ns) / 2;
        if is_enough(middle_ns) {
            enough_ns = middle_ns;
        } else {
            too_small_ns = middle_ns;
        }
    }
    Some(enough_ns)
}

/// What a budget that is delivered in every period is worth under a policy.
fn supply_of(policy: Policy, period_ns: Ns, budget_ns: Ns) -> Supply {
    let rest_ns = period_ns - budget_ns;
    match policy {
        Policy::Polling => Supply::periodic_resource(period_ns, period_ns, budget_ns),
        // Budget may be merged, and so be away for two periods; the whole period is back at once.
        Policy::Sporadic if rest_ns > 0 => Supply {
            gap_ns: period_ns + rest_ns,
            period_ns: 2 * period_ns,
            budget_ns,
            delay: Delay::EachBudget {
                each_ns: rest_ns,
                contention: Default::default(),
            },
        },
        _ => Supply::periodic_resource(rest_ns, period_ns, budget_ns),
    }
}

/// The smallest budget of every domain, at its own period: the largest that one of its VCPUs needs.
pub fn minimum_budgets(host: &Host) -> Vec<DomainBudget> {
    host.domains
        .iter()
        .map(|domain| {
            let period_ns = domain.parameters.period_ns;
            let budgets_ns = (0..domain.vcpus.len()).map(|vcpu| {
                let tasks: Vec<Task> = domain
                    .tasks
                    .iter()
                    .filter(|task| task.vcpu as usize == vcpu)
                    .cloned()
                    .collect();
                minimum_budget(&tasks, domain.guest, period_ns, host.policy)
            });
            DomainBudget {
                name: domain.name.clone(),
                period_ns,
                budget_ns: budgets_ns
                    .collect::<Option<Vec<i64>>>()
                    .and_then(|all| all.into_iter().max()),
            }
        })
        .collect()
}
