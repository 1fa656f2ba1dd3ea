//! Periodic tasks that explain when a VCPU was busy, and with how much work.
//!
//! A guest that does not idle while it has work has, in each busy period, the work of exactly the jobs that arrive in
//! it. The work of busy period *i* is the sum over tasks of cost times *n*, the number of its arrivals there; each
//! wake is an arrival of at least one task; and no task arrives while the VCPU sleeps.
//!
//! - Candidates are the evenly spaced times that obey the last rule, from the distances between wakes.
//! - From the shortest period to the longest, a candidate is given the cost that no busy period of its contradicts: the
//!   least work per job that is left there. What costs nothing then is no task.
//! - The costs of those that are left are then fitted to the work of all busy periods, in least squares.
//!
//! Busy periods with hardly any work are a kernel's own, such as its timer's, and need no task. How much work that is,
//! is found, too: the least of [`TRIFLES`] with which tasks explain the rest, and not by many more tasks than with the
//! next. A task that explains nearly nothing which the others do not is dropped.
//!
//! How exact wakes are is found, too: it is the smallest of [`TOLERANCES_NS`] with which the wakes are explained, and
//! not by many more tasks than with a larger one.
//!
//! Two sets of tasks that make the same busy periods cannot be told apart. Jobs that always arrive at the same time are
//! one task. Tasks of one period that are evenly spaced in it are one of a part of the period, and what some of them
//! cost more is a task for itself. Tasks of one period and cost are also one of a part of the period if that one's jobs
//! arrive in the same busy periods.

use crate::busy::{Busy, usual_ns};
use crate::candidates::{Candidate, candidates};
use crate::squares::fit;
use schemars::JsonSchema;
use serde::Serialize;

/// How far wakes may be from arrivals: a simulator's and those of kernels that are more and more busy.
const TOLERANCES_NS: [i64; 5] = [500, 5_000, 20_000, 100_000, 500_000];
/// The parts of the usual work of a busy period that may be a trifle: a simulator's, and those of kernels beside tasks
/// that are smaller and smaller.
const TRIFLES: [f64; 4] = [0.01, 0.03, 0.1, 0.2];
/// Tasks of one VCPU.
const TASKS_MAX: usize = 24;
/// The part of the wakes that tasks explain at least.
const EXPLAINED_MIN: f64 = 0.95;
/// The part of those wakes that come with an arrival, at least. With fewer, arrivals are busy times by chance.
const HIT_MIN: f64 = 0.6;
/// The part of the work that may differ from what tasks say, at most: the sum over busy periods.
const REST_MAX: f64 = 0.1;
/// One busy period in so many may have less work than its jobs cost.
const CONTRADICTION: usize = 50;
/// A task makes the squares of what is left smaller by so many times their mean at least.
const SIGNIFICANT: f64 = 30.0;
/// The part of the mean work of a busy period that is exactly known.
const EXACT: f64 = 1e-5;
/// One wake in so many is worth a task.
const WAKES_PER_TASK: usize = 50;
/// The number of tasks up to which none is suspected to be a kernel's own work.
const FEW_TASKS: usize = 4;
/// What may be left more of the work by fewer tasks.
const SIMPLER_REST: f64 = 0.03;
/// The part of the wakes that tasks explain at least where others beside a kernel's own work may explain nearly all.
const PERIODIC_MIN: f64 = 0.3;
/// Parts of a period that tasks which are evenly spaced in it are looked for.
const PARTS_MAX: usize = 6;

/// A periodic task.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Task {
    /// The first arrival, ns from the start of the trace; below the period.
    pub offset_ns: i64,
    /// Between arrivals.
    pub period_ns: i64,
    /// The CPU time of a job, by least squares over all busy periods.
    pub cost_ns: i64,
    /// The least and the most that a job took which was alone in its busy period; none where none was.
    pub alone_ns: Option<(i64, i64)>,
    /// Arrivals within the trace.
    pub arrivals: u64,
    /// Those of them that woke the VCPU.
    pub wakes: u64,
    /// How far a wake was from its arrival at most.
    pub jitter_ns: i64,
}

/// The tasks of a VCPU, and how well they explain it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Recognized {
    /// From the shortest period to the longest.
    pub tasks: Vec<Task>,
    /// The part of the wakes that are arrivals.
    pub explained: f64,
    /// The part of the work that differs from what the tasks say.
    pub rest: f64,
}

