//! The machine's clocks, and sleeping until a time.

use nix::{
    errno::Errno,
    sys::time::TimeSpec,
    time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep},
};

fn read_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock).expect("every Linux has these clocks");
    to_ns(time)
}

/// A kernel time in nanoseconds.
pub fn to_ns(time: TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// CLOCK_MONOTONIC, which all measurements use.
pub fn monotonic_ns() -> i64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> i64 {
    read_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Difference of CLOCK_REALTIME to CLOCK_MONOTONIC now. The kernel stamps packets with the former,
/// which may be set and slewed, so the difference has to be read again for every conversion.
pub fn realtime_offset_ns() -> i64 {
    let before_ns = monotonic_ns();
    let realtime_ns = read_ns(ClockId::CLOCK_REALTIME);
    let after_ns = monotonic_ns();
    realtime_ns - (before_ns + after_ns) / 2
}

/// Sleeps until CLOCK_MONOTONIC is `time_ns`; returns at once if that has passed.
pub fn sleep_until(time_ns: i64) {
    let time = TimeSpec::new(time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let absolute = ClockNanosleepFlags::TIMER_ABSTIME;
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, absolute, &time) {
            Err(Errno::EINTR) => {}
            slept => {
                slept.expect("a time after the start of the machine can be slept to");
                return;
            }
        }
    }
}
