//! The engine: timers, guests, CPUs, and the policy between them.

mod cpus;
mod saving;
mod state;
mod ticks;

use crate::bursts::Bursts;
use crate::caches::Caches;
use crate::guest::Ready;
use crate::network::Network;
use crate::random::{Drawn, Purpose, stream};
use crate::timers::{NEVER, Slots};
use crate::workloads::{Found, Workloads};
use cpus::{Cpu, Cpus, Many, One};
use laxity_host::Host;
use laxity_policy::{Event, Instance, Refused, Report, Request};
use laxity_run::{
    Cpu as CpuResult, DomainResult, Engine, Outcome, Overhead, Responses, RunResult, Waits,
    jobs_due, kept_jobs_max,
};
use laxity_trace::{Kind, NONE, Off, Record, Seen, Sink, job};
use saving::Saving;
use state::{Agenda, Costs, Due, NOBODY, Pending, Simulation, TICK, Task, Vcpu};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

/// How another thread follows a run, and ends it.
#[derive(Debug, Default)]
pub struct Watch {
    /// How far the run has come, ns of the host's time; written now and then.
    pub now_ns: AtomicI64,
    /// Set it to end the run early.
    pub cancelled: AtomicBool,
}

/// How many events pass between two looks at the watch: some milliseconds.
const WATCH_INTERVAL: u64 = 1 << 16;

/// Runs a host and traces it into `sink`.
///
/// # Errors
/// When the policy refuses the host's settings or parameters. A host that was loaded from a file has
/// parameters that its policy takes.
pub fn run<S: Sink>(host: &Host, sink: S) -> Result<(Outcome, S), Refused> {
    Ok(run_watched(host, &Seen::default(), sink, &Watch::default())?.expect("nobody cancels"))
}

/// Runs a host as [`run`] does, followed by another thread; `None` if that thread cancelled the run.
///
/// At one instant jobs are released in the order of the host file. At the instants of the ties that were seen
/// elsewhere, those of the VCPUs that are named there come first, in that order. A VCPU that is idle takes each tick
/// for which it was seen to wake.
///
/// # Errors
/// As [`run`].
pub fn run_watched<S: Sink>(
    host: &Host,
    seen: &Seen,
    mut sink: S,
    watch: &Watch,
) -> Result<Option<(Outcome, S)>, Refused> {
    let mut record = |record| sink.record(record);
    let records = S::ENABLED.then_some(&mut record as &mut dyn FnMut(Record));
    let outcome = run_telling(host, seen, records, watch)?;
    Ok(outcome.map(|outcome| (outcome, sink)))
}

/// Runs a host, and tells `records` what happens. The engine is compiled here, for a run that tells and
/// for one that does not, and not once more in each crate that has a sink of its own.
fn run_telling(
    host: &Host,
    seen: &Seen,
    records: Option<&mut dyn FnMut(Record)>,
    watch: &Watch,
) -> Result<Option<Outcome>, Refused> {
    match records {
        Some(records) => run_into(host, seen, Told(records), watch),
        None => run_into(host, seen, Off, watch),
    }
}

/// A sink that passes each record to a function.
struct Told<'a>(&'a mut dyn FnMut(Record));

impl Sink for Told<'_> {
    const ENABLED: bool = true;

    #[inline]
    fn record(&mut self, record: Record) {
        (self.0)(record);
    }
}

fn run_into<S: Sink>(
    host: &Host,
    seen: &Seen,
    sink: S,
    watch: &Watch,
) -> Result<Option<Outcome>, Refused> {
    let started = Instant::now();
    match &host.network {
        Some(network) => {
            let network = Network::new(host, network);
            run_with::<_, _, Many>(
                host,
                seen,
                (Bursts::new(host), network),
                sink,
                watch,
                started,
            )
        }
        None if Bursts::are_in(host) => {
            run_with::<_, _, Many>(host, seen, Bursts::new(host), sink, watch, started)
        }
        None if host.cpus == 1 => run_with::<_, _, One>(host, seen, (), sink, watch, started),
        None => run_with::<_, _, Many>(host, seen, (), sink, watch, started),
    }
}

fn run_with<W: Workloads, S: Sink, C: Cpus>(
    host: &Host,
    seen: &Seen,
    workloads: W,
    sink: S,
    watch: &Watch,
    started: Instant,
) -> Result<Option<Outcome>, Refused> {
    let mut simulation = Simulation::<W, S, C>::new(host, seen, workloads, sink)?;
    Ok(simulation.run(watch).then(|| simulation.finish(started)))
}

