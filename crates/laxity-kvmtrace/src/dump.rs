//! The dumps of `guest/ftrace.h`: their parts, and the events of a run.

use crate::error::KvmError;
use crate::events::{Formats, Threads, read_pages};
use crate::input::Input;
use crate::policy;
use crate::run::KvmRun;
use crate::tracedat::{CpuBuffer, TraceDat};
use laxity_replay::{Clock, Event, Vcpus};

pub const MAGIC: [u8; 8] = *b"LAXITYLT";
pub const VERSION: u32 = 1;

/// More than any kernel has.
const TEXTS_MAX: u32 = 64;
/// A TSC counts at 10 MHz at least, and at 100 GHz at most.
const KHZ: std::ops::RangeInclusive<u64> = 10_000..=100_000_000;
const PER_KHZ: i128 = 1_000_000;

/// A dump, taken apart.
pub struct Dump<'a> {
    /// The clock counts cycles where the rate of the TSC is not known.
    pub file: TraceDat<'a>,
    pub knows_rate: bool,
    /// Cycles when tracing began, and when it ended.
    traced: (u64, u64),
}

/// Takes a dump apart.
///
/// # Errors
///
/// It is cut short or damaged, or events were lost.
pub fn parse(dump: &[u8]) -> Result<Dump<'_>, KvmError> {
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
    let offset = input.offset;
    let khz = input.long("the header")?;
    if khz != 0 && !KHZ.contains(&khz) {
        let reason = format!("no TSC counts at {khz} kHz");
        return Err(KvmError::Damaged { offset, reason });
    }
    let traced = (input.long("the header")?, input.long("the header")?);
    let formats = texts(&mut input)?;
    let mut buffers: Vec<CpuBuffer> = Vec::new();
    for _ in 0..cpus {
        let buffer = buffer(&mut input)?;
        if buffers.last().is_some_and(|last| last.cpu >= buffer.cpu) {
            let reason = format!("CPU {} is not in order", buffer.cpu);
            return Err(damaged(buffer.offset, reason));
        }
        buffers.push(buffer);
    }
    if !input.rest.is_empty() {
        let reason = format!("{} bytes after the last CPU", input.rest.len());
        return Err(damaged(input.offset, reason));
    }
    let clock = match khz {
        0 => Clock::NS,
        khz => Clock {
            cycles: khz.into(),
            duration_ns: PER_KHZ,
            ..Clock::NS
        },
    };
    Ok(Dump {
        file: TraceDat {
            formats,
            clock,
            buffers,
        },
        knows_rate: khz != 0,
        traced,
    })
}

/// The events of all CPUs, those of each in order, and the number of CPUs.
pub fn decode(dump: &[u8], run: &KvmRun, vcpus: &Vcpus) -> Result<(Vec<Event>, usize), KvmError> {
    let threads = Threads::new(run, vcpus)?;
    let dump = parse(dump)?;
    if !dump.knows_rate {
        return Err(KvmError::Run(
            "the dump does not tell the rate of the TSC".into(),
        ));
    }
    dump.refuse_outside(run)?;
    let Dump { file, .. } = dump;
    let formats = Formats::new(&file.formats)?;
    let ns = |cycles| file.clock.ns(cycles);
    let mut events = Vec::new();
    let mut count = run.jobs.metadata.cpus as usize;
    for buffer in &file.buffers {
        count = count.max(usize::from(buffer.number()?) + 1);
        read_pages(buffer, ns, run, &threads, &formats, &mut events)?;
    }
    if let Some(file) = run.policy {
        policy::read(file, ns, run, &threads, &mut events)?;
    }
    Ok((events, count))
}

impl Dump<'_> {
    /// That the run is within what was traced.
    fn refuse_outside(&self, run: &KvmRun) -> Result<(), KvmError> {
        let (began, ended) = self.traced;
        let (traced_from_ns, traced_to_ns) = (self.file.clock.ns(began), self.file.clock.ns(ended));
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
        Ok(())
    }
}

fn texts<'a>(input: &mut Input<'a>) -> Result<Vec<&'a str>, KvmError> {
    let offset = input.offset;
    let count = input.word("the formats")?;
    if count > TEXTS_MAX {
        return Err(damaged(offset, format!("{count} formats")));
    }
    let mut texts = Vec::new();
    for _ in 0..count {
        let bytes = input.word("a format")? as usize;
        let text = std::str::from_utf8(input.take(bytes, "a format")?);
        texts.push(text.map_err(|_| damaged(offset, "a format that is not text".into()))?);
    }
    Ok(texts)
}

fn buffer<'a>(input: &mut Input<'a>) -> Result<CpuBuffer<'a>, KvmError> {
    let offset = input.offset;
    let cpu = input.word("a CPU's header")?;
    let page_bytes = input.word("a CPU's header")? as usize;
    let lost = input.long("a CPU's header")?;
    // Where memory is smaller than the number, it is not there either.
    let bytes = usize::try_from(input.long("a CPU's header")?).unwrap_or(usize::MAX);
    let buffer = CpuBuffer {
        cpu,
        offset: input.offset,
        bytes: input.take(bytes, "a CPU's buffer")?,
        page_bytes,
    };
    let number = buffer.number()?;
    if lost > 0 {
        return Err(KvmError::Lost {
            events: lost,
            cpu: number,
        });
    }
    if page_bytes == 0 || bytes % page_bytes != 0 {
        let reason = format!("{bytes} bytes in pages of {page_bytes}");
        return Err(damaged(offset, reason));
    }
    Ok(buffer)
}

fn damaged(offset: usize, reason: String) -> KvmError {
    KvmError::Damaged { offset, reason }
}
