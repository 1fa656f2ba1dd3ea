//! Demands that cannot hold together, and the smallest relief.
//!
//! Where several policies may be chosen, demands cannot hold together if they hold under none of these.

use laxity_host::{Host, Open, Policy};
use rayon::prelude::*;
use serde::Serialize;

use crate::designs::Failed;
use crate::group::{Group, retain, share};
use crate::request::{Aim, Request, names, with_policy};
use crate::search::{Effort, Search};

/// Steps of the search for the least relief: one part in a hundred.
const RELIEF_STEPS: usize = 7;

/// A task's deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// The domain's name.
    pub domain: String,
    /// The task's name.
    pub task: String,
    /// The CPU time of each job.
    pub cost_ns: i64,
    /// The time between arrivals.
    pub period_ns: i64,
    /// The deadline.
    pub deadline_ns: i64,
}

/// A change to one demand with which everything can be guaranteed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Relief {
    /// The domain's name.
    pub domain: String,
    /// The task's name.
    pub task: String,
    /// The cost that the task may have.
    pub cost_ns: i64,
    /// The part of its cost that it gives up.
    pub part: f64,
    /// The policy under which that is enough.
    pub policy: String,
}

/// Why there is no design.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Impossible {
    /// The policy; "?" if several may be chosen.
    pub policy: String,
    /// The policies under each of which the demands cannot be guaranteed together.
    pub policies: Vec<String>,
    /// Demands that cannot be guaranteed together, beside the budgets of `given`. Without any one of them, or of these
    /// budgets, the others can.
    pub conflict: Vec<Demand>,
    /// The domains of other budgets in the conflict, which the file gives.
    pub given: Vec<String>,
    /// What the demands in conflict need, in CPUs.
    pub load: f64,
    /// Changes to one demand with which everything can be guaranteed, the smallest first.
    pub reliefs: Vec<Relief>,
    /// The factor by which every cost was to be greater, if that was asked for. Costs are those before it.
    pub room_factor: Option<f64>,
}

/// A demand: the place of its group, that of its domain in there, and that of its task; no task stands for the budget
/// that is given to the domain.
type Place = (usize, usize, Option<usize>);

/// The largest number of demands in conflict for which every relief is worked out. Beyond it, a relief is worked out
/// only if it is no greater than the one before.
const ALL_RELIEFS_MAX: usize = 8;

/// Why a host has no design under any policy that may be chosen. Where only values are asked for, a conflict tells
/// which domains are not to be placed together, and a host of one CPU needs none.
pub(crate) fn impossible(
    host: &Host,
    open: &Open,
    request: Request,
    failed: &[(Policy, &Failed)],
) -> Impossible {
    let failing = Failing::of(host, open, request, failed);
    let conflict = match request.values_only && host.cpus == 1 {
        true => Vec::new(),
        false => failing.conflict(),
    };
    let tasks: Vec<(usize, usize, usize)> = (conflict.iter())
        .filter_map(|&(group, domain, task)| Some((group, domain, task?)))
        .collect();
    let given: Vec<&laxity_host::Domain> = (conflict.iter())
        .filter(|(.., task)| task.is_none())
        .map(|&(group, domain, _)| failing.domain(group, domain))
        .collect();
    let growth = request.growth();
    let before = |cost_ns: i64| (cost_ns as f64 / growth) as i64;
    let needed = |&(group, domain, task): &(usize, usize, usize)| {
        let task = &failing.domain(group, domain).tasks[task];
        task.cost_ns as f64 / task.period_ns as f64
    };
    let load =
        tasks.iter().map(needed).sum::<f64>() + given.iter().copied().map(share).sum::<f64>();
    let mut reliefs: Vec<Relief> = Vec::new();
    let relieved = match request.values_only {
        true => &[],
        false => &tasks[..],
    };
    for &place in relieved {
        let smallest = reliefs.last().filter(|_| tasks.len() > ALL_RELIEFS_MAX);
        let at_most = smallest.map_or(1.0, |relief| relief.part);
        reliefs.extend(failing.relief(place, at_most));
    }
    reliefs.sort_by(|one, other| one.part.total_cmp(&other.part));
    for relief in &mut reliefs {
        relief.cost_ns = before(relief.cost_ns);
    }
    let demand = |&(group, domain, task): &(usize, usize, usize)| {
        let domain = failing.domain(group, domain);
        let task = &domain.tasks[task];
        Demand {
            domain: domain.name.clone(),
            task: task.name.clone(),
            cost_ns: before(task.cost_ns),
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
        }
    };
    let policies = names(failed.iter().map(|(policy, _)| *policy));
    Impossible {
        policy: match &policies[..] {
            [policy] => policy.clone(),
            _ => "?".into(),
        },
        policies,
        load,
        conflict: tasks.iter().map(demand).collect(),
        given: given.iter().map(|domain| domain.name.clone()).collect(),
        reliefs,
        room_factor: Some(growth).filter(|_| matches!(request.aim, Aim::Room(_))),
    }
}

