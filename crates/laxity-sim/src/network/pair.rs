//! The two hosts that protect a domain, in simulated time: a node of [`laxity_protect::protocol`] that has the domain,
//! one that stands by, and the messages between them.
//!
//! The nodes decide when a checkpoint is taken, what happens to output and when the standby takes over. What they ask
//! for is an [`Effect`], which the simulated host carries out. Signs of life travel in no time; a checkpoint arrives
//! when the simulated host says so, and has no contents here: only that host knows how long its pages take.

use laxity_protect::protocol::checkpoint::Digest;
use laxity_protect::protocol::{
    Action, CheckpointId, Event, Header, Message, Node, Order, Output, Record, Settings, State,
};
use std::collections::VecDeque;

/// Something that the simulated host has to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The domain is to stand still for the checkpoint of this number.
    Capture(u64),
    /// The checkpoint is to be sent to the standby.
    Send(Header),
    /// Output of the epochs up to this number may leave.
    Release(u64),
    /// [`Pair::output`] is another from now on.
    Output,
    /// The domain is to run on at the standby, from the checkpoint that is there.
    Activate,
}

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Primary,
    Standby,
}

/// A message on its way.
#[derive(Debug, Clone, Copy)]
struct Flight {
    at_ns: i64,
    to: Side,
    message: Message<'static>,
}

/// Both hosts of a protected domain.
#[derive(Debug, Clone)]
pub struct Pair {
    /// `None` since its host died.
    primary: Option<Node>,
    standby: Node,
    /// In the order of arrival.
    in_flight: VecDeque<Flight>,
    acknowledgement_ns: i64,
    output: Output,
}

/// The number of the one connection that there ever is.
const CONNECTION: u64 = 1;

impl Pair {
    /// A pair that has just armed its standby when the run begins, at time 0. An acknowledgement takes
    /// `acknowledgement_ns`.
    pub fn new(settings: Settings, acknowledgement_ns: i64) -> Pair {
        let (interval_ns, heartbeat_ns) = (settings.interval.maximum_ns, settings.heartbeat_ns);
        // One sign of life is at time 0.
        let boot_ns = -(interval_ns / heartbeat_ns + 1) * heartbeat_ns;
        let node = |host| Node::new(settings, host, host, Record::default(), boot_ns);
        let mut pair = Pair {
            primary: Some(node(1)),
            standby: node(2),
            in_flight: VecDeque::new(),
            acknowledgement_ns: 0,
            output: Output::Open,
        };
        let order = Event::Order(Order::Start { alone: true });
        let connected = Event::Connected {
            connection: CONNECTION,
        };
        pair.happen(Side::Primary, boot_ns, order);
        pair.happen(Side::Primary, boot_ns, Event::Activated);
        pair.advance(-interval_ns);
        pair.happen(Side::Primary, -interval_ns, connected);
        pair.happen(Side::Standby, -interval_ns, connected);
        // The first checkpoint is all of the memory, the second arms the standby; both take no time.
        for at_ns in [-interval_ns, 0] {
            for effect in pair.advance(at_ns) {
                let Effect::Capture(number) = effect else {
                    continue;
                };
                for effect in pair.captured(number, 0, at_ns) {
                    if let Effect::Send(header) = effect {
                        pair.arrive(header, at_ns);
                    }
                }
            }
            pair.advance(at_ns);
        }
        debug_assert_eq!(
            pair.primary.as_ref().map(|node| node.status().state),
            Some(State::Protected)
        );
        pair.acknowledgement_ns = acknowledgement_ns;
        pair
    }

    /// What becomes of what the domain sends.
    pub fn output(&self) -> Output {
        self.output
    }

    /// When the next effect comes. The pair must not be waiting for the simulated host to carry one out, since no other
    /// comes then; otherwise there always is one.
    pub fn next_effect_ns(&self) -> i64 {
        let mut ahead = self.clone();
        loop {
            let (at_ns, effects) = ahead.step();
            if !effects.is_empty() {
                return at_ns;
            }
        }
    }

