//! Response times of a task's jobs, in memory that does not grow with the run.

use crate::distribution::Distribution;
use crate::jobs::jobs_due;
use hdrhistogram::Histogram;
use laxity_host::{Host, Task};

/// The most response times of one run that are kept one by one; 8 MiB.
const KEPT_MAX: u64 = 1 << 20;

/// Decimal digits that a histogram keeps of a response time.
const DIGITS: u8 = 3;
/// A histogram gives a response time as at most this much longer than it was, relative to it.
const RELATIVE_ERROR: f64 = 0.001;

/// Response times of a task's completed jobs whose deadline fell within the run, ns.
#[derive(Debug, Clone, PartialEq)]
pub enum Responses {
    /// Each, by job number.
    Each(Vec<i64>),
    /// How many there are of each length.
    Counted(Box<Counted>),
}

/// How many response times there are of each length.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    histogram: Histogram<u64>,
    /// Those that are longer than the deadline.
    late: u64,
    max_ns: i64,
}

/// What a result says of a task's jobs.
pub(crate) struct Summary {
    pub unfinished: u64,
    pub missed: u64,
    pub response_ns: Distribution,
    pub lateness_ns: Distribution,
    pub relative_error: Option<f64>,
}

/// The most jobs that a task may have for its response times to be kept one by one. Tasks with fewer jobs come first,
/// as long as all that are kept fit together.
pub fn kept_jobs_max(host: &Host) -> u64 {
    let tasks = host.domains.iter().flat_map(|domain| &domain.tasks);
    let mut jobs: Vec<u64> = tasks.map(|task| jobs_due(task, host.duration_ns)).collect();
    jobs.sort_unstable();
    let mut kept = 0;
    let first_left_out = jobs.into_iter().find(|jobs| {
        kept += jobs;
        kept > KEPT_MAX
    });
    first_left_out.map_or(u64::MAX, |jobs| jobs - 1)
}

/// What the response times of a run take at most, for its end and for whom they are given to.
pub fn bytes_of_responses(host: &Host) -> u64 {
    /// Beside the one that is filled: those from which quantiles are taken, and bytes for Python.
    const COPIES: u64 = 4;
    const HISTOGRAM_BYTES: u64 = 128 << 10;
    let kept_jobs_max = kept_jobs_max(host);
    let tasks = host.domains.iter().flat_map(|domain| &domain.tasks);
    tasks
        .map(|task| match jobs_due(task, host.duration_ns) {
            jobs if jobs <= kept_jobs_max => 8 * COPIES * jobs,
            _ => HISTOGRAM_BYTES,
        })
        .sum()
}

impl Responses {
    /// For a task with so many jobs, of which those with at most `kept_jobs_max` are kept one by one.
    pub fn new(task: &Task, jobs: u64, kept_jobs_max: u64) -> Responses {
        const CAPACITY_MAX: u64 = 1 << 12;
        if jobs <= kept_jobs_max {
            return Responses::Each(Vec::with_capacity(jobs.min(CAPACITY_MAX) as usize));
        }
        // No response is shorter than the cost, so that finer steps than a thousandth of it would cost memory only.
        let finest_ns = (task.cost_ns as u64 >> 10).max(1);
        let mut histogram = Histogram::new_with_bounds(finest_ns, 2 * finest_ns, DIGITS)
            .expect("the greatest is twice the least");
        histogram.auto(true);
        Responses::Counted(Box::new(Counted {
            histogram,
            late: 0,
            max_ns: 0,
        }))
    }

