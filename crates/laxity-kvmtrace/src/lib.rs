//! Converts the trace buffers of a Linux host, and the guests' reports of their jobs, to the project's own trace.
//!
//! # What is read
//!
//! The file that `laxity-ftrace` writes on the host, little-endian:
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | 8 bytes | `LAXITYLT` |
//! | 8 | u32 | version of the layout: 1 |
//! | 12 | u32 | number of CPUs |
//! | 16 | u64 | kHz of the TSC |
//! | 24 | u64, u64 | cycles of the TSC when tracing began, and when it ended |
//! | 40 | u32 | number of texts, then for each u32 *n* and *n* bytes |
//! | then | for each CPU | u32 number, u32 bytes of a page, u64 lost events, u64 *n*, *n* bytes |
//!
//! The texts are the formats that tracefs has of the buffers' pages and of the events. The bytes of a CPU are pages as
//! the kernel's ring buffer has them, oldest first.
//! Pages and events are laid out as the kernel's `Documentation/trace/ring-buffer-map.rst` and
//! `include/linux/ring_buffer.h` say. Used are `sched_switch` and `sched_wakeup`, and `kvm_entry` and `kvm_exit` where
//! both are there; where their fields stand is taken from the formats, which differ among kernels. Everything else is
//! passed over.
//!
//! What a policy of Laxity did to VCPUs is in the file that `laxity-scx` writes, little-endian:
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | 8 bytes | `LAXITYPT` |
//! | 8 | u64 | events that were lost |
//! | 16 | u64 | *n*, then *n* events |
//!
//! An event is u64 cycles of the TSC, u32 thread, u32 its number in `enum laxity_event`, and i64 its argument.
//!
//! [`Recording`] reads the same pages out of the files of trace-cmd, `trace.dat`, and in these, where they are, the
//! events of packets: `netif_receive_skb`, `net_dev_queue`, `skb_copy_datagram_iovec`, `kfree_skb`, `consume_skb`,
//! `sk_data_ready` and `sock_recv_length`.
//!
//! # What becomes of it
//!
//! - A cycle count becomes a time by the rate of the TSC, which all CPUs share.
//! - The thread of a VCPU is the VCPU; thread 0 of a CPU is idle; every other thread is foreign, the VMM's own
//!   among them.
//! - A switch is a `Schedule`, whose cost is not known. Decisions that change nothing are not traced by Linux.
//! - A VCPU blocks when its thread leaves the CPU and is not runnable. It was preempted if it is runnable, also
//!   when its budget is used up.
//! - The guest of a VCPU is left and entered when KVM says so in the thread of the VCPU.
//! - `laxity-replay` does the rest.
#![forbid(unsafe_code)]

mod dump;
mod error;
mod events;
mod exits;
mod format;
mod input;
mod packets;
mod pages;
mod policy;
mod recording;
mod run;
#[cfg(test)]
mod tests;
mod tracedat;

pub use error::KvmError;
pub use packets::Delivered;
pub use recording::{Packets, Recording, Survey, Thread};
pub use run::KvmRun;

use dump::decode;
use laxity_replay::{Replay, Summary, Vcpus};
use laxity_trace::Record;

/// Makes the records of a trace, and the summary. All is held in memory.
///
/// # Errors
///
/// The dump is damaged or not complete, or does not fit the run; see [`KvmError`].
pub fn import(dump: &[u8], run: &KvmRun) -> Result<(Vec<Record>, Summary), KvmError> {
    let vcpus = Vcpus::new(run.jobs.metadata)?;
    let replay = Replay::new(&run.jobs)?;
    let (mut events, cpus) = decode(dump, run, &vcpus)?;
    // Each CPU's are in order; the sort is stable, so at one instant CPUs stay by number.
    events.sort_by_key(|event| event.cycles);
    exits::leave_out_reentered(&mut events);
    Ok(replay.run(&vcpus, &events, cpus)?)
}
