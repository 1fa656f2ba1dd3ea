//! The actions of a node, which its driver carries out.

use std::fmt;

use super::checkpoint::{CheckpointId, Header, Part};
use super::event::Record;
use super::message::{Message, Reason};

/// An action to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Puts the record on stable storage.
    Persist(Record),
    /// Sends a message on the current connection.
    Send(Message<'static>),
    /// Sends the last captured checkpoint with this header: all chunks of its memory, then of its
    /// devices and of its disks, then its end. The capture is kept until the next one, because it may have to be
    /// sent again.
    SendCheckpoint(Header),
    /// Closes the current connection; the host that makes connections opens another.
    Disconnect,
    /// Pauses the guest, takes in its output, which belongs to the epoch of this number, and
    /// captures it. [`Event::Captured`] follows.
    Capture {
        /// Number of the checkpoint.
        number: u64,
        /// Whether to capture all of the memory, or only the changes since the previous capture.
        /// With all of the memory, nothing is known of the standby's disks either: the sums that
        /// it sends tell which blocks of its disks differ.
        full: bool,
        /// Whether the standby may take over with it, so that no block of the disks may be left
        /// for a later one.
        arms: bool,
    },
    /// Sends the sums of this host's disks, as they are after all earlier actions, in pieces and
    /// beside everything else that follows, as [`Message::Sums`] with this identity.
    Sum(CheckpointId),
    /// Compares the bytes of this event's [`Message::Sums`] with the disks here: a piece of a disk
    /// whose sum is another belongs to a coming checkpoint.
    Compare,
    /// Pauses the guest.
    Pause,
    /// Lets the guest run.
    Resume,
    /// Ends the guest and removes all its state.
    Destroy,
    /// Sets the rule for output from now on.
    Output(Output),
    /// Releases the held output of this epoch and earlier ones.
    Release {
        /// Number of the epoch.
        through: u64,
    },
    /// Stages the bytes of this event's [`Message::Chunk`].
    Stage(Part),
    /// Drops everything that was staged.
    Discard,
    /// Makes the staged memory, devices and blocks of disks the current checkpoint.
    Commit(CheckpointId),
    /// Drops the current checkpoint, too.
    Forget,
    /// Lets the guest run from the current checkpoint, which is this one. [`Event::Activated`]
    /// follows.
    Activate(CheckpointId),
    /// Boots the guest. [`Event::Activated`] follows.
    Boot,
    /// Gives up what [`Action::Activate`] or [`Action::Boot`] began, unless the guest runs already
    /// or is being started: it never runs then, and [`Event::ActivationFailed`] follows.
    Abandon,
    /// Announces the guest's addresses to the network.
    Announce,
    /// Asks the witness to give the term after `expected` to this incarnation if `expected` was
    /// given out last, or to confirm that it did so before. [`Event::Verdict`] follows.
    Claim {
        /// The term that is expected to be the last one given out.
        expected: u64,
    },
    /// Writes a notice to the log.
    Say(Notice),
}

/// The rule for the guest's output at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Held and new output leaves.
    Open,
    /// Output is held by epoch: output after the capture of a checkpoint belongs to the next
    /// number.
    Hold,
    /// Output leaves while the clock is before this time, which is checked for each frame; later
    /// output is dropped.
    Until {
        /// Time of the host's monotonic clock.
        deadline_ns: i64,
    },
    /// Held and new output is dropped.
    Closed,
}

