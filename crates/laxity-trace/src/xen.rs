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
//!   `MEASURE` says of its cost, which is 0 without. Of a decision and its `MEASURE`, the latter is later.
//! - A VCPU blocks when it says so, unless it is woken before it leaves its CPU. It wakes when its run state
//!   changes; by `WAKE` where run states were not traced. A paused VCPU counts as blocked.
//! - `Run` says until when the decision holds: from `DECISION`, or from `SWITCH_INFNEXT`, which has 32 bits of
//!   it, so that turns of stock schedulers of 4.29 s and more read too short.
//! - Jobs arrive as their tasks say, and complete as the guests report. There is no `Execute`: a hypervisor does
//!   not see which job its guest works on.
//! - At one instant: jobs that complete, jobs that arrive, then what Xen saw, CPUs by number.

use crate::reader::check;
use crate::{Kind, Metadata, NONE, Record, TaskMetadata, job};
use serde::Serialize;
use std::collections::HashMap;
use std::iter::Peekable;

const MAGIC: [u8; 8] = *b"LAXITYXT";
const VERSION: u32 = 1;

/// In a task's completion times: the job did not complete.
pub const UNFINISHED: i64 = i64::MAX;

/// A cycle counter counts at 100 MHz at least.
const CYCLE_NS_MAX: u64 = 10;
/// And at 100 GHz at most.
const CYCLES_A_NS_MAX: u64 = 100;

/// Jobs of one task; all are in memory.
const JOBS_MAX: u64 = 1 << 24;

/// From here on, domain numbers have meanings of their own: `DOMID_FIRST_RESERVED`.
const DOMID_FIRST_RESERVED: u16 = 0x7FF0;
const DOMID_IDLE: u16 = 0x7FFF;

/// Of `public/trace.h`.
mod trc {
    pub const LOST_RECORDS: u32 = 0x0001_F001;
    /// Bits 4 to 5 hold the new run state, bits 8 to 9 the old one.
    pub const RUNSTATE_CHANGE: u32 = 0x0002_1001;
    pub const RUNSTATE_BITS: u32 = 0x330;
    pub const WAKE: u32 = 0x0002_8004;
    pub const BLOCK: u32 = 0x0002_8006;
    pub const SWITCH: u32 = 0x0002_800A;
    pub const SWITCH_INFNEXT: u32 = 0x0002_800F;
    pub const SWITCH_INFCONT: u32 = 0x0002_8011;
    /// `TRC_SCHED_CLASS_EVT(LAXITY, 0)`.
    const LAXITY: u32 = 0x0002_2C00;
    pub const DECISION: u32 = LAXITY + 1;
    pub const REPLENISH: u32 = LAXITY + 2;
    pub const EXHAUST: u32 = LAXITY + 3;
    pub const BUDGET: u32 = LAXITY + 4;
    pub const MIGRATE: u32 = LAXITY + 5;
    pub const CLASS: u32 = LAXITY + 6;
    /// Only the measured build writes it, under every scheduler.
    pub const MEASURE: u32 = 0x0002_1040;
}

/// `RUNSTATE_running`, `_runnable`; `_blocked` and `_offline` are above.
const RUNNING: u32 = 0;
const RUNNABLE: u32 = 1;

/// What there is to know of a run beside its trace buffers.
#[derive(Debug, Clone, Copy)]
pub struct XenRun<'a> {
    /// As it will stand in the trace.
    pub metadata: &'a Metadata,
    /// The number that Xen gave each domain, in the order of the metadata.
    pub domids: &'a [u16],
    /// `CLOCK_REALTIME` at time 0 of the run.
    pub start_realtime_ns: i64,
    /// For each domain and task, when its jobs completed, from the start of the run, by job number;
    /// [`UNFINISHED`] for those that did not, and for those behind the end of the list.
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

/// Why a run's buffers and reports do not make a trace. Offsets are bytes from the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XenError {
    /// Another file.
    #[error("not a dump of Xen's trace buffers: the file does not begin with LAXITYXT")]
    Magic,
    /// Another layout.
    #[error("the dump's layout has version {version}; this program reads version 1")]
    Version {
        /// What the file says.
        version: u32,
    },
    /// Something is missing at the end of the file or of a CPU's buffer.
    #[error("the dump is cut short at byte {offset}: {what} is not whole")]
    Truncated {
        /// Where what is not whole begins.
        offset: usize,
        /// What it is.
        what: &'static str,
    },
    /// Something that no such dump has.
    #[error("the dump is damaged at byte {offset}: {reason}")]
    Damaged {
        /// Where.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// The buffers were too small.
    #[error(
        "Xen lost {records} trace records of CPU {cpu} (byte {offset} of the dump): trace with larger buffers, fewer events or for a shorter time"
    )]
    Lost {
        /// How many.
        records: u32,
        /// The CPU.
        cpu: u16,
        /// Where the records should be.
        offset: usize,
    },
    /// The run is not within the time that was traced.
    #[error(
        "the run, {from_ns} ns to {to_ns} ns of the real-time clock, is not within what was traced, {traced_from_ns} ns to {traced_to_ns} ns"
    )]
    Window {
        /// The start of the run.
        from_ns: i128,
        /// The end of the run.
        to_ns: i128,
        /// When tracing began.
        traced_from_ns: i128,
        /// When it ended.
        traced_to_ns: i128,
    },
    /// Events contradict each other: some are missing, or the CPUs' cycle counters differ.
    #[error("byte {offset} of the dump, CPU {cpu} at {time_ns} ns of the run: {reason}")]
    Contradiction {
        /// Where the event is that contradicts those before it.
        offset: usize,
        /// The CPU it happened on.
        cpu: u16,
        /// When.
        time_ns: i64,
        /// What is wrong.
        reason: String,
    },
    /// What was given beside the dump is wrong.
    #[error("{0}")]
    Run(String),
}

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

/// Who runs on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Idle,
    /// A VCPU that is not of the host file.
    Foreign,
    /// By its place among all VCPUs of the host file.
    Vcpu(u32),
}

/// The VCPUs of the host file.
struct Names {
    /// By Xen's number: the first VCPU among all, and how many it has.
    domains: HashMap<u16, (u32, u16)>,
    /// The same first VCPUs, by place in the host file.
    first: Vec<u32>,
    /// Domain and VCPU of each.
    vcpus: Vec<(u16, u16)>,
}

impl Names {
    fn new(run: &XenRun) -> Result<Names, XenError> {
        let sizes = check(run.metadata)
            .map_err(|reason| XenError::Run(format!("the metadata is not valid: {reason}")))?;
        let Metadata {
            duration_ns, cpus, ..
        } = *run.metadata;
        if duration_ns > i64::MAX / i64::from(cpus) {
            return Err(XenError::Run(format!(
                "a run of {duration_ns} ns on {cpus} CPUs is too long"
            )));
        }
        if sizes.len() != run.domids.len() {
            let (domains, numbers) = (sizes.len(), run.domids.len());
            return Err(XenError::Run(format!(
                "{domains} domains, and {numbers} numbers that Xen gave them"
            )));
        }
        let mut names = Names {
            domains: HashMap::new(),
            first: Vec::new(),
            vcpus: Vec::new(),
        };
        for (domain, (&(vcpus, _), &domid)) in sizes.iter().zip(run.domids).enumerate() {
            let name = &run.metadata.domains[domain].name;
            if domid >= DOMID_FIRST_RESERVED {
                return Err(XenError::Run(format!(
                    "domain {name} cannot have Xen's number {domid}: they are below {DOMID_FIRST_RESERVED}"
                )));
            }
            let domain = domain as u16;
            let first = names.vcpus.len() as u32;
            if names.domains.insert(domid, (first, vcpus)).is_some() {
                return Err(XenError::Run(format!(
                    "domain {name} has Xen's number {domid}, as another one has"
                )));
            }
            names.first.push(first);
            names.vcpus.extend((0..vcpus).map(|vcpu| (domain, vcpu)));
        }
        Ok(names)
    }

    fn who(&self, domid: u32, vcpu: u32) -> Result<Who, String> {
        let domid = u16::try_from(domid).map_err(|_| format!("domain {domid} cannot be"))?;
        match self.domains.get(&domid) {
            None if domid == DOMID_IDLE => Ok(Who::Idle),
            None => Ok(Who::Foreign),
            Some(&(first, vcpus)) if vcpu < vcpus.into() => Ok(Who::Vcpu(first + vcpu)),
            Some((_, vcpus)) => Err(format!(
                "domain {domid} has VCPU {vcpu}, and {vcpus} in the host file"
            )),
        }
    }

