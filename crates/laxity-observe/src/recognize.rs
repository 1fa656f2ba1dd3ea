//! Periodic tasks that explain when a VCPU was busy, and with how much work.
//!
//! A guest that does not idle while it has work has, in each busy period, the work of exactly the jobs that arrive in
//! it. The work of busy period *i* is the sum over tasks of cost times *n*, the number of its arrivals there; each
//! wake is an arrival of at least one task; and no task arrives while the VCPU sleeps.
//!
//! - Candidates are the evenly spaced times that obey the last rule, from the distances between wakes.
//! - From the shortest period to the longest, a candidate is given the cost that no busy period of its contradicts, or
//!   only few do: the least work per job that is left there. What costs nothing then is no task.
//! - The costs of those that are left are then fitted to the work of all busy periods, in least squares. What the
//!   guest's kernel takes at each wake is fitted as well, where the busy periods tell it: where tasks arrive both alone
//!   and together, or the kernel wakes for itself.
//!
//! Busy periods with hardly any work are a kernel's own, such as its timer's, and need no task. A task that explains
//! nearly nothing which the others do not is dropped.
//!
//! How much work is hardly any, and how exact wakes are, is tried: of [`TRIFLES`] and [`TOLERANCES_NS`] those are taken
//! with which the fewest tasks explain the most ([`Recognized::price`]). Then parts of the candidates' periods may be
//! periods as well, and the period of one of the tasks after the other is left out, as long as what remains has a
//! better explanation.
//!
//! Two sets of tasks that make the same busy periods cannot be told apart. Jobs that always arrive at the same time are
//! one task. Tasks of one period that are evenly spaced in it are one of a part of the period, and what some of them
//! cost more is a task for itself. Tasks of one period and cost are also one of a part of the period if that one's jobs
//! arrive in the same busy periods.

use crate::busy::{Busy, usual_ns};
use crate::candidates::{Candidate, candidates, parts};
use crate::join::join;
use crate::model::{CONTRADICTION, Column, Model, Work, column, take, uncontradicted};
use crate::task::Task;
use schemars::JsonSchema;
use serde::Serialize;

/// How far wakes may be from arrivals: a simulator's and those of kernels that are more and more busy.
const TOLERANCES_NS: [i64; 5] = [500, 5_000, 20_000, 100_000, 500_000];
/// The parts of the usual work of a busy period that may be a trifle: a simulator's, and those of kernels beside tasks
/// that are smaller and smaller.
const TRIFLES: [f64; 5] = [0.001, 0.01, 0.03, 0.1, 0.2];
/// The part of the usual work of a busy period that some jobs of a task cost more than others, at least, where that is
/// a task.
const MORE: f64 = 0.01;
/// The part of a period by which periods of one task differ, as different wakes tell them.
const SAME_PERIOD: f64 = 1e-3;
/// Tasks of one VCPU.
const TASKS_MAX: usize = 24;
/// The part of the wakes that tasks explain at least.
const EXPLAINED_MIN: f64 = 0.95;
/// The part of those wakes that come with an arrival, at least. With fewer, arrivals are busy times by chance.
const HIT_MIN: f64 = 0.6;
/// The part of the work that may differ from what tasks say, at most: the sum over busy periods.
const REST_MAX: f64 = 0.1;
/// A task makes the squares of what is left smaller by so many times their mean at least.
const SIGNIFICANT: f64 = 30.0;
/// The part of the mean work of a busy period that is exactly known.
const EXACT: f64 = 1e-5;
/// One wake in so many is worth a task.
const WAKES_PER_TASK: usize = 50;
/// The part of the work, without a task's explanation, for which one more task would be the better explanation.
const REST_PER_TASK: f64 = 0.005;
/// The same part of the wakes.
const OPEN_PER_TASK: f64 = 0.01;
/// How many tasks cheaper an explanation is for which more is a trifle, or wakes are less exact.
const COARSER: f64 = 0.1;

