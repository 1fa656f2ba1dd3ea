//! The way of packets: cards, the driver domain, the rings of guests, and out again.

use super::card::Reaction;
use super::line::What;
use super::packet::{Kind, Packet};
use super::phones;
use super::state::{Network, Origin, Outside, Source};
use laxity_host::Cost;
use laxity_trace::Place;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WayOn {
    Guest(usize),
    Wire,
}

impl Network {
    /// A phone sends a packet.
    pub(super) fn send_to_host(&mut self, packet: Packet, now: i64) {
        let server = match packet.kind {
            Kind::Voice => Some(self.media),
            _ => self.signalling,
        };
        let media = self.journeys.media();
        self.journeys.come(&packet, Place::WireIn, media);
        if server.is_some_and(|pool| self.is_absent(pool)) {
            self.drops.failure += 1;
            return self.lose(&packet);
        }
        let own = match packet.kind {
            Kind::Voice => &self.pools[self.media].cards[..],
            _ => &[],
        };
        let cards = if own.is_empty() {
            &self.driver_cards
        } else {
            own
        };
        let card = cards[packet.of as usize % cards.len()];
        let bytes = self.wire_bytes(&packet);
        match self.cards[card].arrival_ns(bytes, now) {
            Some(at_ns) => self.wires[card].push_back((at_ns, packet)),
            None => {
                self.drops.wire += 1;
                let oldest_ns = now - self.cards[card].inward_backlog_ns(now);
                self.journeys
                    .full_since(&packet, (Place::WireIn, media), oldest_ns);
                self.lose(&packet);
            }
        }
    }

    /// A packet reaches a card.
    pub(super) fn receive(&mut self, card: usize, packet: Packet, now: i64) {
        if self.native {
            return self.receive_natively(card, packet, now);
        }
        let looked_at = self.is_looked_at(self.card_sources[card]);
        let line = self.sources[self.card_sources[card]].line;
        let reaction = self.cards[card].receive(packet, looked_at, now);
        if reaction != Reaction::Drop {
            self.journeys.come(&packet, Place::Card, line);
        }
        match reaction {
            Reaction::Interrupt => self.interrupt(card),
            Reaction::InterruptAt(at_ns) => self.at(at_ns, Outside::Coalesced { card }),
            Reaction::Nothing => {}
            Reaction::Drop => {
                self.drops.nic_receive += 1;
                self.journeys
                    .full(&packet, (Place::Card, line), self.cards[card].waiting());
                self.lose(&packet);
            }
        }
    }

    /// The kernel takes a packet from a card into a socket of its own, in an interrupt.
    fn receive_natively(&mut self, card: usize, packet: Packet, now: i64) {
        self.cards[card].packets_received += 1;
        let pool = match packet.kind {
            Kind::Voice => Some(self.media),
            _ => self.signalling,
        };
        let Some(pool) = pool else {
            return self.lose(&packet);
        };
        let latency_ns = self.draw(self.pools[pool].vcpus.start, self.costs.receive);
        let number = self.in_kernel.put(packet);
        let pool = pool as u32;
        self.at(now + latency_ns, Outside::Arrived { pool, number });
    }