impl<'host, W: Workloads, S: Sink, C: Cpus> Simulation<'host, W, S, C> {
    fn new(host: &'host Host, seen: &'host Seen, workloads: W, sink: S) -> Result<Self, Refused> {
        let mut policy = Instance::new(host.policy, &host.settings, host.cpus)?;
        policy.set_tracing(S::ENABLED);
        let policy_listens = laxity_policy::listens(host.policy);
        let cpus = host.cpus as usize;
        let tasks = host.domains.iter().map(|domain| domain.tasks.len()).sum();
        let ticking = host.domains.iter().filter(|domain| domain.tick.is_some());
        let mut simulation = Simulation {
            host,
            ties: &seen.ties,
            own_wakes: &seen.own_wakes,
            policy,
            policy_listens,
            agenda: Agenda::new(cpus, tasks, ticking.count()),
            tasks: Vec::with_capacity(tasks),
            ticks: Vec::new(),
            vcpus: Vec::new(),
            cpus: C::new((0..cpus).map(|cpu| Cpu {
                vcpu: NOBODY,
                accounted_ns: 0,
                asked: false,
                postponed: false,
                random: stream(host.seed, Purpose::Cost, cpu),
            })),
            pending: Pending {
                words: vec![0; cpus.div_ceil(64)],
                any: false,
            },
            saving: Saving::default(),
            costs: Costs {
                schedule: Drawn::of(&host.costs.schedule),
                context_switch: Drawn::of(&host.costs.context_switch),
            },
            workloads,
            caches: Caches::new(host),
            sink,
            events: 0,
            schedule_calls: 0,
            context_switches: 0,
            schedule_ns: 0,
            context_switch_ns: 0,
        };
        let kept_jobs_max = kept_jobs_max(host);
        for index in 0..host.domains.len() {
            simulation.add_domain(index, kept_jobs_max)?;
        }
        if S::ENABLED {
            simulation.workloads.follow(host);
        }
        simulation.add_ticks();
        simulation.serve_requests();
        simulation.report(0);
        Ok(simulation)
    }

    fn add_domain(&mut self, index: usize, kept_jobs_max: u64) -> Result<(), Refused> {
        let domain = &self.host.domains[index];
        let first_vcpu = self.vcpus.len();
        // A helper is one more thread of its owner, and owners come first.
        let handle = match domain.helper_of {
            Some(owner) => owner as usize,
            None => self.policy.add_domain(&domain.parameters)?,
        };

        for (place, task) in domain.tasks.iter().enumerate() {
            let counted = jobs_due(task, self.host.duration_ns);
            self.tasks.push(Task {
                vcpu: first_vcpu as u32 + task.vcpu,
                rank: 0,
                place: place as u32,
                current: 0,
                next: 0,
                remaining_ns: 0,
                is_put_off: false,
                cost_ns: task.cost_ns,
                wake_ns: domain.tick.map_or(0, |tick| tick.wake_ns),
                period_ns: task.period_ns,
                deadline_ns: task.deadline_ns,
                offset_ns: task.offset_ns,
                jitter_ns: task.jitter_ns,
                random: stream(self.host.seed, Purpose::Jitter, self.tasks.len()),
                counted,
                responses: Responses::new(task, counted, kept_jobs_max),
            });
            let task = self.tasks.len() - 1;
            let due_ns = self.tasks[task].next_due_ns();
            self.agenda.arrivals.set(task, due_ns);
        }
        let first_task = self.tasks.len() - domain.tasks.len();

        for (id, vcpu) in domain.vcpus.iter().enumerate() {
            let mut tasks: Vec<u32> = (first_task..self.tasks.len())
                .filter(|&task| self.tasks[task].vcpu as usize == self.vcpus.len())
                .map(|task| task as u32)
                .collect();
            tasks.sort_by_key(|&task| self.tasks[task as usize].period_ns);
            for (rank, &task) in tasks.iter().enumerate() {
                self.tasks[task as usize].rank = rank as u32;
            }
            let number =
                self.policy
                    .add_vcpu(handle, vcpu.cpu, &vcpu.affinity, &domain.parameters, 0)?;
            if !vcpu.soft_affinity.is_empty() {
                self.policy.set_preferred(number, &vcpu.soft_affinity);
            }
            self.vcpus.push(Vcpu {
                domain: index as u16,
                id: id as u16,
                ready: Ready::new(domain.guest, tasks.len()),
                tasks,
                task: NOBODY,
                told: (None, false),
                tick: Due {
                    interrupt_ns: domain.tick.map_or(0, |tick| tick.interrupt_ns()),
                    min_delta_ns: domain.tick.map_or(0, |tick| tick.min_delta_ns),
                    ..Due::default()
                },
                cpu: NOBODY,
                blocked: true,
                cpu_bound: domain.cpu_bound,
                has_workload: self.workloads.has(self.vcpus.len()),
                cpu_ns: 0,
                stalled_ns: 0,
                waiting_since_ns: 0,
                waits: Waits::default(),
            });
        }
        Ok(())
    }

