//! The protocol of a pair of hosts that protect one virtual machine.
//!
//! A [`Node`] is one host's part in it, as a primary or as a standby. It has no clock and does no I/O:
//! events come in with the time of the host's monotonic clock, and actions go out.
//!
//! **What whoever drives it must do.** Carry out the actions in their order, each wholly before the next;
//! call [`Node::handle`] with [`Event::Timer`] at [`Node::wake_ns`], but after whatever has arrived by then;
//! give every process an incarnation that no other had, keep the [`Record`] on stable storage, and let no
//! two processes share one. Nothing may leave the host but through the gate, which obeys [`Output`].
//!
//! **Why nobody is heard beside another.** A guest's output leaves freely only as long as no other host
//! could take over (`Primary::exposed` is empty). From the moment a standby might have a checkpoint that
//! arms it, output waits for acknowledgements (Net) or lasts as long as a lease (No-Net), and a standby
//! that takes over has stopped acknowledging before, and waits the lease out. Freedom comes back only from
//! the standby itself, saying that it has nothing to take over with, from the witness, or from the operator.

pub mod checkpoint;
pub mod interval;
pub mod message;
mod primary;
mod settings;
mod standby;

use std::fmt;

pub use checkpoint::{CheckpointId, Header, Part};
use message::{Greetings, Standing};
pub use message::{Hello, Message, Reason};
pub use primary::Primary;
pub use settings::{
    DETECTION_HEARTBEATS, LEASE_INTERVALS, Mode, Settings, StandbyLost, Unworkable, defaults,
};
pub use standby::Standby;

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
    /// The guest runs here, after [`Action::Activate`] or [`Action::Boot`].
    Activated,
    /// The guest could not be made to run here.
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

/// An action to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Puts the record on stable storage.
    Persist(Record),
    /// Sends a message on the current connection.
    Send(Message<'static>),
    /// Sends the last captured checkpoint with this header: all chunks of its memory, then of its
    /// devices, then its end. The capture is kept until the next one, because it may have to be
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
        full: bool,
    },
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
    /// Makes the staged memory and devices the current checkpoint.
    Commit(CheckpointId),
    /// Drops the current checkpoint, too.
    Forget,
    /// Lets the guest run from the current checkpoint, which is this one. [`Event::Activated`]
    /// follows.
    Activate(CheckpointId),
    /// Boots the guest. [`Event::Activated`] follows.
    Boot,
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
            Notice::Lost => write!(formatter, "the other host is not heard any more"),
            Notice::Disagrees => write!(
                formatter,
                "the other host's mode, lease, witness or virtual machine is another: give both the same site file"
            ),
            Notice::OutOfPlace(what) => write!(formatter, "closed the connection: {what}"),
            Notice::Copying => write!(formatter, "copying to a standby; not protected yet"),
            Notice::Protected(id) => write!(formatter, "protected, from checkpoint {id} on"),
            Notice::Waiting => write!(
                formatter,
                "SILENT: the standby is not heard and may have taken over; waiting for it, or for the operator"
            ),
            Notice::AtRisk => write!(
                formatter,
                "UNPROTECTED AND AT RISK: the standby is not heard, may have taken over, and this host goes on as it \
                 was told to: both may be heard"
            ),
            Notice::Alone => write!(
                formatter,
                "UNPROTECTED: the guest runs here, without a standby"
            ),
            Notice::Rejected(Reason::Full) => {
                write!(formatter, "the standby has no room for the guest")
            }
            Notice::Rejected(Reason::Corrupt) => {
                write!(formatter, "the standby got a damaged checkpoint")
            }
            Notice::Stalled { gives_up: true } => write!(
                formatter,
                "the standby lives and acknowledges nothing: it is told to forget, so that the guest goes on, \
                 UNPROTECTED, until the standby keeps up"
            ),
            Notice::Stalled { gives_up: false } => write!(
                formatter,
                "SILENT: the standby lives and acknowledges nothing; waiting for it, or for the operator to unprotect"
            ),
            Notice::CaptureFailed => write!(formatter, "a checkpoint could not be taken"),
            Notice::Fenced { term } => {
                write!(
                    formatter,
                    "the other host holds term {term}: the guest is ended here"
                )
            }
            Notice::Overtaken { term } => write!(
                formatter,
                "SILENT: the other host took over, in term {term}, and has lost the guest; the one here is older, and goes \
                 on only if the operator says so"
            ),
            Notice::GuestOff => write!(formatter, "the guest has ended by itself"),
            Notice::Armed(id) => write!(formatter, "ready to take over, from checkpoint {id} on"),
            Notice::TakingOver(id) => write!(formatter, "taking over from checkpoint {id}"),
            Notice::Active { term } => write!(formatter, "the guest runs here, in term {term}"),
            Notice::ActivationFailed => {
                write!(formatter, "the guest could not be made to run here")
            }
            Notice::Refused { current } => {
                write!(
                    formatter,
                    "the witness has given term {current} to the other host"
                )
            }
            Notice::WitnessSilent => write!(formatter, "the witness does not answer; asking again"),
            Notice::Impossible(why) => write!(formatter, "not done: {why}"),
        }
    }
}