    /// Takes a packet out of a source; `None` if it had none.
    pub(super) fn begin_source(
        &mut self,
        vcpu: usize,
        place: u32,
        now: i64,
    ) -> Option<(What, i64)> {
        let number = self.lines[vcpu].sources[place as usize];
        let origin = self.sources[number as usize].origin;
        let may_take = match origin {
            Origin::FromGuest(interface) => self.has_credit(interface, now),
            _ => true,
        };
        let packet = match origin {
            _ if !may_take => None,
            Origin::Allocator => self.take_look(),
            Origin::Card(card) => self.cards[card].take(),
            Origin::ToGuest(interface) => self.interfaces[interface].to_guest.pop_front(),
            Origin::FromGuest(interface) => self.interfaces[interface].from_guest.pop_front(),
            Origin::Released(number) => self.protections[number].take_released(),
        };
        let Some(packet) = packet else {
            self.lines[vcpu].quiet(place);
            return None;
        };
        let (costs, sums) = (&self.costs, &self.sums);
        let (first, then) = match origin {
            Origin::Allocator => {
                let (look, looked_at) = (costs.look, self.link().allocator.interfaces.len());
                let cost_ns = (0..looked_at).map(|_| self.draw(vcpu, look)).sum();
                let source = number;
                return Some((What::Source { source, packet }, cost_ns));
            }
            Origin::Card(card) if self.card_pools[card].is_none() => {
                (costs.receive, Some(costs.netback_receive))
            }
            Origin::Card(_) => (sums.card_to_socket, None),
            // The kernel answers it.
            Origin::ToGuest(_)
                if packet.kind == Kind::Segment && packet.number != phones::ACKNOWLEDGE =>
            {
                (sums.into_guest, Some(sums.answer_of_guest))
            }
            Origin::ToGuest(_) => (sums.into_guest, None),
            Origin::FromGuest(_) if packet.kind == Kind::Disk => (costs.disk, None),
            Origin::FromGuest(interface) if self.holds(interface) => (costs.netback_transmit, None),
            Origin::Released(_) => match self.way_on(&packet) {
                WayOn::Guest(_) => (Cost::default(), Some(costs.netback_receive)),
                WayOn::Wire => (costs.transmit, None),
            },
            Origin::FromGuest(_) => match self.way_on(&packet) {
                WayOn::Guest(_) => (costs.netback_transmit, Some(costs.netback_receive)),
                WayOn::Wire => (sums.guest_to_card, None),
            },
        };
        let mut cost_ns = self.draw(vcpu, first);
        let mut what = What::Source {
            source: number,
            packet,
        };
        if let Some(then) = then {
            if matches!(origin, Origin::ToGuest(_)) || self.has_room(&packet, origin) {
                cost_ns += self.draw(vcpu, then);
            } else {
                what = What::Waste {
                    source: number,
                    packet,
                };
            }
        }
        Some((what, cost_ns))
    }

    /// Where the driver domain sends a packet of a guest.
    pub(super) fn way_on(&self, packet: &Packet) -> WayOn {
        let guest = |pool: Option<usize>| {
            pool.and_then(|pool| self.pools[pool].interface)
                .map_or(WayOn::Wire, WayOn::Guest)
        };
        match packet.kind {
            Kind::Question => guest(self.control),
            Kind::Answer => guest(self.signalling),
            _ => WayOn::Wire,
        }
    }

    /// The interface to which the driver domain takes a packet that came from a card or a guest.
    pub(super) fn destination(&self, packet: &Packet, origin: Origin) -> Option<usize> {
        if let Origin::FromGuest(_) | Origin::Released(_) = origin {
            return match self.way_on(packet) {
                WayOn::Guest(interface) => Some(interface),
                WayOn::Wire => None,
            };
        }
        let pool = match packet.kind {
            Kind::Voice => Some(self.media),
            _ => self.signalling,
        };
        self.pools[pool?].interface
    }

    fn has_room(&self, packet: &Packet, origin: Origin) -> bool {
        self.destination(packet, origin)
            .is_some_and(|interface| self.interfaces[interface].has_room())
    }

    /// A source without packets interrupts for the next one.
    pub(super) fn quiet_if_empty(&mut self, source: usize) {
        let empty = match self.sources[source].origin {
            Origin::Card(card) => self.cards[card].is_empty(),
            Origin::ToGuest(interface) => self.interfaces[interface].to_guest.is_empty(),
            Origin::FromGuest(interface) => self.interfaces[interface].from_guest.is_empty(),
            Origin::Released(number) => !self.protections[number].has_released(),
            Origin::Allocator => true,
        };
        if empty {
            let Source { line, place, .. } = self.sources[source];
            self.lines[line].quiet(place);
        }
    }

