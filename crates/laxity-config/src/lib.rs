//! Configuration files in TOML: every value with its place, quantities with their units, suggestions for what is
//! misspelt, overrides from the command line, and every mistake in one report.
//!
//! [`Document::parse`] makes a tree of a file's text (`tree`), in which everything knows its place. [`Document::read`]
//! applies overrides to the tree (`overrides`) and reads it into a type whose fields are [`Field`]s; what is wrong is
//! collected in [`Problems`] and shown together (`problem`). `units`, `quantities` and `values` have the types of
//! values, `open` knows values that are left open and writes values into a file, `pieces` makes documents of parts of
//! others, [`kinds`] tells one kind of file from another, `suggest` finds what a misspelt word may mean, and [`input`]
//! opens the files that somebody named.
//!
//! ```
//! use laxity_config::{Document, Duration, Field, FileKind, MINUTE_NS};
//!
//! #[derive(Default, serde::Deserialize)]
//! #[serde(default, deny_unknown_fields, expecting = "a table")]
//! struct File {
//!     interval: Field<Duration<1, MINUTE_NS>>,
//! }
//!
//! let kind = FileKind { noun: "file", with_article: "a file", least: "a file has an interval", open: None,
//!     list: None, readers: "everybody reads it" };
//! let document = Document::parse(b"interval = \"20 ms\"", "a.toml", &kind)?;
//! let ns = |overrides: &[&str]| document.read(overrides, |file: &File, _, _| file.interval.value.map(|time| time.ns));
//! assert_eq!(ns(&[])?, Some(20_000_000));
//! assert_eq!(ns(&["interval=1 s"])?, Some(1_000_000_000));
//!
//! let error = ns(&["intervall=1 s"]).unwrap_err();
//! assert_eq!(error.problems()[0].help(), Some("did you mean `interval`?"));
//! # Ok::<(), laxity_config::FileError>(())
//! ```
#![forbid(unsafe_code)]

mod document;
pub mod input;
pub mod kinds;
mod open;
mod overrides;
mod pieces;
mod problem;
mod quantities;
pub mod suggest;
mod tree;
mod units;
mod values;

pub use document::{Document, FILE_BYTES_MAX, read};
pub use kinds::FileKind;
pub use open::Open;
pub use pieces::Piece;
pub use problem::{FileError, FileProblem, Problem, Problems, Span};
pub use quantities::{Measured, Part, Quantity};
pub use tree::Field;
pub use units::{
    Duration, HOUR_NS, MICROSECOND_NS, MILLISECOND_NS, MINUTE_NS, PERCENT_PATTERN, SECOND_NS,
    Whole, format_duration, parse_duration, parse_percent,
};
pub use values::{Flag, List, ListOf, Name, written};
