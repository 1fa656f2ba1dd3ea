//! The role of the host that has the guest.

use std::cmp::Ordering;

use super::action::{Action, Notice, Output};
use super::checkpoint::{CheckpointId, Header};
use super::common::{Common, Next, State};
use super::event::{Event, Order, Verdict};
use super::interval::{self, Measured};
use super::message::{Hello, Message, Standing};
use super::patience::Patience;
use super::settings::{LEASE_INTERVALS, Mode, Settings, StandbyLost};

/// Number of copying rounds after which the next checkpoint arms the standby, however long a round
/// takes.
const ROUNDS_MAX: u32 = 8;

/// Number of times by which a lease allows for the latest acknowledgement lately. One that is too short costs output
/// once, and no takeover.
const LEASE_MULTIPLE: i64 = 2;

/// The state of a host with the guest.
#[derive(Debug, Clone)]
pub struct Primary {
    /// Number of the last captured checkpoint, or of the one from which the guest runs.
    number: u64,
    acknowledged: Option<u64>,
    /// The process that might take over: it has, or may have, a checkpoint of this term that arms
    /// it.
    exposed: Option<Process>,
    /// Whether it goes on although another host might take over.
    at_risk: bool,
    /// The standby that is connected and follows.
    session: Option<Process>,
    /// The process whose memory equals ours up to the last acknowledged checkpoint.
    follower: Option<Process>,
    capture: Option<Capture>,
    flight: Option<Flight>,
    /// Number of checkpoints that the standby has and that do not arm it.
    rounds: u32,
    /// Bytes of the disks that the follower may still have otherwise, as of the last capture.
    disk_left_bytes: u64,
    /// The last checkpoint with all of the memory. Sums that belong to an earlier one may be older
    /// than blocks that the standby got since.
    whole: Option<CheckpointId>,
    /// Whether the standby was once too slow: until it is armed again, it is armed only if it keeps
    /// up.
    stalled: bool,
    /// Checkpoints that could not be taken since the last one that was.
    failing: Option<Failing>,
    /// Number of copies of all of the memory that have begun, since the last one that lasted.
    copies: u32,
    /// Time before which no other copy begins.
    copy_at_ns: i64,
    /// Whether a copy was put off until then, which has not begun.
    copies_later: bool,
    due_ns: i64,
    interval_ns: i64,
    transfer_ns: i64,
    /// What the epoch before took.
    measured: Option<Measured>,
    /// Judges how late an acknowledgement may be, after the time at which its checkpoint was due.
    lateness: Patience,
    /// Time from which on lateness counts, and then the time until which it has counted.
    lateness_known_ns: i64,
    guest: Guest,
    switching: bool,
    /// Whether the operator has ordered the host to be alone.
    unprotected: bool,
    term_is: Ownership,
    output: Output,
}

/// A process of the other host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    host: u64,
    incarnation: u64,
}

/// A checkpoint that is being taken.
#[derive(Debug, Clone, Copy)]
struct Capture {
    full: bool,
    arms: bool,
    /// Time at which it was due; it may have begun later.
    due_ns: i64,
    begun_ns: i64,
}

/// The checkpoint that is not acknowledged yet, of which there is at most one.
#[derive(Debug, Clone, Copy)]
struct Flight {
    header: Header,
    due_ns: i64,
    begun_ns: i64,
    pause_ns: i64,
    /// Time of the capture, from which a lease counts, so that no more than the lease is ever lost.
    captured_ns: i64,
    sent_ns: i64,
    /// Whether the other host has the guest after this checkpoint.
    last: bool,
    /// Whether it was found to take too long.
    stalled: bool,
}

fn unknown_lateness(settings: &Settings) -> Patience {
    Patience::new(LEASE_MULTIPLE, 0, settings.lease_ns)
}

impl Flight {
    /// Time until which output may leave once this checkpoint is acknowledged.
    fn lease_ends_ns(&self) -> i64 {
        self.captured_ns + self.header.lease_ns
    }
}

/// Checkpoints that could not be taken, in a row.
#[derive(Debug, Clone, Copy)]
struct Failing {
    times: u32,
    /// Time since which the standby that is connected waits for one.
    since_ns: i64,
    /// Whether that was found to take too long.
    is_late: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guest {
    /// The guest runs, except during captures.
    Runs,
    /// The guest is paused, because the other host continues from its last checkpoint.
    HandedOver,
    /// The guest is paused until it is known which host goes on.
    Halted,
    /// The guest has ended by itself.
    Off,
}

/// Whether the witness, if there is one, confirms that the term is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Certain,
    /// Another process may have been given the next term without using it. No standby may be armed
    /// then: the witness would not let it take over.
    Unsure {
        witnessed: u64,
    },
    Asking {
        expected: u64,
        again_ns: Option<i64>,
    },
}

