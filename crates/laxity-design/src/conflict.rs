//! Demands that cannot hold together, and the smallest relief.

use laxity_host::Host;
use serde::Serialize;

use crate::designs::Failed;
use crate::group::Group;
use crate::request::{Aim, Request};
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
}

/// Why there is no design.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Impossible {
    /// The policy, of several that which is tried first.
    pub policy: String,
    /// Demands that cannot be guaranteed together. Without any one of them, the others can. None where budgets that
    /// are given are too much without any demand.
    pub conflict: Vec<Demand>,
    /// The part of its CPU's time that the demands in conflict need.
    pub load: f64,
    /// Changes to one demand with which everything can be guaranteed, the smallest first.
    pub reliefs: Vec<Relief>,
    /// The names of the domains that share the CPUs of the conflict.
    pub group: Vec<String>,
    /// The factor by which every cost was to be greater, if that was asked for. Costs are those before it.
    pub room_factor: Option<f64>,
}

/// A task by its domain's place in the group, and its own place there.
type Place = (usize, usize);

/// Beyond so many demands in conflict, a relief is worked out only if it is no greater than the one before.
const ALL_RELIEFS_MAX: usize = 8;

/// Why the group of a host has no design. Where only values are asked for, a conflict tells which domains are not to be
/// placed together, and a host of one CPU needs none.
pub(crate) fn impossible(failed: &Failed, host: &Host, request: Request) -> Impossible {
    let (group, effort) = (&failed.group, failed.effort);
    let conflict = match request.values_only && host.cpus == 1 {
        true => Vec::new(),
        false => conflict(group, effort),
    };
    let growth = request.growth();
    let before = |cost_ns: i64| (cost_ns as f64 / growth) as i64;
    let load = (conflict.iter())
        .map(|&(domain, task)| &group.host.domains[domain].tasks[task])
        .map(|task| task.cost_ns as f64 / task.period_ns as f64)
        .sum();
    let mut demands: Vec<Demand> = conflict.iter().map(|&place| demand(group, place)).collect();
    let mut reliefs: Vec<Relief> = Vec::new();
    let relieved = match request.values_only {
        true => &[],
        false => &conflict[..],
    };
    for &place in relieved {
        let smallest = reliefs.last().filter(|_| conflict.len() > ALL_RELIEFS_MAX);
        let at_most = smallest.map_or(1.0, |relief| relief.part);
        reliefs.extend(relief(group, place, at_most, effort));
    }
    reliefs.sort_by(|one, other| one.part.total_cmp(&other.part));
    for demand in &mut demands {
        demand.cost_ns = before(demand.cost_ns);
    }
    for relief in &mut reliefs {
        relief.cost_ns = before(relief.cost_ns);
    }
    Impossible {
        policy: group.host.policy.name().into(),
        load,
        conflict: demands,
        reliefs,
        group: (group.host.domains.iter())
            .map(|domain| domain.name.clone())
            .collect(),
        room_factor: Some(growth).filter(|_| matches!(request.aim, Aim::Room(_))),
    }
}

fn demand(group: &Group, (domain, task): Place) -> Demand {
    let domain = &group.host.domains[domain];
    let task = &domain.tasks[task];
    Demand {
        domain: domain.name.clone(),
        task: task.name.clone(),
        cost_ns: task.cost_ns,
        period_ns: task.period_ns,
        deadline_ns: task.deadline_ns,
    }
}

/// Demands that cannot hold together, none of which can be left out: a deletion filter (Chinneck and Dravnieks, 1991),
/// which first leaves out halves and quarters of those that are left (as QuickXplain of Junker, 2004, does). None if
/// not even the budgets that are given hold together.
fn conflict(group: &Group, effort: Effort) -> Vec<Place> {
    if !holds(group, &[], effort) {
        return Vec::new();
    }
    // Little effort finds it sooner, and may call a conflict what much effort designs.
    let found = filtered(group, effort.least(group.host.domains.len()));
    if holds(group, &found, effort) {
        return filtered(group, effort);
    }
    found
}

/// The deletion filter, with an effort for each question.
fn filtered(group: &Group, effort: Effort) -> Vec<Place> {
    let mut kept: Vec<Place> = (group.host.domains.iter().enumerate())
        .flat_map(|(domain, of)| (0..of.tasks.len()).map(move |task| (domain, task)))
        .collect();
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < kept.len() {
            let end = (start + size).min(kept.len());
            let without: Vec<Place> = (kept[..start].iter())
                .chain(&kept[end..])
                .copied()
                .collect();
            if kept.len() > 1 && !holds(group, &without, effort) {
                kept = without;
            } else {
                start = end;
            }
        }
        size /= 2;
    }
    kept
}

/// Whether a design was found for these tasks alone. Domains whose budget is open and which have none of them are left
/// out.
fn holds(group: &Group, tasks: &[Place], effort: Effort) -> bool {
    let mut only = group.clone();
    for (number, domain) in only.host.domains.iter_mut().enumerate() {
        let mut index = 0;
        domain.tasks.retain(|_| {
            index += 1;
            tasks.contains(&(number, index - 1))
        });
    }
    let stays: Vec<bool> = (only.host.domains.iter().zip(&only.open))
        .map(|(domain, open)| !domain.tasks.is_empty() || !open.budget)
        .collect();
    let mut stay = stays.iter();
    only.host.domains.retain(|_| stay.next() == Some(&true));
    let mut stay = stays.iter();
    only.open.retain(|_| stay.next() == Some(&true));
    only.host.domains.is_empty() || Search::new(&only, effort).is_possible()
}

/// The greatest cost of one task with which the whole group holds, if the task gives up no more than this part of it.
fn relief(group: &Group, place: Place, at_most: f64, effort: Effort) -> Option<Relief> {
    let at = |factor: f64| {
        let one = |domain, task| if (domain, task) == place { factor } else { 1.0 };
        group.scaled(one)
    };
    let holds = |factor: f64| {
        let effort = effort.least(group.host.domains.len());
        at(factor).is_some_and(|group| Search::new(&group, effort).is_possible())
    };
    let (mut held, mut failed) = (1.0 - at_most, 1.0);
    if !holds(held) {
        return None;
    }
    for _ in 0..RELIEF_STEPS {
        let factor = (held + failed) / 2.0;
        if holds(factor) {
            held = factor;
        } else {
            failed = factor;
        }
    }
    let relieved = at(held)?;
    let (domain, task) = (
        &relieved.host.domains[place.0],
        &relieved.host.domains[place.0].tasks[place.1],
    );
    Some(Relief {
        domain: domain.name.clone(),
        task: task.name.clone(),
        cost_ns: task.cost_ns,
        part: 1.0 - held,
    })
}
