//! Costs that explain the work of busy periods: those of tasks, and of each wake.

use crate::busy::{Busy, usual_ns};
use crate::candidates::Candidate;
use crate::squares::Sums;

/// The part of the usual work up to which busy periods count alike.
const LIGHT: f64 = 0.05;
/// What a wake costs is known if it is so many times its standard error.
const CERTAIN: f64 = 5.0;
/// How many times the least work of a busy period a wake costs at most, since that varies.
const LEAST_WORK: f64 = 2.0;
/// One busy period in so many may have less work than its jobs cost, where a trace is not exact.
pub const CONTRADICTION: usize = 50;

/// The whole busy periods in which a task's jobs arrive, and how many do.
pub type Column = Vec<(u32, u32)>;

/// The work of busy periods.
pub struct Work {
    /// ns; 0 where only a part of it is known.
    pub of: Vec<f64>,
    /// How much each counts: the more it is, the more it varies, with ticks and with how long jobs take.
    weights: Vec<f64>,
    /// Each whole busy period has one wake, if its cost is to be found.
    wakes: Column,
}

impl Work {
    /// Wakes have no column if what they cost is known, and no part of the work.
    pub fn new(busy: &[Busy], is_known: bool) -> Work {
        let known = |busy: &Busy| {
            if busy.is_whole {
                busy.work_ns as f64
            } else {
                0.0
            }
        };
        let of: Vec<f64> = busy.iter().map(known).collect();
        let usual_ns = usual_ns(busy);
        let weight = |of: &f64| (usual_ns / of.max(LIGHT * usual_ns)).powi(2);
        let whole = (0..)
            .zip(busy)
            .filter(|(_, busy)| busy.is_whole && !is_known);
        Work {
            weights: of.iter().map(weight).collect(),
            wakes: whole.map(|(row, _)| (row, 1)).collect(),
            of,
        }
    }
}

/// Work as a sum over jobs and wakes.
pub struct Model<'a> {
    work: &'a Work,
    /// Those of tasks, and last that of wakes.
    columns: Vec<&'a [(u32, u32)]>,
    sums: Sums,
}

impl<'a> Model<'a> {
    pub fn new(tasks: impl Iterator<Item = &'a Column>, work: &'a Work) -> Model<'a> {
        let columns: Vec<_> = tasks.chain([&work.wakes]).map(Vec::as_slice).collect();
        let sums = Sums::new(&columns, &work.of, &work.weights);
        Model {
            work,
            columns,
            sums,
        }
    }

    /// The costs of tasks, 0 for those that are not used, and last that of a wake, 0 where nothing tells it.
    pub fn costs(&self, used: &[usize]) -> Vec<f64> {
        let wake = self.columns.len() - 1;
        let fit = self.sums.fit(&[used, &[wake]].concat());
        let free = self.work.of.len().saturating_sub(used.len() + 1).max(1) as f64;
        let error_ns = (self.squares(&fit.found) / free / fit.last_weight).sqrt();
        let least_ns = uncontradicted(&self.work.wakes, &self.work.of, CONTRADICTION);
        let most_ns = LEAST_WORK * least_ns;
        if fit.found[wake] > CERTAIN * error_ns && fit.found[wake] <= most_ns {
            return fit.found;
        }
        self.sums.fit(used).found
    }

    /// What is left of the work of each busy period, ns.
    pub fn rest(&self, costs: &[f64]) -> Vec<f64> {
        let mut left = self.work.of.clone();
        for (column, &cost) in self.columns.iter().zip(costs) {
            if cost != 0.0 {
                take(&mut left, column, cost);
            }
        }
        left
    }

    /// The sum of the squares of what is left.
    pub fn squares(&self, costs: &[f64]) -> f64 {
        (self.rest(costs).iter().zip(&self.work.weights))
            .map(|(ns, weight)| weight * ns * ns)
            .sum()
    }

    /// What has no job of these tasks keeps its value, and is 0 otherwise.
    pub fn without_jobs<T: Copy + Default>(&self, of: &[T], used: &[usize]) -> Vec<T> {
        let mut left = of.to_vec();
        for &(row, _) in used.iter().flat_map(|&index| self.columns[index]) {
            left[row as usize] = T::default();
        }
        left
    }
}

/// Takes the cost of jobs from the work of busy periods.
pub fn take(left: &mut [f64], column: &[(u32, u32)], cost: f64) {
    for &(row, times) in column {
        left[row as usize] -= f64::from(times) * cost;
    }
}

/// The most that a job can cost so that all busy periods but one in `contradiction` have the work for all of theirs.
pub fn uncontradicted(column: &[(u32, u32)], left: &[f64], contradiction: usize) -> f64 {
    let mut costs: Vec<f64> = (column.iter())
        .map(|&(row, times)| left[row as usize] / f64::from(times))
        .collect();
    let place = costs.len() / contradiction;
    if costs.is_empty() {
        return 0.0;
    }
    *costs.select_nth_unstable_by(place, f64::total_cmp).1
}

/// The whole busy periods in which the candidate's jobs arrive, and how many.
pub fn column(busy: &[Busy], candidate: &Candidate) -> Column {
    let mut column = Column::new();
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
