//! Every timer of a host, each in a slot of its own.
//!
//! What can happen on a host is known before it runs: this task's next arrival, that CPU's next
//! completion. There thus is no queue of events, but one time a slot, and a tournament over the slots
//! that knows the earliest. Setting a slot costs log2 of the number of slots, at most; a slot that loses its
//! first match stops there. At one time the lower slot comes first.

/// No time.
pub const NEVER: i64 = i64::MAX;

/// Timers, each in a slot.
pub trait Slots {
    /// Slots 0 to `slots` - 1, all at [`NEVER`].
    fn new(slots: usize) -> Self;

    /// Sets when the slot is due.
    fn set(&mut self, slot: usize, time_ns: i64);

    /// When the slot is due.
    fn at(&self, slot: usize) -> i64;

    /// The earliest slot, and when it is due; of those due at the same time, the lowest.
    fn first(&self) -> (i64, usize);

    /// The first slot, if it is due.
    #[inline]
    fn due(&self, now: i64) -> Option<usize> {
        let (time_ns, slot) = self.first();
        (time_ns <= now).then_some(slot)
    }
}

/// The timer of the only slot that there is.
pub struct OneTimer(i64);

impl Slots for OneTimer {
    fn new(_: usize) -> OneTimer {
        OneTimer(NEVER)
    }

    #[inline]
    fn set(&mut self, _: usize, time_ns: i64) {
        self.0 = time_ns;
    }

    #[inline]
    fn at(&self, _: usize) -> i64 {
        self.0
    }

    #[inline]
    fn first(&self) -> (i64, usize) {
        (self.0, 0)
    }
}

#[derive(Clone, Copy)]
struct Entry {
    time_ns: i64,
    slot: u32,
}

/// Any number of timers.
pub struct Timers {
    /// A complete binary tree without its root, which is node 1; the leaves are the slots, each other node is the
    /// winner of its two children. Nodes 2n and 2n + 1 are pair n.
    pairs: Box<[[Entry; 2]]>,
    leaves: usize,
    /// The root. It is read far more often than it changes, and is all there is of one slot.
    first: Entry,
}

impl Slots for Timers {
    fn new(slots: usize) -> Timers {
        let leaves = slots.next_power_of_two();
        let none = Entry {
            time_ns: NEVER,
            slot: 0,
        };
        let mut timers = Timers {
            pairs: vec![[none; 2]; leaves].into(),
            leaves,
            first: none,
        };
        for slot in (0..leaves).rev() {
            timers.set(slot, NEVER);
        }
        timers
    }

    #[inline]
    fn set(&mut self, slot: usize, time_ns: i64) {
        let mut node = self.leaves + slot;
        let mut winner = Entry {
            time_ns,
            slot: slot as u32,
        };
        while node > 1 {
            let (pair, side) = (&mut self.pairs[node / 2], node % 2);
            pair[side] = winner;
            // The choice is made without a branch, since the processor cannot predict which of two is earlier.
            // The lower slot is on the left, side 0, and also comes first at the same time.
            let other = pair[1 - side];
            let other_wins = other.time_ns - (side as i64) < winner.time_ns;
            winner = Entry {
                time_ns: std::hint::select_unpredictable(other_wins, other.time_ns, winner.time_ns),
                slot: std::hint::select_unpredictable(other_wins, other.slot, winner.slot),
            };
            node /= 2;
        }
        self.first = winner;
    }

    #[inline]
    fn at(&self, slot: usize) -> i64 {
        match self.leaves + slot {
            1 => self.first.time_ns,
            leaf => self.pairs[leaf / 2][leaf % 2].time_ns,
        }
    }

    #[inline]
    fn first(&self) -> (i64, usize) {
        (self.first.time_ns, self.first.slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_is_the_least_time_then_the_least_slot(
            slots in 1_usize..40,
            steps in prop::collection::vec((0_usize..40, 0_i64..6), 1..200),
        ) {
            let mut timers = Timers::new(slots);
            let mut plain = vec![NEVER; slots];
            for (slot, time) in steps {
                let (slot, time) = (slot % slots, if time == 5 { NEVER } else { time });
                timers.set(slot, time);
                plain[slot] = time;
                let least = plain.iter().copied().min().unwrap_or(NEVER);
                let (first, at) = timers.first();
                prop_assert_eq!(first, least);
                if least != NEVER {
                    prop_assert_eq!(Some(at), plain.iter().position(|&time| time == least));
                }
            }
        }
    }
}