    /// Runs to the end; false if cancelled.
    fn run(&mut self, watch: &Watch) -> bool {
        let mut look_at = WATCH_INTERVAL;
        for vcpu in 0..self.vcpus.len() {
            self.tell(vcpu, 0);
            if self.vcpus[vcpu].cpu_bound {
                self.wake(vcpu, 0);
            }
        }
        let mut now = 0;
        let mut next_ns = self.next_ns();
        while now <= self.host.duration_ns {
            // Everything of this instant first, then the decisions, which may bring on more of it.
            while next_ns <= now && self.serve(now) {
                next_ns = self.next_ns();
            }
            while self.pending.any {
                self.decide(now);
            }
            if self.repeats_at_once() {
                self.repeat();
            }
            next_ns = self.next_ns();
            now = next_ns;
            if self.events >= look_at {
                look_at = self.events + WATCH_INTERVAL;
                watch
                    .now_ns
                    .store(now.min(self.host.duration_ns), Ordering::Relaxed);
                if watch.cancelled.load(Ordering::Relaxed) {
                    return false;
                }
            }
        }
        for cpu in 0..self.host.cpus {
            self.account(cpu, self.host.duration_ns);
        }
        self.workloads.end(self.host.duration_ns);
        self.report_packets();
        true
    }

    /// When the next thing happens.
    #[inline]
    fn next_ns(&self) -> i64 {
        self.agenda.next_ns().min(self.workloads.next_ns())
    }

    /// Serves the first of the events that are due, of which there is one. Returns whether there may be another: the
    /// end of a decision comes last, and the only CPU has one decision.
    fn serve(&mut self, now: i64) -> bool {
        self.events += 1;
        if let Some(cpu) = self.agenda.completions.due(now) {
            self.complete(cpu as u32, now);
        } else if let Some(first) = self.agenda.arrivals.due(now) {
            let slot = if self.ties.is_empty() {
                first
            } else {
                self.first_of_tie(first, now)
            };
            if slot < self.tasks.len() {
                self.arrive(slot, now);
            } else {
                self.tick(slot - self.tasks.len(), now);
            }
        } else if self.workloads.next_ns() <= now {
            self.workloads.serve(now);
            self.report_packets();
            self.signal(now);
        } else if let Some(cpu) = self.agenda.policy.due(now) {
            self.agenda.policy.set(cpu, NEVER);
            self.policy.timer(cpu as u32, now);
            self.serve_requests();
            self.report(now);
        } else if self.agenda.accounting_ns <= now {
            self.agenda.accounting_ns = NEVER;
            self.policy.account(now);
            self.serve_requests();
            self.report(now);
        } else {
            let (_, cpu) = self.agenda.decisions.first();
            self.agenda.decisions.set(cpu, NEVER);
            self.cpus[cpu as u32].asked = true;
            self.pending.insert::<C>(cpu as u32);
            return !C::ONE;
        }
        true
    }

    /// The slot of the arrivals that are due that comes first; `first` does if no tie says otherwise.
    #[cold]
    fn first_of_tie(&mut self, first: usize, now: i64) -> usize {
        let passed = self.ties.iter().take_while(|tie| tie.time_ns < now).count();
        self.ties = &self.ties[passed..];
        let Some(tie) = self.ties.first().filter(|tie| tie.time_ns == now) else {
            return first;
        };
        let place = |task: &usize| {
            let vcpu = &self.vcpus[self.tasks[*task].vcpu as usize];
            let named = (vcpu.domain, vcpu.id);
            (tie.vcpus.iter().position(|&each| each == named)).unwrap_or(tie.vcpus.len())
        };
        (0..self.tasks.len())
            .filter(|&task| self.agenda.arrivals.at(task) <= now)
            .min_by_key(place)
            .unwrap_or(first)
    }

