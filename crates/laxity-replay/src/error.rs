//! Why events and jobs make no trace.

use laxity_run::JobsError;

/// Why the events and jobs of a run do not make a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Events contradict each other: some are missing, or the CPUs' cycle counters differ.
    #[error("byte {offset} of the dump, CPU {cpu} at {time_ns} ns of the run: {reason}")]
    Contradiction {
        /// Where the event is that contradicts those before it.
        offset: usize,
        /// The CPU it happened on.
        cpu: u16,
        /// When.
        time_ns: i64,
        /// What is wrong.
        reason: String,
    },
    /// The jobs' completion times are not of the run.
    #[error(transparent)]
    Jobs(#[from] JobsError),
    /// What was given beside the events is wrong.
    #[error("{0}")]
    Run(String),
}
