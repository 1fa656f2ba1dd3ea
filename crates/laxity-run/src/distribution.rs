//! Distributions of times, exact or in memory that does not grow with them; and shares.

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

/// Quantiles, by nearest rank: each is a value that occurred. Null where there are no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Distribution {
    /// Median.
    pub p50: Option<i64>,
    /// 99 % are at most this.
    pub p99: Option<i64>,
    /// The greatest.
    pub max: Option<i64>,
}

impl Distribution {
    /// The quantiles of values in any order, which are reordered.
    pub fn of(values: &mut [i64]) -> Distribution {
        let mut selected = 0;
        // Nearest rank: the least value with at least this share of all values at or below it. It is not among those
        // before the value of a lower rank.
        let mut at = |percent: usize| {
            let place = (values.len() * percent).div_ceil(100).checked_sub(1)?;
            let (_, value, _) = values[selected..].select_nth_unstable(place - selected);
            selected = place;
            Some(*value)
        };
        Distribution {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// `part` / `whole`; 0 of nothing.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let mut values: Vec<i64> = (1..=200).rev().collect();
        let of = Distribution::of(&mut values);
        assert_eq!((of.p50, of.p99, of.max), (Some(100), Some(198), Some(200)));
        let of = Distribution::of(&mut [7]);
        assert_eq!((of.p50, of.p99, of.max), (Some(7), Some(7), Some(7)));
        let of = Distribution::of(&mut []);
        assert_eq!((of.p50, of.p99, of.max), (None, None, None));
    }
}
