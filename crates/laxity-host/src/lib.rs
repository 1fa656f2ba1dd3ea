//! The host file: types, units, defaults, validation with line and column.
//!
//! [`load`] makes a [`Host`] of the text of a host file, or says what is wrong with it and what
//! would be right. A host that comes out is complete and sound: every value is there, in base
//! units, and fits the others.
//!
//! The way through the crate: `tree` parses TOML and remembers where everything stands, `overrides`
//! changes the tree, `file` has the types of what may be written, `resolve` makes the host of it
//! with the help of `costs`, `draw`, `placement` and `telephony`, and `problem` shows what went wrong.
//!
//! ```
//! let text = r#"
//!     duration = "1 s"
//!     [host]
//!     cpus = 1
//!     policy = "deferrable"
//!     [[domain]]
//!     name = "control"
//!     budget = "2 ms"
//!     period = "10 ms"
//! "#;
//! let host = laxity_host::load(text, "host.toml", &["seed=7", "domain.control.budget=3 ms"])?;
//! assert_eq!(host.seed, 7);
//! assert_eq!(host.domains[0].parameters.budget_ns, 3_000_000);
//!
//! let error = laxity_host::load(text, "host.toml", &["domain.control.budget=30 ms"]).unwrap_err();
//! assert_eq!(error.problems()[0].message(), "`budget` (30 ms) is longer than `period` (10 ms)");
//! # Ok::<(), laxity_host::HostError>(())
//! ```
#![forbid(unsafe_code)]

mod costs;
mod draw;
mod file;
pub mod input;
mod model;
mod overrides;
mod placement;
mod problem;
mod quantities;
mod resolve;
mod suggest;
mod telephony;
mod tree;
mod units;

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::de::DeTable;

pub use model::*;
pub use problem::{HostError, HostProblem};
pub use telephony::{
    Acceptance, Cache, Calls, Codec, Failure, Link, LinkAgreement, LinkSharing, Network,
    NetworkCosts, Nic, PAGE_BYTES, Protect, ProtectMode, Protected, Server, Transport, Workload,
};
pub use units::{HOUR_NS, RUN_DURATION_NS_MAX, format_duration, parse_duration};

use problem::{Problem, Problems, Sources, Span};
use tree::{Node, Reader, Value};

/// The largest host file, in bytes.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// A host file that has been parsed and not yet checked: [`Document::host`] makes hosts of it, with
/// different overrides, without parsing it again.
#[derive(Debug, Clone)]
pub struct Document {
    sources: Sources,
    root: Node,
}

impl Document {
    /// Parses the text of a host file. `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// If it is not text or not TOML, or empty, or above [`FILE_BYTES_MAX`].
    pub fn parse(text: impl AsRef<[u8]>, name: &str) -> Result<Document, HostError> {
        let (sources, root) = parse(text.as_ref(), name, &HOST_FILE)?;
        Ok(Document { sources, root })
    }

    /// The host, with `overrides` ("domain.control.budget=3 ms") applied in their order. An element
    /// of a list is named by its `name` or its number from 0. A value is taken as TOML if it is a
    /// number, a boolean, a list or a table, and as text otherwise.
    ///
    /// # Errors
    ///
    /// All that is wrong with the file and the overrides.
    pub fn host(&self, overrides: &[impl AsRef<str>]) -> Result<Host, HostError> {
        let mut sources = self.sources.clone();
        let mut root = self.root.clone();
        let problems = Problems::default();
        for text in overrides {
            let base = sources.next_base();
            let text = text.as_ref();
            if base + text.len() > 2 * FILE_BYTES_MAX {
                return Err(HostError::whole_file(
                    "--set",
                    "the overrides are too long".into(),
                    format!("write at most {FILE_BYTES_MAX} bytes, or a host file of their own"),
                ));
            }
            sources.overrides.push(text.into());
            overrides::apply(&mut root, text, base, &problems);
        }
        let reader = Reader {
            key: "the file",
            node: &root,
            problems: &problems,
        };
        // The root is a table, and so never wrong as a whole.
        let file = file::File::deserialize(reader).unwrap_or_default();
        let host = resolve::resolve(&file, root.span, &problems);
        if problems.is_empty() {
            Ok(host)
        } else {
            Err(problems.into_error(&sources))
        }
    }
}

/// Makes a host of the text of a host file. `name` is what messages call the file; `overrides` are
/// applied before anything is checked, as [`Document::host`] says.
///
/// # Errors
///
/// All that is wrong, with places and what would be right.
pub fn load(
    text: impl AsRef<[u8]>,
    name: &str,
    overrides: &[impl AsRef<str>],
) -> Result<Host, HostError> {
    Document::parse(text, name)?.host(overrides)
}