/// The tasks of a VCPU, and how well they explain it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Recognized {
    /// From the shortest period to the longest.
    pub tasks: Vec<Task>,
    /// The part of the wakes that are arrivals.
    pub explained: f64,
    /// The part of the work that differs from what the tasks and `wake_ns` say.
    pub rest: f64,
    /// The part of the work that is done in busy periods without a job: a kernel's own.
    pub own: f64,
    /// What the guest's kernel takes each time that the VCPU wakes, beside what a job takes; 0 where the busy periods
    /// do not tell it, so that it is part of the costs.
    pub wake_ns: i64,
    /// The first tick of the guest's kernel, where its ticks are known and it wakes for them.
    pub tick_offset_ns: Option<i64>,
}

impl Recognized {
    /// How dear the explanation is, in tasks: those that it has, and those that would be worth having for what it
    /// leaves unexplained.
    fn price(&self) -> f64 {
        self.tasks.len() as f64 + self.open()
    }

    fn open(&self) -> f64 {
        (self.rest + self.own) / REST_PER_TASK + (1.0 - self.explained) / OPEN_PER_TASK
    }

    /// Whether hardly a nanosecond is left unexplained, as of a simulator's trace, so that no other explanation is
    /// needed.
    fn is_whole(&self) -> bool {
        self.open() * REST_PER_TASK < EXACT
    }
}

/// Finds periodic tasks in the busy periods of a VCPU, which are in order, up to `end_ns`. `None` if no tasks explain
/// them: the VCPU never sleeps, or what it does is not periodic. `least_ns` is the least work of a
/// busy period that has a job, where it is known what kernels take: nothing else of that is in busy periods then, and
/// nothing of it is fitted.
pub fn recognize(busy: &[Busy], end_ns: i64, least_ns: Option<f64>) -> Option<Recognized> {
    let work = Work::new(busy, least_ns.is_some());
    let mut best = told(busy, end_ns, &work, least_ns)?;
    if let Some(better) = with_parts(busy, end_ns, &work, &best) {
        best = better;
    }
    while let Some(better) = without_one(busy, &work, &best) {
        best = better;
    }
    best.is_enough().then_some(best.found)
}

/// The best explanation by candidates that distances between wakes tell; the first that explains all. If none explains
/// enough, the cheapest.
fn told(busy: &[Busy], end_ns: i64, work: &Work, least_ns: Option<f64>) -> Option<Explanation> {
    let usual_ns = usual_ns(busy);
    let (mut best, mut cheapest): (Option<Explanation>, Option<Explanation>) = (None, None);
    let mut known_wakes = usize::MAX;
    let mut pools: Vec<Vec<Candidate>> = Vec::new();
    for part in TRIFLES {
        let trifle = (part * usual_ns).max(least_ns.unwrap_or(0.0));
        let is_wake = |busy: &&Busy| busy.work_ns as f64 > trifle;
        // The same wakes have the same candidates.
        let wakes = busy.iter().filter(is_wake).count();
        if std::mem::replace(&mut known_wakes, wakes) != wakes {
            pools.clear();
        }
        for (place, tolerance_ns) in TOLERANCES_NS.into_iter().enumerate() {
            if place == pools.len() {
                pools.push(candidates(busy, end_ns, tolerance_ns, trifle));
            }
            // In an exact trace no busy period contradicts a task, and a single one may tell two apart.
            let is_exact = part == TRIFLES[0] && place == 0;
            let exact = is_exact.then_some(usize::MAX);
            for contradiction in exact.into_iter().chain([CONTRADICTION]) {
                let limits = Limits {
                    tolerance_ns,
                    trifle,
                    least: MORE * usual_ns,
                    contradiction,
                };
                let explanation = explain(busy, work, pools[place].clone(), limits);
                if explanation.is_better_than(best.as_ref()) {
                    best = Some(explanation);
                } else if best.is_none() && explanation.is_below(cheapest.as_ref()) {
                    cheapest = Some(explanation);
                }
                if (best.as_ref()).is_some_and(|best| best.found.is_whole()) {
                    return best;
                }
            }
        }
    }
    best.or(cheapest)
}

