//! The events that a node handles.

use super::message::Message;

/// The state that a host must keep on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// The highest term that the host held or followed; 0 before the first.
    pub term: u64,
}

/// An event for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The time [`Node::wake_ns`] has come.
    Timer,
    /// A connection to the other host has been made and replaces the previous one. Its number is
    /// new.
    Connected {
        /// Number of the connection on this host.
        connection: u64,
    },
    /// A connection has ended, or an invalid frame has arrived on it.
    Disconnected {
        /// Number of the connection.
        connection: u64,
    },
    /// A message has arrived.
    Received {
        /// Number of the connection.
        connection: u64,
        /// The message from [`message::decode`].
        message: Message<'a>,
    },
    /// The guest is paused, all its earlier output is at the gate, and the checkpoint is taken.
    Captured {
        /// Number of the checkpoint from [`Action::Capture`].
        number: u64,
        /// Value for [`Header::ram_bytes`].
        ram_bytes: u64,
        /// Value for [`Header::device_bytes`].
        device_bytes: u64,
        /// Value for [`Header::disk_bytes`].
        disk_bytes: u64,
        /// Bytes of the disks that the standby may still have otherwise, with this checkpoint.
        disk_left_bytes: u64,
        /// Length of the pause for the checkpoint so far.
        pause_ns: i64,
    },
    /// The checkpoint could not be taken; the guest is paused, and changes since the previous
    /// checkpoint still count as changes.
    CaptureFailed {
        /// Number of the checkpoint from [`Action::Capture`].
        number: u64,
    },
    /// A checkpoint could not be staged or committed: the memory on this host is not usable any
    /// more.
    Unusable,
    /// The thread that handles the guest has not come back for too long, as when a disk hangs.
    /// [`Event::Recovers`] follows.
    Hangs,
    /// That thread has done all that it was told, and no disk hangs.
    Recovers,
    /// The guest runs here, after [`Action::Activate`] or [`Action::Boot`].
    Activated,
    /// The guest could not be made to run here, and will not run any more.
    ActivationFailed,
    /// The guest has ended by itself.
    GuestOff,
    /// The witness has answered [`Action::Claim`].
    Verdict {
        /// The expected term of the claim.
        expected: u64,
        /// The witness's decision.
        verdict: Verdict,
    },
    /// The operator has given an order.
    Order(Order),
}

/// A decision of the witness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The term was given to this incarnation.
    Granted {
        /// The term, one more than was expected.
        term: u64,
    },
    /// Another term was given out last.
    Refused {
        /// The term that was given out last.
        current: u64,
    },
    /// The witness did not answer. It may have carried out the claim.
    Unknown,
}

/// An order of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Boots the guest here, because no host has it.
    Start {
        /// Whether to boot although the other host does not answer. The operator has made sure that
        /// it does not have the guest.
        alone: bool,
    },
    /// Lets the standby take over now, without loss.
    Switchover,
    /// Lets the standby forget its checkpoints, so that it may be removed.
    Unprotect,
    /// Protects the guest again.
    Protect,
    /// Goes on although the other host does not answer. The operator has made sure that it is off.
    GoOn,
}
