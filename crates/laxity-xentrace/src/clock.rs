//! The conversion of the CPUs' cycle counters to the time of the run.

use crate::error::XenError;
use crate::input::{Input, long};
use crate::run::XenRun;

/// A cycle counter counts at 100 MHz at least.
const CYCLE_NS_MAX: u64 = 10;
/// And at 100 GHz at most.
const CYCLES_A_NS_MAX: u64 = 100;

/// From cycles to the time of the run, on a straight line.
pub struct Clock {
    pub cycles_start: u64,
    pub cycles: i128,
    /// From the start of tracing to its end.
    pub duration_ns: i128,
    /// When tracing began, from the start of the run.
    pub start_ns: i128,
}

impl Clock {
    /// From the start of the run, rounded down; `None` beyond all time.
    pub fn time_ns(&self, cycles: u64) -> Option<i64> {
        let cycles = i128::from(cycles) - i128::from(self.cycles_start);
        let since_ns = (cycles * self.duration_ns).div_euclid(self.cycles);
        i64::try_from(self.start_ns + since_ns).ok()
    }

    /// To the nearest.
    pub fn span_ns(&self, cycles: u32) -> i64 {
        ((i128::from(cycles) * self.duration_ns + self.cycles / 2) / self.cycles) as i64
    }
}

/// The line through the dump's two pairs.
pub fn read(input: &mut Input, run: &XenRun) -> Result<Clock, XenError> {
    let offset = input.offset;
    let words: [u32; 8] = input.words("the header")?;
    let [cycles_start, from_ns, cycles_stop, to_ns] =
        [0, 2, 4, 6].map(|at| long(words[at], words[at + 1]));
    let damaged = |reason: &str| XenError::Damaged {
        offset,
        reason: reason.into(),
    };
    if cycles_stop <= cycles_start || to_ns <= from_ns {
        return Err(damaged("the clocks did not go on while it was traced"));
    }
    if i64::try_from(to_ns).is_err() {
        return Err(damaged("the real-time clock is beyond all time"));
    }
    let (cycles, duration_ns) = (cycles_stop - cycles_start, to_ns - from_ns);
    if cycles < duration_ns / CYCLE_NS_MAX || cycles / CYCLES_A_NS_MAX > duration_ns {
        return Err(damaged("no CPU counts cycles at such a rate"));
    }
    let (traced_from_ns, traced_to_ns) = (i128::from(from_ns), i128::from(to_ns));
    let start_ns = i128::from(run.start_realtime_ns);
    let end_ns = start_ns + i128::from(run.jobs.metadata.duration_ns);
    if start_ns < traced_from_ns || end_ns > traced_to_ns {
        return Err(XenError::Window {
            from_ns: start_ns,
            to_ns: end_ns,
            traced_from_ns,
            traced_to_ns,
        });
    }
    Ok(Clock {
        cycles_start,
        cycles: cycles.into(),
        duration_ns: duration_ns.into(),
        start_ns: traced_from_ns - start_ns,
    })
}
