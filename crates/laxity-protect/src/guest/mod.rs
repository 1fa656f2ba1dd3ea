//! The guest: a stock QEMU, controlled only by its machine protocol.
//!
//! [`Qemu`] starts one and ends it, captures its state at the end of an epoch and continues from
//! such a state elsewhere. [`Tracker`] or [`Fingerprints`] say which pages of its memory changed,
//! [`compare`] checks what they say, and [`patches`] is how these pages travel. [`disk`] is what the
//! guest writes to, by [`nbd`], and how that travels; its image is raw, or in a QEMU of its own.

mod changes;
mod confinement;
pub mod disk;
pub mod memory;
pub mod nbd;
pub mod patches;
mod process;
mod qcow2;
mod qemu;
pub mod qmp;
mod specification;
mod trial;

pub use changes::{Fingerprints, Patrol, Tracker, compare};
pub use confinement::User;
pub use disk::{Disk, refuse_other_formats};
pub use memory::{Memory, PAGE_BYTES, Page};
pub use process::GuestError;
pub use qemu::{Captured, DEVICE_STATE_BYTES_MAX, Permit, Qemu, TRACKER, Timing};
pub use specification::{Accelerator, Bus, Changes, Format, Kind, Specification};
pub use trial::probe_program;
