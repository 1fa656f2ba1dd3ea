//! Packets: the network path that they take, and the threads that work on them.
//!
//! ```text
//! phone → wire → card's ring → driver domain: driver, bridge, netback → guest's ring → netfront, socket
//!       → thread → guest's ring back → driver domain: netback, bridge, driver → card → wire → phone
//! ```
//!
//! A card that a guest drives itself (VMM bypass) leaves the driver domain out. Each move of a packet is one step of
//! CPU time of the VCPU that does it; so packets wait where their VCPU waits for a CPU, and are dropped where a ring is
//! full meanwhile. `docs/explanation/policies.md` has the rules.

mod agreements;
mod card;
mod failover;
mod interface;
mod journey;
mod kept;
mod line;
mod link;
mod packet;
mod pair;
mod path;
mod phones;
mod pool;
mod protect;
mod setup;
mod state;
mod threads;

pub use state::Network;

use crate::workloads::{Found, Workloads};
use interface::Interface;
use laxity_host::Host;
use laxity_run::{NetworkResult, NicResult, Telephony};
use laxity_trace::Record;
use line::{Next, Step, What};
use packet::Packet;
use phones::Send;
use protect::Protection;
use state::Outside;
use std::cmp::Reverse;
use std::collections::VecDeque;

impl Workloads for Network {
    const ANY: bool = true;

    #[inline]
    fn has(&self, vcpu: usize) -> bool {
        self.is_here[vcpu]
    }

    #[inline]
    fn has_work(&self, vcpu: usize) -> bool {
        !self.still[self.domain_of[vcpu]] && self.lines[vcpu].has_work()
    }

