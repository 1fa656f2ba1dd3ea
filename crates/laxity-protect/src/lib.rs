//! Calls outlive the host: a virtual machine is checkpointed to a standby every epoch, and its output is
//! held until it is safe where that matters.
//!
//! [`protocol`] decides everything and does nothing: pure state machines, to which the time comes with
//! each event. [`simulate`] lets histories happen to them in which everything goes wrong.

pub mod clock;
pub mod daemon;
pub mod gate;
pub mod guest;
pub mod protocol;
pub mod report;
pub mod simulate;
pub mod site;
pub mod transport;
pub mod witness;
