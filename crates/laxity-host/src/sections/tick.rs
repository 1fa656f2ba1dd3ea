//! A domain's `tick`: the timer of its kernel.

use laxity_config::{Field, MICROSECOND_NS, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checks::shorter;
use crate::quantities::{NotNegative, Positive};

/// The timer of a guest's kernel, on each VCPU: the rules of the policies, "Ticks of guests".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tick {
    /// The time from one tick to the next; at least 2.
    pub period_ns: i64,
    /// The CPU time of each tick; at least 1, below the period.
    pub cost_ns: i64,
    /// The time of the first tick; below the period.
    pub offset_ns: i64,
    /// The least time ahead for which the kernel sets its timer; below the period, 0 for any.
    pub min_delta_ns: i64,
    /// The CPU time in which the kernel wakes a task for a job, and puts it to sleep in the end; below the period.
    pub wake_ns: i64,
}

impl Tick {
    /// The CPU time of the interrupt by which a job comes whose task has to be woken; 0 if it comes by none.
    pub fn interrupt_ns(&self) -> i64 {
        if self.wake_ns > 0 { self.cost_ns } else { 0 }
    }
}

/// The timer interrupts of a guest's kernel.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { period = \"4 ms\", cost = \"40 us\" }"
)]
#[schemars(extend("required" = ["period", "cost"]))]
pub(crate) struct TickTable {
    /// The time between two ticks. At most 1 h.
    pub period: Field<Positive>,
    /// The CPU time of each tick; shorter than the period.
    pub cost: Field<Positive<MICROSECOND_NS>>,
    /// The time of the first tick; shorter than the period.
    #[schemars(extend("default" = "0 ms"))]
    pub offset: Field<NotNegative>,
    /// The least time ahead for which the kernel sets its timer; shorter than the period. A job that is due sooner
    /// comes late. Linux on Xen has 100 us.
    #[schemars(extend("default" = "0 ms"))]
    pub min_delta: Field<NotNegative<MICROSECOND_NS>>,
    /// The CPU time in which the kernel wakes a task that waits for its job, and puts it to sleep in the end; shorter
    /// than the period. With it such a job comes by an interrupt, which takes `cost`, too.
    #[schemars(extend("default" = "0 ms"))]
    pub wake: Field<NotNegative<MICROSECOND_NS>>,
}

pub(crate) fn resolve(table: &TickTable, span: Span, problems: &Problems) -> Tick {
    if table.period.is_missing("period", span, problems) {
        let help = "write the time between two ticks: period = \"4 ms\", say";
        problems.report(span, "`tick` has no `period`", help);
    }
    if table.cost.is_missing("cost", span, problems) {
        let help = "write the CPU time of each tick: cost = \"40 us\", say";
        problems.report(span, "`tick` has no `cost`", help);
    }
    let period = ("period", &table.period);
    shorter(("cost", &table.cost), period, "the period", problems);
    shorter(("offset", &table.offset), period, "the period", problems);
    let min_delta = ("min-delta", &table.min_delta);
    shorter(min_delta, period, "the period", problems);
    shorter(("wake", &table.wake), period, "the period", problems);
    Tick {
        period_ns: table.period.ns_or(2),
        cost_ns: table.cost.ns_or(1),
        offset_ns: table.offset.ns_or(0),
        min_delta_ns: table.min_delta.ns_or(0),
        wake_ns: table.wake.ns_or(0),
    }
}
