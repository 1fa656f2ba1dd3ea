//! From Xen's trace buffers and the guests' reports of their jobs to the project's own trace.
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
//! writes whatever the scheduler, and the events of Laxity's own scheduler. Everything else is passed over.
//!
//! # What becomes of it
//!
//! - A cycle count becomes a time on the straight line through the file's two pairs; time 0 is the start of
//!   the run. What is before 0 only tells who runs and who is runnable then: the trace begins with a `Wake` of
//!   each runnable VCPU and a `Run` of each running one. What is after the end is cut.
//! - CPUs keep Xen's numbers; the host's are the first of them. On others its domains must not run.
//! - VCPUs that are not of the host file (dom0's) are *foreign*: a CPU that runs one is idle in the trace, and
//!   the time is in [`Summary::foreign_ns`]. A decision that only concerns foreign VCPUs is not in it.
//! - A decision of Xen (`SWITCH` if it changes who runs, `SWITCH_INFCONT` if not) is a `Schedule`, with what
//!   `MEASURE` says of its cost, which is 0 without. The `MEASURE` of a decision comes after it.
//! - A VCPU blocks when it says so, unless it is woken before it leaves its CPU. It wakes when its run state
//!   changes; by `WAKE` where run states were not traced. A paused VCPU counts as blocked.
//! - `Run` says until when the decision holds: from `DECISION`, or from `SWITCH_INFNEXT`, which has 32 bits of
//!   it, so that turns of stock schedulers of 4.29 s and more read too short.
//! - Jobs arrive as their tasks say, and complete as the guests report. There is no `Execute`: a hypervisor does
//!   not see which job its guest works on.
//! - At one instant: jobs that complete, jobs that arrive, then what Xen saw, CPUs by number.
#![forbid(unsafe_code)]

mod clock;
mod decode;
mod error;
mod input;
mod names;
mod replay;
mod run;
#[cfg(test)]
mod tests;

pub use error::XenError;
pub use run::{Summary, XenRun};

use decode::{Decoded, decode};
use laxity_trace::Record;
use names::Names;
use replay::{Host, jobs};

/// Makes the records of a trace, and the summary. All is held in memory.
///
/// # Errors
///
/// The dump is damaged or not complete, or does not fit the run; see [`XenError`].
pub fn import(dump: &[u8], run: &XenRun) -> Result<(Vec<Record>, Summary), XenError> {
    let names = Names::new(run)?;
    let jobs = jobs(run)?;
    let Decoded {
        mut events,
        measures,
        clock,
        cpus,
        ..
    } = decode(dump, run, &names)?;
    // Each CPU's are in order; the sort is stable, so at one instant CPUs stay by number.
    events.sort_by_key(|event| event.cycles);

    let mut host = Host::new(run.metadata, &names, cpus, &events);
    let mut jobs = jobs.into_iter().peekable();
    let end_ns = run.metadata.duration_ns;
    for event in &events {
        if event.time_ns > end_ns {
            break;
        }
        if !host.begun && event.time_ns >= 0 {
            host.begin(&mut jobs);
        }
        if host.begun {
            host.jobs(&mut jobs, event.time_ns);
        }
        host.event(event)?;
    }
    if !host.begun {
        host.begin(&mut jobs);
    }
    host.jobs(&mut jobs, end_ns);
    let (records, mut summary) = host.finish();
    measures.fill_in(&mut summary, &clock, end_ns);
    Ok((records, summary))
}
