//! The trace of a run: one fixed-size record, the same from every substrate; its file; exporters.
//!
//! # The file
//!
//! Everything is little-endian.
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | 8 bytes | `LAXTRACE` |
//! | 8 | u32 | version of the layout: 1 |
//! | 12 | u32 | *m*, length of the metadata in bytes |
//! | 16 | *m* bytes | the metadata, UTF-8 JSON: [`Metadata`] |
//! | 16 + *m* | 24 bytes each | records, to the end |
//!
//! A record:
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | i64 | `time_ns`, from the start of the run; never goes backwards |
//! | 8 | i64 | `argument`; its meaning stands with each [`Kind`] |
//! | 16 | u16 | `cpu`, 0xFFFF: none |
//! | 18 | u16 | `domain`, its place in the metadata, 0xFFFF: none |
//! | 20 | u16 | `vcpu`, within the domain, 0xFFFF: none |
//! | 22 | u8 | `kind`: [`Kind`] |
//! | 23 | u8 | 0 |
//!
//! In NumPy (and from there in Arrow and Parquet) the records are an array of
//!
//! ```python
//! dtype = numpy.dtype([("time_ns", "<i8"), ("argument", "<i8"), ("cpu", "<u2"),
//!                      ("domain", "<u2"), ("vcpu", "<u2"), ("kind", "u1"), ("reserved", "u1")])
//! records = numpy.memmap(path, dtype, mode="r", offset=16 + m)
//! ```
#![forbid(unsafe_code)]

mod agreement;
mod budget;
mod coarser;
mod deadlines;
mod diff;
mod error;
mod levels;
mod metadata;
mod needs;
pub mod perfetto;
mod reader;
mod record;
#[cfg(test)]
mod sample;
mod seen;
pub mod text;
mod timeline;
mod writer;

pub use agreement::{
    Agreement, AgreementError, DISAGREEMENTS_MAX, Disagreement, DomainAgreement, Quantiles,
    SHIFT_NS_MAX, TaskAgreement, agreement,
};
pub use diff::{DiffError, Difference, FirstDifference, KindCount, MetadataDifference, diff};
pub use error::TraceError;
pub use levels::{Levels, Stretch, levels};
pub use metadata::{CallsMetadata, DomainMetadata, Metadata, TaskMetadata};
pub use needs::{Causes, MERGE_NS, Needs, needs};
pub use reader::Reader;
pub use record::{
    Exit, Kind, NONE, Place, Record, Spent, hop, hop_of, job, spent, spent_of, task_of,
};
pub use seen::{LATE_NS_MAX, OwnWake, Seen, Tie, seen};
pub use timeline::{Budget, JobPoint, Occupancy, Timeline, timeline};
pub use writer::{Off, Sink, Writer};
