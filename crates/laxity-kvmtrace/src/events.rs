//! The decoder of a CPU's buffer: pages become events.

use crate::error::KvmError;
use crate::exits::Exits;
use crate::format::{Field, Format, TextField};
use crate::pages::{self, Found};
use crate::run::KvmRun;
use crate::tracedat::CpuBuffer;
use laxity_replay::{Decision, Event, Vcpus, What, Who};
use laxity_trace::NONE;
use std::collections::HashMap;

/// Bits of a thread's state in `sched_switch` that say why it does not run. The one above them says that it was
/// preempted.
const BLOCKED: i64 = 0xFF;

/// The threads of the host file's VCPUs.
pub struct Threads<'a> {
    by_number: HashMap<i64, u32>,
    vcpus: &'a Vcpus,
}

impl<'a> Threads<'a> {
    pub fn new(run: &KvmRun, vcpus: &'a Vcpus) -> Result<Threads<'a>, KvmError> {
        if run.threads.len() != vcpus.domains() {
            let (domains, named) = (vcpus.domains(), run.threads.len());
            return Err(KvmError::Run(format!(
                "{domains} domains, and the threads of {named}"
            )));
        }
        let mut by_number = HashMap::new();
        for (domain, threads) in run.threads.iter().enumerate() {
            let name = &run.jobs.metadata.domains[domain].name;
            let places = vcpus.of_domain(domain);
            if threads.len() != places.len() {
                return Err(KvmError::Run(format!(
                    "domain {name} has {} VCPUs and {} threads",
                    places.len(),
                    threads.len()
                )));
            }
            for (place, &thread) in places.zip(threads) {
                if thread < 1 || by_number.insert(thread.into(), place).is_some() {
                    return Err(KvmError::Run(format!(
                        "thread {thread} of domain {name} is not a thread, or also belongs to another VCPU"
                    )));
                }
            }
        }
        Ok(Threads { by_number, vcpus })
    }

    pub fn who(&self, thread: i64) -> Who {
        match self.by_number.get(&thread) {
            Some(&place) => Who::Vcpu(place),
            None if thread == 0 => Who::Idle,
            None => Who::Foreign,
        }
    }
}

/// The events that are used, as this kernel numbers them and lays them out.
pub struct Formats {
    switch: u16,
    before: Field,
    state: Field,
    after: Field,
    after_name: TextField,
    after_priority: Field,
    wakeup: u16,
    woken: Field,
    /// The CPU in whose queue it is put.
    target: Option<Field>,
    exits: Option<Exits>,
}

impl Formats {
    pub fn new(texts: &[&str]) -> Result<Formats, KvmError> {
        let switch = Format::find(texts, "sched_switch")?;
        let wakeup = Format::find(texts, "sched_wakeup")?;
        Ok(Formats {
            switch: switch.number()?,
            before: switch.field("prev_pid")?,
            state: switch.field("prev_state")?,
            after: switch.field("next_pid")?,
            after_name: switch.text("next_comm")?,
            after_priority: switch.field("next_prio")?,
            wakeup: wakeup.number()?,
            woken: wakeup.field("pid")?,
            target: wakeup.field("target_cpu").ok(),
            exits: Exits::find(texts),
        })
    }

    /// What an event says; `None` if it is of no interest, an error if it is too short.
    fn what(&self, event: &[u8], threads: &Threads) -> Result<Option<What>, String> {
        let number = event.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
        let number = number.ok_or("an event without a number")?;
        let value = |field: Field| {
            let short = || format!("event {number} has {} bytes", event.len());
            field.of(event).ok_or_else(short)
        };
        if number == self.switch {
            return Ok(Some(What::Switch {
                before: threads.who(value(self.before)?),
                after: threads.who(value(self.after)?),
                blocks: value(self.state)? & BLOCKED != 0,
                decision: Decision {
                    until_ns: i64::MAX,
                    cost_ns: 0,
                },
            }));
        }
        if number == self.wakeup
            && let Who::Vcpu(vcpu) = threads.who(value(self.woken)?)
        {
            let target = match self.target {
                Some(field) => value(field)?,
                None => NONE.into(),
            };
            return Ok(Some(What::Wake {
                vcpu,
                state: true,
                cpu: u16::try_from(target).unwrap_or(NONE),
            }));
        }
        match &self.exits {
            Some(exits) => exits.what(number, |thread| threads.who(thread), value),
            None => Ok(None),
        }
    }

    /// The thread that a switch gives the CPU: its number, name and priority. `None` for other events.
    pub fn thread<'a>(&self, event: &'a [u8]) -> Option<(i64, &'a [u8], i64)> {
        let number = event
            .first_chunk()
            .map(|bytes| u16::from_le_bytes(*bytes))?;
        if number != self.switch {
            return None;
        }
        let name = self.after_name.of(event)?;
        Some((self.after.of(event)?, name, self.after_priority.of(event)?))
    }
}

/// Adds the events of a CPU. `ns` makes times of what its pages have.
pub fn read_pages(
    buffer: &CpuBuffer,
    ns: impl Fn(u64) -> i128,
    run: &KvmRun,
    threads: &Threads,
    formats: &Formats,
    events: &mut Vec<Event>,
) -> Result<(), KvmError> {
    let cpu = buffer.number()?;
    let mut before = 0;
    for (place, page) in buffer.pages() {
        let damaged = |at, reason| KvmError::Damaged {
            offset: place + at,
            reason,
        };
        pages::read(page, damaged, |found| {
            let Found::Event(at, cycles, bytes) = found else {
                return Err(KvmError::Lost { events: 0, cpu });
            };
            let what = formats.what(bytes, threads);
            let Some(what) = what.map_err(|reason| damaged(at, reason))? else {
                return Ok(());
            };
            if cycles < before {
                let reason = format!("time goes back, from cycle {before} to {cycles}");
                return Err(damaged(at, reason));
            }
            before = cycles;
            let time_ns = i64::try_from(ns(cycles) - i128::from(run.start_ns))
                .map_err(|_| damaged(at, format!("cycle {cycles} is beyond all time")))?;
            refuse_elsewhere(&what, cpu, run, threads).map_err(|reason| damaged(at, reason))?;
            events.push(Event {
                cycles,
                time_ns,
                offset: place + at,
                cpu,
                what,
            });
            Ok(())
        })?;
    }
    Ok(())
}

/// That the host's VCPUs run on the host's CPUs.
fn refuse_elsewhere(what: &What, cpu: u16, run: &KvmRun, threads: &Threads) -> Result<(), String> {
    let cpus = run.jobs.metadata.cpus;
    match *what {
        What::Switch {
            after: Who::Vcpu(place),
            ..
        } if u32::from(cpu) >= cpus => {
            let (domain, vcpu) = threads.vcpus.name(place);
            Err(format!(
                "VCPU {vcpu} of domain {domain} of the host file is on CPU {cpu}; the host has {cpus} CPUs"
            ))
        }
        _ => Ok(()),
    }
}
