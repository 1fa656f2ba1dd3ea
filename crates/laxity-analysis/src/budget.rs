//! The smallest budget that makes a guest schedulable: the analysis the other way round.

use laxity_host::{GuestScheduler, Host, Policy, Task, Tick};
use serde::Serialize;

use crate::Ns;
use crate::guest::{self, GuestTask};
use crate::runs::on_time_ns;
use crate::supply::{Delay, Supply};

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

/// The smallest budget that, delivered in every `period_ns`, meets all deadlines of `tasks` on one
/// VCPU with its kernel's ticks, whatever else the CPU does: the periodic resource model (Shin and Lee, RTSS 2003), with
/// `policy`'s own wait for the first replenishment. `None` if even the whole period is not enough,
/// if `period_ns` is not positive, or under credit.
///
/// The budget is useful only where its VCPU is schedulable as a server; scheduling is taken as
/// free.
pub fn minimum_budget(
    tasks: &[Task],
    tick: Option<&Tick>,
    scheduler: GuestScheduler,
    period_ns: i64,
    policy: Policy,
) -> Option<i64> {
    if tasks.is_empty() {
        return Some(0);
    }
    if period_ns < 1 || policy.shares_by_weight() {
        return None;
    }
    let mut guest_tasks: Vec<GuestTask> = tasks
        .iter()
        .map(|task| GuestTask::new(task, false))
        .collect();
    guest_tasks.sort_by_key(|task| task.period_ns);
    guest_tasks.splice(..0, tick.map(GuestTask::of_tick));
    let is_enough = |budget_ns: i64| {
        is_schedulable(
            &guest_tasks,
            scheduler,
            &supply_of(policy, period_ns.into(), budget_ns.into()),
        )
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

/// Whether all deadlines are met; `tasks` in order of rank, ticks before all.
fn is_schedulable(tasks: &[GuestTask], scheduler: GuestScheduler, supply: &Supply) -> bool {
    match scheduler {
        GuestScheduler::Edf => guest::edf_is_schedulable(tasks, supply),
        GuestScheduler::RateMonotonic => guest::fixed_priority(tasks, supply)
            .iter()
            .zip(tasks)
            .all(|(response, task)| {
                task.is_tick
                    || response.is_some_and(|response| response.bound_ns <= task.deadline_ns)
            }),
    }
}

/// What a budget that is delivered in every period is worth under a policy.
fn supply_of(policy: Policy, period_ns: Ns, budget_ns: Ns) -> Supply {
    let rest_ns = period_ns - budget_ns;
    match policy {
        Policy::Polling => Supply::periodic_resource(period_ns, period_ns, budget_ns),
        // Budget may be merged, and so be away for two periods; the whole period is back at once.
        Policy::Sporadic if rest_ns > 0 => Supply {
            gap_ns: 2 * period_ns - on_time_ns(budget_ns, period_ns),
            period_ns: 2 * period_ns,
            budget_ns: on_time_ns(budget_ns, period_ns),
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
                let tick = domain.tick.as_ref();
                minimum_budget(&tasks, tick, domain.guest, period_ns, host.policy)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The demand of EDF jobs against the supply bound function, at every nanosecond up to
    /// `limit_ns`.
    fn edf_by_walking(tasks: &[Task], period_ns: i64, budget_ns: i64, limit_ns: i64) -> bool {
        let blackout_ns = 2 * (period_ns - budget_ns);
        let mut supplied_ns = 0;
        (1..=limit_ns).all(|window_ns| {
            let since_ns = window_ns - 1 - blackout_ns;
            supplied_ns += i64::from(since_ns >= 0 && since_ns % period_ns < budget_ns);
            let demand_ns: i64 = tasks
                .iter()
                .filter(|task| window_ns >= task.deadline_ns)
                .map(|task| ((window_ns - task.deadline_ns) / task.period_ns + 1) * task.cost_ns)
                .sum();
            demand_ns <= supplied_ns
        })
    }

    /// Rate-monotonic response times: the first window, of all, in which the supply is the request.
    fn rate_monotonic_by_walking(tasks: &[Task], period_ns: i64, budget_ns: i64) -> bool {
        let blackout_ns = 2 * (period_ns - budget_ns);
        let mut ranked: Vec<&Task> = tasks.iter().collect();
        ranked.sort_by_key(|task| task.period_ns);
        (0..ranked.len()).all(|rank| {
            let mut supplied_ns = 0;
            (1..=ranked[rank].deadline_ns).any(|window_ns| {
                let since_ns = window_ns - 1 - blackout_ns;
                supplied_ns += i64::from(since_ns >= 0 && since_ns % period_ns < budget_ns);
                let above_ns: i64 = ranked[..rank]
                    .iter()
                    .map(|task| (window_ns + task.period_ns - 1) / task.period_ns * task.cost_ns)
                    .sum();
                ranked[rank].cost_ns + above_ns <= supplied_ns
            })
        })
    }

    proptest! {
        /// Trying every budget, with tests that walk through time.
        #[test]
        fn is_what_a_linear_search_finds(
            shapes in prop::collection::vec((1..4i64, 0..5usize, 0..4i64), 1..4), period_ns in 1..14i64,
        ) {
            let tasks: Vec<Task> = shapes
                .into_iter()
                .map(|(cost_ns, period, less_ns)| Task {
                    name: "t".into(),
                    vcpu: 0,
                    cost_ns,
                    period_ns: [10, 12, 15, 20, 30][period],
                    deadline_ns: [10, 12, 15, 20, 30][period] - less_ns,
                    offset_ns: 0,
                    jitter_ns: 0,
                })
                .collect();
            let search = |is_enough: &dyn Fn(i64) -> bool| (1..=period_ns).find(|&budget_ns| is_enough(budget_ns));
            let periodic = |scheduler| minimum_budget(&tasks, None, scheduler, period_ns, Policy::Periodic);
            // Two common periods of all tasks and every server period below 14 would be longer; but
            // a failure shows in the longest busy period, which these tasks keep below a few
            // hundred.
            let edf = search(&|budget_ns| edf_by_walking(&tasks, period_ns, budget_ns, 4000));
            prop_assert_eq!(periodic(GuestScheduler::Edf), edf);
            let rate_monotonic = search(&|budget_ns| rate_monotonic_by_walking(&tasks, period_ns, budget_ns));
            prop_assert_eq!(periodic(GuestScheduler::RateMonotonic), rate_monotonic);
        }
    }
}
