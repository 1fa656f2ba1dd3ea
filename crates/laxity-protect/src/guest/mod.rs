//! The guest: a stock QEMU, controlled only by its machine protocol.
//!
//! [`Qemu`] starts one and ends it, captures its state at the end of an epoch and continues from
//! such a state elsewhere. [`Tracker`] or [`Fingerprints`] say which pages of its memory changed,
//! [`compare`] checks what they say, and [`patches`] is how these pages travel.

mod changes;
mod confinement;
pub mod memory;
pub mod patches;
mod qemu;
pub mod qmp;
mod specification;

pub use changes::{Fingerprints, Tracker, compare};
pub use confinement::User;
pub use memory::{Memory, PAGE_BYTES, Page};
pub use qemu::{Captured, DEVICE_STATE_BYTES_MAX, GuestError, Qemu, TRACKER, Timing};
pub use specification::{Accelerator, Changes, Kind, Specification};
