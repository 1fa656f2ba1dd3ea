//! Times as they are measured, in a few numbers.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times, kept to some digits.
#[derive(Debug, Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
}

/// A distribution in a few numbers, in nanoseconds. A quantile is the smallest recorded time that this share of the
/// times does not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many times there are.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// A quarter is no longer.
    pub p25_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// Three quarters are no longer.
    pub p75_ns: u64,
    /// 99 of 100 are no longer.
    pub p99_ns: u64,
    /// 999 of 1,000 are no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self::with_digits(3)
    }
}

impl Distribution {
    /// Of no times yet, kept to two digits: where there is one for each of thousands of streams. It takes 20 KiB or so,
    /// and one of three digits ten times that.
    pub fn coarse() -> Distribution {
        Self::with_digits(2)
    }

    fn with_digits(digits: u8) -> Distribution {
        Distribution {
            histogram: Histogram::new(digits).expect("so few digits are possible"),
        }
    }

    /// Takes in `count` times of `time_ns`. What is below 0 counts as 0: clocks are read one after the other, so that
    /// a packet may seem to arrive some nanoseconds before it was sent.
    pub fn record(&mut self, time_ns: i64, count: u64) {
        self.histogram
            .record_n(time_ns.max(0) as u64, count)
            .expect("a histogram that resizes itself holds every time");
    }

    /// Takes in all of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        self.histogram
            .add(&other.histogram)
            .expect("a histogram that resizes itself holds every time");
    }

    /// The few numbers; nothing if there are no times.
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
