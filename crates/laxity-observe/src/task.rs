//! What is known of a periodic task.

use schemars::JsonSchema;
use serde::Serialize;

/// A periodic task.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Task {
    /// The first arrival, ns from the start of the trace, to as many digits as wakes are exact; below the period.
    pub offset_ns: i64,
    /// Between arrivals, to as many digits as wakes tell.
    pub period_ns: i64,
    /// The CPU time of a job, by least squares over all busy periods.
    pub cost_ns: i64,
    /// The least and the most that a job took which was alone in its busy period, without the wake; none where none
    /// was.
    pub alone_ns: Option<(i64, i64)>,
    /// Arrivals within the trace.
    pub arrivals: u64,
    /// Those of them that woke the VCPU.
    pub wakes: u64,
    /// The time from the first of these wakes to the last, which tells how exact the period is.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) told_ns: i64,
    /// How far a wake was from its arrival at most.
    pub jitter_ns: i64,
}

impl Task {
    /// Has offset and period with as few digits as wakes allow: an offset is no later than the earliest wake.
    pub(crate) fn rounded(self) -> Task {
        let periods = (self.told_ns / self.period_ns).max(1);
        let doubt_ns = (2 * self.jitter_ns)
            .unsigned_abs()
            .div_ceil(periods.unsigned_abs()) as i64;
        let period_ns = steps(self.period_ns)
            .map(|step_ns| (self.period_ns + step_ns / 2) / step_ns * step_ns)
            .find(|period_ns| (period_ns - self.period_ns).abs() <= doubt_ns)
            .unwrap_or(self.period_ns);
        let of_offset_ns = steps(self.jitter_ns).next().unwrap_or(1);
        Task {
            offset_ns: self.offset_ns / of_offset_ns * of_offset_ns,
            period_ns,
            ..self
        }
    }
}

/// Powers of ten, from the greatest that is not above a time.
fn steps(ns: i64) -> impl Iterator<Item = i64> {
    let digits = ns.checked_ilog10().unwrap_or(0);
    (0..=digits).rev().map(|digit| 10_i64.pow(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that wakes told for a time, each off by up to `jitter_ns`.
    fn rounded(period_ns: i64, told_ns: i64, jitter_ns: i64) -> (i64, i64) {
        let task = Task {
            offset_ns: 17_345,
            period_ns,
            cost_ns: 1,
            alone_ns: None,
            arrivals: 160,
            wakes: 5,
            told_ns,
            jitter_ns,
        };
        let task = task.rounded();
        (task.offset_ns, task.period_ns)
    }

    #[test]
    fn a_period_may_be_off_by_a_nanosecond_unless_wakes_are_exact() {
        let of = |jitter_ns| rounded(39_999_999, 199 * 39_999_999, jitter_ns).1;
        assert_eq!([61, 0].map(of), [40_000_000, 39_999_999]);
    }

    #[test]
    fn few_wakes_soon_after_each_other_leave_a_period_few_digits() {
        let of = |told_ns| rounded(49_999_670, told_ns, 2_460);
        assert_eq!(of(400_000_000), (17_000, 50_000_000));
        assert_eq!(of(7_900_000_000), (17_000, 49_999_700));
    }
}
