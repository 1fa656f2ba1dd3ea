//! The run that a dump is of, and what the buffers say of it as a whole.

use laxity_trace::Metadata;
use serde::Serialize;

/// What there is to know of a run beside its trace buffers.
#[derive(Debug, Clone, Copy)]
pub struct XenRun<'a> {
    /// The metadata that will stand in the trace.
    pub metadata: &'a Metadata,
    /// The number that Xen gave each domain, in the order of the metadata.
    pub domids: &'a [u16],
    /// `CLOCK_REALTIME` at time 0 of the run.
    pub start_realtime_ns: i64,
    /// For each domain and task, when its jobs completed, from the start of the run, by job number;
    /// [`UNFINISHED`](laxity_run::UNFINISHED) for those that did not, and for those behind the end of the list.
    pub completions_ns: &'a [Vec<Vec<i64>>],
}

/// What the buffers say of the run, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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
    /// What each measured decision cost, in order of time; foreign ones, too.
    pub decision_ns: Vec<i64>,
    /// What each measured context switch cost, in order of time; foreign ones, too.
    pub switch_ns: Vec<i64>,
    /// What the scheduler cost in timers and wakes, all in all.
    pub timer_ns: i64,
    /// How many timers and wakes these were.
    pub timers: u64,
}