    /// Gives the running VCPU the work that it has done up to now.
    #[inline(always)]
    fn account(&mut self, number: u32, now: i64) {
        let cpu = &mut self.cpus[number];
        let done_ns = now - cpu.accounted_ns;
        if cpu.vcpu == NOBODY || done_ns <= 0 {
            return;
        }
        cpu.accounted_ns = now;
        let index = cpu.vcpu as usize;
        self.work(number, index, done_ns);
    }

    /// The running VCPU has worked for so long.
    #[inline(always)]
    fn work(&mut self, number: u32, index: usize, mut done_ns: i64) {
        let vcpu = &mut self.vcpus[index];
        vcpu.cpu_ns += done_ns;
        if let Some(caches) = &mut self.caches {
            let stalled_ns = caches.spend(index, number, done_ns);
            vcpu.stalled_ns += stalled_ns;
            done_ns -= stalled_ns;
        }
        if W::ANY && vcpu.has_workload {
            self.workloads.advance(index, done_ns);
        } else if vcpu.task < TICK {
            self.tasks[vcpu.task as usize].remaining_ns -= done_ns;
        } else if vcpu.task == TICK {
            vcpu.tick.left_ns -= done_ns;
        }
    }

    /// When the running VCPU, which was accounted for, is done with `work_ns` of work.
    #[inline]
    fn end_ns(&self, cpu: u32, vcpu: usize, work_ns: i64, now: i64) -> i64 {
        let start_ns = now.max(self.cpus[cpu].accounted_ns);
        let stall_ns = match &self.caches {
            Some(caches) => caches.stall_ns(vcpu, work_ns),
            None => 0,
        };
        start_ns + work_ns + stall_ns
    }

    #[inline]
    fn is_out_of_work(&self, index: usize) -> bool {
        let vcpu = &self.vcpus[index];
        if W::ANY && vcpu.has_workload {
            return !self.workloads.has_work(index);
        }
        !vcpu.cpu_bound && vcpu.ready.first().is_none() && vcpu.tick.left_ns == 0
    }

    /// Lets the running VCPU go on with what its workload has it do.
    fn execute_workload(&mut self, cpu: u32, vcpu: usize, now: i64) {
        let end_ns = match self.workloads.current(vcpu, now) {
            Some(work_ns) => self.end_ns(cpu, vcpu, work_ns, now),
            None => {
                self.pending.insert::<C>(cpu);
                NEVER
            }
        };
        self.agenda.completions.set(cpu as usize, end_ns);
    }

    /// VCPUs got events, or other work.
    fn signal(&mut self, now: i64) {
        while let Some(index) = self.workloads.take_signal() {
            let vcpu = &self.vcpus[index];
            let cpu = vcpu.cpu;
            if cpu != NOBODY {
                // It was idle and about to block, or in something that has to wait.
                if self.agenda.completions.at(cpu as usize) == NEVER
                    || self.workloads.is_to_switch(index)
                {
                    self.account(cpu, now);
                    self.execute_workload(cpu, index, now);
                }
            } else if !self.workloads.has_work(index) {
                // The VCPU stands still: its new work waits until it goes on.
            } else if vcpu.blocked {
                self.wake(index, now);
            } else {
                self.policy.event(index, now);
                self.serve_requests();
                self.report(now);
            }
        }
    }

    /// Lets the running VCPU go on with the task that its guest's scheduler chooses.
    #[inline(always)]
    fn execute(&mut self, cpu: u32, now: i64) {
        let index = self.cpus[cpu].vcpu as usize;
        let vcpu = &mut self.vcpus[index];
        if W::ANY && vcpu.has_workload {
            return self.execute_workload(cpu, index, now);
        }
        if vcpu.tick.left_ns > 0 {
            return self.execute_tick(cpu, now);
        }
        match vcpu.ready.first() {
            Some(rank) => {
                let task = vcpu.tasks[rank as usize];
                vcpu.task = task;
                let task = &self.tasks[task as usize];
                let end_ns = self.end_ns(cpu, index, task.remaining_ns, now);
                self.agenda.completions.set(cpu as usize, end_ns);
                self.trace(
                    now,
                    Kind::Execute,
                    cpu,
                    index,
                    job(task.place, task.current),
                );
            }
            None => {
                vcpu.task = NOBODY;
                self.agenda.completions.set(cpu as usize, NEVER);
                if !vcpu.cpu_bound {
                    self.pending.insert::<C>(cpu);
                }
            }
        }
    }

