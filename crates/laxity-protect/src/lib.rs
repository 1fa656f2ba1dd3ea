//! Protection of virtual machines against the failure of their host: a checkpoint to a standby in
//! every epoch, with output held until it is safe where that matters.
//!
//! [`protocol`] decides everything and does nothing: pure state machines, to which the time comes with
//! each event. [`simulate`] lets histories happen to them in which everything goes wrong. Neither needs anything of a
//! system; all else is the feature `daemon`.

#[cfg(feature = "daemon")]
pub mod arguments;
#[cfg(feature = "daemon")]
pub mod clock;
#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "daemon")]
pub mod gate;
#[cfg(feature = "daemon")]
pub mod guest;
pub mod protocol;
#[cfg(feature = "daemon")]
pub mod report;
pub mod simulate;
#[cfg(feature = "daemon")]
pub mod site;
#[cfg(feature = "daemon")]
pub mod transport;
#[cfg(feature = "daemon")]
pub mod witness;
