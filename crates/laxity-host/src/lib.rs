//! The host file: types, units, defaults, validation with line and column.
//!
//! [`load`] makes a [`Host`] of the text of a host file, or returns its problems with their remedies. A host that comes
//! out is complete and sound: every value is there, in base units, and fits the others.
//!
//! The way through the crate: a file of `sections` has the table of a section, its model, and its checks. `file` lists
//! the sections, and `order` resolves them one after the other and checks what must fit between them.
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

mod admission;
mod checks;
mod cost;
mod document;
mod facts;
mod file;
mod fleet;
mod open;
mod order;
mod placement;
mod profiles;
mod quantities;
mod sections;
mod windows;

use laxity_config::FileError;

pub use cost::{Cost, PiecewiseLinear};
pub use document::Document;
pub use file::{Host, Network};
pub use fleet::{Fleet, FleetGuest, FleetHost};
pub use laxity_policies::{Parameter, Parameters, Part, Policy, Settings, Substrate};
pub use open::{Open, OpenDomain};
pub use profiles::{Profile, ProfileOf};
pub use quantities::ArrivalRate;
pub use sections::caches::Cache;
pub use sections::calls::{ANSWER_WAITS_NS, Acceptance, Calls, Codec, Playout, Transport};
pub use sections::costs::Costs;
pub use sections::domain::{Domain, GuestScheduler, Vcpu};
pub use sections::link::{Link, LinkAgreement, LinkSharing};
pub use sections::network::NetworkCosts;
pub use sections::nic::Nic;
pub use sections::protect::{Failure, PAGE_BYTES, Protect, ProtectMode, Protected};
pub use sections::run::RUN_DURATION_NS_MAX;
pub use sections::tasks::Task;
pub use sections::tick::Tick;
pub use sections::workload::{Server, Workload};

/// The longest time in a scheduling parameter (`LAXITY_DURATION_MAX`).
pub const HOUR_NS: i64 = laxity_config::HOUR_NS;

/// Makes a host of the text of a host file. `name` is what messages call the file; `overrides` are
/// applied before anything is checked, as [`Document::host`] says.
///
/// # Errors
///
/// All problems, each with its place and a remedy.
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
    text_of(&schemars::schema_for!(file::File))
}

/// The JSON Schema (draft 2020-12) of fleet files, for editors, as indented JSON.
pub fn fleet_schema() -> String {
    text_of(&schemars::schema_for!(fleet::FleetTable))
}

/// The JSON Schema (draft 2020-12) of a [`Host`] as JSON, as indented JSON.
pub fn resolved_schema() -> String {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    text_of(&settings.into_generator().into_root_schema_for::<Host>())
}

/// A schema is a tree of JSON values and always writable.
fn text_of(schema: &schemars::Schema) -> String {
    serde_json::to_string_pretty(schema).unwrap_or_default()
}