    fn complete(&mut self, cpu: u32, now: i64) {
        self.account(cpu, now);
        let index = self.cpus[cpu].vcpu as usize;
        let vcpu = &mut self.vcpus[index];
        if W::ANY && vcpu.has_workload {
            self.workloads.complete(index, now);
            self.report_packets();
            self.execute_workload(cpu, index, now);
            return self.signal(now);
        }
        if vcpu.task == TICK {
            if vcpu.tick.interrupt_ns > 0 {
                self.put_off_all(index, now);
            }
            self.tell(index, now);
            return self.execute(cpu, now);
        }
        let task = &mut self.tasks[vcpu.task as usize];
        debug_assert_eq!(task.remaining_ns, 0);
        let number = task.current;
        if number < task.counted {
            let response_ns = now - task.arrival_ns(number);
            task.responses.record(response_ns, task.deadline_ns);
        }
        task.current += 1;
        let waiting = task.current < task.next;
        if waiting {
            task.remaining_ns = task.cost_ns;
        }
        let next_deadline_ns = waiting.then(|| task.deadline_of_job_ns(task.current));
        vcpu.ready
            .complete_first(task.rank, task.place, next_deadline_ns);
        let done = job(task.place, number);
        self.trace(now, Kind::Complete, cpu, index, done);
        let Vcpu { task, ref tick, .. } = self.vcpus[index];
        if tick.min_delta_ns > 0 {
            self.put_off(task, index, now);
        }
        self.tell(index, now);
        self.execute(cpu, now);
    }

    fn arrive(&mut self, index: usize, now: i64) {
        let task = &mut self.tasks[index];
        let number = task.next;
        task.next += 1;
        let due_ns = task.next_due_ns();
        self.agenda.arrivals.set(index, due_ns);

        let vcpu_index = task.vcpu as usize;
        let vcpu = &mut self.vcpus[vcpu_index];
        vcpu.tick.had_job = true;
        let first_of_task = task.current == number;
        let interrupts = first_of_task && vcpu.tick.interrupt_ns > 0 && vcpu.tick.left_ns == 0;
        if interrupts {
            vcpu.tick.left_ns = vcpu.tick.interrupt_ns;
        }
        if first_of_task {
            task.remaining_ns = task.wake_ns + task.cost_ns;
            vcpu.ready
                .insert(task.rank, task.place, task.deadline_of_job_ns(number));
        }
        let cpu = vcpu.cpu;
        if S::ENABLED {
            let arrived = job(task.place, number);
            let on_cpu = if cpu == NOBODY {
                self.policy.cpu_of(vcpu_index)
            } else {
                cpu
            };
            self.trace(now, Kind::Release, on_cpu, vcpu_index, arrived);
        }
        self.tasks[index].is_put_off = false;
        if self.vcpus[vcpu_index].tick.interrupt_ns == 0 {
            self.put_off_all(vcpu_index, now);
        }
        self.tell(vcpu_index, now);
        let vcpu = &self.vcpus[vcpu_index];
        if cpu != NOBODY {
            if !first_of_task {
                return;
            }
            let first = vcpu.ready.first().map(|rank| vcpu.tasks[rank as usize]);
            if interrupts || first != Some(vcpu.task) {
                self.account(cpu, now);
                self.execute(cpu, now);
            }
        } else if vcpu.blocked {
            self.wake(vcpu_index, now);
        } else {
            self.policy.event(vcpu_index, now);
            self.serve_requests();
            self.report(now);
        }
    }

    /// The guest tells on what the VCPU works next, if that is something else than before: a job, or a tick, which
    /// comes before all jobs and makes the job that waits for it no less urgent. A guest whose jobs come by interrupts
    /// tells when it has served one, and nothing of ticks; it also tells for which job it will wake.
    #[inline(always)]
    pub(super) fn tell(&mut self, index: usize, now: i64) {
        if self.policy_listens {
            self.tell_policy(index, now);
        }
    }

    fn tell_policy(&mut self, index: usize, now: i64) {
        let vcpu = &self.vcpus[index];
        let (ticks, by_interrupts) = (vcpu.tick.left_ns > 0, vcpu.tick.interrupt_ns > 0);
        if ticks && by_interrupts {
            return;
        }
        let tasks = &self.tasks;
        let ready = vcpu.ready.first().map(|rank| vcpu.tasks[rank as usize]);
        let next = || {
            let due_ns = |&task: &u32| tasks[task as usize].arrival_ns(tasks[task as usize].next);
            vcpu.tasks.iter().copied().min_by_key(due_ns)
        };
        let first = match ready {
            None if by_interrupts && !vcpu.cpu_bound => next(),
            ready => ready,
        };
        let first = first.map(|task| (task, tasks[task as usize].current));
        let vcpu = &mut self.vcpus[index];
        if (first, ticks) == vcpu.told {
            return;
        }
        vcpu.told = (first, ticks);
        let mut deadline_ns = NEVER;
        let mut order = i64::MAX;
        if let Some((task, number)) = first {
            let task = &self.tasks[task as usize];
            deadline_ns = task.deadline_of_job_ns(number);
            order = match vcpu.ready {
                Ready::FixedPriority(_) => task.rank.into(),
                Ready::Edf(_) => deadline_ns,
            };
        }
        if ticks {
            order = -1;
        }
        self.policy.tell(index, deadline_ns, order, now);
        self.serve_requests();
        self.report(now);
    }

