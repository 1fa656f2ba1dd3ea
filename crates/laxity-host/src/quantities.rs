//! Times, rates, sizes and numbers of the host file, with their bounds.

use laxity_config::{Duration, HOUR_NS, MILLISECOND_NS, Quantity, Whole};
use schemars::JsonSchema;
use serde::Serialize;

/// A time above 0, up to an hour.
pub(crate) type Positive<const USUAL_NS: i64 = MILLISECOND_NS> = Duration<1, HOUR_NS, USUAL_NS>;
/// A time up to an hour, which may be 0.
pub(crate) type NotNegative<const USUAL_NS: i64 = MILLISECOND_NS> = Duration<0, HOUR_NS, USUAL_NS>;

/// The most CPUs that a host may have.
pub(crate) const CPUS_MAX: i64 = 1024;

/// The most VCPUs that a domain may have.
pub(crate) const VCPUS_MAX: i64 = 4096;

/// The number of a CPU.
pub(crate) type CpuNumber = Whole<0, { CPUS_MAX - 1 }>;

/// A rate of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitRate {
    pub bit_s: i64,
}

impl Quantity for BitRate {
    const WHAT: &'static str = "a rate of bits";
    const EXAMPLE: &'static str = "1 Gbit/s";
    const UNITS: &'static [(&'static str, i64)] = &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
    ];
    const MIN: (i64, &'static str) = (1_000, "1 kbit/s");
    const MAX: (i64, &'static str) = (1_000_000_000_000, "1000 Gbit/s");

    fn of(bit_s: i64) -> BitRate {
        BitRate { bit_s }
    }
}

/// A size in memory or of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub bytes: i64,
}

impl Quantity for Size {
    const WHAT: &'static str = "a size";
    const EXAMPLE: &'static str = "4 MiB";
    const UNITS: &'static [(&'static str, i64)] = &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    const MIN: (i64, &'static str) = (64, "64 B");
    const MAX: (i64, &'static str) = (1 << 40, "1024 GiB");

    fn of(bytes: i64) -> Size {
        Size { bytes }
    }
}

/// The rate of arrivals that come evenly spaced, such as calls: 1 an hour to 10,000 a second.
///
/// The base unit makes one an hour, one a minute and one a second whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ArrivalRate {
    /// Arrivals in an hour, in millionths; at least 1,000,000.
    pub millionths_per_hour: i64,
}

impl ArrivalRate {
    const MILLIONTHS: i64 = 1_000_000;

    /// Arrivals in a second.
    pub fn per_s(self) -> f64 {
        self.millionths_per_hour as f64 / 3_600e6
    }

    /// When arrival `number` (from 0) comes, in nanoseconds from the start, rounded down.
    pub fn arrival_ns(self, number: u64) -> i64 {
        const HOUR_MILLIONTHS_NS: u128 = HOUR_NS as u128 * ArrivalRate::MILLIONTHS as u128;
        (u128::from(number) * HOUR_MILLIONTHS_NS / self.millionths_per_hour as u128) as i64
    }
}

impl Quantity for ArrivalRate {
    const WHAT: &'static str = "how often something happens";
    const EXAMPLE: &'static str = "4 /s";
    const UNITS: &'static [(&'static str, i64)] = &[
        ("/h", ArrivalRate::MILLIONTHS),
        ("/min", 60 * ArrivalRate::MILLIONTHS),
        ("/s", 3_600 * ArrivalRate::MILLIONTHS),
    ];
    const MIN: (i64, &'static str) = (ArrivalRate::MILLIONTHS, "1 /h");
    const MAX: (i64, &'static str) = (36_000_000 * ArrivalRate::MILLIONTHS, "10000 /s");

    fn of(millionths_per_hour: i64) -> ArrivalRate {
        ArrivalRate {
            millionths_per_hour,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_evenly_spaced() {
        let four_per_s = ArrivalRate::of(4 * 3_600 * ArrivalRate::MILLIONTHS);
        let arrivals = [0, 1, 2, 4].map(|number| four_per_s.arrival_ns(number));
        assert_eq!(arrivals, [0, 250_000_000, 500_000_000, 1_000_000_000]);
        assert_eq!(four_per_s.per_s(), 4.0);
        let hourly = ArrivalRate::of(ArrivalRate::MIN.0);
        assert_eq!(hourly.arrival_ns(3), 3 * HOUR_NS);
    }
}
