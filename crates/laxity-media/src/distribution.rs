//! Distributions of measured times.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// A histogram of times with a fixed number of digits.
#[derive(Debug, Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
}

/// Summary of a distribution, in nanoseconds. A quantile is the smallest recorded time that at
/// least this share of the times does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Quantiles {
    /// Number of times.
    pub count: u64,
    /// The shortest time.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The first quartile.
    pub p25_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The third quartile.
    pub p75_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self::with_digits(3)
    }
}

impl Distribution {
    /// An empty distribution with two digits, for use by the thousand: it takes about 20 KiB, where
    /// three digits take ten times as much.
    pub fn coarse() -> Distribution {
        Self::with_digits(2)
    }

    fn with_digits(digits: u8) -> Distribution {
        Distribution {
            histogram: Histogram::new(digits).expect("so few digits are possible"),
        }
    }

    /// Records `count` times of `time_ns`. Negative times count as 0: clocks are read one after the
    /// other, so a packet may seem to arrive some nanoseconds before it was sent.
    pub fn record(&mut self, time_ns: i64, count: u64) {
        self.histogram
            .record_n(time_ns.max(0) as u64, count)
            .expect("a histogram that resizes itself holds every time");
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        self.histogram
            .add(&other.histogram)
            .expect("a histogram that resizes itself holds every time");
    }

    /// The summary; `None` without any times.
    pub fn quantiles(&self) -> Option<Quantiles> {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        (!self.histogram.is_empty()).then(|| Quantiles {
            count: self.histogram.len(),
            min_ns: self.histogram.min(),
            mean_ns: self.histogram.mean(),
            p25_ns: at(0.25),
            p50_ns: at(0.5),
            p75_ns: at(0.75),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max(),
        })
    }
}
