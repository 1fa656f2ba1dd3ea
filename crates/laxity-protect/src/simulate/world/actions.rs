//! Carries out the actions of nodes.

use std::collections::VecDeque;

use super::super::disk::{BLOCKS, patch};
use super::super::guest::Image;
use super::super::happening::{Captured, Happening};
use super::super::host::{Freeze, Later, Parts};
use super::super::network::Side;
use super::{ACTIVATE_NS, CAPTURE_NS, COMMIT_NS, SUM_NS, WITNESS_NS, World};
use crate::protocol::checkpoint::Digest;
use crate::protocol::message::Message;
use crate::protocol::{Action, CheckpointId, Event, Header, Notice, Output, Part, Record};

impl World<'_> {
    pub(super) fn handle(&mut self, side: Side, event: Event, data: &[u8]) {
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

    pub(super) fn carry_out(&mut self, side: Side, actions: Vec<Action>, data: &[u8]) {
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

    /// Whether the process ends or stalls before its next action.
    pub(super) fn stops_before_next(&mut self, side: Side) -> bool {
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

    pub(super) fn act(&mut self, side: Side, action: Action, data: &[u8]) {
        if !matches!(action, Action::Stage(_)) {
            self.note(|| format!("{side} -> {action:?}"));
        }
        match action {
            Action::Persist(record) => self.persist(side, record),
            Action::Send(message) => self.send_and_watch(side, &message),
            Action::SendCheckpoint(header) => self.send_checkpoint(side, &header),
            Action::Disconnect => {
                if let Some(number) = self.process(side).and_then(|process| process.connection) {
                    self.close(side, number);
                }
            }
            Action::Capture { number, full, arms } => self.capture(side, number, full, arms),
            Action::Sum(id) => self.sum(side, id),
            Action::Compare => {
                self.coverage.compared += 1;
                let host = &mut self.hosts[side];
                if let Some(process) = &mut host.process {
                    process.differences.compare(&host.disk, data);
                }
            }
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
            Action::Abandon => {
                let now_ns = self.now_ns;
                if let Some(process) = self.process_mut(side)
                    && now_ns < process.activations.1
                {
                    process.activations.0 += 1;
                    let incarnation = process.incarnation;
                    let (since_ns, connected) =
                        (process.activates_since_ns, process.node.status().connected);
                    self.at(now_ns, Happening::Abandoned(side, incarnation));
                    // The host that had the guest may have lost it meanwhile, which no news can tell in time.
                    let is_lost = self.hosts[1 - side].lost_guest_ns >= Some(since_ns);
                    self.given_up_in_vain |= connected && is_lost;
                }
            }
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
                        Part::Ram => process.staged.ram.extend_from_slice(data),
                        Part::Device => process.staged.device.extend_from_slice(data),
                        Part::Disk => process.staged.blocks.extend_from_slice(data),
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

    /// Puts a record on the disk. A process ends if there is no room, and waits if the disk is slow.
    fn persist(&mut self, side: Side, record: Record) {
        let host = &mut self.hosts[side];
        if self.now_ns < host.disk_full_until_ns {
            self.coverage.disks_full += 1;
            return self.crash(side, false);
        }
        host.record = record;
        let for_ns = host.slow_disk_ns;
        if for_ns > 0 {
            self.coverage.disks_slow += 1;
            let freeze = Freeze {
                for_ns,
                guest: false,
                clock_first: false,
            };
            self.freeze(side, freeze);
        }
    }

    pub(super) fn change(&mut self, side: Side, action: Action) {
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
                process.staged = Parts::default();
            }
            Action::Forget => {
                process.store = None;
                process.promised = None;
            }
            _ => {}
        }
    }

    pub(super) fn count(&mut self, notice: Notice) {
        match notice {
            Notice::Copying => self.coverage.copies += 1,
            Notice::Waiting => self.coverage.waited += 1,
            Notice::Stalled { gives_up: true } => self.coverage.stalled += 1,
            Notice::Alone => self.coverage.alone += 1,
            Notice::ActivationLate => self.coverage.activations_late += 1,
            Notice::CapturesFail { gives_up: true } => self.coverage.captures_given_up += 1,
            Notice::CopiesLater { .. } => self.coverage.copies_later += 1,
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

    pub(super) fn send_and_watch(&mut self, side: Side, message: &Message) {
        match *message {
            Message::Acknowledge(id) => {
                let host = &mut self.hosts[side];
                if let Some(process) = &mut host.process {
                    let mut image = process
                        .store
                        .map_or_else(Image::default, |(_, image)| image);
                    let Parts {
                        ram,
                        device,
                        blocks,
                    } = &process.staged;
                    image.disk = process.disk(&host.disk);
                    image.patch(ram, device, blocks);
                    process.promised = Some(id);
                    self.observer.acknowledge(side, id, &image);
                }
            }
            Message::Handover(id) => self.observer.hand_over(id),
            Message::Disarm { term } => self.disarmed = Some(term),
            _ => {}
        }
        self.send(side, message);
    }

    pub(super) fn send_checkpoint(&mut self, side: Side, header: &Header) {
        let Some(process) = self.process_mut(side) else {
            return;
        };
        let Parts {
            ram,
            device,
            blocks,
        } = process.captured.clone();
        let mut digest = Digest::new(header);
        self.coverage.resent += u64::from(self.observer.is_sent(header.id));
        let is_short = (1..self.plan.settings.lease_ns).contains(&header.lease_ns);
        self.coverage.short_leases += u64::from(is_short);
        self.observer.send(header.id, header.arms);
        let mut messages = vec![Message::Begin(*header)];
        let faulty = std::mem::take(&mut self.hosts[side].sends_part);
        let (first, second) = ram.split_at(self.draw.below(ram.len() + 1));
        for (part, data) in [
            (Part::Ram, first),
            (Part::Ram, second),
            (Part::Device, &device[..]),
            (Part::Disk, &blocks[..]),
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
            // The process may end in the middle of the action.
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

    /// Begins to send the sums of a host's disk, one by one and while all else goes on.
    pub(super) fn sum(&mut self, side: Side, id: CheckpointId) {
        let Some(process) = self.process(side) else {
            return;
        };
        let (incarnation, Some(connection)) = (process.incarnation, process.connection) else {
            return;
        };
        // The guest's thread does one thing after the other.
        let mut when_ns = self.now_ns.max(process.commits_until_ns);
        for block in 0..BLOCKS {
            when_ns += self.draw.between(0, SUM_NS);
            self.at(
                when_ns,
                Happening::Summed(side, incarnation, connection, id, block),
            );
        }
    }

    pub(super) fn capture(&mut self, side: Side, number: u64, full: bool, arms: bool) {
        let (now_ns, delay_ns) = (self.now_ns, self.draw.between(CAPTURE_NS.0, CAPTURE_NS.1));
        let host = &mut self.hosts[side];
        let Some(process) = &mut host.process else {
            return;
        };
        let Some(guest) = &mut process.guest else {
            return;
        };
        let is_disk = now_ns < host.disk_fails_until_ns;
        let fails = std::mem::take(&mut host.capture_fails)
            || is_disk
            || now_ns < host.captures_fail_until_ns;
        guest.runs = false;
        process.capture_meets_error = is_disk;
        if full {
            process.differences.forget();
        }
        if !fails {
            let (ram, device) = guest.capture(full);
            let (blocks, left) = process.differences.take(&host.disk, arms);
            process.captured = Parts {
                ram,
                device,
                blocks,
            };
            process.left = left;
        }
        let captured = Captured {
            number,
            holder: guest.holder,
            fails,
            is_disk,
            begun_ns: now_ns,
        };
        let happening = Happening::Captured(side, process.incarnation, captured);
        let when_ns = now_ns + delay_ns + host.slow_capture_ns;
        self.at(when_ns, happening);
    }

    pub(super) fn release(&mut self, side: Side, through: u64) {
        while let Some((holder, state)) = self
            .process_mut(side)
            .and_then(|process| process.gate.release(through))
        {
            self.coverage.released += 1;
            self.hear(side, holder, state);
        }
    }

    pub(super) fn commit(&mut self, side: Side, id: CheckpointId) {
        self.coverage.committed += 1;
        let host = &mut self.hosts[side];
        let Some(process) = &mut host.process else {
            return;
        };
        let mut image = process
            .store
            .map_or_else(Image::default, |(_, image)| image);
        let Parts {
            ram,
            device,
            blocks,
        } = std::mem::take(&mut process.staged);
        image.disk = process.disk(&host.disk);
        image.patch(&ram, &device, &blocks);
        process.store = Some((id, image));
        process.committing.push_back(blocks);
        let delay_ns = self.draw.between(0, COMMIT_NS);
        let begins_ns = self.now_ns.max(host.disk_hangs_until_ns);
        let when_ns = begins_ns.max(process.commits_until_ns) + delay_ns;
        process.commits_until_ns = when_ns;
        if begins_ns > self.now_ns {
            process.hangs_until_ns = when_ns;
        }
        let incarnation = process.incarnation;
        let fails = self.now_ns < host.disk_fails_until_ns;
        process.flushes_fail += u32::from(fails);
        self.at(when_ns, Happening::Committed(side, incarnation));
        if fails {
            self.at(when_ns, Happening::FlushFailed(side, incarnation));
        }
    }

    /// The blocks of the oldest checkpoint that is being committed are on the disk.
    pub(super) fn committed(&mut self, side: Side) {
        let host = &mut self.hosts[side];
        if let Some(process) = &mut host.process
            && let Some(blocks) = process.committing.pop_front()
        {
            patch(&mut host.disk, &blocks);
        }
    }

    pub(super) fn activate(&mut self, side: Side, action: Action) {
        let delay_ns = self.draw.between(ACTIVATE_NS.0, ACTIVATE_NS.1);
        while self
            .process(side)
            .is_some_and(|process| !process.committing.is_empty())
        {
            self.committed(side);
        }
        let host = &mut self.hosts[side];
        let Some(process) = &mut host.process else {
            return;
        };
        let from = match action {
            Action::Activate(id) => {
                let (_, mut image) = process.store.unwrap_or((id, Image::default()));
                image.disk = host.disk;
                Some((id, image))
            }
            _ => None,
        };
        // A disk is flushed before.
        let begins_ns = self
            .now_ns
            .max(host.disk_hangs_until_ns)
            .max(process.hangs_until_ns);
        process.activations = (process.activations.0 + 1, begins_ns);
        process.activates_since_ns = self.now_ns;
        let number = process.activations.0;
        let happening = Happening::Activated(side, process.incarnation, number, from);
        if let Some((id, _)) = from {
            self.watch_gate(1 - side);
            if self.observer.is_handed_over(id) {
                self.coverage.switchovers += 1;
            } else {
                self.coverage.takeovers += 1;
            }
        }
        self.at(begins_ns + delay_ns, happening);
    }
}