    fn wake(&mut self, vcpu: usize, now: i64) {
        self.vcpus[vcpu].blocked = false;
        self.vcpus[vcpu].waiting_since_ns = now;
        if S::ENABLED {
            self.trace(now, Kind::Wake, self.policy.cpu_of(vcpu), vcpu, 0);
        }
        self.policy.wake(vcpu, now);
        self.serve_requests();
        self.report(now);
    }

    /// One round of decisions: the CPUs that are pending, by number. The time tells where the round begins, so that
    /// where several CPUs are called at once it is not always the same one that comes first.
    fn decide(&mut self, now: i64) {
        if C::ONE || self.host.cpus == 1 {
            // With one CPU there is nothing to divide, and the division is a good part of a round's cost.
            self.pending.words[0] = 0;
            self.pending.any = false;
            return self.schedule(0, now);
        }
        let first = now as u64 % u64::from(self.host.cpus);
        let (word, below) = (first as usize / 64, (1 << (first % 64)) - 1);
        self.decide_in(word, !below, now);
        for word in (word + 1..self.pending.words.len()).chain(0..word) {
            self.decide_in(word, u64::MAX, now);
        }
        self.decide_in(word, below, now);
        // A CPU asked for after its turn in this round stays pending.
        self.pending.any = self.pending.words.iter().any(|&word| word != 0);
    }

    /// The decisions of these CPUs among 64, with those that are asked for meanwhile.
    #[inline]
    fn decide_in(&mut self, word: usize, mut to_come: u64, now: i64) {
        loop {
            let round = self.pending.words[word] & to_come;
            if round == 0 {
                break;
            }
            let bit = round.trailing_zeros();
            to_come &= u64::MAX << bit << 1;
            self.pending.words[word] &= !(1 << bit);
            self.schedule(word as u32 * 64 + bit, now);
        }
    }

    fn schedule(&mut self, number: u32, now: i64) {
        let cpu = &mut self.cpus[number];
        let (before, asked) = (cpu.vcpu, cpu.asked);
        if cpu.accounted_ns > now {
            cpu.postponed = true;
            self.agenda.decisions.set(number as usize, cpu.accounted_ns);
            return;
        }
        let out_of_work = before != NOBODY && self.is_out_of_work(before as usize);
        if !asked && !out_of_work {
            return; // its VCPU's last job ended, and another arrived at the same instant
        }
        let cpu = &mut self.cpus[number];
        cpu.asked = false;
        cpu.postponed = false;
        self.account(number, now);
        if out_of_work {
            self.vcpus[before as usize].blocked = true;
            self.policy.block_running(before as usize);
            self.trace(now, Kind::Block, number, before as usize, 0);
        }

        // The only CPU decides again when its last decision's cost has passed, and all states are saved by then.
        if !C::ONE {
            self.saving.finish(&mut self.policy, now);
        }
        let decision = if self.policy.repeats(number, now) {
            self.policy.repeat(number, now)
        } else {
            self.policy.schedule(number, now)
        };
        let chosen = decision.vcpu.map_or(NOBODY, |vcpu| vcpu as u32);
        let cpu = &mut self.cpus[number];
        let schedule_ns = self.costs.schedule.next(&mut cpu.random);
        let mut cost_ns = schedule_ns;
        self.schedule_calls += 1;
        self.schedule_ns += schedule_ns;
        if chosen != before {
            let switch_ns = self.costs.context_switch.next(&mut cpu.random);
            cost_ns += switch_ns;
            self.context_switches += 1;
            self.context_switch_ns += switch_ns;
        }
        cpu.vcpu = chosen;
        cpu.accounted_ns = now + cost_ns;
        self.policy.set_switched(number, now + cost_ns);
        let end_ns = decision.until_ns.max(now + cost_ns);
        self.agenda.decisions.set(number as usize, end_ns);

        if S::ENABLED {
            self.trace_decision(now, number, before, chosen, cost_ns, decision.until_ns);
        }
        if before != NOBODY && chosen != before {
            let vcpu = &mut self.vcpus[before as usize];
            vcpu.cpu = NOBODY;
            vcpu.waiting_since_ns = now;
            if !C::ONE && cost_ns > 0 {
                self.saving
                    .begin(&mut self.policy, before as usize, now + cost_ns);
            }
        }
        if chosen == NOBODY {
            self.agenda.completions.set(number as usize, NEVER);
        } else {
            if chosen != before {
                self.enter(number, chosen as usize, now);
            }
            self.execute(number, now);
        }
        self.serve_requests();
    }