/// Finds periodic tasks in the busy periods of a VCPU, which are in order, up to `end_ns`. `None` if no tasks explain
/// them: the VCPU never sleeps, or what it does is not periodic.
pub fn recognize(busy: &[Busy], end_ns: i64) -> Option<Recognized> {
    let usual_ns = usual_ns(busy);
    let mut found: Option<Recognized> = None;
    for part in TRIFLES {
        let (explained, next) = beside(busy, end_ns, part * usual_ns);
        found = match (found, next) {
            (Some(found), Some(next)) if is_simpler(&next, &found) => Some(next),
            (found, next) => found.or(next),
        };
        let is_enough = |found: &Recognized| found.tasks.len() <= FEW_TASKS;
        if found.as_ref().is_some_and(is_enough) || explained < PERIODIC_MIN {
            break;
        }
    }
    found
}

/// Whether one set of tasks says nearly as much as another one with far fewer.
fn is_simpler(one: &Recognized, other: &Recognized) -> bool {
    let are_far_fewer = other.tasks.len() > 2 * one.tasks.len() + 2;
    are_far_fewer && one.rest <= other.rest + SIMPLER_REST
}

/// Tasks beside which busy periods with no more work than `trifle` ns are a kernel's own; and the part of the wakes
/// that tasks explain at best, whether that is enough or not.
fn beside(busy: &[Busy], end_ns: i64, trifle: f64) -> (f64, Option<Recognized>) {
    let all: Vec<(f64, Recognized)> = (TOLERANCES_NS.iter())
        .map(|&tolerance_ns| {
            let candidates = candidates(busy, end_ns, tolerance_ns, trifle);
            explain(busy, candidates, trifle)
        })
        .collect();
    let explained = all
        .iter()
        .map(|(_, found)| found.explained)
        .fold(0.0, f64::max);
    let found: Vec<Recognized> = (all.into_iter())
        .filter(|(hit, found)| {
            *hit >= HIT_MIN
                && found.explained >= EXPLAINED_MIN
                && found.rest <= REST_MAX
                && !found.tasks.is_empty()
        })
        .map(|(_, found)| found)
        .collect();
    let fewest = found.iter().map(|found| found.tasks.len()).min();
    let few = |found: &Recognized| fewest.is_some_and(|fewest| found.tasks.len() * 2 <= fewest * 3);
    (explained, found.into_iter().find(few))
}

/// A candidate with its column: the whole busy periods in which its jobs arrive, and how many.
type Taken = (Candidate, Vec<(u32, u32)>);

/// Tasks, and the part of the wakes that come with an arrival.
fn explain(busy: &[Busy], mut pool: Vec<Candidate>, trifle: f64) -> (f64, Recognized) {
    let work: Vec<f64> = (busy.iter())
        .map(|busy| {
            if busy.is_whole {
                busy.work_ns as f64
            } else {
                0.0
            }
        })
        .collect();
    let all_work: f64 = work.iter().sum();
    let is_wake: Vec<bool> = work.iter().map(|&work| work > trifle).collect();
    let wakes = is_wake.iter().filter(|&&is_wake| is_wake).count().max(1);
    let exact = EXACT * all_work / wakes as f64;
    pool.sort_by(|a, b| {
        (a.period_ns.total_cmp(&b.period_ns)).then(b.hits.len().cmp(&a.hits.len()))
    });
    let mut taken: Vec<Taken> = Vec::new();
    let mut left = work.clone();
    for candidate in pool {
        let column = column(busy, &candidate);
        let cost = uncontradicted(&column, &left);
        if cost < trifle || taken.len() == TASKS_MAX {
            continue;
        }
        for &(row, times) in &column {
            left[row as usize] -= f64::from(times) * cost;
        }
        taken.push((candidate, column));
    }
    let mut costs = refit(&taken, &work);
    // From the longest period on, what explains next to nothing that the others do not.
    let mut left_squares = squares(&taken, &costs, &work);
    for index in (0..taken.len()).rev() {
        let open = unexplained(&is_wake, &taken);
        let one = taken.remove(index);
        let without = refit(&taken, &work);
        let squares = squares(&taken, &without, &work);
        let free = wakes.saturating_sub(taken.len() + 1).max(1) as f64;
        let noise = (left_squares / free).max(exact * exact);
        let more_open = unexplained(&is_wake, &taken) - open;
        if more_open * WAKES_PER_TASK > wakes || squares - left_squares > SIGNIFICANT * noise {
            taken.insert(index, one);
        } else {
            (costs, left_squares) = (without, squares);
        }
    }
    let left = rest(&taken, &costs, &work);
    let rest = left.iter().map(|ns| ns.abs()).sum::<f64>() / all_work.max(1.0);
    let explained = 1.0 - unexplained(&is_wake, &taken) as f64 / wakes as f64;
    let mut tasks = tasks(busy, &taken, &costs);
    while join(busy, &mut tasks, trifle) {}
    tasks.sort_by_key(|task| (task.period_ns, task.offset_ns));
    let mut is_hit = vec![false; busy.len()];
    for &row in taken.iter().flat_map(|(candidate, _)| &candidate.hits) {
        is_hit[row as usize] = is_wake[row as usize];
    }
    let hit = is_hit.iter().filter(|&&is_hit| is_hit).count() as f64 / wakes as f64;
    let found = Recognized {
        tasks,
        explained,
        rest,
    };
    (hit, found)
}

