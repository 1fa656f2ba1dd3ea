//! Converts events to the records of a trace, and follows the VCPU of each CPU meanwhile.

use crate::error::ReplayError;
use crate::event::{Decision, Event, What, Who};
use crate::summary::Summary;
use crate::vcpus::Vcpus;
use laxity_run::released_jobs;
use laxity_trace::{Exit, Kind, Metadata, NONE, Record, job};
use std::iter::Peekable;

/// The records of the jobs that are still to come.
type Pending = Peekable<std::vec::IntoIter<Record>>;

/// The jobs of a run.
#[derive(Debug, Clone, Copy)]
pub struct Jobs<'a> {
    /// The metadata that will stand in the trace.
    pub metadata: &'a Metadata,
    /// For each domain and task, when its jobs completed, from the start of the run, by job number;
    /// [`UNFINISHED`](laxity_run::UNFINISHED) for those that did not, and for those behind the end of the list.
    pub completions_ns: &'a [Vec<Vec<i64>>],
}

/// A run whose jobs are known, before the events are.
pub struct Replay<'a> {
    metadata: &'a Metadata,
    pending: Pending,
}

impl<'a> Replay<'a> {
    /// Takes the jobs of a run.
    ///
    /// # Errors
    ///
    /// The jobs are not of the run.
    pub fn new(run: &Jobs<'a>) -> Result<Replay<'a>, ReplayError> {
        Ok(Replay {
            metadata: run.metadata,
            pending: jobs(run)?.into_iter().peekable(),
        })
    }

    /// Makes the records of a trace, and the summary, of what a kernel saw. `events` are in the order in which they
    /// happened; those before the start of the run tell its state then. `cpus` are those that events name, and at
    /// least the host's. All is held in memory.
    ///
    /// # Errors
    ///
    /// Events contradict each other.
    pub fn run(
        mut self,
        names: &Vcpus,
        events: &[Event],
        cpus: usize,
    ) -> Result<(Vec<Record>, Summary), ReplayError> {
        let mut host = Host::new(self.metadata, names, cpus, events);
        let end_ns = self.metadata.duration_ns;
        for event in events {
            if event.time_ns > end_ns {
                break;
            }
            if !host.begun && event.time_ns >= 0 {
                host.begin(&mut self.pending);
            }
            if host.begun {
                host.jobs(&mut self.pending, event.time_ns);
            }
            host.event(event)?;
        }
        if !host.begun {
            host.begin(&mut self.pending);
        }
        host.jobs(&mut self.pending, end_ns);
        Ok(host.finish())
    }
}

/// The records of the jobs, in order, their CPUs open.
fn jobs(run: &Jobs) -> Result<Vec<Record>, ReplayError> {
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
    /// The CPU on which it runs, or [`NONE`].
    cpu: u16,
    blocked: bool,
    /// Why its guest was left, until it is entered.
    exit: Option<Exit>,
}

/// The VCPU of each CPU, as the events go by.
struct Host<'a> {
    metadata: &'a Metadata,
    names: &'a Vcpus,
    cpus: Vec<Cpu>,
    vcpus: Vec<Vcpu>,
    /// The run has started. Nothing is recorded or counted before.
    begun: bool,
    records: Vec<Record>,
    summary: Summary,
}

impl<'a> Host<'a> {
    /// The host before the first event: the first event that concerns a CPU or a VCPU tells its state. A VCPU of which
    /// there is none is blocked, a CPU idle.
    fn new(metadata: &'a Metadata, names: &'a Vcpus, cpus: usize, events: &[Event]) -> Self {
        let mut running: Vec<Option<Who>> = vec![None; cpus];
        let blocked = Vcpu {
            cpu: NONE,
            blocked: true,
            exit: None,
        };
        let mut vcpus = vec![blocked; names.count()];
        // Whether it is known of a VCPU if it was runnable, and where it ran.
        let mut runnable = vec![false; vcpus.len()];
        let mut placed = vec![false; vcpus.len()];
        // Whether it is known if its guest was left.
        let mut told = vec![false; vcpus.len()];
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
                What::Guest { vcpu, exit } => {
                    if !std::mem::replace(&mut told[vcpu as usize], true) && exit.is_none() {
                        vcpus[vcpu as usize].exit = Some(Exit::Other);
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
    fn begin(&mut self, jobs: &mut Pending) {
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
        for vcpu in 0..self.vcpus.len() as u32 {
            let Vcpu { cpu, exit, .. } = self.vcpus[vcpu as usize];
            if let Some(exit) = exit {
                self.record(0, vcpu, Kind::Exit, cpu, exit as i64);
            }
        }
    }

    /// Jobs that arrive and complete up to a time.
    fn jobs(&mut self, jobs: &mut Pending, time_ns: i64) {
        while let Some(record) = jobs.next_if(|record| record.time_ns <= time_ns) {
            let first = self.names.of_domain(usize::from(record.domain)).start;
            let cpu = self.vcpus[first as usize + usize::from(record.vcpu)].cpu;
            self.records.push(Record { cpu, ..record });
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), ReplayError> {
        let (time_ns, cpu) = (event.time_ns, event.cpu);
        match event.what {
            What::Wake { vcpu, cpu, .. } => {
                // A CPU beyond the host's is not in the trace.
                let is_of_host = u32::from(cpu) < self.metadata.cpus;
                self.wake(time_ns, vcpu, if is_of_host { cpu } else { NONE });
            }
            What::Block { vcpu, .. } => self.block(time_ns, vcpu),
            What::Guest { vcpu, exit } => {
                let of_vcpu = &mut self.vcpus[vcpu as usize];
                let cpu = of_vcpu.cpu;
                if std::mem::replace(&mut of_vcpu.exit, exit) != exit {
                    let (kind, argument) = match exit {
                        Some(exit) => (Kind::Exit, exit as i64),
                        None => (Kind::Enter, 0),
                    };
                    self.record(time_ns, vcpu, kind, cpu, argument);
                }
            }
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
                    self.wake(time_ns, vcpu, NONE);
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
    fn expect(&self, event: &Event, who: Who) -> Result<(), ReplayError> {
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
                let (domain, vcpu) = self.names.name(vcpu);
                self.metadata.vcpu_name(domain, vcpu)
            }
        }
    }

    fn wake(&mut self, time_ns: i64, vcpu: u32, cpu: u16) {
        if std::mem::take(&mut self.vcpus[vcpu as usize].blocked) {
            self.record(time_ns, vcpu, Kind::Wake, cpu, 0);
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
            Who::Vcpu(vcpu) => self.names.name(vcpu),
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
        let (domain, vcpu) = self.names.name(vcpu);
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
                let (domain, vcpu) = self.names.name(vcpu);
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

fn contradiction(event: &Event, reason: String) -> ReplayError {
    ReplayError::Contradiction {
        offset: event.offset,
        cpu: event.cpu,
        time_ns: event.time_ns,
        reason,
    }
}
