//! What guests do besides periodic tasks: packets, threads, pauses; and the network path that packets take.
//!
//! ```text
//! phone → wire → card's ring → driver domain: driver, bridge, netback → guest's ring → netfront, socket
//!       → thread → guest's ring back → driver domain: netback, bridge, driver → card → wire → phone
//! ```
//!
//! A card that a guest drives itself (VMM bypass) leaves the driver domain out. Each move of a packet is one step of CPU time
//! of the VCPU that does it; so packets wait where their VCPU waits for a CPU, and are dropped where a ring is full
//! meanwhile. `docs/explanation/policies.md` has the rules.

mod agreements;
mod card;
mod failover;
mod interface;
mod kept;
mod line;
mod link;
mod packet;
mod path;
mod phones;
mod protect;
mod setup;
mod threads;

use card::Card;
use interface::Interface;
use laxity_host::{Failure, Host};
use laxity_run::{Drops, KeptStream, NicResult, Telephony};
use line::{Line, Next, Step, What};
use packet::Packet;
use path::Path;
use phones::Send;
use protect::Protection;
use rand_pcg::Pcg32;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use threads::Pool;

const NEVER: i64 = i64::MAX;

/// Where packets come from that a VCPU handles.
#[derive(Debug, Clone, Copy)]
enum Origin {
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

struct Source {
    origin: Origin,
    /// The VCPU that handles it, and its place there.
    line: usize,
    place: u32,
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
    /// A protected domain, by its number: its checkpoint begins …
    Checkpoint { of: usize },
    /// … its pause is over …
    Resume { of: usize },
    /// … the standby has it.
    Acknowledged { of: usize },
    /// The host of the protected domains dies.
    Failure,
    /// They run on.
    Activation,
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
    protections: Vec<Protection>,
    /// Of each domain, whether it stands still for a checkpoint or is absent.
    still: Vec<bool>,
    failure: Option<Failure>,
    drops: Drops,
    next_ns: i64,
    signals: Vec<usize>,
}

impl Workloads {
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
        !self.still[self.domain_of[vcpu]] && self.lines[vcpu].as_ref().is_some_and(Line::has_work)
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
                Outside::Checkpoint { of } => self.begin_checkpoint(of, at_ns),
                Outside::Resume { of } => self.end_pause(of),
                Outside::Acknowledged { of } => self.acknowledged(of, at_ns),
                Outside::Failure => self.fail(),
                Outside::Activation => self.activate(),
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

    /// How much CPU time the VCPU's present step still needs; begins one if it has none. `None`: it has nothing to do.
    pub fn current(&mut self, vcpu: usize, now: i64) -> Option<i64> {
        if self.still[self.domain_of[vcpu]] {
            return None;
        }
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
                Next::Copy => self
                    .line(vcpu)
                    .copies
                    .pop_front()
                    .map(|step| (step.what, step.remaining_ns)),
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

    /// The VCPU has worked for so long.
    #[inline]
    pub fn advance(&mut self, vcpu: usize, ns: i64) {
        self.line(vcpu).advance(ns);
    }

    /// Whether the VCPU, which runs, should leave what it does for something that came up.
    pub fn is_to_switch(&self, vcpu: usize) -> bool {
        self.still[self.domain_of[vcpu]]
            || self.lines[vcpu].as_ref().is_some_and(Line::is_to_switch)
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
            Some(What::Copy(of)) => {
                let of = of as usize;
                if let Some(at_ns) = self.protections[of].copied(now) {
                    self.outside(at_ns, Outside::Acknowledged { of });
                }
            }
            Some(What::Burst) => {
                if let Some((_, idle_ns)) = self.bursts[self.domain_of[vcpu]] {
                    self.outside(now + idle_ns, Outside::Burst { line: vcpu });
                }
            }
        }
        self.look_ahead();
    }

    /// What came of it all, at the end of the run.
    pub fn finish(self, host: &Host) -> (Option<Telephony>, Vec<KeptStream>) {
        let (Some(path), Some(described)) = (self.path, &host.calls) else {
            return (None, Vec::new());
        };
        let (voice, calls, registrations, kept) = path.phones.finish(host.duration_ns);
        let nics = self.cards.iter().zip(self.names);
        let telephony = Telephony {
            voice,
            drops: self.drops,
            calls: path.signalling.map(|_| calls),
            registrations,
            protection: (self.protections.into_iter())
                .map(Protection::finish)
                .collect(),
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
            limits: described.acceptance,
            accepted: None,
        };
        (Some(telephony), kept)
    }
}
