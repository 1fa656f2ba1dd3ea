//! Bandwidth as agreed: who may send how much of a link that several virtual machines share.
//!
//! [`allocate()`] is a pure function from agreements and demands to rates. Rates are whole bits a
//! second, and every result is exact: what is given out adds up to the bit.
#![deny(unsafe_code)]

pub mod agreements;
pub mod allocate;
pub mod control;
pub mod daemon;
pub mod demand;
pub mod linux;
pub mod paper;
pub mod report;
pub mod shaper;
pub mod simulate;
pub mod xen;

pub use agreements::{Agreements, Backend, Holder, Link};
pub use allocate::{Agreement, Claim, Sharing, allocate};