    /// Of a word that holds both.
    fn packed(&self, word: u32) -> Result<Who, String> {
        self.who(word >> 16, word & 0xFFFF)
    }
}

/// From cycles to the time of the run, on a straight line.
struct Clock {
    cycles_start: u64,
    cycles: i128,
    /// From the start of tracing to its end.
    duration_ns: i128,
    /// When tracing began, from the start of the run.
    start_ns: i128,
}

impl Clock {
    /// From the start of the run, rounded down; `None` beyond all time.
    fn time_ns(&self, cycles: u64) -> Option<i64> {
        let cycles = i128::from(cycles) - i128::from(self.cycles_start);
        let since_ns = (cycles * self.duration_ns).div_euclid(self.cycles);
        i64::try_from(self.start_ns + since_ns).ok()
    }

    /// To the nearest.
    fn span_ns(&self, cycles: u32) -> i64 {
        ((i128::from(cycles) * self.duration_ns + self.cycles / 2) / self.cycles) as i64
    }
}

struct Event {
    cycles: u64,
    time_ns: i64,
    offset: usize,
    cpu: u16,
    what: What,
}

enum What {
    Switch {
        before: Who,
        after: Who,
        /// Who ran blocked, and no `Block` says so.
        blocks: bool,
        decision: Decision,
    },
    Continue {
        who: Who,
        decision: Decision,
    },
    Wake {
        vcpu: u32,
        /// Its run state changed. If not, it may have been awake.
        state: bool,
    },
    Block {
        vcpu: u32,
        /// It did; it was not woken before it left its CPU.
        real: bool,
    },
    Policy {
        vcpu: u32,
        kind: Kind,
        argument: i64,
    },
}

#[derive(Clone, Copy)]
struct Decision {
    /// From the decision on; `i64::MAX` if never.
    until_ns: i64,
    cost_ns: i64,
}

/// What decisions cost, in cycles.
#[derive(Default)]
struct Measures(Vec<Measure>);

struct Measure {
    time_ns: i64,
    cpu: u16,
    decision_cycles: u32,
    switch_cycles: u32,
    timer_cycles: u32,
    timers: u32,
}

impl Measures {
    fn fill_in(mut self, summary: &mut Summary, clock: &Clock, end_ns: i64) {
        self.0
            .retain(|measure| (0..=end_ns).contains(&measure.time_ns));
        self.0.sort_by_key(|measure| (measure.time_ns, measure.cpu));
        for measure in self.0 {
            summary
                .decision_ns
                .push(clock.span_ns(measure.decision_cycles));
            if measure.switch_cycles > 0 {
                summary.switch_ns.push(clock.span_ns(measure.switch_cycles));
            }
            summary.timer_ns += clock.span_ns(measure.timer_cycles);
            summary.timers += u64::from(measure.timers);
        }
    }
}

struct Decoded {
    /// Of each CPU in order.
    events: Vec<Event>,
    measures: Measures,
    /// Run states were traced.
    states: bool,
    clock: Clock,
    /// One more than the highest number, and at least the host's.
    cpus: usize,
}

/// The bytes of the dump from `offset` on.
struct Input<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], XenError> {
        let offset = self.offset;
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(XenError::Truncated { offset, what })?;
        self.rest = rest;
        self.offset += bytes;
        Ok(taken)
    }

    fn words<const N: usize>(&mut self, what: &'static str) -> Result<[u32; N], XenError> {
        let bytes = self.take(4 * N, what)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Ok(words)
    }
}

fn long(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn decode(dump: &[u8], run: &XenRun, names: &Names) -> Result<Decoded, XenError> {
    let mut input = Input {
        rest: dump,
        offset: 0,
    };
    if !dump.starts_with(&MAGIC) {
        return Err(XenError::Magic);
    }
    let [_, _, version] = input.words("the header")?;
    if version != VERSION {
        return Err(XenError::Version { version });
    }
    let [cpus] = input.words("the header")?;
    let clock = clock(&mut input, run)?;

    let mut decoded = Decoded {
        events: Vec::new(),
        measures: Measures::default(),
        states: false,
        clock,
        cpus: run.metadata.cpus as usize,
    };
    let mut last: Option<u32> = None;
    for _ in 0..cpus {
        let offset = input.offset;
        let damaged = |reason| XenError::Damaged { offset, reason };
        let [number, reserved, low, high] = input.words("a CPU's header")?;
        let Some(cpu) = u16::try_from(number).ok().filter(|&cpu| cpu != NONE) else {
            return Err(damaged(format!("CPU {number}; CPUs are below {NONE}")));
        };
        if last.is_some_and(|last| last >= number) {
            return Err(damaged(format!("CPU {number} is not in order of number")));
        }
        if reserved != 0 {
            return Err(damaged(format!("{reserved} where a 0 belongs")));
        }
        last = Some(number);
        decoded.cpus = decoded.cpus.max(usize::from(cpu) + 1);
        // Where memory is smaller than the number, it is not there either.
        let bytes = usize::try_from(long(low, high)).unwrap_or(usize::MAX);
        let buffer = Input {
            offset: input.offset,
            rest: input.take(bytes, "a CPU's buffer")?,
        };
        let decoder = Decoder {
            cpu,
            host_cpus: run.metadata.cpus,
            names,
            decoded: &mut decoded,
            time: 0,
            decided: None,
            limit: None,
            uncosted: None,
            blocking: None,
            left: None,
        };
        decoder.run(buffer)?;
    }
    if !input.rest.is_empty() {
        return Err(XenError::Damaged {
            offset: input.offset,
            reason: format!("{} bytes after the last CPU", input.rest.len()),
        });
    }
    let states = decoded.states;
    decoded.events.retain(|event| match event.what {
        What::Wake { state, .. } => state == states,
        What::Block { real, .. } => real,
        _ => true,
    });
    Ok(decoded)
}

/// The line through the dump's two pairs.
fn clock(input: &mut Input, run: &XenRun) -> Result<Clock, XenError> {
    let offset = input.offset;
    let words: [u32; 8] = input.words("the header")?;
    let [cycles_start, from_ns, cycles_stop, to_ns] =
        [0, 2, 4, 6].map(|at| long(words[at], words[at + 1]));
    let damaged = |reason: &str| XenError::Damaged {
        offset,
        reason: reason.into(),
    };
    if cycles_stop <= cycles_start || to_ns <= from_ns {
        return Err(damaged("the clocks did not go on while it was traced"));
    }
    if i64::try_from(to_ns).is_err() {
        return Err(damaged("the real-time clock is beyond all time"));
    }
    let (cycles, duration_ns) = (cycles_stop - cycles_start, to_ns - from_ns);
    if cycles < duration_ns / CYCLE_NS_MAX || cycles / CYCLES_A_NS_MAX > duration_ns {
        return Err(damaged("no CPU counts cycles at such a rate"));
    }
    let (traced_from_ns, traced_to_ns) = (i128::from(from_ns), i128::from(to_ns));
    let start_ns = i128::from(run.start_realtime_ns);
    let end_ns = start_ns + i128::from(run.metadata.duration_ns);
    if start_ns < traced_from_ns || end_ns > traced_to_ns {
        return Err(XenError::Window {
            from_ns: start_ns,
            to_ns: end_ns,
            traced_from_ns,
            traced_to_ns,
        });
    }
    Ok(Clock {
        cycles_start,
        cycles: cycles.into(),
        duration_ns: duration_ns.into(),
        start_ns: traced_from_ns - start_ns,
    })
}

/// Goes through the buffer of one CPU.
struct Decoder<'a> {
    cpu: u16,
    host_cpus: u32,
    names: &'a Names,
    decoded: &'a mut Decoded,
    /// Cycles at the last event.
    time: u64,
    /// Whom the policy chose since the last decision of Xen, and until when.
    decided: Option<(Who, i64)>,
    /// The low half of what `SWITCH_INFNEXT` said.
    limit: Option<u32>,
    /// The last decision, by its place in the events, if its cost is not known.
    uncosted: Option<usize>,
    /// The VCPU that runs, and the `Block` by which it said that it blocks.
    blocking: Option<(u32, usize)>,
    /// The last switch, and the `Block` of the VCPU that left, until its run state is known.
    left: Option<(Who, usize, Option<usize>)>,
}