    /// The next job is complete.
    #[inline]
    pub fn record(&mut self, response_ns: i64, deadline_ns: i64) {
        match self {
            Responses::Each(responses_ns) => responses_ns.push(response_ns),
            Responses::Counted(counted) => counted.record(response_ns, deadline_ns),
        }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        match self {
            Responses::Each(responses_ns) => responses_ns.len() as u64,
            Responses::Counted(counted) => counted.histogram.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest, exactly.
    pub fn max_ns(&self) -> Option<i64> {
        match self {
            Responses::Each(responses_ns) => responses_ns.iter().copied().max(),
            Responses::Counted(counted) => (!self.is_empty()).then_some(counted.max_ns),
        }
    }

    /// What the result says of them. Jobs that are due and not complete at the end of the run count with the time that
    /// they had.
    pub(crate) fn summary(&self, task: &Task, duration_ns: i64) -> Summary {
        let completed = self.len();
        let jobs = jobs_due(task, duration_ns);
        let arrival_ns = |number: u64| task.offset_ns + number as i64 * task.period_ns;
        let unfinished_ns = (completed..jobs).map(|number| duration_ns - arrival_ns(number));
        match self {
            Responses::Each(completed_ns) => {
                let mut responses_ns = completed_ns.clone();
                responses_ns.extend(unfinished_ns);
                // A job that is not complete at the very end of the run, at its deadline, is late all the same.
                let mut lateness_ns: Vec<i64> = completed_ns
                    .iter()
                    .filter(|&&response_ns| response_ns > task.deadline_ns)
                    .chain(&responses_ns[completed_ns.len()..])
                    .map(|response_ns| response_ns - task.deadline_ns)
                    .collect();
                Summary {
                    unfinished: jobs - completed,
                    missed: lateness_ns.len() as u64,
                    response_ns: Distribution::of(&mut responses_ns),
                    lateness_ns: Distribution::of(&mut lateness_ns),
                    relative_error: None,
                }
            }
            Responses::Counted(counted) => {
                let mut counted = counted.clone();
                for response_ns in unfinished_ns {
                    counted.record(response_ns, i64::MAX);
                }
                let missed = counted.late + (jobs - completed);
                // Those that missed are the longest, so that their lateness has the same order.
                let lateness_ns = |ns: i64| (ns - task.deadline_ns).max(0);
                let late = counted.distribution(jobs - missed, missed);
                Summary {
                    unfinished: jobs - completed,
                    missed,
                    response_ns: counted.distribution(0, jobs),
                    lateness_ns: Distribution {
                        p50: late.p50.map(lateness_ns),
                        p99: late.p99.map(lateness_ns),
                        max: late.max.map(lateness_ns),
                    },
                    relative_error: Some(RELATIVE_ERROR),
                }
            }
        }
    }
}

impl Counted {
    fn record(&mut self, response_ns: i64, deadline_ns: i64) {
        self.histogram
            .record(response_ns as u64)
            .expect("the histogram grows as needed");
        self.late += u64::from(response_ns > deadline_ns);
        self.max_ns = self.max_ns.max(response_ns);
    }

    /// The lengths that occur, ascending, and how many response times are of each. A length is the longest of those
    /// that count as one.
    pub fn lengths(&self) -> impl Iterator<Item = (i64, u64)> {
        self.histogram.iter_recorded().map(|step| {
            let ns = step.value_iterated_to() as i64;
            (ns.min(self.max_ns), step.count_since_last_iteration())
        })
    }

    /// Quantiles by nearest rank of `count` response times, from the one on that has `first` shorter ones before it.
    fn distribution(&self, first: u64, count: u64) -> Distribution {
        let at = |percent: u64| {
            let rank = (u128::from(count) * u128::from(percent)).div_ceil(100) as u64;
            let mut seen = 0;
            let mut lengths = self.lengths();
            let found = lengths.find(|(_, jobs)| {
                seen += jobs;
                seen >= first + rank
            });
            found.filter(|_| rank > 0).map(|(ns, _)| ns)
        };
        Distribution {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TASK: Task = Task {
        name: String::new(),
        vcpu: 0,
        cost_ns: 1_000_000,
        period_ns: 10_000_000,
        deadline_ns: 4_000_000,
        offset_ns: 0,
        jitter_ns: 0,
    };

    proptest! {
        #[test]
        fn counted_responses_say_the_same_to_a_thousandth(
            responses_ns in prop::collection::vec((0_u32..4000, 1_000_000_i64..2_000_000).prop_map(|(far, ns)| {
                if far < 40 { ns << (far / 2) } else { ns }
            }), 1..300),
            unfinished in 0_i64..4,
        ) {
            let duration_ns = (responses_ns.len() as i64 + unfinished) * TASK.period_ns;
            let jobs = jobs_due(&TASK, duration_ns);
            let mut each = Responses::new(&TASK, jobs, jobs);
            let mut counted = Responses::new(&TASK, jobs, 0);
            for response_ns in responses_ns.iter().take(jobs as usize) {
                each.record(*response_ns, TASK.deadline_ns);
                counted.record(*response_ns, TASK.deadline_ns);
            }
            prop_assert_eq!((each.len(), each.max_ns()), (counted.len(), counted.max_ns()));
            let (exact, near) = (each.summary(&TASK, duration_ns), counted.summary(&TASK, duration_ns));
            prop_assert_eq!((exact.missed, exact.unfinished), (near.missed, near.unfinished));
            prop_assert_eq!((exact.relative_error, near.relative_error), (None, Some(RELATIVE_ERROR)));
            prop_assert_eq!(exact.response_ns.max, near.response_ns.max);
            prop_assert_eq!(exact.lateness_ns.max, near.lateness_ns.max);
            for (exact, near, before_ns) in [
                (exact.response_ns.p50, near.response_ns.p50, 0),
                (exact.response_ns.p99, near.response_ns.p99, 0),
                (exact.lateness_ns.p50, near.lateness_ns.p50, TASK.deadline_ns),
                (exact.lateness_ns.p99, near.lateness_ns.p99, TASK.deadline_ns),
            ] {
                prop_assert_eq!(exact.is_some(), near.is_some());
                if let (Some(exact), Some(near)) = (exact, near) {
                    let error = (near - exact) as f64 / (exact + before_ns) as f64;
                    prop_assert!((0.0..=RELATIVE_ERROR).contains(&error), "{} for {}", near, exact);
                }
            }
        }
    }
}
