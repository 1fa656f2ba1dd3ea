//! The work of one VCPU of a guest with packets: interrupts first, then packets, then threads.

use super::packet::Packet;
use std::collections::VecDeque;

/// Packets in a row that a kernel handles before threads that are ready get as much of the VCPU as packets do (Linux's
/// softirq hands over to a thread of its own, which is scheduled among the others).
const PACKETS_IN_A_ROW: u32 = 64;

/// Something that takes CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub what: What,
    pub remaining_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Taking an interrupt.
    Interrupt,
    /// Moving a packet of this source.
    Source { source: u32, packet: Packet },
    /// Throwing a packet of this source away: where it should go there is no room.
    Waste { source: u32, packet: Packet },
    /// A thread's work on a packet.
    Thread(Packet),
    /// A thread's work once its packet has left.
    AfterSend,
    /// Copying the checkpoint of a protected domain, by its number.
    Copy(u32),
}

/// What a VCPU is to do next that it has not begun.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Interrupt,
    Source(u32),
    Thread,
    Copy,
    Nothing,
}

/// A VCPU's work.
#[derive(Debug, Default)]
pub struct Line {
    /// Interrupts and events that it has not taken.
    interrupts: u32,
    /// Where packets come from that it handles.
    pub sources: Vec<u32>,
    /// Whether each source has interrupted and may have packets.
    is_active: Vec<bool>,
    /// Number of active sources.
    active: u32,
    /// The source that had its turn last.
    turn: u32,
    in_a_row: u32,
    kernel: Option<Step>,
    thread: Option<Step>,
    /// Threads that were woken and have no packet yet.
    pub ready: u32,
    /// Checkpoints that a process of the driver domain is to copy here.
    pub copies: VecDeque<Step>,
}

impl Line {
    pub fn add_source(&mut self, source: u32) -> u32 {
        self.sources.push(source);
        self.is_active.push(false);
        self.sources.len() as u32 - 1
    }

    /// A source interrupts.
    pub fn raise(&mut self, place: u32) {
        self.interrupts += 1;
        self.active += u32::from(!self.looks_at(place));
        self.is_active[place as usize] = true;
    }

    /// A source has no more packets, and will interrupt again.
    pub fn quiet(&mut self, place: u32) {
        self.active -= u32::from(self.looks_at(place));
        self.is_active[place as usize] = false;
        if self.active == 0 {
            self.in_a_row = 0;
        }
    }

    /// Whether packets and interrupts are taken without a further interrupt of this source.
    pub fn looks_at(&self, place: u32) -> bool {
        self.is_active[place as usize]
    }

    pub fn has_work(&self) -> bool {
        self.kernel.is_some()
            || self.thread.is_some()
            || self.interrupts > 0
            || self.active != 0
            || self.ready > 0
            || !self.copies.is_empty()
    }

    /// Whether the guest's scheduler sees threads here: packets count as one only when there are so many in a row that
    /// a thread has taken them over.
    pub fn has_threads(&self) -> bool {
        self.has_own_threads() || self.packets_are_a_thread()
    }

    fn packets_are_a_thread(&self) -> bool {
        self.active != 0 && self.in_a_row >= PACKETS_IN_A_ROW
    }

    /// Whether a thread waits here behind another.
    pub fn can_spare_thread(&self) -> bool {
        let others = u32::from(self.thread.is_some()) + u32::from(self.packets_are_a_thread());
        self.ready > 0 && self.ready + others > 1
    }

    /// Whether threads of the guest are here, beside what its kernel does.
    pub fn has_own_threads(&self) -> bool {
        self.thread.is_some() || self.ready > 0 || !self.copies.is_empty()
    }

    fn kernel_has_turn(&self) -> bool {
        self.interrupts > 0
            || self.active != 0 && !(self.has_own_threads() && self.in_a_row >= PACKETS_IN_A_ROW)
    }

    /// What it does now, if it has begun with it.
    pub fn current(&self) -> Option<&Step> {
        match (&self.kernel, &self.thread) {
            (Some(step), _) => Some(step),
            (None, thread) if !self.kernel_has_turn() => thread.as_ref(),
            _ => None,
        }
    }

    /// Whether the VCPU should leave its present step for newer work.
    pub fn is_to_switch(&self) -> bool {
        self.kernel.is_none() && self.kernel_has_turn()
    }

    /// What to begin with, when there is no [`Line::current`].
    pub fn next(&mut self) -> Next {
        if self.interrupts > 0 {
            Next::Interrupt
        } else if self.active != 0 && self.kernel_has_turn() {
            // Round robin.
            let places = self.sources.len() as u32;
            loop {
                self.turn = (self.turn + 1) % places;
                if self.looks_at(self.turn) {
                    return Next::Source(self.turn);
                }
            }
        } else if self.ready > 0 {
            Next::Thread
        } else if !self.copies.is_empty() {
            Next::Copy
        } else {
            Next::Nothing
        }
    }

