//! The kernel's traffic control, through native netlink: no process is started for anything.
//!
//! `route` talks to the kernel, `htb` knows its bytes, `classifier` is the program that tells by which
//! interface a packet came, `tree` the shaper of the link outwards, `inwards` those at the interfaces, and
//! `lock` keeps a second daemon from the same link.

mod classifier;
mod htb;
mod inwards;
mod lock;
mod queues;
mod route;
mod tree;

pub use inwards::Inwards;
pub use lock::{LinkLock, LockError};
pub use route::{Change, Changes, LinkEvent, Links, Route, Traffic};
pub use tree::{Tree, TreeError};

/// The number by which our qdiscs and classes are known again, after whatever happened to their maker.
pub(crate) const MAJOR: u16 = 0x1a7c;