/// The sum of the squares of what is left of the work.
fn squares(taken: &[Taken], costs: &[f64], work: &[f64]) -> f64 {
    rest(taken, costs, work).iter().map(|ns| ns * ns).sum()
}

fn rest(taken: &[Taken], costs: &[f64], work: &[f64]) -> Vec<f64> {
    let mut left = work.to_vec();
    for ((_, column), cost) in taken.iter().zip(costs) {
        for &(row, times) in column {
            left[row as usize] -= f64::from(times) * cost;
        }
    }
    left
}

fn refit(taken: &[Taken], work: &[f64]) -> Vec<f64> {
    let columns: Vec<_> = taken.iter().map(|(_, column)| column.clone()).collect();
    fit(&columns, work)
}

/// The most that a job can cost so that all but a few busy periods have the work for all of theirs.
fn uncontradicted(column: &[(u32, u32)], left: &[f64]) -> f64 {
    let mut costs: Vec<f64> = (column.iter())
        .map(|&(row, times)| left[row as usize] / f64::from(times))
        .collect();
    let place = costs.len() / CONTRADICTION;
    if costs.is_empty() {
        return 0.0;
    }
    *costs.select_nth_unstable_by(place, f64::total_cmp).1
}

/// The number of the wakes after which no job arrives up to the next block.
fn unexplained(is_wake: &[bool], taken: &[Taken]) -> usize {
    let mut is_open = is_wake.to_vec();
    for &(row, _) in taken.iter().flat_map(|(_, column)| column) {
        is_open[row as usize] = false;
    }
    is_open.into_iter().filter(|&open| open).count()
}

/// Makes one task of tasks of one period that are evenly spaced in it, and tasks of what some of them cost more.
/// Returns whether there were any.
fn join(busy: &[Busy], tasks: &mut Vec<Task>, trifle: f64) -> bool {
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

/// The whole busy periods in which the candidate's jobs arrive, and how many.
fn column(busy: &[Busy], candidate: &Candidate) -> Vec<(u32, u32)> {
    let mut column: Vec<(u32, u32)> = Vec::new();
    let slack_ns = candidate.jitter_ns + 1.0;
    let mut number = 0.0;
    for (index, busy) in (0..).zip(busy) {
        // An arrival near the wake belongs to the busy period that begins there.
        let ends_ns = busy.end_ns as f64 - slack_ns;
        let first = number;
        // One less than there are, for what rounding does.
        number = f64::max(
            number,
            ((ends_ns - candidate.offset_ns) / candidate.period_ns).floor() - 1.0,
        );
        while candidate.offset_ns + number * candidate.period_ns < ends_ns {
            number += 1.0;
        }
        let times = (number - first) as u32;
        if times > 0 && busy.is_whole {
            column.push((index, times));
        }
    }
    column
}

fn tasks(busy: &[Busy], taken: &[Taken], costs: &[f64]) -> Vec<Task> {
    let mut jobs = vec![0_u32; busy.len()];
    for &(row, times) in taken.iter().flat_map(|(_, column)| column) {
        jobs[row as usize] += times;
    }
    let mut tasks = Vec::new();
    for ((candidate, column), &cost) in taken.iter().zip(costs) {
        let cost_ns = cost.round() as i64;
        if cost_ns < 1 {
            continue;
        }
        let alone = || {
            (column.iter())
                .filter(|&&(row, times)| times == 1 && jobs[row as usize] == 1)
                .map(|&(row, _)| busy[row as usize].work_ns)
        };
        tasks.push(Task {
            offset_ns: candidate.offset_ns.round() as i64,
            period_ns: candidate.period_ns.round() as i64,
            cost_ns,
            alone_ns: alone().min().zip(alone().max()),
            arrivals: candidate.arrivals as u64,
            wakes: candidate.hits.len() as u64,
            jitter_ns: candidate.jitter_ns.ceil() as i64,
        });
    }
    tasks
}
