//! A file of trace-cmd: which threads it has, and its trace when it is known which of them are VCPUs.

use crate::dump;
use crate::error::KvmError;
use crate::events::{Formats, Threads, read_pages};
use crate::exits::leave_out_reentered;
use crate::packets::{Delivered, Network, Seen, Taker, Takers, delivered};
use crate::pages::{self, Found};
use crate::run::KvmRun;
use crate::tracedat::{self, TraceDat};
use laxity_replay::{Clock, Decision, Event, Jobs, Replay, Summary, Vcpus, What, Who};
use laxity_trace::{Metadata, Record};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// The most by which the clocks of two CPUs are taken to differ.
const CLOCKS_APART_NS_MAX: i64 = 100_000;
/// The most events that are looked at for one, so that the time for a file grows with its length alone.
const EVENTS_APART_MAX: usize = 1_000;

/// A thread that a recording has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Thread {
    /// Its number on the host.
    pub thread: i64,
    /// Its name, as the kernel cuts it: 15 bytes.
    pub name: String,
    /// Its priority in the kernel: below 0 under `SCHED_DEADLINE`, 0 to 98 under `SCHED_FIFO` and `SCHED_RR`, where 0
    /// is the highest, and from 100 on in the fair class.
    pub priority: i64,
}

/// What a recording is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Survey {
    /// One more than the highest number of a CPU.
    pub cpus: u32,
    /// The times of the first and of the last event, by the clock of the recording.
    pub from_ns: i64,
    /// The end.
    pub to_ns: i64,
    /// The threads that ran, by number.
    pub threads: Vec<Thread>,
    /// What it tells of packets.
    pub packets: Packets,
}

/// What of packets a recording tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Packets {
    /// Nothing.
    None,
    /// When threads took those that came to cards of virtual machines.
    Cards,
    /// That, and when threads took those that came to UDP sockets.
    CardsAndSockets,
}

/// A file of trace-cmd, or a dump, with `sched_switch` and `sched_wakeup`, and perhaps more.
pub struct Recording<'a> {
    file: TraceDat<'a>,
    formats: Formats,
    network: Option<Network>,
    survey: Survey,
}

impl<'a> Recording<'a> {
    /// Reads a file once, and keeps what it has beside its events.
    ///
    /// # Errors
    ///
    /// The file is damaged or of a kind that is not read, or has no events.
    pub fn open(file: &'a [u8]) -> Result<Recording<'a>, KvmError> {
        let file = if file.starts_with(&dump::MAGIC) {
            dump::parse(file)?.file
        } else {
            tracedat::parse(file)?
        };
        let formats = Formats::new(&file.formats)?;
        let network = Network::new(&file.formats)?;
        let packets = match &network {
            None => Packets::None,
            Some(network) if network.has_sockets() => Packets::CardsAndSockets,
            Some(_) => Packets::Cards,
        };
        let survey = survey(&file, &formats, packets)?;
        Ok(Recording {
            file,
            formats,
            network,
            survey,
        })
    }

    /// The same recording, whose times are by another clock; what [`survey`](Recording::survey) says stays as it was.
    pub fn by(mut self, clock: Clock) -> Recording<'a> {
        self.file.clock = clock;
        self
    }

    /// What the recording is of.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Makes the records of a trace without jobs, and the summary, from the first event on. `threads` are those of the
    /// VCPUs of each domain of the metadata, which has no tasks. Last comes the number of switches that the kernel did
    /// not trace: each is taken to have been right after the last one on its CPU, or when the thread that it brings has
    /// left another CPU since then.
    ///
    /// # Errors
    ///
    /// Events were lost or contradict each other, or the threads are not the domains'.
    pub fn import(
        &self,
        metadata: &Metadata,
        threads: &[Vec<i32>],
    ) -> Result<(Vec<Record>, Summary, u64), KvmError> {
        self.import_from(self.survey.from_ns, metadata, threads)
    }

