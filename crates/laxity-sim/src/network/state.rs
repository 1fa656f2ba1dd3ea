//! Packets and all that moves them, at one instant; and what every kind of move needs.

use super::card::Card;
use super::interface::Interface;
use super::journey::Journeys;
use super::line::Line;
use super::link::Allocator;
use super::packet::{Kind, Packet, WIRE_BYTES};
use super::phones::Phones;
use super::pool::Pool;
use super::protect::Protection;
use crate::random::draw;
use crate::timers::NEVER;
use laxity_host::{Cost, NetworkCosts};
use laxity_run::Drops;
use rand_pcg::Pcg32;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// Where packets come from that a VCPU handles.
#[derive(Debug, Clone, Copy)]
pub enum Origin {
    Card(usize),
    /// From netback to the guest with this interface.
    ToGuest(usize),
    /// From the guest to netback.
    FromGuest(usize),
    /// What a protected domain sent, by its number: its checkpoint is with the standby.
    Released(usize),
    /// The allocator's turns.
    Allocator,
}

pub struct Source {
    pub origin: Origin,
    /// The VCPU that handles it, and its place there.
    pub line: usize,
    pub place: u32,
}

/// Packets that stand apart from the events that are about them.
#[derive(Default)]
pub struct InKernel {
    packets: Vec<Packet>,
    free: Vec<u32>,
}

impl InKernel {
    /// Takes a packet, and gives it a number.
    pub fn put(&mut self, packet: Packet) -> u32 {
        if let Some(number) = self.free.pop() {
            self.packets[number as usize] = packet;
            return number;
        }
        self.packets.push(packet);
        self.packets.len() as u32 - 1
    }

    /// Gives back the packet of that number, which is free then.
    pub fn take(&mut self, number: u32) -> Packet {
        self.free.push(number);
        self.packets[number as usize]
    }
}

/// What happens outside of VCPUs. Events are moved often, and so are small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outside {
    /// A card has waited for long enough.
    Coalesced { card: usize },
    /// The signalling server's disk operation for a call is done.
    Disk { call: u64 },
    /// The kernel of a native host has put the packet of that number into the socket of a pool.
    Arrived { pool: u32, number: u32 },
    /// A sender sends its next packet.
    Send { pool: usize },
    /// A thread that was last at the VCPU `last` has woken up, unless the pool's threads were forgotten once more.
    Woken {
        pool: u32,
        last: u32,
        forgotten: u32,
    },
    /// Netback has credit for a guest again.
    Credit { interface: usize },
    /// The allocator is to look.
    Look,
    /// A checkpoint of a protected domain, by its number, begins.
    Checkpoint { of: usize },
    /// The pause of a protected domain is over.
    Resume { of: usize },
    /// The standby has the checkpoint of a protected domain.
    Acknowledged { of: usize },
    /// The host of the protected domains dies.
    Failure,
    /// Protected domains run on elsewhere.
    Activation,
}

/// The allocator at work.
pub struct LinkState {
    pub allocator: Allocator,
    pub source: usize,
    /// A look is due and has not begun.
    pub is_due: bool,
}

/// Costs that are drawn together, added up once for all packets.
pub struct Sums {
    /// A card's packet comes into a socket of the domain that drives the card.
    pub card_to_socket: Cost,
    /// A guest's packet goes through the driver domain to a card.
    pub guest_to_card: Cost,
    /// A packet comes into a socket of a guest.
    pub into_guest: Cost,
    /// The kernel of a guest answers a packet.
    pub answer_of_guest: Cost,
}

impl Sums {
    pub fn of(costs: &NetworkCosts) -> Sums {
        Sums {
            card_to_socket: costs.receive.plus(costs.socket_receive),
            guest_to_card: costs.netback_transmit.plus(costs.transmit),
            into_guest: costs.netfront_receive.plus(costs.socket_receive),
            answer_of_guest: costs.socket_send.plus(costs.netfront_transmit),
        }
    }
}

