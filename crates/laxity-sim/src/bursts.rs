//! VCPUs that compute with pauses.

use crate::random::{Purpose, stream, uniform_ns};
use crate::timers::NEVER;
use crate::workloads::{Found, Workloads};
use laxity_host::{Host, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// All VCPUs of a host that do so.
pub struct Bursts {
    /// The computing of each VCPU of the host.
    vcpus: Vec<Burst>,
    /// Ends of pauses, in the order in which the pauses began where they end at once: time, number, VCPU.
    pauses: BinaryHeap<Reverse<(i64, u64, usize)>>,
    begun: u64,
    signals: Vec<usize>,
}

/// A VCPU's computing. One that has other work computes for no time.
#[derive(Clone, Copy, Default)]
struct Burst {
    run_ns: i64,
    idle_ns: i64,
    /// It is not in a pause. A computation without time left is not over before the engine says so.
    computes: bool,
    /// CPU time that the present computation still needs.
    left_ns: i64,
}

impl Bursts {
    /// Each VCPU begins somewhere in its cycle.
    pub fn new(host: &Host) -> Bursts {
        let mut bursts = Bursts {
            vcpus: Vec::new(),
            pauses: BinaryHeap::new(),
            begun: 0,
            signals: Vec::new(),
        };
        for (domain, description) in host.domains.iter().enumerate() {
            let mut random = stream(host.seed, Purpose::Workload, domain);
            for _ in &description.vcpus {
                let mut burst = Burst::default();
                if let Some(Workload::Bursts { run_ns, idle_ns }) = description.workload {
                    (burst.run_ns, burst.idle_ns) = (run_ns, idle_ns);
                    bursts.pause(
                        uniform_ns(run_ns + idle_ns, &mut random),
                        bursts.vcpus.len(),
                    );
                }
                bursts.vcpus.push(burst);
            }
        }
        bursts
    }

    /// Whether the host has any.
    pub fn are_in(host: &Host) -> bool {
        let mut domains = host.domains.iter();
        domains.any(|domain| matches!(domain.workload, Some(Workload::Bursts { .. })))
    }

    fn pause(&mut self, until_ns: i64, vcpu: usize) {
        self.begun += 1;
        self.pauses.push(Reverse((until_ns, self.begun, vcpu)));
    }
}

impl Workloads for Bursts {
    const ANY: bool = true;

    #[inline]
    fn has(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].run_ns > 0
    }

    #[inline]
    fn has_work(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].computes
    }

    #[inline]
    fn next_ns(&self) -> i64 {
        self.pauses
            .peek()
            .map_or(NEVER, |Reverse((until_ns, ..))| *until_ns)
    }

    fn serve(&mut self, _: i64) {
        if let Some(Reverse((.., vcpu))) = self.pauses.pop() {
            let burst = &mut self.vcpus[vcpu];
            burst.computes = true;
            burst.left_ns = burst.run_ns;
            self.signals.push(vcpu);
        }
    }

    #[inline]
    fn take_signal(&mut self) -> Option<usize> {
        self.signals.pop()
    }

    #[inline]
    fn current(&mut self, vcpu: usize, _: i64) -> Option<i64> {
        let burst = &self.vcpus[vcpu];
        burst.computes.then_some(burst.left_ns)
    }

    #[inline]
    fn advance(&mut self, vcpu: usize, ns: i64) {
        self.vcpus[vcpu].left_ns -= ns;
    }

    /// It does one thing only.
    #[inline]
    fn is_to_switch(&self, _: usize) -> bool {
        false
    }

    fn complete(&mut self, vcpu: usize, now: i64) {
        debug_assert_eq!(self.vcpus[vcpu].left_ns, 0);
        self.vcpus[vcpu].computes = false;
        self.pause(now + self.vcpus[vcpu].idle_ns, vcpu);
    }

    fn finish(self, _: &Host) -> Found {
        Found::default()
    }
}
