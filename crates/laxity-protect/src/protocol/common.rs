//! The state of a node in either role, and the requests of a role to its node.

use super::action::{Action, Notice};
use super::event::Record;
use super::message::{Greetings, Hello, Message, Standing};
use super::patience::Patience;
use super::settings::Settings;

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
    /// It has none, and takes none until the thread that handles the guest comes back, which a disk
    /// that hangs keeps.
    Hanging,
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

/// The state of a node in either role.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) settings: Settings,
    pub(super) host: u64,
    pub(super) incarnation: u64,
    pub(super) term: u64,
    pub(super) connection: Option<Greetings>,
    /// The last counting greeting of the other side on this connection.
    pub(super) peer: Option<Hello>,
    pub(super) connected_ns: i64,
    /// Time of the last message from the other host.
    pub(super) heard_ns: i64,
    /// Judges a silence of the other host.
    pub(super) patience: Patience,
    pub(super) heartbeat_due_ns: i64,
    pub(super) event_ns: i64,
}

impl Common {
    /// The greeting for the current connection.
    pub(super) fn hello(&self, standing: Standing) -> Action {
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

    pub(super) fn is_on(&self, connection: u64) -> bool {
        self.connection
            .is_some_and(|greetings| greetings.connection == connection)
    }

    /// Whether a greeting answers ours; repeats ours where it does not answer the other side's yet.
    pub(super) fn counts(
        &mut self,
        hello: &Hello,
        standing: Standing,
        actions: &mut Vec<Action>,
    ) -> bool {
        let heard = self.connection.as_mut().map(|each| each.hear(hello));
        let (is_new, counts) = heard.unwrap_or_default();
        if is_new {
            actions.push(self.hello(standing));
        }
        counts
    }

    pub(super) fn agrees(&self, hello: &Hello) -> bool {
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
    pub(super) fn silent_from_ns(&self) -> i64 {
        self.heard_ns.max(self.connected_ns)
    }

    pub(super) fn set_term(&mut self, term: u64, actions: &mut Vec<Action>) {
        self.term = term;
        actions.push(Action::Persist(Record { term }));
    }
}

/// A role's request to its node.
pub(super) enum Next {
    Stay,
    /// Close the connection, for this reason.
    Disconnect(Notice),
    /// Become a primary whose guest runs from this checkpoint's number.
    Primary(u64),
    /// Become a standby without a checkpoint, in this term.
    Standby(u64),
}
