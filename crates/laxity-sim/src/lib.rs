//! The simulated host: deterministic, event by event.
//!
//! [`run`] takes a host and a trace sink, and gives back the result and the jobs' response times. The
//! policies are those of `policy/`, called as Xen calls them. What happens at one instant, and in which
//! order, is stated in `docs/policies.md`.

mod bursts;
mod caches;
mod engine;
mod estimate;
mod guest;
mod network;
mod random;
mod timers;
mod workloads;

pub use engine::{Watch, run, run_watched};
pub use estimate::{Estimate, TIME_NS_MAX, estimate};
