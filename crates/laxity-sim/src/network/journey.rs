//! The ways of voice packets and of registrations' messages, for the trace: where each was since when, told when it has
//! arrived late or is lost. A message has arrived when its answer has, and is late when its phone has sent it again or
//! given up before. Outages are told in the same form.
//!
//! A run without a trace follows none. Nothing here changes what happens to a packet.

use super::packet::{Kind, Packet};
use super::phones;
use laxity_host::ANSWER_WAITS_NS;
use laxity_trace::{Kind as RecordKind, NONE, Place, Record, Spent, hop, job, spent};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Streams and registrations are told modulo this number.
const STREAMS: u64 = 1 << 24;

/// What is followed: twice the number of the stream, or of the registration and one; and the packet's number there.
type Key = (u64, u32);

/// Whether the packet is the message of a registration, or its answer.
fn is_registration(packet: &Packet) -> bool {
    packet.kind == Kind::Signalling && packet.number == phones::REGISTER
}

fn key(packet: &Packet) -> Key {
    match packet.kind {
        Kind::Voice => (2 * packet.of, packet.number),
        _ => key_of_copy(packet.of, packet.copy.into()),
    }
}

fn is_of_registration((of, _): Key) -> bool {
    of % 2 == 1
}

/// The key of a copy of a registration's message: how often its phone sent the message before.
fn key_of_copy(registration: u64, copy: u32) -> Key {
    (2 * registration + 1, copy)
}

/// A place where a packet was.
#[derive(Debug, Clone, Copy)]
struct Hop {
    place: Place,
    /// The VCPU that was to handle it there, or did.
    line: usize,
    since_ns: i64,
    /// CPU time of its own.
    work_ns: i64,
    /// How long its domain had stood still when it came, and then how long it stood still meanwhile.
    paused_ns: i64,
}

/// How long domains have stood still.
#[derive(Debug, Default)]
struct Stood {
    /// The domain of each VCPU and the VCPU's number there.
    names: Vec<(u16, u16)>,
    /// Since when each domain stands still, and for how long it did before.
    still: Vec<(Option<i64>, i64)>,
}

impl Stood {
    /// How long the domain of the VCPU has stood still up to now.
    #[inline]
    fn paused_ns(&self, line: usize, now_ns: i64) -> i64 {
        let (domain, _) = self.names[line];
        let (since_ns, before_ns) = self.still[usize::from(domain)];
        before_ns + since_ns.map_or(0, |since_ns| now_ns - since_ns)
    }
}

