//! The threads of servers and senders.

use super::line::{Line, What};
use super::packet::{Kind, Packet};
use super::{Outside, Workloads, phones};
use crate::engine::draw;
use laxity_host::Cost;
use std::collections::VecDeque;
use std::ops::Range;

/// Packets of a stream that a socket's buffer holds: Linux's 108 KiB by default, at somewhat less than 1 KiB each.
const SOCKET_PACKETS: u16 = 128;

/// A domain that serves packets.
pub struct Pool {
    pub role: Role,
    pub work: Cost,
    /// What a thread pays to send a packet on.
    pub send: Cost,
    /// Of each idle thread the VCPU at which it was last; who has been idle longest comes first.
    pub idle: VecDeque<usize>,
    pub vcpus: Range<usize>,
    pub waiting: VecDeque<Packet>,
    /// Cards of its own; otherwise its packets go through its interface.
    pub cards: Vec<usize>,
    pub interface: Option<usize>,
    pub handled: u64,
    pub threads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Media,
    Signalling,
    Control,
    Sender,
}

impl Workloads {
    pub(super) fn put_into_socket(&mut self, domain: usize, packet: Packet) {
        let Workloads {
            pools,
            path: Some(path),
            ..
        } = self
        else {
            return;
        };
        let Some(pool) = &mut pools[domain] else {
            return;
        };
        let fits = match packet.kind {
            Kind::Voice => path.phones.queue(&packet, SOCKET_PACKETS),
            _ => pool.waiting.len() < usize::from(SOCKET_PACKETS),
        };
        if !fits {
            self.drops.socket += 1;
            return self.lose(&packet);
        }
        pool.waiting.push_back(packet);
        if let Some(last) = pool.idle.pop_front() {
            let vcpus = pool.vcpus.clone();
            let line = self.place_thread(last, vcpus);
            self.line(line).ready += 1;
            self.signals.push(line);
        }
    }

    /// Where a thread that is woken goes, as Linux's does: to the VCPU where it was last if no thread is there, else to one
    /// of its domain's where none is, else it waits where it was.
    pub(super) fn place_thread(&self, last: usize, vcpus: Range<usize>) -> usize {
        let has_threads = |vcpu: usize| self.lines[vcpu].as_ref().is_some_and(Line::has_threads);
        std::iter::once(last)
            .chain(vcpus)
            .find(|&vcpu| !has_threads(vcpu))
            .unwrap_or(last)
    }

    /// A thread takes a packet, or goes idle if there is none.
    pub(super) fn begin_thread(&mut self, vcpu: usize) -> Option<(What, i64)> {
        let domain = self.domain_of[vcpu];
        let pool = self.pools[domain].as_mut()?;
        let packet = pool.waiting.pop_front();
        self.lines[vcpu].as_mut()?.ready -= 1;
        let Some(packet) = packet else {
            pool.idle.push_back(vcpu);
            let vcpus = pool.vcpus.clone();
            self.pull_thread(vcpu, vcpus);
            return None;
        };
        // Out of credit netback leaves the ring full, and the guest's own queue drops: netfront has no work then.
        let is_dropped = pool.interface.is_some_and(|interface| {
            let interface = &self.interfaces[interface];
            interface.credit.is_some() && interface.is_full()
        });
        let send = match (&self.path, is_dropped) {
            (Some(path), true) => path.costs.socket_send,
            _ => pool.send,
        };
        let cost_ns =
            draw(&pool.work, &mut self.random[domain]) + draw(&send, &mut self.random[domain]);
        if packet.kind == Kind::Voice
            && let Some(path) = &mut self.path
        {
            path.phones.dequeue(&packet);
        }
        Some((What::Thread(packet), cost_ns))
    }

    /// A VCPU that has no thread left takes one that waits behind another, as Linux does when a CPU becomes idle.
    fn pull_thread(&mut self, vcpu: usize, vcpus: Range<usize>) {
        let is = |vcpu: usize, what: fn(&Line) -> bool| self.lines[vcpu].as_ref().is_some_and(what);
        if is(vcpu, Line::has_own_threads) {
            return;
        }
        let mut others = vcpus.into_iter();
        if let Some(other) = others.find(|&other| is(other, Line::can_spare_thread)) {
            self.line(other).ready -= 1;
            self.line(vcpu).ready += 1;
        }
    }