/// The state of a node in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It has the guest, and no other host could take over.
    Alone,
    /// It has the guest, and copies it to a standby that could not take over yet.
    Copying,
    /// It has the guest, and a standby that could take over.
    Protected,
    /// It is protected, and about to hand over.
    Switching,
    /// It has the guest, and a standby that may have taken over; its output is held back.
    Waiting,
    /// It has the guest, and a standby that may have taken over; it goes on.
    AtRisk,
    /// The guest has ended by itself.
    Off,
    /// It has no checkpoint to take over with.
    Empty,
    /// It could take over.
    Armed,
    /// It has asked the witness for a term.
    Claiming,
    /// The witness refused the term, and only the other host knows whether the checkpoint here is
    /// still useful.
    Refused,
    /// It is about to run the guest.
    Activating,
}

/// The externally visible state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// State in one word.
    pub state: State,
    /// The highest term that it knows of.
    pub term: u64,
    /// The last checkpoint that was acknowledged, by the other host or by this one.
    pub checkpoint: Option<CheckpointId>,
    /// Whether the other host is connected and has greeted.
    pub connected: bool,
    /// Interval between checkpoints, of a primary.
    pub interval_ns: Option<i64>,
}

/// One host's part in the protection of one virtual machine.
#[derive(Debug, Clone)]
pub struct Node {
    common: Common,
    role: Role,
}

#[derive(Debug, Clone)]
enum Role {
    Primary(Primary),
    Standby(Standby),
}

/// The state of a node in either role.
#[derive(Debug, Clone)]
struct Common {
    settings: Settings,
    host: u64,
    incarnation: u64,
    term: u64,
    connection: Option<Greetings>,
    /// The last counting greeting of the other side on this connection.
    peer: Option<Hello>,
    connected_ns: i64,
    /// Time of the last message from the other host.
    heard_ns: i64,
    heartbeat_due_ns: i64,
    event_ns: i64,
}

impl Common {
    /// The greeting for the current connection.
    fn hello(&self, standing: Standing) -> Action {
        let Greetings {
            connection,
            answers,
        } = self.connection.unwrap_or(Greetings::new(0));
        Action::Send(Message::Hello(Hello {
            vm: self.settings.vm,
            mode: self.settings.mode,
            witness: self.settings.witness,
            lease_ns: self.settings.lease_ns,
            host: self.host,
            incarnation: self.incarnation,
            term: self.term,
            standing,
            connection,
            answers,
        }))
    }

    fn is_on(&self, connection: u64) -> bool {
        self.connection
            .is_some_and(|greetings| greetings.connection == connection)
    }

    /// Whether a greeting answers ours; repeats ours where it does not answer the other side's yet.
    fn counts(&mut self, hello: &Hello, standing: Standing, actions: &mut Vec<Action>) -> bool {
        let heard = self.connection.as_mut().map(|each| each.hear(hello));
        let (is_new, counts) = heard.unwrap_or_default();
        if is_new {
            actions.push(self.hello(standing));
        }
        counts
    }

