//! The time of the run, by the CPUs' cycle counters.

use crate::error::XenError;
use crate::input::{Input, long};
use crate::run::XenRun;
use laxity_replay::Clock;

/// A cycle counter counts at 100 MHz at least.
const CYCLE_NS_MAX: u64 = 10;
/// And at 100 GHz at most.
const CYCLES_A_NS_MAX: u64 = 100;

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
        start_ns: traced_from_ns - start_ns,
        cycles: cycles.into(),
        duration_ns: duration_ns.into(),
    })
}
