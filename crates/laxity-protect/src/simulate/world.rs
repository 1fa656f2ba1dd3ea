//! A history, happening by happening.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::protocol::message::{self, Message};
use crate::protocol::{
    Action, CheckpointId, Event, Header, Mode, Node, Notice, Order, Output, Part, State, Verdict,
    checkpoint::Digest,
};

use super::guest::{Guest, Image, StateId};
use super::host::{Freeze, Gate, Host, Later, Process};
use super::network::{Damage, Network, Side};
use super::observer::{Observer, Taken};
use super::{Coverage, Draw, Fault, MS, Outcome, Plan};

/// What can happen, and to which process.
#[derive(Debug)]
pub(super) enum Happening {
    /// It looks at the clock.
    Wake(Side, u64),
    /// A frame arrives.
    Arrive(Side, usize, Vec<u8>),
    /// A connection is there.
    Opened(Side, usize),
    /// The other side has ended it.
    Closed(Side, usize),
    /// The guest does something.
    Step(Side, u64),
    /// A checkpoint is taken, or could not be.
    Captured(Side, u64, u64, bool, i64),
    /// A guest runs, or could not be made to.
    Activated(Side, u64, Option<(CheckpointId, Image)>),
    /// A claim reaches the witness, and its answer a process.
    Claimed(u64, u64),
    Judged(Side, u64, u64, Verdict),
    /// A process goes on.
    Thaw(Side, u64),
    /// The host that does so tries to connect.
    Dial,
    Ordered(Side, Order),
    Fault(usize),
    Healed,
}

/// From one try to connect to the next.
const DIAL_NS: i64 = 3 * MS;
/// The guest does something about so often.
const STEP_NS: (i64, i64) = (MS, 5 * MS);
const CAPTURE_NS: (i64, i64) = (200_000, 1_500_000);
const ACTIVATE_NS: (i64, i64) = (500_000, 3 * MS);
const WITNESS_NS: (i64, i64) = (200_000, 3 * MS);
/// How long a process waits for the witness.
const WITNESS_PATIENCE_NS: i64 = 10 * MS;
/// After the end of all that is wrong, until which somebody has to serve.
const SETTLE_NS: i64 = 600 * MS;
const STARTED_NS: i64 = 2 * MS;
/// An operator asks until something is done.
const ORDER_AGAIN_NS: i64 = 5 * MS;

pub(super) struct World<'a> {
    plan: &'a Plan,
    now_ns: i64,
    order: u64,
    queue: BinaryHeap<Reverse<(i64, u64, Slot)>>,
    happenings: Vec<Option<Happening>>,
    free: Vec<usize>,
    draw: Draw,
    hosts: [Host; 2],
    network: Network,
    /// The last term that was given out, and to whom.
    witness: (u64, u64),
    witness_silent: (i64, bool),
    observer: Observer,
    coverage: Coverage,
    healed: bool,
    /// Somebody had the guest when all that was wrong ended.
    has_holder: bool,
    heard_since: bool,
    heard_ns: i64,
    silence_ns: i64,
    carried_out: [u32; 2],
    takeovers: u64,
    log: Option<Vec<String>>,
}

type Slot = usize;

