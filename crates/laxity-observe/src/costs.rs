//! The costs of the hypervisor's own decisions.

use laxity_trace::{Kind, NONE, Record};
use schemars::JsonSchema;
use serde::Serialize;

/// What a decision costs on average, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Costs {
    /// A decision that leaves who runs.
    pub schedule_ns: i64,
    /// What a decision costs more that changes who runs.
    pub context_switch_ns: i64,
    /// The number of decisions with a cost; 0 if the trace has no costs.
    pub measured: u64,
}

/// The mean costs of the decisions of a trace.
pub fn costs(records: &[Record]) -> Costs {
    let mut running = std::collections::HashMap::new();
    // Sum and number of the decisions that left who runs, and of those that did not.
    let mut sums = [(0_i64, 0_i64); 2];
    for record in records
        .iter()
        .filter(|record| record.kind == Kind::Schedule)
    {
        let who = (record.domain, record.vcpu);
        let before = running.insert(record.cpu, who).unwrap_or((NONE, NONE));
        if record.argument > 0 {
            let (sum_ns, count) = &mut sums[usize::from(before != who)];
            *sum_ns = sum_ns.saturating_add(record.argument);
            *count += 1;
        }
    }
    let mean_ns = |(sum_ns, count): (i64, i64)| if count > 0 { sum_ns / count } else { 0 };
    let (left_ns, changed_ns) = (mean_ns(sums[0]), mean_ns(sums[1]));
    // Where no decision leaves who runs, all of the cost is the decision's.
    let schedule_ns = if sums[0].1 > 0 { left_ns } else { changed_ns };
    Costs {
        schedule_ns,
        context_switch_ns: (changed_ns - schedule_ns).max(0),
        measured: (sums[0].1 + sums[1].1) as u64,
    }
}
