//! What guests do besides periodic tasks: packets, threads, pauses; and the network path that packets take.
//!
//! ```text
//! phone → wire → card's ring → driver domain: driver, bridge, netback → guest's ring → netfront, socket
//!       → thread → guest's ring back → driver domain: netback, bridge, driver → card → wire → phone
//! ```
//!
//! A card that a guest drives itself (VMM bypass) leaves the driver domain out. Each move of a packet is one step of CPU time
//! of the VCPU that does it; so packets wait where their VCPU waits for a CPU, and are dropped where a ring is full
//! meanwhile. `docs/policies.md` has the rules.

mod card;
mod kept;
mod line;
mod link;
mod packet;
mod phones;

pub use kept::{KeptStream, LOST};
pub use packet::Drops;
pub use phones::{CallsResult, Voice, WorstStream};

use crate::engine::draw;
use card::{Card, Reaction};
use laxity_host::{Calls, Cost, Host, NetworkCosts, Server, Workload};
use line::{Line, Next, Step, What};
use link::{Allocator, Counted, Credit};
use packet::{Kind, Packet, WIRE_BYTES};
use phones::{Phones, Send};
use rand_core::RngCore;
use rand_pcg::Pcg32;
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// Slots of the rings that a guest shares with netback, each way.
const SHARED_RING: usize = 256;
/// Packets that netback's interface keeps before the ring towards a guest (Xen 3.2's `XENVIF_QUEUE_LENGTH`).
const NETBACK_QUEUE: usize = 32;
/// Packets that a guest's interface keeps before its ring (Linux's default queue length).
const NETFRONT_QUEUE: usize = 1000;
/// Packets of a stream that a socket's buffer holds: Linux's 108 KiB by default, at somewhat less than 1 KiB each.
const SOCKET_PACKETS: u16 = 128;

const NEVER: i64 = i64::MAX;

/// Where packets come from that a VCPU handles.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Card(usize),
    /// From netback to the guest with this interface.
    ToGuest(usize),
    /// From the guest to netback.
    FromGuest(usize),
    /// The allocator's turns.
    Allocator,
}

struct Source {
    origin: Origin,
    /// The VCPU that handles it, and its place there.
    line: usize,
    place: u32,
}

/// A guest's interface towards the driver domain.
struct Interface {
    domain: usize,
    to_guest: VecDeque<Packet>,
    from_guest: VecDeque<Packet>,
    to_source: usize,
    from_source: usize,
    /// Of a domain that is held to an agreement.
    credit: Option<Credit>,
    /// Netback waits for credit.
    is_stopped: bool,
    counted: InterfaceResult,
    /// Frames that netback took, in bytes, and how often it stopped.
    sent_bytes: u64,
    stops: u64,
}

impl Interface {
    fn is_full(&self) -> bool {
        self.from_guest.len() >= SHARED_RING + NETFRONT_QUEUE
    }
}

/// A domain that serves packets.
struct Pool {
    role: Role,
    work: Cost,
    /// What a thread pays to send a packet on.
    send: Cost,
    /// Of each idle thread the VCPU at which it was last; who has been idle longest comes first.
    idle: VecDeque<usize>,
    vcpus: Range<usize>,
    waiting: VecDeque<Packet>,
    /// Cards of its own; otherwise its packets go through its interface.
    cards: Vec<usize>,
    interface: Option<usize>,
    handled: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Media,
    Signalling,
    Control,
    Sender,
}

/// What happens outside of VCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outside {
    /// A card has waited for long enough.
    Coalesced { card: usize },
    /// The signalling server's disk operation for a call is done.
    Disk { call: u64 },
    /// A VCPU that computes with pauses has paused.
    Burst { line: usize },
    /// A sender sends its next packet.
    Send { domain: usize },
    /// Netback has credit for a guest again.
    Credit { interface: usize },
    /// The allocator is to look.
    Look,
}

/// The way of packets on a host.
struct Path {
    costs: NetworkCosts,
    voice_bytes: u32,
    signalling: Option<usize>,
    control: Option<usize>,
    media: usize,
    driver: Option<usize>,
    /// Cards of the driver domain.
    driver_cards: Vec<usize>,
    /// Of each domain's packets, and the time between them; 0 if it is no sender.
    senders: Vec<(u32, i64)>,
    link: Option<LinkState>,
    phones: Phones,
}