    pub fn begin(&mut self, step: Step) {
        match step.what {
            What::Thread(_) | What::AfterSend | What::Copy(_) => self.thread = Some(step),
            _ => self.kernel = Some(step),
        }
    }

    /// It forgets whatever it was to do. Answers the packets that it had in its hands.
    pub fn forget(&mut self) -> Vec<Packet> {
        let steps = [self.kernel.take(), self.thread.take()];
        *self = Line {
            is_active: vec![false; self.sources.len()],
            sources: std::mem::take(&mut self.sources),
            ..Line::default()
        };
        let packets = steps
            .into_iter()
            .flatten()
            .filter_map(|step| match step.what {
                What::Source { packet, .. } | What::Waste { packet, .. } | What::Thread(packet) => {
                    Some(packet)
                }
                What::Interrupt | What::AfterSend | What::Copy(_) => None,
            });
        packets.collect()
    }

    /// The VCPU has worked for `ns` on its present step.
    pub fn advance(&mut self, ns: i64) {
        if let Some(step) = self.kernel.as_mut().or(self.thread.as_mut()) {
            step.remaining_ns -= ns;
        }
    }

    /// The VCPU has completed its present step.
    pub fn end(&mut self) -> Option<What> {
        if let Some(step) = self.kernel.take() {
            debug_assert_eq!(step.remaining_ns, 0);
            match step.what {
                What::Interrupt => self.interrupts -= 1,
                _ => self.in_a_row += 1,
            }
            return Some(step.what);
        }
        let step = self.thread.take()?;
        debug_assert_eq!(step.remaining_ns, 0);
        self.in_a_row = self.in_a_row.saturating_sub(1);
        Some(step.what)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Kind;
    use super::*;

    const PACKET: Packet = Packet {
        kind: Kind::Voice,
        of: 0,
        number: 0,
        copy: 0,
        sent_ns: 0,
    };

    fn step(what: What) -> Step {
        Step {
            what,
            remaining_ns: 10,
        }
    }

    #[test]
    fn an_interrupt_comes_before_a_thread_and_the_thread_goes_on_after_it() {
        let mut line = Line::default();
        let place = line.add_source(7);
        line.ready = 1;
        assert_eq!(line.next(), Next::Thread);
        line.ready = 0;
        line.begin(step(What::Thread(PACKET)));
        line.advance(4);
        line.raise(place);
        assert!(line.is_to_switch() && line.current().is_none());
        assert_eq!(line.next(), Next::Interrupt);
        line.begin(step(What::Interrupt));
        line.advance(10);
        assert_eq!(line.end(), Some(What::Interrupt));
        assert_eq!(line.next(), Next::Source(0));
        line.quiet(place);
        assert_eq!(line.current().map(|step| step.remaining_ns), Some(6));
        line.advance(6);
        assert_eq!(line.end(), Some(What::Thread(PACKET)));
        assert!(!line.has_work());
    }

    #[test]
    fn packets_without_end_leave_threads_half_of_the_time() {
        let mut line = Line::default();
        let place = line.add_source(0);
        line.raise(place);
        let (mut packets, mut threads) = (0, 0);
        for _ in 0..1000 {
            line.ready = 1;
            let what = match line.next() {
                Next::Interrupt => What::Interrupt,
                Next::Source(_) => What::Source {
                    source: 0,
                    packet: PACKET,
                },
                _ => What::Thread(PACKET),
            };
            match what {
                What::Thread(_) => threads += 1,
                _ => packets += 1,
            }
            line.begin(step(what));
            line.advance(10);
            assert!(line.end().is_some());
        }
        assert!(packets > 500 && threads > 450, "{packets} {threads}");
    }

    #[test]
    fn sources_take_turns() {
        let mut line = Line::default();
        for place in 0..3 {
            line.add_source(place);
            line.raise(place);
        }
        for _ in 0..3 {
            line.begin(step(What::Interrupt));
            line.advance(10);
            line.end();
        }
        let turns: Vec<Next> = (0..4).map(|_| line.next()).collect();
        let expected = [1, 2, 0, 1].map(Next::Source);
        assert_eq!(turns, expected);
    }

    #[test]
    fn sources_are_told_apart_however_many_they_are() {
        let mut line = Line::default();
        for place in 0..200 {
            line.add_source(place);
        }
        for place in [199, 0, 64, 199] {
            line.raise(place);
            line.begin(step(What::Interrupt));
            line.advance(10);
            line.end();
        }
        let mut turns = Vec::new();
        while let Next::Source(place) = line.next() {
            assert!(line.looks_at(place));
            line.quiet(place);
            turns.push(place);
        }
        assert_eq!(turns, [64, 199, 0]);
        assert!(!line.has_work());
    }
}