    /// Lets both hosts go on up to this time. Gives what they ask for.
    pub fn advance(&mut self, now: i64) -> Vec<Effect> {
        let mut effects = Vec::new();
        while self.next_ns() <= now {
            effects.extend(self.step().1);
        }
        effects
    }

    /// The domain has stood still for the checkpoint of this number for `pause_ns`.
    pub fn captured(&mut self, number: u64, pause_ns: i64, now: i64) -> Vec<Effect> {
        let mut effects = self.advance(now);
        let captured = Event::Captured {
            number,
            ram_bytes: 0,
            device_bytes: 0,
            disk_bytes: 0,
            disk_left_bytes: 0,
            pause_ns,
        };
        effects.extend(self.happen(Side::Primary, now, captured));
        effects
    }

    /// The last byte of a checkpoint reaches the standby at this time.
    pub fn arrive(&mut self, header: Header, at_ns: i64) {
        let end = Message::End {
            id: header.id,
            checksum: Digest::new(&header).finish(),
        };
        for message in [Message::Begin(header), end] {
            self.send(Side::Standby, message, at_ns);
        }
    }

    /// The host that has the domain dies. Answers what the standby has.
    pub fn fail(&mut self, now: i64) -> Option<CheckpointId> {
        self.advance(now);
        self.primary = None;
        self.in_flight.clear();
        self.standby.status().checkpoint
    }

    /// The domain runs at the standby.
    pub fn activated(&mut self, now: i64) -> Vec<Effect> {
        self.advance(now);
        self.happen(Side::Standby, now, Event::Activated)
    }

    /// When one of the hosts is to do something next.
    fn next_ns(&self) -> i64 {
        let message_ns = self.in_flight.front().map_or(i64::MAX, |next| next.at_ns);
        message_ns
            .min(self.primary_wake_ns())
            .min(self.standby.wake_ns())
    }

    fn primary_wake_ns(&self) -> i64 {
        self.primary.as_ref().map_or(i64::MAX, Node::wake_ns)
    }

    /// The next thing happens: a message arrives, or else a time has come. Answers when, and what is asked for.
    fn step(&mut self) -> (i64, Vec<Effect>) {
        let now = self.next_ns();
        let (side, event) = match self.in_flight.front() {
            Some(&Flight { at_ns, to, message }) if at_ns == now => {
                self.in_flight.pop_front();
                let received = Event::Received {
                    connection: CONNECTION,
                    message,
                };
                (to, received)
            }
            // A sign of life that comes at the same instant as the end of the standby's patience comes before it.
            _ if self.primary_wake_ns() == now => (Side::Primary, Event::Timer),
            _ => (Side::Standby, Event::Timer),
        };
        (now, self.happen(side, now, event))
    }

    /// A host is told what happens, and does what it can do by itself. Answers what it asks for beside that.
    fn happen(&mut self, side: Side, now: i64, event: Event) -> Vec<Effect> {
        let mut actions = Vec::new();
        let (node, other) = match side {
            Side::Primary => (self.primary.as_mut(), Side::Standby),
            Side::Standby => (Some(&mut self.standby), Side::Primary),
        };
        if let Some(node) = node {
            node.handle(now, event, &mut actions);
        }
        let mut effects = Vec::new();
        for action in actions {
            match action {
                Action::Send(message) => {
                    let delay_ns = match message {
                        Message::Acknowledge(_) => self.acknowledgement_ns,
                        _ => 0,
                    };
                    self.send(other, message, now + delay_ns);
                }
                Action::SendCheckpoint(header) => effects.push(Effect::Send(header)),
                Action::Capture { number, .. } => effects.push(Effect::Capture(number)),
                Action::Release { through } => effects.push(Effect::Release(through)),
                Action::Output(output) => {
                    self.output = output;
                    effects.push(Effect::Output);
                }
                Action::Activate(_) => effects.push(Effect::Activate),
                // Memory, stable storage, the network and the log are not simulated, and the domain goes on when its
                // pause is over.
                _ => {}
            }
        }
        effects
    }

    fn send(&mut self, to: Side, message: Message<'static>, at_ns: i64) {
        let behind = self.in_flight.partition_point(|other| other.at_ns <= at_ns);
        self.in_flight.insert(behind, Flight { at_ns, to, message });
    }
}