/// The allocator at work.
struct LinkState {
    allocator: Allocator,
    source: usize,
    /// A look is due and has not begun.
    is_due: bool,
}

impl Path {
    /// Of a packet, from its Ethernet header on.
    fn frame_bytes(&self, packet: &Packet) -> u32 {
        match packet.kind {
            Kind::Bulk => self.senders[packet.of as usize].0,
            _ => packet.frame_bytes(self.voice_bytes),
        }
    }

    fn wire_bytes(&self, packet: &Packet) -> u32 {
        self.frame_bytes(packet) + WIRE_BYTES
    }
}

/// All of it, for a host.
pub struct Workloads {
    /// Of each VCPU, by number; VCPUs with other work have none.
    lines: Vec<Option<Line>>,
    /// The domain of each VCPU.
    domain_of: Vec<usize>,
    /// One stream a domain.
    random: Vec<Pcg32>,
    /// By domain.
    pools: Vec<Option<Pool>>,
    bursts: Vec<Option<(i64, i64)>>,
    sources: Vec<Source>,
    interfaces: Vec<Interface>,
    cards: Vec<Card>,
    names: Vec<String>,
    /// Packets on each card's wire.
    wires: Vec<VecDeque<(i64, Packet)>>,
    /// Its source of each card.
    card_sources: Vec<usize>,
    outside: BinaryHeap<Reverse<(i64, u64, Outside)>>,
    outside_made: u64,
    path: Option<Path>,
    drops: Drops,
    next_ns: i64,
    signals: Vec<usize>,
}

/// Calls and voice, and what was lost where.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Telephony {
    /// Voice, end to end.
    pub voice: Voice,
    /// Where packets were dropped, signalling included.
    pub drops: Drops,
    /// Calls that were set up; null without a signalling server.
    pub calls: Option<CallsResult>,
    /// In the order of the host file.
    pub nics: Vec<NicResult>,
    /// Of the domains whose packets go through the driver domain, in the order of the host file.
    pub interfaces: Vec<InterfaceResult>,
    /// What was heard; null until the sampled streams are scored.
    pub quality: Option<Quality>,
}

/// What was heard of the sampled streams, or of pieces of 30 s of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Quality {
    /// So many were scored.
    pub scored: u64,
    /// PESQ (ITU-T P.862) of 4 or better.
    pub toll_quality: u64,
    /// So many had nothing to hear; their PESQ is 0.
    pub dead: u64,
    /// PESQ.
    pub pesq: Scores,
    /// The same as a mean opinion score (ITU-T P.862.1).
    pub mos_lqo: Scores,
    /// The E-model's mean opinion score (ITU-T G.107), from delay and loss.
    pub e_model_mos: Scores,
    /// The one of the lowest PESQ.
    pub worst: WorstCall,
}

/// Each is that of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Scores {
    /// The lowest.
    pub min: f64,
    /// 5 % are at most this.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// The highest.
    pub max: f64,
}

/// What was heard of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorstCall {
    /// Its number.
    pub stream: u64,
    /// Its call; null for one of the streams that are always there.
    pub call: Option<u64>,
    /// PESQ.
    pub pesq: f64,
    /// The E-model's mean opinion score.
    pub e_model_mos: f64,
    /// The part of its packets that did not arrive …
    pub loss_ratio: f64,
    /// … or arrived too late to be heard.
    pub late_ratio: f64,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NicResult {
    /// As in the host file.
    pub name: String,
    /// Packets that came.
    pub received: u64,
    /// Packets that left.
    pub sent: u64,
    /// Interrupts that it raised.
    pub interrupts: u64,
}

/// What a domain sent towards the driver domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InterfaceResult {
    /// Its name.
    pub domain: String,
    /// Packets that it wanted to send.
    pub offered: u64,
    /// Of these it dropped so many itself, as its queue was full.
    pub dropped_in_guest: u64,
    /// So many the driver domain dropped, which had taken them: its card's queue was full.
    pub dropped_at_card: u64,
    /// So many left the card, or went on to another guest or a disk. What is missing was on its way at the end.
    pub sent: u64,
}