impl Primary {
    /// A primary whose guest has just begun to run, so that no other host has a checkpoint of its
    /// term.
    pub(super) fn new(settings: &Settings, number: u64, now_ns: i64) -> Primary {
        Primary {
            number,
            acknowledged: None,
            exposed: None,
            at_risk: false,
            session: None,
            follower: None,
            capture: None,
            flight: None,
            rounds: 0,
            disk_left_bytes: 0,
            whole: None,
            stalled: false,
            failing: None,
            copies: 0,
            copy_at_ns: now_ns,
            copies_later: false,
            due_ns: now_ns,
            interval_ns: settings.interval.minimum_ns,
            transfer_ns: 0,
            measured: None,
            lateness: unknown_lateness(settings),
            lateness_known_ns: now_ns,
            guest: Guest::Runs,
            switching: false,
            unprotected: false,
            term_is: Ownership::Certain,
            output: Output::Open,
        }
    }

    pub(super) fn state(&self) -> State {
        match (self.exposed, self.session) {
            _ if self.guest == Guest::Off => State::Off,
            _ if self.at_risk => State::AtRisk,
            _ if self.switching => State::Switching,
            // A checkpoint that arms the standby is being sent, and may never arrive.
            (Some(_), _) if self.rounds > 0 && self.guest == Guest::Runs => State::Copying,
            (Some(_), Some(_)) => State::Protected,
            (Some(_), None) if self.guest == Guest::Runs => State::Protected,
            (Some(_), None) => State::Waiting,
            (None, Some(_)) if self.waits_to_copy() => State::Alone,
            (None, Some(_)) => State::Copying,
            (None, None) => State::Alone,
        }
    }

    /// Whether a standby is there, and nothing has been sent to it.
    fn waits_to_copy(&self) -> bool {
        self.follower != self.session && self.capture.is_none() && self.flight.is_none()
    }

    /// Whether the standby lives, could take over, and was not told to forget.
    pub(super) fn has_heir(&self) -> bool {
        let could = matches!(self.state(), State::Protected | State::Switching);
        could && self.session.is_some()
    }

    /// Whether it waits for a checkpoint or its acknowledgement for too long, or is about to try
    /// again what has failed.
    pub(super) fn is_stalled(&self) -> bool {
        // A guest that is alone has no checkpoints that could be late.
        if self.guest == Guest::Off || (self.session.is_none() && self.exposed.is_none()) {
            return false;
        }
        let waits = self.session.is_some() && self.exposed.is_none() && self.waits_to_copy();
        self.failing.is_some() || self.flight.is_some_and(|flight| flight.stalled) || waits
    }

    pub(super) fn acknowledged(&self, common: &Common) -> Option<CheckpointId> {
        self.acknowledged.map(|number| CheckpointId {
            term: common.term,
            number,
        })
    }

    pub(super) fn interval_ns(&self) -> i64 {
        self.interval_ns
    }

    /// Length of the next checkpoint's lease; `None` in Net mode.
    pub(super) fn lease_ns(&self, common: &Common) -> Option<i64> {
        match common.settings.mode {
            Mode::Net => None,
            Mode::NoNet => {
                let late_ns = self.lateness.limit_ns().max(self.interval_ns);
                let lease_ns = self.interval_ns.saturating_add(late_ns);
                Some(lease_ns.min(common.settings.lease_ns))
            }
        }
    }

    pub(super) fn wake_ns(&self, common: &Common) -> Option<i64> {
        let lost_ns = self
            .may_be_lost()
            .then_some(common.heard_ns + self.patience_ns(common));
        let again_ns = match self.term_is {
            Ownership::Asking { again_ns, .. } => again_ns,
            _ => None,
        };
        let due_ns = self.may_capture().then_some(self.due_ns);
        let stalls_ns = self.stalls_ns(common);
        let times_ns = [lost_ns, again_ns, due_ns, stalls_ns];
        times_ns.into_iter().flatten().min()
    }

    pub(super) fn disconnect(&mut self) {
        self.session = None;
        self.switching = false;
    }

