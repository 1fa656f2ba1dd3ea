//! Protection by checkpoint of one domain: its epochs, what is held of its output, and what a failure leaves.
//!
//! ```text
//! checkpoint ── pause ──▶ resume ── the driver domain copies, the link carries ──▶ copied ── acknowledgement ──▶ release
//!     └────────────────────── at least an interval ──────────────────────▶ checkpoint
//! ```
//!
//! Who calls keeps time; nothing here looks at a clock.

use super::packet::Packet;
use laxity_host::{PAGE_BYTES, Protect, ProtectMode, Protected};
use laxity_run::ProtectionResult;
use std::collections::VecDeque;

/// Where a protected domain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It runs; its last checkpoint is with the standby.
    Running,
    /// It stands still for a checkpoint.
    Paused,
    /// It runs; a checkpoint is being copied, or its acknowledgement is awaited.
    Copying,
    /// Its host has died, and it does not run on elsewhere yet.
    Absent,
    /// It runs on, after a failure.
    Unprotected,
}

/// A checkpoint, as it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Checkpoint {
    began_ns: i64,
    resumed_ns: i64,
    pages: u64,
    /// Packets that the guest had put out by then.
    put: u64,
}

/// A protected domain.
pub struct Protection {
    pub domain: usize,
    /// The source of the driver domain from which what is released is sent on.
    pub source: usize,
    how: Protected,
    costs: Protect,
    state: State,
    /// The present checkpoint, or the last one.
    checkpoint: Checkpoint,
    /// When the last one that was acknowledged began: what the standby knows.
    covered_ns: i64,
    /// Packets that it had handled at the last checkpoint.
    handled: u64,
    /// Packets that the guest put out, and how many of them netback took.
    put: u64,
    taken: u64,
    /// By their number among those that netback took.
    held: VecDeque<(u64, Packet)>,
    released: VecDeque<Packet>,
    /// When each answer to a registration was made that left and that the standby may not know.
    shown_ns: VecDeque<i64>,
    pub counted: ProtectionResult,
}

impl Protection {
    pub fn new(how: &Protected, costs: &Protect, source: usize, name: String) -> Protection {
        Protection {
            domain: how.domain,
            source,
            how: how.clone(),
            costs: costs.clone(),
            state: State::Running,
            checkpoint: Checkpoint::default(),
            covered_ns: 0,
            handled: 0,
            put: 0,
            taken: 0,
            held: VecDeque::new(),
            released: VecDeque::new(),
            shown_ns: VecDeque::new(),
            counted: ProtectionResult {
                domain: name,
                ..ProtectionResult::default()
            },
        }
    }

    /// When the first checkpoint is due.
    pub fn first_ns(&self) -> i64 {
        self.how.interval_ns
    }

    /// A checkpoint begins, of a domain that has handled so many packets since the run began: the domain stands still.
    /// Answers until when; `None` if it is protected no more.
    pub fn begin(&mut self, handled: u64, now: i64) -> Option<i64> {
        if self.state != State::Running {
            return None;
        }
        let changed = (handled - self.handled).saturating_mul(self.how.pages_per_packet);
        let pages = self
            .how
            .pages
            .saturating_add(changed)
            .min(self.how.pages_most);
        let pause_ns = self.costs.pause_ns + self.costs.page_pause_ns * pages as i64;
        self.state = State::Paused;
        self.handled = handled;
        self.checkpoint = Checkpoint {
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

    /// The pause is over. Answers what the driver domain has to do for the checkpoint, ns of CPU time; `None` if the host
    /// has died meanwhile.
    pub fn resume(&mut self) -> Option<i64> {
        if self.state != State::Paused {
            return None;
        }
        self.state = State::Copying;
        Some(self.costs.checkpoint_ns + self.costs.page_ns * self.checkpoint.pages as i64)
    }

    /// The driver domain has done it. Answers when the acknowledgement comes.
    pub fn copied(&self, now: i64) -> Option<i64> {
        let bits = i128::from(self.checkpoint.pages) * i128::from(8 * PAGE_BYTES);
        let carried_ns = bits * 1_000_000_000 / i128::from(self.costs.rate_bit_s);
        let carried_ns = self.checkpoint.resumed_ns + carried_ns as i64;
        (self.state == State::Copying).then(|| now.max(carried_ns) + self.costs.acknowledgement_ns)
    }

    /// The standby has the checkpoint: what was put out before it is released. Answers when the next one is due; `None` if
    /// the host has died meanwhile.
    pub fn acknowledge(&mut self, now: i64) -> Option<i64> {
        if self.state != State::Copying {
            return None;
        }
        self.state = State::Running;
        let Checkpoint { began_ns, put, .. } = self.checkpoint;
        self.covered_ns = began_ns;
        let after_ns = &mut self.counted.acknowledged_after_ns_max;
        *after_ns = (*after_ns).max(now - began_ns);
        self.counted.acknowledged += 1;
        let safe = self.held.partition_point(|(number, _)| *number <= put);
        self.counted.released += safe as u64;
        self.released
            .extend(self.held.drain(..safe).map(|(_, packet)| packet));
        let known = self.shown_ns.partition_point(|&at_ns| at_ns < began_ns);
        self.shown_ns.drain(..known);
        Some(now.max(began_ns + self.how.interval_ns))
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
        self.how.mode == ProtectMode::Net
            && !matches!(self.state, State::Absent | State::Unprotected)
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

    /// The next packet that may leave.
    pub fn take_released(&mut self) -> Option<Packet> {
        self.released.pop_front()
    }

    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// An answer to a registration leaves that was made then.
    pub fn show(&mut self, made_ns: i64) {
        if self.state != State::Unprotected {
            self.shown_ns.push_back(made_ns);
        }
    }

    /// Whether its host has died and it does not run elsewhere.
    pub fn is_absent(&self) -> bool {
        self.state == State::Absent
    }

    /// Its host dies. Answers what was held or about to leave, and is lost.
    pub fn fail(&mut self) -> Vec<Packet> {
        self.state = State::Absent;
        let covered_ns = self.covered_ns;
        let unknown = self.shown_ns.iter().filter(|&&at_ns| at_ns >= covered_ns);
        self.counted.forgotten += unknown.count() as u64;
        self.counted.lost += self.held.len() as u64;
        let held = self.held.drain(..).map(|(_, packet)| packet);
        self.released.drain(..).chain(held).collect()
    }

    /// It runs on, without protection.
    pub fn activate(&mut self, outage_ns: i64) {
        self.state = State::Unprotected;
        self.counted.outage_ns = Some(outage_ns);
    }

    pub fn finish(self) -> ProtectionResult {
        ProtectionResult {
            waiting: self.held.len() as u64,
            ..self.counted
        }
    }
}
