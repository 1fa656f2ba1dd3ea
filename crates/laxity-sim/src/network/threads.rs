//! The threads of servers and senders.

use super::line::{Step, What};
use super::packet::{Kind, Packet};
use super::phones;
use super::pool::Role;
use super::state::{Network, Outside};
use laxity_trace::Place;
use std::ops::Range;

/// Packets of a stream that a socket's buffer holds: Linux's 108 KiB by default, at somewhat less than 1 KiB each.
const SOCKET_PACKETS: u16 = 128;

impl Network {
    pub(super) fn put_into_socket(&mut self, number: usize, packet: Packet, now: i64) {
        let pool = &mut self.pools[number];
        let fits = match packet.kind {
            Kind::Voice => self.phones.queue(&packet, SOCKET_PACKETS),
            _ => pool.waiting.len() < usize::from(SOCKET_PACKETS),
        };
        let line = pool.vcpus.start;
        if !fits {
            self.drops.socket += 1;
            let of_stream = pool.waiting.iter().filter(|other| other.of == packet.of);
            self.journeys
                .full(&packet, (Place::Socket, line), of_stream);
            return self.lose(&packet);
        }
        self.journeys.come(&packet, Place::Socket, line);
        pool.waiting.push_back(packet);
        if let Some(last) = pool.idle.pop_front() {
            let woken = Outside::Woken {
                pool: number as u32,
                last: last as u32,
                forgotten: pool.forgotten,
            };
            match self.draw(line, self.costs.wake_up_latency) {
                0 => self.woken(number, last),
                latency_ns => self.at(now + latency_ns, woken),
            }
        }
    }

    /// A thread that was last at the VCPU `last` has woken up.
    pub(super) fn woken(&mut self, pool: usize, last: usize) {
        let vcpus = self.pools[pool].vcpus.clone();
        let line = self.place_thread(last, vcpus);
        self.lines[line].ready += 1;
        self.signals.push(line);
    }

    /// The VCPU to which a thread that is woken goes, as Linux's does: the one where it was last if no thread is there,
    /// else one of its domain's without a thread, else the one where it was, to wait.
    pub(super) fn place_thread(&self, last: usize, vcpus: Range<usize>) -> usize {
        let has_threads = |vcpu: usize| self.lines[vcpu].has_threads();
        std::iter::once(last)
            .chain(vcpus)
            .find(|&vcpu| !has_threads(vcpu))
            .unwrap_or(last)
    }

    /// A thread takes a packet, or goes idle if there is none.
    pub(super) fn begin_thread(&mut self, vcpu: usize) -> Option<(What, i64)> {
        let pool = &mut self.pools[self.pool_of[vcpu]];
        let packet = pool.waiting.pop_front();
        self.lines[vcpu].ready -= 1;
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
        let send = if is_dropped {
            self.costs.socket_send
        } else {
            pool.send
        };
        let is_back = packet.kind == Kind::Voice && packet.of % 2 == 1;
        let work = if is_back { pool.work_back } else { pool.work };
        let receive = pool.receive;
        let cost_ns = self.draw(vcpu, receive) + self.draw(vcpu, work) + self.draw(vcpu, send);
        if packet.kind == Kind::Voice {
            self.phones.dequeue(&packet);
        }
        Some((What::Thread(packet), cost_ns))
    }

    /// A VCPU that has no thread left takes one that waits behind another, as Linux does when a CPU becomes idle.
    fn pull_thread(&mut self, vcpu: usize, vcpus: Range<usize>) {
        if self.lines[vcpu].has_own_threads() {
            return;
        }
        let mut others = vcpus.into_iter();
        if let Some(other) = others.find(|&other| self.lines[other].can_spare_thread()) {
            self.lines[other].ready -= 1;
            self.lines[vcpu].ready += 1;
        }
    }

