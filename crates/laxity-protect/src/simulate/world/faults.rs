//! Faults and their end.

use super::super::happening::Happening;
use super::super::host::{Freeze, Later};
use super::super::network::Side;
use super::super::plan::{Fault, MS};
use super::World;
use crate::protocol::{Event, Order, State};

impl World<'_> {
    pub(super) fn fault(&mut self, fault: Fault) {
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
            Fault::Lossy {
                for_ns,
                one_in,
                again_ns,
            } => self.network.lossy = (self.now_ns + for_ns, one_in, again_ns),
            Fault::ClockJump { side, by_ns } => {
                self.coverage.clock_jumps += 1;
                self.hosts[side].jump(by_ns);
                self.schedule_wake(side);
            }
            Fault::DiskFull { side, for_ns } => {
                self.hosts[side].disk_full_until_ns = self.now_ns + for_ns;
            }
            Fault::SlowDisk { side, by_ns } => self.hosts[side].slow_disk_ns = by_ns,
            Fault::DiskHangs { side, for_ns } => {
                self.hosts[side].disk_hangs_until_ns = self.now_ns + for_ns;
            }
            Fault::DiskFails { side, for_ns } => {
                self.hosts[side].disk_fails_until_ns = self.now_ns + for_ns;
            }
            Fault::CapturesFail { side, for_ns } => {
                self.hosts[side].captures_fail_until_ns = self.now_ns + for_ns;
            }
            Fault::OutOfMemory { side } => {
                if let Some(process) = self.process_mut(side) {
                    let incarnation = process.incarnation;
                    if let Some(guest) = &mut process.guest {
                        guest.runs = false;
                    }
                    self.at(self.now_ns, Happening::GuestKilled(side, incarnation));
                }
            }
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

    /// Gives an order to every host with a guest.
    pub(super) fn order_holders(&mut self, order: Order) {
        for side in [0, 1] {
            if self
                .process(side)
                .is_some_and(|process| process.guest.is_some())
            {
                self.deliver(side, Event::Order(order));
            }
        }
    }

    /// Lets a host go on while the other host is off, whose work since a takeover is forgotten.
    pub(super) fn go_on(&mut self, side: Side) {
        if let Some(process) = self.hosts[side].process.as_mut()
            && process.frozen.is_none()
        {
            match (
                process.node.status().state,
                &mut process.guest,
                process.store,
            ) {
                (State::Waiting, Some(guest), _) => {
                    guest.holder = self.observer.hold_again(guest.state);
                }
                (State::Refused, _, Some((_, image))) => {
                    if let Some(state) = image.state() {
                        self.observer.go_back_to(state);
                    }
                }
                _ => {}
            }
        }
        self.deliver(side, Event::Order(Order::GoOn));
    }

    /// Delivers an event to a running process; a stalled process misses it.
    pub(super) fn deliver(&mut self, side: Side, event: Event) {
        if self
            .process(side)
            .is_some_and(|process| process.frozen.is_none())
        {
            self.handle(side, event, &[]);
        }
    }

    pub(super) fn heal(&mut self) {
        self.note(|| "all that was wrong ends".into());
        self.network.cut_until_ns = [0; 2];
        self.network.slow = (0, 0);
        self.network.lossy = (0, 1, 0);
        self.network.damage = [None; 2];
        self.witness_silent = (0, true);
        for side in [0, 1] {
            let host = &mut self.hosts[side];
            host.slow_capture_ns = 0;
            host.disk_full_until_ns = 0;
            host.slow_disk_ns = 0;
            host.disk_hangs_until_ns = 0;
            host.disk_fails_until_ns = 0;
            host.captures_fail_until_ns = 0;
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
        self.has_holder = if self.never_began() {
            Some(true)
        } else {
            self.find_holder()
        };
        for side in [0, 1] {
            self.begin(side);
        }
    }

    /// A process finds that the guest's memory is gone, and does what the daemon does.
    pub(super) fn lose_guest(&mut self, side: Side) {
        let Some(process) = self.process(side) else {
            return;
        };
        let state = process.node.status().state;
        self.coverage.guests_killed += 1;
        match state {
            State::Empty | State::Hanging | State::Armed | State::Refused => {
                self.handle(side, Event::Unusable, &[]);
            }
            // There is nothing left to activate.
            State::Claiming | State::Activating => self.hosts[side].activation_fails = true,
            // A primary begins anew, as another process would.
            _ => {
                self.crash(side, false);
                self.begin(side);
            }
        }
    }

    /// A disk could not be flushed: the guest is lost here if that is better than an error of its disk.
    pub(super) fn flush_failed(&mut self, side: Side) {
        let Some(process) = self.process_mut(side) else {
            return;
        };
        process.flushes_fail -= 1;
        let status = process.node.status();
        let is_standby = matches!(
            status.state,
            State::Empty | State::Hanging | State::Armed | State::Refused
        );
        self.coverage.disks_failed += 1;
        if is_standby || status.has_heir {
            self.lose_guest(side);
        }
    }

    /// A process notices that its guest's thread hangs.
    fn hang(&mut self, side: Side) {
        let now_ns = self.now_ns;
        let Some(process) = self.process_mut(side) else {
            return;
        };
        process.hangs = true;
        let (until_ns, incarnation) = (process.hangs_until_ns.max(now_ns), process.incarnation);
        self.at(until_ns, Happening::Back(side, incarnation));
        self.handle(side, Event::Hangs, &[]);
    }

    pub(super) fn back(&mut self, side: Side) {
        if let Some(process) = self.process_mut(side)
            && std::mem::take(&mut process.hangs)
        {
            self.handle(side, Event::Recovers, &[]);
        }
    }

    /// No thread has looked at the end of a checkpoint for too long.
    pub(super) fn overdue(&mut self, side: Side, end: u64) {
        if let Some(process) = self.process_mut(side)
            && !process.put_by.is_empty()
            && process.ends == end
            && !process.hangs
        {
            self.coverage.hung += 1;
            self.hang(side);
        }
    }

    /// A guest was given up that never runs then.
    pub(super) fn abandoned(&mut self, side: Side) {
        let Some(process) = self.process_mut(side) else {
            return;
        };
        process.unheard = Some(process.node.status().term);
        process.hangs_until_ns = process.hangs_until_ns.max(process.activations.1);
        self.coverage.abandoned += 1;
        self.handle(side, Event::ActivationFailed, &[]);
        self.hang(side);
    }

    pub(super) fn freeze(&mut self, side: Side, freeze: Freeze) {
        let until_ns = self.now_ns + freeze.for_ns;
        let Some(process) = self.process_mut(side) else {
            return;
        };
        process.frozen = Some(freeze);
        let incarnation = process.incarnation;
        self.note(|| format!("{side} stands still"));
        self.at(until_ns, Happening::Thaw(side, incarnation));
    }

    pub(super) fn thaw(&mut self, side: Side) {
        let Some(process) = self.process_mut(side) else {
            return;
        };
        let Some(freeze) = process.frozen.take() else {
            return;
        };
        let incarnation = process.incarnation;
        self.note(|| format!("{side} goes on"));
        // Actions that the process had begun come first.
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
}
