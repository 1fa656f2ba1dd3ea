//! A domain's threads, and the packets that wait for them.

use super::packet::Packet;
use laxity_host::Cost;
use std::collections::VecDeque;
use std::ops::Range;

/// A domain that serves packets.
pub struct Pool {
    pub domain: usize,
    pub role: Role,
    pub work: Cost,
    /// What a packet of every second stream costs instead, which comes from a call's other party.
    pub work_back: Cost,
    /// What a thread pays to receive a packet.
    pub receive: Cost,
    /// What a thread pays to send a packet on.
    pub send: Cost,
    /// The VCPU at which each idle thread was last; the thread that has been idle longest comes first.
    pub idle: VecDeque<usize>,
    /// How often its threads have been forgotten.
    pub forgotten: u32,
    pub vcpus: Range<usize>,
    pub waiting: VecDeque<Packet>,
    /// Cards of its own; otherwise its packets go through its interface.
    pub cards: Vec<usize>,
    pub interface: Option<usize>,
    pub handled: u64,
    pub threads: usize,
    /// Between two packets of a sender.
    pub interval_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Media,
    Signalling,
    Control,
    Sender,
}

impl Pool {
    /// Its threads are idle again, and have been on its VCPUs in turn. Answers the packets that waited for them.
    pub fn forget(&mut self) -> Vec<Packet> {
        let vcpus = self.vcpus.clone();
        self.forgotten += 1;
        self.idle = (0..self.threads)
            .map(|thread| vcpus.start + thread % vcpus.len())
            .collect();
        self.waiting.drain(..).collect()
    }
}