impl Decoder<'_> {
    fn run(mut self, mut input: Input) -> Result<(), XenError> {
        while !input.rest.is_empty() {
            let offset = input.offset;
            let mut words = |bytes| {
                let what = "a trace record";
                let truncated = |_| XenError::Truncated { offset, what };
                input.take(bytes, what).map_err(truncated)
            };
            let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
            let header = words(4)?.first_chunk().map_or(0, word);
            let cycles = words(if header >> 31 == 1 { 8 } else { 0 })?;
            let cycles = cycles
                .first_chunk()
                .map(|cycles| u64::from_le_bytes(*cycles));
            let mut extra = [0; 7];
            let count = (header >> 28 & 7) as usize;
            for (extra, bytes) in extra.iter_mut().zip(words(4 * count)?.as_chunks().0) {
                *extra = word(bytes);
            }
            let event = header & 0x0FFF_FFFF;
            if event == trc::LOST_RECORDS {
                return Err(XenError::Lost {
                    records: extra[0],
                    cpu: self.cpu,
                    offset,
                });
            }
            self.record(offset, event, cycles, &extra[..count])
                .map_err(|reason| XenError::Damaged { offset, reason })?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        offset: usize,
        event: u32,
        cycles: Option<u64>,
        words: &[u32],
    ) -> Result<(), String> {
        let kind = event & !trc::RUNSTATE_BITS;
        let of_interest = kind == trc::RUNSTATE_CHANGE
            || matches!(
                event,
                trc::WAKE
                    | trc::BLOCK
                    | trc::SWITCH
                    | trc::SWITCH_INFNEXT
                    | trc::SWITCH_INFCONT
                    | trc::DECISION..=trc::CLASS | trc::MEASURE
            );
        if !of_interest {
            return Ok(());
        }
        let cycles = cycles.ok_or_else(|| format!("event {event:#x} has no time"))?;
        if cycles < self.time {
            let before = self.time;
            return Err(format!("time goes back, from cycle {before} to {cycles}"));
        }
        self.time = cycles;
        let time_ns = self.decoded.clock.time_ns(cycles);
        let time_ns = time_ns.ok_or_else(|| format!("cycle {cycles} is beyond all time"))?;
        let shape = |words: usize| format!("event {event:#x} has {words} words");
        let what = match (event, words) {
            (trc::WAKE, &[domid, vcpu]) => {
                if let Who::Vcpu(vcpu) = self.names.who(domid, vcpu)? {
                    if self.blocking.is_some_and(|(blocking, _)| blocking == vcpu) {
                        self.blocking = None;
                    }
                    What::Wake { vcpu, state: false }
                } else {
                    return Ok(());
                }
            }
            (trc::BLOCK, &[domid, vcpu]) => {
                if let Who::Vcpu(vcpu) = self.names.who(domid, vcpu)? {
                    self.blocking = Some((vcpu, self.decoded.events.len()));
                    What::Block { vcpu, real: false }
                } else {
                    return Ok(());
                }
            }
            (trc::SWITCH, &[before_domid, before, after_domid, after]) => {
                let before = self.names.who(before_domid, before)?;
                let after = self.names.who(after_domid, after)?;
                self.host_cpu(before)?;
                self.host_cpu(after)?;
                let block = match self.blocking.take() {
                    Some((vcpu, block)) if Who::Vcpu(vcpu) == before => Some(block),
                    _ => None,
                };
                // Until its run state says otherwise.
                self.set_real(block, true);
                self.left = Some((before, self.decoded.events.len(), block));
                What::Switch {
                    before,
                    after,
                    blocks: false,
                    decision: self.decision(after),
                }
            }
            (trc::SWITCH_INFNEXT, &[_, _, _, limit]) => {
                self.limit = Some(limit);
                return Ok(());
            }
            (trc::SWITCH_INFCONT, &[domid, vcpu, _, limit]) => {
                let who = self.names.who(domid, vcpu)?;
                self.host_cpu(who)?;
                self.blocking = None;
                self.limit = Some(limit);
                What::Continue {
                    who,
                    decision: self.decision(who),
                }
            }
            (trc::DECISION, &[chosen, low, high]) => {
                let chosen = match chosen {
                    u32::MAX => Who::Idle,
                    chosen => self.names.packed(chosen)?,
                };
                self.decided = Some((chosen, long(low, high) as i64));
                return Ok(());
            }
            (trc::REPLENISH..=trc::CLASS, &[vcpu, low, high]) => {
                let kind = match event {
                    trc::REPLENISH => Kind::Replenish,
                    trc::EXHAUST => Kind::Exhaust,
                    trc::BUDGET => Kind::Budget,
                    trc::MIGRATE => Kind::Migrate,
                    _ => Kind::Class,
                };
                let Who::Vcpu(vcpu) = self.names.packed(vcpu)? else {
                    return Ok(());
                };
                let argument = long(low, high) as i64;
                match kind {
                    Kind::Migrate if !(0..i64::from(self.host_cpus)).contains(&argument) => {
                        return Err(self.outside(vcpu, argument));
                    }
                    Kind::Class if !(0..4).contains(&argument) => {
                        return Err(format!("class {argument}; there are 0 to 3"));
                    }
                    _ => What::Policy {
                        vcpu,
                        kind,
                        argument,
                    },
                }
            }
            (trc::MEASURE, &[decision_cycles, switch_cycles, timer_cycles, timers]) => {
                self.measure(Measure {
                    time_ns,
                    cpu: self.cpu,
                    decision_cycles,
                    switch_cycles,
                    timer_cycles,
                    timers,
                });
                return Ok(());
            }
            (_, &[vcpu]) if kind == trc::RUNSTATE_CHANGE => {
                self.decoded.states = true;
                let vcpu = self.names.packed(vcpu)?;
                let Some(what) = self.state_change(vcpu, event >> 8 & 3, event >> 4 & 3) else {
                    return Ok(());
                };
                what
            }
            (_, words) => return Err(shape(words.len())),
        };
        if let What::Switch { .. } | What::Continue { .. } = what {
            self.uncosted = Some(self.decoded.events.len());
        }
        self.decoded.events.push(Event {
            cycles,
            time_ns,
            offset,
            cpu: self.cpu,
            what,
        });
        Ok(())
    }

    /// What the policy, or else Xen, said of the decision that is now carried out.
    fn decision(&mut self, chosen: Who) -> Decision {
        let limit = self.limit.take();
        let until_ns = match self.decided.take() {
            Some((decided, until_ns)) if decided == chosen => until_ns,
            _ => match limit {
                None | Some(u32::MAX) => i64::MAX,
                Some(limit) => limit.into(),
            },
        };
        Decision {
            until_ns,
            cost_ns: 0,
        }
    }

    fn set_real(&mut self, block: Option<usize>, blocked: bool) {
        if let Some(block) = block
            && let What::Block { real, .. } = &mut self.decoded.events[block].what
        {
            *real = blocked;
        }
    }

    /// A VCPU's run state changed. What follows for the one that was just switched from is noted there.
    fn state_change(&mut self, who: Who, old: u32, new: u32) -> Option<What> {
        let Who::Vcpu(vcpu) = who else {
            return None;
        };
        if old == RUNNING {
            let (_, switch, block) = self.left.take_if(|(left, ..)| *left == who)?;
            let blocked = new > RUNNABLE;
            self.set_real(block, blocked);
            if block.is_none()
                && let What::Switch { blocks, .. } = &mut self.decoded.events[switch].what
            {
                *blocks = blocked;
            }
            return None;
        }
        match (old > RUNNABLE, new > RUNNABLE) {
            (true, false) => Some(What::Wake { vcpu, state: true }),
            // It was paused while it waited for a CPU.
            (false, true) => Some(What::Block { vcpu, real: true }),
            _ => None,
        }
    }

    fn measure(&mut self, measure: Measure) {
        if u32::from(self.cpu) >= self.host_cpus {
            return;
        }
        let clock = &self.decoded.clock;
        let ns = clock.span_ns(measure.decision_cycles) + clock.span_ns(measure.switch_cycles);
        if let Some(last) = self.uncosted.take()
            && let What::Switch { decision, .. } | What::Continue { decision, .. } =
                &mut self.decoded.events[last].what
        {
            decision.cost_ns = ns;
        }
        self.decoded.measures.0.push(measure);
    }

    /// That the host's VCPUs are on the host's CPUs.
    fn host_cpu(&self, who: Who) -> Result<(), String> {
        match who {
            Who::Vcpu(vcpu) if u32::from(self.cpu) >= self.host_cpus => {
                Err(self.outside(vcpu, self.cpu.into()))
            }
            _ => Ok(()),
        }
    }

    fn outside(&self, vcpu: u32, cpu: i64) -> String {
        let (domain, vcpu) = self.names.vcpus[vcpu as usize];
        let cpus = self.host_cpus;
        format!(
            "VCPU {vcpu} of domain {domain} of the host file is on CPU {cpu}; the host has {cpus} CPUs"
        )
    }
}

