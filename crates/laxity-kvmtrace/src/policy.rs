//! What a policy of Laxity did to VCPUs, as `laxity-scx` writes it.

use crate::error::KvmError;
use crate::events::Threads;
use crate::input::Input;
use crate::run::KvmRun;
use laxity_replay::{Event, What, Who};

pub const MAGIC: [u8; 8] = *b"LAXITYPT";
const EVENT_BYTES: usize = 24;
const WHAT: &str = "the policy's events";

/// Adds the events of the file. `ns` makes times of cycles.
pub fn read(
    file: &[u8],
    ns: impl Fn(u64) -> i128,
    run: &KvmRun,
    threads: &Threads,
    events: &mut Vec<Event>,
) -> Result<(), KvmError> {
    let mut input = Input::new(file);
    if input.take(MAGIC.len(), WHAT)? != MAGIC {
        return Err(KvmError::PolicyMagic);
    }
    let lost = input.long(WHAT)?;
    if lost > 0 {
        return Err(KvmError::PolicyLost { events: lost });
    }
    let count = input.long(WHAT)?;
    let bytes =
        usize::try_from(count).map_or(usize::MAX, |count| count.saturating_mul(EVENT_BYTES));
    let mut input = input.inside(bytes, WHAT)?;
    while !input.rest.is_empty() {
        let offset = input.offset;
        let damaged = |reason| KvmError::Damaged { offset, reason };
        let cycles = input.long(WHAT)?;
        let thread = input.word(WHAT)?;
        let number = input.word(WHAT)?;
        let argument = input.long(WHAT)? as i64;
        // A thread that was a VCPU's before the run began.
        let Who::Vcpu(vcpu) = threads.who(thread.into()) else {
            continue;
        };
        let time_ns = i64::try_from(ns(cycles) - i128::from(run.start_ns))
            .map_err(|_| damaged(format!("cycle {cycles} is beyond all time")))?;
        let cpus = run.jobs.metadata.cpus;
        events.push(Event {
            cycles,
            time_ns,
            offset,
            // The policy has one lock for all CPUs, and does not say which of them it served.
            cpu: 0,
            what: What::of_policy(vcpu, number, argument, cpus).map_err(damaged)?,
        });
    }
    Ok(())
}