/// Hashes the numbers of packets, which nobody chooses to make them collide: much cheaper than what is safe for others.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // 2^64 over the golden ratio: neighbours end up far apart.
        self.0 = (self.0.rotate_left(29) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// The ways of the packets that are in the host.
#[derive(Debug, Default)]
pub struct Journeys {
    /// How long a packet of voice may take, from phone to phone; None: nobody follows packets.
    delay_ns: Option<i64>,
    /// The media server's first VCPU.
    media: usize,
    /// The signalling server's first VCPU; without one that of the media server.
    signalling: usize,
    now_ns: i64,
    hops: HashMap<Key, Vec<Hop>, BuildHasherDefault<Mixed>>,
    /// Those of them that nobody waits for any more, and that are not told.
    idle: HashSet<Key, BuildHasherDefault<Mixed>>,
    stood: Stood,
    records: Vec<Record>,
    /// Ways of packets that have ended, to be used again.
    spare: Vec<Vec<Hop>>,
}

impl Journeys {
    /// Follows packets from now on, and tells of voice that takes longer than `delay_ns`. `domain_of` has the domain of
    /// each VCPU; the first VCPUs of the servers are `media` and `signalling`.
    pub fn follow(&mut self, delay_ns: i64, domain_of: &[usize], media: usize, signalling: usize) {
        self.delay_ns = Some(delay_ns);
        self.media = media;
        self.signalling = signalling;
        self.stood.still = vec![(None, 0); domain_of.last().map_or(0, |last| last + 1)];
        self.stood.names = (domain_of.iter().enumerate())
            .map(|(line, &domain)| {
                let first = domain_of.partition_point(|&other| other < domain);
                (domain as u16, (line - first) as u16)
            })
            .collect();
    }

    /// The media server's first VCPU, which stands for it; any where nobody follows packets.
    pub fn media(&self) -> usize {
        self.media
    }

    /// The time goes on.
    #[inline]
    pub fn set_now(&mut self, now: i64) {
        self.now_ns = now;
    }

    #[inline]
    fn follows(&self, packet: &Packet) -> bool {
        self.delay_ns.is_some() && (packet.kind == Kind::Voice || is_registration(packet))
    }

    /// The packet comes to a place, where the VCPU `line` is to handle it.
    #[inline]
    pub fn come(&mut self, packet: &Packet, place: Place, line: usize) {
        if self.follows(packet) {
            self.come_at(packet, place, line, self.now_ns);
        }
    }

    fn come_at(&mut self, packet: &Packet, place: Place, line: usize, since_ns: i64) {
        self.come_by(key(packet), place, line, since_ns);
    }

    fn come_by(&mut self, key: Key, place: Place, line: usize, since_ns: i64) {
        let Journeys {
            hops,
            spare,
            stood,
            now_ns,
            ..
        } = self;
        let way = (hops.entry(key)).or_insert_with(|| spare.pop().unwrap_or_default());
        // The place before now knows how long the domain stood still meanwhile.
        if let Some(before) = way.last_mut() {
            before.paused_ns = stood.paused_ns(before.line, *now_ns) - before.paused_ns;
        }
        way.push(Hop {
            place,
            line,
            since_ns,
            work_ns: 0,
            paused_ns: stood.paused_ns(line, *now_ns),
        });
    }

    /// A domain stands still from now on, or goes on.
    pub fn set_still(&mut self, domain: usize, still: bool) {
        let now_ns = self.now_ns;
        if let Some((since_ns, before_ns)) = self.stood.still.get_mut(domain) {
            if let Some(since_ns) = since_ns.take() {
                *before_ns += now_ns - since_ns;
            }
            *since_ns = still.then_some(now_ns);
        }
    }

    /// The VCPU `line` begins to handle the packet, which takes so much CPU time.
    #[inline]
    pub fn begin(&mut self, packet: &Packet, line: usize, work_ns: i64) {
        if !self.follows(packet) {
            return;
        }
        let last = self.hops.get_mut(&key(packet));
        if let Some(last) = last.and_then(|way| way.last_mut()) {
            last.line = line;
            last.work_ns += work_ns;
        }
    }

    /// Netback had no credit for these packets since then, and has it again.
    pub fn credit<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a Packet>,
        stopped_ns: i64,
        line: usize,
    ) {
        for packet in packets {
            if !self.follows(packet) {
                continue;
            }
            let last = self.hops.get(&key(packet));
            if let Some(since_ns) = last.and_then(|way| way.last()).map(|last| last.since_ns) {
                self.come_at(packet, Place::Rate, line, stopped_ns.max(since_ns));
                self.come(packet, Place::FromGuest, line);
            }
        }
    }

    /// The packet finds no room at a place that the VCPU `line` was to empty, and that has these packets, the oldest
    /// first.
    pub fn full<'a>(
        &mut self,
        packet: &Packet,
        (place, line): (Place, usize),
        mut there: impl Iterator<Item = &'a Packet>,
    ) {
        if !self.follows(packet) {
            return;
        }
        let oldest = there.find_map(|other| {
            let way = self.follows(other).then(|| self.hops.get(&key(other)))??;
            way.iter().rev().find(|hop| hop.place == place).copied()
        });
        self.full_since(
            packet,
            (place, line),
            oldest.map_or(self.now_ns, |hop| hop.since_ns),
        );
        let paused_ns = oldest.map_or(0, |hop| {
            self.stood.paused_ns(hop.line, self.now_ns) - hop.paused_ns
        });
        let way = self.hops.get_mut(&key(packet));
        if let Some(last) = way.and_then(|way| way.last_mut()) {
            last.paused_ns = paused_ns;
        }
    }

    /// The packet finds no room at a place where the oldest packet is since then.
    pub fn full_since(&mut self, packet: &Packet, (place, line): (Place, usize), oldest_ns: i64) {
        if self.follows(packet) {
            self.come(packet, place, line);
            self.come_at(packet, Place::Full, line, oldest_ns);
        }
    }

    /// The packet is lost: where it has found no room, or else with its host.
    pub fn lose(&mut self, packet: &Packet) {
        if !self.follows(packet) {
            return;
        }
        let way = self.hops.get(&key(packet));
        if way
            .and_then(|way| way.last())
            .is_none_or(|last| last.place != Place::Full)
        {
            self.come(packet, Place::Failure, self.media);
        }
        self.tell(key(packet));
    }

    /// The packet leaves a card now, and reaches its phone at that time.
    pub fn arrive(&mut self, packet: &Packet, at_ns: i64) {
        if !self.follows(packet) {
            return;
        }
        let key = key(packet);
        let since_ns = match packet.kind {
            Kind::Voice => packet.sent_ns,
            // An answer does not know when the message was sent.
            _ => (self.hops.get(&key).and_then(|way| way.first()))
                .map_or(packet.sent_ns, |first| first.since_ns),
        };
        if self.is_late(key, since_ns, at_ns) {
            self.come(packet, Place::WireOut, self.media);
            self.come_at(packet, Place::Arrived, self.media, at_ns);
            self.tell(key);
        } else if let Some((way, _)) = self.take(key) {
            self.keep(way);
        }
    }

    /// Takes out the way with that key; and whether somebody still waits for its packet.
    fn take(&mut self, key: Key) -> Option<(Vec<Hop>, bool)> {
        let way = self.hops.remove(&key)?;
        let is_idle = is_of_registration(key) && self.idle.remove(&key);
        Some((way, !is_idle))
    }

    /// Keeps a way that has ended, to be used again.
    fn keep(&mut self, mut way: Vec<Hop>) {
        way.clear();
        self.spare.push(way);
    }

    /// The answer to a copy of the registration's message has reached the phone: it does not wait for the answer to
    /// another one that it has not yet sent again.
    pub fn answered(&mut self, registration: u64) {
        for copy in 0..ANSWER_WAITS_NS.len() as u32 {
            let key = key_of_copy(registration, copy);
            let way = self.hops.get(&key).and_then(|way| way.first());
            if way.is_some_and(|first| !self.is_late(key, first.since_ns, self.now_ns)) {
                self.idle.insert(key);
            }
        }
    }

    /// Whether the packet with that key takes too long from `since_ns` to `at_ns`.
    fn is_late(&self, key: Key, since_ns: i64, at_ns: i64) -> bool {
        let limit_ns = match key {
            (_, copy) if is_of_registration(key) => ANSWER_WAITS_NS.get(copy as usize).copied(),
            _ => self.delay_ns,
        };
        limit_ns.is_some_and(|limit_ns| at_ns - since_ns > limit_ns)
    }

    /// The run ends: packets that are late and still on their way are told, the oldest first.
    pub fn end(&mut self, now: i64) {
        self.now_ns = now;
        let mut late: Vec<(i64, Key)> = (self.hops.iter())
            .filter_map(|(&key, way)| Some((way.first()?.since_ns, key)))
            .filter(|&(since_ns, key)| self.is_late(key, since_ns, now))
            .collect();
        late.sort_unstable();
        for (_, key) in late {
            self.come_by(key, Place::Unfinished, self.media, now);
            self.tell(key);
        }
    }

    /// A domain, whose first VCPU is `line`, was out: what it was in since when, and at last what came of it.
    pub fn outage(&mut self, line: usize, stages: &[(Place, i64)]) {
        if self.delay_ns.is_none() {
            return;
        }
        for &(place, since_ns) in stages {
            self.record(line, RecordKind::Hop, hop(place, since_ns));
        }
        self.record(line, RecordKind::Outage, 0);
    }

    fn record(&mut self, line: usize, kind: RecordKind, argument: i64) {
        let (domain, vcpu) = self.stood.names[line];
        self.records.push(Record {
            time_ns: self.now_ns,
            argument,
            cpu: NONE,
            domain,
            vcpu,
            kind,
        });
    }

    /// Ends a way with its records, if somebody waits for its packet.
    fn tell(&mut self, key: Key) {
        let Some((way, is_awaited)) = self.take(key) else {
            return;
        };
        if is_awaited {
            self.record_way(key, &way);
        }
        self.keep(way);
    }

    fn record_way(&mut self, key: Key, way: &[Hop]) {
        for at in way {
            self.record(at.line, RecordKind::Hop, hop(at.place, at.since_ns));
            if at.place.is_end() && at.place != Place::Full {
                continue;
            }
            for (on, ns) in [(Spent::Work, at.work_ns), (Spent::Pause, at.paused_ns)] {
                if ns > 0 {
                    self.record(at.line, RecordKind::Spent, spent(on, ns));
                }
            }
        }
        let (of, number) = key;
        let number = job((of / 2 % STREAMS) as u32, number.into());
        if is_of_registration(key) {
            self.record(self.signalling, RecordKind::Message, number);
        } else {
            self.record(self.media, RecordKind::Packet, number);
        }
    }

    /// What is to be told.
    pub fn take_records(&mut self) -> std::vec::Drain<'_, Record> {
        self.records.drain(..)
    }

    /// Whether there is something to be told.
    #[inline]
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }
}
