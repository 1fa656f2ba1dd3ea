//! The reasons for a design: binding deadlines and costs, the growth that it allows, and the cost of other choices.

use laxity_analysis::{is_accepted, is_guaranteed};
use laxity_host::{Host, Open};
use rayon::prelude::*;
use serde::Serialize;

use crate::designs::groups_designed;
use crate::group::{Group, cpu_time, room_of};
use crate::periods::{grain_ns, least_budget_of};
use crate::request::{Aim, POLICIES, Request, prepared, with_policy};
use crate::search::{Effort, TOLERANCE};

/// The largest number of domains for which other choices are worked out.
const COMPARED_MAX: usize = 16;

/// Points of the front between no room and the most.
const FRONT_STEPS: i32 = 4;

/// The relative relaxation that shows whether a deadline or a cost binds: a deadline is a twentieth longer, a cost a
/// twentieth less.
const RELAXED: f64 = 0.05;

/// What limits a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The task's deadline: with a longer one less budget is enough.
    Deadline,
    /// The task's cost: with a lower one less budget is enough.
    Cost,
}

/// Why a domain's budget is not less.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Binding {
    /// The domain's name.
    pub domain: String,
    /// The budget that would not be enough.
    pub too_little_ns: i64,
    /// The first task whose deadline would not be guaranteed with it.
    pub task: String,
    /// Its deadline.
    pub deadline_ns: i64,
    /// The binding limits: each allows a smaller budget if it is relaxed by a twentieth.
    pub limits: Vec<Limit>,
}

/// How much a task may still grow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// The domain's name.
    pub domain: String,
    /// The task's name.
    pub task: String,
    /// Its cost.
    pub cost_ns: i64,
    /// The greatest cost, of this task alone, with which every deadline is guaranteed by the same budgets.
    pub most_ns: i64,
}

/// The cost of another choice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// The choice: a policy, or `any-phase`.
    pub choice: String,
    /// The part of all CPUs' time that its budgets would reserve; `None` if no sufficient budgets were found.
    pub cpu_share: Option<f64>,
}

/// The CPU time that an amount of room to grow costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// The factor by which every cost may be greater.
    pub room_factor: f64,
    /// The part of all CPUs' time that budgets reserve then.
    pub cpu_share: f64,
}

/// What binds each open budget.
pub(crate) fn bindings(groups: &[Group]) -> Vec<Binding> {
    groups
        .par_iter()
        .flat_map_iter(|group| {
            (0..group.host.domains.len()).filter_map(|number| binding(group, number))
        })
        .collect()
}

fn binding(group: &Group, number: usize) -> Option<Binding> {
    if !group.open[number].budget || group.room_factor.is_some() {
        return None;
    }
    let mut host = group.host.clone();
    let budget_ns = host.domains[number].parameters.budget_ns;
    let too_little_ns = budget_ns - grain_ns(host.domains[number].parameters.period_ns);
    if too_little_ns < 1 {
        return None;
    }
    host.domains[number].parameters.budget_ns = too_little_ns;
    let check = laxity_analysis::check(&host);
    let failed = (check.domains[number].tasks.iter()).position(|task| !task.guaranteed)?;
    let task = &group.host.domains[number].tasks[failed];
    // At the same period and priority, so that the smaller budget is a design; by so much less that a search finds
    // one as good.
    let period_ns = host.domains[number].parameters.period_ns;
    let clearly_less_ns = budget_ns - (3.0 * TOLERANCE * period_ns as f64) as i64;
    let is_less = |relax: &dyn Fn(&mut laxity_host::Task)| {
        let mut host = group.host.clone();
        relax(&mut host.domains[number].tasks[failed]);
        least_budget_of(&mut host, number, 1, &mut 0)
            .is_some_and(|less_ns| less_ns < clearly_less_ns)
    };
    let longer = |task: &mut laxity_host::Task| {
        let longer_ns = (task.deadline_ns as f64 * (1.0 + RELAXED)).ceil() as i64;
        task.deadline_ns = longer_ns.min(task.period_ns);
    };
    let cheaper = |task: &mut laxity_host::Task| {
        task.cost_ns = ((task.cost_ns as f64 * (1.0 - RELAXED)) as i64).max(1);
    };
    let mut limits = Vec::new();
    if is_less(&longer) {
        limits.push(Limit::Deadline);
    }
    if is_less(&cheaper) {
        limits.push(Limit::Cost);
    }
    Some(Binding {
        domain: group.host.domains[number].name.clone(),
        too_little_ns,
        task: task.name.clone(),
        deadline_ns: task.deadline_ns,
        limits,
    })
}