/// The packets of a host.
pub struct Network {
    /// The work of each VCPU.
    pub lines: Vec<Line>,
    /// Whether each VCPU handles packets.
    pub is_here: Vec<bool>,
    /// The domain of each VCPU.
    pub domain_of: Vec<usize>,
    /// The pool of each VCPU of a server or sender.
    pub pool_of: Vec<usize>,
    /// One stream a domain.
    pub random: Vec<Pcg32>,
    pub pools: Vec<Pool>,
    pub sources: Vec<Source>,
    pub interfaces: Vec<Interface>,
    pub cards: Vec<Card>,
    /// The name of each card.
    pub names: Vec<String>,
    /// Packets on each card's wire.
    pub wires: Vec<VecDeque<(i64, Packet)>>,
    /// The source of each card's packets.
    pub card_sources: Vec<usize>,
    /// The pool whose domain drives each card; `None` is the driver domain.
    pub card_pools: Vec<Option<usize>>,
    /// Cards of the driver domain.
    pub driver_cards: Vec<usize>,
    /// VCPUs of the driver domain; none without one.
    pub driver_vcpus: Range<usize>,
    pub costs: NetworkCosts,
    pub sums: Sums,
    /// Whether servers are processes of the host's own kernel.
    pub native: bool,
    pub voice_bytes: u32,
    /// The pool of the media server.
    pub media: usize,
    /// The pool of the signalling server, and of call control.
    pub signalling: Option<usize>,
    pub control: Option<usize>,
    /// Frames of each domain that sends, in bytes.
    pub sent_bytes: Vec<u32>,
    pub link: Option<LinkState>,
    pub phones: Phones,
    pub protections: Vec<Protection>,
    /// Whether each domain stands still for a checkpoint or is absent.
    pub still: Vec<bool>,
    pub drops: Drops,
    pub outside: BinaryHeap<Reverse<(i64, u64, Outside)>>,
    /// Packets that a native host's kernel has taken from a card, by number.
    pub in_kernel: InKernel,
    pub outside_made: u64,
    pub next_ns: i64,
    pub signals: Vec<usize>,
    pub journeys: Journeys,
}

impl Network {
    /// Lets something happen at this time; of what happens at once, in the order of these calls.
    pub fn at(&mut self, at_ns: i64, what: Outside) {
        self.outside_made += 1;
        self.outside.push(Reverse((at_ns, self.outside_made, what)));
    }

    pub fn look_ahead(&mut self) {
        let outside_ns = self
            .outside
            .peek()
            .map_or(NEVER, |Reverse((at_ns, ..))| *at_ns);
        let wires = self.wires.iter();
        let wire_ns = wires
            .filter_map(|wire| wire.front().map(|(at_ns, _)| *at_ns))
            .min();
        self.next_ns = (self.phones.next_ns())
            .min(outside_ns)
            .min(wire_ns.unwrap_or(NEVER));
    }

    /// Bytes of a packet, from its Ethernet header on.
    pub fn frame_bytes(&self, packet: &Packet) -> u32 {
        match packet.kind {
            Kind::Bulk => self.sent_bytes[packet.of as usize],
            _ => packet.frame_bytes(self.voice_bytes),
        }
    }

    pub fn wire_bytes(&self, packet: &Packet) -> u32 {
        self.frame_bytes(packet) + WIRE_BYTES
    }

    /// What a move costs a VCPU this time, ns.
    #[inline]
    pub fn draw(&mut self, vcpu: usize, cost: Cost) -> i64 {
        // Most steps that a host does not have are free, and need no random number.
        if let Cost::Constant { ns } = cost {
            return ns;
        }
        draw(&cost, &mut self.random[self.domain_of[vcpu]])
    }

    pub fn lose(&mut self, packet: &Packet) {
        self.journeys.lose(packet);
        self.phones.lose(packet);
    }

    pub fn interrupt(&mut self, card: usize) {
        self.cards[card].interrupts += 1;
        self.raise(self.card_sources[card]);
    }

    pub fn is_looked_at(&self, source: usize) -> bool {
        let Source { line, place, .. } = self.sources[source];
        self.lines[line].looks_at(place)
    }

    fn raise(&mut self, source: usize) {
        let Source { line, place, .. } = self.sources[source];
        self.lines[line].raise(place);
        self.signals.push(line);
    }

    /// Tells the handler of the source that it has packets, unless the handler looks anyway or waits for credit.
    pub fn notify(&mut self, source: usize) {
        let waits = match self.sources[source].origin {
            Origin::FromGuest(interface) => self.interfaces[interface].is_stopped,
            _ => false,
        };
        if !waits && !self.is_looked_at(source) {
            self.raise(source);
        }
    }
}
