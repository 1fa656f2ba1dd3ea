//! The way of packets: cards, the driver domain, the rings of guests, and out again.

use super::card::Reaction;
use super::interface::Interface;
use super::line::What;
use super::link::Allocator;
use super::packet::{Kind, Packet, WIRE_BYTES};
use super::phones::{self, Phones};
use super::{Origin, Outside, Source, Workloads};
use crate::engine::draw;
use laxity_host::{Cost, NetworkCosts};

/// The way of packets on a host.
pub struct Path {
    pub costs: NetworkCosts,
    pub voice_bytes: u32,
    pub signalling: Option<usize>,
    pub control: Option<usize>,
    pub media: usize,
    pub driver: Option<usize>,
    /// Cards of the driver domain.
    pub driver_cards: Vec<usize>,
    /// Of each domain's packets, and the time between them; 0 if it is no sender.
    pub senders: Vec<(u32, i64)>,
    pub link: Option<LinkState>,
    pub phones: Phones,
}

/// The allocator at work.
pub struct LinkState {
    pub allocator: Allocator,
    pub source: usize,
    /// A look is due and has not begun.
    pub is_due: bool,
}

impl Path {
    /// Of a packet, from its Ethernet header on.
    pub(super) fn frame_bytes(&self, packet: &Packet) -> u32 {
        match packet.kind {
            Kind::Bulk => self.senders[packet.of as usize].0,
            _ => packet.frame_bytes(self.voice_bytes),
        }
    }

