//! The model of a host: a process with the node, the gate, the guest and the standby's memory.

use std::collections::VecDeque;

use crate::protocol::{Action, CheckpointId, Node, Output, Part, Record};

use super::guest::{Guest, Image, StateId};

/// What a host has, and what a process on it has.
#[derive(Debug)]
pub(super) struct Host {
    /// By how much its clock is too fast, in millionths, and what it shows at first.
    clock: (i64, i64),
    pub record: Record,
    pub process: Option<Process>,
    pub processes: u64,
    pub slow_capture_ns: i64,
    pub capture_fails: bool,
    pub activation_fails: bool,
    pub unusable: bool,
    pub sends_part: Option<Part>,
}

#[derive(Debug)]
pub(super) struct Process {
    pub node: Node,
    pub incarnation: u64,
    pub connection: Option<usize>,
    pub gate: Gate,
    pub guest: Option<Guest>,
    /// The current checkpoint of a standby.
    pub store: Option<(CheckpointId, Image)>,
    pub staged: (Vec<u8>, Vec<u8>),
    /// Acknowledged, and not taken back.
    pub promised: Option<CheckpointId>,
    /// The checkpoint that was captured last.
    pub captured: (Vec<u8>, Vec<u8>),
    /// A term in which it could not make the guest run.
    pub unheard: Option<u64>,
    /// Actions until it ends or stands still.
    pub crash_in: Option<(u32, bool)>,
    pub freeze_in: Option<(u32, Freeze)>,
    pub frozen: Option<Freeze>,
    /// What happened while it stood still, and what it had begun to do.
    pub later: VecDeque<Later>,
    /// When it is to look at the clock.
    pub wakes_ns: i64,
}

/// A process that stands still.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freeze {
    pub for_ns: i64,
    pub guest: bool,
    pub clock_first: bool,
}

/// What waits for a process that stands still.
#[derive(Debug)]
pub(super) enum Later {
    Actions(Vec<Action>, Vec<u8>),
    Happening(super::Happening),
    Frame(usize, StateId),
}

impl Host {
    pub fn new(clock: (i64, i64)) -> Host {
        Host {
            clock,
            record: Record::default(),
            process: None,
            processes: 0,
            slow_capture_ns: 0,
            capture_fails: false,
            activation_fails: false,
            unusable: false,
            sends_part: None,
        }
    }

    /// What its clock shows.
    pub fn clock_ns(&self, now_ns: i64) -> i64 {
        let (ppm, offset_ns) = self.clock;
        offset_ns + now_ns + now_ns * ppm / 1_000_000
    }

    /// When its clock shows that, or a moment later.
    pub fn when_ns(&self, clock_ns: i64) -> i64 {
        let (ppm, offset_ns) = self.clock;
        (clock_ns - offset_ns) * 1_000_000 / (1_000_000 + ppm) + 2
    }
}

/// What the guest sends passes here.
#[derive(Debug)]
pub(super) struct Gate {
    pub output: Output,
    /// The number of the epoch that is not over.
    pub epoch: u64,
    held: VecDeque<(u64, usize, StateId)>,
}

impl Gate {
    pub fn new() -> Gate {
        Gate {
            output: Output::Closed,
            epoch: 0,
            held: VecDeque::new(),
        }
    }

    /// Whether a frame leaves at once.
    pub fn passes(&mut self, holder: usize, state: StateId, clock_ns: i64) -> bool {
        match self.output {
            Output::Open => true,
            Output::Until { deadline_ns } => clock_ns < deadline_ns,
            Output::Closed => false,
            Output::Hold => {
                self.held.push_back((self.epoch, holder, state));
                false
            }
        }
    }

    /// The next frame that was held and may leave now.
    pub fn release(&mut self, through: u64) -> Option<(usize, StateId)> {
        let &(epoch, holder, state) = self.held.front()?;
        (epoch <= through).then(|| {
            self.held.pop_front();
            (holder, state)
        })
    }

    pub fn drop_held(&mut self) {
        self.held.clear();
    }
}