/// The JSON Schema (draft 2020-12) of host files, for editors, as indented JSON.
///
/// It knows the keys, the units and the bounds of each value; how values must fit each other is
/// checked by [`load`] only.
pub fn schema() -> String {
    let schema = schemars::schema_for!(file::File);
    // A schema is a tree of JSON values and always writable.
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

/// What a file is for, in messages.
#[derive(Debug, Clone, Copy)]
pub struct FileKind {
    /// "host file"
    pub noun: &'static str,
    /// "a host file"
    pub with_article: &'static str,
    /// What such a file has at least, for who gives an empty one.
    pub least: &'static str,
}

const HOST_FILE: FileKind = FileKind {
    noun: "host file",
    with_article: "a host file",
    least: "a host file has at least a duration, [host] with cpus and policy, and a [[domain]]",
};

/// The door for other files of Laxity's: the host file's types, its way of finding everything that is
/// wrong at once, and its messages.
pub mod reading {
    pub use crate::FileKind;
    pub use crate::file::{List, ListOf, Name};
    pub use crate::problem::{Problem, Problems, Span};
    pub use crate::quantities::{Kind, Quantity};
    pub use crate::suggest::unknown;
    pub use crate::tree::Field;
    pub use crate::units::{Duration, Whole};

    use crate::HostError;
    use crate::tree::Reader;

    /// Reads a file into a `T`, all fields of which are [`Field`]s, and lets `resolve` make of it what
    /// is meant: it gets the file, where what is missing from it is missed, and where to report.
    ///
    /// # Errors
    ///
    /// All that is wrong, as the parser, `T` and `resolve` found it.
    pub fn read<T: Default + for<'t> serde::Deserialize<'t>, R>(
        text: &[u8],
        name: &str,
        kind: &FileKind,
        resolve: impl FnOnce(&T, Span, &Problems) -> R,
    ) -> Result<R, HostError> {
        let (sources, root) = crate::parse(text, name, kind)?;
        let problems = Problems::default();
        let reader = Reader {
            key: "the file",
            node: &root,
            problems: &problems,
        };
        // The root is a table, and so never wrong as a whole.
        let file = T::deserialize(reader).unwrap_or_default();
        let resolved = resolve(&file, root.span, &problems);
        if problems.is_empty() {
            Ok(resolved)
        } else {
            Err(problems.into_error(&sources))
        }
    }
}

fn parse(text: &[u8], name: &str, kind: &FileKind) -> Result<(Sources, Node), HostError> {
    let text = readable_text(text, name, kind)?;
    let sources = Sources {
        name: name.into(),
        text: text.into(),
        overrides: Vec::new(),
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problems = Problems::default();
        if let Some(problem) = no_toml(text, &errors, kind) {
            problems.push(problem);
            return Err(problems.into_error(&sources));
        }
        for error in errors {
            problems.push(syntax_problem(text, &error));
        }
        return Err(problems.into_error(&sources));
    }
    if table.get_ref().is_empty() {
        let message = format!("this {} is empty", kind.noun);
        return Err(HostError::whole_file(name, message, kind.least.into()));
    }
    let root = Node {
        span: Span::new(0..0, 0),
        value: Value::from_table(table.get_ref(), 0),
    };
    Ok((sources, root))
}

/// Text that a person can have written.
fn readable_text<'t>(bytes: &'t [u8], name: &str, kind: &FileKind) -> Result<&'t str, HostError> {
    let help = || format!("{} is text, in TOML and UTF-8", kind.with_article);
    if bytes.len() > FILE_BYTES_MAX {
        return Err(HostError::whole_file(
            name,
            format!("this file is too large: {} bytes", bytes.len()),
            format!("{} has at most {FILE_BYTES_MAX} bytes", kind.with_article),
        ));
    }
    if bytes.contains(&0) {
        let message = "this is a binary file: it has NUL bytes in it".into();
        return Err(HostError::whole_file(name, message, help()));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let (valid, invalid) = bytes.split_at(error.valid_up_to());
        let before = String::from_utf8_lossy(valid);
        HostError::without_excerpt(
            name,
            problem::line_and_column(&before, before.len()),
            format!(
                "this file is not UTF-8: here is the byte 0x{:02x}",
                invalid[0]
            ),
            help(),
        )
    })
}

/// The one problem of a text that is something else, such as prose, in place of all that its parser stumbled over.
fn no_toml(text: &str, errors: &[toml::de::Error], kind: &FileKind) -> Option<Problem> {
    /// Somebody who writes TOML may well make fewer mistakes.
    const ERRORS_MIN: usize = 5;
    /// A text in which one line in this many has a mistake is taken for prose; empty lines do not count.
    const LINES_FOR_ONE: usize = 4;
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    let line_of = |start: usize| {
        text.as_bytes()[..start]
            .iter()
            .filter(|octet| **octet == b'\n')
            .count()
    };
    let starts = errors
        .iter()
        .filter_map(|error| Some(error.span()?.start.min(text.len())));
    let wrong = starts.map(line_of).collect::<BTreeSet<_>>().len();
    let is_other = wrong >= ERRORS_MIN && wrong * LINES_FOR_ONE > lines;
    is_other.then(|| Problem {
        help: Some(format!(
            "{} has [tables] and lines such as key = value",
            kind.with_article
        )),
        ..Problem::new(
            Span::new(errors[0].span().unwrap_or(0..0), 0),
            format!("this is no TOML: {wrong} of {lines} lines are not, and this is the first"),
        )
    })
}

/// The parser's message, in the words of those who write host files where these are known.
fn syntax_problem(text: &str, error: &toml::de::Error) -> Problem {
    let range = error.span().unwrap_or(0..0);
    let span = Span::new(range.clone(), 0);
    let written = text.get(range).unwrap_or_default().trim();
    let (message, help) = match error.message() {
        message if message.starts_with("string values must be quoted") => match written {
            "" => (
                "a value is missing here".into(),
                Some("write one after the equals sign".into()),
            ),
            _ => (
                "this is not a value".into(),
                Some(format!("write it in quotes: {written:?}")),
            ),
        },
        "duplicate key" => (
            format!("the key `{written}` is given twice"),
            Some("keep one of them".into()),
        ),
        message if message.starts_with("key with no value") => (
            "a key without a value".into(),
            Some("write key = value".into()),
        ),
        message => (message.into(), None),
    };
    Problem {
        help,
        ..Problem::new(span, message)
    }
}
