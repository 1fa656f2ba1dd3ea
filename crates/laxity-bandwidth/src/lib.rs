//! Bandwidth agreements: which share of a link each of several virtual machines may use.
//!
//! [`allocate()`] is a pure function from agreements and demands to rates. Rates are whole bits a second, and every
//! result is exact: the allocated rates add up to the bit.
//!
//! The allocation and its model need no operating system; the feature `daemon` has everything else.
#![deny(unsafe_code)]

#[cfg(feature = "daemon")]
pub mod agreements;
pub mod allocate;
#[cfg(feature = "daemon")]
pub mod arguments;
pub mod bounds;
pub mod control;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod demand;
#[cfg(feature = "daemon")]
pub mod libvirt;
#[cfg(feature = "daemon")]
pub mod linux;
#[cfg(feature = "daemon")]
pub mod report;
#[cfg(feature = "daemon")]
pub mod shaper;
pub mod simulate;
#[cfg(feature = "daemon")]
pub mod xen;

#[cfg(feature = "daemon")]
pub use agreements::{Agreements, Attachment, Backend, Holder, Link};
pub use allocate::{Agreement, Claim, Sharing, allocate};