impl Workloads {
    /// `first_vcpus` is the number of each domain's first VCPU; `stream` gives a stream of random numbers by number.
    pub fn new(host: &Host, first_vcpus: &[usize], stream: impl Fn(usize) -> Pcg32) -> Workloads {
        let domains = host.domains.len();
        let vcpus = host.domains.iter().map(|domain| domain.vcpus.len());
        let mut workloads = Workloads {
            lines: Vec::new(),
            domain_of: (vcpus.enumerate())
                .flat_map(|(domain, vcpus)| std::iter::repeat_n(domain, vcpus))
                .collect(),
            random: (0..domains).map(&stream).collect(),
            pools: (0..domains).map(|_| None).collect(),
            bursts: vec![None; domains],
            sources: Vec::new(),
            interfaces: Vec::new(),
            cards: Vec::new(),
            names: Vec::new(),
            wires: Vec::new(),
            card_sources: Vec::new(),
            outside: BinaryHeap::new(),
            outside_made: 0,
            path: None,
            drops: Drops::default(),
            next_ns: NEVER,
            signals: Vec::new(),
        };
        workloads.lines = (workloads.domain_of.iter())
            .map(|&domain| {
                host.domains[domain]
                    .workload
                    .as_ref()
                    .map(|_| Line::default())
            })
            .collect();
        for (domain, description) in host.domains.iter().enumerate() {
            if let Some(Workload::Bursts { run_ns, idle_ns }) = description.workload {
                workloads.bursts[domain] = Some((run_ns, idle_ns));
                for vcpu in 0..description.vcpus.len() {
                    let span_ns = (run_ns + idle_ns) as u128;
                    let draw = u128::from(workloads.random[domain].next_u64());
                    let at_ns = ((draw * span_ns) >> 64) as i64;
                    let line = first_vcpus[domain] + vcpu;
                    workloads.outside(at_ns, Outside::Burst { line });
                }
            }
        }
        if let (Some(network), Some(calls)) = (&host.network, &host.calls) {
            workloads.add_network(host, network, calls, first_vcpus, stream(domains));
        }
        workloads.look_ahead();
        workloads
    }