    pub(super) fn greet(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        hello: &Hello,
        actions: &mut Vec<Action>,
    ) -> Next {
        self.session = None;
        self.switching = false;
        let Standing::Standby {
            held,
            claiming,
            unheard,
        } = hello.standing
        else {
            return match hello.term.cmp(&common.term) {
                Ordering::Less => Next::Stay,
                // Equal terms are impossible. If they occur, silence is safer than two active
                // guests.
                Ordering::Equal => Next::Standby(hello.term + 1),
                Ordering::Greater => Next::Standby(hello.term),
            };
        };
        if claiming {
            // The standby greets again when its claim is decided.
            return Next::Stay;
        }
        if hello.term > common.term {
            let unheard = unheard
                && self
                    .exposed
                    .is_some_and(|exposed| exposed.host == hello.host);
            self.meet_higher(common, hello.term, unheard, actions);
            return Next::Stay;
        }
        if hello.term < common.term {
            // The standby greets again when it has our greeting.
            return Next::Stay;
        }
        let peer = Process {
            host: hello.host,
            incarnation: hello.incarnation,
        };
        let held = held.filter(|held| held.id.term == common.term);
        if let Some(exposed) = self.exposed {
            if exposed.host != peer.host {
                return Next::Disconnect(Notice::OutOfPlace(
                    "another standby may have taken over; the operator has to confirm that it is off",
                ));
            }
            if !held.is_some_and(|held| held.armed) {
                // A host has one process: the one that might have taken over is gone, or has
                // forgotten its checkpoint.
                self.be_alone(actions);
                self.doubt(common, actions);
            } else if self.at_risk || self.unprotected || self.guest == Guest::Off {
                actions.push(Action::Send(Message::Disarm { term: common.term }));
                return Next::Stay;
            }
        }
        let is_wanted = self.guest != Guest::Off && !self.unprotected;
        if !is_wanted || self.term_is != Ownership::Certain {
            return Next::Stay;
        }
        self.follow(
            common,
            now_ns,
            peer,
            held.map(|held| held.id.number),
            actions,
        );
        Next::Stay
    }

    pub(super) fn receive(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        message: Message,
        actions: &mut Vec<Action>,
    ) -> Next {
        match message {
            Message::Heartbeat => {}
            Message::Acknowledge(id) => {
                let flight = self.flight.filter(|flight| flight.header.id == id);
                let Some(flight) = flight else {
                    return Next::Disconnect(Notice::OutOfPlace(
                        "an acknowledgement names a checkpoint that was not sent",
                    ));
                };
                // A standby that was told to forget in the meantime greets next.
                if self.session.is_some() {
                    self.transfer_ns = now_ns - flight.sent_ns;
                    self.acknowledge(common, now_ns, flight, actions);
                }
            }
            Message::Sums(id, _) => {
                if self.whole == Some(id) {
                    actions.push(Action::Compare);
                }
            }
            Message::Reject(_, reason) => actions.push(Action::Say(Notice::Rejected(reason))),
            _ => {
                return Next::Disconnect(Notice::OutOfPlace(
                    "it sent a message that only a primary sends",
                ));
            }
        }
        Next::Stay
    }