/// A better explanation if parts of the periods of its candidates may be periods, too.
fn with_parts(busy: &[Busy], end_ns: i64, work: &Work, best: &Explanation) -> Option<Explanation> {
    let mut pool = parts(busy, end_ns, &best.pool, best.limits.tolerance_ns);
    pool.extend_from_slice(&best.pool);
    let explanation = explain(busy, work, pool, best.limits);
    let is_cheaper = explanation.is_enough() && explanation.is_below(Some(best));
    is_cheaper.then_some(explanation)
}

/// A better explanation without the candidates of the period of one that an explanation uses: where a VCPU is mostly
/// awake, it may be busy whenever a task would arrive that is not there.
fn without_one(busy: &[Busy], work: &Work, best: &Explanation) -> Option<Explanation> {
    best.used_ns.iter().find_map(|used_ns| {
        let is_other =
            |candidate: &&Candidate| (candidate.period_ns - used_ns).abs() > SAME_PERIOD * used_ns;
        let pool = best.pool.iter().filter(is_other).cloned().collect();
        let explanation = explain(busy, work, pool, best.limits);
        explanation
            .is_better_than(Some(best))
            .then_some(explanation)
    })
}

/// Tasks that may explain the busy periods, and what they were found among.
struct Explanation {
    found: Recognized,
    /// The part of the wakes that come with an arrival.
    hit: f64,
    /// The periods of the candidates that are tasks.
    used_ns: Vec<f64>,
    pool: Vec<Candidate>,
    limits: Limits,
}

/// How exact a trace is taken to be.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// How far wakes may be from arrivals.
    tolerance_ns: i64,
    /// Busy periods with no more work, ns, are a kernel's own.
    trifle: f64,
    /// What jobs of one task cost more than others is a task if it is more, ns.
    least: f64,
    /// One busy period in so many may have less work than its jobs cost.
    contradiction: usize,
}

impl Explanation {
    fn is_enough(&self) -> bool {
        let found = &self.found;
        self.hit >= HIT_MIN
            && found.explained >= EXPLAINED_MIN
            && found.rest <= REST_MAX
            && !found.tasks.is_empty()
    }

    fn is_below(&self, other: Option<&Explanation>) -> bool {
        other.is_none_or(|other| self.found.price() + COARSER < other.found.price())
    }

    /// Whether it explains enough, and is cheaper than another, or as cheap with arrivals at more of the wakes.
    fn is_better_than(&self, other: Option<&Explanation>) -> bool {
        let is_as_good =
            |other: &Explanation| self.found.price() <= other.found.price() && self.hit > other.hit;
        self.is_enough() && (self.is_below(other) || other.is_some_and(is_as_good))
    }
}

/// A candidate with its column: the whole busy periods in which its jobs arrive, and how many.
type Taken = (Candidate, Column);

