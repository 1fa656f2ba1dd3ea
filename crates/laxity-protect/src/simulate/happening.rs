//! The events of a history.

use crate::protocol::{CheckpointId, Order, Verdict};

use super::guest::Image;
use super::network::Side;

/// The events of a history, with the process that each concerns.
#[derive(Debug)]
pub(super) enum Happening {
    /// A process looks at its clock.
    Wake(Side, u64),
    /// A frame arrives.
    Arrive(Side, usize, Vec<u8>),
    /// A connection is made.
    Opened(Side, usize),
    /// The other side has closed a connection.
    Closed(Side, usize),
    /// The guest takes a step.
    Step(Side, u64),
    /// A capture has succeeded or failed.
    Captured(Side, u64, Captured),
    /// The blocks of a checkpoint have been written to the disk.
    Committed(Side, u64),
    /// An activation of this number has succeeded or failed.
    Activated(Side, u64, u64, Option<(CheckpointId, Image)>),
    /// A guest was given up before it ran.
    Abandoned(Side, u64),
    /// The guest's thread has looked at the end of a checkpoint.
    Checked(Side, u64),
    /// The guest's thread should have looked at the end of this number long ago.
    Overdue(Side, u64, u64),
    /// The guest's thread does not hang any more.
    Back(Side, u64),
    /// A disk could not be flushed after a commit.
    FlushFailed(Side, u64),
    /// A claim reaches the witness, and its answer reaches a process.
    Claimed(u64, u64),
    Judged(Side, u64, u64, Verdict),
    /// A stalled process continues.
    Thaw(Side, u64),
    /// A process has looked at a block of its disk, whose sum it sends on this connection.
    Summed(Side, u64, usize, CheckpointId, usize),
    /// The connecting host tries to connect.
    Dial,
    Ordered(Side, Order),
    /// The process that holds the guest's memory has been killed.
    GuestKilled(Side, u64),
    Fault(usize),
    Healed,
}

/// A checkpoint that is being taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Captured {
    pub number: u64,
    /// The holder of the guest, see [`Guest::holder`](super::guest::Guest::holder).
    pub holder: usize,
    pub fails: bool,
    /// Whether the disk is the reason.
    pub is_disk: bool,
    pub begun_ns: i64,
}
