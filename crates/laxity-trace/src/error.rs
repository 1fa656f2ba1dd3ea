//! Why a trace cannot be read.

use std::io;

/// Why a trace cannot be read. Records are counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system's word.
    #[error("the trace cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The file does not begin as a trace does.
    #[error("not a Laxity trace: the file does not begin with LAXTRACE")]
    Magic,
    /// The file ends before the first record.
    #[error("the trace ends within its header: the file was cut short")]
    HeaderTruncated,
    /// Another layout of the file.
    #[error("the trace's layout has version {version}; this program reads version 1")]
    Version {
        /// What the file says.
        version: u32,
    },
    /// The metadata is not JSON, or not [`Metadata`](crate::Metadata).
    #[error("the trace's metadata is not valid: {0}")]
    MetadataSyntax(#[from] serde_json::Error),
    /// The metadata contradicts itself or goes beyond what records can say.
    #[error("the trace's metadata is not valid: {reason}")]
    Metadata {
        /// What is wrong.
        reason: String,
    },
    /// The file ends within a record.
    #[error(
        "the trace ends within record {index}, after {bytes} of 24 bytes: the file was cut short"
    )]
    Truncated {
        /// The record.
        index: u64,
        /// How much of it there is.
        bytes: usize,
    },
    /// Bytes that no version 1 writer writes.
    #[error(
        "record {index} of the trace is damaged: kind {kind} with reserved byte {reserved}; kinds are 1 to {}, and the reserved byte is 0",
        crate::Kind::ALL.len()
    )]
    Kind {
        /// The record.
        index: u64,
        /// The byte in the kind's place.
        kind: u8,
        /// The byte after it.
        reserved: u8,
    },
    /// Records are in order of time, and none is before the start.
    #[error("record {index} of the trace goes back in time, from {before_ns} ns to {time_ns} ns")]
    Time {
        /// The record.
        index: u64,
        /// Time of the record before; 0 if it is the first.
        before_ns: i64,
        /// Time of this record.
        time_ns: i64,
    },
    /// A record speaks of something that the metadata does not have, or lacks what its kind needs.
    #[error(
        "record {index} of the trace ({kind}) names {what} {number}, which the metadata does not have"
    )]
    Unknown {
        /// The record.
        index: u64,
        /// Its kind's name.
        kind: &'static str,
        /// What it names: a CPU, domain, VCPU, task or class.
        what: &'static str,
        /// By this number; 65535 is [`NONE`](crate::NONE).
        number: i64,
    },
    /// A window of time that is none.
    #[error(
        "the window from {from_ns} ns to {to_ns} ns is not valid: it must end after it begins and lie within the run, 0 ns to {duration_ns} ns"
    )]
    Window {
        /// Its beginning.
        from_ns: i64,
        /// Its end.
        to_ns: i64,
        /// The end of the run.
        duration_ns: i64,
    },
    /// What was made of the trace could not be written.
    #[error("the output cannot be written: {0}")]
    Write(io::Error),
}