/// How many jobs of each domain's tasks arrive before the end of the run, if the completion times fit them.
///
/// # Errors
///
/// [`XenError::Run`]: there are not as many domains, tasks and jobs, a job completes before it arrives, or before the
/// one before it, or the metadata has a task that cannot be.
pub fn released_jobs(
    metadata: &Metadata,
    completions_ns: &[Vec<Vec<i64>>],
) -> Result<Vec<Vec<u64>>, XenError> {
    let domains = &metadata.domains;
    let shape = domains.iter().map(|domain| domain.tasks.len());
    if !completions_ns.iter().map(Vec::len).eq(shape) {
        return Err(XenError::Run(
            "the jobs' completion times are not those of the host file's domains and tasks".into(),
        ));
    }
    let mut released = Vec::with_capacity(domains.len());
    for (domain, times) in domains.iter().zip(completions_ns) {
        let mut of_domain = Vec::with_capacity(times.len());
        for (task, times_ns) in domain.tasks.iter().zip(times) {
            let jobs = released_of_task(task, times_ns, metadata.duration_ns);
            of_domain.push(jobs.map_err(|reason| {
                XenError::Run(format!("task {}.{}: {reason}", domain.name, task.name))
            })?);
        }
        released.push(of_domain);
    }
    Ok(released)
}

fn released_of_task(task: &TaskMetadata, times_ns: &[i64], end_ns: i64) -> Result<u64, String> {
    if task.period_ns < 1 || task.offset_ns < 0 {
        let (period_ns, offset_ns) = (task.period_ns, task.offset_ns);
        return Err(format!(
            "a period of {period_ns} ns and an offset of {offset_ns} ns"
        ));
    }
    let released = match u64::try_from(end_ns - task.offset_ns) {
        Ok(time_ns) => time_ns.div_ceil(task.period_ns as u64),
        Err(_) => 0,
    };
    if released > JOBS_MAX {
        return Err(format!(
            "{released} jobs are released; at most {JOBS_MAX} are traced"
        ));
    }
    if times_ns.len() as u64 > released {
        let reported = times_ns.len();
        return Err(format!(
            "{reported} jobs are reported, and {released} are released"
        ));
    }
    let mut before_ns = 0;
    for (number, &time_ns) in (0..).zip(times_ns) {
        let arrival_ns = task.arrival_ns(number);
        if time_ns < arrival_ns || time_ns < before_ns {
            return Err(format!(
                "job {number} cannot have completed at {time_ns} ns: it arrived at {arrival_ns} ns, and the one \
                 before completed at {before_ns} ns"
            ));
        }
        before_ns = time_ns;
    }
    Ok(released)
}

/// The records of the jobs that are still to come.
type Jobs = Peekable<std::vec::IntoIter<Record>>;

/// The records of the jobs, in order, their CPUs open.
fn jobs(run: &XenRun) -> Result<Vec<Record>, XenError> {
    let released = released_jobs(run.metadata, run.completions_ns)?;
    let end_ns = run.metadata.duration_ns;
    let mut records = Vec::new();
    for (index, domain) in run.metadata.domains.iter().enumerate() {
        for (place, task) in domain.tasks.iter().enumerate() {
            let mut record = |time_ns, number, kind| {
                records.push(Record {
                    time_ns,
                    argument: job(place as u32, number),
                    cpu: NONE,
                    domain: index as u16,
                    vcpu: task.vcpu as u16,
                    kind,
                });
            };
            for number in 0..released[index][place] {
                record(task.arrival_ns(number), number, Kind::Release);
            }
            for (number, &time_ns) in (0..).zip(&run.completions_ns[index][place]) {
                if time_ns <= end_ns {
                    record(time_ns, number, Kind::Complete);
                }
            }
        }
    }
    records.sort_by_key(|record| (record.time_ns, record.kind == Kind::Release));
    Ok(records)
}

#[derive(Clone, Copy)]
struct Cpu {
    who: Who,
    since_ns: i64,
    /// The end of the last decision.
    until_ns: i64,
}

#[derive(Clone, Copy)]
struct Vcpu {
    /// On which it runs, or [`NONE`].
    cpu: u16,
    blocked: bool,
}

/// Who runs where, as the events go by.
struct Host<'a> {
    metadata: &'a Metadata,
    names: &'a Names,
    cpus: Vec<Cpu>,
    vcpus: Vec<Vcpu>,
    /// The run has started. Nothing is recorded or counted before.
    begun: bool,
    records: Vec<Record>,
    summary: Summary,
}

impl<'a> Host<'a> {
    /// As it was before the first event: the first that concerns a CPU or a VCPU tells. A VCPU of which there
    /// is none is blocked, a CPU idle.
    fn new(metadata: &'a Metadata, names: &'a Names, cpus: usize, events: &[Event]) -> Self {
        let mut running: Vec<Option<Who>> = vec![None; cpus];
        let blocked = Vcpu {
            cpu: NONE,
            blocked: true,
        };
        let mut vcpus = vec![blocked; names.vcpus.len()];
        // Whether it is known of a VCPU if it was runnable, and where it ran.
        let mut runnable = vec![false; vcpus.len()];
        let mut placed = vec![false; vcpus.len()];
        for event in events {
            let (before, after) = match event.what {
                What::Switch { before, after, .. } => (before, after),
                What::Continue { who, .. } => (who, who),
                What::Block { vcpu, .. } | What::Wake { vcpu, .. } => {
                    if !std::mem::replace(&mut runnable[vcpu as usize], true) {
                        let blocks = matches!(event.what, What::Block { .. });
                        vcpus[vcpu as usize].blocked = !blocks;
                    }
                    continue;
                }
                What::Policy { .. } => continue,
            };
            let on_cpu = &mut running[usize::from(event.cpu)];
            let first = on_cpu.is_none();
            on_cpu.get_or_insert(before);
            for (who, ran) in [(before, first), (after, false)] {
                let Who::Vcpu(vcpu) = who else {
                    continue;
                };
                let vcpu = vcpu as usize;
                if !std::mem::replace(&mut placed[vcpu], true) && ran {
                    vcpus[vcpu].cpu = event.cpu;
                    // Be it that something woke it once more.
                    vcpus[vcpu].blocked = false;
                }
                if !std::mem::replace(&mut runnable[vcpu], true) {
                    vcpus[vcpu].blocked = false;
                }
            }
        }
        let cpu_ns = metadata
            .domains
            .iter()
            .map(|domain| vec![0; domain.vcpus as usize]);
        Host {
            metadata,
            names,
            cpus: running
                .into_iter()
                .map(|who| Cpu {
                    who: who.unwrap_or(Who::Idle),
                    since_ns: 0,
                    until_ns: i64::MAX,
                })
                .collect(),
            vcpus,
            begun: false,
            records: Vec::new(),
            summary: Summary {
                cpu_ns: cpu_ns.collect(),
                ..Summary::default()
            },
        }
    }

    /// Time 0: who is runnable wakes, jobs arrive, who runs begins to.
    fn begin(&mut self, jobs: &mut Jobs) {
        self.begun = true;
        for vcpu in 0..self.vcpus.len() as u32 {
            if !self.vcpus[vcpu as usize].blocked {
                self.record(0, vcpu, Kind::Wake, NONE, 0);
            }
        }
        self.jobs(jobs, 0);
        for cpu in 0..self.metadata.cpus as u16 {
            let Cpu { who, until_ns, .. } = self.cpus[usize::from(cpu)];
            if let Who::Vcpu(vcpu) = who {
                self.record(0, vcpu, Kind::Run, cpu, until_ns);
            }
        }
    }

