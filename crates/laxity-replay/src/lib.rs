//! Converts a kernel's events on its CPUs, and guests' reports of their jobs, to the project's own trace.
//!
//! - Time 0 is the start of the run. What is before 0 only tells who runs and who is runnable then: the trace begins
//!   with a `Wake` of each runnable VCPU, a `Run` of each running one and an `Exit` of each guest that was left. What
//!   is after the end is cut.
//! - VCPUs that are not of the host file (dom0's, other threads) are *foreign*: a CPU that runs one is idle in the
//!   trace, and the time is in [`Summary::foreign_ns`]. A decision that only concerns foreign ones is not in it.
//! - Jobs arrive as their tasks say, and complete as the guests report. There is no `Execute`: a hypervisor does
//!   not see which job its guest works on.
//! - Threads of a domain's own kernel are added to all that ([`with_threads`]), and packets that they take are divided
//!   among the two layers in which these wait ([`in_layers`]).
//! - At one instant: jobs that complete, jobs that arrive, then what the kernel saw, CPUs by number; then packets
//!   that were heard late, whose ways the phones and the media server tell, or the kernel.
#![forbid(unsafe_code)]

mod clock;
mod error;
mod event;
mod inside;
mod packets;
mod replay;
mod summary;
mod vcpus;

pub use clock::Clock;
pub use error::ReplayError;
pub use event::{Decision, Event, What, Who};
pub use inside::{in_layers, with_threads};
pub use packets::{Delivery, Way, with_deliveries, with_packets};
pub use replay::{Jobs, Replay};
pub use summary::Summary;
pub use vcpus::Vcpus;
