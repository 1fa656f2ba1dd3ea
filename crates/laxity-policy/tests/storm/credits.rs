//! The rules of credit (docs/explanation/policies.md), some of which scheduler S shares, as far as
//! they can be checked step by step: who must be chosen, what a tick and an accounting may do to
//! credits and classes.

use laxity_policy::{DumpLine, Event, Report};

/// Classes as the policy reports them.
pub const BOOST: i64 = 0;
pub const UNDER: i64 = 1;
pub const OVER: i64 = 2;
pub const PARKED: i64 = 3;

/// How many VCPUs of one class a thief looks at.
const STEAL_SCAN: usize = 16;

/// What the policy has reported of a VCPU.
#[derive(Debug, Clone, Copy)]
pub struct Vcpu {
    pub class: i64,
    pub credits_ns: i64,
}

impl Vcpu {
    pub const NEW: Vcpu = Vcpu {
        class: UNDER,
        credits_ns: 0,
    };

    pub fn hear(&mut self, report: &Report) {
        match report.event {
            Event::Class => self.class = report.argument,
            Event::Budget | Event::Replenish => self.credits_ns = report.argument,
            Event::Exhaust | Event::Migrate => {}
        }
    }
}

/// The VCPUs that wait on a CPU, by class, first come first, from a dump of its queues.
pub fn waiting(lines: &[DumpLine]) -> [Vec<usize>; 3] {
    ["boost", "under", "over"].map(|name| {
        lines
            .iter()
            .filter(|line| line.state == name)
            .map(|line| line.vcpu)
            .collect()
    })
}

/// The VCPU that a CPU must choose, where `waiting` are those of each CPU, its own last VCPU among them.
pub fn choice(
    cpu: usize,
    waiting: &[[Vec<usize>; 3]],
    may_run: impl Fn(usize, usize) -> bool,
) -> Option<usize> {
    let best = waiting[cpu]
        .iter()
        .position(|class| !class.is_empty())
        .unwrap_or(3);
    if best >= OVER as usize {
        for step in 1..waiting.len() {
            let other = (cpu + step) % waiting.len();
            for class in &waiting[other][..best] {
                let stolen = class
                    .iter()
                    .take(STEAL_SCAN)
                    .find(|&&vcpu| may_run(vcpu, cpu));
                if stolen.is_some() {
                    return stolen.copied();
                }
            }
        }
    }
    waiting[cpu].get(best).map(|class| class[0])
}
