//! Converts Xen's trace buffers, and the guests' reports of their jobs, to the project's own trace.
//!
//! # What is read
//!
//! The file that `laxity-trace` writes in dom0, little-endian:
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | 8 bytes | `LAXITYXT` |
//! | 8 | u32 | version of the layout: 1 |
//! | 12 | u32 | number of CPUs |
//! | 16 | u64, u64 | cycle counter, and `CLOCK_REALTIME` in ns, when tracing began |
//! | 32 | u64, u64 | the same when it ended |
//! | 48 | for each CPU | u32 number, u32 0, u64 *n*, and *n* bytes: `struct t_rec` of Xen's `public/trace.h`, oldest first |
//!
//! Used are `TRC_SCHED_SWITCH`, `_INFNEXT`, `_INFCONT`, `_WAKE`, `_BLOCK` and `_RUNSTATE_CHANGE`, which Xen
//! writes whatever the scheduler, the events of Laxity's own scheduler, the replenishments of rtds and
//! the credits of credit2. Everything else is passed over.
//!
//! # What becomes of it
//!
//! - A cycle count becomes a time on the straight line through the file's two pairs.
//! - CPUs keep Xen's numbers; the host's are the first of them. On others its domains must not run.
//! - A decision of Xen (`SWITCH` if it changes who runs, `SWITCH_INFCONT` if not) is a `Schedule`, with what
//!   `MEASURE` says of its cost, which is 0 without. The `MEASURE` of a decision comes after it.
//! - A VCPU blocks when it says so, unless it is woken before it leaves its CPU. It wakes when its run state
//!   changes; by `WAKE` where run states were not traced. A paused VCPU counts as blocked.
//! - `Run` says until when the decision holds: from `DECISION`, or from `SWITCH_INFNEXT`, which has 32 bits of
//!   it, so that turns of stock schedulers of 4.29 s and more read too short.
//! - `laxity-replay` does the rest.
#![forbid(unsafe_code)]

mod clock;
mod credits;
mod deadlines;
mod decode;
mod error;
mod input;
mod names;
mod run;
#[cfg(test)]
mod tests;

pub use error::XenError;
pub use run::XenRun;

use decode::{Decoded, decode};
use laxity_replay::{Clock, Replay, Summary};
use laxity_trace::Record;
use names::Names;

/// The time of the run by cycles, for what else counts them.
///
/// # Errors
///
/// The dump's header is damaged, or not of the run.
pub fn clock(dump: &[u8], run: &XenRun) -> Result<Clock, XenError> {
    let (_, _, clock) = decode::header(dump, run)?;
    Ok(clock)
}

/// Makes the records of a trace, and the summary. All is held in memory.
///
/// # Errors
///
/// The dump is damaged or not complete, or does not fit the run; see [`XenError`].
pub fn import(dump: &[u8], run: &XenRun) -> Result<(Vec<Record>, Summary), XenError> {
    let names = Names::new(run)?;
    let replay = Replay::new(&run.jobs)?;
    let Decoded {
        mut events,
        measures,
        credits,
        replenishments,
        clock,
        cpus,
        ..
    } = decode(dump, run, &names)?;
    // Each CPU's are in order; the sort is stable, so at one instant CPUs stay by number.
    events.sort_by_key(|event| event.cycles);
    let (records, mut summary) = replay.run(&names.vcpus, &events, cpus)?;
    measures.fill_in(&mut summary, &clock, run.jobs.metadata.duration_ns);
    let by_domain = |of_vcpus: Vec<Option<i64>>| {
        let mut of_vcpus = of_vcpus.into_iter();
        let domains = run.jobs.metadata.domains.iter();
        domains
            .map(|domain| of_vcpus.by_ref().take(domain.vcpus as usize).collect())
            .collect()
    };
    summary.deadlines_ns = by_domain(deadlines::deadlines(&replenishments, &names));
    summary.credits_ns = by_domain(credits::at_start(credits, &names));
    Ok((records, summary))
}
