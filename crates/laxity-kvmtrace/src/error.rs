//! Why a dump makes no trace.

use laxity_replay::ReplayError;

/// Why a host's buffers and reports do not make a trace. Offsets are bytes from the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvmError {
    /// Another file.
    #[error("not a dump of Linux's trace buffers: the file does not begin with LAXITYLT")]
    Magic,
    /// Another layout.
    #[error("the dump's layout has version {version}; this program reads version 1")]
    Version {
        /// What the file says.
        version: u32,
    },
    /// Something is missing at the end of the file.
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
    /// A format that does not tell what is needed.
    #[error("the kernel's format of {event} has no {missing}: this kernel is not known")]
    Format {
        /// The event.
        event: &'static str,
        /// What it lacks.
        missing: &'static str,
    },
    /// The buffers were too small.
    #[error(
        "the kernel lost {events} trace events of CPU {cpu}: trace with larger buffers, or for a shorter time"
    )]
    Lost {
        /// How many; 0 if it did not count them.
        events: u64,
        /// The CPU.
        cpu: u16,
    },
    /// Another file in place of a policy's events.
    #[error("not the events of a policy: the file does not begin with LAXITYPT")]
    PolicyMagic,
    /// The memory for a policy's events was too small.
    #[error(
        "{events} events of the policy were lost: trace with more memory, or for a shorter time"
    )]
    PolicyLost {
        /// How many.
        events: u64,
    },
    /// A file of trace-cmd that is not read.
    #[error(
        "files of trace-cmd: {0} are not read; `trace-cmd convert --file-version 6 --compression none` may help, or record again with -C mono"
    )]
    Unsupported(&'static str),
    /// The run is not within the time that was traced.
    #[error(
        "the run, {from_ns} ns to {to_ns} ns of the TSC's clock, is not within the traced time, {traced_from_ns} ns to {traced_to_ns} ns"
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
