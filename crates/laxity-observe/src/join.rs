//! Tasks that nothing tells from one of a shorter period.

use crate::busy::Busy;
use crate::candidates::Candidate;
use crate::model::{CONTRADICTION, column};
use crate::task::Task;

/// Parts of a period that tasks which are evenly spaced in it are looked for.
const PARTS_MAX: usize = 6;
/// One in so many parts of a distance is what evenly spaced tasks may be off: timers that end together are served one
/// after another, always in the same order.
const EVEN: i64 = 256;

/// Makes one task of tasks of one period that are evenly spaced in it, and tasks of what some of them cost more.
/// Returns whether there were any.
pub fn join(busy: &[Busy], tasks: &mut Vec<Task>, trifle: f64) -> bool {
    for first in 0..tasks.len() {
        for parts in 2..=PARTS_MAX {
            let Some(places) = evenly_spaced(tasks, first, parts)
                .or_else(|| as_if_evenly_spaced(busy, tasks, first, parts, trifle))
            else {
                continue;
            };
            let cost_ns = places
                .iter()
                .map(|&place| tasks[place].cost_ns)
                .min()
                .unwrap_or(0);
            let of =
                |value: fn(&Task) -> u64| places.iter().map(|&place| value(&tasks[place])).sum();
            let joined = Task {
                // That of the first: others may begin where its jobs do not arrive.
                offset_ns: tasks[first].offset_ns % (tasks[first].period_ns / parts as i64),
                period_ns: tasks[first].period_ns / parts as i64,
                cost_ns,
                alone_ns: places.iter().find_map(|&place| {
                    tasks[place]
                        .alone_ns
                        .filter(|_| tasks[place].cost_ns == cost_ns)
                }),
                arrivals: of(|task| task.arrivals),
                wakes: of(|task| task.wakes),
                told_ns: (places.iter().map(|&place| tasks[place].told_ns))
                    .max()
                    .unwrap_or(0),
                jitter_ns: places
                    .iter()
                    .map(|&place| tasks[place].jitter_ns)
                    .max()
                    .unwrap_or(0),
            };
            for &place in &places {
                tasks[place].cost_ns -= cost_ns;
                tasks[place].alone_ns = None;
            }
            let mut index = 0;
            tasks.retain(|task| {
                index += 1;
                !places.contains(&(index - 1)) || costs_more(task.cost_ns, cost_ns, trifle)
            });
            tasks.push(joined);
            return true;
        }
    }
    false
}

/// The places of tasks with the period of `first` that follow it at that part of the period each.
fn evenly_spaced(tasks: &[Task], first: usize, parts: usize) -> Option<Vec<usize>> {
    let Task {
        period_ns,
        offset_ns,
        ..
    } = tasks[first];
    let apart_ns = period_ns / parts as i64;
    let places: Vec<usize> = (0..parts as i64)
        .map(|part| {
            let wanted_ns = (offset_ns + part * period_ns / parts as i64) % period_ns;
            tasks.iter().position(|task| {
                let near_ns = 2 * (task.jitter_ns + tasks[first].jitter_ns + 1);
                let near_ns = near_ns.max(apart_ns / EVEN);
                let off_ns = (task.offset_ns - wanted_ns).abs();
                let off_ns = off_ns.min(period_ns - off_ns);
                (task.period_ns - period_ns).abs() * (task.arrivals as i64) <= near_ns
                    && off_ns <= near_ns.min(apart_ns / 8)
            })
        })
        .collect::<Option<_>>()?;
    let distinct: std::collections::BTreeSet<usize> = places.iter().copied().collect();
    (distinct.len() == parts).then_some(places)
}

/// Whether what a job takes beside `cost_ns` is worth a task.
fn costs_more(more_ns: i64, cost_ns: i64, trifle: f64) -> bool {
    more_ns as f64 > trifle.max(0.02 * cost_ns as f64)
}

/// The places of tasks of equal cost with the period of `first` that nothing tells from tasks which are evenly spaced
/// from `first` on: these arrive in the busy periods of those, and each wake of those is that of one of these or of
/// another task. Jobs that always arrive behind others leave no wakes to find their task by, so that it is found as
/// several that begin with these others.
fn as_if_evenly_spaced(
    busy: &[Busy],
    tasks: &[Task],
    first: usize,
    parts: usize,
    trifle: f64,
) -> Option<Vec<usize>> {
    let lead = &tasks[first];
    let alike = |task: &Task| {
        let near_ns = 2 * (task.jitter_ns + lead.jitter_ns + 1);
        let more_ns = (task.cost_ns - lead.cost_ns).abs();
        (task.period_ns - lead.period_ns).abs() * (task.arrivals as i64) <= near_ns
            && !costs_more(more_ns, task.cost_ns.min(lead.cost_ns), trifle)
    };
    let exact_ns = tasks.iter().map(|task| task.jitter_ns).max().unwrap_or(0);
    let is_of = |wake_ns: i64, offset_ns: i64, period_ns: i64| {
        let after_ns = (wake_ns - offset_ns).rem_euclid(period_ns);
        after_ns.min(period_ns - after_ns) <= 2 * (exact_ns + 1)
    };
    let mut places = vec![first];
    for part in 1..parts as i64 {
        let wanted_ns = (lead.offset_ns + part * lead.period_ns / parts as i64) % lead.period_ns;
        let wanted = column(busy, &arrivals(lead, wanted_ns));
        let place = (0..tasks.len()).find(|place| {
            let task = &tasks[*place];
            !places.contains(place)
                && alike(task)
                && are_same(&wanted, &column(busy, &arrivals(task, task.offset_ns)))
        })?;
        places.push(place);
    }
    let joined_ns = lead.period_ns / parts as i64;
    let is_explained = |busy: &Busy| {
        let is_wake_of = |place: &usize| {
            let task = &tasks[*place];
            is_of(busy.start_ns, task.offset_ns, task.period_ns)
        };
        is_of(busy.start_ns, lead.offset_ns, joined_ns)
            || !places.iter().any(is_wake_of)
            || (0..tasks.len()).any(|place| !places.contains(&place) && is_wake_of(&place))
    };
    // An arrival in sleep would wake the VCPU: none is between a block and the wake after it.
    let is_sleep_free = |pair: &[Busy]| {
        let near_ns = 2 * (exact_ns + 1);
        let asleep_ns = pair[0].end_ns + near_ns - lead.offset_ns;
        let wakes_ns = pair[1].start_ns - near_ns - lead.offset_ns;
        wakes_ns <= 0 || (asleep_ns + joined_ns - 1).div_euclid(joined_ns) * joined_ns >= wakes_ns
    };
    let holds = busy.iter().all(is_explained) && busy.windows(2).all(is_sleep_free);
    holds.then_some(places)
}

/// The arrivals of a task if the first were at `offset_ns`.
fn arrivals(task: &Task, offset_ns: i64) -> Candidate {
    Candidate {
        offset_ns: offset_ns as f64,
        period_ns: task.period_ns as f64,
        hits: Vec::new(),
        arrivals: 0,
        jitter_ns: task.jitter_ns as f64,
        early_ns: 0.0,
    }
}

/// Whether two columns are equal but for as many busy periods as may contradict a task.
fn are_same(one: &[(u32, u32)], other: &[(u32, u32)]) -> bool {
    let both = (one.iter())
        .filter(|entry| other.binary_search(entry).is_ok())
        .count();
    let most = one.len().max(other.len());
    (most - both) * CONTRADICTION <= most
}
