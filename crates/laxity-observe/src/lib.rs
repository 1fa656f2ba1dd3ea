//! The workloads of a host's virtual machines, derived only from the times at which VCPUs ran.
//!
//! A hypervisor sees when a VCPU wakes, runs and blocks, and not what its guest works on. From one wake to the next
//! block the VCPU is *busy*; a busy period does the work of all jobs that arrive within it, in whatever order.
//! [`observe`] finds tasks that explain the busy periods: periods and offsets from the wakes, costs from the work of
//! the busy periods. [`completions_ns`] then tells when the jobs of known tasks were complete.
//!
//! Records of jobs in the trace are not looked at. All is held in memory.
#![forbid(unsafe_code)]

mod busy;
mod candidates;
mod costs;
mod instants;
mod jobs;
mod join;
mod kernel;
mod model;
mod observe;
mod recognize;
mod squares;
mod task;

pub use busy::{Busy, Seen, seen};
pub use costs::Costs;
pub use jobs::{completions_ns, with_jobs};
pub use kernel::Kernel;
pub use observe::{Domain, Load, Observation, Vcpu, observe};
pub use recognize::{Recognized, recognize};
pub use task::Task;
