//! The conversion of a counter to time.

/// From cycles of a counter to time, on a straight line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// A count of the counter.
    pub cycles_start: u64,
    /// The time at that count, ns.
    pub start_ns: i128,
    /// In so many cycles, more than 0,
    pub cycles: i128,
    /// the time passes by so much, ns.
    pub duration_ns: i128,
}

impl Clock {
    /// A counter that counts ns.
    pub const NS: Clock = Clock {
        cycles_start: 0,
        start_ns: 0,
        cycles: 1,
        duration_ns: 1,
    };

    /// The time at a count, ns, rounded down.
    pub fn ns(&self, cycles: u64) -> i128 {
        let since = i128::from(cycles) - i128::from(self.cycles_start);
        self.start_ns + (since * self.duration_ns).div_euclid(self.cycles)
    }

    /// The same; `None` beyond all time.
    pub fn time_ns(&self, cycles: u64) -> Option<i64> {
        i64::try_from(self.ns(cycles)).ok()
    }

    /// How long so many cycles take, ns, to the nearest.
    pub fn span_ns(&self, cycles: u32) -> i64 {
        ((i128::from(cycles) * self.duration_ns + self.cycles / 2) / self.cycles) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_on_the_line_to_the_ns() {
        let clock = Clock {
            cycles_start: 1000,
            cycles: 3_000_000_000,
            duration_ns: 1_000_000_000,
            start_ns: -5,
        };
        assert_eq!(clock.time_ns(1000), Some(-5));
        assert_eq!(clock.time_ns(1002), Some(-5));
        assert_eq!(clock.time_ns(1003), Some(-4));
        assert_eq!(clock.time_ns(999), Some(-6));
        assert_eq!((clock.span_ns(4), clock.span_ns(5)), (1, 2));
        let steep = Clock { cycles: 1, ..clock };
        assert_eq!(steep.time_ns(u64::MAX), None);
    }
}
