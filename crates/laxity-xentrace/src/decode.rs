//! The decoder of a dump: bytes become events, CPU by CPU.

use crate::clock;
use crate::credits::Credits;
use crate::deadlines::Replenishment;
use crate::error::XenError;
use crate::input::{Input, long};
use crate::names::Names;
use crate::run::XenRun;
use laxity_replay::{Clock, Decision, Event, Summary, What, Who};
use laxity_trace::NONE;

pub const MAGIC: [u8; 8] = *b"LAXITYXT";
pub const VERSION: u32 = 1;

/// Events of Xen's `public/trace.h`, and of Laxity's schedulers.
pub mod trc {
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
    /// The first of `enum laxity_event`, and the last.
    pub const REPLENISH: u32 = LAXITY + 2;
    pub const CLASS: u32 = LAXITY + 6;
    /// `TRC_SCHED_CLASS_EVT(CSCHED2, 3)`: VCPU, credits, budget, and what was paid.
    pub const CREDIT2_BURN: u32 = 0x0002_2203;
    /// `TRC_SCHED_CLASS_EVT(CSCHED2, 7)`: VCPU, credits before and after.
    pub const CREDIT2_RESET: u32 = 0x0002_2207;
    /// `TRC_SCHED_CLASS_EVT(RTDS, 4)`: VCPU, level, deadline and budget.
    pub const RTDS_REPLENISH: u32 = 0x0002_2804;
    /// Only the measured build writes it, under every scheduler.
    pub const MEASURE: u32 = 0x0002_1040;
}

/// `RUNSTATE_running`, `_runnable`; `_blocked` and `_offline` are above.
pub const RUNNING: u32 = 0;
pub const RUNNABLE: u32 = 1;

/// What decisions cost, in cycles.
#[derive(Default)]
pub struct Measures(Vec<Measure>);

struct Measure {
    time_ns: i64,
    cpu: u16,
    decision_cycles: u32,
    switch_cycles: u32,
    timer_cycles: u32,
    timers: u32,
}

impl Measures {
    pub fn fill_in(mut self, summary: &mut Summary, clock: &Clock, end_ns: i64) {
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

pub struct Decoded {
    /// The events of each CPU, in order.
    pub events: Vec<Event>,
    pub measures: Measures,
    /// Those of credit2.
    pub credits: Vec<Credits>,
    /// Those of rtds.
    pub replenishments: Vec<Replenishment>,
    /// Run states were traced.
    pub states: bool,
    pub clock: Clock,
    /// One more than the highest number, and at least the host's.
    pub cpus: usize,
}

/// What follows the header, the number of CPUs, and the clock of the run.
pub fn header<'a>(dump: &'a [u8], run: &XenRun) -> Result<(Input<'a>, u32, Clock), XenError> {
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
    let clock = clock::read(&mut input, run)?;
    Ok((input, cpus, clock))
}

pub fn decode(dump: &[u8], run: &XenRun, names: &Names) -> Result<Decoded, XenError> {
    let (mut input, cpus, clock) = header(dump, run)?;
    let mut decoded = Decoded {
        events: Vec::new(),
        measures: Measures::default(),
        credits: Vec::new(),
        replenishments: Vec::new(),
        states: false,
        clock,
        cpus: run.jobs.metadata.cpus as usize,
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
            host_cpus: run.jobs.metadata.cpus,
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

/// Goes through the buffer of one CPU.
struct Decoder<'a> {
    cpu: u16,
    host_cpus: u32,
    names: &'a Names,
    decoded: &'a mut Decoded,
    /// Cycles at the last event.
    time: u64,
    /// The VCPU that the policy chose since the last decision of Xen, and until when.
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
                    | trc::DECISION
                    ..=trc::CLASS
                        | trc::MEASURE
                        | trc::RTDS_REPLENISH
                        | trc::CREDIT2_BURN
                        | trc::CREDIT2_RESET
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
                    What::Wake {
                        vcpu,
                        state: false,
                        cpu: NONE,
                    }
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
                let Who::Vcpu(vcpu) = self.names.packed(vcpu)? else {
                    return Ok(());
                };
                let number = event - trc::REPLENISH;
                What::of_policy(vcpu, number, long(low, high) as i64, self.host_cpus)?
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
            (trc::CREDIT2_BURN, &[vcpu, after, _, paid]) => {
                let (after, paid) = (i64::from(after as i32), i64::from(paid as i32));
                self.credits(time_ns, vcpu, after + paid, after);
                return Ok(());
            }
            (trc::CREDIT2_RESET, &[vcpu, before, after]) => {
                let (before, after) = (i64::from(before as i32), i64::from(after as i32));
                self.credits(time_ns, vcpu, before, after);
                return Ok(());
            }
            (trc::RTDS_REPLENISH, &[vcpu, _, low, high, _, _]) => {
                self.decoded.replenishments.push(Replenishment {
                    time_ns,
                    vcpu,
                    deadline_ns: long(low, high),
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

    fn credits(&mut self, time_ns: i64, vcpu: u32, before_ns: i64, after_ns: i64) {
        self.decoded.credits.push(Credits {
            time_ns,
            vcpu,
            before_ns,
            after_ns,
        });
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
            (true, false) => Some(What::Wake {
                vcpu,
                state: true,
                cpu: NONE,
            }),
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
        let (domain, vcpu) = self.names.vcpus.name(vcpu);
        let cpus = self.host_cpus;
        format!(
            "VCPU {vcpu} of domain {domain} of the host file is on CPU {cpu}; the host has {cpus} CPUs"
        )
    }
}
