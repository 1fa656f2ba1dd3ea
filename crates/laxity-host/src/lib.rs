//! The host file: types, units, defaults, validation with line and column.
//!
//! [`load`] makes a [`Host`] of the text of a host file, or says what is wrong with it and what
//! would be right. A host that comes out is complete and sound: every value is there, in base
//! units, and fits the others.
//!
//! The way through the crate: `file` has the types of what may be written, `resolve` makes the host of it
//! with the help of `costs`, `draw`, `placement` and `telephony`.
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
//! # Ok::<(), laxity_config::FileError>(())
//! ```
#![forbid(unsafe_code)]

mod costs;
mod draw;
mod file;
mod model;
mod placement;
mod quantities;
mod resolve;
mod telephony;

use laxity_config::{FileError, FileKind};

pub use file::RUN_DURATION_NS_MAX;
pub use laxity_policies::{Parameters, Policy, Settings};
pub use model::*;
pub use telephony::{
    Acceptance, Cache, Calls, Codec, Failure, Link, LinkAgreement, LinkSharing, Network,
    NetworkCosts, Nic, PAGE_BYTES, Protect, ProtectMode, Protected, Server, Transport, Workload,
};

/// The longest time in a scheduling parameter (`LAXITY_DURATION_MAX`).
pub const HOUR_NS: i64 = laxity_config::HOUR_NS;

const HOST_FILE: FileKind = FileKind {
    noun: "host file",
    with_article: "a host file",
    least: "a host file has at least a duration, [host] with cpus and policy, and a [[domain]]",
};

/// A host file that has been parsed and not yet checked: [`Document::host`] makes hosts of it, with
/// different overrides, without parsing it again.
#[derive(Debug, Clone)]
pub struct Document(laxity_config::Document);

impl Document {
    /// Parses the text of a host file. `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// If it is not text or not TOML, or empty, or too large.
    pub fn parse(text: impl AsRef<[u8]>, name: &str) -> Result<Document, FileError> {
        laxity_config::Document::parse(text.as_ref(), name, &HOST_FILE).map(Document)
    }

    /// The host, with `overrides` ("domain.control.budget=3 ms") applied in their order, as
    /// [`laxity_config::Document::read`] says.
    ///
    /// # Errors
    ///
    /// All that is wrong with the file and the overrides.
    pub fn host(&self, overrides: &[impl AsRef<str>]) -> Result<Host, FileError> {
        self.0.read(overrides, resolve::resolve)
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
) -> Result<Host, FileError> {
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
