//! Protection of virtual machines against the failure of their host: a checkpoint to a standby in
//! every epoch, with output held until it is safe where that matters.
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
