//! Distributions of times, in memory that does not grow with them.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// A histogram of times of 0 to an hour, to three digits.
pub struct Times {
    histogram: Histogram<u64>,
    sum_ns: i128,
    max_ns: i64,
    min_ns: i64,
}

/// Quantiles of many times, to three digits; mean, least and greatest are exact. Null where there are no values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Quantiles {
    /// How many there are.
    pub count: u64,
    /// Their mean.
    pub mean: Option<f64>,
    /// The least.
    pub min: Option<i64>,
    /// A quarter is at most this.
    pub p25: Option<i64>,
    /// Median.
    pub p50: Option<i64>,
    /// Three quarters are at most this.
    pub p75: Option<i64>,
    /// 99 % are at most this.
    pub p99: Option<i64>,
    /// 99.9 % are at most this.
    pub p999: Option<i64>,
    /// The greatest.
    pub max: Option<i64>,
}

impl Default for Times {
    fn default() -> Times {
        Times::new()
    }
}

impl Times {
    /// An empty one.
    pub fn new() -> Times {
        const HOUR_NS: u64 = laxity_host::HOUR_NS as u64;
        Times {
            histogram: Histogram::new_with_bounds(1, HOUR_NS, 3).expect("these bounds are right"),
            sum_ns: 0,
            max_ns: 0,
            min_ns: i64::MAX,
        }
    }

    /// Takes in a time; one of more than an hour counts as an hour in the quantiles.
    #[inline]
    pub fn record(&mut self, ns: i64) {
        self.histogram.saturating_record(ns.max(0) as u64);
        self.sum_ns += i128::from(ns);
        self.max_ns = self.max_ns.max(ns);
        self.min_ns = self.min_ns.min(ns);
    }

    /// What is known of them.
    pub fn quantiles(&self) -> Quantiles {
        let count = self.histogram.len();
        let some = count > 0;
        // A bucket's upper end can be above the greatest value.
        let at = |quantile: f64| {
            let ns = self.histogram.value_at_quantile(quantile) as i64;
            some.then_some(ns.min(self.max_ns))
        };
        Quantiles {
            count,
            mean: some.then_some(self.sum_ns as f64 / count as f64),
            min: some.then_some(self.min_ns),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p99: at(0.99),
            p999: at(0.999),
            max: some.then_some(self.max_ns),
        }
    }
}
