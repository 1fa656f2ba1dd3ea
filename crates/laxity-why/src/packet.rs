//! Late and lost packets of voice and messages of registrations: each one's way, split into causes; and outages, whose
//! stages the trace tells in the same form.

use crate::cause::{Cause, Key, Part, Who};
use crate::history::History;
use crate::share::divide;
use laxity_trace::{Kind, Place, Reader, Record, Spent, TraceError, hop_of, spent_of};
use std::collections::BTreeSet;
use std::io::Read;

/// What has a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A packet of voice, from phone to phone.
    Voice,
    /// A message of a registration, until its answer comes.
    Registration,
    /// A domain without a host. It is late by all of the time that it was.
    Outage,
}

impl Subject {
    /// What the way that ends with a record of this kind is of.
    pub fn of(kind: Kind) -> Option<Subject> {
        match kind {
            Kind::Packet => Some(Subject::Voice),
            Kind::Message => Some(Subject::Registration),
            Kind::Outage => Some(Subject::Outage),
            _ => None,
        }
    }
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrived late.
    Arrived,
    /// It was lost.
    Lost,
    /// It was still on its way when the run ended.
    Unfinished,
}

/// A late or lost packet, or an outage, whose way has been split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// What it is.
    pub subject: Subject,
    /// The server, or the domain that was out.
    pub domain: u16,
    /// The stream or registration, modulo 2^24; 0 of an outage.
    pub stream: u32,
    /// The packet's number in its stream, from 0; how often the message was sent before.
    pub number: u64,
    /// When it was sent, ns from the start of the run.
    pub sent_ns: i64,
    /// When it, or the answer, had to be at its phone, ns from the start of the run.
    pub deadline_ns: i64,
    /// When it was, or was lost, or the run ended, ns from the start of the run.
    pub end_ns: i64,
    /// What became of it.
    pub fate: Fate,
    /// The place that had no room for it; `None` if it was lost otherwise, or not at all.
    pub lost_at: Option<Place>,
    /// How long after its deadline it arrived, or the run ended. For a lost one: how long the oldest packet had waited
    /// at the place that had no room for it.
    pub late_ns: i64,
    /// From the greatest delay to the smallest. The shares sum to `late_ns`.
    pub parts: Vec<PacketPart>,
}

/// A part of what delayed a packet, or kept a place full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketPart {
    /// The VCPU that was to handle packets meanwhile.
    pub at: Option<(u16, u16)>,
    /// What happened to that VCPU, or to the packet.
    pub part: Part,
}

/// A place on the way of a packet, as the trace tells it.
#[derive(Debug, Clone, Copy)]
struct Hop {
    place: Place,
    /// The VCPU's place among all.
    index: usize,
    vcpu: (u16, u16),
    since_ns: i64,
    work_ns: i64,
    pause_ns: i64,
}

/// The way that is told at present.
#[derive(Debug, Default)]
pub struct Way {
    hops: Vec<Hop>,
}

/// What is asked about each VCPU: its history, and what its keys mean.
pub trait Histories {
    /// Those of the VCPU at this place among all, up to now; `None` if it is not watched.
    fn of(&self, index: usize) -> Option<(&History, &[Key])>;
}

impl Way {
    /// Takes a record about packets. `index` is the VCPU's place among all.
    pub fn record(&mut self, record: &Record, index: usize) {
        match record.kind {
            Kind::Hop => {
                if let Some((place, since_ns)) = hop_of(record.argument) {
                    self.hops.push(Hop {
                        place,
                        index,
                        vcpu: (record.domain, record.vcpu),
                        since_ns,
                        work_ns: 0,
                        pause_ns: 0,
                    });
                }
            }
            Kind::Spent => {
                if let (Some(last), Some((on, ns))) =
                    (self.hops.last_mut(), spent_of(record.argument))
                {
                    match on {
                        Spent::Work => last.work_ns = ns,
                        Spent::Pause => last.pause_ns = ns,
                    }
                }
            }
            _ => {}
        }
    }

    /// The VCPUs that the way leads over.
    pub fn vcpus(&self) -> impl Iterator<Item = usize> {
        self.hops.iter().map(|hop| hop.index)
    }

