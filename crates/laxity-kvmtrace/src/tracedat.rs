//! The parts of a file of trace-cmd (`trace.dat`, versions 6 and 7), as trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5)
//! lay them out.

use crate::error::KvmError;
use crate::input::Input;
use laxity_replay::Clock;
use laxity_trace::NONE;

pub const MAGIC: [u8; 10] = *b"\x17\x08\x44tracing";

/// Strings and counts of a file: more than any has.
const TEXT_BYTES_MAX: usize = 4096;
const FORMATS_MAX: u32 = 100_000;
const CPUS_MAX: u32 = 65_535;
const OPTIONS_MAX: usize = 100_000;

/// Options of both versions.
const BUFFER: u16 = 3;
const TRACE_CLOCK: u16 = 4;
const TSC_TO_NS: u16 = 14;
/// The option of version 7 that says where the formats of events are.
const EVENT_FORMATS: u16 = 18;

/// The systems of the events that are used.
const SYSTEMS: [&str; 5] = ["sched", "kvm", "net", "skb", "sock"];

/// Flags of a section of version 7.
const COMPRESSED: u16 = 1;

/// The buffer of a CPU, whose events are in order.
#[derive(Debug, Clone, Copy)]
pub struct CpuBuffer<'a> {
    pub cpu: u32,
    /// Where it begins in the file.
    pub offset: usize,
    pub bytes: &'a [u8],
    /// Bytes of a page of it, at least 1.
    pub page_bytes: usize,
}

impl CpuBuffer<'_> {
    /// The CPU, as records have it.
    ///
    /// # Errors
    ///
    /// It is none that a record can have.
    pub fn number(&self) -> Result<u16, KvmError> {
        (u16::try_from(self.cpu).ok())
            .filter(|&cpu| cpu != NONE)
            .ok_or_else(|| KvmError::Damaged {
                offset: self.offset,
                reason: format!("CPU {}; CPUs are below {NONE}", self.cpu),
            })
    }

    /// The pages, each with its place in the file.
    pub fn pages(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let offset = move |number: usize| self.offset + number * self.page_bytes;
        (self.bytes.chunks(self.page_bytes).enumerate())
            .map(move |(number, page)| (offset(number), page))
    }
}

/// What a file has.
#[derive(Debug)]
pub struct TraceDat<'a> {
    /// The formats of the events of [`SYSTEMS`].
    pub formats: Vec<&'a str>,
    pub clock: Clock,
    pub buffers: Vec<CpuBuffer<'a>>,
}

/// Takes a file apart.
///
/// # Errors
///
/// The file is cut short or damaged, or of a kind that is not read: compressed, of another endianness, with a clock
/// that does not count ns.
pub fn parse(file: &[u8]) -> Result<TraceDat<'_>, KvmError> {
    let mut input = Input::new(file);
    input.take(MAGIC.len(), "the header")?;
    let version = input.string(TEXT_BYTES_MAX, "the header")?;
    let [endianness, _] = *(input.take(2, "the header")?.first_chunk()).unwrap_or(&[0, 0]);
    if endianness != 0 {
        return Err(KvmError::Unsupported(
            "numbers with the most significant byte first",
        ));
    }
    let page_bytes = input.word("the header")? as usize;
    match version {
        "6" => version_6(file, input, page_bytes),
        "7" => version_7(file, input, page_bytes),
        _ => Err(KvmError::Unsupported("versions other than 6 and 7")),
    }
}

