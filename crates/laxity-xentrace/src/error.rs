//! Why a dump makes no trace.

use laxity_replay::ReplayError;

/// Why a run's buffers and reports do not make a trace. Offsets are bytes from the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XenError {
    /// Another file.
    #[error("not a dump of Xen's trace buffers: the file does not begin with LAXITYXT")]
    Magic,
    /// Another layout.
    #[error("the dump's layout has version {version}; this program reads version 1")]
    Version {
        /// What the file says.
        version: u32,
    },
    /// Something is missing at the end of the file or of a CPU's buffer.
    #[error("the dump is cut short at byte {offset}: {what} is not whole")]
    Truncated {
        /// Where what is not whole begins.
        offset: usize,
        /// What it is.
        what: &'static str,
    },
    /// Something that no such dump has.
    #[error("the dump is damaged at byte {offset}: {reason}")]
    Damaged {
        /// Where.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// The buffers were too small.
    #[error(
        "Xen lost {records} trace records of CPU {cpu} (byte {offset} of the dump): trace with larger buffers, fewer events or for a shorter time"
    )]
    Lost {
        /// How many.
        records: u32,
        /// The CPU.
        cpu: u16,
        /// Where the records should be.
        offset: usize,
    },
    /// The run is not within the time that was traced.
    #[error(
        "the run, {from_ns} ns to {to_ns} ns of the real-time clock, is not within the traced time, {traced_from_ns} ns to {traced_to_ns} ns"
    )]
    Window {
        /// The start of the run.
        from_ns: i128,
        /// The end of the run.
        to_ns: i128,
        /// When tracing began.
        traced_from_ns: i128,
        /// When it ended.
        traced_to_ns: i128,
    },
    /// The events or jobs make no trace.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// What was given beside the dump is wrong.
    #[error("{0}")]
    Run(String),
}
