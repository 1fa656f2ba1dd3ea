//! The run that a dump is of.

use laxity_replay::Jobs;

/// What there is to know of a run beside its trace buffers.
#[derive(Debug, Clone, Copy)]
pub struct XenRun<'a> {
    /// The jobs of the run, with the metadata that will stand in the trace.
    pub jobs: Jobs<'a>,
    /// The number that Xen gave each domain, in the order of the metadata.
    pub domids: &'a [u16],
    /// `CLOCK_REALTIME` at time 0 of the run.
    pub start_realtime_ns: i64,
}