/// A notice for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The other host has greeted.
    Greeted {
        /// Number of its process.
        incarnation: u64,
    },
    /// The connection has ended, or the other side is silent.
    Lost,
    /// The other side has other settings or another virtual machine.
    Disagrees,
    /// The other side sent a message that is not permitted now.
    OutOfPlace(&'static str),
    /// Memory is being copied to a standby that cannot take over yet.
    Copying,
    /// The guest survives a failure of this host from this checkpoint on.
    Protected(CheckpointId),
    /// The standby may have taken over, so this host is silent.
    Waiting,
    /// The standby may have taken over, and this host goes on nevertheless by its operator's
    /// choice.
    AtRisk,
    /// No other host can take over, and the guest runs here unprotected.
    Alone,
    /// The standby has rejected a checkpoint.
    Rejected(Reason),
    /// The standby lives, and has not acknowledged a checkpoint for too long.
    Stalled {
        /// Whether the standby is told to forget its checkpoints, so that the guest is heard again,
        /// unprotected.
        gives_up: bool,
    },
    /// A checkpoint could not be taken.
    CaptureFailed,
    /// No checkpoint could be taken for too long.
    CapturesFail {
        /// Whether the standby is told to forget its checkpoints, so that the guest is heard again,
        /// unprotected.
        gives_up: bool,
    },
    /// Copying to the standby has failed, and begins again later.
    CopiesLater {
        /// Time until then.
        in_ns: i64,
    },
    /// The other host has a higher term: this one stops for good.
    Fenced {
        /// Term of the other host.
        term: u64,
    },
    /// The other host took over and has lost the guest: the state here is older than what was
    /// heard.
    Overtaken {
        /// Term of the other host.
        term: u64,
    },
    /// The guest has ended by itself.
    GuestOff,
    /// This standby can take over from now on.
    Armed(CheckpointId),
    /// This standby takes over.
    TakingOver(CheckpointId),
    /// The guest runs here now.
    Active {
        /// The new term.
        term: u64,
    },
    /// The guest could not be made to run here.
    ActivationFailed,
    /// The guest should have run here long ago.
    ActivationLate,
    /// The thread that handles the guest does not come back.
    Hangs,
    /// The thread that handles the guest has come back.
    Recovers,
    /// The witness gave the term to another process.
    Refused {
        /// The term that was given out last.
        current: u64,
    },
    /// The witness does not answer.
    WitnessSilent,
    /// The order is impossible now.
    Impossible(&'static str),
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Notice::Greeted { incarnation } => {
                write!(formatter, "connected to process {incarnation:x}")
            }
            Notice::Lost => write!(formatter, "the other host is no longer heard"),
            Notice::Disagrees => write!(
                formatter,
                "the other host has a different mode, lease, witness or virtual machine: give both hosts the same site file"
            ),
            Notice::OutOfPlace(what) => write!(formatter, "closed the connection: {what}"),
            Notice::Copying => write!(formatter, "copying to a standby; not protected yet"),
            Notice::Protected(id) => write!(formatter, "protected, from checkpoint {id} on"),
            Notice::Waiting => write!(
                formatter,
                "SILENT: the standby is not heard and may have taken over; this host waits for it, or for the operator"
            ),
            Notice::AtRisk => write!(
                formatter,
                "UNPROTECTED AND AT RISK: the standby is not heard and may have taken over, but this host goes on, as \
                 configured: both hosts may be heard"
            ),
            Notice::Alone => write!(
                formatter,
                "UNPROTECTED: the guest runs here, without a standby"
            ),
            Notice::Rejected(Reason::Full) => {
                write!(
                    formatter,
                    "the standby cannot take the guest; its log says why"
                )
            }
            Notice::Rejected(Reason::Corrupt) => {
                write!(formatter, "the standby got a damaged checkpoint")
            }
            Notice::Stalled { gives_up: true } => write!(
                formatter,
                "the standby is alive but acknowledges nothing: it is told to forget its checkpoint, so that the guest \
                 goes on, UNPROTECTED, until the standby keeps up"
            ),
            Notice::Stalled { gives_up: false } => write!(
                formatter,
                "SILENT: the standby is alive but acknowledges nothing; this host waits for it, or for the operator to \
                 unprotect"
            ),
            Notice::CaptureFailed => write!(formatter, "a checkpoint could not be taken"),
            Notice::CapturesFail { gives_up: true } => write!(
                formatter,
                "no checkpoint can be taken: the standby is told to forget its checkpoint, so that the guest goes on, \
                 UNPROTECTED"
            ),
            Notice::CapturesFail { gives_up: false } => write!(
                formatter,
                "SILENT: no checkpoint can be taken; this host waits for one, or for the operator to unprotect"
            ),
            Notice::CopiesLater { in_ns } => write!(
                formatter,
                "UNPROTECTED: copying to the standby failed; it is repeated in {} ms",
                in_ns / 1_000_000
            ),
            Notice::Fenced { term } => {
                write!(
                    formatter,
                    "the other host holds term {term}: the guest is ended here"
                )
            }
            Notice::Overtaken { term } => write!(
                formatter,
                "SILENT: the other host took over, in term {term}, and has lost the guest; the guest here is older, and goes \
                 on only by order of the operator"
            ),
            Notice::GuestOff => write!(formatter, "the guest has ended by itself"),
            Notice::Armed(id) => write!(formatter, "ready to take over, from checkpoint {id} on"),
            Notice::TakingOver(id) => write!(formatter, "taking over from checkpoint {id}"),
            Notice::Active { term } => write!(formatter, "the guest runs here, in term {term}"),
            Notice::ActivationFailed => {
                write!(formatter, "the guest could not be activated here")
            }
            Notice::ActivationLate => write!(
                formatter,
                "SILENT: the guest is not activated here yet, perhaps because a disk hangs: it resumes when the disk \
                 does, or on the other host if that still has it"
            ),
            Notice::Hangs => write!(
                formatter,
                "the guest's thread does not respond, perhaps because a disk hangs: this host is no standby until it does"
            ),
            Notice::Recovers => write!(
                formatter,
                "the guest's thread responds again, and no disk hangs"
            ),
            Notice::Refused { current } => {
                write!(
                    formatter,
                    "the witness has given term {current} to the other host"
                )
            }
            Notice::WitnessSilent => write!(
                formatter,
                "the witness does not answer; the question is repeated"
            ),
            Notice::Impossible(why) => write!(formatter, "not done: {why}"),
        }
    }
}