    #[inline]
    fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// At one instant packets that reach a card come first, then other things of the host, then phones.
    fn serve(&mut self, now: i64) {
        self.journeys.set_now(now);
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
                Outside::Arrived { pool, number } => {
                    let packet = self.in_kernel.take(number);
                    self.put_into_socket(pool as usize, packet, now);
                }
                Outside::Woken {
                    pool,
                    last,
                    forgotten,
                } => {
                    if self.pools[pool as usize].forgotten == forgotten {
                        self.woken(pool as usize, last as usize);
                    }
                }
                Outside::Send { pool } => self.send_next(pool, at_ns),
                Outside::Credit { interface } => {
                    self.interfaces[interface].is_stopped = false;
                    let Interface {
                        from_guest,
                        stopped_ns,
                        from_source,
                        ..
                    } = &self.interfaces[interface];
                    let line = self.sources[*from_source].line;
                    self.journeys.credit(from_guest.iter(), *stopped_ns, line);
                    if !self.interfaces[interface].from_guest.is_empty() {
                        self.notify(self.interfaces[interface].from_source);
                    }
                }
                Outside::Look => self.look_is_due(at_ns),
                Outside::Checkpoint { of } => self.begin_checkpoint(of, at_ns),
                Outside::Resume { of } => self.end_pause(of, at_ns),
                Outside::Acknowledged { of } => self.acknowledged(of, at_ns),
                Outside::Failure => self.fail(at_ns),
                Outside::Activation => self.activate(at_ns),
            }
        } else {
            if let Send::Packet(packet) = self.phones.serve(now) {
                self.send_to_host(packet, now);
            }
            if let Some(registration) = self.phones.take_answered() {
                self.journeys.answered(registration);
            }
        }
        self.look_ahead();
    }

    #[inline]
    fn take_signal(&mut self) -> Option<usize> {
        self.signals.pop()
    }

    fn current(&mut self, vcpu: usize, now: i64) -> Option<i64> {
        self.journeys.set_now(now);
        if self.still[self.domain_of[vcpu]] {
            return None;
        }
        if let Some(step) = self.lines[vcpu].current() {
            return Some(step.remaining_ns);
        }
        loop {
            let step = match self.lines[vcpu].next() {
                Next::Nothing => return None,
                Next::Interrupt => Some((What::Interrupt, self.draw(vcpu, self.costs.interrupt))),
                Next::Source(place) => self.begin_source(vcpu, place, now),
                Next::Thread => self.begin_thread(vcpu),
                Next::Copy => {
                    (self.lines[vcpu].copies.pop_front()).map(|step| (step.what, step.remaining_ns))
                }
            };
            if let Some((what, cost_ns)) = step {
                // A step of no time would let nothing else happen.
                let remaining_ns = cost_ns.max(1);
                if let What::Source { packet, .. } | What::Thread(packet) = &what {
                    self.journeys.begin(packet, vcpu, remaining_ns);
                }
                self.lines[vcpu].begin(Step { what, remaining_ns });
                return Some(remaining_ns);
            }
        }
    }

    #[inline]
    fn advance(&mut self, vcpu: usize, ns: i64) {
        self.lines[vcpu].advance(ns);
    }

    fn is_to_switch(&self, vcpu: usize) -> bool {
        self.still[self.domain_of[vcpu]] || self.lines[vcpu].is_to_switch()
    }

    fn complete(&mut self, vcpu: usize, now: i64) {
        self.journeys.set_now(now);
        match self.lines[vcpu].end() {
            None | Some(What::Interrupt) => {}
            Some(What::Waste { source, packet }) => {
                self.drops.netback += 1;
                if let Some(to) = self.destination(&packet, self.sources[source as usize].origin) {
                    self.find_netback_full(to, &packet);
                }
                self.lose(&packet);
                self.quiet_if_empty(source as usize);
            }
            Some(What::Source { source, packet }) => {
                self.moved(source as usize, vcpu, packet, now);
                self.quiet_if_empty(source as usize);
            }
            Some(What::Thread(packet)) => self.handled(vcpu, packet, now),
            Some(What::AfterSend) => self.lines[vcpu].ready += 1,
            Some(What::Copy(of)) => {
                let of = of as usize;
                if let Some(at_ns) = self.protections[of].copied(now) {
                    self.at(at_ns, Outside::Acknowledged { of });
                }
            }
        }
        self.look_ahead();
    }

    fn follow(&mut self, host: &Host) {
        if let Some(calls) = &host.calls {
            let first = |pool: usize| self.pools[pool].vcpus.start;
            let (media, signalling) = (
                first(self.media),
                first(self.signalling.unwrap_or(self.media)),
            );
            let delay_ns = calls.acceptance.delay_ns;
            self.journeys
                .follow(delay_ns, &self.domain_of, media, signalling);
        }
    }

    fn end(&mut self, now: i64) {
        self.journeys.end(now);
        self.tell_outages_at_end(now);
    }

    #[inline]
    fn has_records(&self) -> bool {
        self.journeys.has_records()
    }

    fn take_records(&mut self, tell: impl FnMut(Record)) {
        self.journeys.take_records().for_each(tell);
    }

    fn finish(self, host: &Host) -> Found {
        let agreements = self.agreements(host);
        let nics = (self.cards.iter().zip(self.names)).map(|(card, name)| NicResult {
            name,
            received: card.packets_received,
            sent: card.packets_sent,
            interrupts: card.interrupts,
        });
        let nics = nics.collect();
        let interfaces = self.interfaces.into_iter().map(|each| each.counted);
        let interfaces = interfaces.collect();
        let Some(described) = &host.calls else {
            return Found {
                network: Some(NetworkResult {
                    drops: self.drops,
                    nics,
                    interfaces,
                    agreements,
                }),
                ..Found::default()
            };
        };
        let (voice, calls, registrations, kept) = self.phones.finish(host.duration_ns);
        let telephony = Telephony {
            voice,
            drops: self.drops,
            calls: self.signalling.map(|_| calls),
            registrations,
            protection: (self.protections.into_iter())
                .map(Protection::finish)
                .collect(),
            nics,
            interfaces,
            quality: None,
            playout: described.playout,
            limits: described.acceptance,
            accepted: None,
        };
        Found {
            telephony: Some(telephony),
            network: None,
            kept,
        }
    }
}