    fn add_network(
        &mut self,
        host: &Host,
        network: &laxity_host::Network,
        calls: &Calls,
        first_vcpus: &[usize],
        random: Pcg32,
    ) {
        let vcpus = |domain: usize| host.domains[domain].vcpus.len();
        // A domain's interrupts go to its VCPUs in turn.
        let mut bound = vec![0; host.domains.len()];
        let mut next_line = |domain: usize| {
            let line = first_vcpus[domain] + bound[domain] % vcpus(domain);
            bound[domain] += 1;
            line
        };
        for (number, nic) in network.nics.iter().enumerate() {
            let source = self.add_source(Origin::Card(number), next_line(nic.domain));
            self.card_sources.push(source);
            self.cards.push(Card::new(nic));
            self.names.push(nic.name.clone());
            self.wires.push(VecDeque::new());
        }
        let cards_of = |domain: usize| -> Vec<usize> {
            let of = |&card: &usize| network.nics[card].domain == domain;
            (0..network.nics.len()).filter(of).collect()
        };
        let costs = network.costs;
        let sends = Server {
            threads: 1,
            work: Cost::default(),
            own_work: None,
            transcode: false,
        };
        for (domain, description) in host.domains.iter().enumerate() {
            let (role, server): (Role, &Server) = match &description.workload {
                Some(Workload::Sender { .. }) => (Role::Sender, &sends),
                Some(Workload::MediaServer(server)) => (Role::Media, server),
                Some(Workload::SignallingServer(server)) => (Role::Signalling, server),
                Some(Workload::CallControl(server)) => (Role::Control, server),
                _ => continue,
            };
            let cards = cards_of(domain);
            let interface = cards.is_empty().then(|| {
                let to_line = next_line(domain);
                let from_line = next_line(network.driver.unwrap_or(domain));
                let number = self.interfaces.len();
                let interface = Interface {
                    domain,
                    to_guest: VecDeque::new(),
                    from_guest: VecDeque::new(),
                    to_source: self.add_source(Origin::ToGuest(number), to_line),
                    from_source: self.add_source(Origin::FromGuest(number), from_line),
                    credit: None,
                    is_stopped: false,
                    counted: InterfaceResult {
                        domain: description.name.clone(),
                        ..InterfaceResult::default()
                    },
                    sent_bytes: 0,
                    stops: 0,
                };
                self.interfaces.push(interface);
                number
            });
            let onwards = match interface {
                Some(_) => costs.netfront_transmit,
                None => costs.transmit,
            };
            self.pools[domain] = Some(Pool {
                role,
                work: server.work,
                send: costs.socket_send.plus(onwards),
                idle: (0..server.threads as usize)
                    .map(|thread| first_vcpus[domain] + thread % vcpus(domain))
                    .collect(),
                vcpus: first_vcpus[domain]..first_vcpus[domain] + vcpus(domain),
                waiting: VecDeque::new(),
                cards,
                interface,
                handled: 0,
            });
        }
        let link = (network.link.as_ref())
            .zip(network.driver)
            .map(|(link, driver)| {
                let interface = |domain: usize| {
                    self.interfaces
                        .iter()
                        .position(|each| each.domain == domain)
                };
                let allocator = Allocator::new(link, interface);
                for (&interface, credit) in allocator.interfaces.iter().zip(allocator.credits()) {
                    self.interfaces[interface].credit = Some(credit);
                }
                self.outside(allocator.period_ns, Outside::Look);
                LinkState {
                    allocator,
                    source: self.add_source(Origin::Allocator, first_vcpus[driver]),
                    is_due: false,
                }
            });
        let mut senders = vec![(0, 0); host.domains.len()];
        for (domain, description) in host.domains.iter().enumerate() {
            if let Some(Workload::Sender {
                rate_bit_s,
                frame_bytes,
            }) = description.workload
            {
                let interval_ns = i64::from(frame_bytes) * 8_000_000_000 / rate_bit_s;
                let interval_ns = interval_ns.max(1);
                senders[domain] = (frame_bytes, interval_ns);
                let draw = u128::from(self.random[domain].next_u64());
                let at_ns = ((draw * interval_ns as u128) >> 64) as i64;
                self.outside(at_ns, Outside::Send { domain });
            }
        }
        self.path = Some(Path {
            senders,
            link,
            costs,
            voice_bytes: calls.codec.payload_bytes(),
            signalling: calls.signalling_server,
            control: calls.call_control,
            media: calls.media_server,
            driver: network.driver,
            driver_cards: network.driver.map_or(Vec::new(), cards_of),
            phones: Phones::new(calls, random),
        });
    }

    fn add_source(&mut self, origin: Origin, line: usize) -> usize {
        let number = self.sources.len();
        let place = self.line(line).add_source(number as u32);
        self.sources.push(Source {
            origin,
            line,
            place,
        });
        number
    }

    /// The work of a VCPU that has such work.
    #[inline]
    fn line(&mut self, vcpu: usize) -> &mut Line {
        self.lines[vcpu]
            .as_mut()
            .expect("a domain with a workload has lines")
    }

    /// Whether the VCPU's work is described here.
    pub fn has(&self, vcpu: usize) -> bool {
        self.lines[vcpu].is_some()
    }

    /// Whether the VCPU has something to do.
    #[inline]
    pub fn has_work(&self, vcpu: usize) -> bool {
        self.lines[vcpu].as_ref().is_some_and(Line::has_work)
    }

    /// When something happens next that no VCPU does.
    #[inline]
    pub fn next_ns(&self) -> i64 {
        self.next_ns
    }

    fn outside(&mut self, at_ns: i64, what: Outside) {
        self.outside_made += 1;
        self.outside.push(Reverse((at_ns, self.outside_made, what)));
    }

    fn look_ahead(&mut self) {
        let phones_ns = self
            .path
            .as_ref()
            .map_or(NEVER, |path| path.phones.next_ns());
        let outside_ns = self
            .outside
            .peek()
            .map_or(NEVER, |Reverse((at_ns, ..))| *at_ns);
        let wires = self.wires.iter();
        let wire_ns = wires
            .filter_map(|wire| wire.front().map(|(at_ns, _)| *at_ns))
            .min();
        self.next_ns = phones_ns.min(outside_ns).min(wire_ns.unwrap_or(NEVER));
    }

