//! Frames between the hosts, and the guest's output.

use super::super::guest::{Guest, Image, StateId};
use super::super::happening::{Captured, Happening};
use super::super::host::{Later, Process};
use super::super::network::Damage;
use super::super::network::Side;
use super::super::observer::Taken;
use super::{HANGS_AFTER_NS, STEP_NS, World};
use crate::protocol::message::{self, Message};
use crate::protocol::{CheckpointId, Event, Output};

impl World<'_> {
    pub(super) fn send(&mut self, side: Side, message: &Message) {
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

    pub(super) fn arrive(&mut self, side: Side, number: usize, frame: &[u8]) {
        let connection = &mut self.network.connections[number];
        // Frames on the way when their sender was cut off may be lost.
        if self.now_ns > connection.lost_from_ns[1 - side] {
            return;
        }
        if !connection.open[side] && !self.draw.chance(4) {
            return;
        }
        match message::decode(frame, connection.taken[side]) {
            Ok(message) => {
                connection.taken[side] += 1;
                let sequence = connection.taken[side] - 1;
                if self.puts_by(side, number, (sequence, frame), &message) {
                    return self.handle(side, received(number, Message::Heartbeat), &[]);
                }
                self.take_in(side, number, message);
            }
            Err(_) => {
                self.coverage.damaged += 1;
                self.close(side, number);
                let connection = number as u64;
                self.handle(side, Event::Disconnected { connection }, &[]);
            }
        }
    }

    fn take_in(&mut self, side: Side, number: usize, message: Message) {
        let data = match message {
            Message::Chunk(_, data) | Message::Sums(_, data) => data,
            _ => &[],
        };
        self.note(|| format!("{side} <- {message:?}"));
        self.handle(side, received(number, message), data);
    }

    /// Whether a frame waits, because it or one before it is the end of a checkpoint, which a thread
    /// that hangs has to look at.
    fn puts_by(
        &mut self,
        side: Side,
        number: usize,
        (sequence, frame): (u64, &[u8]),
        message: &Message,
    ) -> bool {
        let now_ns = self.now_ns;
        // What comes on an earlier connection is no business of the checks.
        let is_current = |process: &&mut Process| process.connection == Some(number);
        let Some(process) = self.process_mut(side).filter(is_current) else {
            return false;
        };
        let waits = !process.put_by.is_empty();
        let begins = matches!(message, Message::End { .. }) && now_ns < process.hangs_until_ns;
        match message {
            Message::Disarm { .. } => {
                process.put_by.clear();
                false
            }
            Message::Heartbeat => false,
            _ if !waits && !begins => false,
            _ => {
                process.put_by.push_back((sequence, frame.to_vec()));
                if !waits {
                    process.ends += 1;
                    let (end, incarnation) = (process.ends, process.incarnation);
                    let until_ns = process.hangs_until_ns;
                    self.at(until_ns, Happening::Checked(side, incarnation));
                    let late_ns = now_ns + HANGS_AFTER_NS;
                    self.at(late_ns, Happening::Overdue(side, incarnation, end));
                }
                true
            }
        }
    }

    /// The guest's thread has looked at the end of a checkpoint, if that still waits for it.
    pub(super) fn checked(&mut self, side: Side) {
        let now_ns = self.now_ns;
        while let Some(process) = self.process_mut(side)
            && let Some(number) = process.connection
        {
            let again = Happening::Checked(side, process.incarnation);
            if process.frozen.is_some() {
                // The process stalled over one of the frames, and goes on with the next.
                return process.later.push_back(Later::Happening(again));
            }
            if now_ns < process.hangs_until_ns {
                // Its disk hangs for longer than it did when the checkpoint ended.
                let until_ns = process.hangs_until_ns;
                return self.at(until_ns, again);
            }
            let Some((sequence, frame)) = process.put_by.pop_front() else {
                return;
            };
            let message = message::decode(&frame, sequence).expect("it was decoded before");
            self.take_in(side, number, message);
        }
    }

    pub(super) fn step(&mut self, side: Side) {
        let host = &mut self.hosts[side];
        let Some(process) = host.process.as_mut() else {
            return;
        };
        let incarnation = process.incarnation;
        let Some(guest) = process.guest.as_mut().filter(|guest| !guest.is_off) else {
            return;
        };
        if guest.runs {
            let (block, value) = guest.step(&mut self.observer.lineage);
            host.disk[block] = value;
            process.differences.note(block);
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

    /// Passes the guest's output to the gate.
    pub(super) fn pass(&mut self, side: Side, holder: usize, state: StateId) {
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

    pub(super) fn hear(&mut self, side: Side, holder: usize, state: StateId) {
        self.coverage.heard += 1;
        self.heard_since |= self.healed;
        if self.heard_ns >= 0 {
            self.silence_ns = self.silence_ns.max(self.now_ns - self.heard_ns);
        }
        self.heard_ns = self.now_ns;
        let term = self
            .process(side)
            .map_or(0, |process| process.node.status().term);
        // The checkpoint with which the other host could take over, after the actions that it had
        // begun.
        let other = self.process(1 - side).and_then(|other| {
            let id = other.promised.or(other.store.map(|(id, _)| id))?;
            let taken = self.observer.taken(id)?;
            (id.term == term && taken.armed).then_some(taken.state)
        });
        self.note(|| format!("{side} is heard: state {state}"));
        self.observer.hear(self.now_ns, holder, state, other);
    }

    pub(super) fn captured(&mut self, side: Side, captured: Captured) {
        let Captured {
            number,
            holder,
            fails,
            is_disk,
            begun_ns,
        } = captured;
        let now_ns = self.now_ns;
        let Some(process) = self.process_mut(side) else {
            return;
        };
        process.capture_meets_error = false;
        let term = process.node.status().term;
        // Ending a guest waits for the guest's current step.
        let is_it = |guest: &&mut Guest| guest.holder == holder && !guest.is_off;
        let Some(guest) = process.guest.as_mut().filter(is_it) else {
            return;
        };
        if fails {
            let has_heir = process.node.status().has_heir;
            let since_ns = *process.failing_since_ns.get_or_insert(begun_ns);
            if !has_heir {
                process.failing_since_ns = None;
            }
            self.coverage.captures_failed += 1;
            if has_heir && (is_disk || now_ns - since_ns >= HANGS_AFTER_NS) {
                self.coverage.left_to_heir += u64::from(!is_disk);
                return self.lose_guest(side);
            }
            return self.handle(side, Event::CaptureFailed { number }, &[]);
        }
        process.failing_since_ns = None;
        let state = guest.state;
        process.gate.epoch = number + 1;
        let event = Event::Captured {
            number,
            ram_bytes: process.captured.ram.len() as u64,
            device_bytes: process.captured.device.len() as u64,
            disk_bytes: process.captured.blocks.len() as u64,
            disk_left_bytes: process.left as u64,
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

    pub(super) fn activated(
        &mut self,
        side: Side,
        number: u64,
        from: Option<(CheckpointId, Image)>,
    ) {
        let now_ns = self.now_ns;
        let Some(process) = self.process(side) else {
            return;
        };
        if process.activations.0 != number {
            return;
        }
        if now_ns < self.hosts[side].disk_fails_until_ns {
            self.coverage.disks_failed += 1;
            self.hosts[side].activation_fails = true;
        }
        if from.is_some() {
            self.watch_gate(1 - side);
        }
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
            _ => Guest::boot(&mut self.observer.lineage, holder, self.hosts[side].disk),
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

    /// Checks the gate before the other host lets the guest run.
    pub(super) fn watch_gate(&mut self, side: Side) {
        let host = &self.hosts[side];
        let has_guest = |process: &&Process| process.guest.is_some();
        if let Some(process) = host.process.as_ref().filter(has_guest) {
            let (output, clock_ns) = (process.gate.output, host.clock_ns(self.now_ns));
            self.observer.watch_gate(output, clock_ns);
        }
    }
}

fn received(number: usize, message: Message<'_>) -> Event<'_> {
    Event::Received {
        connection: number as u64,
        message,
    }
}