impl World<'_> {
    pub fn new(plan: &Plan, logs: bool) -> World<'_> {
        let settings = &plan.settings;
        // The primary's clock may be the slow one.
        let lease_ns = settings.lease_ns + settings.lease_ns * settings.drift_ppm / 1_000_000 + 10;
        World {
            plan,
            now_ns: 0,
            order: 0,
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            free: Vec::new(),
            draw: Draw::new(plan.seed, 2),
            hosts: [0, 1].map(|side| Host::new(plan.clocks[side])),
            network: Network::default(),
            witness: (0, 0),
            witness_silent: (0, true),
            observer: Observer::new(settings.mode, lease_ns),
            coverage: Coverage {
                histories: 1,
                ..Coverage::default()
            },
            healed: false,
            has_holder: false,
            heard_since: false,
            heard_ns: -1,
            silence_ns: 0,
            carried_out: [0; 2],
            takeovers: 0,
            log: logs.then(Vec::new),
        }
    }

    pub fn run(mut self, coverage: &mut Coverage) -> Outcome {
        for side in [0, 1] {
            self.begin(side);
        }
        self.at(0, Happening::Dial);
        self.at(
            STARTED_NS,
            Happening::Ordered(0, Order::Start { alone: false }),
        );
        for (number, (time_ns, _)) in self.plan.faults.iter().enumerate() {
            self.at(*time_ns, Happening::Fault(number));
        }
        self.at(self.plan.healed_ns, Happening::Healed);
        let end_ns = self.plan.healed_ns + SETTLE_NS;
        while let Some(Reverse((time_ns, _, slot))) = self.queue.pop() {
            if time_ns > end_ns || self.observer.violation.is_some() || self.is_settled() {
                break;
            }
            self.now_ns = time_ns;
            self.coverage.happenings += 1;
            let happening = self.happenings[slot].take().expect("was put there");
            self.free.push(slot);
            self.happen(happening);
        }
        self.judge_the_end();
        self.coverage.returned += u64::from(self.takeovers > 1);
        self.coverage.lost_states += self.observer.lost_states;
        coverage.add(&self.coverage);
        Outcome {
            violation: self.observer.violation,
            actions: self.carried_out,
            silence_ns: self.silence_ns,
            log: self.log.unwrap_or_default(),
        }
    }

    fn at(&mut self, time_ns: i64, happening: Happening) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            self.happenings.len() - 1
        });
        self.happenings[slot] = Some(happening);
        self.order += 1;
        self.queue.push(Reverse((time_ns, self.order, slot)));
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            let line = line();
            log.push(format!("{:9.3} ms  {line}", self.now_ns as f64 / MS as f64));
        }
    }

    // The end.

    fn states(&self) -> [Option<State>; 2] {
        [0, 1].map(|side| {
            self.process(side)
                .map(|process| process.node.status().state)
        })
    }

    fn is_protected(&self) -> bool {
        matches!(
            self.states(),
            [Some(State::Protected), Some(State::Armed)]
                | [Some(State::Armed), Some(State::Protected)]
        )
    }

    fn is_settled(&self) -> bool {
        self.healed && self.heard_since && self.is_protected()
    }

    /// Whether anybody could still serve, by what is in memory and on record.
    fn find_holder(&self) -> bool {
        let records = [0, 1].map(|side| self.hosts[side].record.term);
        let highest = records.into_iter().max().unwrap_or(0);
        [0, 1].into_iter().any(|side| {
            let Some(process) = self.process(side) else {
                return false;
            };
            let other = self.process(1 - side);
            let never_heard = other.is_some_and(|other| other.unheard == Some(highest));
            let is_newest = records[side] == highest || never_heard;
            let has_guest = process.guest.as_ref().is_some_and(|guest| !guest.is_off);
            let activates = process.node.status().state == State::Activating;
            let is_armed = process.store.is_some_and(|(id, _)| {
                id.term == highest && self.observer.taken(id).is_some_and(|taken| taken.armed)
            });
            is_armed || (has_guest || activates) && is_newest
        })
    }

    fn judge_the_end(&mut self) {
        let off = self.coverage.guests_off > 0;
        if self.observer.violation.is_some() || off {
            return;
        }
        let states = self.states();
        if !self.has_holder {
            self.coverage.nobody += 1;
            if self.heard_since && !self.observer.is_off {
                self.observer
                    .complain(|| "somebody is heard who has no guest".into());
            }
        } else if !self.heard_since {
            self.observer
                .complain(|| format!("nobody serves: {states:?}"));
        } else if self.is_protected() {
            self.coverage.protected += 1;
        } else {
            self.observer
                .complain(|| format!("not protected: {states:?}"));
        }
    }

    // Processes.

    fn process(&self, side: Side) -> Option<&Process> {
        self.hosts[side].process.as_ref()
    }

    fn process_mut(&mut self, side: Side) -> Option<&mut Process> {
        self.hosts[side].process.as_mut()
    }

    fn begin(&mut self, side: Side) {
        let host = &mut self.hosts[side];
        if host.process.is_some() {
            return;
        }
        host.processes += 1;
        let incarnation = host.processes << 1 | side as u64;
        let now_ns = host.clock_ns(self.now_ns);
        let settings = self.plan.settings;
        host.process = Some(Process {
            node: Node::new(settings, side as u64, incarnation, host.record, now_ns),
            incarnation,
            connection: None,
            gate: Gate::new(),
            guest: None,
            store: None,
            staged: (Vec::new(), Vec::new()),
            promised: None,
            captured: (Vec::new(), Vec::new()),
            unheard: None,
            crash_in: None,
            freeze_in: None,
            frozen: None,
            later: VecDeque::new(),
            wakes_ns: i64::MAX,
        });
        self.note(|| format!("{side} begins"));
        self.schedule_wake(side);
    }

    fn crash(&mut self, side: Side, power: bool) {
        let Some(process) = self.hosts[side].process.take() else {
            return;
        };
        self.coverage.crashes += 1;
        self.note(|| {
            format!(
                "{side} crashes{}",
                if power { ", all of the host" } else { "" }
            )
        });
        for number in 0..self.network.connections.len() {
            let connection = &self.network.connections[number];
            if connection.incarnations[side] != process.incarnation {
                continue;
            }
            if power {
                let lost_ns = self.now_ns + self.draw.between(0, 2 * MS);
                self.network.connections[number].lost_from_ns[side] = lost_ns;
            } else if connection.open[side] {
                self.close(side, number);
            }
        }
    }

    /// Ends a side's use of a connection, and the other's when it hears of it.
    fn close(&mut self, side: Side, number: usize) {
        let connection = &mut self.network.connections[number];
        if !std::mem::replace(&mut connection.open[side], false) {
            return;
        }
        if let Some(process) = self.process_mut(side)
            && process.connection == Some(number)
        {
            process.connection = None;
        }
        let arrival_ns = self
            .network
            .arrival_ns(self.now_ns, number, side, &mut self.draw);
        if let Some(arrival_ns) = arrival_ns {
            self.at(arrival_ns, Happening::Closed(1 - side, number));
        }
    }

    fn schedule_wake(&mut self, side: Side) {
        let host = &mut self.hosts[side];
        let Some(process) = &host.process else { return };
        let wake_ns = host.when_ns(process.node.wake_ns()).max(self.now_ns + 1);
        let (wakes_ns, incarnation) = (process.wakes_ns, process.incarnation);
        if wake_ns < wakes_ns {
            if let Some(process) = &mut host.process {
                process.wakes_ns = wake_ns;
            }
            self.at(wake_ns, Happening::Wake(side, incarnation));
        }
    }

    // What happens.

    /// Whose it is, and of which process, if of a certain one.
    fn whose(&self, happening: &Happening) -> Option<(Side, Option<u64>)> {
        match *happening {
            Happening::Wake(side, incarnation)
            | Happening::Step(side, incarnation)
            | Happening::Captured(side, incarnation, ..)
            | Happening::Activated(side, incarnation, ..)
            | Happening::Judged(side, incarnation, ..)
            | Happening::Thaw(side, incarnation) => Some((side, Some(incarnation))),
            Happening::Arrive(side, connection, _)
            | Happening::Opened(side, connection)
            | Happening::Closed(side, connection) => Some((
                side,
                Some(self.network.connections[connection].incarnations[side]),
            )),
            Happening::Ordered(side, _) => Some((side, None)),
            Happening::Claimed(..) | Happening::Dial | Happening::Fault(_) | Happening::Healed => {
                None
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        let Some((side, incarnation)) = self.whose(&happening) else {
            return self.happen_outside(happening);
        };
        let Some(process) = self.process_mut(side) else {
            return self.is_gone(side, &happening);
        };
        if incarnation.is_some_and(|incarnation| incarnation != process.incarnation) {
            return self.is_gone(side, &happening);
        }
        if let Some(freeze) = process.frozen {
            match happening {
                Happening::Thaw(..) => return self.thaw(side),
                // It looks at the clock when it goes on, anyway.
                Happening::Wake(..) => process.wakes_ns = i64::MAX,
                Happening::Step(..) if !freeze.guest => self.step(side),
                _ => process.later.push_back(Later::Happening(happening)),
            }
            return;
        }
        self.happen_to(side, happening);
    }

    /// A process that has ended says so to whoever still sends to it.
    fn is_gone(&mut self, side: Side, happening: &Happening) {
        if let Happening::Ordered(_, order) = *happening {
            self.order_again(side, order);
        }
        if let Happening::Arrive(_, connection, _) | Happening::Opened(_, connection) = happening
            && self.network.connections[*connection].open[1 - side]
            && !self.draw.chance(3)
        {
            let delay_ns = self.draw.between(0, MS);
            self.at(
                self.now_ns + delay_ns,
                Happening::Closed(1 - side, *connection),
            );
        }
    }

    fn happen_to(&mut self, side: Side, happening: Happening) {
        match happening {
            Happening::Wake(..) => {
                if let Some(process) = self.process_mut(side) {
                    process.wakes_ns = i64::MAX;
                }
                self.handle(side, Event::Timer, &[]);
            }
            Happening::Opened(_, number) => {
                let older = self.process(side).and_then(|process| process.connection);
                if older.is_some_and(|older| older > number) {
                    return;
                }
                self.network.connections[number].open[side] = true;
                if let Some(older) = older {
                    self.close(side, older);
                }
                if let Some(process) = self.process_mut(side) {
                    process.connection = Some(number);
                }
                self.coverage.connections += 1;
                let connection = number as u64;
                self.handle(side, Event::Connected { connection }, &[]);
            }
            Happening::Closed(_, number) => {
                self.close(side, number);
                let connection = number as u64;
                self.handle(side, Event::Disconnected { connection }, &[]);
            }
            Happening::Arrive(_, number, frame) => self.arrive(side, number, &frame),
            Happening::Step(..) => self.step(side),
            Happening::Captured(_, _, number, fails, begun_ns) => {
                self.captured(side, number, fails, begun_ns)
            }
            Happening::Activated(_, _, from) => self.activated(side, from),
            Happening::Judged(_, _, expected, verdict) => {
                match verdict {
                    Verdict::Granted { .. } => self.coverage.granted += 1,
                    Verdict::Refused { .. } => self.coverage.refused += 1,
                    Verdict::Unknown => self.coverage.silent += 1,
                }
                self.handle(side, Event::Verdict { expected, verdict }, &[]);
            }
            Happening::Ordered(_, order) => {
                self.handle(side, Event::Order(order), &[]);
                self.order_again(side, order);
            }
            Happening::Thaw(..)
            | Happening::Claimed(..)
            | Happening::Dial
            | Happening::Fault(_)
            | Happening::Healed => {}
        }
    }

    /// An operator who wants the guest to begin asks until it does.
    fn order_again(&mut self, side: Side, order: Order) {
        if matches!(order, Order::Start { .. }) && self.never_began() {
            self.at(
                self.now_ns + ORDER_AGAIN_NS,
                Happening::Ordered(side, order),
            );
        }
    }

    fn never_began(&self) -> bool {
        self.hosts.iter().all(|host| host.record.term == 0)
    }

    fn happen_outside(&mut self, happening: Happening) {
        match happening {
            Happening::Dial => {
                self.at(self.now_ns + DIAL_NS, Happening::Dial);
                self.dial();
            }
            Happening::Claimed(expected, incarnation) => self.claimed(expected, incarnation),
            Happening::Fault(number) => {
                let (_, fault) = self.plan.faults[number];
                self.note(|| format!("{fault:?}"));
                self.fault(fault);
            }
            Happening::Healed => self.heal(),
            _ => {}
        }
    }

    fn dial(&mut self) {
        let [Some(dialer), Some(answerer)] = [self.process(0), self.process(1)] else {
            return;
        };
        if dialer.frozen.is_some() || dialer.connection.is_some() {
            return;
        }
        let incarnations = [dialer.incarnation, answerer.incarnation];
        let made = self
            .network
            .connect(self.now_ns, incarnations, &mut self.draw);
        if let Some((number, opened_ns)) = made {
            for side in [0, 1] {
                self.at(opened_ns[side], Happening::Opened(side, number));
            }
        }
    }

    fn claimed(&mut self, expected: u64, incarnation: u64) {
        let side = (incarnation & 1) as Side;
        let (silent_until_ns, hears) = self.witness_silent;
        let is_silent = self.now_ns < silent_until_ns;
        let mut verdict = Verdict::Unknown;
        if !is_silent || hears {
            if self.witness.0 == expected {
                self.witness = (expected + 1, incarnation);
            }
            let (term, owner) = self.witness;
            verdict = if (term, owner) == (expected + 1, incarnation) {
                Verdict::Granted { term }
            } else {
                Verdict::Refused { current: term }
            };
        }
        let delay_ns = if is_silent {
            verdict = Verdict::Unknown;
            WITNESS_PATIENCE_NS
        } else {
            self.draw.between(WITNESS_NS.0, WITNESS_NS.1)
        };
        self.note(|| format!("the witness: {verdict:?} to {incarnation}"));
        let happening = Happening::Judged(side, incarnation, expected, verdict);
        self.at(self.now_ns + delay_ns, happening);
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Crash {
                side,
                actions,
                power,
            } => {
                if let Some(process) = self.process_mut(side) {
                    process.crash_in = Some((actions, power));
                }
            }
            Fault::Restart { side } => self.begin(side),
            Fault::Freeze {
                side,
                actions,
                for_ns,
                guest,
                clock_first,
            } => {
                if let Some(process) = self.process_mut(side) {
                    let freeze = Freeze {
                        for_ns,
                        guest,
                        clock_first,
                    };
                    process.freeze_in = Some((actions, freeze));
                }
            }
            Fault::Cut { from, for_ns } => {
                for side in [0, 1].into_iter().filter(|&side| from[side]) {
                    self.network.cut_until_ns[side] = self.now_ns + for_ns;
                }
            }
            Fault::Reset => {
                for side in [0, 1] {
                    if let Some(number) = self.process(side).and_then(|process| process.connection)
                    {
                        let lost_ns = self.now_ns + self.draw.between(0, MS);
                        self.network.connections[number].lost_from_ns = [lost_ns; 2];
                        let closed_ns = lost_ns + self.draw.between(0, MS);
                        self.at(closed_ns, Happening::Closed(side, number));
                    }
                }
            }
            Fault::Damage { from, damage } => self.network.damage[from] = Some(damage),
            Fault::Slow { for_ns, by_ns } => self.network.slow = (self.now_ns + for_ns, by_ns),
            Fault::SlowCapture { side, by_ns } => self.hosts[side].slow_capture_ns = by_ns,
            Fault::CaptureFails { side } => self.hosts[side].capture_fails = true,
            Fault::ActivationFails { side } => self.hosts[side].activation_fails = true,
            Fault::Unusable { side } => self.hosts[side].unusable = true,
            Fault::SendsPart { side, without } => self.hosts[side].sends_part = Some(without),
            Fault::WitnessSilent { for_ns, hears } => {
                self.witness_silent = (self.now_ns + for_ns, hears);
            }
            Fault::GuestOff => {
                for side in [0, 1] {
                    let guest = self
                        .process_mut(side)
                        .and_then(|process| process.guest.as_mut());
                    if let Some(guest) = guest.filter(|guest| !guest.is_off) {
                        guest.is_off = true;
                        self.coverage.guests_off += 1;
                        self.deliver(side, Event::GuestOff);
                    }
                }
            }
            Fault::Switchover => self.order_holders(Order::Switchover),
            Fault::Unprotect { for_ns } => {
                self.order_holders(Order::Unprotect);
                for side in [0, 1] {
                    let again_ns = self.now_ns + for_ns;
                    self.at(again_ns, Happening::Ordered(side, Order::Protect));
                }
            }
            Fault::GoOn => {
                for side in [0, 1] {
                    if self.process(1 - side).is_none() && self.process(side).is_some() {
                        self.coverage.go_ons += 1;
                        self.go_on(side);
                    }
                }
            }
        }
    }

    /// Of whoever has a guest.
    fn order_holders(&mut self, order: Order) {
        for side in [0, 1] {
            if self
                .process(side)
                .is_some_and(|process| process.guest.is_some())
            {
                self.deliver(side, Event::Order(order));
            }
        }
    }

    /// The other host is off, and what it has done since it took over, if it did, is to be forgotten.
    fn go_on(&mut self, side: Side) {
        let process = self.hosts[side].process.as_mut();
        let waits = |process: &&mut Process| {
            process.node.status().state == State::Waiting && process.frozen.is_none()
        };
        if let Some(guest) = process
            .filter(waits)
            .and_then(|process| process.guest.as_mut())
        {
            guest.holder = self.observer.go_back_to(guest.state);
        }
        self.deliver(side, Event::Order(Order::GoOn));
    }

    /// To a process that is not standing still; one that is does not hear of it.
    fn deliver(&mut self, side: Side, event: Event) {
        if self
            .process(side)
            .is_some_and(|process| process.frozen.is_none())
        {
            self.handle(side, event, &[]);
        }
    }

    fn heal(&mut self) {
        self.note(|| "all that was wrong ends".into());
        self.network.cut_until_ns = [0; 2];
        self.network.slow = (0, 0);
        self.network.damage = [None; 2];
        self.witness_silent = (0, true);
        for side in [0, 1] {
            let host = &mut self.hosts[side];
            host.slow_capture_ns = 0;
            host.capture_fails = false;
            host.activation_fails = false;
            host.unusable = false;
            host.sends_part = None;
            if let Some(process) = &mut host.process {
                process.crash_in = None;
                process.freeze_in = None;
            }
            self.thaw(side);
        }
        self.order_holders(Order::Protect);
        self.healed = true;
        self.has_holder = self.never_began() || self.find_holder();
        for side in [0, 1] {
            self.begin(side);
        }
    }

    fn freeze(&mut self, side: Side, freeze: Freeze) {
        let until_ns = self.now_ns + freeze.for_ns;
        let Some(process) = self.process_mut(side) else {
            return;
        };
        process.frozen = Some(freeze);
        let incarnation = process.incarnation;
        self.note(|| format!("{side} stands still"));
        self.at(until_ns, Happening::Thaw(side, incarnation));
    }

    fn thaw(&mut self, side: Side) {
        let Some(process) = self.process_mut(side) else {
            return;
        };
        let Some(freeze) = process.frozen.take() else {
            return;
        };
        let incarnation = process.incarnation;
        self.note(|| format!("{side} goes on"));
        // First what it had begun to do.
        while let Some(process) = self.process_mut(side)
            && process.frozen.is_none()
            && matches!(process.later.front(), Some(Later::Actions(..)))
        {
            if let Some(Later::Actions(actions, frame)) = process.later.pop_front() {
                self.carry_out(side, actions, &frame);
            }
        }
        if freeze.clock_first
            && self
                .process(side)
                .is_some_and(|process| process.frozen.is_none())
        {
            self.handle(side, Event::Timer, &[]);
        }
        while let Some(process) = self.process_mut(side)
            && process.frozen.is_none()
            && process.incarnation == incarnation
            && let Some(later) = process.later.pop_front()
        {
            match later {
                Later::Happening(happening) => self.happen_to(side, happening),
                Later::Frame(holder, state) => self.pass(side, holder, state),
                Later::Actions(actions, frame) => self.carry_out(side, actions, &frame),
            }
        }
        if self
            .process(side)
            .is_some_and(|process| process.frozen.is_none())
        {
            self.handle(side, Event::Timer, &[]);
        }
    }

    // The network.

    fn send(&mut self, side: Side, message: &Message) {
        let Some(number) = self.process(side).and_then(|process| process.connection) else {
            return;
        };
        let mut frame = Vec::with_capacity(96);
        let sequence = self.network.connections[number].sent[side];
        self.network.connections[number].sent[side] += 1;
        message::encode(message, sequence, &mut frame);
        let mut times = 1;
        if let Some(damage) = self.network.damage[side].take() {
            match damage {
                Damage::Flip => {
                    let bit = self.draw.below(frame.len() * 8);
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
                Damage::Truncate => frame.truncate(self.draw.below(frame.len())),
                Damage::Repeat => times = 2,
            }
        }
        for _ in 0..times {
            let arrival_ns = self
                .network
                .arrival_ns(self.now_ns, number, side, &mut self.draw);
            if let Some(arrival_ns) = arrival_ns {
                let happening = Happening::Arrive(1 - side, number, frame.clone());
                self.at(arrival_ns, happening);
            }
        }
    }

    fn arrive(&mut self, side: Side, number: usize, frame: &[u8]) {
        let connection = &mut self.network.connections[number];
        if !connection.open[side] && !self.draw.chance(4) {
            return;
        }
        match message::decode(frame, connection.taken[side]) {
            Ok(message) => {
                connection.taken[side] += 1;
                let event = Event::Received {
                    connection: number as u64,
                    message,
                };
                let data = if let Message::Chunk(_, data) = message {
                    data
                } else {
                    &[]
                };
                self.note(|| format!("{side} <- {message:?}"));
                self.handle(side, event, data);
            }
            Err(_) => {
                self.coverage.damaged += 1;
                self.close(side, number);
                let connection = number as u64;
                self.handle(side, Event::Disconnected { connection }, &[]);
            }
        }
    }

    // The guest.

    fn step(&mut self, side: Side) {
        let Some(process) = self.hosts[side].process.as_mut() else {
            return;
        };
        let incarnation = process.incarnation;
        let Some(guest) = process.guest.as_mut().filter(|guest| !guest.is_off) else {
            return;
        };
        if guest.runs {
            guest.step(&mut self.observer.lineage);
            let (holder, state) = (guest.holder, guest.state);
            if process.frozen.is_some() {
                process.later.push_back(Later::Frame(holder, state));
            } else {
                self.pass(side, holder, state);
            }
        }
        let next_ns = self.now_ns + self.draw.between(STEP_NS.0, STEP_NS.1);
        self.at(next_ns, Happening::Step(side, incarnation));
    }

    /// What a guest sent comes to the gate.
    fn pass(&mut self, side: Side, holder: usize, state: StateId) {
        let host = &mut self.hosts[side];
        let clock_ns = host.clock_ns(self.now_ns);
        let Some(process) = &mut host.process else {
            return;
        };
        if process.gate.passes(holder, state, clock_ns) {
            self.hear(side, holder, state);
        } else if matches!(process.gate.output, Output::Until { .. }) {
            self.coverage.lapsed += 1;
        }
    }

    fn hear(&mut self, side: Side, holder: usize, state: StateId) {
        self.coverage.heard += 1;
        self.heard_since |= self.healed;
        if self.heard_ns >= 0 {
            self.silence_ns = self.silence_ns.max(self.now_ns - self.heard_ns);
        }
        self.heard_ns = self.now_ns;
        let term = self
            .process(side)
            .map_or(0, |process| process.node.status().term);
        // With which checkpoint the other could take over, after it has done what it had begun to do.
        let other = self.process(1 - side).and_then(|other| {
            let id = other.promised.or(other.store.map(|(id, _)| id))?;
            let taken = self.observer.taken(id)?;
            (id.term == term && taken.armed).then_some(taken.state)
        });
        self.note(|| format!("{side} is heard: state {state}"));
        self.observer.hear(self.now_ns, holder, state, other);
    }

    fn captured(&mut self, side: Side, number: u64, fails: bool, begun_ns: i64) {
        let now_ns = self.now_ns;
        let Some(process) = self.process_mut(side) else {
            return;
        };
        let term = process.node.status().term;
        let Some(guest) = process.guest.as_mut().filter(|guest| !guest.is_off) else {
            return;
        };
        if fails {
            self.coverage.captures_failed += 1;
            return self.handle(side, Event::CaptureFailed { number }, &[]);
        }
        let state = guest.state;
        process.gate.epoch = number + 1;
        let event = Event::Captured {
            number,
            ram_bytes: process.captured.0.len() as u64,
            device_bytes: process.captured.1.len() as u64,
            pause_ns: now_ns - begun_ns,
        };
        self.observer.take(Taken {
            id: CheckpointId { term, number },
            state,
            settled_ns: now_ns,
            armed: false,
            sent: false,
        });
        self.handle(side, event, &[]);
    }

    fn activated(&mut self, side: Side, from: Option<(CheckpointId, Image)>) {
        if std::mem::take(&mut self.hosts[side].activation_fails) {
            self.coverage.activations_failed += 1;
            if let Some(process) = self.process_mut(side) {
                process.unheard = Some(process.node.status().term);
            }
            return self.handle(side, Event::ActivationFailed, &[]);
        }
        let Some(process) = self.process(side) else {
            return;
        };
        let (term, promised) = (process.node.status().term, process.promised);
        let (holder, state) = self.observer.activate(side, term, from, promised);
        let guest = match (from, state) {
            (Some((_, image)), Some(state)) => Guest::new(image, state, holder),
            _ => Guest::boot(&mut self.observer.lineage, holder),
        };
        self.takeovers += u64::from(holder > 0);
        let delay_ns = self.draw.between(STEP_NS.0, STEP_NS.1);
        if let Some(process) = self.process_mut(side) {
            process.gate.epoch = from.map_or(1, |(id, _)| id.number + 1);
            process.guest = Some(guest);
            process.store = None;
            let incarnation = process.incarnation;
            self.at(self.now_ns + delay_ns, Happening::Step(side, incarnation));
        }
        self.handle(side, Event::Activated, &[]);
    }

    /// Before the other host lets the guest run.
    fn watch_gate(&mut self, side: Side) {
        let host = &self.hosts[side];
        let has_guest = |process: &&Process| process.guest.is_some();
        if let Some(process) = host.process.as_ref().filter(has_guest)
            && self.plan.settings.mode == Mode::NoNet
        {
            let (output, clock_ns) = (process.gate.output, host.clock_ns(self.now_ns));
            self.observer.watch_gate(output, clock_ns);
        }
    }

    // What a process does.

    fn handle(&mut self, side: Side, event: Event, data: &[u8]) {
        let host = &mut self.hosts[side];
        let clock_ns = host.clock_ns(self.now_ns);
        let Some(process) = &mut host.process else {
            return;
        };
        let mut actions = Vec::new();
        process.node.handle(clock_ns, event, &mut actions);
        if process.node.wake_ns() <= clock_ns {
            self.observer
                .complain(|| format!("{side} wants to look at the clock without end"));
        }
        self.carry_out(side, actions, data);
        self.schedule_wake(side);
    }

    fn carry_out(&mut self, side: Side, actions: Vec<Action>, data: &[u8]) {
        let mut rest = VecDeque::from(actions);
        while let Some(action) = rest.pop_front() {
            if self.stops_before_next(side) {
                if let Some(process) = self.process_mut(side) {
                    rest.push_front(action);
                    process
                        .later
                        .push_front(Later::Actions(rest.into(), data.to_vec()));
                    self.coverage.froze_between += 1;
                }
                return;
            }
            self.carried_out[side] += 1;
            self.act(side, action, data);
        }
    }

    /// Whether the process ends or stands still before its next action.
    fn stops_before_next(&mut self, side: Side) -> bool {
        let Some(process) = self.process_mut(side) else {
            return true;
        };
        if let Some((left, power)) = &mut process.crash_in {
            if *left == 0 {
                let power = *power;
                self.crash(side, power);
                return true;
            }
            *left -= 1;
        }
        let Some(process) = self.process_mut(side) else {
            return true;
        };
        if process.frozen.is_some() {
            return true;
        }
        if let Some((left, freeze)) = &mut process.freeze_in {
            if *left == 0 {
                let freeze = *freeze;
                process.freeze_in = None;
                self.freeze(side, freeze);
                return true;
            }
            *left -= 1;
        }
        false
    }

    fn act(&mut self, side: Side, action: Action, data: &[u8]) {
        if !matches!(action, Action::Stage(_)) {
            self.note(|| format!("{side} -> {action:?}"));
        }
        match action {
            Action::Persist(record) => self.hosts[side].record = record,
            Action::Send(message) => self.send_and_watch(side, &message),
            Action::SendCheckpoint(header) => self.send_checkpoint(side, &header),
            Action::Disconnect => {
                if let Some(number) = self.process(side).and_then(|process| process.connection) {
                    self.close(side, number);
                }
            }
            Action::Capture { number, full } => self.capture(side, number, full),
            Action::Claim { expected } => {
                let delay_ns = self.draw.between(WITNESS_NS.0, WITNESS_NS.1);
                if let Some(incarnation) = self.process(side).map(|process| process.incarnation) {
                    self.at(
                        self.now_ns + delay_ns,
                        Happening::Claimed(expected, incarnation),
                    );
                }
            }
            Action::Activate(_) | Action::Boot => self.activate(side, action),
            Action::Output(output) => {
                if let Some(process) = self.process_mut(side) {
                    process.gate.output = output;
                }
                match output {
                    Output::Open => self.release(side, u64::MAX),
                    Output::Closed => {
                        if let Some(process) = self.process_mut(side) {
                            process.gate.drop_held();
                        }
                    }
                    Output::Hold | Output::Until { .. } => {}
                }
            }
            Action::Release { through } => self.release(side, through),
            Action::Commit(id) => self.commit(side, id),
            Action::Stage(part) => {
                if std::mem::take(&mut self.hosts[side].unusable) {
                    self.coverage.unusable += 1;
                    return self.handle(side, Event::Unusable, &[]);
                }
                if let Some(process) = self.process_mut(side) {
                    match part {
                        Part::Ram => process.staged.0.extend_from_slice(data),
                        Part::Device => process.staged.1.extend_from_slice(data),
                    }
                }
            }
            Action::Say(notice) => self.count(notice),
            Action::Announce => {}
            Action::Pause | Action::Resume | Action::Destroy | Action::Discard | Action::Forget => {
                self.change(side, action)
            }
        }
    }

    fn change(&mut self, side: Side, action: Action) {
        let Some(process) = self.hosts[side].process.as_mut() else {
            return;
        };
        match action {
            Action::Pause | Action::Resume => {
                if let Some(guest) = &mut process.guest {
                    guest.runs = action == Action::Resume;
                }
            }
            Action::Destroy => process.guest = None,
            Action::Discard => {
                self.coverage.discarded += 1;
                process.staged.0.clear();
                process.staged.1.clear();
            }
            Action::Forget => {
                process.store = None;
                process.promised = None;
            }
            _ => {}
        }
    }

    fn count(&mut self, notice: Notice) {
        match notice {
            Notice::Copying => self.coverage.copies += 1,
            Notice::Waiting => self.coverage.waited += 1,
            Notice::Alone => self.coverage.alone += 1,
            Notice::Fenced { .. } => self.coverage.fenced += 1,
            Notice::AtRisk => {
                self.coverage.at_risk += 1;
                let promises = self.plan.settings.promises_one_voice();
                if promises {
                    self.observer
                        .complain(|| "at risk, with settings that promise otherwise".into());
                }
                self.observer.is_off = true;
            }
            _ => {}
        }
    }

    fn send_and_watch(&mut self, side: Side, message: &Message) {
        match *message {
            Message::Acknowledge(id) => {
                if let Some(process) = self.process_mut(side) {
                    let mut image = process
                        .store
                        .map_or_else(Image::default, |(_, image)| image);
                    image.patch(&process.staged.0, &process.staged.1);
                    process.promised = Some(id);
                    self.observer.acknowledge(side, id, &image);
                }
            }
            Message::Handover(id) => self.observer.hand_over(id),
            _ => {}
        }
        self.send(side, message);
    }

    fn send_checkpoint(&mut self, side: Side, header: &Header) {
        let Some(process) = self.process_mut(side) else {
            return;
        };
        let (ram, device) = process.captured.clone();
        let mut digest = Digest::new(header);
        self.coverage.resent += u64::from(self.observer.is_sent(header.id));
        self.observer.send(header.id, header.arms);
        let mut messages = vec![Message::Begin(*header)];
        let faulty = std::mem::take(&mut self.hosts[side].sends_part);
        let (first, second) = ram.split_at(self.draw.below(ram.len() + 1));
        for (part, data) in [
            (Part::Ram, first),
            (Part::Ram, second),
            (Part::Device, &device[..]),
        ] {
            if !data.is_empty() {
                digest.add(part, data);
                if faulty != Some(part) {
                    messages.push(Message::Chunk(part, data));
                }
            }
        }
        messages.push(Message::End {
            id: header.id,
            checksum: digest.finish(),
        });
        for message in messages {
            // It may end in the middle of it.
            if let Some((left, power)) = self
                .process_mut(side)
                .and_then(|process| process.crash_in.as_mut())
            {
                if *left == 0 {
                    let power = *power;
                    return self.crash(side, power);
                }
                *left -= 1;
            }
            self.carried_out[side] += 1;
            self.send(side, &message);
        }
    }

    fn capture(&mut self, side: Side, number: u64, full: bool) {
        let (now_ns, delay_ns) = (self.now_ns, self.draw.between(CAPTURE_NS.0, CAPTURE_NS.1));
        let host = &mut self.hosts[side];
        let Some(process) = &mut host.process else {
            return;
        };
        let Some(guest) = &mut process.guest else {
            return;
        };
        let fails = std::mem::take(&mut host.capture_fails);
        guest.runs = false;
        if !fails {
            process.captured = guest.capture(full);
        }
        let happening = Happening::Captured(side, process.incarnation, number, fails, now_ns);
        let when_ns = now_ns + delay_ns + host.slow_capture_ns;
        self.at(when_ns, happening);
    }

    fn release(&mut self, side: Side, through: u64) {
        while let Some((holder, state)) = self
            .process_mut(side)
            .and_then(|process| process.gate.release(through))
        {
            self.coverage.released += 1;
            self.hear(side, holder, state);
        }
    }

    fn commit(&mut self, side: Side, id: CheckpointId) {
        self.coverage.committed += 1;
        let Some(process) = self.process_mut(side) else {
            return;
        };
        let mut image = process
            .store
            .map_or_else(Image::default, |(_, image)| image);
        let (ram, device) = std::mem::take(&mut process.staged);
        image.patch(&ram, &device);
        process.store = Some((id, image));
    }

    fn activate(&mut self, side: Side, action: Action) {
        let delay_ns = self.draw.between(ACTIVATE_NS.0, ACTIVATE_NS.1);
        let host = &mut self.hosts[side];
        let Some(process) = &mut host.process else {
            return;
        };
        let from = match action {
            Action::Activate(id) => {
                let store = process.store.unwrap_or((id, Image::default()));
                Some((id, store.1))
            }
            _ => None,
        };
        let happening = Happening::Activated(side, process.incarnation, from);
        if let Some((id, _)) = from {
            self.watch_gate(1 - side);
            if self.observer.is_handed_over(id) {
                self.coverage.switchovers += 1;
            } else {
                self.coverage.takeovers += 1;
            }
        }
        self.at(self.now_ns + delay_ns, happening);
    }
}
