//! Protection by checkpoint of one domain: what its checkpoints cost, what is held of its output, and what a failure
//! leaves.
//!
//! ```text
//! checkpoint ── pause ──▶ resume ── the driver domain copies, the link carries ──▶ copied ── acknowledgement ──▶
//! release
//!     └────────────────────── at least an interval ──────────────────────▶ checkpoint
//! ```
//!
//! [`Pair`] decides when each of these happens; here is what they take in a simulated host.

use super::packet::Packet;
use super::pair::{Effect, Pair};
use laxity_host::{Failure, PAGE_BYTES, Protect, ProtectMode, Protected};
use laxity_protect::protocol::interval::Bounds;
use laxity_protect::protocol::{
    DETECTION_HEARTBEATS, Header, LEASE_INTERVALS, Mode, Output, Settings, StandbyLost, defaults,
};
use laxity_run::ProtectionResult;
use std::collections::VecDeque;

/// Where a protected domain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the host where it began.
    Here,
    /// Its host has died, and it does not run on elsewhere yet.
    Absent,
    /// At the standby, after a failure.
    There,
}

/// A checkpoint, as it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Checkpoint {
    number: u64,
    began_ns: i64,
    resumed_ns: i64,
    pages: u64,
    /// Packets that the guest had put out by then.
    put: u64,
}

/// A protected domain.
pub struct Protection {
    pub pool: usize,
    pub interface: usize,
    /// The source of the driver domain from which what is released is sent on.
    pub source: usize,
    how: Protected,
    costs: Protect,
    place: Place,
    pair: Pair,
    /// The number of the checkpoint that is to be taken now.
    due: Option<u64>,
    /// The present checkpoint, or the last one.
    checkpoint: Checkpoint,
    /// The checkpoint that is to be copied.
    to_send: Option<Header>,
    /// When the last checkpoint that was acknowledged began.
    covered_ns: i64,
    /// Packets that the domain had handled at the last checkpoint.
    handled: u64,
    /// Packets that the guest put out, and how many of them netback took.
    put: u64,
    taken: u64,
    /// By their number among those that netback took.
    held: VecDeque<(u64, Packet)>,
    released: VecDeque<Packet>,
    /// When each answer to a registration was made that left and that the standby may not know.
    shown_ns: VecDeque<i64>,
    /// When its host died.
    failed_ns: i64,
    pub counted: ProtectionResult,
}

/// What becomes of a packet that netback has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It goes on.
    Passes,
    /// It is held until its checkpoint is acknowledged.
    Holds,
    /// It is dropped: the lease has run out.
    Drops,
}

/// Number of heartbeats in a detection that is shorter than the default; one more than the protocol demands.
const HEARTBEATS: i64 = DETECTION_HEARTBEATS + 1;

/// What the protocol goes by: an epoch of one length, and what its daemon takes where nothing is stated.
fn settings(how: &Protected, failure: Option<Failure>) -> Settings {
    let detection_ns = failure.map_or(defaults::DETECTION_NS, |failure| failure.detection_ns);
    // The longest that does not delay a takeover: it has run out by any clock when `detection` has.
    let lease_ns = (detection_ns - 1) * 1_000_000 / (1_000_000 + defaults::DRIFT_PPM);
    let lease_ns = (LEASE_INTERVALS * how.interval_ns).max(lease_ns);
    Settings {
        vm: how.domain as u64,
        mode: match how.mode {
            ProtectMode::Net => Mode::Net,
            ProtectMode::NoNet => Mode::NoNet,
        },
        standby_lost: StandbyLost::Stop,
        witness: false,
        heartbeat_ns: defaults::HEARTBEAT_NS.min(detection_ns / HEARTBEATS),
        detection_ns,
        // Signs of life take no time here, which says nothing of a real network.
        detection_min_ns: detection_ns,
        stall_ns: defaults::STALL_DETECTIONS * detection_ns,
        lease_ns,
        // An epoch is never late by itself here.
        settling_ns: i64::MAX,
        drift_ppm: defaults::DRIFT_PPM,
        checkpoint_bytes_max: 0,
        interval: Bounds {
            minimum_ns: how.interval_ns,
            maximum_ns: how.interval_ns,
            pause_share_percent: 99,
        },
    }
}

