//! The role of the host without the guest: it follows a primary, and takes over from it.

use super::action::{Action, Notice};
use super::checkpoint::{CheckpointId, Header, Staging};
use super::common::{Common, Next, State};
use super::event::{Event, Order, Verdict};
use super::message::{Held, Hello, Message, Reason, Standing};
use super::settings::Settings;

/// The state of a host without the guest.
///
/// It stages a checkpoint until that is whole, and acknowledges it only then. Before it takes over it stops
/// acknowledging; it then bumps the term, on stable storage, so that it never acknowledges the old one
/// again, not even as another process.
#[derive(Debug, Clone)]
pub struct Standby {
    held: Option<Held>,
    staging: Option<Staging>,
    /// Time of the last acknowledgement, or a later one; all leases of the primary began before.
    promised_ns: i64,
    /// Time after that until the last of them has run out by the primary's clock, too.
    lease_wait_ns: i64,
    primary_heard_ns: i64,
    doing: Doing,
    /// Whether [`Standing::Standby`] is unheard.
    unheard: bool,
    /// Whether the thread that handles the guest does not come back, so that no checkpoint can be
    /// taken in.
    hangs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Nothing prevents the host from following a primary.
    Idle,
    /// The other side is the primary of this term.
    Following,
    /// The host has asked the witness, and acknowledges nothing until it knows the answer.
    Asking {
        expected: u64,
        again_ns: Option<i64>,
    },
    /// The witness has given the term to a process of the other host, which may never have used it.
    Refused { current: u64 },
    /// The host has begun to run the guest, from a checkpoint or by booting.
    Activating {
        /// Time from which on that takes too long.
        late_ns: i64,
        /// Whether it does, which has been said.
        is_late: bool,
        /// Whether the other host has been heard since this one began.
        heard: bool,
    },
}

impl Standby {
    pub(super) fn new(now_ns: i64) -> Standby {
        Standby {
            held: None,
            staging: None,
            promised_ns: now_ns,
            lease_wait_ns: 0,
            primary_heard_ns: now_ns,
            doing: Doing::Idle,
            unheard: false,
            hangs: false,
        }
    }

    pub(super) fn held(&self) -> Option<Held> {
        self.held
    }

    pub(super) fn standing(&self) -> Standing {
        Standing::Standby {
            held: self.held,
            claiming: matches!(self.doing, Doing::Asking { .. } | Doing::Activating { .. }),
            unheard: self.unheard,
        }
    }

    pub(super) fn state(&self) -> State {
        match self.doing {
            Doing::Asking { .. } => State::Claiming,
            Doing::Refused { .. } => State::Refused,
            Doing::Activating { .. } => State::Activating,
            Doing::Idle | Doing::Following if self.armed().is_some() => State::Armed,
            Doing::Idle | Doing::Following if self.hangs => State::Hanging,
            Doing::Idle | Doing::Following => State::Empty,
        }
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.hangs || matches!(self.doing, Doing::Activating { is_late: true, .. })
    }

    pub(super) fn wake_ns(&self, common: &Common) -> Option<i64> {
        match self.doing {
            Doing::Idle | Doing::Following => self.armed().map(|_| self.take_over_ns(common)),
            Doing::Asking { again_ns, .. } => again_ns,
            Doing::Activating {
                late_ns,
                is_late: false,
                ..
            } => Some(late_ns),
            Doing::Refused { .. } | Doing::Activating { .. } => None,
        }
    }

    pub(super) fn hear_primary(&mut self, now_ns: i64) {
        self.primary_heard_ns = now_ns;
    }

    /// Begins to wait for signs of life, and for the end of the primary's lease, from now on.
    pub(super) fn wait_anew(&mut self, now_ns: i64) {
        self.hear_primary(now_ns);
        self.promised_ns = now_ns;
    }

    /// Puts off whether a guest is given up until news that came while this process did not run have
    /// been heard: the other host may have lost the guest since.
    pub(super) fn catch_up(&mut self, until_ns: i64) {
        if let Doing::Activating { late_ns, .. } = &mut self.doing {
            *late_ns = until_ns.max(*late_ns);
        }
    }

    pub(super) fn disconnect(&mut self, actions: &mut Vec<Action>) {
        self.unstage(actions);
        if self.doing == Doing::Following {
            self.doing = Doing::Idle;
        }
    }

