//! The decoder of a dump: bytes become events, CPU by CPU.

use crate::error::KvmError;
use crate::events::{Formats, Threads, read_pages};
use crate::input::Input;
use crate::policy;
use crate::run::KvmRun;
use laxity_replay::{Event, Vcpus};
use laxity_trace::NONE;

pub const MAGIC: [u8; 8] = *b"LAXITYLT";
pub const VERSION: u32 = 1;

/// More than any kernel has.
const TEXTS_MAX: u32 = 64;
/// A TSC counts at 10 MHz at least, and at 100 GHz at most.
const KHZ: std::ops::RangeInclusive<u64> = 10_000..=100_000_000;
const PER_KHZ: i128 = 1_000_000;

/// The events of all CPUs, those of each in order, and the number of CPUs.
pub fn decode(dump: &[u8], run: &KvmRun, vcpus: &Vcpus) -> Result<(Vec<Event>, usize), KvmError> {
    let threads = Threads::new(run, vcpus)?;
    let mut input = Input::new(dump);
    if !dump.starts_with(&MAGIC) {
        return Err(KvmError::Magic);
    }
    input.take(MAGIC.len(), "the header")?;
    let version = input.word("the header")?;
    if version != VERSION {
        return Err(KvmError::Version { version });
    }
    let cpus = input.word("the header")?;
    let khz = clock(&mut input, run)?;
    let formats = Formats::new(&texts(&mut input)?)?;

    let mut events = Vec::new();
    let mut count = run.jobs.metadata.cpus as usize;
    let mut last: Option<u16> = None;
    for _ in 0..cpus {
        let offset = input.offset;
        let number = input.word("a CPU's header")?;
        let cpu = u16::try_from(number).ok().filter(|&cpu| cpu != NONE);
        let Some(cpu) = cpu.filter(|&cpu| last.is_none_or(|last| last < cpu)) else {
            let reason = format!("CPU {number}; they are in order and below {NONE}");
            return Err(KvmError::Damaged { offset, reason });
        };
        last = Some(cpu);
        count = count.max(usize::from(cpu) + 1);
        decode_cpu(&mut input, cpu, khz, run, &threads, &formats, &mut events)?;
    }
    if !input.rest.is_empty() {
        return Err(KvmError::Damaged {
            offset: input.offset,
            reason: format!("{} bytes after the last CPU", input.rest.len()),
        });
    }
    if let Some(file) = run.policy {
        policy::read(file, ns_at(khz), run, &threads, &mut events)?;
    }
    Ok((events, count))
}

/// The rate of the TSC, if the run is within what was traced.
fn clock(input: &mut Input, run: &KvmRun) -> Result<i128, KvmError> {
    let offset = input.offset;
    let khz = input.long("the header")?;
    if !KHZ.contains(&khz) {
        let reason = format!("no TSC counts at {khz} kHz");
        return Err(KvmError::Damaged { offset, reason });
    }
    let khz = i128::from(khz);
    let mut ns = || Ok::<_, KvmError>(i128::from(input.long("the header")?) * PER_KHZ / khz);
    let (traced_from_ns, traced_to_ns) = (ns()?, ns()?);
    let from_ns = i128::from(run.start_ns);
    let to_ns = from_ns + i128::from(run.jobs.metadata.duration_ns);
    if from_ns < traced_from_ns || to_ns > traced_to_ns {
        return Err(KvmError::Window {
            from_ns,
            to_ns,
            traced_from_ns,
            traced_to_ns,
        });
    }
    Ok(khz)
}

/// The time of a count of cycles, ns.
fn ns_at(khz: i128) -> impl Fn(u64) -> i128 {
    move |cycles| i128::from(cycles) * PER_KHZ / khz
}

fn texts<'a>(input: &mut Input<'a>) -> Result<Vec<&'a str>, KvmError> {
    let offset = input.offset;
    let damaged = |reason: String| KvmError::Damaged { offset, reason };
    let count = input.word("the formats")?;
    if count > TEXTS_MAX {
        return Err(damaged(format!("{count} formats")));
    }
    let mut texts = Vec::new();
    for _ in 0..count {
        let bytes = input.word("a format")? as usize;
        let text = std::str::from_utf8(input.take(bytes, "a format")?);
        texts.push(text.map_err(|_| damaged("a format that is not text".into()))?);
    }
    Ok(texts)
}

fn decode_cpu(
    input: &mut Input,
    cpu: u16,
    khz: i128,
    run: &KvmRun,
    threads: &Threads,
    formats: &Formats,
    events: &mut Vec<Event>,
) -> Result<(), KvmError> {
    let offset = input.offset;
    let page_bytes = input.word("a CPU's header")? as usize;
    let lost = input.long("a CPU's header")?;
    if lost > 0 {
        return Err(KvmError::Lost { events: lost, cpu });
    }
    // Where memory is smaller than the number, it is not there either.
    let bytes = usize::try_from(input.long("a CPU's header")?).unwrap_or(usize::MAX);
    let first = input.offset;
    let buffer = input.take(bytes, "a CPU's buffer")?;
    if page_bytes == 0 || buffer.len() % page_bytes != 0 {
        let reason = format!("{bytes} bytes in pages of {page_bytes}");
        return Err(KvmError::Damaged { offset, reason });
    }
    read_pages(
        (cpu, first),
        buffer,
        page_bytes,
        ns_at(khz),
        run,
        threads,
        formats,
        events,
    )
}