    /// A thread has done its work on a packet, sends on what comes of it, and looks for the next one.
    pub(super) fn handled(&mut self, vcpu: usize, packet: Packet, now: i64) {
        let pool = self.pool_of[vcpu];
        match self.draw(vcpu, self.costs.after_send) {
            0 => self.lines[vcpu].ready += 1,
            remaining_ns => self.lines[vcpu].begin(Step {
                what: What::AfterSend,
                remaining_ns,
            }),
        }
        self.pools[pool].handled += 1;
        let role = self.pools[pool].role;
        let asks = self.control.is_some()
            && (packet.number == phones::INVITE || packet.number == phones::BYE);
        let writes = packet.number == phones::INVITE && !self.native;
        let next = match (role, packet.kind) {
            (Role::Media, _) => Kind::Voice,
            (Role::Control, _) => Kind::Answer,
            (Role::Sender, _) => Kind::Bulk,
            (Role::Signalling, Kind::Signalling) if asks => Kind::Question,
            (Role::Signalling, Kind::Signalling | Kind::Answer) if writes => Kind::Disk,
            (Role::Signalling, _) => Kind::Signalling,
        };
        let sent_ns = match packet.number {
            // An answer to a registration tells when it was made.
            phones::REGISTER if next == Kind::Signalling => now,
            _ => packet.sent_ns,
        };
        let packet = Packet {
            kind: next,
            sent_ns,
            ..packet
        };
        self.put_out(pool, packet, now);
    }

    /// A pool's domain sends a packet.
    pub(super) fn put_out(&mut self, pool: usize, packet: Packet, now: i64) {
        match self.pools[pool].interface {
            None => {
                self.onto_wire(Some(pool), packet, now);
            }
            Some(interface) => {
                let interface = &mut self.interfaces[interface];
                interface.counted.offered += 1;
                let line = self.sources[interface.from_source].line;
                if interface.is_full() {
                    self.journeys.full(
                        &packet,
                        (Place::FromGuest, line),
                        interface.from_guest.iter(),
                    );
                    interface.counted.dropped_in_guest += 1;
                    self.drops.netfront += 1;
                    return self.lose(&packet);
                }
                self.journeys.come(&packet, Place::FromGuest, line);
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
    pub(super) fn send_next(&mut self, pool: usize, now: i64) {
        let sender = &self.pools[pool];
        let packet = Packet {
            kind: Kind::Bulk,
            of: sender.domain as u64,
            number: 0,
            copy: 0,
            sent_ns: now,
        };
        self.at(now + sender.interval_ns, Outside::Send { pool });
        self.put_into_socket(pool, packet, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Both VCPUs have two threads, and only the second one runs: it has handled all packets when its last thread finds
    /// none.
    #[test]
    fn a_vcpu_without_threads_takes_one_that_waits_behind_another() {
        let host = laxity_host::load(HOST, "host.toml", &[] as &[&str]).expect("it is right");
        let described = host.network.as_ref().expect("it has one");
        let mut network = Network::new(&host, described);
        let packet = |number| Packet {
            kind: Kind::Signalling,
            of: 0,
            number,
            copy: 0,
            sent_ns: 0,
        };
        let ready = |network: &Network| [0, 1].map(|vcpu| network.lines[vcpu].ready);
        for number in 0..4 {
            network.put_into_socket(0, packet(number), 0);
        }
        assert_eq!(ready(&network), [2, 2]);
        for _ in 0..2 {
            for _ in 0..2 {
                assert!(network.begin_thread(1).is_some());
            }
            // Both have done their work, and look for the next packet.
            network.lines[1].ready += 2;
        }
        assert!(network.begin_thread(1).is_none());
        assert_eq!(ready(&network), [2, 1], "one is still there");
        assert!(network.begin_thread(1).is_none());
        assert_eq!(ready(&network), [1, 1], "it took one over");
        assert!(network.begin_thread(1).is_none());
        assert_eq!(ready(&network), [1, 0], "that one waits for nobody");
    }
}