    fn agrees(&self, hello: &Hello) -> bool {
        let settings = &self.settings;
        let ours = (
            settings.vm,
            settings.mode,
            settings.witness,
            settings.lease_ns,
        );
        ours == (hello.vm, hello.mode, hello.witness, hello.lease_ns) && hello.host != self.host
    }

    /// Time since which nothing has arrived on the connection.
    fn silent_from_ns(&self) -> i64 {
        self.heard_ns.max(self.connected_ns)
    }

    fn set_term(&mut self, term: u64, actions: &mut Vec<Action>) {
        self.term = term;
        actions.push(Action::Persist(Record { term }));
    }
}

/// A role's request to its node.
enum Next {
    Stay,
    /// Close the connection, for this reason.
    Disconnect(Notice),
    /// Become a primary whose guest runs from this checkpoint's number.
    Primary(u64),
    /// Become a standby without a checkpoint, in this term.
    Standby(u64),
}

impl Node {
    /// The node of a new process on a host with this record: a standby without a checkpoint. `host`
    /// distinguishes the two hosts and stays the same; `incarnation` is new with each process.
    pub fn new(
        settings: Settings,
        host: u64,
        incarnation: u64,
        record: Record,
        now_ns: i64,
    ) -> Node {
        Node {
            common: Common {
                settings,
                host,
                incarnation,
                term: record.term,
                connection: None,
                peer: None,
                connected_ns: now_ns,
                heard_ns: now_ns,
                heartbeat_due_ns: now_ns,
                event_ns: now_ns,
            },
            role: Role::Standby(Standby::new(now_ns)),
        }
    }

    /// Handles an event, and appends the resulting actions to `actions`. Time never goes back.
    pub fn handle(&mut self, now_ns: i64, event: Event, actions: &mut Vec<Action>) {
        let common = &mut self.common;
        let asleep_ns = now_ns - common.event_ns;
        common.event_ns = now_ns;
        if asleep_ns > common.settings.detection_ns / 2 {
            // This process did not run, so silence proves nothing about the other host.
            common.heard_ns = now_ns;
            if let Role::Standby(standby) = &mut self.role {
                standby.hear_primary(now_ns);
            }
        }
        match event {
            Event::Timer => {}
            Event::Connected { connection } => self.connect(now_ns, connection, actions),
            Event::Disconnected { connection } if self.common.is_on(connection) => {
                self.disconnect(actions);
            }
            Event::Received {
                connection,
                message,
            } if self.common.is_on(connection) => {
                self.receive(now_ns, message, actions);
            }
            Event::Disconnected { .. } | Event::Received { .. } => {}
            _ => {
                let common = &mut self.common;
                let next = match &mut self.role {
                    Role::Primary(primary) => primary.happen(common, now_ns, event, actions),
                    Role::Standby(standby) => standby.happen(common, now_ns, event, actions),
                };
                self.go(now_ns, next, actions);
            }
        }
        self.tick(now_ns, actions);
    }

    /// Time at which the next [`Event::Timer`] is due.
    pub fn wake_ns(&self) -> i64 {
        let common = &self.common;
        let mut wake_ns = common.heartbeat_due_ns;
        if common.connection.is_some() {
            wake_ns = wake_ns.min(common.silent_from_ns() + common.settings.detection_ns);
        }
        let of_role_ns = match &self.role {
            Role::Primary(primary) => primary.wake_ns(common),
            Role::Standby(standby) => standby.wake_ns(common),
        };
        wake_ns.min(of_role_ns.unwrap_or(wake_ns))
    }

    /// The externally visible state.
    pub fn status(&self) -> Status {
        let common = &self.common;
        let (state, checkpoint, interval_ns) = match &self.role {
            Role::Primary(primary) => (
                primary.state(),
                primary.acknowledged(common),
                Some(primary.interval_ns()),
            ),
            Role::Standby(standby) => (standby.state(), standby.held().map(|held| held.id), None),
        };
        Status {
            state,
            term: common.term,
            checkpoint,
            connected: common.peer.is_some(),
            interval_ns,
        }
    }

    fn standing(&self) -> Standing {
        match &self.role {
            Role::Primary(_) => Standing::Primary,
            Role::Standby(standby) => standby.standing(),
        }
    }