impl Protection {
    /// A domain that is protected from the beginning of the run on.
    pub fn new(
        how: &Protected,
        costs: &Protect,
        (pool, interface): (usize, usize),
        source: usize,
        name: String,
    ) -> Protection {
        Protection {
            pool,
            interface,
            source,
            how: how.clone(),
            costs: costs.clone(),
            place: Place::Here,
            pair: Pair::new(settings(how, costs.failure), costs.acknowledgement_ns),
            due: None,
            checkpoint: Checkpoint::default(),
            to_send: None,
            covered_ns: 0,
            handled: 0,
            put: 0,
            taken: 0,
            held: VecDeque::new(),
            released: VecDeque::new(),
            shown_ns: VecDeque::new(),
            failed_ns: 0,
            counted: ProtectionResult {
                domain: name,
                ..ProtectionResult::default()
            },
        }
    }

    /// When the next checkpoint is due of a domain whose last one is acknowledged.
    pub fn next_ns(&self, now: i64) -> i64 {
        match self.due {
            Some(_) => now,
            None => self.pair.next_effect_ns(),
        }
    }

    /// A checkpoint begins, and the domain, which has handled this many packets since the run began, stands still.
    /// Answers until when; `None` if its host has died.
    pub fn begin(&mut self, handled: u64, now: i64) -> Option<i64> {
        if self.place != Place::Here {
            return None;
        }
        let effects = self.pair.advance(now);
        self.carry_out(effects);
        let number = self.due.take()?;
        let changed = (handled - self.handled).saturating_mul(self.how.pages_per_packet);
        let pages = self
            .how
            .pages
            .saturating_add(changed)
            .min(self.how.pages_most);
        let pause_ns = self.costs.pause_ns + self.costs.page_pause_ns * pages as i64;
        self.handled = handled;
        self.checkpoint = Checkpoint {
            number,
            began_ns: now,
            resumed_ns: now + pause_ns,
            pages,
            put: self.put,
        };
        self.counted.checkpoints += 1;
        self.counted.pages += pages;
        self.counted.paused_ns += pause_ns;
        Some(now + pause_ns)
    }

    /// The pause is over. Answers what the driver domain has to do for the checkpoint, ns of CPU time; `None` if the
    /// host has died meanwhile.
    pub fn resume(&mut self, now: i64) -> Option<i64> {
        if self.place != Place::Here {
            return None;
        }
        let Checkpoint {
            number,
            began_ns,
            pages,
            ..
        } = self.checkpoint;
        let effects = self.pair.captured(number, now - began_ns, now);
        self.carry_out(effects);
        Some(self.costs.checkpoint_ns + self.costs.page_ns * pages as i64)
    }

    /// The driver domain has done it. Answers when the acknowledgement comes; `None` if the host has died meanwhile.
    pub fn copied(&mut self, now: i64) -> Option<i64> {
        if self.place != Place::Here {
            return None;
        }
        let header = self.to_send.take()?;
        let bits = i128::from(self.checkpoint.pages) * i128::from(8 * PAGE_BYTES);
        let carried_ns = bits * 1_000_000_000 / i128::from(self.costs.rate_bit_s);
        let carried_ns = self.checkpoint.resumed_ns + carried_ns as i64;
        let effects = self.pair.advance(now);
        self.carry_out(effects);
        self.pair.arrive(header, now.max(carried_ns));
        Some(self.pair.next_effect_ns())
    }