/// Tasks among candidates.
fn explain(busy: &[Busy], work: &Work, mut pool: Vec<Candidate>, limits: Limits) -> Explanation {
    let Limits {
        trifle,
        least,
        contradiction,
        ..
    } = limits;
    let all_work: f64 = work.of.iter().sum();
    let is_wake: Vec<bool> = work.of.iter().map(|&work| work > trifle).collect();
    let wakes = is_wake.iter().filter(|&&is_wake| is_wake).count().max(1);
    let exact = EXACT * all_work / wakes as f64;
    pool.sort_by(|a, b| {
        (a.period_ns.total_cmp(&b.period_ns)).then(b.hits.len().cmp(&a.hits.len()))
    });
    let mut taken: Vec<Taken> = Vec::new();
    let mut left = work.of.clone();
    for candidate in &pool {
        let column = column(busy, candidate);
        let cost = uncontradicted(&column, &left, contradiction);
        if cost < trifle || taken.len() == TASKS_MAX {
            continue;
        }
        take(&mut left, &column, cost);
        taken.push((candidate.clone(), column));
    }
    let model = Model::new(taken.iter().map(|(_, column)| column), work);
    let unexplained = |used: &[usize]| {
        let open = model.without_jobs(&is_wake, used);
        open.into_iter().filter(|&open| open).count()
    };
    let mut used: Vec<usize> = (0..taken.len()).collect();
    let mut costs = model.costs(&used);
    // From the longest period on, what explains next to nothing that the others do not.
    let mut left_squares = model.squares(&costs);
    let mut open = unexplained(&used);
    for index in (0..taken.len()).rev() {
        used.remove(index);
        let without = model.costs(&used);
        let squares = model.squares(&without);
        let free = wakes.saturating_sub(used.len() + 1).max(1) as f64;
        let noise = (left_squares / free).max(exact * exact);
        let then_open = unexplained(&used);
        if (then_open - open) * WAKES_PER_TASK > wakes
            || squares - left_squares > SIGNIFICANT * noise
        {
            used.insert(index, index);
        } else {
            (costs, left_squares, open) = (without, squares, then_open);
        }
    }
    // What takes no more than a wake does is a kernel's own.
    used.retain(|&index| costs[index] >= costs[taken.len()]);
    let costs = model.costs(&used);
    let part = |ns: f64| ns / all_work.max(1.0);
    let rest = part(model.rest(&costs).iter().map(|ns| ns.abs()).sum());
    let own = part(model.without_jobs(&work.of, &used).iter().sum());
    let explained = 1.0 - unexplained(&used) as f64 / wakes as f64;
    let used: Vec<(&Taken, f64)> = (used.iter())
        .map(|&index| (&taken[index], costs[index]))
        .collect();
    let wake_ns = costs[taken.len()].round() as i64;
    let mut tasks = tasks(busy, &used, wake_ns);
    while join(busy, &mut tasks, least) {}
    let mut tasks: Vec<Task> = (tasks.into_iter()).map(Task::rounded).collect();
    tasks.sort_by_key(|task| (task.period_ns, task.offset_ns));
    let mut is_hit = vec![false; busy.len()];
    for &row in used.iter().flat_map(|((candidate, _), _)| &candidate.hits) {
        is_hit[row as usize] = is_wake[row as usize];
    }
    let hit = is_hit.iter().filter(|&&is_hit| is_hit).count() as f64 / wakes as f64;
    let found = Recognized {
        tasks,
        explained,
        rest,
        own,
        wake_ns,
        tick_offset_ns: None,
    };
    Explanation {
        found,
        hit,
        used_ns: (used.iter())
            .map(|((candidate, _), _)| candidate.period_ns)
            .collect(),
        pool,
        limits,
    }
}

/// The time from the first to the last wake of a candidate.
fn told_ns(busy: &[Busy], candidate: &Candidate) -> i64 {
    let mut wakes_ns = (candidate.hits.iter()).map(|&row| busy[row as usize].start_ns);
    let first_ns = wakes_ns.next().unwrap_or(0);
    wakes_ns.next_back().unwrap_or(first_ns) - first_ns
}

/// Tasks of candidates with their costs, where a wake costs `wake_ns`.
fn tasks(busy: &[Busy], used: &[(&Taken, f64)], wake_ns: i64) -> Vec<Task> {
    let mut jobs = vec![0_u32; busy.len()];
    for &(row, times) in used.iter().flat_map(|((_, column), _)| column) {
        jobs[row as usize] += times;
    }
    let mut tasks = Vec::new();
    for ((candidate, column), cost) in used {
        let cost_ns = cost.round() as i64;
        if cost_ns < 1 {
            continue;
        }
        let alone = || {
            (column.iter())
                .filter(|&&(row, times)| times == 1 && jobs[row as usize] == 1)
                .map(|&(row, _)| busy[row as usize].work_ns - wake_ns)
        };
        tasks.push(Task {
            // A wake comes after its arrival, and later where other timers end then, too.
            offset_ns: (candidate.offset_ns - candidate.early_ns).max(0.0).round() as i64,
            period_ns: candidate.period_ns.round() as i64,
            cost_ns,
            alone_ns: alone().min().zip(alone().max()),
            arrivals: candidate.arrivals as u64,
            wakes: candidate.hits.len() as u64,
            told_ns: told_ns(busy, candidate),
            jitter_ns: candidate.jitter_ns.ceil() as i64,
        });
    }
    tasks
}
