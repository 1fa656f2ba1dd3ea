//! A history, event by event.

mod actions;
mod faults;
mod traffic;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::protocol::message::Message;
use crate::protocol::{Event, Node, Order, State, Verdict};

use super::disk::{self, Differences};
use super::draw::Draw;
use super::happening::Happening;
use super::host::{Gate, Host, Later, Parts, Process};
use super::network::{Network, Side};
use super::observer::Observer;
use super::outcome::{Coverage, Outcome};
use super::plan::{MS, Plan};

/// Interval between two attempts to connect.
const DIAL_NS: i64 = 3 * MS;
/// Time between two steps of the guest, from and to.
const STEP_NS: (i64, i64) = (MS, 5 * MS);
const CAPTURE_NS: (i64, i64) = (200_000, 1_500_000);
/// Longest time for the sum of a block.
const SUM_NS: i64 = 300_000;
/// Longest time for the blocks of a checkpoint.
const COMMIT_NS: i64 = 4 * MS;
const ACTIVATE_NS: (i64, i64) = (500_000, 3 * MS);
const WITNESS_NS: (i64, i64) = (200_000, 3 * MS);
/// Time that a process waits for the witness.
const WITNESS_PATIENCE_NS: i64 = 10 * MS;
/// Time after the end of all faults by which a host has to serve.
const SETTLE_NS: i64 = 2_000 * MS;
/// Time after which a process notices that its guest's thread hangs, or that no checkpoint can be taken.
const HANGS_AFTER_NS: i64 = 40 * MS;
const STARTED_NS: i64 = 2 * MS;
/// Interval at which an operator repeats an order until it is carried out.
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
    /// The last term that was given out, and its owner.
    witness: (u64, u64),
    witness_silent: (i64, bool),
    observer: Observer,
    coverage: Coverage,
    healed: bool,
    /// Whether a host had the guest at the end of all faults; see `find_holder`.
    has_holder: Option<bool>,
    /// The last term in which a standby was told to forget.
    disarmed: Option<u64>,
    /// Whether a host gave its guest up for one that had just lost it.
    given_up_in_vain: bool,
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
            // The second host's disk is another one in part.
            hosts: [0, 1].map(|side| {
                let disk = [0, 0, 0, 9, 9, 9].map(|old| old * side as u64);
                Host::new(plan.clocks[side], disk)
            }),
            network: Network::default(),
            witness: (0, 0),
            witness_silent: (0, true),
            observer: Observer::new(settings.mode, lease_ns),
            coverage: Coverage {
                histories: 1,
                ..Coverage::default()
            },
            healed: false,
            has_holder: Some(false),
            disarmed: None,
            given_up_in_vain: false,
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

    /// Whether a host could still serve, by memories and records; `None` if a standby could unless
    /// it receives an order to forget.
    fn find_holder(&self) -> Option<bool> {
        let records = [0, 1].map(|side| self.hosts[side].record.term);
        let highest = records.into_iter().max().unwrap_or(0);
        let of_sides = [0, 1].map(|side| {
            let Some(process) = self.process(side) else {
                return Some(false);
            };
            let other = self.process(1 - side);
            let never_heard = other.is_some_and(|other| other.unheard == Some(highest));
            let is_newest = records[side] == highest || never_heard;
            let has_guest = process.guest.as_ref().is_some_and(|guest| !guest.is_off);
            let activates = process.node.status().state == State::Activating;
            let is_armed = process.store.is_some_and(|(id, _)| {
                id.term == highest && self.observer.taken(id).is_some_and(|taken| taken.armed)
            });
            // A standby whose memory was lost while it claims finds nothing to activate.
            let can_activate = !self.hosts[side].activation_fails;
            let is_armed = is_armed && can_activate;
            let serves = has_guest || (activates && can_activate);
            match (is_armed, serves && is_newest) {
                // An error of its disk is on its way, after which it leaves the guest to a standby
                // that may be gone.
                (_, true) if process.capture_meets_error && process.node.status().has_heir => None,
                (_, true) => Some(true),
                (true, false) if self.disarmed == Some(highest) => None,
                // A last sign of life may be on its way.
                (true, false) if process.hangs => None,
                // An error of its disk is on its way.
                (true, false) if process.flushes_fail > 0 => None,
                (is_armed, false) => Some(is_armed),
            }
        });
        match of_sides {
            [Some(false), other] | [other, Some(false)] => other,
            [Some(true), _] | [_, Some(true)] => Some(true),
            [None, None] => None,
        }
    }

    fn judge_the_end(&mut self) {
        let off = self.coverage.guests_off > 0;
        if self.observer.violation.is_some() || off {
            return;
        }
        let states = self.states();
        let may_be_nobody = self.has_holder.is_none() || self.given_up_in_vain;
        let nobody = !self.heard_since && may_be_nobody;
        if nobody || self.has_holder == Some(false) {
            self.coverage.nobody += 1;
            // A message on the way at the end, of a process that ended or of the witness, may
            // change the outcome.
            self.coverage.surprises += u64::from(self.heard_since && !self.observer.is_off);
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
            staged: Parts::default(),
            committing: VecDeque::new(),
            flushes_fail: 0,
            commits_until_ns: 0,
            hangs_until_ns: 0,
            hangs: false,
            put_by: VecDeque::new(),
            ends: 0,
            activations: (0, 0),
            activates_since_ns: 0,
            capture_meets_error: false,
            failing_since_ns: None,
            promised: None,
            captured: Parts::default(),
            left: 0,
            differences: Differences::default(),
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
        if process.guest.is_some_and(|guest| !guest.is_off) {
            self.hosts[side].lost_guest_ns = Some(self.now_ns);
        }
        self.coverage.crashes += 1;
        self.coverage.both_down += u64::from(self.process(1 - side).is_none());
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

    /// Ends a side's use of a connection, and the other side's when it finds out.
    fn close(&mut self, side: Side, number: usize) {
        let connection = &mut self.network.connections[number];
        if !std::mem::replace(&mut connection.open[side], false) {
            return;
        }
        if let Some(process) = self.process_mut(side)
            && process.connection == Some(number)
        {
            process.connection = None;
            process.put_by.clear();
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

    /// The side and, if it concerns a certain one, the process of an event.
    fn whose(&self, happening: &Happening) -> Option<(Side, Option<u64>)> {
        match *happening {
            Happening::Wake(side, incarnation)
            | Happening::Step(side, incarnation)
            | Happening::Captured(side, incarnation, ..)
            | Happening::Committed(side, incarnation)
            | Happening::Summed(side, incarnation, ..)
            | Happening::Activated(side, incarnation, ..)
            | Happening::Abandoned(side, incarnation)
            | Happening::Checked(side, incarnation)
            | Happening::Overdue(side, incarnation, _)
            | Happening::Back(side, incarnation)
            | Happening::FlushFailed(side, incarnation)
            | Happening::Judged(side, incarnation, ..)
            | Happening::GuestKilled(side, incarnation)
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
        if let Happening::Ordered(side, order @ Order::Start { .. }) = happening {
            if !self.never_began() {
                return;
            }
            // An operator who wants the guest to begin asks until it does, whichever host may have
            // received the order.
            self.at(
                self.now_ns + ORDER_AGAIN_NS,
                Happening::Ordered(side, order),
            );
        }
        let Some(process) = self.process_mut(side) else {
            return self.is_gone(side, &happening);
        };
        if incarnation.is_some_and(|incarnation| incarnation != process.incarnation) {
            return self.is_gone(side, &happening);
        }
        if let Some(freeze) = process.frozen {
            match happening {
                Happening::Thaw(..) => return self.thaw(side),
                // The process looks at its clock when it continues, in any case.
                Happening::Wake(..) => process.wakes_ns = i64::MAX,
                Happening::Step(..) if !freeze.guest => self.step(side),
                _ => process.later.push_back(Later::Happening(happening)),
            }
            return;
        }
        self.happen_to(side, happening);
    }

    /// Tells the other side of a process that has ended.
    fn is_gone(&mut self, side: Side, happening: &Happening) {
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
            Happening::Summed(_, _, connection, id, block) => {
                let sums = disk::sum(&self.hosts[side].disk, block);
                if self.process(side).and_then(|process| process.connection) == Some(connection) {
                    self.send(side, &Message::Sums(id, &sums));
                }
            }
            Happening::Committed(..) => self.committed(side),
            Happening::Captured(_, _, captured) => self.captured(side, captured),
            Happening::Activated(_, _, number, from) => self.activated(side, number, from),
            Happening::Abandoned(..) => self.abandoned(side),
            Happening::Checked(..) => self.checked(side),
            Happening::Overdue(_, _, end) => self.overdue(side, end),
            Happening::Back(..) => self.back(side),
            Happening::FlushFailed(..) => self.flush_failed(side),
            Happening::Judged(_, _, expected, verdict) => {
                match verdict {
                    Verdict::Granted { .. } => self.coverage.granted += 1,
                    Verdict::Refused { .. } => self.coverage.refused += 1,
                    Verdict::Unknown => self.coverage.silent += 1,
                }
                self.handle(side, Event::Verdict { expected, verdict }, &[]);
            }
            Happening::Ordered(_, order) => self.handle(side, Event::Order(order), &[]),
            Happening::GuestKilled(..) => self.lose_guest(side),
            Happening::Thaw(..)
            | Happening::Claimed(..)
            | Happening::Dial
            | Happening::Fault(_)
            | Happening::Healed => {}
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
            self.coverage.down_unwitnessed += u64::from(self.process(1 - side).is_none());
            verdict = Verdict::Unknown;
            WITNESS_PATIENCE_NS
        } else {
            self.draw.between(WITNESS_NS.0, WITNESS_NS.1)
        };
        self.note(|| format!("the witness: {verdict:?} to {incarnation}"));
        let happening = Happening::Judged(side, incarnation, expected, verdict);
        self.at(self.now_ns + delay_ns, happening);
    }
}
