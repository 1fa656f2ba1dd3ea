//! What checkpoints and failures do to the domains of a host and to their packets.

use super::line::{Step, What};
use super::packet::{Kind, Packet};
use super::path::WayOn;
use super::phones;
use super::{Outside, Workloads};

impl Workloads {
    /// Whether the domain's host has died, and it does not run elsewhere.
    pub(super) fn is_absent(&self, domain: usize) -> bool {
        let mut protections = self.protections.iter();
        protections.any(|each| each.domain == domain && each.is_absent())
    }

    /// Whether what comes from this interface waits for a checkpoint.
    pub(super) fn holds(&self, interface: usize) -> bool {
        let number = self.interfaces[interface].protection;
        number.is_some_and(|number| self.protections[number].holds())
    }

    /// A domain stands still from now on, or goes on.
    fn set_still(&mut self, domain: usize, still: bool) {
        self.still[domain] = still;
        let vcpus = self.pools[domain].as_ref().map(|pool| pool.vcpus.clone());
        self.signals.extend(vcpus.into_iter().flatten());
    }

    pub(super) fn begin_checkpoint(&mut self, of: usize, now: i64) {
        let domain = self.protections[of].domain;
        let handled = self.pools[domain].as_ref().map_or(0, |pool| pool.handled);
        if let Some(until_ns) = self.protections[of].begin(handled, now) {
            self.set_still(domain, true);
            self.outside(until_ns, Outside::Resume { of });
        }
    }

    /// The domain goes on, and a process of the driver domain begins to copy.
    pub(super) fn end_pause(&mut self, of: usize) {
        let Some(copy_ns) = self.protections[of].resume() else {
            return;
        };
        self.set_still(self.protections[of].domain, false);
        let driver = self.path.as_ref().and_then(|path| path.driver);
        let vcpus = (0..self.domain_of.len()).filter(|&vcpu| Some(self.domain_of[vcpu]) == driver);
        let vcpus: Vec<usize> = vcpus.collect();
        let (Some(first), Some(last)) = (vcpus.first(), vcpus.last()) else {
            return;
        };
        let line = self.place_thread(*first, *first..*last + 1);
        self.line(line).copies.push_back(Step {
            what: What::Copy(of as u32),
            remaining_ns: copy_ns,
        });
        self.signals.push(line);
    }

    pub(super) fn acknowledged(&mut self, of: usize, now: i64) {
        if let Some(next_ns) = self.protections[of].acknowledge(now) {
            self.outside(next_ns, Outside::Checkpoint { of });
            if self.protections[of].has_released() {
                self.notify(self.protections[of].source);
            }
        }
    }

    /// Netback has taken a packet of a guest: whether it goes on at once. If not it is held, or lost.
    pub(super) fn guard(&mut self, interface: usize, packet: Packet) -> bool {
        let Some(number) = self.interfaces[interface].protection else {
            return true;
        };
        let protection = &mut self.protections[number];
        protection.take();
        if protection.is_absent() {
            self.drops.failure += 1;
            self.lose(&packet);
            return false;
        }
        if packet.kind == Kind::Disk {
            return true;
        }
        if !protection.holds() {
            self.show(number, &packet);
            return true;
        }
        if !protection.hold(packet) {
            self.drops.held += 1;
            self.lose(&packet);
        }
        false
    }

    fn show(&mut self, number: usize, packet: &Packet) {
        if packet.kind == Kind::Signalling && packet.number == phones::REGISTER {
            self.protections[number].show(packet.sent_ns);
        }
    }

    /// A packet whose checkpoint is with the standby goes on.
    pub(super) fn leave(&mut self, number: usize, packet: Packet, now: i64) {
        let domain = self.protections[number].domain;
        if self.is_absent(domain) {
            self.drops.failure += 1;
            return self.lose(&packet);
        }
        self.show(number, &packet);
        let mut interfaces = self.interfaces.iter();
        let Some(from) = interfaces.position(|each| each.domain == domain) else {
            return;
        };
        let left = match self.way_on(&packet) {
            WayOn::Wire => self.onto_wire(None, packet, now),
            WayOn::Guest(to) => {
                self.put_into_guest(to, packet);
                true
            }
        };
        let counted = &mut self.interfaces[from].counted;
        if left {
            counted.sent += 1;
        } else {
            counted.dropped_at_card += 1;
        }
    }

    /// The kernel of a guest has a segment of TCP, and answers all but acknowledgements.
    pub(super) fn take_segment(&mut self, domain: usize, packet: Packet, now: i64) {
        if let Some(pool) = &mut self.pools[domain] {
            pool.handled += 1;
        }
        if packet.number != phones::ACKNOWLEDGE {
            self.put_out(domain, packet, now);
        }
    }

    /// The host of the protected domains dies: with them goes what was in them, or held.
    pub(super) fn fail(&mut self) {
        for number in 0..self.protections.len() {
            let domain = self.protections[number].domain;
            let mut lost = self.protections[number].fail();
            for vcpu in 0..self.domain_of.len() {
                if self.domain_of[vcpu] == domain {
                    lost.extend(self.line(vcpu).forget());
                }
            }
            for interface in self
                .interfaces
                .iter_mut()
                .filter(|each| each.domain == domain)
            {
                lost.extend(interface.to_guest.drain(..));
                lost.extend(interface.from_guest.drain(..));
            }
            if let Some(pool) = &mut self.pools[domain] {
                for packet in pool.waiting.drain(..) {
                    if let (Kind::Voice, Some(path)) = (packet.kind, &mut self.path) {
                        path.phones.dequeue(&packet);
                    }
                    lost.push(packet);
                }
                let vcpus = pool.vcpus.clone();
                pool.idle = (0..pool.threads)
                    .map(|thread| vcpus.start + thread % vcpus.len())
                    .collect();
            }
            self.drops.failure += lost.len() as u64;
            for packet in &lost {
                self.lose(packet);
            }
            self.set_still(domain, true);
        }
    }

    /// The protected domains run on elsewhere.
    pub(super) fn activate(&mut self) {
        let Some(failure) = self.failure else { return };
        for number in 0..self.protections.len() {
            self.protections[number].activate(failure.detection_ns + failure.activation_ns);
            self.set_still(self.protections[number].domain, false);
        }
    }
}
