//! The rules of scheduler S (docs/explanation/policies.md), as far as they can be checked step by step: places in
//! the queue, who must be chosen, what is charged, what an accounting may do.

use crate::credits::{BOOST, OVER};
use laxity_policies::{Part, Policy};
use laxity_policy::DumpLine;

/// How many of one part a thief looks at, and laxity lets stand before a VCPU.
const SCAN: usize = 16;
const THRESHOLD_NS: i64 = 2_000_000;

/// What the storm knows of a VCPU beside its class and credits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Vcpu {
    /// How long it ran the last time.
    pub last_run_ns: i64,
    /// Since when it waits.
    pub waits_since_ns: i64,
}

/// A VCPU of a queue, or one that comes to it.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    pub vcpu: usize,
    /// The part of the queue in which it is; of one that comes, its class.
    pub part: i64,
    /// 0: not real-time.
    pub laxity_ns: i64,
    pub known: Vcpu,
}

/// The parts of a CPU's queue in which VCPUs wait, first to last, from a dump.
pub fn waiting(lines: &[DumpLine]) -> Vec<(i64, usize)> {
    let part = |state: &str| {
        ["boost", "under", "over"]
            .iter()
            .position(|&part| part == state)
    };
    (lines.iter())
        .filter_map(|line| Some((part(&line.state)? as i64, line.vcpu)))
        .collect()
}

/// Puts a VCPU into a queue.
pub fn enqueue(policy: Policy, queue: &mut Vec<Waiting>, mut vcpu: Waiting) {
    let class = vcpu.part;
    let end = queue.partition_point(|other| other.part <= class);
    let mut place = end;
    if policy.has(Part::Laxity) && vcpu.laxity_ns > 0 && class != OVER {
        let fits = |count: &usize| {
            let wait_ns: i64 = (queue[..*count].iter())
                .map(|other| other.known.last_run_ns)
                .sum();
            *count <= SCAN && wait_ns <= vcpu.laxity_ns
        };
        place = (0..=end).rev().find(fits).expect("nobody before it fits");
    }
    if place < end {
        vcpu.part = queue[place].part;
    }
    queue.insert(place, vcpu);
}

/// The VCPU that a CPU must choose, but for LL's move: from its own queue or another's.
pub fn choice(
    policy: Policy,
    cpu: usize,
    queues: &[Vec<Waiting>],
    may_run: impl Fn(usize, usize) -> bool,
) -> Option<usize> {
    let own = queues[cpu].first();
    let looks = own.is_none_or(|own| own.part == OVER) || policy.has(Part::Balance);
    for step in 1..queues.len() {
        let other = &queues[(cpu + step) % queues.len()];
        let first_of = |part: i64| {
            (other.iter().filter(move |vcpu| vcpu.part == part))
                .take(SCAN)
                .find(|vcpu| {
                    may_run(vcpu.vcpu, cpu) && !(policy.has(Part::Bind) && vcpu.laxity_ns > 0)
                })
        };
        let better = own.map_or(OVER + 1, |own| own.part);
        if let Some(found) = (BOOST..better).find_map(first_of)
            && looks
        {
            return Some(found.vcpu);
        }
        if let Some(own) = own
            && policy.has(Part::Balance)
            && own.laxity_ns == 0
            && let Some(equal) = first_of(own.part)
        {
            let longer_ns = own.known.waits_since_ns - equal.known.waits_since_ns;
            if equal.laxity_ns > 0 || longer_ns >= THRESHOLD_NS {
                return Some(equal.vcpu);
            }
        }
    }
    own.map(|own| own.vcpu)
}
