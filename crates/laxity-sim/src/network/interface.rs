//! The interface between a guest and netback: a ring in each direction, and the queue before it.

use super::link::Credit;
use super::packet::Packet;
use laxity_run::InterfaceResult;
use std::collections::VecDeque;

/// Slots of the rings that a guest shares with netback, each way.
const SHARED_RING: usize = 256;
/// Packets that netback's interface keeps before the ring towards a guest (Xen 3.2's `XENVIF_QUEUE_LENGTH`).
const NETBACK_QUEUE: usize = 32;
/// Packets that a guest's interface keeps before its ring (Linux's default queue length).
const NETFRONT_QUEUE: usize = 1000;

/// A guest's interface towards the driver domain.
pub struct Interface {
    pub pool: usize,
    pub to_guest: VecDeque<Packet>,
    pub from_guest: VecDeque<Packet>,
    pub to_source: usize,
    pub from_source: usize,
    /// The credit of a domain that is held to an agreement.
    pub credit: Option<Credit>,
    /// Netback waits for credit.
    pub is_stopped: bool,
    /// When it stopped last.
    pub stopped_ns: i64,
    /// The number of a protected domain among the protected ones.
    pub protection: Option<usize>,
    pub counted: InterfaceResult,
    /// Frames that netback took, in bytes, and how often it stopped.
    pub sent_bytes: u64,
    pub stops: u64,
}

impl Interface {
    /// That of a pool's domain, with the sources of packets to it and from it.
    pub fn new(pool: usize, name: &str, to_source: usize, from_source: usize) -> Interface {
        Interface {
            pool,
            to_guest: VecDeque::new(),
            from_guest: VecDeque::new(),
            to_source,
            from_source,
            credit: None,
            is_stopped: false,
            stopped_ns: 0,
            protection: None,
            counted: InterfaceResult {
                domain: name.to_string(),
                ..InterfaceResult::default()
            },
            sent_bytes: 0,
            stops: 0,
        }
    }

    /// Whether netback has room for one more packet to the guest.
    pub fn has_room(&self) -> bool {
        self.to_guest.len() < SHARED_RING + NETBACK_QUEUE
    }

    /// Whether the guest has no room for one more packet to netback.
    pub fn is_full(&self) -> bool {
        self.from_guest.len() >= SHARED_RING + NETFRONT_QUEUE
    }
}
