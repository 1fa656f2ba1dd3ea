//! The work inside a VCPU: a guest's ready tasks, in the order of its scheduler.

use laxity_host::GuestScheduler;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The tasks of one VCPU that have a job to do. Tasks are known by their rank on the VCPU: their place
/// when sorted by period, then by place in the host file.
pub enum Ready {
    /// Rate-monotonic: the lowest rank first.
    FixedPriority(RankSet),
    /// The earliest absolute deadline of the job to do first, then the place in the host file.
    Edf(BinaryHeap<Reverse<(i64, u32, u32)>>),
}

impl Ready {
    pub fn new(scheduler: GuestScheduler, tasks: usize) -> Ready {
        match scheduler {
            GuestScheduler::RateMonotonic => Ready::FixedPriority(RankSet::new(tasks)),
            GuestScheduler::Edf => Ready::Edf(BinaryHeap::with_capacity(tasks)),
        }
    }

    /// The rank of the task that should run.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        match self {
            Ready::FixedPriority(ranks) => ranks.first(),
            Ready::Edf(jobs) => jobs.peek().map(|Reverse((_, _, rank))| *rank),
        }
    }

    /// A task that had nothing to do has a job with this absolute deadline.
    #[inline]
    pub fn insert(&mut self, rank: u32, place: u32, deadline_ns: i64) {
        match self {
            Ready::FixedPriority(ranks) => ranks.insert(rank),
            Ready::Edf(jobs) => jobs.push(Reverse((deadline_ns, place, rank))),
        }
    }

    /// The job of the first task is done; its next job, if one waits, has this deadline.
    #[inline]
    pub fn complete_first(&mut self, rank: u32, place: u32, next_deadline_ns: Option<i64>) {
        match self {
            Ready::FixedPriority(ranks) => {
                if next_deadline_ns.is_none() {
                    ranks.remove(rank);
                }
            }
            Ready::Edf(jobs) => {
                jobs.pop();
                if let Some(deadline_ns) = next_deadline_ns {
                    jobs.push(Reverse((deadline_ns, place, rank)));
                }
            }
        }
    }
}

/// A set of small numbers with its least at hand: a bit each, and a bit for each word of bits.
pub struct RankSet {
    words: Box<[u64]>,
    summary: Box<[u64]>,
    first: Option<u32>,
}

impl RankSet {
    pub fn new(ranks: usize) -> RankSet {
        let words = ranks.div_ceil(64).max(1);
        RankSet {
            words: vec![0; words].into(),
            summary: vec![0; words.div_ceil(64)].into(),
            first: None,
        }
    }

    #[inline]
    pub fn insert(&mut self, rank: u32) {
        let word = rank as usize / 64;
        self.words[word] |= 1 << (rank % 64);
        self.summary[word / 64] |= 1 << (word % 64);
        self.first = Some(self.first.map_or(rank, |first| first.min(rank)));
    }

    #[inline]
    pub fn remove(&mut self, rank: u32) {
        let word = rank as usize / 64;
        self.words[word] &= !(1 << (rank % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
        self.first = self.find_first();
    }

    #[inline]
    pub fn first(&self) -> Option<u32> {
        self.first
    }

    #[inline]
    fn find_first(&self) -> Option<u32> {
        for (at, &summary) in self.summary.iter().enumerate() {
            if summary != 0 {
                let word = at * 64 + summary.trailing_zeros() as usize;
                return Some(word as u32 * 64 + self.words[word].trailing_zeros());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn rank_set_is_a_set(steps in prop::collection::vec((0_u32..9000, any::<bool>()), 1..300)) {
            let mut ranks = RankSet::new(9000);
            let mut plain = BTreeSet::new();
            for (rank, insert) in steps {
                if insert {
                    ranks.insert(rank);
                    plain.insert(rank);
                } else {
                    ranks.remove(rank);
                    plain.remove(&rank);
                }
                prop_assert_eq!(ranks.first(), plain.first().copied());
            }
        }
    }
}