    /// Serves what comes first of what is due outside of VCPUs: packets that reach a card, then other things of the host,
    /// then phones.
    pub fn serve(&mut self, now: i64) {
        let due =
            |wire: &VecDeque<(i64, Packet)>| wire.front().is_some_and(|(at_ns, _)| *at_ns <= now);
        if let Some(card) = self.wires.iter().position(due) {
            if let Some((_, packet)) = self.wires[card].pop_front() {
                self.receive(card, packet, now);
            }
        } else if let Some(&Reverse((at_ns, _, what))) = self.outside.peek()
            && at_ns <= now
        {
            self.outside.pop();
            match what {
                Outside::Coalesced { card } => {
                    if !self.is_looked_at(self.card_sources[card]) && !self.cards[card].is_empty() {
                        self.interrupt(card);
                    }
                }
                Outside::Disk { call } => self.answer_from_disk(call, now),
                Outside::Burst { line } => {
                    self.line(line).burst = true;
                    self.signals.push(line);
                }
                Outside::Send { domain } => self.send_next(domain, at_ns),
                Outside::Credit { interface } => {
                    self.interfaces[interface].is_stopped = false;
                    if !self.interfaces[interface].from_guest.is_empty() {
                        self.notify(self.interfaces[interface].from_source);
                    }
                }
                Outside::Look => self.look_is_due(at_ns),
            }
        } else if let Some(path) = &mut self.path
            && let Send::Packet(packet) = path.phones.serve(now)
        {
            self.send_to_host(packet, now);
        }
        self.look_ahead();
    }

    /// VCPUs that got an event, or other work, since the last call.
    #[inline]
    pub fn take_signal(&mut self) -> Option<usize> {
        self.signals.pop()
    }

