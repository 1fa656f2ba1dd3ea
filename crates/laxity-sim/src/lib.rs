//! The simulated host: deterministic, event by event.
//!
//! [`run`] takes a host and a trace sink, and gives back the result and every job's response time. The
//! policies are those of `policy/`, called as Xen calls them. What happens at one instant, and in which
//! order, is stated in `docs/policies.md`.

mod engine;
mod guest;
mod measured;
mod result;
mod timers;

pub use engine::{Outcome, Watch, metadata, run, run_watched};
pub use measured::{Measured, MeasuredError, outcome_of_jobs};
pub use result::{
    Distribution, DomainResult, Engine, Overhead, RunResult, TaskResult, ratio, schema,
};