    /// A kernel has moved a packet.
    pub(super) fn moved(&mut self, source: usize, vcpu: usize, packet: Packet, now: i64) {
        let origin = self.sources[source].origin;
        if packet.kind == Kind::Look {
            return self.look(now);
        }
        if let Origin::FromGuest(interface) = origin {
            if !self.guard(interface, packet, now) {
                return;
            }
            self.interfaces[interface].counted.sent += 1;
        }
        if packet.kind == Kind::Disk {
            let latency_ns = self.draw(vcpu, self.costs.disk_latency);
            return self.at(now + latency_ns, Outside::Disk { call: packet.of });
        }
        match origin {
            Origin::ToGuest(_) if packet.kind == Kind::Segment => {
                self.take_segment(self.pool_of[vcpu], packet, now)
            }
            Origin::ToGuest(_) => self.put_into_socket(self.pool_of[vcpu], packet, now),
            Origin::Released(number) => self.leave(number, packet, now),
            Origin::Card(card) if self.card_pools[card].is_some() => {
                self.put_into_socket(self.pool_of[vcpu], packet, now)
            }
            Origin::FromGuest(interface) if self.way_on(&packet) == WayOn::Wire => {
                if !self.onto_wire(None, packet, now) {
                    let counted = &mut self.interfaces[interface].counted;
                    counted.sent -= 1;
                    counted.dropped_at_card += 1;
                }
            }
            _ => match self.destination(&packet, origin) {
                Some(interface) => self.put_into_guest(interface, packet),
                None => self.lose(&packet),
            },
        }
    }

    pub(super) fn put_into_guest(&mut self, interface: usize, packet: Packet) {
        if self.is_absent(self.interfaces[interface].pool) {
            self.drops.failure += 1;
            return self.lose(&packet);
        }
        // Others may have come while netback had this one in its hands.
        if !self.interfaces[interface].has_room() {
            self.drops.netback += 1;
            self.find_netback_full(interface, &packet);
            return self.lose(&packet);
        }
        let interface = &mut self.interfaces[interface];
        let line = self.sources[interface.to_source].line;
        self.journeys.come(&packet, Place::ToGuest, line);
        interface.to_guest.push_back(packet);
        let source = interface.to_source;
        self.notify(source);
    }

    /// Netback has no room for a packet to the guest with this interface.
    pub(super) fn find_netback_full(&mut self, interface: usize, packet: &Packet) {
        let interface = &self.interfaces[interface];
        let line = self.sources[interface.to_source].line;
        self.journeys
            .full(packet, (Place::ToGuest, line), interface.to_guest.iter());
    }

    /// Puts a packet into a card of a pool of its own, or else of the driver domain; it reaches a phone. Whether
    /// there was room.
    pub(super) fn onto_wire(&mut self, own: Option<usize>, packet: Packet, now: i64) -> bool {
        let candidates = match own {
            Some(pool) => &self.pools[pool].cards,
            None => &self.driver_cards,
        };
        let card = candidates[packet.of as usize % candidates.len()];
        let bytes = self.wire_bytes(&packet);
        let sent_ns = self.cards[card].transmit(bytes, now);
        match sent_ns {
            Some(_) if packet.kind == Kind::Bulk => {}
            Some(at_ns) => {
                self.journeys.arrive(&packet, at_ns);
                self.phones.deliver(&packet, at_ns);
            }
            None => {
                self.drops.nic_transmit += 1;
                let oldest_ns = now - self.cards[card].backlog_ns(now);
                let media = self.journeys.media();
                self.journeys
                    .full_since(&packet, (Place::WireOut, media), oldest_ns);
                self.lose(&packet);
            }
        }
        sent_ns.is_some()
    }

    /// A disk operation is done: the signalling server hears of it as of a packet.
    pub(super) fn answer_from_disk(&mut self, call: u64, now: i64) {
        let interface = self.signalling.and_then(|pool| self.pools[pool].interface);
        if let Some(interface) = interface {
            let packet = Packet {
                kind: Kind::DiskDone,
                of: call,
                number: phones::INVITE,
                copy: 0,
                sent_ns: now,
            };
            self.put_into_guest(interface, packet);
        }
    }
}