/// The growth that the budgets allow each task. A domain's budget protects other domains, so only the deadlines of the
/// domain itself are checked, unless other domains meet theirs only because the domain uses less than its budget.
pub(crate) fn rooms(groups: &[Group]) -> Vec<Room> {
    groups
        .par_iter()
        .flat_map_iter(|group| {
            let mut numbers = 0..group.host.domains.len();
            let is_protected = numbers.all(|number| is_guaranteed(&group.host, number));
            let domains = group.host.domains.iter().enumerate();
            domains.flat_map(move |(number, domain)| {
                (0..domain.tasks.len()).map(move |task| room(group, number, task, is_protected))
            })
        })
        .collect()
}

fn room(group: &Group, number: usize, index: usize, is_protected: bool) -> Room {
    let mut host = group.host.clone();
    let task = &group.host.domains[number].tasks[index];
    let mut holds = |cost_ns: i64| {
        host.domains[number].tasks[index].cost_ns = cost_ns;
        match is_protected {
            true => is_guaranteed(&host, number),
            false => (0..host.domains.len()).all(|domain| is_accepted(&host, domain)),
        }
    };
    let (mut held_ns, mut failed_ns) = (task.cost_ns, task.deadline_ns + 1);
    let fine_ns = (task.cost_ns / 1_000).max(1);
    while failed_ns - held_ns > fine_ns {
        let middle_ns = held_ns + (failed_ns - held_ns) / 2;
        if holds(middle_ns) {
            held_ns = middle_ns;
        } else {
            failed_ns = middle_ns;
        }
    }
    Room {
        domain: group.host.domains[number].name.clone(),
        task: task.name.clone(),
        cost_ns: task.cost_ns,
        most_ns: held_ns,
    }
}

/// The cost of the design under other policies, and with unknown offsets.
pub(crate) fn alternatives(host: &Host, open: &Open, request: Request) -> Vec<Alternative> {
    if host.domains.len() > COMPARED_MAX || request.aim == Aim::MostRoom {
        return Vec::new();
    }
    let any_phase = Request {
        any_phase: true,
        ..request
    };
    let mut choices: Vec<(String, Host)> = POLICIES
        .iter()
        .filter(|&&policy| policy != host.policy)
        .map(|&policy| (policy.name().into(), with_policy(host, policy)))
        .collect();
    if !request.any_phase {
        choices.push(("any-phase".into(), prepared(host, any_phase)));
    }
    choices
        .into_par_iter()
        .map(|(choice, host)| {
            let found = groups_designed(&host, open, request, Effort::FULL.less());
            let cpu_share = found
                .ok()
                .map(|groups| cpu_time(&groups) / f64::from(host.cpus));
            Alternative { choice, cpu_share }
        })
        .collect()
}

/// The least CPU time for several factors of growth, from 1, for which budgets reserve `cpu_share`, to the greatest.
/// Points that are no better than one with more room are left out.
pub(crate) fn front(host: &Host, open: &Open, request: Request, cpu_share: f64) -> Vec<Point> {
    if host.domains.len() > COMPARED_MAX || request.aim != Aim::LeastTime {
        return Vec::new();
    }
    let found = |aim: Aim| {
        let request = Request { aim, ..request };
        groups_designed(host, open, request, Effort::FULL.less()).ok()
    };
    let Some(most_room) = found(Aim::MostRoom).map(|groups| room_of(&groups)) else {
        return Vec::new();
    };
    let mut points: Vec<Point> = (1..=FRONT_STEPS)
        .into_par_iter()
        .filter_map(|step| {
            let room_factor = most_room.powf(f64::from(step) / f64::from(FRONT_STEPS));
            let groups = found(Aim::Room(room_factor))?;
            let cpu_share = cpu_time(&groups) / f64::from(host.cpus);
            Some(Point {
                room_factor,
                cpu_share,
            })
        })
        .collect();
    points.insert(
        0,
        Point {
            room_factor: 1.0,
            cpu_share,
        },
    );
    let mut least = f64::INFINITY;
    points.reverse();
    points.retain(|point| {
        let is_better = point.cpu_share < least;
        least = least.min(point.cpu_share);
        is_better
    });
    points.reverse();
    points
}