    /// Does what [`import`](Recording::import) does, from a time of the recording's clock on.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn import_from(
        &self,
        start_ns: i64,
        metadata: &Metadata,
        threads: &[Vec<i32>],
    ) -> Result<(Vec<Record>, Summary, u64), KvmError> {
        let completions_ns = vec![Vec::new(); metadata.domains.len()];
        let run = KvmRun {
            jobs: Jobs {
                metadata,
                completions_ns: &completions_ns,
            },
            threads,
            start_ns,
            policy: None,
        };
        let vcpus = Vcpus::new(metadata)?;
        let replay = Replay::new(&run.jobs)?;
        let threads = Threads::new(&run, &vcpus)?;
        let mut of_cpus = Vec::new();
        for buffer in &self.file.buffers {
            let ns = |time| self.file.clock.ns(time);
            let mut of_cpu = Vec::new();
            read_pages(buffer, ns, &run, &threads, &self.formats, &mut of_cpu)?;
            of_cpus.push(of_cpu);
        }
        let departures = departures(&of_cpus);
        let (mut events, mut guessed) = (Vec::new(), 0);
        for of_cpu in of_cpus {
            guessed += add_untraced(&mut events, of_cpu, &departures);
        }
        order(&mut events);
        leave_out_reentered(&mut events);
        let cpus = self.survey.cpus.max(metadata.cpus) as usize;
        let (records, summary) = replay.run(&vcpus, &events, cpus)?;
        Ok((records, summary, guessed))
    }
}

impl Recording<'_> {
    /// The packets that domains had: how many, and those that waited for longer than `delay_ns`, from when the kernel
    /// had them until a thread of their domain took them, or, if a worker took them, until a VCPU of its domain ran.
    /// `records` are what [`import_from`](Recording::import_from) made of the same `start_ns`, `metadata` and
    /// `threads`. `workers` are other threads of these, each with the domain that it takes packets for. Programs beside
    /// the domains have no packets of their own. There are none if the recording tells nothing of packets.
    ///
    /// # Errors
    ///
    /// The file is damaged, or a worker is none of the threads.
    pub fn packets(
        &self,
        start_ns: i64,
        metadata: &Metadata,
        threads: &[Vec<i32>],
        workers: &[(i32, u16)],
        (records, delay_ns): (&[Record], i64),
    ) -> Result<Delivered, KvmError> {
        let takers = takers(metadata, threads, workers)?;
        let Some(network) = &self.network else {
            return Ok(Delivered {
                late: Vec::new(),
                counts: vec![0; takers.vcpus.len()],
            });
        };
        let mut seen = Vec::new();
        for buffer in &self.file.buffers {
            let cpu = buffer.number()?;
            for (place, page) in buffer.pages() {
                let damaged = |at, reason| KvmError::Damaged {
                    offset: place + at,
                    reason,
                };
                pages::read(page, damaged, |found| {
                    let Found::Event(at, time, event) = found else {
                        return Err(KvmError::Lost { events: 0, cpu });
                    };
                    let what = network.what(event).map_err(|reason| damaged(at, reason))?;
                    if let Some(what) = what {
                        let time_ns = self.file.clock.ns(time) - i128::from(start_ns);
                        let time_ns = i64::try_from(time_ns)
                            .map_err(|_| damaged(at, format!("time {time} is beyond all time")))?;
                        seen.push(Seen { time_ns, cpu, what });
                    }
                    Ok(())
                })?;
            }
        }
        Ok(delivered(
            seen,
            &takers,
            records,
            (delay_ns, metadata.duration_ns),
        ))
    }
}

fn takers(
    metadata: &Metadata,
    threads: &[Vec<i32>],
    workers: &[(i32, u16)],
) -> Result<Takers, KvmError> {
    let mut vcpus = HashMap::new();
    let mut takers = Takers {
        vcpus: metadata.domains.iter().map(|domain| domain.vcpus).collect(),
        ..Takers::default()
    };
    for (domain, (described, of_domain)) in (0..).zip(metadata.domains.iter().zip(threads)) {
        for (vcpu, &thread) in (0..).zip(of_domain) {
            vcpus.insert(thread, (domain, vcpu));
            if !described.is_beside() {
                let vcpu = (domain, vcpu);
                takers
                    .of_threads
                    .insert(thread.into(), Taker { domain, vcpu });
            }
        }
    }
    for &(thread, domain) in workers {
        let vcpu = vcpus.get(&thread).copied();
        let is_domain = usize::from(domain) < metadata.domains.len();
        let (Some(vcpu), true) = (vcpu, is_domain) else {
            return Err(KvmError::Run(format!(
                "thread {thread} takes packets for domain {domain}, and one of them is not in the trace"
            )));
        };
        takers
            .of_threads
            .insert(thread.into(), Taker { domain, vcpu });
    }
    Ok(takers)
}

