//! Caches: the part of its working set that a VCPU finds in the cache of a CPU, and the part that it fetches again.
//!
//! A VCPU has a working set. It fetches the part that is not in the cache of its CPU as it works: until all is there,
//! half of its time goes into fetching. What it fetches drives others' parts out of a cache that is full, in
//! proportion to what each has there. A short run on a cold CPU thus loses little, a long one at most the whole
//! refill, and a VCPU that comes back soon to the same cache loses nothing. What a VCPU fetches is in no other cache
//! any longer: it writes to it, and a line that is written has one owner.

use laxity_host::{Cache, Host};

const LINE_BYTES: u64 = 64;

/// The caches of a host, and what every VCPU has in them.
pub struct Caches {
    /// The cache of each CPU, or none.
    of_cpu: Vec<Option<usize>>,
    caches: Vec<State>,
    /// The working set of each VCPU.
    working_set_bytes: Vec<u64>,
    /// What each VCPU has fetched.
    fetched_bytes: Vec<u64>,
    /// Fetching that the present run of each VCPU still has to do.
    debt_ns: Vec<i64>,
}

struct State {
    bytes: u64,
    refill_kib_ns: u64,
    /// What each VCPU has in this cache.
    resident_bytes: Vec<u64>,
}

impl Caches {
    /// All cold; `None` where nothing could be lost.
    pub fn new(host: &Host) -> Option<Caches> {
        let working_set_bytes: Vec<u64> = host
            .domains
            .iter()
            .flat_map(|domain| domain.vcpus.iter().map(|_| domain.working_set_bytes))
            .collect();
        if host.caches.is_empty() || working_set_bytes.iter().all(|&bytes| bytes == 0) {
            return None;
        }
        let vcpus = working_set_bytes.len();
        let of_cpu = (0..host.cpus)
            .map(|cpu| {
                host.caches
                    .iter()
                    .position(|cache| cache.cpus.contains(&cpu))
            })
            .collect();
        let state = |cache: &Cache| State {
            bytes: cache.bytes,
            refill_kib_ns: cache.refill_kib_ns as u64,
            resident_bytes: vec![0; vcpus],
        };
        Some(Caches {
            of_cpu,
            caches: host.caches.iter().map(state).collect(),
            working_set_bytes,
            fetched_bytes: vec![0; vcpus],
            debt_ns: vec![0; vcpus],
        })
    }

    /// The VCPU comes to a CPU where another was, or none.
    pub fn enter(&mut self, vcpu: usize, cpu: u32) {
        self.debt_ns[vcpu] = 0;
        if let Some(cache) = self.of_cpu[cpu as usize] {
            let state = &self.caches[cache];
            let wanted_bytes = self.working_set_bytes[vcpu].min(state.bytes);
            let missing_bytes = wanted_bytes.saturating_sub(state.resident_bytes[vcpu]);
            self.debt_ns[vcpu] = (missing_bytes * state.refill_kib_ns / 1024) as i64;
        }
    }

    /// How much longer `work_ns` of work takes for fetching.
    pub fn stall_ns(&self, vcpu: usize, work_ns: i64) -> i64 {
        self.debt_ns[vcpu].min(work_ns)
    }

    /// The VCPU has been on the CPU for `ns` more; answers what of it went into fetching.
    pub fn spend(&mut self, vcpu: usize, cpu: u32, ns: i64) -> i64 {
        let stalled_ns = self.debt_ns[vcpu].min(ns / 2);
        if stalled_ns == 0 {
            return 0;
        }
        self.debt_ns[vcpu] -= stalled_ns;
        if let Some(cache) = self.of_cpu[cpu as usize] {
            let state = &mut self.caches[cache];
            // A debt comes from a refill that costs something.
            let bytes = stalled_ns as u64 * 1024 / state.refill_kib_ns.max(1);
            state.fill(vcpu, bytes);
            self.fetched_bytes[vcpu] += bytes;
            self.take_from_others(vcpu, cache);
        }
        stalled_ns
    }

    /// What the VCPU has in this cache it has in no other one.
    fn take_from_others(&mut self, vcpu: usize, cache: usize) {
        let mut rest_bytes =
            self.working_set_bytes[vcpu].saturating_sub(self.caches[cache].resident_bytes[vcpu]);
        for (other, state) in self.caches.iter_mut().enumerate() {
            if other != cache {
                state.resident_bytes[vcpu] = state.resident_bytes[vcpu].min(rest_bytes);
                rest_bytes -= state.resident_bytes[vcpu];
            }
        }
    }

    /// Lines that the VCPU has fetched so far.
    pub fn misses(&self, vcpu: usize) -> u64 {
        self.fetched_bytes[vcpu] / LINE_BYTES
    }
}