    pub(super) fn greet(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        hello: &Hello,
        actions: &mut Vec<Action>,
    ) -> Next {
        if let Doing::Activating { heard, .. } = &mut self.doing {
            *heard = true;
            self.give_back(common, actions);
            return Next::Stay;
        }
        if hello.term > common.term {
            // The guest has gone on in another term: the checkpoint here is useless.
            self.forget(actions);
            self.doing = Doing::Idle;
            self.unheard = false;
            common.set_term(hello.term, actions);
            actions.push(common.hello(self.standing()));
        }
        match hello.standing {
            Standing::Primary if hello.term == common.term => {
                if !matches!(self.doing, Doing::Asking { .. }) {
                    self.doing = Doing::Following;
                    self.hear_primary(now_ns);
                }
            }
            Standing::Primary => {}
            Standing::Standby { .. } => self.ask_again(common, actions),
        }
        Next::Stay
    }

    pub(super) fn receive(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        message: Message,
        actions: &mut Vec<Action>,
    ) -> Next {
        if let Doing::Activating { heard, .. } = &mut self.doing
            && !std::mem::replace(heard, true)
        {
            self.give_back(common, actions);
        }
        if self.doing != Doing::Following {
            return Next::Stay;
        }
        self.hear_primary(now_ns);
        if let Some(id) = self.futile(&message) {
            self.forget(actions);
            actions.push(Action::Send(Message::Reject(id, Reason::Full)));
            return Next::Disconnect(Notice::Hangs);
        }
        match message {
            Message::Heartbeat => {}
            Message::Begin(header) => {
                if let Some(why) = self.unfit(common, &header) {
                    return Next::Disconnect(Notice::OutOfPlace(why));
                }
                if header.full {
                    if self.held.take().is_some() {
                        actions.push(Action::Forget);
                    }
                    actions.push(Action::Sum(header.id));
                }
                self.staging = Some(Staging::new(header));
            }
            Message::Chunk(part, data) => {
                if !self
                    .staging
                    .as_mut()
                    .is_some_and(|staging| staging.add(part, data))
                {
                    return Next::Disconnect(Notice::OutOfPlace(
                        "a checkpoint is longer than announced",
                    ));
                }
                actions.push(Action::Stage(part));
            }
            Message::End { id, checksum } => {
                let staging = self.staging.as_ref();
                if !staging.is_some_and(|staging| staging.is_complete(id, checksum)) {
                    actions.push(Action::Send(Message::Reject(id, Reason::Corrupt)));
                    return Next::Disconnect(Notice::OutOfPlace(
                        "a checkpoint differs from its announcement",
                    ));
                }
                self.accept(&common.settings, now_ns, actions);
            }
            Message::Handover(id) => {
                if self.armed() != Some(id) {
                    return Next::Disconnect(Notice::OutOfPlace(
                        "a switchover names a checkpoint that this host does not have",
                    ));
                }
                self.take_over(common, actions);
            }
            Message::Disarm { term } if term == common.term => {
                self.forget(actions);
                actions.push(common.hello(self.standing()));
            }
            _ => {
                return Next::Disconnect(Notice::OutOfPlace(
                    "it sent a message that only a standby sends",
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
        match (event, self.doing) {
            (Event::Unusable, Doing::Idle | Doing::Following | Doing::Refused { .. }) => {
                let staged = self.staging.map(|staging| staging.header.id);
                let id = staged.or(self.held.map(|held| held.id));
                self.forget(actions);
                if let Doing::Refused { .. } = self.doing {
                    // With its checkpoint went its claim: only an order boots the guest anew.
                    self.doing = Doing::Idle;
                }
                if let (Some(id), Doing::Following) = (id, self.doing) {
                    actions.push(Action::Send(Message::Reject(id, Reason::Full)));
                    return Next::Disconnect(Notice::Rejected(Reason::Full));
                }
            }
            (Event::Hangs, _) => self.hangs = true,
            (Event::Recovers, _) => {
                self.hangs = false;
                actions.push(Action::Say(Notice::Recovers));
            }
            (Event::Activated, Doing::Activating { .. }) => {
                return Next::Primary(self.held.map_or(0, |held| held.id.number));
            }
            (Event::ActivationFailed, Doing::Activating { .. }) => {
                actions.push(Action::Say(Notice::ActivationFailed));
                self.forget(actions);
                self.doing = Doing::Idle;
                self.unheard = true;
                self.tell(common, actions);
                // A greeting that came in the meantime did not count.
                if let Some(peer) = common.peer {
                    return self.greet(common, now_ns, &peer, actions);
                }
            }
            (
                Event::Verdict { expected, verdict },
                Doing::Asking {
                    expected: asked, ..
                },
            ) if expected == asked => {
                self.judge(common, now_ns, expected, verdict, actions);
            }
            (Event::Order(order), _) => self.obey(common, order, actions),
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
        match self.doing {
            Doing::Idle | Doing::Following
                if self.armed().is_some() && now_ns >= self.take_over_ns(common) =>
            {
                self.take_over(common, actions);
            }
            Doing::Asking {
                expected,
                again_ns: Some(again_ns),
            } if now_ns >= again_ns => self.ask(expected, actions),
            Doing::Activating {
                late_ns,
                is_late: false,
                heard,
            } if now_ns >= late_ns => {
                self.doing = Doing::Activating {
                    late_ns,
                    is_late: true,
                    heard,
                };
                actions.push(Action::Say(Notice::ActivationLate));
                self.give_back(common, actions);
            }
            _ => {}
        }
        Next::Stay
    }

    /// Gives the guest up that is about to run here, if the other host has it: in a later term, or
    /// silently in an earlier one while this host takes too long. A guest that nobody else has is not
    /// given up, nor is one whose other host is silent: it may have lost the guest.
    fn give_back(&self, common: &Common, actions: &mut Vec<Action>) {
        let Some(peer) = common.peer else { return };
        let is_late = matches!(
            self.doing,
            Doing::Activating {
                is_late: true,
                heard: true,
                ..
            }
        );
        let is_due = is_late || peer.term > common.term;
        if peer.standing == Standing::Primary && is_due {
            actions.push(Action::Abandon);
        }
    }

    /// The checkpoint that cannot be taken in, while the thread that handles the guest hangs. A
    /// primary that speaks waits for its acknowledgement, and is not heard meanwhile. One that is
    /// silent may be gone: its guest goes on here once the thread does.
    fn futile(&self, message: &Message) -> Option<CheckpointId> {
        let staged = self.staging.map(|staging| staging.header.id);
        let held = self.held.map(|held| held.id);
        let begins = match message {
            Message::Begin(header) => Some(header.id),
            _ => None,
        };
        staged.or(held).or(begins).filter(|_| self.hangs)
    }

    fn armed(&self) -> Option<CheckpointId> {
        self.held.filter(|held| held.armed).map(|held| held.id)
    }

    /// Time at which the primary has been silent for long enough and its lease has run out by its
    /// own clock.
    fn take_over_ns(&self, common: &Common) -> i64 {
        let silence_ns = self.primary_heard_ns + common.patience.limit_ns();
        silence_ns.max(self.promised_ns + self.lease_wait_ns)
    }

    /// The reason why such a checkpoint cannot come now; `None` if it can.
    fn unfit(&self, common: &Common, header: &Header) -> Option<&'static str> {
        let follows = self.held.is_some_and(|held| {
            (held.id.term, held.id.number + 1) == (header.id.term, header.id.number)
        });
        let was_armed = self.armed().is_some();
        if self.staging.is_some() {
            Some("a checkpoint begins inside another one")
        } else if [header.device_bytes, header.disk_bytes]
            .into_iter()
            .fold(header.ram_bytes, u64::saturating_add)
            > common.settings.checkpoint_bytes_max
        {
            Some("a checkpoint is larger than the guest")
        } else if !(0..=common.settings.lease_ns).contains(&header.lease_ns) {
            Some("a checkpoint has a longer lease than this host agrees to")
        } else if header.id.term != common.term {
            Some("a checkpoint is of another term")
        } else if !header.full && !follows {
            Some("a checkpoint does not follow the one that this host has")
        } else if was_armed && (header.full || !header.arms) {
            Some("a checkpoint would replace the one that this host is ready to take over from")
        } else {
            None
        }
    }

    /// Accepts a complete checkpoint: this host takes over only from it or a later one from now on.
    fn accept(&mut self, settings: &Settings, now_ns: i64, actions: &mut Vec<Action>) {
        let Some(Staging { header, .. }) = self.staging.take() else {
            return;
        };
        let id = header.id;
        if header.arms && self.armed().is_none() {
            actions.push(Action::Say(Notice::Armed(id)));
        }
        self.held = Some(Held {
            id,
            armed: header.arms,
        });
        // An earlier lease may end after this one, and lasts until the acknowledgement arrives.
        let earlier_ns = self.promised_ns + self.lease_wait_ns - now_ns;
        self.lease_wait_ns = settings.lease_wait_ns(header.lease_ns).max(earlier_ns);
        self.promised_ns = now_ns;
        actions.push(Action::Send(Message::Acknowledge(id)));
        actions.push(Action::Commit(id));
    }

    fn take_over(&mut self, common: &mut Common, actions: &mut Vec<Action>) {
        let Some(id) = self.armed() else { return };
        actions.push(Action::Say(Notice::TakingOver(id)));
        self.claim(common, common.term, actions);
    }

    /// Acquires the term after `expected`, from the witness if there is one.
    fn claim(&mut self, common: &mut Common, expected: u64, actions: &mut Vec<Action>) {
        self.unstage(actions);
        if common.settings.witness {
            self.ask(expected, actions);
            self.tell(common, actions);
        } else {
            self.activate(common, expected + 1, actions);
        }
    }

    fn ask(&mut self, expected: u64, actions: &mut Vec<Action>) {
        self.doing = Doing::Asking {
            expected,
            again_ns: None,
        };
        actions.push(Action::Claim { expected });
    }

    /// Asks again after a refusal. The other host has a new process without a checkpoint, and the
    /// previous one never went on in a term of its own, which would be on its record.
    fn ask_again(&mut self, common: &mut Common, actions: &mut Vec<Action>) {
        let Doing::Refused { current } = self.doing else {
            return;
        };
        let is_behind = common.peer.is_some_and(|peer| peer.term <= common.term);
        if is_behind && peer_has_nothing(common) {
            self.claim(common, current, actions);
        }
    }

    fn judge(
        &mut self,
        common: &mut Common,
        now_ns: i64,
        expected: u64,
        verdict: Verdict,
        actions: &mut Vec<Action>,
    ) {
        match verdict {
            // The other host's record is ahead of the witness.
            Verdict::Granted { term } if term <= common.term => self.ask(term, actions),
            Verdict::Granted { term } => self.activate(common, term, actions),
            // No host has a guest, so the process with that term has not used it.
            Verdict::Refused { current } if self.held.is_none() => self.ask(current, actions),
            Verdict::Refused { current } => {
                actions.push(Action::Say(Notice::Refused { current }));
                self.doing = Doing::Refused { current };
                if let Some(peer) = common.peer {
                    self.greet(common, now_ns, &peer, actions);
                }
                if !matches!(self.doing, Doing::Asking { .. }) {
                    self.tell(common, actions);
                }
            }
            Verdict::Unknown => {
                actions.push(Action::Say(Notice::WitnessSilent));
                self.doing = Doing::Asking {
                    expected,
                    again_ns: Some(now_ns + common.settings.detection_ns),
                };
            }
        }
    }

    fn activate(&mut self, common: &mut Common, term: u64, actions: &mut Vec<Action>) {
        self.doing = Doing::Activating {
            late_ns: common.event_ns.saturating_add(common.settings.stall_ns),
            is_late: false,
            heard: false,
        };
        common.set_term(term, actions);
        actions.push(match self.held {
            Some(held) => Action::Activate(held.id),
            None => Action::Boot,
        });
    }

    fn obey(&mut self, common: &mut Common, order: Order, actions: &mut Vec<Action>) {
        let idle = matches!(self.doing, Doing::Idle | Doing::Refused { .. });
        let impossible = match order {
            Order::Switchover | Order::Unprotect | Order::Protect => {
                "this host does not have the guest; give the order to the other host"
            }
            Order::GoOn if !idle => {
                "this host is about to take over, or is the other host's standby"
            }
            Order::GoOn if self.armed().is_none() => {
                "this host has no checkpoint to take over from"
            }
            Order::GoOn => {
                let expected = match self.doing {
                    Doing::Refused { current } => current,
                    _ => common.term,
                };
                return self.claim(common, expected, actions);
            }
            Order::Start { .. } if !idle => "the guest runs already, or is about to",
            Order::Start { .. } if self.hangs => {
                "the guest's thread hangs here, perhaps because a disk hangs"
            }
            Order::Start { .. } if self.armed().is_some() => {
                "this host has a checkpoint, from which it takes over by itself"
            }
            Order::Start { alone } => {
                if alone || peer_has_nothing(common) {
                    self.forget(actions);
                    return self.claim(common, common.term, actions);
                }
                "the other host has not confirmed that it has neither guest nor checkpoint"
            }
        };
        actions.push(Action::Say(Notice::Impossible(impossible)));
    }

    /// Greets again, because the contents have changed.
    fn tell(&self, common: &Common, actions: &mut Vec<Action>) {
        if common.connection.is_some() {
            actions.push(common.hello(self.standing()));
        }
    }

    fn unstage(&mut self, actions: &mut Vec<Action>) {
        if self.staging.take().is_some() {
            actions.push(Action::Discard);
        }
    }

    fn forget(&mut self, actions: &mut Vec<Action>) {
        self.unstage(actions);
        if self.held.take().is_some() {
            actions.push(Action::Forget);
        }
    }
}

/// Whether the other host has neither the guest nor a checkpoint to take over with.
fn peer_has_nothing(common: &Common) -> bool {
    common.peer.is_some_and(|peer| {
        matches!(
            peer.standing,
            Standing::Standby {
                held: None,
                claiming: false,
                ..
            }
        )
    })
}
