//! A second opinion on the policies: a simulated host that is small, slow and obvious.
//!
//! It is written from `docs/explanation/policies.md` alone and shares no code and no data structure with
//! `policy/` or `laxity-sim`, so that the two can be compared job by job on random hosts. Time
//! advances in equal steps of the greatest common divisor of all times in the host; at every step
//! everything is searched for again in plain vectors. Each function is meant to be read beside the
//! paragraph of `docs/explanation/policies.md` that its comment names.
//!
//! What it leaves out it refuses: costs of scheduling, and jitter (which is drawn by whoever
//! simulates, so that two simulators could not agree on it).
#![forbid(unsafe_code)]

mod arinc653;
mod budgets;
mod credit;
mod credit2;
mod difference;
mod eevdf;
mod global;
mod global_servers;
mod guests;
mod null;
mod outcome;
mod random;
mod rtds;
mod rules;
mod run;
mod scheduler_s;

pub use difference::difference;
pub use outcome::{Interval, Job, Outcome, Refusal, VcpuTime};
pub use random::random_host;
pub use run::simulate;