    /// Whether the next event alone tells for how long a decision is repeated: there is one CPU, and neither what work
    /// takes nor what is told of it depends on the steps in which it is done.
    #[inline]
    fn repeats_at_once(&self) -> bool {
        C::ONE && !W::ANY && !S::ENABLED && self.caches.is_none()
    }

    /// Repeats the decision in force on the only CPU, from its end on, until something else happens.
    fn repeat(&mut self) {
        let mut end_ns = self.agenda.decisions.at(0);
        if !self.policy.repeats(0, end_ns) {
            return;
        }
        let quantum_ns = self.host.settings.quantum_ns;
        let next_ns = (self.agenda.arrivals.first().0)
            .min(self.agenda.policy.first().0)
            .min(self.agenda.accounting_ns)
            .min(self.workloads.next_ns())
            .min(self.policy.repeats_ns(0))
            .min(self.host.duration_ns + 1);
        let completion_ns = self.agenda.completions.at(0);
        let cpu = &mut self.cpus[0];
        let mut accounted_ns = cpu.accounted_ns;
        // The work that is left when the decision's cost has passed, and what of it will be done at its end.
        let work_ns = completion_ns - accounted_ns;
        let mut left_ns = work_ns;
        let mut done_ns = end_ns - accounted_ns;
        let (mut calls, mut calls_ns) = (0, 0);
        let mut now = end_ns;
        while (0..left_ns).contains(&done_ns) && end_ns < next_ns && calls < WATCH_INTERVAL {
            left_ns -= done_ns;
            now = end_ns;
            let cost_ns = self.costs.schedule.next(&mut cpu.random);
            calls += 1;
            calls_ns += cost_ns;
            accounted_ns = now + cost_ns;
            end_ns = accounted_ns.max(now + quantum_ns);
            done_ns = end_ns - accounted_ns;
        }
        if calls == 0 {
            return;
        }
        self.events += calls;
        self.schedule_calls += calls;
        self.schedule_ns += calls_ns;
        self.policy.repeat(0, now);
        self.policy.set_switched(0, accounted_ns);
        cpu.asked = false;
        cpu.postponed = false;
        cpu.accounted_ns = accounted_ns;
        let vcpu = cpu.vcpu;
        self.agenda.decisions.set(0, end_ns);
        if completion_ns != NEVER {
            self.agenda.completions.set(0, accounted_ns + left_ns);
        }
        if vcpu != NOBODY {
            self.work(0, vcpu as usize, work_ns - left_ns);
        }
    }

    /// A VCPU comes to a CPU.
    #[inline]
    fn enter(&mut self, cpu: u32, index: usize, now: i64) {
        let vcpu = &mut self.vcpus[index];
        vcpu.cpu = cpu;
        vcpu.waits.record(now - vcpu.waiting_since_ns);
        if let Some(caches) = &mut self.caches {
            caches.enter(index, cpu);
        }
    }

    /// Records appear in the order that a reader of the trace expects: budgets, the VCPU that stops, the decision,
    /// the VCPU that runs.
    fn trace_decision(
        &mut self,
        now: i64,
        cpu: u32,
        before: u32,
        chosen: u32,
        cost_ns: i64,
        until_ns: i64,
    ) {
        self.report(now);
        if before != NOBODY && before != chosen {
            let preempted = i64::from(!self.vcpus[before as usize].blocked);
            self.trace(now, Kind::Stop, cpu, before as usize, preempted);
        }
        if chosen == NOBODY {
            self.sink.record(Record {
                time_ns: now,
                argument: cost_ns,
                cpu: cpu as u16,
                domain: NONE,
                vcpu: NONE,
                kind: Kind::Schedule,
            });
        } else {
            self.trace(now, Kind::Schedule, cpu, chosen as usize, cost_ns);
            if chosen != before {
                self.trace(now, Kind::Run, cpu, chosen as usize, until_ns);
            }
        }
    }