    /// A phone sends a packet.
    fn send_to_host(&mut self, packet: Packet, now: i64) {
        let Some(path) = &self.path else { return };
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
    fn receive(&mut self, card: usize, packet: Packet, now: i64) {
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

    /// A sender's thread has a packet to send, and the next one after its time.
    fn send_next(&mut self, domain: usize, now: i64) {
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

    /// The driver domain is told to look, unless it has not come to the last time.
    fn look_is_due(&mut self, now: i64) {
        let link = self.path.as_mut().and_then(|path| path.link.as_mut());
        let Some(link) = link else { return };
        link.is_due = true;
        let (source, period_ns) = (link.source, link.allocator.period_ns);
        self.outside(now + period_ns, Outside::Look);
        self.notify(source);
    }

    /// The allocator has looked.
    fn look(&mut self, now: i64) {
        let Workloads {
            path: Some(path),
            interfaces,
            ..
        } = self
        else {
            return;
        };
        let frame_bytes = |packet: &Packet| u64::from(path.frame_bytes(packet));
        let Some(link) = &path.link else { return };
        let counted = link.allocator.interfaces.iter().map(|&at| {
            let interface = &interfaces[at];
            Counted {
                sent_bytes: interface.sent_bytes,
                dropped: interface.counted.dropped_in_guest,
                stops: interface.stops,
                waiting_bytes: interface.from_guest.iter().map(frame_bytes).sum(),
            }
        });
        let counted: Vec<Counted> = counted.collect();
        let Some(link) = &mut path.link else { return };
        let mut credits: Vec<(usize, &mut Credit)> = interfaces
            .iter_mut()
            .enumerate()
            .filter_map(|(at, interface)| Some((at, interface.credit.as_mut()?)))
            .collect();
        let order = &link.allocator.interfaces;
        credits.sort_by_key(|(at, _)| order.iter().position(|other| other == at));
        let mut credits: Vec<&mut Credit> = credits.into_iter().map(|(_, credit)| credit).collect();
        link.allocator.look(&counted, &mut credits, now);
    }

    fn lose(&mut self, packet: &Packet) {
        if let Some(path) = &mut self.path {
            path.phones.lose(packet);
        }
    }

    fn interrupt(&mut self, card: usize) {
        self.cards[card].interrupts += 1;
        self.raise(self.card_sources[card]);
    }

    fn is_looked_at(&mut self, source: usize) -> bool {
        let Source { line, place, .. } = self.sources[source];
        self.line(line).looks_at(place)
    }

    fn raise(&mut self, source: usize) {
        let Source { line, place, .. } = self.sources[source];
        self.line(line).raise(place);
        self.signals.push(line);
    }

    /// Tells who handles the source that it has packets, unless it looks anyway or waits for credit.
    fn notify(&mut self, source: usize) {
        let waits = match self.sources[source].origin {
            Origin::FromGuest(interface) => self.interfaces[interface].is_stopped,
            _ => false,
        };
        if !waits && !self.is_looked_at(source) {
            self.raise(source);
        }
    }

    /// How much CPU time the VCPU's present step still needs; begins one if it has none. `None`: it has nothing to do.
    pub fn current(&mut self, vcpu: usize, now: i64) -> Option<i64> {
        if let Some(step) = self.line(vcpu).current() {
            return Some(step.remaining_ns);
        }
        loop {
            let step = match self.line(vcpu).next() {
                Next::Nothing => return None,
                Next::Interrupt => {
                    Some((What::Interrupt, self.cost(vcpu, |costs| costs.interrupt)))
                }
                Next::Source(place) => self.begin_source(vcpu, place, now),
                Next::Thread => self.begin_thread(vcpu),
                Next::Burst => {
                    self.line(vcpu).burst = false;
                    let run_ns = self.bursts[self.domain_of[vcpu]].map_or(1, |(run_ns, _)| run_ns);
                    Some((What::Burst, run_ns))
                }
            };
            if let Some((what, cost_ns)) = step {
                // A step of no time would let nothing else happen.
                let remaining_ns = cost_ns.max(1);
                self.line(vcpu).begin(Step { what, remaining_ns });
                return Some(remaining_ns);
            }
        }
    }

    fn cost(&mut self, vcpu: usize, of: impl Fn(&NetworkCosts) -> Cost) -> i64 {
        let cost = self
            .path
            .as_ref()
            .map_or(Cost::default(), |path| of(&path.costs));
        draw(&cost, &mut self.random[self.domain_of[vcpu]])
    }

    /// Takes a packet out of a source; `None` if it had none.
    fn begin_source(&mut self, vcpu: usize, place: u32, now: i64) -> Option<(What, i64)> {
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
            Origin::ToGuest(_) => (costs.netfront_receive.plus(costs.socket_receive), None),
            Origin::FromGuest(_) if packet.kind == Kind::Disk => (costs.disk, None),
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
            if self.has_room(&packet, origin) {
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

    /// Whether netback may take the next packet of a guest. If not it stops, until there is credit.
    fn has_credit(&mut self, number: usize, now: i64) -> bool {
        let Some(path) = &self.path else { return true };
        let interface = &mut self.interfaces[number];
        let Some(packet) = interface.from_guest.front() else {
            return true;
        };
        let bytes = path.frame_bytes(packet);
        if let Some(credit) = &mut interface.credit
            && let Err(until_ns) = credit.take(bytes, now)
        {
            interface.is_stopped = true;
            interface.stops += 1;
            self.outside(until_ns, Outside::Credit { interface: number });
            return false;
        }
        interface.sent_bytes += u64::from(bytes);
        true
    }

    fn take_look(&mut self) -> Option<Packet> {
        let link = self.path.as_mut()?.link.as_mut()?;
        std::mem::take(&mut link.is_due).then_some(Packet {
            kind: Kind::Look,
            of: 0,
            number: 0,
            sent_ns: 0,
        })
    }

    /// Where the driver domain sends a packet of a guest.
    fn way_on(&self, packet: &Packet) -> WayOn {
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
        if let Origin::FromGuest(_) = origin {
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
        self.destination(packet, origin).is_some_and(|interface| {
            self.interfaces[interface].to_guest.len() < SHARED_RING + NETBACK_QUEUE
        })
    }

    /// A thread takes a packet, or goes idle if there is none.
    fn begin_thread(&mut self, vcpu: usize) -> Option<(What, i64)> {
        let domain = self.domain_of[vcpu];
        let pool = self.pools[domain].as_mut()?;
        let packet = pool.waiting.pop_front();
        self.lines[vcpu].as_mut()?.ready -= 1;
        let Some(packet) = packet else {
            pool.idle.push_back(vcpu);
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

    /// The VCPU has worked for so long.
    #[inline]
    pub fn advance(&mut self, vcpu: usize, ns: i64) {
        self.line(vcpu).advance(ns);
    }

    /// Whether the VCPU, which runs, should leave what it does for something that came up.
    pub fn is_to_switch(&self, vcpu: usize) -> bool {
        self.lines[vcpu].as_ref().is_some_and(Line::is_to_switch)
    }

    /// The VCPU has done its present step.
    pub fn complete(&mut self, vcpu: usize, now: i64) {
        match self.line(vcpu).end() {
            None | Some(What::Interrupt) => {}
            Some(What::Waste { source, packet }) => {
                self.drops.netback += 1;
                self.lose(&packet);
                self.quiet_if_empty(source as usize);
            }
            Some(What::Source { source, packet }) => {
                self.moved(source as usize, vcpu, packet, now);
                self.quiet_if_empty(source as usize);
            }
            Some(What::Thread(packet)) => self.handled(vcpu, packet, now),
            Some(What::Burst) => {
                if let Some((_, idle_ns)) = self.bursts[self.domain_of[vcpu]] {
                    self.outside(now + idle_ns, Outside::Burst { line: vcpu });
                }
            }
        }
        self.look_ahead();
    }

    /// A source without packets interrupts for the next one.
    fn quiet_if_empty(&mut self, source: usize) {
        let empty = match self.sources[source].origin {
            Origin::Card(card) => self.cards[card].is_empty(),
            Origin::ToGuest(interface) => self.interfaces[interface].to_guest.is_empty(),
            Origin::FromGuest(interface) => self.interfaces[interface].from_guest.is_empty(),
            Origin::Allocator => true,
        };
        if empty {
            let Source { line, place, .. } = self.sources[source];
            self.line(line).quiet(place);
        }
    }

    /// A kernel has moved a packet.
    fn moved(&mut self, source: usize, vcpu: usize, packet: Packet, now: i64) {
        let origin = self.sources[source].origin;
        let domain = self.domain_of[vcpu];
        if packet.kind == Kind::Look {
            return self.look(now);
        }
        if let Origin::FromGuest(interface) = origin {
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
            Origin::ToGuest(_) => self.put_into_socket(domain, packet),
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

    fn put_into_guest(&mut self, interface: usize, packet: Packet) {
        let Interface {
            to_guest,
            to_source,
            ..
        } = &mut self.interfaces[interface];
        // Others may have come while netback had this one in its hands.
        if to_guest.len() >= SHARED_RING + NETBACK_QUEUE {
            self.drops.netback += 1;
            return self.lose(&packet);
        }
        to_guest.push_back(packet);
        let source = *to_source;
        self.notify(source);
    }

    fn put_into_socket(&mut self, domain: usize, packet: Packet) {
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
    fn place_thread(&self, last: usize, vcpus: Range<usize>) -> usize {
        let has_threads = |vcpu: usize| self.lines[vcpu].as_ref().is_some_and(Line::has_threads);
        std::iter::once(last)
            .chain(vcpus)
            .find(|&vcpu| !has_threads(vcpu))
            .unwrap_or(last)
    }

    /// A thread has done its work on a packet, sends on what comes of it, and looks for the next one.
    fn handled(&mut self, vcpu: usize, packet: Packet, now: i64) {
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
        let packet = Packet {
            kind: next,
            ..packet
        };
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
                let source = interface.from_source;
                self.notify(source);
            }
        }
    }

    /// Puts a packet into a card of a domain of its own, or else of the driver domain; it reaches a phone. Whether
    /// there was room.
    fn onto_wire(&mut self, own: Option<usize>, packet: Packet, now: i64) -> bool {
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
    fn answer_from_disk(&mut self, call: u64, now: i64) {
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

    /// What came of it all; `now` is the end of the run.
    pub fn finish(self, now: i64) -> (Option<Telephony>, Vec<KeptStream>) {
        let Some(path) = self.path else {
            return (None, Vec::new());
        };
        let (voice, calls, kept) = path.phones.finish(now);
        let nics = self.cards.iter().zip(self.names);
        let telephony = Telephony {
            voice,
            drops: self.drops,
            calls: path.signalling.map(|_| calls),
            nics: nics
                .map(|(card, name)| NicResult {
                    name,
                    received: card.packets_received,
                    sent: card.packets_sent,
                    interrupts: card.interrupts,
                })
                .collect(),
            interfaces: self
                .interfaces
                .into_iter()
                .map(|each| each.counted)
                .collect(),
            quality: None,
        };
        (Some(telephony), kept)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WayOn {
    Guest(usize),
    Wire,
}