/// When VCPUs left CPUs, by VCPU: cycles and time, in order.
type Departures = BTreeMap<u32, Vec<(u64, i64)>>;

/// Departures that were traced, on all CPUs.
fn departures(of_cpus: &[Vec<Event>]) -> Departures {
    let mut found = Departures::new();
    for event in of_cpus.iter().flatten() {
        if let What::Switch {
            before: Who::Vcpu(vcpu),
            ..
        } = event.what
        {
            let of_vcpu = found.entry(vcpu).or_default();
            of_vcpu.push((event.cycles, event.time_ns));
        }
    }
    for of_vcpu in found.values_mut() {
        of_vcpu.sort_unstable();
    }
    found
}

/// Adds the events of a CPU to `events`, with the switches that are missing between them; returns their number.
///
/// A VCPU that came untraced may have run on another CPU after the last switch here. Then it came when it left that
/// one, and nobody ran here in between.
fn add_untraced(events: &mut Vec<Event>, of_cpu: Vec<Event>, departures: &Departures) -> u64 {
    let mut guessed = 0;
    let mut last: Option<(Who, u64, i64)> = None;
    for event in of_cpu {
        if let What::Switch { before, after, .. } = event.what {
            if let Some((running, cycles, time_ns)) = last
                && running != before
            {
                guessed += 1;
                let mut guess = |(cycles, time_ns), before, after| {
                    events.push(Event {
                        cycles,
                        time_ns,
                        what: switched(before, after),
                        ..event
                    });
                };
                match left_within(departures, before, cycles, event.cycles) {
                    Some(came) => {
                        if running != Who::Idle {
                            guess((cycles, time_ns), running, Who::Idle);
                        }
                        guess(came, Who::Idle, before);
                    }
                    None => guess((cycles, time_ns), running, before),
                }
            }
            last = Some((after, event.cycles, event.time_ns));
        }
        events.push(event);
    }
    guessed
}

/// A switch of which nothing else is known.
fn switched(before: Who, after: Who) -> What {
    What::Switch {
        before,
        after,
        blocks: true,
        decision: Decision {
            until_ns: i64::MAX,
            cost_ns: 0,
        },
    }
}

/// When a VCPU last left a CPU between two times, without these.
fn left_within(departures: &Departures, who: Who, from: u64, to: u64) -> Option<(u64, i64)> {
    let Who::Vcpu(vcpu) = who else { return None };
    let of_vcpu = departures.get(&vcpu)?;
    let before = of_vcpu.partition_point(|&(cycles, _)| cycles < to);
    let &last = of_vcpu[..before].last()?;
    (last.0 > from).then_some(last)
}

/// Puts the events of all CPUs in the order in which they happened: by time and, at one instant, by CPU, but for a VCPU
/// that changes its CPU. It leaves the old one before it comes to the new one, also where the clocks of the two CPUs,
/// which are not exactly alike, say the opposite; then it left when it came.
///
/// VCPUs that change places with each other contradict every order, which the replay says: there it ends.
fn order(events: &mut [Event]) {
    // Each CPU's are in order, and the sort is stable.
    events.sort_by_key(|event| event.cycles);
    let mut cpu_of = BTreeMap::<u32, u16>::new();
    let (mut place, mut moves) = (0, 0);
    while let Some(event) = events.get(place) {
        let (cycles, time_ns, cpu) = (event.cycles, event.time_ns, event.cpu);
        if let What::Switch { before, after, .. } = event.what {
            if let Who::Vcpu(vcpu) = after
                && let Some(&old) = cpu_of.get(&vcpu)
                && old != cpu
                && let Some(later) = leaves_later(&events[place..], vcpu, old)
            {
                if moves > cpu_of.len() {
                    return;
                }
                moves += 1;
                events[place..=place + later].rotate_right(1);
                (events[place].cycles, events[place].time_ns) = (cycles, time_ns);
                continue;
            }
            if let Who::Vcpu(vcpu) = before {
                cpu_of.remove(&vcpu);
            }
            if let Who::Vcpu(vcpu) = after {
                cpu_of.insert(vcpu, cpu);
            }
        }
        (place, moves) = (place + 1, 0);
    }
}