fn version_6<'a>(
    file: &'a [u8],
    mut input: Input<'a>,
    page_bytes: usize,
) -> Result<TraceDat<'a>, KvmError> {
    for name in ["header_page", "header_event"] {
        if input.string(TEXT_BYTES_MAX, name)? != name {
            return Err(damaged(&input, format!("{name} does not stand here")));
        }
        input.block(name)?;
    }
    let count = counted(&mut input, FORMATS_MAX, "formats")?;
    for _ in 0..count {
        input.block("a format")?;
    }
    let formats = event_formats(&mut input)?;
    let bytes = input.word("symbols")? as usize;
    input.take(bytes, "symbols")?;
    let bytes = input.word("formats of printk")? as usize;
    input.take(bytes, "formats of printk")?;
    input.block("names of threads")?;
    let cpus = counted(&mut input, CPUS_MAX, "CPUs")?;
    let mut section = input.take(10, "a section")?;
    let mut clock = Clock::NS;
    if section == b"options  \0" {
        let mut found = Vec::new();
        loop {
            let id = input.short("an option")?;
            if id == 0 {
                break;
            }
            let bytes = input.word("an option")? as usize;
            found.push((id, input.take(bytes, "an option")?));
            if found.len() > OPTIONS_MAX {
                return Err(damaged(&input, "options without end".into()));
            }
        }
        clock = clock_of(&found)?;
        section = input.take(10, "a section")?;
    }
    if section != b"flyrecord\0" {
        return Err(KvmError::Unsupported("traces without the buffers of CPUs"));
    }
    let buffers = (0..cpus).map(|cpu| buffer(file, &mut input, cpu, page_bytes));
    Ok(TraceDat {
        formats,
        clock,
        buffers: apart(buffers.collect::<Result<_, _>>()?)?,
    })
}

fn version_7<'a>(
    file: &'a [u8],
    mut input: Input<'a>,
    page_bytes: usize,
) -> Result<TraceDat<'a>, KvmError> {
    input.string(TEXT_BYTES_MAX, "the compression")?;
    input.string(TEXT_BYTES_MAX, "the compression")?;
    let mut options = Vec::new();
    let mut count = 0;
    let mut offset = input.long("the header")?;
    while offset != 0 {
        let mut section = section(file, offset)?;
        offset = loop {
            // The end of a section counts, too: without any option one may lead to itself.
            count += 1;
            if count > OPTIONS_MAX {
                return Err(damaged(&section, "options without end".into()));
            }
            let id = section.short("an option")?;
            let bytes = section.word("an option")? as usize;
            let mut option = section.inside(bytes, "an option")?;
            if id == 0 {
                break option.long("the end of the options")?;
            }
            options.push((id, option.rest));
        };
    }
    let place = |wanted: u16| {
        let found = options
            .iter()
            .find(|(id, _)| *id == wanted)
            .map(|(_, bytes)| *bytes);
        found
            .and_then(<[u8]>::first_chunk)
            .map(|bytes| u64::from_le_bytes(*bytes))
    };
    let formats = match place(EVENT_FORMATS) {
        Some(offset) => event_formats(&mut section(file, offset)?)?,
        None => Vec::new(),
    };
    let clock = clock_of(&options)?;
    let buffer_option = options
        .iter()
        .find(|(id, _)| *id == BUFFER)
        .map(|(_, bytes)| *bytes);
    let Some(bytes) = buffer_option else {
        return Err(KvmError::Unsupported("traces without the buffers of CPUs"));
    };
    let mut option = Input::new(bytes);
    let offset = option.long("a buffer")?;
    // That it is there, and not compressed.
    section(file, offset)?;
    option.string(TEXT_BYTES_MAX, "a buffer")?;
    let its_clock = clock_named(option.string(TEXT_BYTES_MAX, "a buffer")?, &options)?;
    let page_bytes = match option.word("a buffer")? {
        0 => page_bytes,
        bytes => bytes as usize,
    };
    let cpus = counted(&mut option, CPUS_MAX, "CPUs")?;
    let mut buffers = Vec::new();
    for _ in 0..cpus {
        let cpu = option.word("a buffer")?;
        buffers.push(buffer(file, &mut option, cpu, page_bytes)?);
    }
    Ok(TraceDat {
        formats,
        clock: if clock == Clock::NS { its_clock } else { clock },
        buffers: apart(buffers)?,
    })
}

/// The content of a section of version 7.
fn section(file: &[u8], offset: u64) -> Result<Input<'_>, KvmError> {
    let mut input = Input::at(file, offset, "a section")?;
    input.short("a section")?;
    let flags = input.short("a section")?;
    input.word("a section")?;
    let bytes = usize::try_from(input.long("a section")?).unwrap_or(usize::MAX);
    if flags & COMPRESSED != 0 {
        return Err(KvmError::Unsupported("compressed files"));
    }
    input.inside(bytes, "a section")
}