    pub(super) fn happen(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Next {
        match event {
            Event::Captured {
                number,
                ram_bytes,
                device_bytes,
                disk_bytes,
                disk_left_bytes,
                pause_ns,
            } if number == self.number + 1 => {
                let Some(capture) = self.capture.take() else {
                    return Next::Stay;
                };
                self.failing = None;
                // More than one checkpoint may have was written: the standby is not armed yet.
                let arms = capture.arms && (self.exposed.is_some() || disk_left_bytes == 0);
                let header = Header {
                    id: CheckpointId {
                        term: common.term,
                        number,
                    },
                    full: capture.full,
                    arms,
                    lease_ns: self.lease_ns(common).unwrap_or(0),
                    ram_bytes,
                    device_bytes,
                    disk_bytes,
                };
                self.number = number;
                self.disk_left_bytes = disk_left_bytes;
                if capture.full {
                    self.whole = Some(header.id);
                }
                let flight = Flight {
                    header,
                    due_ns: capture.due_ns,
                    begun_ns: capture.begun_ns,
                    pause_ns,
                    captured_ns: now_ns,
                    sent_ns: now_ns,
                    last: self.switching,
                    stalled: false,
                };
                self.captured(common, flight, actions);
            }
            Event::CaptureFailed { number } if number == self.number + 1 => {
                if let Some(capture) = self.capture.take() {
                    actions.push(Action::Say(Notice::CaptureFailed));
                    self.switching = false;
                    let failing = self.failing.get_or_insert(Failing {
                        times: 0,
                        since_ns: capture.begun_ns,
                        is_late: false,
                    });
                    failing.times += 1;
                    // Output waits for the next one, or nobody waits and each costs a pause.
                    self.due_ns = match self.exposed {
                        Some(_) => capture.begun_ns + common.settings.interval.maximum_ns,
                        None => now_ns + common.settings.retry_ns(failing.times),
                    };
                    if self.guest == Guest::Runs {
                        actions.push(Action::Resume);
                    }
                }
            }
            Event::GuestOff if self.guest != Guest::Off => {
                actions.push(Action::Say(Notice::GuestOff));
                self.guest = Guest::Off;
                self.capture = None;
                if self.exposed.is_some() && self.session.take().is_some() {
                    actions.push(Action::Send(Message::Disarm { term: common.term }));
                }
            }
            Event::Verdict { expected, verdict } => {
                if matches!(self.term_is, Ownership::Asking { expected: asked, .. } if asked == expected)
                {
                    return self.judge(common, now_ns, expected, verdict, actions);
                }
            }
            Event::Order(order) => return self.obey(common, now_ns, order, actions),
            // The remaining events answer requests of another role.
            _ => {}
        }
        Next::Stay
    }

    pub(super) fn tick(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        actions: &mut Vec<Action>,
    ) -> Next {
        if self.may_be_lost() && now_ns - common.heard_ns >= self.patience_ns(common) {
            self.lose(common, actions);
        }
        if self.stalls_ns(common).is_some_and(|at_ns| now_ns >= at_ns) {
            self.stall(common, actions);
        }
        if let Ownership::Asking {
            expected,
            again_ns: Some(again_ns),
        } = self.term_is
            && now_ns >= again_ns
        {
            self.ask(expected, actions);
        }
        if self.may_capture() && now_ns >= self.due_ns {
            let full = self.follower != self.session;
            let settles = self.transfer_ns <= common.settings.interval.maximum_ns;
            let arms = self.exposed.is_some()
                || !full
                    && self.rounds > 0
                    && self.disk_left_bytes == 0
                    && (settles || self.rounds >= ROUNDS_MAX && !self.stalled);
            self.capture = Some(Capture {
                full,
                arms,
                due_ns: self.due_ns,
                begun_ns: now_ns,
            });
            if full {
                self.whole = None;
                if std::mem::take(&mut self.copies_later) {
                    actions.push(Action::Say(Notice::Copying));
                }
                self.copies = self.copies.saturating_add(1);
                self.copy_at_ns = now_ns + common.settings.retry_ns(self.copies);
            }
            actions.push(Action::Capture {
                number: self.number + 1,
                full,
                arms,
            });
        }
        Next::Stay
    }

    /// Length of a silence that is taken for the loss of the standby. A mistake costs a copy of all of the memory
    /// where a witness excludes the standby, and more where nobody does.
    pub(super) fn patience_ns(&self, common: &Common) -> i64 {
        let settings = &common.settings;
        let excludes = settings.witness && settings.standby_lost == StandbyLost::Continue;
        if excludes && self.exposed.is_some() {
            common.patience.limit_ns()
        } else {
            settings.detection_ns
        }
    }

    fn may_be_lost(&self) -> bool {
        let goes_on = matches!(self.guest, Guest::Runs | Guest::HandedOver);
        self.exposed.is_some() && self.session.is_none() && goes_on && !self.at_risk
    }

    /// Time at which a standby that lives and does not acknowledge is given up, or one for which no
    /// checkpoint can be taken.
    fn stalls_ns(&self, common: &Common) -> Option<i64> {
        let (since_ns, is_known) = match (self.flight, self.failing) {
            (Some(flight), _) => (flight.sent_ns, flight.stalled),
            (None, Some(failing)) => (failing.since_ns, failing.is_late),
            (None, None) => return None,
        };
        let waits = self.exposed.is_some() && self.session.is_some() && !is_known;
        waits.then_some(since_ns + common.settings.stall_ns)
    }

    fn may_capture(&self) -> bool {
        self.session.is_some()
            && self.guest == Guest::Runs
            && self.capture.is_none()
            && self.flight.is_none()
    }

    /// Starts to serve a standby that follows. If it is the previous one and has what it should,
    /// the interrupted work continues; otherwise all of the memory is copied.
    fn follow(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        peer: Process,
        held: Option<u64>,
        actions: &mut Vec<Action>,
    ) {
        // Sums of disks may have been lost with the connection, so that copying begins anew.
        let knows_disks = self.disk_left_bytes == 0;
        let follows = self.follower == Some(peer) && held.is_some() && knows_disks;
        let flight = self.flight.map(|flight| Flight {
            last: false,
            ..flight
        });
        let has_flight = follows && held == flight.map(|flight| flight.header.id.number);
        if self.exposed.is_some() && !has_flight && !(follows && held == self.acknowledged) {
            // This is impossible. If it occurs, the standby's checkpoint is useless.
            actions.push(Action::Send(Message::Disarm { term: common.term }));
            return;
        }
        self.session = Some(peer);
        self.due_ns = self.due_ns.min(now_ns);
        if let Some(failing) = &mut self.failing {
            // This standby has not waited yet.
            failing.since_ns = now_ns;
            failing.is_late = false;
        }
        self.resume(actions);
        if self.output == Output::Closed {
            let output = match common.settings.mode {
                Mode::Net => Output::Hold,
                Mode::NoNet => Output::Until {
                    deadline_ns: now_ns,
                },
            };
            self.set_output(output, actions);
        }
        match flight {
            Some(flight) if has_flight => {
                self.acknowledge(common, now_ns, flight, actions);
                return;
            }
            Some(flight) if follows && held == self.acknowledged => {
                self.flight = Some(Flight {
                    sent_ns: now_ns,
                    stalled: false,
                    ..flight
                });
                actions.push(Action::SendCheckpoint(flight.header));
                return;
            }
            None if follows && held == self.acknowledged => return,
            _ => {}
        }
        self.follower = None;
        self.acknowledged = None;
        self.flight = None;
        self.rounds = 0;
        self.lateness = unknown_lateness(&common.settings);
        self.measured = None;
        self.copies_later = now_ns < self.copy_at_ns;
        if self.copies_later {
            self.due_ns = self.copy_at_ns;
            let in_ns = self.copy_at_ns - now_ns;
            actions.push(Action::Say(Notice::CopiesLater { in_ns }));
        } else {
            actions.push(Action::Say(Notice::Copying));
        }
    }

    fn captured(&mut self, common: &mut Common, flight: Flight, actions: &mut Vec<Action>) {
        let header = flight.header;
        let fits = |session: &Process| header.full || self.follower == Some(*session);
        if let Some(session) = self.session.filter(fits) {
            self.follower = Some(session);
            self.flight = Some(flight);
            self.expose(common, &flight, actions);
            if flight.last {
                self.guest = Guest::HandedOver;
            } else {
                actions.push(Action::Resume);
            }
            actions.push(Action::SendCheckpoint(header));
            return;
        }
        if self.exposed.is_some() {
            // The checkpoint is kept for the standby's return.
            self.flight = Some(flight);
        } else {
            self.follower = None;
        }
        if self.guest == Guest::Runs {
            actions.push(Action::Resume);
        }
    }

    /// Prepares for sending a checkpoint that arms the standby, which might take over from then on.
    fn expose(&mut self, common: &Common, flight: &Flight, actions: &mut Vec<Action>) {
        if flight.header.arms && self.exposed.is_none() {
            self.exposed = self.session;
            let settings = &common.settings;
            self.lateness_known_ns = flight.captured_ns.saturating_add(settings.settling_ns);
            let output = match common.settings.mode {
                Mode::Net => Output::Hold,
                // The standby cannot take over before a lease has passed since it received this
                // checkpoint.
                Mode::NoNet => Output::Until {
                    deadline_ns: flight.lease_ends_ns(),
                },
            };
            self.set_output(output, actions);
        }
    }

    fn acknowledge(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        flight: Flight,
        actions: &mut Vec<Action>,
    ) {
        let id = flight.header.id;
        self.flight = None;
        if flight.header.arms {
            if self.rounds > 0 {
                actions.push(Action::Say(Notice::Protected(id)));
                self.rounds = 0;
                self.stalled = false;
            }
            if now_ns >= self.copy_at_ns {
                self.copies = 0;
            }
            match common.settings.mode {
                Mode::Net => actions.push(Action::Release { through: id.number }),
                Mode::NoNet => {
                    if flight.due_ns >= self.lateness_known_ns {
                        let passed_ns = now_ns - self.lateness_known_ns;
                        self.lateness.note(now_ns - flight.due_ns, passed_ns);
                        self.lateness_known_ns = now_ns;
                    }
                    let deadline_ns = flight.lease_ends_ns();
                    self.set_output(Output::Until { deadline_ns }, actions);
                }
            }
        } else {
            self.rounds += 1;
        }
        self.acknowledged = Some(id.number);
        let measured = Measured {
            pause_ns: flight.pause_ns,
            transfer_ns: self.transfer_ns,
        };
        // The copy of all of the memory says nothing of epochs.
        if !flight.header.full {
            let bounds = &common.settings.interval;
            let before = self.measured.replace(measured).unwrap_or(measured);
            let lasting = measured.lesser(before);
            self.interval_ns = interval::next(bounds, self.interval_ns, lasting);
        }
        self.due_ns = flight.begun_ns + self.interval_ns;
        if common.settings.mode == Mode::NoNet {
            // An interval that has grown begins with a lease that allows for it.
            let allowed_ns = flight.header.lease_ns / LEASE_INTERVALS;
            self.due_ns = self.due_ns.min(flight.captured_ns + allowed_ns);
        }
        self.due_ns = self.due_ns.max(now_ns);
        if flight.last {
            self.set_output(Output::Closed, actions);
            actions.push(Action::Send(Message::Handover(id)));
            self.session = None;
        } else if self.switching {
            self.due_ns = now_ns;
        }
    }

    /// Handles a standby that has been silent for too long and might take over.
    fn lose(&mut self, common: &Common, actions: &mut Vec<Action>) {
        match common.settings.standby_lost {
            StandbyLost::Continue if !common.settings.witness => {
                self.at_risk = true;
                self.resume(actions);
                actions.push(Action::Say(Notice::AtRisk));
                self.set_output(Output::Open, actions);
            }
            lost => {
                self.halt(actions);
                actions.push(Action::Say(Notice::Waiting));
                if lost == StandbyLost::Continue && self.term_is == Ownership::Certain {
                    self.ask(common.term, actions);
                }
            }
        }
    }

    /// Handles a standby that lives, and so does not take over, and acknowledges nothing or gets
    /// nothing to acknowledge, so that the guest is not heard either. Only the standby can promise
    /// never to take over: it is told to forget, unless the operator prefers silence.
    fn stall(&mut self, common: &Common, actions: &mut Vec<Action>) {
        let gives_up = common.settings.standby_lost == StandbyLost::Continue;
        if let Some(flight) = &mut self.flight {
            flight.stalled = true;
            actions.push(Action::Say(Notice::Stalled { gives_up }));
        } else if let Some(failing) = &mut self.failing {
            failing.is_late = true;
            actions.push(Action::Say(Notice::CapturesFail { gives_up }));
        }
        if gives_up {
            self.stalled = true;
            self.switching = false;
            self.session = None;
            actions.push(Action::Send(Message::Disarm { term: common.term }));
        }
    }

    /// Continues without any host that could take over.
    fn be_alone(&mut self, actions: &mut Vec<Action>) {
        self.exposed = None;
        self.session = None;
        self.at_risk = false;
        self.follower = None;
        self.acknowledged = None;
        self.flight = None;
        self.rounds = 0;
        self.set_output(Output::Open, actions);
        self.resume(actions);
        // A checkpoint that is being taken would belong to another term, or not arm the right
        // standby.
        if let Some(capture) = &mut self.capture {
            capture.arms = false;
        }
        actions.push(Action::Say(Notice::Alone));
    }

    /// Lets a guest run that is paused for another reason than a capture.
    fn resume(&mut self, actions: &mut Vec<Action>) {
        if matches!(self.guest, Guest::Halted | Guest::HandedOver) {
            self.guest = Guest::Runs;
            if self.capture.is_none() {
                actions.push(Action::Resume);
            }
        }
    }

    /// Handles another host with a higher term and without the guest.
    fn meet_higher(
        &mut self,
        common: &mut Common,
        term: u64,
        unheard: bool,
        actions: &mut Vec<Action>,
    ) {
        if self.exposed.is_none() || self.at_risk || unheard {
            self.outrank(common, term + 1, actions);
        } else {
            // The other host took over, may have been heard, and has lost the guest. The state here
            // is older, and the only one: its use is the operator's decision.
            self.halt(actions);
            actions.push(Action::Say(Notice::Overtaken { term }));
        }
    }

    /// Goes on alone in a term that no other host has.
    fn outrank(&mut self, common: &mut Common, term: u64, actions: &mut Vec<Action>) {
        common.set_term(term, actions);
        self.be_alone(actions);
        self.doubt(common, actions);
        if common.connection.is_some() {
            actions.push(common.hello(Standing::Primary));
        }
    }

    fn halt(&mut self, actions: &mut Vec<Action>) {
        if self.guest == Guest::Runs && self.capture.is_none() {
            actions.push(Action::Pause);
        }
        if self.guest != Guest::Off {
            self.guest = Guest::Halted;
        }
    }

    /// Notes that a process that is gone may have been given a term that it never used.
    fn doubt(&mut self, common: &Common, actions: &mut Vec<Action>) {
        if common.settings.witness && !matches!(self.term_is, Ownership::Asking { .. }) {
            let expected = match self.term_is {
                Ownership::Unsure { witnessed } => witnessed,
                // The witness answers with the right term if this one is wrong.
                _ => common.term,
            };
            self.ask(expected, actions);
        }
    }

    fn ask(&mut self, expected: u64, actions: &mut Vec<Action>) {
        self.term_is = Ownership::Asking {
            expected,
            again_ns: None,
        };
        actions.push(Action::Claim { expected });
    }

    fn judge(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        expected: u64,
        verdict: Verdict,
        actions: &mut Vec<Action>,
    ) -> Next {
        match verdict {
            // The operator's order, or the other host's record, is ahead of the witness.
            Verdict::Granted { term } if term < common.term => self.ask(term, actions),
            Verdict::Granted { term } => {
                self.term_is = Ownership::Certain;
                common.set_term(term, actions);
                self.be_alone(actions);
                if common.connection.is_some() {
                    actions.push(common.hello(Standing::Primary));
                }
                if let Some(peer) = common.peer {
                    // The standby may already have the term.
                    return self.greet(common, now_ns, &peer, actions);
                }
            }
            Verdict::Refused { current } if self.exposed.is_none() => self.ask(current, actions),
            Verdict::Refused { current } => {
                actions.push(Action::Say(Notice::Refused { current }));
                self.term_is = Ownership::Unsure { witnessed: current };
            }
            Verdict::Unknown => {
                actions.push(Action::Say(Notice::WitnessSilent));
                self.term_is = Ownership::Asking {
                    expected,
                    again_ns: Some(now_ns + common.settings.detection_ns),
                };
            }
        }
        Next::Stay
    }

    fn obey(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        order: Order,
        actions: &mut Vec<Action>,
    ) -> Next {
        let impossible = match order {
            Order::Start { .. } => "the guest is here already",
            Order::Switchover if self.state() != State::Protected || self.session.is_none() => {
                "no standby can take over now"
            }
            Order::Switchover => {
                self.switching = true;
                self.due_ns = now_ns;
                return Next::Stay;
            }
            Order::Unprotect
                if self.exposed.is_some() && self.session.is_none() && !self.stalled =>
            {
                "the standby is not heard, so it cannot be notified"
            }
            Order::Unprotect => {
                self.unprotected = true;
                self.switching = false;
                self.session = None;
                if self.exposed.is_some() {
                    actions.push(Action::Send(Message::Disarm { term: common.term }));
                }
                return Next::Stay;
            }
            Order::Protect => {
                self.unprotected = false;
                return match common.peer {
                    // Otherwise the standby has just been told to forget, and answers.
                    Some(peer) if self.session.is_none() && self.exposed.is_none() => {
                        self.greet(common, now_ns, &peer, actions)
                    }
                    _ => Next::Stay,
                };
            }
            Order::GoOn if self.state() != State::Waiting && !self.at_risk => {
                "the guest goes on already"
            }
            Order::GoOn => {
                // The other host may have taken the next term before it went off.
                self.outrank(common, common.term + 2, actions);
                return Next::Stay;
            }
        };
        actions.push(Action::Say(Notice::Impossible(impossible)));
        Next::Stay
    }

    fn set_output(&mut self, output: Output, actions: &mut Vec<Action>) {
        if self.output != output {
            self.output = output;
            actions.push(Action::Output(output));
        }
    }
}