    fn connect(&mut self, now_ns: i64, connection: u64, actions: &mut Vec<Action>) {
        self.disconnect(actions);
        self.common.connection = Some(Greetings::new(connection));
        self.common.connected_ns = now_ns;
        actions.push(self.common.hello(self.standing()));
    }

    fn disconnect(&mut self, actions: &mut Vec<Action>) {
        if self.common.connection.take().is_none() {
            return;
        }
        if self.common.peer.take().is_some() {
            actions.push(Action::Say(Notice::Lost));
        }
        match &mut self.role {
            Role::Primary(primary) => primary.disconnect(),
            Role::Standby(standby) => standby.disconnect(actions),
        }
    }

    fn receive(&mut self, now_ns: i64, message: Message, actions: &mut Vec<Action>) {
        let standing = self.standing();
        let common = &mut self.common;
        common.heard_ns = now_ns;
        let next = match message {
            Message::Hello(hello) if !common.agrees(&hello) => Next::Disconnect(Notice::Disagrees),
            Message::Hello(hello) if !common.counts(&hello, standing, actions) => Next::Stay,
            Message::Hello(hello) => {
                if common
                    .peer
                    .is_none_or(|peer| peer.incarnation != hello.incarnation)
                {
                    actions.push(Action::Say(Notice::Greeted {
                        incarnation: hello.incarnation,
                    }));
                }
                common.peer = Some(hello);
                match &mut self.role {
                    Role::Primary(primary) => primary.greet(common, now_ns, &hello, actions),
                    Role::Standby(standby) => standby.greet(common, now_ns, &hello, actions),
                }
            }
            _ if common.peer.is_none() => {
                Next::Disconnect(Notice::OutOfPlace("it did not say who it is first"))
            }
            _ => match &mut self.role {
                Role::Primary(primary) => primary.receive(common, now_ns, message, actions),
                Role::Standby(standby) => standby.receive(common, now_ns, message, actions),
            },
        };
        self.go(now_ns, next, actions);
    }

    fn tick(&mut self, now_ns: i64, actions: &mut Vec<Action>) {
        let common = &mut self.common;
        if now_ns >= common.heartbeat_due_ns {
            common.heartbeat_due_ns = now_ns + common.settings.heartbeat_ns;
            if common.peer.is_some() {
                actions.push(Action::Send(Message::Heartbeat));
            }
        }
        let silent_ns = now_ns - common.silent_from_ns();
        if common.connection.is_some() && silent_ns >= common.settings.detection_ns {
            actions.push(Action::Disconnect);
            self.disconnect(actions);
        }
        let common = &mut self.common;
        let next = match &mut self.role {
            Role::Primary(primary) => primary.tick(common, now_ns, actions),
            Role::Standby(standby) => standby.tick(common, now_ns, actions),
        };
        self.go(now_ns, next, actions);
    }

    fn go(&mut self, now_ns: i64, next: Next, actions: &mut Vec<Action>) {
        match next {
            Next::Stay => return,
            Next::Disconnect(why) => {
                actions.extend([Action::Say(why), Action::Disconnect]);
                self.disconnect(actions);
                return;
            }
            Next::Primary(number) => {
                let settings = &self.common.settings;
                self.role = Role::Primary(Primary::new(settings, number, now_ns));
                let term = self.common.term;
                actions.extend([Action::Output(Output::Open), Action::Announce]);
                actions.push(Action::Say(Notice::Active { term }));
            }
            Next::Standby(term) => {
                actions.extend([Action::Output(Output::Closed), Action::Destroy]);
                self.common.set_term(term, actions);
                self.role = Role::Standby(Standby::new(now_ns));
                actions.push(Action::Say(Notice::Fenced { term }));
            }
        }
        // The other side must learn of the new role, and its last greeting was meant for the old
        // one.
        if self.common.connection.is_some() {
            actions.push(self.common.hello(self.standing()));
        }
        if let Some(hello) = self.common.peer {
            let common = &mut self.common;
            let next = match &mut self.role {
                Role::Primary(primary) => primary.greet(common, now_ns, &hello, actions),
                Role::Standby(standby) => standby.greet(common, now_ns, &hello, actions),
            };
            self.go(now_ns, next, actions);
        }
    }
}
