//! The model host: a disk, and a process with the node, the gate, the guest and the standby's memory.

use std::collections::VecDeque;

use crate::protocol::{Action, CheckpointId, Node, Output, Part, Record};

use super::disk::{Differences, Disk, patch};
use super::guest::{Guest, Image, StateId};
use super::happening::Happening;

/// State of a host and of the process on it.
#[derive(Debug)]
pub(super) struct Host {
    /// Rate error of the clock in ppm, and its initial value.
    clock: (i64, i64),
    pub record: Record,
    pub disk: Disk,
    pub process: Option<Process>,
    pub processes: u64,
    /// Time at which a process that had the guest ended last.
    pub lost_guest_ns: Option<i64>,
    pub slow_capture_ns: i64,
    /// Time until which the disk is full.
    pub disk_full_until_ns: i64,
    /// Time that the disk takes for a record.
    pub slow_disk_ns: i64,
    /// Times until which the disk hangs, cannot be flushed, and no checkpoint can be taken.
    pub disk_hangs_until_ns: i64,
    pub disk_fails_until_ns: i64,
    pub captures_fail_until_ns: i64,
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
    pub staged: Parts,
    /// Blocks that are still being written to the disk, checkpoint by checkpoint, and the time at
    /// which all of them will be.
    pub committing: VecDeque<Vec<u8>>,
    pub commits_until_ns: i64,
    /// Number of these whose flush fails, which was not noticed.
    pub flushes_fail: u32,
    /// Time until which the guest's thread hangs, as something is to be written to a disk.
    pub hangs_until_ns: i64,
    /// Whether that was noticed.
    pub hangs: bool,
    /// The end of a checkpoint that the guest's thread has to look at, and the frames behind it.
    pub put_by: VecDeque<(u64, Vec<u8>)>,
    /// Number of such ends so far.
    pub ends: u64,
    /// Number of activations so far, and the time at which the guest begins to run in the last one,
    /// until which it can be given up.
    pub activations: (u64, i64),
    /// Time at which the last activation was begun.
    pub activates_since_ns: i64,
    /// Whether a checkpoint is being taken that fails because of the disk, which was not noticed.
    pub capture_meets_error: bool,
    /// Time since which no checkpoint could be taken, although the other host could go on.
    pub failing_since_ns: Option<i64>,
    /// The acknowledged checkpoint, unless the promise has been taken back.
    pub promised: Option<CheckpointId>,
    /// The last captured checkpoint.
    pub captured: Parts,
    /// Number of blocks that are left for coming checkpoints after the last captured one.
    pub left: usize,
    /// What the other host's disk may have otherwise.
    pub differences: Differences,
    /// A term in which the host failed to make the guest run.
    pub unheard: Option<u64>,
    /// Number of actions until the process ends or stalls.
    pub crash_in: Option<(u32, bool)>,
    pub freeze_in: Option<(u32, Freeze)>,
    pub frozen: Option<Freeze>,
    /// Events that happened while the process was stalled, and actions that it had begun.
    pub later: VecDeque<Later>,
    /// Time at which the process looks at its clock next.
    pub wakes_ns: i64,
}

impl Process {
    /// A disk once all that is being committed is on it.
    pub fn disk(&self, disk: &Disk) -> Disk {
        let mut disk = *disk;
        for blocks in &self.committing {
            patch(&mut disk, blocks);
        }
        disk
    }
}

/// The parts of a checkpoint.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    pub ram: Vec<u8>,
    pub device: Vec<u8>,
    pub blocks: Vec<u8>,
}

/// A stalled process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freeze {
    pub for_ns: i64,
    pub guest: bool,
    pub clock_first: bool,
}

/// Events and actions that wait for a stalled process.
#[derive(Debug)]
pub(super) enum Later {
    Actions(Vec<Action>, Vec<u8>),
    Happening(Happening),
    Frame(usize, StateId),
}

impl Host {
    pub fn new(clock: (i64, i64), disk: Disk) -> Host {
        Host {
            clock,
            record: Record::default(),
            disk,
            process: None,
            processes: 0,
            lost_guest_ns: None,
            slow_capture_ns: 0,
            disk_full_until_ns: 0,
            slow_disk_ns: 0,
            disk_hangs_until_ns: 0,
            disk_fails_until_ns: 0,
            captures_fail_until_ns: 0,
            capture_fails: false,
            activation_fails: false,
            unusable: false,
            sends_part: None,
        }
    }

    /// Time of the host's clock.
    pub fn clock_ns(&self, now_ns: i64) -> i64 {
        let (ppm, offset_ns) = self.clock;
        offset_ns + now_ns + now_ns * ppm / 1_000_000
    }

    /// Lets the clock jump ahead.
    pub fn jump(&mut self, by_ns: i64) {
        self.clock.1 += by_ns;
    }

    /// Real time at which the clock shows this, or a moment later.
    pub fn when_ns(&self, clock_ns: i64) -> i64 {
        let (ppm, offset_ns) = self.clock;
        (clock_ns - offset_ns) * 1_000_000 / (1_000_000 + ppm) + 2
    }
}

/// The gate, through which all output of the guest passes.
#[derive(Debug)]
pub(super) struct Gate {
    pub output: Output,
    /// Number of the current epoch.
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

    /// The next held frame that may leave now.
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
