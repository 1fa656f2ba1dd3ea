//! The kernel's traffic control through native netlink, without starting a process.
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
pub use route::{Changes, Interface, Interfaces, LinkEvent, Links, Route, Traffic};
pub use tree::{Tree, TreeError};

/// Parses a datagram of the kernel's as everything that it could answer or notify of.
#[cfg(fuzzing)]
pub fn parse_all(datagram: &[u8]) {
    for message in route::messages(datagram) {
        let _ = route::error_of(&message);
        let _ = route::change(message.payload());
        let _ = route::link_event(&message);
        let _ = route::traffic_of(message.payload());
        let _ = htb::parse(message.payload());
    }
}