    #[inline]
    fn serve_requests(&mut self) {
        if self.policy.has_requests() {
            self.take_requests();
        }
    }

    #[inline(never)]
    fn take_requests(&mut self) {
        let Simulation {
            policy,
            agenda,
            cpus,
            pending,
            host,
            ..
        } = self;
        let latency_ns = host.timer_latency_ns;
        policy.take_requests(|request| match request {
            Request::ArmTimer(cpu, at_ns) => {
                agenda
                    .policy
                    .set(cpu as usize, at_ns.saturating_add(latency_ns));
            }
            Request::ArmAccount(at_ns) => {
                agenda.accounting_ns = at_ns.saturating_add(latency_ns);
            }
            Request::Kick(cpu) => {
                cpus[cpu].asked = true;
                pending.insert::<C>(cpu);
            }
            Request::Extend(cpu, until_ns) => {
                if !cpus[cpu].postponed {
                    agenda.decisions.set(cpu as usize, until_ns);
                }
            }
        });
    }

    /// Puts what became of packets into the trace.
    #[inline]
    fn report_packets(&mut self) {
        if S::ENABLED && W::ANY && self.workloads.has_records() {
            let Simulation {
                workloads, sink, ..
            } = self;
            workloads.take_records(|record| sink.record(record));
        }
    }

    /// Puts what the policy reported into the trace.
    #[inline]
    fn report(&mut self, now: i64) {
        if !S::ENABLED {
            return;
        }
        let Simulation {
            policy,
            vcpus,
            sink,
            ..
        } = self;
        policy.take_reports(
            |Report {
                 vcpu,
                 event,
                 argument,
             }| {
                sink.record(Record {
                    time_ns: now,
                    argument,
                    cpu: NONE,
                    domain: vcpus[vcpu].domain,
                    vcpu: vcpus[vcpu].id,
                    kind: match event {
                        Event::Replenish => Kind::Replenish,
                        Event::Exhaust => Kind::Exhaust,
                        Event::Budget => Kind::Budget,
                        Event::Migrate => Kind::Migrate,
                        Event::Class => Kind::Class,
                    },
                });
            },
        );
    }

    #[inline]
    fn trace(&mut self, time_ns: i64, kind: Kind, cpu: u32, vcpu: usize, argument: i64) {
        if S::ENABLED {
            self.sink.record(Record {
                time_ns,
                argument,
                cpu: cpu as u16,
                domain: self.vcpus[vcpu].domain,
                vcpu: self.vcpus[vcpu].id,
                kind,
            });
        }
    }

    fn finish(self, started: Instant) -> Outcome {
        let mut tasks = self.tasks.into_iter();
        let mut vcpus = self.vcpus.iter().enumerate();
        let mut domains = Vec::with_capacity(self.host.domains.len());
        let mut responses = Vec::with_capacity(self.host.domains.len());
        for domain in &self.host.domains {
            let of_domain: Vec<Responses> = tasks
                .by_ref()
                .take(domain.tasks.len())
                .map(|task| task.responses)
                .collect();
            let mut cpu = CpuResult::default();
            for (number, vcpu) in vcpus.by_ref().take(domain.vcpus.len()) {
                cpu.used_ns += vcpu.cpu_ns;
                cpu.stalled_ns += vcpu.stalled_ns;
                cpu.cache_misses += self
                    .caches
                    .as_ref()
                    .map_or(0, |caches| caches.misses(number));
                cpu.waits.add(&vcpu.waits);
            }
            domains.push(DomainResult::of(
                self.host.policy,
                domain,
                &of_domain,
                cpu,
                self.host.duration_ns,
            ));
            responses.push(of_domain);
        }
        let Found {
            telephony,
            network,
            kept,
        } = self.workloads.finish(self.host);
        let result = RunResult {
            policy: self.host.policy.name().to_string(),
            seed: self.host.seed,
            substrate: "sim".to_string(),
            machine: None,
            duration_ns: self.host.duration_ns,
            measured_duration_ns: None,
            domains,
            telephony,
            network,
            overhead: Overhead::of(
                self.host,
                (Some(self.schedule_calls), Some(self.schedule_ns)),
                (Some(self.context_switches), Some(self.context_switch_ns)),
            ),
            profiles: self.host.profiles.clone(),
            engine: Engine {
                events: self.events + self.schedule_calls,
                wall_ns: started.elapsed().as_nanos() as u64,
            },
        };
        Outcome {
            result,
            responses,
            kept,
        }
    }
}
