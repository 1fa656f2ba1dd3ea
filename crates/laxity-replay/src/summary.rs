//! The summary of a run, made from its events.

use schemars::JsonSchema;
use serde::Serialize;

/// What the buffers say of the run, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Summary {
    /// Decisions on the host's CPUs.
    pub decisions: u64,
    /// Those of them that changed who runs.
    pub switches: u64,
    /// Those of `decisions` that concern foreign VCPUs and none of the host's: not in the trace.
    pub foreign_decisions: u64,
    /// Those of them that changed who runs.
    pub foreign_switches: u64,
    /// Time in which the host's CPUs ran foreign VCPUs.
    pub foreign_ns: i64,
    /// Time in which they ran nobody.
    pub idle_ns: i64,
    /// CPU time of each VCPU, by domain.
    pub cpu_ns: Vec<Vec<i64>>,
    /// A deadline of each VCPU by domain, from the start of the run, where the scheduler names deadlines.
    pub deadlines_ns: Vec<Vec<Option<i64>>>,
    /// Credits of each VCPU by domain, at the start of the run, where the scheduler tells of credits.
    pub credits_ns: Vec<Vec<Option<i64>>>,
    /// What each measured decision cost, in order of time; foreign ones, too.
    pub decision_ns: Vec<i64>,
    /// What each measured context switch cost, in order of time; foreign ones, too.
    pub switch_ns: Vec<i64>,
    /// What the scheduler cost in timers and wakes, all in all.
    pub timer_ns: i64,
    /// How many timers and wakes these were.
    pub timers: u64,
}