/// Groups of a host that have no values under any policy that may be chosen.
#[derive(Clone)]
struct Failing {
    /// For each policy the groups that failed under some policy, with the costs that were asked for. Different groups
    /// may have failed under different policies, and then only all of them together are impossible.
    policies: Vec<Vec<Group>>,
    effort: Effort,
}

impl Failing {
    fn of(host: &Host, open: &Open, request: Request, failed: &[(Policy, &Failed)]) -> Failing {
        let mut sets: Vec<&Vec<usize>> = (failed.iter())
            .map(|(_, failed)| &failed.group.numbers)
            .collect();
        sets.sort();
        sets.dedup();
        let policies = failed.iter().map(|&(policy, _)| {
            let host = with_policy(host, policy);
            let group = |numbers: &&Vec<usize>| {
                let group = Group::of_domains(&host, open, numbers.to_vec());
                group.grown(request.growth())
            };
            sets.iter().map(group).collect()
        });
        Failing {
            policies: policies.collect(),
            // It depends on the number of groups alone.
            effort: failed
                .first()
                .map_or(Effort::FULL, |(_, failed)| failed.effort),
        }
    }

    /// A domain, which has the same demands under each policy.
    fn domain(&self, group: usize, domain: usize) -> &laxity_host::Domain {
        &self.policies[0][group].host.domains[domain]
    }

    /// All demands: the tasks first, so that budgets that are too much without them are blamed.
    fn demands(&self) -> Vec<Place> {
        let domains = || {
            self.policies[0]
                .iter()
                .enumerate()
                .flat_map(|(number, group)| {
                    let domains = group.host.domains.iter().zip(&group.open).enumerate();
                    domains.map(move |(domain, of)| (number, domain, of))
                })
        };
        let tasks = domains().flat_map(|(group, domain, (of, _))| {
            (0..of.tasks.len()).map(move |task| (group, domain, Some(task)))
        });
        let budgets = domains().filter(|(.., (_, open))| open.is_given());
        tasks
            .chain(budgets.map(|(group, domain, _)| (group, domain, None)))
            .collect()
    }

    /// The first policy under which a design was found for these demands alone.
    fn holds(&self, demands: &[Place], is_little: bool) -> Option<usize> {
        self.policies.par_iter().position_first(|groups| {
            groups.iter().enumerate().all(|(number, group)| {
                let mut only = group.clone();
                retain(&mut only.host.domains, &mut only.open, |domain, task| {
                    demands.contains(&(number, domain, task))
                });
                let effort = match is_little {
                    true => self.effort.least(only.host.domains.len()),
                    false => self.effort,
                };
                only.host.domains.is_empty() || Search::new(&only, effort).is_possible()
            })
        })
    }

    /// Demands that cannot hold together, none of which can be left out.
    fn conflict(&self) -> Vec<Place> {
        // Little effort finds it sooner, and may call a conflict what much effort designs.
        let found = self.filtered(true);
        match self.holds(&found, false) {
            Some(_) => self.filtered(false),
            None => found,
        }
    }

    /// A deletion filter (Chinneck and Dravnieks, 1991), which first leaves out halves and quarters of those that are
    /// left (as QuickXplain of Junker, 2004, does), until each was tried and none can be left out.
    fn filtered(&self, is_little: bool) -> Vec<Place> {
        let mut kept = self.demands();
        let mut size = kept.len().div_ceil(2);
        loop {
            let before = kept.len();
            let mut start = 0;
            while start < kept.len() {
                let end = (start + size).min(kept.len());
                let without = [&kept[..start], &kept[end..]].concat();
                match self.holds(&without, is_little) {
                    Some(_) => start = end,
                    None => kept = without,
                }
            }
            if size == 1 && kept.len() == before {
                return kept;
            }
            size = size.div_ceil(2);
        }
    }

    /// The greatest cost of one task with which all these groups hold under some policy, if the task gives up no more
    /// than this part of it.
    fn relief(&self, (group, domain, task): (usize, usize, usize), at_most: f64) -> Option<Relief> {
        let demands = self.demands();
        let at = |factor: f64| {
            let mut relieved = self.clone();
            for groups in &mut relieved.policies {
                let one = |number, index| match (number, index) == (domain, task) {
                    true => factor,
                    false => 1.0,
                };
                groups[group] = groups[group].scaled(one)?;
            }
            let policy = relieved.holds(&demands, true)?;
            Some((relieved, policy))
        };
        let (mut held, mut failed) = (1.0 - at_most, 1.0);
        let mut found = at(held)?;
        for _ in 0..RELIEF_STEPS {
            let factor = (held + failed) / 2.0;
            match at(factor) {
                Some(less) => (held, found) = (factor, less),
                None => failed = factor,
            }
        }
        let (relieved, policy) = found;
        let of = relieved.domain(group, domain);
        Some(Relief {
            domain: of.name.clone(),
            task: of.tasks[task].name.clone(),
            cost_ns: of.tasks[task].cost_ns,
            part: 1.0 - held,
            policy: relieved.policies[policy][group].host.policy.name().into(),
        })
    }
}
