//! The priority of threads by which another host tells whether this one lives.

use std::io;

/// Gives the calling thread the lowest real-time priority, so that no ordinary thread keeps it from the
/// CPU. The threads and processes that it starts are ordinary ones.
///
/// # Errors
///
/// If the system does not allow it, for which the capability `CAP_SYS_NICE` is needed.
pub fn raise() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads the structure alone. Linux takes 0 for the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &lowest) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