/// The formats of the events of [`SYSTEMS`].
fn event_formats<'a>(input: &mut Input<'a>) -> Result<Vec<&'a str>, KvmError> {
    let mut formats = Vec::new();
    for _ in 0..counted(input, FORMATS_MAX, "systems of events")? {
        let system = input.string(TEXT_BYTES_MAX, "a system of events")?;
        for _ in 0..counted(input, FORMATS_MAX, "events")? {
            let format = input.block("the format of an event")?;
            if SYSTEMS.contains(&system) {
                formats.push(text(input, format)?);
            }
        }
    }
    Ok(formats)
}

fn buffer<'a>(
    file: &'a [u8],
    input: &mut Input,
    cpu: u32,
    page_bytes: usize,
) -> Result<CpuBuffer<'a>, KvmError> {
    let offset = input.long("the buffer of a CPU")?;
    let bytes = usize::try_from(input.long("the buffer of a CPU")?).unwrap_or(usize::MAX);
    let mut buffer = Input::at(file, offset, "the buffer of a CPU")?;
    Ok(CpuBuffer {
        cpu,
        offset: buffer.offset,
        bytes: buffer.take(bytes, "the buffer of a CPU")?,
        page_bytes: page_bytes.max(1),
    })
}

/// The buffers of CPUs, in which each byte of the file stands at most once: what is made of them grows with the file.
fn apart(buffers: Vec<CpuBuffer<'_>>) -> Result<Vec<CpuBuffer<'_>>, KvmError> {
    let mut places: Vec<_> = buffers
        .iter()
        .map(|buffer| {
            (
                buffer.offset,
                buffer.offset + buffer.bytes.len(),
                buffer.cpu,
            )
        })
        .filter(|(begin, end, _)| begin < end)
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        let ((_, end, one), (offset, _, other)) = (pair[0], pair[1]);
        if offset < end {
            let reason = format!("the buffers of CPUs {one} and {other} overlap");
            return Err(KvmError::Damaged { offset, reason });
        }
    }
    Ok(buffers)
}

/// The clock that options of the whole file tell.
fn clock_of(options: &[(u16, &[u8])]) -> Result<Clock, KvmError> {
    let clocks = options
        .iter()
        .find(|(id, _)| *id == TRACE_CLOCK)
        .map(|(_, text)| *text);
    let clocks = String::from_utf8_lossy(clocks.unwrap_or_default()).into_owned();
    // The file that tells them has all, with the one that is used in brackets.
    let chosen = clocks
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    clock_named(chosen.map_or("local", |(name, _)| name), options)
}

fn clock_named(name: &str, options: &[(u16, &[u8])]) -> Result<Clock, KvmError> {
    match name {
        "" | "local" | "global" | "perf" | "mono" | "mono_raw" | "boot" | "tai" => Ok(Clock::NS),
        "x86-tsc" | "tsc2nsec" => {
            let option = options
                .iter()
                .find(|(id, _)| *id == TSC_TO_NS)
                .map(|(_, bytes)| *bytes);
            let Some(bytes) = option else {
                return Err(KvmError::Unsupported("the clock x86-tsc without its rate"));
            };
            let mut input = Input::new(bytes);
            let (multiplier, shift) = (
                input.word("the rate of the clock")?,
                input.word("the rate of the clock")?,
            );
            if shift >= 64 {
                return Err(KvmError::Unsupported("the clock x86-tsc without its rate"));
            }
            // (time * multiplier >> shift) + offset
            Ok(Clock {
                cycles_start: 0,
                start_ns: input.long("the rate of the clock")?.into(),
                cycles: 1 << shift,
                duration_ns: multiplier.into(),
            })
        }
        _ => Err(KvmError::Unsupported("clocks that do not count ns")),
    }
}

fn counted(input: &mut Input, most: u32, what: &'static str) -> Result<u32, KvmError> {
    let count = input.word(what)?;
    if count > most {
        return Err(damaged(input, format!("{count} {what}")));
    }
    Ok(count)
}

fn text<'a>(input: &Input, bytes: &'a [u8]) -> Result<&'a str, KvmError> {
    let text = std::str::from_utf8(bytes);
    text.map_err(|_| damaged(input, "a text that is not UTF-8".into()))
}

fn damaged(input: &Input, reason: String) -> KvmError {
    KvmError::Damaged {
        offset: input.offset,
        reason,
    }
}
