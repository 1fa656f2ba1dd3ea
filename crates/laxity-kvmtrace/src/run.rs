//! The run that a dump is of.

use laxity_replay::Jobs;

/// The run that a dump is of.
#[derive(Debug, Clone, Copy)]
pub struct KvmRun<'a> {
    /// The jobs of the run, with the metadata that will stand in the trace.
    pub jobs: Jobs<'a>,
    /// For each domain, the thread of each VCPU.
    pub threads: &'a [Vec<i32>],
    /// The start of the run, in ns of the TSC's clock: cycles by its rate.
    pub start_ns: i64,
    /// The file of `laxity-scx`, if a policy of Laxity scheduled.
    pub policy: Option<&'a [u8]>,
}