    /// A thread has done its work on a packet, sends on what comes of it, and looks for the next one.
    pub(super) fn handled(&mut self, vcpu: usize, packet: Packet, now: i64) {
        let domain = self.domain_of[vcpu];
        self.line(vcpu).ready += 1;
        let Some(pool) = &mut self.pools[domain] else {
            return;
        };
        pool.handled += 1;
        let role = pool.role;
        let asks = self
            .path
            .as_ref()
            .is_some_and(|path| path.control.is_some())
            && (packet.number == phones::INVITE || packet.number == phones::BYE);
        let writes = packet.number == phones::INVITE;
        let next = match (role, packet.kind) {
            (Role::Media, _) => Kind::Voice,
            (Role::Control, _) => Kind::Answer,
            (Role::Sender, _) => Kind::Bulk,
            (Role::Signalling, Kind::Signalling) if asks => Kind::Question,
            (Role::Signalling, Kind::Signalling | Kind::Answer) if writes => Kind::Disk,
            (Role::Signalling, _) => Kind::Signalling,
        };
        let sent_ns = match packet.number {
            // Of an answer to a registration: when it was made.
            phones::REGISTER if next == Kind::Signalling => now,
            _ => packet.sent_ns,
        };
        let packet = Packet {
            kind: next,
            sent_ns,
            ..packet
        };
        self.put_out(domain, packet, now);
    }

    /// A domain sends a packet.
    pub(super) fn put_out(&mut self, domain: usize, packet: Packet, now: i64) {
        let Some(pool) = &self.pools[domain] else {
            return;
        };
        match pool.interface {
            None => {
                self.onto_wire(Some(domain), packet, now);
            }
            Some(interface) => {
                let interface = &mut self.interfaces[interface];
                interface.counted.offered += 1;
                if interface.is_full() {
                    interface.counted.dropped_in_guest += 1;
                    self.drops.netfront += 1;
                    return self.lose(&packet);
                }
                interface.from_guest.push_back(packet);
                if let Some(number) = interface.protection {
                    self.protections[number].put();
                }
                let source = interface.from_source;
                self.notify(source);
            }
        }
    }

    /// A sender's thread has a packet to send, and the next one after its time.
    pub(super) fn send_next(&mut self, domain: usize, now: i64) {
        let Some(path) = &self.path else { return };
        let (_, interval_ns) = path.senders[domain];
        self.outside(now + interval_ns, Outside::Send { domain });
        let packet = Packet {
            kind: Kind::Bulk,
            of: domain as u64,
            number: 0,
            sent_ns: now,
        };
        self.put_into_socket(domain, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg32;

    const HOST: &str = r#"
duration = "1 s"
host = { cpus = 2, policy = "credit" }
calls = { streams = 1, media-server = "media" }

[[domain]]
name = "media"
vcpus = 2
workload = { kind = "media-server", threads = 4 }

[[nic]]
name = "eth0"
domain = "media"
"#;

    /// Both VCPUs have two threads, and only the second one runs: it has handled all packets when its last thread finds none.
    #[test]
    fn a_vcpu_without_threads_takes_one_that_waits_behind_another() {
        let host = laxity_host::load(HOST, "host.toml", &[] as &[&str]).expect("it is right");
        let mut workloads = Workloads::new(&host, &[0], |domain| Pcg32::new(1, domain as u64));
        let packet = |number| Packet {
            kind: Kind::Signalling,
            of: 0,
            number,
            sent_ns: 0,
        };
        let ready = |workloads: &mut Workloads| [0, 1].map(|vcpu| workloads.line(vcpu).ready);
        for number in 0..4 {
            workloads.put_into_socket(0, packet(number));
        }
        assert_eq!(ready(&mut workloads), [2, 2]);
        for _ in 0..2 {
            for _ in 0..2 {
                assert!(workloads.begin_thread(1).is_some());
            }
            // Both have done their work, and look for the next packet.
            workloads.line(1).ready += 2;
        }
        assert!(workloads.begin_thread(1).is_none());
        assert_eq!(ready(&mut workloads), [2, 1], "one is still there");
        assert!(workloads.begin_thread(1).is_none());
        assert_eq!(ready(&mut workloads), [1, 1], "it took one over");
        assert!(workloads.begin_thread(1).is_none());
        assert_eq!(ready(&mut workloads), [1, 0], "that one waits for nobody");
    }
}
