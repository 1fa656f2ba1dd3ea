//! The effects of checkpoints and failures on the domains of a host and on their packets.

use super::line::{Step, What};
use super::packet::{Kind, Packet};
use super::path::WayOn;
use super::phones;
use super::protect::{Gate, Protection};
use super::state::{Network, Outside};
use laxity_trace::Place;
use std::collections::BTreeSet;

impl Network {
    /// Whether the host of the pool's domain has died, and it does not run elsewhere.
    pub(super) fn is_absent(&self, pool: usize) -> bool {
        let mut protections = self.protections.iter();
        protections.any(|each| each.pool == pool && each.is_absent())
    }

    /// Whether what comes from this interface waits for a checkpoint.
    pub(super) fn holds(&self, interface: usize) -> bool {
        let number = self.interfaces[interface].protection;
        number.is_some_and(|number| self.protections[number].holds())
    }

    /// A domain stands still from now on, or goes on.
    fn set_still(&mut self, pool: usize, still: bool) {
        let pool = &self.pools[pool];
        self.still[pool.domain] = still;
        self.journeys.set_still(pool.domain, still);
        self.signals.extend(pool.vcpus.clone());
    }

    pub(super) fn begin_checkpoint(&mut self, of: usize, now: i64) {
        let pool = self.protections[of].pool;
        let handled = self.pools[pool].handled;
        if let Some(until_ns) = self.protections[of].begin(handled, now) {
            self.set_still(pool, true);
            self.at(until_ns, Outside::Resume { of });
        }
    }

    /// The domain goes on, and a process of the driver domain begins to copy.
    pub(super) fn end_pause(&mut self, of: usize, now: i64) {
        let Some(copy_ns) = self.protections[of].resume(now) else {
            return;
        };
        self.set_still(self.protections[of].pool, false);
        let vcpus = self.driver_vcpus.clone();
        let line = self.place_thread(vcpus.start, vcpus);
        self.lines[line].copies.push_back(Step {
            what: What::Copy(of as u32),
            remaining_ns: copy_ns,
        });
        self.signals.push(line);
    }

    pub(super) fn acknowledged(&mut self, of: usize, now: i64) {
        let before = self.protections[of].released().count();
        let next_ns = self.protections[of].acknowledge(now);
        let line = self.sources[self.protections[of].source].line;
        for packet in self.protections[of].released().skip(before) {
            self.journeys.come(packet, Place::Released, line);
        }
        if let Some(next_ns) = next_ns {
            self.at(next_ns, Outside::Checkpoint { of });
            if self.protections[of].has_released() {
                self.notify(self.protections[of].source);
            }
        }
    }

    /// Netback has taken a packet of a guest: whether it goes on at once. If not it is held, or lost.
    pub(super) fn guard(&mut self, interface: usize, packet: Packet, now: i64) -> bool {
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
        let stays = match protection.gate(now) {
            Gate::Passes => {
                self.show(number, &packet);
                return true;
            }
            Gate::Holds => protection.hold(packet),
            Gate::Drops => false,
        };
        let held = (Place::Held, self.driver_vcpus.start);
        if stays {
            self.journeys.come(&packet, held.0, held.1);
        } else {
            self.drops.held += 1;
            let there = self.protections[number].held();
            self.journeys.full(&packet, held, there);
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
        let protection = &self.protections[number];
        let from = protection.interface;
        if protection.is_absent() {
            self.drops.failure += 1;
            return self.lose(&packet);
        }
        self.show(number, &packet);
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
    pub(super) fn take_segment(&mut self, pool: usize, packet: Packet, now: i64) {
        self.pools[pool].handled += 1;
        if packet.number != phones::ACKNOWLEDGE {
            self.put_out(pool, packet, now);
        }
    }

    /// The host of the protected domains dies: with them goes what was in them, or held.
    pub(super) fn fail(&mut self, now: i64) {
        for number in 0..self.protections.len() {
            let mut lost = self.protections[number].fail(now);
            let Protection {
                pool, interface, ..
            } = self.protections[number];
            for line in self.pools[pool].vcpus.clone() {
                lost.extend(self.lines[line].forget());
            }
            let interface = &mut self.interfaces[interface];
            lost.extend(interface.to_guest.drain(..));
            lost.extend(interface.from_guest.drain(..));
            for packet in self.pools[pool].forget() {
                if packet.kind == Kind::Voice {
                    self.phones.dequeue(&packet);
                }
                lost.push(packet);
            }
            self.drops.failure += lost.len() as u64;
            for packet in &lost {
                self.lose(packet);
            }
            self.set_still(pool, true);
        }
        let runs_on_ns: BTreeSet<i64> = (self.protections.iter())
            .map(Protection::runs_on_ns)
            .collect();
        for at_ns in runs_on_ns {
            self.at(at_ns, Outside::Activation);
        }
    }

    /// Protected domains run on elsewhere: all whose standby took over so long ago.
    pub(super) fn activate(&mut self, now: i64) {
        for number in 0..self.protections.len() {
            let protection = &mut self.protections[number];
            if protection.is_absent() && protection.runs_on_ns() == now {
                let pool = protection.pool;
                self.tell_outage(number, Place::Arrived, now);
                self.protections[number].activate(now);
                self.set_still(pool, false);
            }
        }
    }

    /// Tells of the outage of a domain that is absent, which ends now as `end` says.
    fn tell_outage(&mut self, number: usize, end: Place, now: i64) {
        let protection = &self.protections[number];
        let line = self.pools[protection.pool].vcpus.start;
        let stages = [
            (Place::Silence, protection.failed_ns()),
            (Place::Activation, protection.takes_over_ns()),
        ];
        let begun = stages.into_iter().filter(|(_, since_ns)| *since_ns < now);
        let stages: Vec<(Place, i64)> = begun.chain([(end, now)]).collect();
        self.journeys.outage(line, &stages);
    }

    /// Tells of the outages that the end of the run ends.
    pub(super) fn tell_outages_at_end(&mut self, now: i64) {
        for number in 0..self.protections.len() {
            if self.protections[number].is_absent() {
                self.tell_outage(number, Place::Unfinished, now);
            }
        }
    }
}