    /// Jobs that arrive and complete up to a time.
    fn jobs(&mut self, jobs: &mut Jobs, time_ns: i64) {
        while let Some(record) = jobs.next_if(|record| record.time_ns <= time_ns) {
            let first = self.names.first[usize::from(record.domain)];
            let cpu = self.vcpus[first as usize + usize::from(record.vcpu)].cpu;
            self.records.push(Record { cpu, ..record });
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), XenError> {
        let (time_ns, cpu) = (event.time_ns, event.cpu);
        match event.what {
            What::Wake { vcpu, .. } => self.wake(time_ns, vcpu),
            What::Block { vcpu, .. } => self.block(time_ns, vcpu),
            What::Policy {
                vcpu,
                kind,
                argument,
            } => self.record(time_ns, vcpu, kind, NONE, argument),
            What::Continue { who, decision } => {
                self.expect(event, who)?;
                self.decide(event, who, who, decision);
            }
            What::Switch {
                before,
                after,
                blocks,
                decision,
            } => {
                self.expect(event, before)?;
                self.account(cpu, time_ns);
                if let Who::Vcpu(vcpu) = before {
                    if blocks {
                        self.block(time_ns, vcpu);
                    }
                    let preempted = !self.vcpus[vcpu as usize].blocked;
                    self.record(time_ns, vcpu, Kind::Stop, cpu, preempted.into());
                    self.vcpus[vcpu as usize].cpu = NONE;
                }
                if let Who::Vcpu(vcpu) = after {
                    self.wake(time_ns, vcpu);
                }
                self.decide(event, before, after, decision);
                if let Who::Vcpu(vcpu) = after {
                    let other = std::mem::replace(&mut self.vcpus[vcpu as usize].cpu, cpu);
                    if other != NONE {
                        let who = self.name(after);
                        let reason =
                            format!("{who} begins to run, and it still runs on CPU {other}");
                        return Err(contradiction(event, reason));
                    }
                    let until_ns = self.cpus[usize::from(cpu)].until_ns;
                    self.record(time_ns, vcpu, Kind::Run, cpu, until_ns);
                }
                self.cpus[usize::from(cpu)].who = after;
            }
        }
        Ok(())
    }

    /// That Xen sees who runs on the event's CPU as the events before tell it.
    fn expect(&self, event: &Event, who: Who) -> Result<(), XenError> {
        let running = self.cpus[usize::from(event.cpu)].who;
        let elsewhere = match who {
            Who::Vcpu(vcpu) => self.vcpus[vcpu as usize].cpu != event.cpu,
            _ => false,
        };
        if running == who && !elsewhere {
            return Ok(());
        }
        let (running, who) = (self.name(running), self.name(who));
        let reason = format!("{who} is said to have run here, and before, {running}");
        Err(contradiction(event, reason))
    }

    fn name(&self, who: Who) -> String {
        match who {
            Who::Idle => "nobody".into(),
            Who::Foreign => "a VCPU that is not of the host file".into(),
            Who::Vcpu(vcpu) => {
                let (domain, vcpu) = self.names.vcpus[vcpu as usize];
                self.metadata.vcpu_name(domain, vcpu)
            }
        }
    }

    fn wake(&mut self, time_ns: i64, vcpu: u32) {
        if std::mem::take(&mut self.vcpus[vcpu as usize].blocked) {
            self.record(time_ns, vcpu, Kind::Wake, NONE, 0);
        }
    }

    fn block(&mut self, time_ns: i64, vcpu: u32) {
        let state = &mut self.vcpus[vcpu as usize];
        if !std::mem::replace(&mut state.blocked, true) {
            let cpu = state.cpu;
            self.record(time_ns, vcpu, Kind::Block, cpu, 0);
        }
    }

    fn decide(&mut self, event: &Event, before: Who, after: Who, decision: Decision) {
        let on_cpu = &mut self.cpus[usize::from(event.cpu)];
        on_cpu.until_ns = match decision.until_ns {
            i64::MAX => i64::MAX,
            until_ns => event.time_ns.saturating_add(until_ns),
        };
        if !self.begun || u32::from(event.cpu) >= self.metadata.cpus {
            return;
        }
        let switch = u64::from(matches!(event.what, What::Switch { .. }));
        let of_host = |who| matches!(who, Who::Vcpu(_));
        let foreign = before == Who::Foreign || after == Who::Foreign;
        self.summary.decisions += 1;
        self.summary.switches += switch;
        if foreign && !of_host(before) && !of_host(after) {
            self.summary.foreign_decisions += 1;
            self.summary.foreign_switches += switch;
            return;
        }
        let (domain, vcpu) = match after {
            Who::Vcpu(vcpu) => self.names.vcpus[vcpu as usize],
            Who::Idle | Who::Foreign => (NONE, NONE),
        };
        self.records.push(Record {
            time_ns: event.time_ns,
            argument: decision.cost_ns,
            cpu: event.cpu,
            domain,
            vcpu,
            kind: Kind::Schedule,
        });
    }

    fn record(&mut self, time_ns: i64, vcpu: u32, kind: Kind, cpu: u16, argument: i64) {
        let (domain, vcpu) = self.names.vcpus[vcpu as usize];
        if self.begun {
            self.records.push(Record {
                time_ns,
                argument,
                cpu,
                domain,
                vcpu,
                kind,
            });
        }
    }

    /// Gives who runs on the CPU the time up to now.
    fn account(&mut self, cpu: u16, now_ns: i64) {
        if !self.begun || u32::from(cpu) >= self.metadata.cpus {
            return;
        }
        let Cpu { who, since_ns, .. } = &mut self.cpus[usize::from(cpu)];
        let ran_ns = now_ns - std::mem::replace(since_ns, now_ns);
        match *who {
            Who::Idle => self.summary.idle_ns += ran_ns,
            Who::Foreign => self.summary.foreign_ns += ran_ns,
            Who::Vcpu(vcpu) => {
                let (domain, vcpu) = self.names.vcpus[vcpu as usize];
                self.summary.cpu_ns[usize::from(domain)][usize::from(vcpu)] += ran_ns;
            }
        }
    }

    fn finish(mut self) -> (Vec<Record>, Summary) {
        for cpu in 0..self.metadata.cpus as u16 {
            self.account(cpu, self.metadata.duration_ns);
        }
        (self.records, self.summary)
    }
}

fn contradiction(event: &Event, reason: String) -> XenError {
    XenError::Contradiction {
        offset: event.offset,
        cpu: event.cpu,
        time_ns: event.time_ns,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomainMetadata, Reader, Sink, Writer, text, timeline};
    use proptest::prelude::*;

    const US: i64 = 1000;
    const MS: i64 = 1_000_000;
    /// Real time at the start of the run, and how long before that it was traced.
    const START_REALTIME_NS: i64 = 1_767_225_600_000_000_000;
    const LEAD_NS: i64 = MS;
    const CYCLES_A_NS: u64 = 3;
    const CYCLES_START: u64 = 1 << 40;

    const IDLE: (u32, u32) = (0x7FFF, 0);
    const DOM0: (u32, u32) = (0, 0);
    /// Xen's numbers of the domains: *control* has one VCPU and a task, *batch* two VCPUs.
    const DOMIDS: [u16; 2] = [3, 7];
    const CONTROL: (u32, u32) = (3, 0);
    const BATCH: (u32, u32) = (7, 0);
    const BATCH_1: (u32, u32) = (7, 1);

    fn metadata(cpus: u32) -> Metadata {
        let domain = |name: &str, vcpus, tasks| DomainMetadata {
            name: name.into(),
            vcpus,
            budget_ns: 2 * MS,
            period_ns: 10 * MS,
            tasks,
        };
        let task = TaskMetadata {
            name: "loop".into(),
            vcpu: 0,
            cost_ns: MS,
            period_ns: 10 * MS,
            deadline_ns: 5 * MS,
            offset_ns: 0,
        };
        Metadata {
            substrate: "xen".into(),
            policy: "deferrable".into(),
            seed: 1,
            duration_ns: 20 * MS,
            cpus,
            domains: vec![domain("control", 1, vec![task]), domain("batch", 2, vec![])],
        }
    }

    /// What `laxity-trace` writes, made by hand. Times are from the start of the run.
    struct Dump(Vec<Vec<u8>>);

    impl Dump {
        fn new(cpus: usize) -> Self {
            Dump(vec![Vec::new(); cpus])
        }

        fn cycles(time_ns: i64) -> u64 {
            CYCLES_START + (time_ns + LEAD_NS) as u64 * CYCLES_A_NS
        }

        fn words(&mut self, cpu: usize, words: &[u32]) {
            self.0[cpu].extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }

        fn event(&mut self, cpu: usize, time_ns: i64, event: u32, words: &[u32]) {
            let cycles = Dump::cycles(time_ns);
            let header = 1 << 31 | (words.len() as u32) << 28 | event;
            self.words(cpu, &[header, cycles as u32, (cycles >> 32) as u32]);
            self.words(cpu, words);
        }

        fn wake(&mut self, cpu: usize, time_ns: i64, who: (u32, u32)) {
            self.event(cpu, time_ns, trc::WAKE, &[who.0, who.1]);
        }

        fn block(&mut self, cpu: usize, time_ns: i64, who: (u32, u32)) {
            self.event(cpu, time_ns, trc::BLOCK, &[who.0, who.1]);
        }

        fn state(&mut self, cpu: usize, time_ns: i64, who: (u32, u32), old: u32, new: u32) {
            let event = trc::RUNSTATE_CHANGE | old << 8 | new << 4;
            self.event(cpu, time_ns, event, &[who.0 << 16 | who.1]);
        }

        /// As stock Xen writes it, but for the run states.
        fn switch(&mut self, cpu: usize, time_ns: i64, before: (u32, u32), after: (u32, u32)) {
            self.event(cpu, time_ns, 0x0002_800E, &[before.0, before.1, 17]);
            let next = [after.0, after.1, 5, u32::MAX];
            self.event(cpu, time_ns, trc::SWITCH_INFNEXT, &next);
            let both = [before.0, before.1, after.0, after.1];
            self.event(cpu, time_ns, trc::SWITCH, &both);
        }

        fn go_on(&mut self, cpu: usize, time_ns: i64, who: (u32, u32)) {
            self.event(
                cpu,
                time_ns,
                trc::SWITCH_INFCONT,
                &[who.0, who.1, 9, 30_000_000],
            );
        }

        fn policy(&mut self, cpu: usize, time_ns: i64, event: u32, who: (u32, u32), word: i64) {
            let name = if who == IDLE {
                u32::MAX
            } else {
                who.0 << 16 | who.1
            };
            let words = [name, word as u32, (word >> 32) as u32];
            self.event(cpu, time_ns, event, &words);
        }

        fn bytes(&self) -> Vec<u8> {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(VERSION.to_le_bytes());
            bytes.extend((self.0.len() as u32).to_le_bytes());
            for time_ns in [-LEAD_NS, 20 * MS + LEAD_NS] {
                bytes.extend(Dump::cycles(time_ns).to_le_bytes());
                bytes.extend((START_REALTIME_NS + time_ns).to_le_bytes());
            }
            for (cpu, buffer) in self.0.iter().enumerate() {
                bytes.extend((cpu as u64).to_le_bytes());
                bytes.extend((buffer.len() as u64).to_le_bytes());
                bytes.extend(buffer);
            }
            bytes
        }
    }

    fn import_with(
        dump: &[u8],
        metadata: &Metadata,
        completions_ns: &[i64],
    ) -> Result<(Vec<Record>, Summary), XenError> {
        import(
            dump,
            &XenRun {
                metadata,
                domids: &DOMIDS,
                start_realtime_ns: START_REALTIME_NS,
                completions_ns: &[vec![completions_ns.to_vec()], vec![]],
            },
        )
    }

    /// Time in us, kind, CPU, domain, VCPU, argument.
    type Row = (i64, Kind, u16, u16, u16, i64);

    /// Without the records of jobs.
    fn schedule(dump: &Dump) -> (Vec<Row>, Summary) {
        let metadata = metadata(dump.0.len() as u32);
        let (records, summary) =
            import_with(&dump.bytes(), &metadata, &[]).expect("the dump is whole");
        let records = records
            .into_iter()
            .filter(|record| !record.kind.is_of_job());
        let row = |record: Record| {
            let Record {
                time_ns,
                kind,
                cpu,
                domain,
                vcpu,
                argument,
            } = record;
            (time_ns / US, kind, cpu, domain, vcpu, argument)
        };
        (records.map(row).collect(), summary)
    }

    const NEVER: i64 = i64::MAX;

    /// The buffers of a stock scheduler: no events of Laxity, `WAKE` and `BLOCK` or run states.
    fn stock(states: bool) -> Dump {
        let mut dump = Dump::new(1);
        // A vCPU of dom0 starts the trace; *batch* has been waiting.
        dump.switch(0, -20 * US, DOM0, BATCH);
        dump.wake(0, 100 * US, CONTROL);
        if states {
            dump.state(0, 101 * US, CONTROL, 2, RUNNABLE);
        }
        dump.switch(0, 110 * US, BATCH, CONTROL);
        if states {
            dump.state(0, 111 * US, BATCH, RUNNING, RUNNABLE);
            dump.state(0, 111 * US, CONTROL, RUNNABLE, RUNNING);
        }
        dump.block(0, 500 * US, CONTROL);
        // Woken before it has left: it does not block.
        dump.wake(0, 501 * US, CONTROL);
        dump.go_on(0, 502 * US, CONTROL);
        dump.block(0, 600 * US, CONTROL);
        dump.switch(0, 602 * US, CONTROL, DOM0);
        if states {
            dump.state(0, 602 * US, CONTROL, RUNNING, 2);
        }
        dump.switch(0, 700 * US, DOM0, IDLE);
        dump.go_on(0, 800 * US, IDLE);
        dump.switch(0, 900 * US, IDLE, BATCH);
        dump
    }

    #[test]
    fn buffers_of_a_stock_scheduler() {
        for states in [false, true] {
            let (records, summary) = schedule(&stock(states));
            let woken_us = if states { 101 } else { 100 };
            assert_eq!(
                records,
                [
                    (0, Kind::Wake, NONE, 1, 0, 0),
                    (0, Kind::Run, 0, 1, 0, NEVER),
                    (woken_us, Kind::Wake, NONE, 0, 0, 0),
                    (110, Kind::Stop, 0, 1, 0, 1),
                    (110, Kind::Schedule, 0, 0, 0, 0),
                    (110, Kind::Run, 0, 0, 0, NEVER),
                    (502, Kind::Schedule, 0, 0, 0, 0),
                    (600, Kind::Block, 0, 0, 0, 0),
                    (602, Kind::Stop, 0, 0, 0, 0),
                    (602, Kind::Schedule, 0, NONE, NONE, 0),
                    (800, Kind::Schedule, 0, NONE, NONE, 0),
                    (900, Kind::Schedule, 0, 1, 0, 0),
                    (900, Kind::Run, 0, 1, 0, NEVER),
                ]
            );
            assert_eq!((summary.decisions, summary.switches), (6, 4));
            assert_eq!(
                (summary.foreign_decisions, summary.foreign_switches),
                (1, 1)
            );
            assert_eq!((summary.foreign_ns, summary.idle_ns), (98 * US, 200 * US));
            let batch_ns = 110 * US + 20 * MS - 900 * US;
            assert_eq!(summary.cpu_ns, [vec![492 * US], vec![batch_ns, 0]]);
        }
    }

    #[test]
    fn buffers_of_laxity() {
        let mut dump = Dump::new(1);
        dump.go_on(0, -US, CONTROL);
        dump.policy(0, 5 * US, trc::REPLENISH, CONTROL, 2 * MS);
        dump.policy(0, 5 * US, trc::REPLENISH, DOM0, 2 * MS);
        dump.policy(0, 10 * US, trc::EXHAUST, CONTROL, 0);
        dump.policy(0, 10 * US, trc::CLASS, CONTROL, 3);
        dump.policy(0, 11 * US, trc::DECISION, BATCH_1, 5 * MS);
        dump.switch(0, 12 * US, CONTROL, BATCH_1);
        dump.event(0, 13 * US, trc::MEASURE, &[300, 901, 60, 2]);
        dump.policy(0, 20 * US, trc::BUDGET, BATCH_1, -7);
        dump.policy(0, 20 * US, trc::DECISION, BATCH_1, i64::MAX);
        dump.go_on(0, 21 * US, BATCH_1);
        dump.event(0, 22 * US, trc::MEASURE, &[150, 0, 0, 0]);
        // A tasklet takes the CPU, whatever the policy says.
        dump.policy(0, 30 * US, trc::DECISION, BATCH_1, MS);
        dump.switch(0, 31 * US, BATCH_1, IDLE);
        dump.policy(0, 40 * US, trc::DECISION, IDLE, MS);
        dump.go_on(0, 41 * US, IDLE);
        let (records, summary) = schedule(&dump);
        assert_eq!(
            records,
            [
                (0, Kind::Wake, NONE, 0, 0, 0),
                (0, Kind::Wake, NONE, 1, 1, 0),
                (0, Kind::Run, 0, 0, 0, 30 * MS - US),
                (5, Kind::Replenish, NONE, 0, 0, 2 * MS),
                (10, Kind::Exhaust, NONE, 0, 0, 0),
                (10, Kind::Class, NONE, 0, 0, 3),
                (12, Kind::Stop, 0, 0, 0, 1),
                (12, Kind::Schedule, 0, 1, 1, 400),
                (12, Kind::Run, 0, 1, 1, 5 * MS + 12 * US),
                (20, Kind::Budget, NONE, 1, 1, -7),
                (21, Kind::Schedule, 0, 1, 1, 50),
                (31, Kind::Stop, 0, 1, 1, 1),
                (31, Kind::Schedule, 0, NONE, NONE, 0),
                (41, Kind::Schedule, 0, NONE, NONE, 0),
            ]
        );
        assert_eq!(summary.decision_ns, [100, 50]);
        assert_eq!(summary.switch_ns, [300]);
        assert_eq!((summary.timer_ns, summary.timers), (20, 2));
    }

    #[test]
    fn a_vcpu_goes_from_one_cpu_to_another() {
        let mut dump = Dump::new(2);
        dump.switch(0, 10 * US, BATCH, IDLE);
        dump.state(0, 10 * US, BATCH, RUNNING, RUNNABLE);
        dump.policy(0, 11 * US, trc::MIGRATE, BATCH, 1);
        dump.switch(1, 12 * US, CONTROL, BATCH);
        // Paused: no `BLOCK` says that it blocks.
        dump.state(1, 12 * US, CONTROL, RUNNING, 3);
        dump.state(0, 15 * US, CONTROL, 3, RUNNABLE);
        // Paused while it waits.
        dump.state(0, 16 * US, CONTROL, RUNNABLE, 3);
        let (records, summary) = schedule(&dump);
        assert_eq!(
            records,
            [
                (0, Kind::Wake, NONE, 0, 0, 0),
                (0, Kind::Wake, NONE, 1, 0, 0),
                (0, Kind::Run, 0, 1, 0, NEVER),
                (0, Kind::Run, 1, 0, 0, NEVER),
                (10, Kind::Stop, 0, 1, 0, 1),
                (10, Kind::Schedule, 0, NONE, NONE, 0),
                (11, Kind::Migrate, NONE, 1, 0, 1),
                (12, Kind::Block, 1, 0, 0, 0),
                (12, Kind::Stop, 1, 0, 0, 0),
                (12, Kind::Schedule, 1, 1, 0, 0),
                (12, Kind::Run, 1, 1, 0, NEVER),
                (15, Kind::Wake, NONE, 0, 0, 0),
                (16, Kind::Block, NONE, 0, 0, 0),
            ]
        );
        assert_eq!(summary.idle_ns, 20 * MS - 10 * US);
    }

    #[test]
    fn jobs_arrive_and_complete() {
        let mut dump = Dump::new(1);
        dump.wake(0, 10 * MS, CONTROL);
        dump.switch(0, 10 * MS, IDLE, CONTROL);
        let metadata = metadata(1);
        let jobs = |completions_ns: &[i64]| {
            let (records, _) =
                import_with(&dump.bytes(), &metadata, completions_ns).expect("the dump is whole");
            records
                .into_iter()
                .map(|record| (record.time_ns / MS, record.kind, record.cpu))
                .filter(|(_, kind, _)| *kind != Kind::Schedule)
                .collect::<Vec<_>>()
        };
        // The first is so late that it completes as the second arrives.
        assert_eq!(
            jobs(&[10 * MS, 13 * MS]),
            [
                (0, Kind::Release, NONE),
                (10, Kind::Complete, NONE),
                (10, Kind::Release, NONE),
                (10, Kind::Wake, NONE),
                (10, Kind::Run, 0),
                (13, Kind::Complete, 0),
            ]
        );
        assert_eq!(jobs(&[UNFINISHED]), jobs(&[]));
        assert_eq!(jobs(&[20 * MS + 1, UNFINISHED]), jobs(&[]));
    }

    #[test]
    fn jobs_that_cannot_be_are_refused() {
        let metadata = metadata(1);
        let error = |completions_ns: &[i64]| {
            import_with(&Dump::new(1).bytes(), &metadata, completions_ns)
                .expect_err("no such jobs")
                .to_string()
        };
        assert_eq!(
            error(&[1, 2, 3]),
            "task control.loop: 3 jobs are reported, and 2 are released"
        );
        assert!(error(&[1, 9 * MS]).contains("job 1 cannot have completed at 9000000 ns"));
        assert!(error(&[13 * MS, 12 * MS]).contains("the one before completed at 13000000 ns"));
        assert!(error(&[UNFINISHED, 12 * MS]).contains("job 1 cannot"));
        assert!(error(&[-1]).contains("job 0 cannot"));
        let run = XenRun {
            metadata: &metadata,
            domids: &[3, 3],
            start_realtime_ns: 0,
            completions_ns: &[],
        };
        let error = |run| import(&[], &run).expect_err("no such run").to_string();
        assert_eq!(
            error(run),
            "domain batch has Xen's number 3, as another one has"
        );
        assert!(
            error(XenRun {
                domids: &[3],
                ..run
            })
            .contains("2 domains, and 1 numbers")
        );
        assert!(
            error(XenRun {
                domids: &[3, 0x7FFF],
                ..run
            })
            .contains("below 32752")
        );
        assert!(
            error(XenRun {
                domids: &DOMIDS,
                ..run
            })
            .contains("completion times")
        );
    }

    fn error(dump: &Dump) -> String {
        import_with(&dump.bytes(), &metadata(2), &[])
            .expect_err("it is damaged")
            .to_string()
    }

    #[test]
    fn what_is_of_no_interest_is_passed_over() {
        let mut dump = stock(true);
        let (records, summary) = schedule(&dump);
        // A wrap, an event without time, one of credit's, and one of a later version of ours.
        dump.words(0, &[3 << 28 | 0x0001_F002, 1, 2, 3]);
        dump.words(0, &[0x0020_1003]);
        dump.event(0, MS, 0x0002_2009, &[1]);
        dump.event(0, MS, trc::MEASURE + 1, &[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(schedule(&dump), (records, summary));
    }

    #[test]
    fn lost_records_are_refused() {
        let mut dump = Dump::new(2);
        dump.go_on(1, 0, IDLE);
        dump.event(1, US, trc::LOST_RECORDS, &[42, 0, 0, 0]);
        assert_eq!(
            error(&dump),
            "Xen lost 42 trace records of CPU 1 (byte 108 of the dump): trace with larger buffers, \
             fewer events or for a shorter time"
        );
    }

    #[test]
    fn contradictions_are_refused() {
        let mut dump = Dump::new(2);
        dump.go_on(0, 0, CONTROL);
        dump.switch(0, US, BATCH, IDLE);
        assert_eq!(
            error(&dump),
            "byte 144 of the dump, CPU 0 at 1000 ns of the run: batch/0 is said to have run here, and before, \
             control/0"
        );
        let mut dump = Dump::new(2);
        dump.go_on(0, 0, CONTROL);
        dump.switch(1, US, IDLE, CONTROL);
        assert!(error(&dump).contains("control/0 begins to run, and it still runs on CPU 0"));
        // Two CPUs that run it at once, from the beginning.
        let mut dump = Dump::new(2);
        dump.go_on(0, 0, CONTROL);
        dump.go_on(1, 0, CONTROL);
        assert!(error(&dump).contains("control/0 is said to have run here"));
    }

    #[test]
    fn damage_is_named() {
        let with = |change: fn(&mut Dump)| {
            let mut dump = Dump::new(2);
            dump.go_on(0, 10 * US, IDLE);
            change(&mut dump);
            error(&dump)
        };
        assert_eq!(
            with(|dump| dump.go_on(0, 9 * US, IDLE)),
            "the dump is damaged at byte 92: time goes back, from cycle 1099514657776 to 1099514654776"
        );
        assert!(
            with(|dump| dump.event(0, MS, trc::WAKE, &[1])).contains("event 0x28004 has 1 words")
        );
        assert!(with(|dump| dump.words(0, &[2 << 28 | trc::WAKE, 1, 2])).contains("has no time"));
        assert!(with(|dump| dump.wake(0, MS, (3, 1))).contains("VCPU 1, and 1 in the host file"));
        assert!(with(|dump| dump.wake(0, MS, (0x1_0000, 0))).contains("domain 65536 cannot be"));
        assert!(with(|dump| dump.policy(0, MS, trc::CLASS, BATCH, 4)).contains("class 4"));
        assert!(with(|dump| dump.policy(0, MS, trc::MIGRATE, BATCH, 2)).contains("is on CPU 2"));
        assert!(with(|dump| dump.words(0, &[1 << 31])).contains("byte 92: a trace record is not"));
        let mut third = Dump::new(3);
        third.switch(2, 0, DOM0, IDLE);
        assert!(
            import_with(&third.bytes(), &metadata(2), &[]).is_ok(),
            "dom0 may be anywhere"
        );
        third.switch(2, US, IDLE, BATCH);
        assert!(error(&third).contains("the host has 2 CPUs"));
    }

    #[test]
    fn another_file_is_refused() {
        let bytes = Dump::new(2).bytes();
        let error = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            import_with(&bytes, &metadata(2), &[]).expect_err("it is damaged")
        };
        assert_eq!(error(0, 0), XenError::Magic);
        assert_eq!(error(8, 2), XenError::Version { version: 2 });
        assert!(
            error(12, 3)
                .to_string()
                .contains("cut short at byte 80: a CPU's header")
        );
        assert!(
            error(12, 1)
                .to_string()
                .contains("16 bytes after the last CPU")
        );
        assert!(
            error(64, 0)
                .to_string()
                .contains("CPU 0 is not in order of number")
        );
        assert!(error(55, 1).to_string().contains("where a 0 belongs"));
        assert!(
            error(50, 1)
                .to_string()
                .contains("CPU 65536; CPUs are below")
        );
        assert!(
            error(56, 200)
                .to_string()
                .contains("byte 64: a CPU's buffer is not whole")
        );
        assert!(
            error(37, 0)
                .to_string()
                .contains("the clocks did not go on")
        );
        assert!(error(38, 1).to_string().contains("no CPU counts cycles"));
        assert!(error(47, 255).to_string().contains("beyond all time"));
        let mut late = metadata(2);
        late.duration_ns += 2 * LEAD_NS;
        let window = import_with(&bytes, &late, &[]).expect_err("it was not traced to the end");
        assert!(matches!(window, XenError::Window { .. }), "{window}");
    }

    #[test]
    fn times_are_on_the_line_to_the_ns() {
        let clock = Clock {
            cycles_start: 1000,
            cycles: 3_000_000_000,
            duration_ns: 1_000_000_000,
            start_ns: -5,
        };
        assert_eq!(clock.time_ns(1000), Some(-5));
        assert_eq!(clock.time_ns(1002), Some(-5));
        assert_eq!(clock.time_ns(1003), Some(-4));
        assert_eq!(clock.time_ns(999), Some(-6));
        assert_eq!((clock.span_ns(4), clock.span_ns(5)), (1, 2));
        let steep = Clock { cycles: 1, ..clock };
        assert_eq!(steep.time_ns(u64::MAX), None);
    }

    /// Whether the records are a trace: they can be read, and every `Run` and `Stop`, `Wake` and `Block`
    /// follows from what was before.
    fn check_trace(metadata: &Metadata, records: &[Record]) {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, metadata).expect("a Vec takes everything");
        records.iter().for_each(|&record| writer.record(record));
        writer.finish().expect("a Vec takes everything");
        let reader = || Reader::new(&file[..]).expect("the header is right");
        let read = reader()
            .collect::<Result<Vec<_>, _>>()
            .expect("the trace is right");
        assert!(read == records);
        text::write(reader(), std::io::sink()).expect("the trace is right");
        crate::perfetto::write(reader(), std::io::sink()).expect("the trace is right");
        timeline(reader(), 0, metadata.duration_ns).expect("the trace is right");

        let mut awake = HashMap::new();
        let mut running = HashMap::new();
        for record in records {
            let who = (record.domain, record.vcpu);
            match record.kind {
                Kind::Wake => assert!(!awake.insert(who, true).unwrap_or(false), "{record:?}"),
                Kind::Block => assert!(awake.insert(who, false).unwrap_or(false), "{record:?}"),
                Kind::Run => {
                    assert_eq!(running.insert(record.cpu, who), None, "{record:?}");
                    assert!(running.values().filter(|&&other| other == who).count() == 1);
                    assert!(awake[&who]);
                }
                Kind::Stop => {
                    assert_eq!(running.remove(&record.cpu), Some(who), "{record:?}");
                    assert_eq!(record.argument, i64::from(awake[&who]));
                }
                _ => {}
            }
        }
    }

    /// VCPUs that take turns at random, as Xen would trace them, and what must come of it.
    fn random_run(steps: &[(u8, u8, u16)], states: bool) -> (Dump, Vec<Record>) {
        const WHO: [(u32, u32); 3] = [CONTROL, BATCH, BATCH_1];
        const NAMES: [(u16, u16); 3] = [(0, 0), (1, 0), (1, 1)];
        let mut dump = Dump::new(2);
        let mut expected = Vec::new();
        let mut awake = [false; 3];
        let mut on_cpu: [Option<usize>; 2] = [None; 2];
        let mut time_ns = 0;
        let named = |who: Option<usize>| who.map_or(IDLE, |who| WHO[who]);
        for &(choice, who, step_ns) in steps {
            time_ns += i64::from(step_ns) + 1;
            if time_ns > 20 * MS {
                break;
            }
            let mut record = |who: Option<usize>, cpu, kind, argument| {
                let (domain, vcpu) = who.map_or((NONE, NONE), |who| NAMES[who]);
                expected.push(Record {
                    time_ns,
                    argument,
                    cpu,
                    domain,
                    vcpu,
                    kind,
                });
            };
            let cpu = usize::from(choice & 1);
            let who = usize::from(who) % 3;
            let running = on_cpu.contains(&Some(who));
            match choice >> 1 & 3 {
                0 if !awake[who] => {
                    awake[who] = true;
                    dump.wake(cpu, time_ns, WHO[who]);
                    if states {
                        dump.state(cpu, time_ns, WHO[who], 2, RUNNABLE);
                    }
                    record(Some(who), NONE, Kind::Wake, 0);
                }
                1 => {
                    dump.go_on(cpu, time_ns, named(on_cpu[cpu]));
                    record(on_cpu[cpu], cpu as u16, Kind::Schedule, 0);
                }
                kind => {
                    let next = (awake[who] && !running).then_some(who);
                    let before = on_cpu[cpu];
                    if before == next {
                        continue;
                    }
                    let blocks = kind == 2;
                    if let Some(before) = before.filter(|_| blocks) {
                        dump.block(cpu, time_ns, WHO[before]);
                        awake[before] = false;
                        record(Some(before), cpu as u16, Kind::Block, 0);
                    }
                    dump.switch(cpu, time_ns, named(before), named(next));
                    if let Some(before) = before {
                        if states {
                            let new = if blocks { 2 } else { RUNNABLE };
                            dump.state(cpu, time_ns, WHO[before], RUNNING, new);
                        }
                        record(Some(before), cpu as u16, Kind::Stop, i64::from(!blocks));
                    }
                    record(next, cpu as u16, Kind::Schedule, 0);
                    if next.is_some() {
                        record(next, cpu as u16, Kind::Run, i64::MAX);
                    }
                    on_cpu[cpu] = next;
                }
            }
        }
        (dump, expected)
    }

    proptest! {
        #[test]
        fn random_runs_come_out(
            steps in prop::collection::vec(any::<(u8, u8, u16)>(), 0..200), states: bool,
        ) {
            let (dump, expected) = random_run(&steps, states);
            let metadata = metadata(2);
            let (records, summary) = import_with(&dump.bytes(), &metadata, &[4 * MS, 15 * MS])
                .expect("the dump is whole");
            check_trace(&metadata, &records);
            let (jobs, schedule): (Vec<_>, Vec<_>) =
                records.into_iter().partition(|record| record.kind.is_of_job());
            prop_assert_eq!(jobs.len(), 4);
            prop_assert_eq!(&schedule, &expected);
            let of = |kind| expected.iter().filter(|record| record.kind == kind).count() as u64;
            prop_assert_eq!(summary.decisions, of(Kind::Schedule));
            let cpu_ns: i64 = summary.cpu_ns.iter().flatten().sum();
            prop_assert_eq!(cpu_ns + summary.idle_ns + summary.foreign_ns, 40 * MS);
        }

        #[test]
        fn a_run_may_be_cut_out_of_a_longer_one(
            steps in prop::collection::vec(any::<(u8, u8, u16)>(), 0..200), from_us in 0i64..900,
        ) {
            let (dump, expected) = random_run(&steps, true);
            let mut metadata = metadata(2);
            metadata.duration_ns = 10 * MS;
            let (records, _) = import(&dump.bytes(), &XenRun {
                metadata: &metadata,
                domids: &DOMIDS,
                start_realtime_ns: START_REALTIME_NS + from_us * US,
                completions_ns: &[vec![vec![]], vec![]],
            }).expect("the dump is whole");
            check_trace(&metadata, &records);
            // What runs is what ran at any instant of the longer run.
            let within: Vec<Record> = expected.into_iter()
                .map(|record| Record { time_ns: record.time_ns - from_us * US, ..record })
                .filter(|record| (1..=10 * MS).contains(&record.time_ns))
                .collect();
            let records: Vec<Record> = records.into_iter()
                .filter(|record| record.time_ns > 0 && !record.kind.is_of_job())
                .collect();
            prop_assert_eq!(records, within);
        }

        #[test]
        fn no_damage_makes_it_panic(
            steps in prop::collection::vec(any::<(u8, u8, u16)>(), 0..50),
            damage in prop::collection::vec(any::<(usize, u8)>(), 1..8),
            length: usize,
        ) {
            let mut bytes = random_run(&steps, true).0.bytes();
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(length % (2 * bytes.len()));
            let metadata = metadata(2);
            if let Ok((records, _)) = import_with(&bytes, &metadata, &[4 * MS]) {
                check_trace(&metadata, &records);
            }
        }
    }
}
