//! Work that Python may interrupt.

use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often Python hears of progress and may interrupt.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The stack of a thread that works, as large as that of a process usually is.
const STACK_BYTES: usize = 8 << 20;

/// Does work that has no way to be cancelled on a thread of its own, leaves Python's lock to others, and listens for
/// interrupts meanwhile. After one, nobody hears of the work any more: it ends when it is done, or with the process.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (finished, wait) = channel();
    let worker = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let result = work();
            // Nobody waits after an interrupt.
            let _ = finished.send(());
            result
        })?;
    py.detach(move || {
        while wait.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            Python::attach(|py| py.check_signals())?;
        }
        (worker.join()).map_err(|panic| std::panic::resume_unwind(panic))
    })
}