    /// The acknowledgement has come: what the domain had put out before the checkpoint is released. Answers when the
    /// next one is due; `None` if the host has died meanwhile.
    pub fn acknowledge(&mut self, now: i64) -> Option<i64> {
        if self.place != Place::Here {
            return None;
        }
        let began_ns = self.checkpoint.began_ns;
        self.covered_ns = began_ns;
        let after_ns = &mut self.counted.acknowledged_after_ns_max;
        *after_ns = (*after_ns).max(now - began_ns);
        self.counted.acknowledged += 1;
        let known = self.shown_ns.partition_point(|&at_ns| at_ns < began_ns);
        self.shown_ns.drain(..known);
        let effects = self.pair.advance(now);
        self.carry_out(effects);
        Some(self.next_ns(now))
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Capture(number) => self.due = Some(number),
                Effect::Send(header) => self.to_send = Some(header),
                Effect::Release(through) => self.release(through),
                // The gate asks for the output, and the host that takes over knows when it activates the domain.
                Effect::Output | Effect::Activate => {}
            }
        }
    }

    /// What belongs to the epochs up to this number may leave.
    fn release(&mut self, through: u64) {
        if through != self.checkpoint.number {
            return;
        }
        let put = self.checkpoint.put;
        let safe = self.held.partition_point(|(number, _)| *number <= put);
        self.counted.released += safe as u64;
        self.released
            .extend(self.held.drain(..safe).map(|(_, packet)| packet));
    }

    /// The guest puts a packet out.
    pub fn put(&mut self) {
        self.put += 1;
    }

    /// Netback has taken the guest's next packet; it must come here even if it is not held.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// Whether output waits.
    pub fn holds(&self) -> bool {
        self.place == Place::Here && self.pair.output() == Output::Hold
    }

    /// What becomes of a packet now.
    pub fn gate(&self, now: i64) -> Gate {
        match self.pair.output() {
            Output::Open => Gate::Passes,
            Output::Hold => Gate::Holds,
            Output::Until { deadline_ns } if now < deadline_ns => Gate::Passes,
            Output::Until { .. } | Output::Closed => Gate::Drops,
        }
    }

    /// Holds the packet that was taken last; whether there was room.
    pub fn hold(&mut self, packet: Packet) -> bool {
        if self.held.len() >= self.how.held as usize {
            return false;
        }
        self.held.push_back((self.taken, packet));
        self.counted.held += 1;
        self.counted.held_most = self.counted.held_most.max(self.held.len() as u64);
        true
    }

    /// The packets that are held, the oldest first.
    pub fn held(&self) -> impl Iterator<Item = &Packet> {
        self.held.iter().map(|(_, packet)| packet)
    }

    /// The packets that may leave, the oldest first.
    pub fn released(&self) -> impl Iterator<Item = &Packet> {
        self.released.iter()
    }

    /// The next packet that may leave.
    pub fn take_released(&mut self) -> Option<Packet> {
        self.released.pop_front()
    }

    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// An answer to a registration leaves that was made then.
    pub fn show(&mut self, made_ns: i64) {
        if self.place != Place::There {
            self.shown_ns.push_back(made_ns);
        }
    }

    /// Whether its host has died and it does not run elsewhere.
    pub fn is_absent(&self) -> bool {
        self.place == Place::Absent
    }

    /// Its host dies. Answers what was held or about to leave, and is lost.
    pub fn fail(&mut self, now: i64) -> Vec<Packet> {
        self.place = Place::Absent;
        self.failed_ns = now;
        let has_last = self
            .pair
            .fail(now)
            .is_some_and(|id| id.number == self.checkpoint.number);
        let covered_ns = if has_last {
            self.checkpoint.began_ns
        } else {
            self.covered_ns
        };
        let unknown = self.shown_ns.iter().filter(|&&at_ns| at_ns >= covered_ns);
        self.counted.forgotten += unknown.count() as u64;
        self.counted.lost += self.held.len() as u64;
        let held = self.held.drain(..).map(|(_, packet)| packet);
        self.released.drain(..).chain(held).collect()
    }

    /// When its host died.
    pub fn failed_ns(&self) -> i64 {
        self.failed_ns
    }

    /// When the standby of a domain that is absent takes over: it has heard nothing for long enough.
    pub fn takes_over_ns(&self) -> i64 {
        self.pair.next_effect_ns()
    }

    /// When a domain that is absent runs on.
    pub fn runs_on_ns(&self) -> i64 {
        let activation_ns = self
            .costs
            .failure
            .map_or(0, |failure| failure.activation_ns);
        self.takes_over_ns() + activation_ns
    }

    /// The domain runs on at the standby, without protection.
    pub fn activate(&mut self, now: i64) {
        self.place = Place::There;
        self.pair.activated(now);
        self.counted.outage_ns = Some(now - self.failed_ns);
    }

    pub fn finish(self) -> ProtectionResult {
        ProtectionResult {
            waiting: self.held.len() as u64,
            ..self.counted
        }
    }
}
