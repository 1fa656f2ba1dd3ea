//! The simulated host: deterministic, event by event.
//!
//! [`run`] takes a host and a trace sink, and gives back the result and the jobs' response times. The
//! policies are those of `policy/`, called as Xen calls them. What happens at one instant, and in which
//! order, is stated in `docs/explanation/policies.md`.

mod caches;
mod distribution;
mod engine;
mod estimate;
mod guest;
mod measured;
mod responses;
mod result;
mod timers;
mod workloads;

pub use distribution::Quantiles;
pub use engine::{Outcome, Watch, metadata, run, run_watched};
pub use estimate::{Estimate, TIME_NS_MAX, estimate};
pub use measured::{Measured, MeasuredError, outcome_of_jobs};
pub use responses::{Counted, Responses};
pub use result::{
    Cpu, Distribution, DomainResult, Engine, Overhead, RunResult, TaskResult, Waits, ratio, schema,
};
pub use workloads::{
    CallsResult, Drops, InterfaceResult, KeptStream, LOST, NicResult, ProtectionResult, Quality,
    RegistrationsResult, Scores, Telephony, Voice, WorstCall, WorstStream,
};