    /// The earliest time that the way tells of.
    fn earliest_ns(&self) -> Option<i64> {
        self.hops.iter().map(|hop| hop.since_ns).min()
    }

    /// Ends the way with its packet at `now`, and splits it. `None` if the trace tells no whole way.
    pub fn finish(
        &mut self,
        subject: Subject,
        (domain, stream, number): (u16, u32, u64),
        (delay_ns, now): (i64, i64),
        histories: &impl Histories,
    ) -> Option<Packet> {
        let hops = std::mem::take(&mut self.hops);
        let (first, last) = (hops.first()?, hops.last()?);
        let is_whole =
            last.place.is_end() && hops.iter().rev().skip(1).all(|hop| !hop.place.is_end());
        if !is_whole || hops.len() < 2 {
            return None;
        }
        let sent_ns = first.since_ns;
        let mut split = Split {
            histories,
            delays: Vec::new(),
        };
        let fate = match last.place {
            Place::Full => {
                let full = &hops[hops.len() - 2];
                let waited = Hop {
                    work_ns: 0,
                    pause_ns: last.pause_ns,
                    since_ns: last.since_ns,
                    ..*full
                };
                split.hop(&waited, now);
                Fate::Lost
            }
            Place::Failure => {
                split.add(None, Key::of(Cause::Failure), now - sent_ns);
                Fate::Lost
            }
            place => {
                for pair in hops.windows(2) {
                    split.hop(&pair[0], pair[1].since_ns);
                }
                if place == Place::Arrived {
                    Fate::Arrived
                } else {
                    Fate::Unfinished
                }
            }
        };
        let end_ns = if fate == Fate::Arrived {
            last.since_ns
        } else {
            now
        };
        let deadline_ns = sent_ns.saturating_add(delay_ns);
        let mut parts: Vec<PacketPart> = split.parts();
        let late_ns = match fate {
            Fate::Lost => parts.iter().map(|part| part.part.delay_ns).sum(),
            Fate::Arrived | Fate::Unfinished => end_ns.saturating_sub(deadline_ns).max(0),
        };
        let mut shares: Vec<Part> = parts.iter().map(|part| part.part).collect();
        match fate {
            Fate::Lost => shares.iter_mut().for_each(|part| part.ns = part.delay_ns),
            Fate::Arrived | Fate::Unfinished => divide(&mut shares, delay_ns, late_ns),
        }
        for (part, share) in parts.iter_mut().zip(shares) {
            part.part = share;
        }
        Some(Packet {
            subject,
            domain,
            stream,
            number,
            sent_ns,
            deadline_ns,
            end_ns,
            fate,
            lost_at: (last.place == Place::Full).then(|| hops[hops.len() - 2].place),
            late_ns,
            parts,
        })
    }
}

/// The VCPU that was to handle the packet, what happened, and for how long, ns.
type Delay = (Option<(u16, u16)>, Key, i64);

/// Delays by what they are.
struct Split<'a, H> {
    histories: &'a H,
    /// Few, so that looking at all of them takes less than any order would.
    delays: Vec<Delay>,
}