/// How many events after the first one the VCPU leaves the CPU, if that is next on that CPU and soon.
fn leaves_later(events: &[Event], vcpu: u32, cpu: u16) -> Option<usize> {
    let is_soon = |event: &Event| event.time_ns - events[0].time_ns <= CLOCKS_APART_NS_MAX;
    let switches = |event: &Event| event.cpu == cpu && matches!(event.what, What::Switch { .. });
    let soon = (events.iter().take(EVENTS_APART_MAX)).take_while(|event| is_soon(event));
    let later = soon.map(switches).position(|is_it| is_it)?;
    matches!(events[later].what, What::Switch { before: Who::Vcpu(left), .. } if left == vcpu)
        .then_some(later)
}

fn survey(file: &TraceDat, formats: &Formats, packets: Packets) -> Result<Survey, KvmError> {
    let mut threads = BTreeMap::<i64, Thread>::new();
    let (mut from_ns, mut to_ns, mut cpus) = (i128::MAX, i128::MIN, 0);
    for buffer in &file.buffers {
        let cpu = buffer.number()?;
        for (place, page) in buffer.pages() {
            let damaged = |at, reason| KvmError::Damaged {
                offset: place + at,
                reason,
            };
            pages::read(page, damaged, |found| {
                let Found::Event(_, time, event) = found else {
                    return Err(KvmError::Lost { events: 0, cpu });
                };
                if let Some((thread, name, priority)) = formats.thread(event) {
                    let time_ns = file.clock.ns(time);
                    (from_ns, to_ns) = (from_ns.min(time_ns), to_ns.max(time_ns));
                    cpus = cpus.max(u32::from(cpu) + 1);
                    if thread != 0 {
                        let name = String::from_utf8_lossy(name).into_owned();
                        threads.insert(
                            thread,
                            Thread {
                                thread,
                                name,
                                priority,
                            },
                        );
                    }
                }
                Ok(())
            })?;
        }
    }
    let time = |ns: i128| i64::try_from(ns).ok().filter(|&ns| ns >= 0);
    match (time(from_ns), time(to_ns)) {
        (Some(from_ns), Some(to_ns)) if from_ns < to_ns => Ok(Survey {
            cpus,
            from_ns,
            to_ns,
            threads: threads.into_values().collect(),
            packets,
        }),
        _ => Err(KvmError::Unsupported(
            "traces without events of sched_switch",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(cycles: u64, before: Who, after: Who) -> Event {
        Event {
            cycles,
            time_ns: cycles as i64,
            offset: 0,
            cpu: 0,
            what: switched(before, after),
        }
    }

    /// Each switch goes on from whom the one before it left, whoever the kernel leaves out.
    #[test]
    fn missing_switches_are_added() {
        let (idle, foreign, vcpu) = (Who::Idle, Who::Foreign, Who::Vcpu(0));
        let traced = [
            (1, foreign, idle),
            (2, foreign, vcpu), // after idle came something foreign
            (3, vcpu, foreign),
            (4, vcpu, idle), // after something foreign came the VCPU
            (5, idle, vcpu),
        ];
        let mut events = Vec::new();
        let traced = traced.map(|(cycles, before, after)| switch(cycles, before, after));
        assert_eq!(
            add_untraced(&mut events, traced.into(), &Departures::new()),
            2
        );
        let mut running = foreign;
        let mut seen = Vec::new();
        for event in &events {
            let What::Switch { before, after, .. } = event.what else {
                unreachable!("all are switches");
            };
            assert_eq!(before, running);
            running = after;
            seen.push((event.cycles, after));
        }
        let guessed = [(1, idle), (1, foreign), (2, vcpu), (3, foreign), (3, vcpu)];
        assert_eq!(seen, [&guessed[..], &[(4, idle), (5, vcpu)]].concat());
    }

    /// A VCPU whose coming is not traced runs nowhere twice: it comes when it has left the other CPU, and who ran there
    /// before may meanwhile run where it was.
    #[test]
    fn who_comes_untraced_has_left_the_other_cpu() {
        let (idle, mover, other) = (Who::Idle, Who::Vcpu(0), Who::Vcpu(1));
        let on = |cpu, event: Event| Event { cpu, ..event };
        for running in [idle, other] {
            let of_cpus = vec![
                vec![
                    on(0, switch(5, idle, mover)),
                    on(0, switch(20, mover, other)),
                    on(0, switch(60, other, idle)),
                ],
                vec![
                    on(1, switch(10, idle, running)),
                    on(1, switch(50, mover, idle)),
                ],
            ];
            let departures = departures(&of_cpus);
            let mut events = Vec::new();
            let guessed: Vec<u64> = (of_cpus.into_iter())
                .map(|of_cpu| add_untraced(&mut events, of_cpu, &departures))
                .collect();
            assert_eq!(guessed, [0, 1]);
            order(&mut events);
            let mut on_cpu = [idle; 2];
            let mut came = Vec::new();
            for event in &events {
                let What::Switch { before, after, .. } = event.what else {
                    unreachable!("all are switches");
                };
                let cpu = usize::from(event.cpu);
                assert_eq!(on_cpu[cpu], before);
                assert!(after == idle || on_cpu[1 - cpu] != after);
                on_cpu[cpu] = after;
                if after == mover {
                    came.push((event.cycles, event.cpu));
                }
            }
            assert_eq!(came, [(5, 0), (20, 1)]);
        }
    }

    /// A VCPU leaves its old CPU before it comes to its new one, whatever the clocks of the two say.
    #[test]
    fn a_vcpu_that_changes_its_cpu_leaves_first() {
        let (idle, foreign, vcpu) = (Who::Idle, Who::Foreign, Who::Vcpu(0));
        let on = |cpu, event: Event| Event { cpu, ..event };
        let moved = |left_ns| {
            [
                on(1, switch(10, idle, vcpu)),
                on(0, switch(20, foreign, vcpu)),
                on(0, switch(30, vcpu, idle)),
                on(1, switch(left_ns, vcpu, idle)),
                on(1, switch(left_ns + 5, idle, foreign)),
            ]
        };
        let seen = |left_ns| {
            let mut events = moved(left_ns);
            order(&mut events);
            events.map(|event| (event.cycles, event.cpu))
        };
        let apart = CLOCKS_APART_NS_MAX as u64;
        // By the clock; at the same instant; later; and too much later, which is a contradiction.
        assert_eq!(seen(15), [(10, 1), (15, 1), (20, 0), (20, 1), (30, 0)]);
        assert_eq!(seen(20), [(10, 1), (20, 1), (20, 0), (25, 1), (30, 0)]);
        assert_eq!(seen(24), [(10, 1), (20, 1), (20, 0), (29, 1), (30, 0)]);
        assert_eq!(seen(20 + apart)[1..3], [(20, 1), (20, 0)]);
        assert_eq!(seen(21 + apart)[1..3], [(20, 0), (30, 0)]);
    }

    /// Two VCPUs that change places leave neither order right, and the search for one ends.
    #[test]
    fn vcpus_that_change_places_have_no_order() {
        let (one, other) = (Who::Vcpu(0), Who::Vcpu(1));
        let on = |cpu, event: Event| Event { cpu, ..event };
        let mut events = [
            on(0, switch(10, Who::Idle, one)),
            on(1, switch(10, Who::Idle, other)),
            on(0, switch(20, one, other)),
            on(1, switch(20, other, one)),
        ];
        order(&mut events);
        assert_eq!(events.map(|event| event.cycles), [10, 10, 20, 20]);
    }
}
