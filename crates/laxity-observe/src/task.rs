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
    /// How far a wake was from its arrival at most.
    pub jitter_ns: i64,
}

impl Task {
    /// Leaves out the digits of offset and period of which wakes tell nothing.
    pub(crate) fn without_doubtful_digits(self) -> Task {
        let doubtful = |ns: i64| ns.checked_ilog10().map_or(1, |digits| 10_i64.pow(digits));
        let of_offset_ns = doubtful(10 * self.jitter_ns);
        let of_period_ns = doubtful(2 * self.jitter_ns / self.arrivals.max(1) as i64);
        let period_ns = self.period_ns + of_period_ns / 2;
        Task {
            offset_ns: self.offset_ns / of_offset_ns * of_offset_ns,
            period_ns: period_ns / of_period_ns * of_period_ns,
            ..self
        }
    }
}
