//! Runs that leave Python's lock to others, tell how far they are, and end when Python is interrupted.

use crate::border::host_error;
use crate::interrupts::{INTERVAL, interruptible};
use laxity_config::FileError;
use laxity_host::{Document, Host};
use laxity_policy::Refused;
use laxity_run::Outcome;
use laxity_sim::{Estimate, Watch};
use laxity_trace::{Off, Seen, Writer};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use rayon::prelude::*;
use std::fs::File;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Why a run came to nothing.
enum Failure {
    Host(FileError),
    Refused(Refused),
    Io(String),
    Cancelled,
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Host(error) => host_error(&error),
            Failure::Refused(refused) => PyValueError::new_err(refused.to_string()),
            Failure::Io(message) => PyOSError::new_err(message),
            Failure::Cancelled => PyKeyboardInterrupt::new_err(()),
        }
    }
}

/// Does `work` on another thread; meanwhile calls `progress(done())` and listens for interrupts, on which it
/// calls `cancel` and waits for the work to notice.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    done: impl Fn() -> i64 + Sync,
    cancel: impl Fn() + Sync,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let mut interrupted = None;
    let result = py.detach(|| {
        let (finished, wait) = channel();
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let result = work();
                // The receiver outlives this thread.
                let _ = finished.send(());
                result
            });
            while wait.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if interrupted.is_some() {
                    continue;
                }
                let told = Python::attach(|py| {
                    py.check_signals()?;
                    progress.map_or(Ok(()), |call| call.call1(py, (done(),)).map(drop))
                });
                if let Err(error) = told {
                    interrupted = Some(error);
                    cancel();
                }
            }
            match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    });
    match interrupted {
        Some(error) => Err(error),
        None => Ok(result?),
    }
}

fn untraced(host: &Host, seen: &Seen, watch: &Watch) -> Result<Outcome, Failure> {
    match laxity_sim::run_watched(host, seen, Off, watch) {
        Ok(Some((outcome, _))) => Ok(outcome),
        Ok(None) => Err(Failure::Cancelled),
        Err(refused) => Err(Failure::Refused(refused)),
    }
}

fn traced(host: &Host, seen: &Seen, path: &str, watch: &Watch) -> Result<Outcome, Failure> {
    let io = |error: std::io::Error| Failure::Io(format!("{path}: {error}"));
    let file = File::create(path).map_err(io)?;
    let writer = Writer::new(file, &laxity_run::metadata(host, "sim")).map_err(io)?;
    match laxity_sim::run_watched(host, seen, writer, watch) {
        Ok(Some((outcome, writer))) => writer.finish().map_err(io).map(|()| outcome),
        Ok(None) => Err(Failure::Cancelled),
        Err(refused) => Err(Failure::Refused(refused)),
    }
}

/// One run; `seen` as [`laxity_sim::run_watched`] has them.
pub fn one(
    py: Python<'_>,
    host: &Host,
    seen: &Seen,
    trace: Option<&str>,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Outcome> {
    let watch = Watch::default();
    let work = || match trace {
        Some(path) => traced(host, seen, path, &watch),
        None => untraced(host, seen, &watch),
    };
    // A thread takes long beside such a run, which is over before Python would hear of it.
    if trace.is_none() && u128::from(laxity_sim::estimate(host).cpu_ns) < INTERVAL.as_nanos() {
        return Ok(py.detach(work)?);
    }
    watched(
        py,
        progress,
        || watch.now_ns.load(Ordering::Relaxed),
        || watch.cancelled.store(true, Ordering::Relaxed),
        work,
    )
}

/// What all of these runs take. Each host is checked.
pub fn estimate(
    py: Python<'_>,
    document: &Arc<Document>,
    overrides: Vec<Vec<String>>,
) -> PyResult<Estimate> {
    let document = Arc::clone(document);
    let of_run = move |overrides: &Vec<String>| {
        let host = document.host(overrides)?;
        Ok(laxity_sim::estimate(&host))
    };
    let estimate = interruptible(py, move || {
        let each = overrides.par_iter().map(of_run);
        each.try_reduce(Estimate::default, |a, b| Ok(a.and(b)))
    })?;
    estimate.map_err(|error: FileError| host_error(&error))
}

/// Many runs, on that many threads or else on all CPUs, in their order: what `keep` takes of each one's result.
/// [`estimate`] comes before it, which checks all hosts.
pub fn many<T: Send>(
    py: Python<'_>,
    document: &Document,
    overrides: &[Vec<String>],
    progress: Option<&Py<PyAny>>,
    threads: Option<NonZeroUsize>,
    keep: impl Fn(&Outcome) -> serde_json::Result<T> + Sync,
) -> PyResult<Vec<T>> {
    let pool = threads
        .map(|threads| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads.get())
                .build()
        })
        .transpose()
        .map_err(|error| PyOSError::new_err(error.to_string()))?;
    let done = AtomicUsize::new(0);
    let cancelled = AtomicBool::new(false);
    watched(
        py,
        progress,
        || done.load(Ordering::Relaxed) as i64,
        || cancelled.store(true, Ordering::Relaxed),
        || {
            let all = || {
                overrides
                    .par_iter()
                    // Each run can be taken by a CPU that has none left. Runs of one sweep take times that differ by a
                    // factor of ten and more, and a longer part would keep one CPU busy at the end and the others idle.
                    .with_max_len(1)
                    .map(|overrides| {
                        if cancelled.load(Ordering::Relaxed) {
                            return Err(Failure::Cancelled);
                        }
                        // Resolved again rather than kept, as there may be many.
                        let host = document.host(overrides).map_err(Failure::Host)?;
                        let outcome = untraced(&host, &Seen::default(), &Watch::default())?;
                        done.fetch_add(1, Ordering::Relaxed);
                        keep(&outcome).map_err(|error| Failure::Io(error.to_string()))
                    })
                    .collect()
            };
            match &pool {
                Some(pool) => pool.install(all),
                None => all(),
            }
        },
    )
}
