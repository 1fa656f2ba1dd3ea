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

mod action;
pub mod checkpoint;
mod common;
mod event;
pub mod interval;
pub mod message;
mod patience;
mod primary;
mod settings;
mod standby;

pub use action::{Action, Notice, Output};
pub use checkpoint::{CheckpointId, Header, Part};
pub use common::State;
use common::{Common, Next};
pub use event::{Event, Order, Record, Verdict};
use message::{Greetings, Standing};
pub use message::{Hello, Message, Reason};
use patience::Patience;
pub use primary::Primary;
pub use settings::{
    DETECTION_HEARTBEATS, LEASE_INTERVALS, Mode, Settings, StandbyLost, Unworkable, defaults,
};
pub use standby::Standby;

/// Number of times that a silence must be as long as the longest one from which the other host came back, to be
/// taken for its loss.
const SILENCE_MULTIPLE: i64 = 3;
/// Number of heartbeats for which a process did not run, after which news of the other host may wait to be heard.
const OLD_NEWS_HEARTBEATS: i64 = 2;

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
    /// Length of the next checkpoint's lease, of a primary in No-Net mode.
    pub lease_ns: Option<i64>,
    /// Whether the other host lives, could go on with the guest, and was not told to forget it.
    pub has_heir: bool,
    /// Whether something takes too long, or has failed and is tried again later.
    pub is_stalled: bool,
}

/// One host's part in the protection of one virtual machine.
#[derive(Debug, Clone)]
pub struct Node {
    common: Common,
    role: Role,
}

#[derive(Debug, Clone)]
enum Role {
    Primary(Box<Primary>),
    Standby(Standby),
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
                patience: Patience::new(
                    SILENCE_MULTIPLE,
                    settings.detection_min_ns,
                    settings.detection_ns,
                ),
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
        // This process did not run, or its clock has jumped: the time that has passed proves nothing
        // about the other host.
        if asleep_ns > common.patience.limit_ns() / 2 {
            if asleep_ns > common.settings.detection_ns / 2 {
                common.patience.note(asleep_ns, asleep_ns);
            }
            common.heard_ns = now_ns;
            if let Role::Standby(standby) = &mut self.role {
                standby.wait_anew(now_ns);
            }
        }
        let heartbeat_ns = common.settings.heartbeat_ns;
        if let Role::Standby(standby) = &mut self.role
            && asleep_ns > OLD_NEWS_HEARTBEATS * heartbeat_ns
            && common.peer.is_some()
        {
            standby.catch_up(now_ns.saturating_add(heartbeat_ns));
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
            wake_ns = wake_ns.min(common.silent_from_ns() + self.silence_ns());
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
        let (term, connected) = (common.term, common.peer.is_some());
        match &self.role {
            Role::Primary(primary) => Status {
                state: primary.state(),
                term,
                checkpoint: primary.acknowledged(common),
                connected,
                interval_ns: Some(primary.interval_ns()),
                lease_ns: primary.lease_ns(common),
                has_heir: primary.has_heir(),
                is_stalled: primary.is_stalled(),
            },
            Role::Standby(standby) => Status {
                state: standby.state(),
                term,
                checkpoint: standby.held().map(|held| held.id),
                connected,
                interval_ns: None,
                lease_ns: None,
                has_heir: false,
                is_stalled: standby.is_stalled(),
            },
        }
    }

    /// Length of a silence after which the connection counts as broken.
    fn silence_ns(&self) -> i64 {
        match &self.role {
            Role::Primary(primary) => primary.patience_ns(&self.common),
            Role::Standby(_) => self.common.settings.detection_ns,
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
        let silence_ns = now_ns - common.silent_from_ns();
        common.patience.note(silence_ns, silence_ns);
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
                Next::Disconnect(Notice::OutOfPlace("its first message was not a greeting"))
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
        if self.common.connection.is_some() && silent_ns >= self.silence_ns() {
            // What comes too late on this connection is never heard, and the next silence is given more time.
            if let Role::Primary(_) = self.role {
                self.common.patience.note(silent_ns, silent_ns);
            }
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
                self.role = Role::Primary(Box::new(Primary::new(settings, number, now_ns)));
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