impl<H: Histories> Split<'_, H> {
    fn add(&mut self, at: Option<(u16, u16)>, key: Key, ns: i64) {
        if ns <= 0 {
            return;
        }
        let mut known = self.delays.iter_mut();
        match known.find(|(known_at, known_key, _)| (*known_at, *known_key) == (at, key)) {
            Some((_, _, delay_ns)) => *delay_ns += ns,
            None => self.delays.push((at, key, ns)),
        }
    }

    /// What a packet spent its time on at a place up to then.
    fn hop(&mut self, hop: &Hop, to_ns: i64) {
        let mut rest_ns = to_ns.saturating_sub(hop.since_ns).max(0);
        let alone = match hop.place {
            Place::WireIn | Place::WireOut => Some(Cause::Link),
            Place::Rate => Some(Cause::Rate),
            Place::Held => Some(Cause::Held),
            Place::Silence => Some(Cause::Silence),
            Place::Activation => Some(Cause::Activation),
            _ => None,
        };
        if let Some(cause) = alone {
            return self.add(None, Key::of(cause), rest_ns);
        }
        let at = Some(hop.vcpu);
        let itself = Who::Vcpu(hop.vcpu.0, hop.vcpu.1);
        let (mut ran_ns, mut blocked_ns) = (0, 0);
        if let Some((history, keys)) = self.histories.of(hop.index) {
            for (key, ns) in history.between(hop.since_ns, to_ns) {
                let ns = ns.min(rest_ns);
                rest_ns -= ns;
                match keys[key].cause {
                    Cause::Overhead | Cause::Task => ran_ns += ns,
                    Cause::Blocked => blocked_ns += ns,
                    _ => self.add(at, keys[key], ns),
                }
            }
        }
        let own_ns = ran_ns.min(hop.work_ns);
        self.add(None, Key::of(Cause::OwnWork), own_ns);
        self.add(at, Key::by(Cause::Queue, itself), ran_ns - own_ns);
        let pause_ns = blocked_ns.min(hop.pause_ns);
        self.add(at, Key::of(Cause::Pause), pause_ns);
        let slept = match hop.place {
            Place::Card => Cause::Coalesced,
            _ => Cause::Blocked,
        };
        self.add(at, Key::of(slept), blocked_ns - pause_ns + rest_ns);
    }

    fn parts(mut self) -> Vec<PacketPart> {
        // Equals are in the order of VCPUs and causes.
        (self.delays).sort_unstable_by_key(|&(at, key, delay_ns)| (-delay_ns, at, key));
        let part = |(at, key, delay_ns): Delay| PacketPart {
            at,
            part: Part {
                cause: key.cause,
                who: key.who,
                rule: key.rule,
                delay_ns,
                ns: 0,
            },
        };
        self.delays.into_iter().map(part).collect()
    }
}

/// What a trace's packets ask of whoever explains them.
#[derive(Debug, Default)]
pub struct Watch {
    way: Way,
    /// The VCPUs that handle packets and messages, by their domains and numbers.
    pub vcpus: BTreeSet<(u16, u16)>,
    /// How far back from its end the longest way of those goes. The stages of an outage are no matter of VCPUs.
    pub window_ns: i64,
}

impl Watch {
    /// Reads a trace for its packets; one without calls has none.
    ///
    /// # Errors
    ///
    /// The trace is damaged.
    pub fn of<R: Read>(reader: Reader<R>) -> Result<Watch, TraceError> {
        let mut watch = Watch::default();
        if reader.metadata().calls.is_some() {
            for record in reader {
                watch.record(&record?);
            }
        }
        Ok(watch)
    }

    fn record(&mut self, record: &Record) {
        match record.kind {
            Kind::Hop => self.way.record(record, 0),
            Kind::Packet | Kind::Message => {
                if let Some(earliest_ns) = self.way.earliest_ns() {
                    let goes_back_ns = record.time_ns.saturating_sub(earliest_ns);
                    self.window_ns = self.window_ns.max(goes_back_ns);
                }
                self.vcpus.extend(self.way.hops.iter().map(|hop| hop.vcpu));
                self.way.hops.clear();
            }
            Kind::Outage => self.way.hops.clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laxity_trace::{NONE, hop};

    #[test]
    fn outages_keep_no_history() {
        let mut watch = Watch::default();
        let mut tell = |time_ns, vcpu, way: &[(Place, i64)], end| {
            let hops = way
                .iter()
                .map(|&(place, since_ns)| (Kind::Hop, hop(place, since_ns)));
            for (kind, argument) in hops.chain([(end, 0)]) {
                watch.record(&Record {
                    time_ns,
                    argument,
                    cpu: NONE,
                    domain: 1,
                    vcpu,
                    kind,
                });
            }
        };
        let outage = [
            (Place::Silence, 1_000),
            (Place::Activation, 8_000),
            (Place::Arrived, 9_000),
        ];
        tell(9_000, 0, &outage, Kind::Outage);
        tell(
            9_500,
            3,
            &[(Place::Socket, 9_400), (Place::Full, 9_300)],
            Kind::Packet,
        );
        assert_eq!(watch.vcpus, BTreeSet::from([(1, 3)]));
        assert_eq!(watch.window_ns, 200);
    }
}