impl State {
    /// The VCPU gets `bytes` more into the cache, at the cost of the others if it is full.
    fn fill(&mut self, vcpu: usize, bytes: u64) {
        self.resident_bytes[vcpu] = (self.resident_bytes[vcpu] + bytes).min(self.bytes);
        let mine = self.resident_bytes[vcpu];
        let others: u64 = self.resident_bytes.iter().sum::<u64>() - mine;
        let room = self.bytes - mine;
        if others > room {
            for (other, resident) in self.resident_bytes.iter_mut().enumerate() {
                if other != vcpu {
                    *resident =
                        (u128::from(*resident) * u128::from(room) / u128::from(others)) as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn caches(sizes: &[u64], working_sets: &[u64]) -> Caches {
        let vcpus = working_sets.len();
        Caches {
            of_cpu: (0..sizes.len()).map(Some).collect(),
            caches: sizes
                .iter()
                .map(|&bytes| State {
                    bytes,
                    refill_kib_ns: 1_600,
                    resident_bytes: vec![0; vcpus],
                })
                .collect(),
            working_set_bytes: working_sets.to_vec(),
            fetched_bytes: vec![0; vcpus],
            debt_ns: vec![0; vcpus],
        }
    }

    /// Works for `work_ns` in one go; the time that it takes.
    fn work(caches: &mut Caches, vcpu: usize, cpu: u32, work_ns: i64) -> i64 {
        let ns = work_ns + caches.stall_ns(vcpu, work_ns);
        assert_eq!(ns - caches.spend(vcpu, cpu, ns), work_ns);
        ns
    }

    #[test]
    fn a_cold_run_pays_for_its_working_set_once() {
        let mut caches = caches(&[4 << 20], &[1 << 20]);
        caches.enter(0, 0);
        // 1024 KiB at 1.6 us.
        assert_eq!(work(&mut caches, 0, 0, 1_000_000), 2_000_000);
        assert_eq!(work(&mut caches, 0, 0, 1_000_000), 1_638_400);
        assert_eq!(work(&mut caches, 0, 0, 1_000_000), 1_000_000);
        caches.enter(0, 0);
        assert_eq!(work(&mut caches, 0, 0, 1_000_000), 1_000_000);
        assert_eq!(caches.misses(0), (1 << 20) / 64);
    }

    #[test]
    fn who_fits_beside_the_others_loses_nothing_and_who_does_not_does() {
        for (size, stall_ns) in [(4 << 20, 0), (1 << 20, 1_000_000)] {
            let mut caches = caches(&[size], &[1 << 20, 1 << 20]);
            for vcpu in [0, 1, 0] {
                caches.enter(vcpu, 0);
                if vcpu == 0 && caches.misses(0) > 0 {
                    assert_eq!(caches.stall_ns(0, 1_000_000), stall_ns);
                }
                work(&mut caches, vcpu, 0, 10_000_000);
            }
        }
    }

    #[test]
    fn another_cpu_with_a_cache_of_its_own_is_cold() {
        let mut caches = caches(&[1 << 20, 1 << 20], &[1 << 19]);
        for (cpu, ns) in [(0, 10_819_200), (1, 10_819_200), (1, 10_000_000)] {
            caches.enter(0, cpu);
            assert_eq!(work(&mut caches, 0, cpu, 10_000_000), ns);
        }
    }

    #[test]
    fn what_is_fetched_elsewhere_is_cold_at_home() {
        let mut caches = caches(&[1 << 20, 1 << 20], &[1 << 19]);
        caches.enter(0, 0);
        work(&mut caches, 0, 0, 10_000_000);
        // 100 KiB of the 512, and back: those 100 are missing, the others are still there.
        for (cpu, work_ns, ns) in [(1, 160_000, 320_000), (0, 10_000_000, 10_160_000)] {
            caches.enter(0, cpu);
            assert_eq!(work(&mut caches, 0, cpu, work_ns), ns);
        }
    }

    proptest! {
        #[test]
        fn work_is_done_in_time_and_caches_never_overflow(
            sizes in prop::collection::vec(64_u64..1 << 22, 1..3),
            working_sets in prop::collection::vec(0_u64..1 << 22, 1..5),
            runs in prop::collection::vec((0_usize..5, 0_u32..3, prop::collection::vec(0_i64..3_000_000, 1..4)), 1..60),
        ) {
            let mut caches = caches(&sizes, &working_sets);
            for (vcpu, cpu, pieces) in runs {
                let (vcpu, cpu) = (vcpu % working_sets.len(), cpu % sizes.len() as u32);
                caches.enter(vcpu, cpu);
                let cold_ns = caches.debt_ns[vcpu];
                let mut stalled_ns = 0;
                for ns in pieces {
                    stalled_ns += caches.spend(vcpu, cpu, ns);
                    prop_assert!(stalled_ns <= cold_ns);
                }
                for state in &caches.caches {
                    prop_assert!(state.resident_bytes.iter().sum::<u64>() <= state.bytes);
                }
                for (vcpu, working_set) in working_sets.iter().enumerate() {
                    let everywhere = caches.caches.iter().map(|state| state.resident_bytes[vcpu]);
                    prop_assert!(everywhere.sum::<u64>() <= *working_set);
                }
            }
        }
    }
}