    fn wire_bytes(&self, packet: &Packet) -> u32 {
        self.frame_bytes(packet) + WIRE_BYTES
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WayOn {
    Guest(usize),
    Wire,
}

impl Workloads {
    /// A phone sends a packet.
    pub(super) fn send_to_host(&mut self, packet: Packet, now: i64) {
        let Some(path) = &self.path else { return };
        let server = match packet.kind {
            Kind::Voice => Some(path.media),
            _ => path.signalling,
        };
        if server.is_some_and(|domain| self.is_absent(domain)) {
            self.drops.failure += 1;
            return self.lose(&packet);
        }
        let own = match packet.kind {
            Kind::Voice => self.pools[path.media]
                .as_ref()
                .map_or(&[][..], |pool| &pool.cards),
            _ => &[],
        };
        let cards = if own.is_empty() {
            &path.driver_cards
        } else {
            own
        };
        let card = cards[packet.of as usize % cards.len()];
        let bytes = path.wire_bytes(&packet);
        match self.cards[card].arrival_ns(bytes, now) {
            Some(at_ns) => self.wires[card].push_back((at_ns, packet)),
            None => {
                self.drops.wire += 1;
                self.lose(&packet);
            }
        }
    }

    /// A packet reaches a card.
    pub(super) fn receive(&mut self, card: usize, packet: Packet, now: i64) {
        let looked_at = self.is_looked_at(self.card_sources[card]);
        match self.cards[card].receive(packet, looked_at, now) {
            Reaction::Interrupt => self.interrupt(card),
            Reaction::InterruptAt(at_ns) => self.outside(at_ns, Outside::Coalesced { card }),
            Reaction::Nothing => {}
            Reaction::Drop => {
                self.drops.nic_receive += 1;
                self.lose(&packet);
            }
        }
    }

    pub(super) fn lose(&mut self, packet: &Packet) {
        if let Some(path) = &mut self.path {
            path.phones.lose(packet);
        }
    }

    pub(super) fn interrupt(&mut self, card: usize) {
        self.cards[card].interrupts += 1;
        self.raise(self.card_sources[card]);
    }

    pub(super) fn is_looked_at(&mut self, source: usize) -> bool {
        let Source { line, place, .. } = self.sources[source];
        self.line(line).looks_at(place)
    }

    fn raise(&mut self, source: usize) {
        let Source { line, place, .. } = self.sources[source];
        self.line(line).raise(place);
        self.signals.push(line);
    }

    /// Tells who handles the source that it has packets, unless it looks anyway or waits for credit.
    pub(super) fn notify(&mut self, source: usize) {
        let waits = match self.sources[source].origin {
            Origin::FromGuest(interface) => self.interfaces[interface].is_stopped,
            _ => false,
        };
        if !waits && !self.is_looked_at(source) {
            self.raise(source);
        }
    }

    pub(super) fn cost(&mut self, vcpu: usize, of: impl Fn(&NetworkCosts) -> Cost) -> i64 {
        let cost = self
            .path
            .as_ref()
            .map_or(Cost::default(), |path| of(&path.costs));
        draw(&cost, &mut self.random[self.domain_of[vcpu]])
    }

    /// Takes a packet out of a source; `None` if it had none.
    pub(super) fn begin_source(
        &mut self,
        vcpu: usize,
        place: u32,
        now: i64,
    ) -> Option<(What, i64)> {
        let number = self.line(vcpu).sources[place as usize];
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
            self.line(vcpu).quiet(place);
            return None;
        };
        let path = self.path.as_ref()?;
        let costs = path.costs;
        let is_driver = path.driver == Some(self.domain_of[vcpu]);
        if let Origin::Allocator = origin {
            let looked_at = path
                .link
                .as_ref()
                .map_or(0, |link| link.allocator.interfaces.len());
            let random = &mut self.random[self.domain_of[vcpu]];
            let cost_ns = (0..looked_at).map(|_| draw(&costs.look, random)).sum();
            let source = number;
            return Some((What::Source { source, packet }, cost_ns));
        }
        let (first, then) = match origin {
            Origin::Allocator => return None,
            Origin::Card(_) if is_driver => (costs.receive, Some(costs.netback_receive)),
            Origin::Card(_) => (costs.receive.plus(costs.socket_receive), None),
            // The kernel answers it.
            Origin::ToGuest(_)
                if packet.kind == Kind::Segment && packet.number != phones::ACKNOWLEDGE =>
            {
                (
                    costs.netfront_receive.plus(costs.socket_receive),
                    Some(costs.socket_send.plus(costs.netfront_transmit)),
                )
            }
            Origin::ToGuest(_) => (costs.netfront_receive.plus(costs.socket_receive), None),
            Origin::FromGuest(_) if packet.kind == Kind::Disk => (costs.disk, None),
            Origin::FromGuest(interface) if self.holds(interface) => (costs.netback_transmit, None),
            Origin::Released(_) => match self.way_on(&packet) {
                WayOn::Guest(_) => (Cost::default(), Some(costs.netback_receive)),
                WayOn::Wire => (costs.transmit, None),
            },
            Origin::FromGuest(_) => match self.way_on(&packet) {
                WayOn::Guest(_) => (costs.netback_transmit, Some(costs.netback_receive)),
                WayOn::Wire => (costs.netback_transmit.plus(costs.transmit), None),
            },
        };
        let random = &mut self.random[self.domain_of[vcpu]];
        let mut cost_ns = draw(&first, random);
        let mut what = What::Source {
            source: number,
            packet,
        };
        if let Some(then) = then {
            if matches!(origin, Origin::ToGuest(_)) || self.has_room(&packet, origin) {
                cost_ns += draw(&then, &mut self.random[self.domain_of[vcpu]]);
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
        let guest = |domain: Option<usize>| {
            let pool = domain.and_then(|domain| self.pools[domain].as_ref());
            pool.and_then(|pool| pool.interface)
                .map_or(WayOn::Wire, WayOn::Guest)
        };
        let Some(path) = &self.path else {
            return WayOn::Wire;
        };
        match packet.kind {
            Kind::Question => guest(path.control),
            Kind::Answer => guest(path.signalling),
            _ => WayOn::Wire,
        }
    }

    /// The interface to which the driver domain takes a packet that came from a card or a guest.
    fn destination(&self, packet: &Packet, origin: Origin) -> Option<usize> {
        if let Origin::FromGuest(_) | Origin::Released(_) = origin {
            return match self.way_on(packet) {
                WayOn::Guest(interface) => Some(interface),
                WayOn::Wire => None,
            };
        }
        let path = self.path.as_ref()?;
        let domain = match packet.kind {
            Kind::Voice => Some(path.media),
            _ => path.signalling,
        };
        self.pools[domain?].as_ref()?.interface
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
            self.line(line).quiet(place);
        }
    }

    /// A kernel has moved a packet.
    pub(super) fn moved(&mut self, source: usize, vcpu: usize, packet: Packet, now: i64) {
        let origin = self.sources[source].origin;
        let domain = self.domain_of[vcpu];
        if packet.kind == Kind::Look {
            return self.look(now);
        }
        if let Origin::FromGuest(interface) = origin {
            if !self.guard(interface, packet) {
                return;
            }
            self.interfaces[interface].counted.sent += 1;
        }
        if packet.kind == Kind::Disk {
            let latency_ns = self.cost(vcpu, |costs| costs.disk_latency);
            return self.outside(now + latency_ns, Outside::Disk { call: packet.of });
        }
        let is_driver = self
            .path
            .as_ref()
            .is_some_and(|path| path.driver == Some(domain));
        match origin {
            Origin::ToGuest(_) if packet.kind == Kind::Segment => {
                self.take_segment(domain, packet, now)
            }
            Origin::ToGuest(_) => self.put_into_socket(domain, packet),
            Origin::Released(number) => self.leave(number, packet, now),
            Origin::Card(_) if !is_driver => self.put_into_socket(domain, packet),
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
        if self.is_absent(self.interfaces[interface].domain) {
            self.drops.failure += 1;
            return self.lose(&packet);
        }
        let interface = &mut self.interfaces[interface];
        // Others may have come while netback had this one in its hands.
        if !interface.has_room() {
            self.drops.netback += 1;
            return self.lose(&packet);
        }
        interface.to_guest.push_back(packet);
        let source = interface.to_source;
        self.notify(source);
    }

    /// Puts a packet into a card of a domain of its own, or else of the driver domain; it reaches a phone. Whether
    /// there was room.
    pub(super) fn onto_wire(&mut self, own: Option<usize>, packet: Packet, now: i64) -> bool {
        let Workloads {
            pools,
            cards,
            path: Some(path),
            ..
        } = self
        else {
            return false;
        };
        let candidates = match own.and_then(|domain| pools[domain].as_ref()) {
            Some(pool) => &pool.cards,
            None => &path.driver_cards,
        };
        let card = candidates[packet.of as usize % candidates.len()];
        let sent_ns = cards[card].transmit(path.wire_bytes(&packet), now);
        match sent_ns {
            Some(_) if packet.kind == Kind::Bulk => {}
            Some(at_ns) => path.phones.deliver(&packet, at_ns),
            None => {
                self.drops.nic_transmit += 1;
                self.lose(&packet);
            }
        }
        sent_ns.is_some()
    }

    /// A disk operation is done: the signalling server hears of it as of a packet.
    pub(super) fn answer_from_disk(&mut self, call: u64, now: i64) {
        let interfaces = self.interfaces.iter();
        let signalling = self.path.as_ref().and_then(|path| path.signalling);
        let mine = |interface: &Interface| Some(interface.domain) == signalling;
        if let Some(interface) = interfaces.clone().position(mine) {
            let packet = Packet {
                kind: Kind::DiskDone,
                of: call,
                number: phones::INVITE,
                sent_ns: now,
            };
            self.put_into_guest(interface, packet);
        }
    }
}
