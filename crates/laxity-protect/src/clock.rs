//! The host's clock.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started. The clock advances while the machine is suspended, so
/// that a lease can run out in that time.
///
/// # Panics
///
/// If the machine has no such clock; Linux has it since 2.6.39.
pub fn now_ns() -> i64 {
    const NS_IN_S: i64 = 1_000_000_000;
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock");
    now.tv_sec() * NS_IN_S + now.tv_nsec()
}
