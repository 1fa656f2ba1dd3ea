//! The state of a trace's host, record by record: the account of how each VCPU with jobs spends its time.

use crate::cause::{Cause, Key, Part, Rule, Who};
use crate::history::History;
use crate::packet::{Histories, Packet, Subject, Watch, Way};
use crate::share::{Job, divide};
use laxity_policies::Policy;
use laxity_trace::{Exit, Kind, Metadata, NONE, Record, task_of};
use std::collections::VecDeque;

/// No task, or no VCPU, in place of its index.
const NOBODY: u32 = u32::MAX;

/// The key of time that goes into decisions and context switches, first among the keys of every VCPU.
const SWITCH: usize = 0;

/// Classes of credit and scheduler S, as the argument of [`Kind::Class`] has them; the lower, the better.
const BOOST: i64 = 0;
const UNDER: i64 = 1;
const PARKED: i64 = 3;

/// Sums of times that are kept for jobs which are released and not complete, of the whole host: 256 MiB.
const SUMS_MAX: usize = 1 << 25;

/// Follows a host through its trace and splits the response of each job.
pub struct Account<'a> {
    metadata: &'a Metadata,
    /// Whether jobs that met their deadline are split, too.
    every_job: bool,
    has_budgets: bool,
    /// Whether VCPUs have classes and turns.
    has_classes: bool,
    /// Whether a VCPU that gets budget while it runs can use more than one budget in a row.
    can_repeat_budgets: bool,
    cpus: Vec<Cpu>,
    vcpus: Vec<Vcpu>,
    tasks: Vec<Task>,
    /// The index of each domain's first VCPU and first task.
    first: Vec<(u32, u32)>,
    /// CPUs whose VCPU or decision changed at `now_ns`.
    changed: Vec<u16>,
    now_ns: i64,
    /// Sums that are kept for released jobs.
    sums: usize,
    /// Sums of jobs that are complete, to be used again.
    spare: Vec<Vec<i64>>,
    /// The way of a packet that is told at present.
    way: Way,
    /// The packet whose way was told last.
    packet: Option<Packet>,
}

#[derive(Default)]
struct Cpu {
    /// The VCPU that runs.
    vcpu: Option<u32>,
    /// When the last decision's cost has passed.
    decided_ns: i64,
    is_changed: bool,
    /// The VCPUs that wait here when they wait.
    residents: Vec<u32>,
}

struct Vcpu {
    domain: u16,
    number: u16,
    /// The culprit of the time that it runs while others wait.
    culprit: Who,
    /// Whether it has priority over all VCPUs that are not real-time.
    is_real_time: bool,
    /// Whether it is a thread within a domain, whose kernel schedules it by rules of its own.
    is_inside: bool,
    /// The CPU on which it runs, or [`NONE`].
    cpu: u16,
    /// The CPU in whose queue it is, or [`NONE`] before that is known.
    home: u16,
    blocked: bool,
    has_budget: bool,
    class: i64,
    /// Whether it got budget while it ran.
    back_to_back: bool,
    /// Whether a record has named the job that runs since the VCPU came to its CPU.
    is_told: bool,
    /// The task whose job runs, or [`NOBODY`].
    task: u32,
    /// Its tasks, in the order of a rate-monotonic guest.
    tasks: Vec<u32>,
    /// Jobs that are released and not complete.
    jobs: u32,
    since_ns: i64,
    /// The time up to which its CPU decides and switches, if that delays the VCPU.
    decided_ns: i64,
    /// The current use of its time, as an index of `keys`.
    key: usize,
    keys: Vec<Key>,
    /// The keys, packed.
    packed: Vec<u64>,
    sums: Vec<i64>,
    /// Budgets that it got so far.
    budgets: u32,
    /// The time that it used of the budget with that number without doing its jobs' work.
    used: (u32, i64),
    /// The task that used most of the last budget, or [`NOBODY`] for the VCPU itself, and the time that it used.
    user: (u32, i64),
    /// Whether it handles packets.
    history: Option<History>,
    /// Why its guest was left, until it is entered.
    exit: Option<Exit>,
    guest: GuestTime,
}

/// The use of the time that a VCPU had its CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestTime {
    /// The time that the VCPU had its CPU, ns.
    pub ran_ns: i64,
    /// The exits of its guest, and the time of `ran_ns` that the host had after them, ns, by [`Exit`].
    pub exits: [(u64, i64); Exit::ALL.len()],
}

impl Histories for Account<'_> {
    fn of(&self, index: usize) -> Option<(&History, &[Key])> {
        let vcpu = &self.vcpus[index];
        Some((vcpu.history.as_ref()?, &vcpu.keys))
    }
}

struct Task {
    domain: u16,
    place: u32,
    vcpu: u32,
    released: VecDeque<Released>,
    /// The key of its execution in its VCPU's keys.
    key: usize,
    /// Its execution up to the completion of its last job.
    complete_ns: i64,
    /// The time that it used of its VCPU's budget with that number.
    used: (u32, i64),
}

struct Released {
    number: u64,
    time_ns: i64,
    /// The VCPU's sums at that time.
    sums: Vec<i64>,
}

/// Too many jobs are released and not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl<'a> Account<'a> {
    /// The host before the first record: every VCPU blocked, with its budget. Jobs that are in time are split only with
    /// `every_job`.
    pub fn new(metadata: &'a Metadata, every_job: bool) -> Account<'a> {
        let policy = Policy::from_name(&metadata.policy);
        let mut account = Account {
            metadata,
            every_job,
            has_budgets: policy.is_some_and(Policy::has_budgets),
            has_classes: policy.is_some_and(Policy::shares_by_weight),
            can_repeat_budgets: !matches!(
                policy,
                Some(Policy::Sporadic | Policy::Lending | Policy::GlobalSporadic)
            ),
            cpus: (0..metadata.lanes()).map(|_| Cpu::default()).collect(),
            vcpus: Vec::new(),
            tasks: Vec::new(),
            first: Vec::new(),
            changed: Vec::new(),
            now_ns: 0,
            sums: 0,
            spare: Vec::new(),
            way: Way::default(),
            packet: None,
        };
        // On one CPU it is known where every VCPU waits.
        let only = |first, count| if count == 1 { first } else { NONE };
        let outside = only(0, metadata.cpus);
        let inside = only(metadata.cpus as u16, metadata.lanes() - metadata.cpus);
        for (index, domain) in metadata.domains.iter().enumerate() {
            let (first_vcpu, first_task) = (account.vcpus.len(), account.tasks.len());
            account.first.push((first_vcpu as u32, first_task as u32));
            for (place, task) in domain.tasks.iter().enumerate() {
                account.tasks.push(Task {
                    domain: index as u16,
                    place: place as u32,
                    vcpu: first_vcpu as u32 + task.vcpu,
                    released: VecDeque::new(),
                    key: 0,
                    complete_ns: 0,
                    used: (0, 0),
                });
            }
            let is_inside = metadata.programs_in.is_some() && domain.is_beside();
            let home = if is_inside { inside } else { outside };
            for number in 0..domain.vcpus {
                let vcpu = (first_vcpu as u32) + number;
                let mut tasks: Vec<u32> = (first_task as u32..account.tasks.len() as u32)
                    .filter(|&task| account.tasks[task as usize].vcpu == vcpu)
                    .collect();
                tasks.sort_by_key(|&task| {
                    domain.tasks[account.tasks[task as usize].place as usize].period_ns
                });
                if home != NONE {
                    account.cpus[usize::from(home)].residents.push(vcpu);
                }
                let mut vcpu = Vcpu::new(index as u16, number as u16, home, tasks);
                vcpu.is_real_time = domain.real_time;
                vcpu.is_inside = is_inside;
                if domain.is_beside() {
                    // Nobody knows a program's threads by their numbers.
                    vcpu.culprit = Who::Vcpu(index as u16, 0);
                }
                for &task in &vcpu.tasks.clone() {
                    let task = &mut account.tasks[task as usize];
                    task.key = vcpu.index(Key::by(Cause::Task, Who::Task(task.domain, task.place)));
                }
                account.vcpus.push(vcpu);
            }
        }
        account
    }

    /// Also explains packets, from the first record on; `watch` has seen all records.
    pub fn watch(&mut self, watch: &Watch) {
        for &(domain, vcpu) in &watch.vcpus {
            let index = (self.first[usize::from(domain)].0 + u32::from(vcpu)) as usize;
            let of_vcpu = &mut self.vcpus[index];
            of_vcpu.history = Some(History::new(watch.window_ns));
            // It always counts as having work, so that its time is split.
            of_vcpu.jobs += 1;
            self.classify(index);
        }
    }

    /// The packet whose last record was taken since this was asked.
    pub fn take_packet(&mut self) -> Option<Packet> {
        self.packet.take()
    }

    /// Takes the next record, and returns the job that it completes, with its response split. A job that was in time
    /// has no parts unless every job is split.
    ///
    /// # Errors
    ///
    /// The sums of the jobs that are released and not complete would take more than 256 MiB.
    pub fn record(&mut self, record: &Record) -> Result<Option<Job>, TooMany> {
        if record.time_ns > self.now_ns {
            self.settle();
            self.now_ns = record.time_ns;
        }
        if record.kind == Kind::Schedule {
            let cost_ns = record.argument.max(0);
            self.cpus[usize::from(record.cpu)].decided_ns = self.now_ns.saturating_add(cost_ns);
            self.change(record.cpu);
            return Ok(None);
        }
        let (first_vcpu, first_task) = self.first[usize::from(record.domain)];
        let index = (first_vcpu + u32::from(record.vcpu)) as usize;
        if matches!(record.kind, Kind::Hop | Kind::Spent) {
            // The VCPU goes on with what it does.
            self.way.record(record, index);
            return Ok(None);
        }
        self.flush(index);
        let mut explained = None;
        match record.kind {
            Kind::Release => {
                let (place, number) = task_of(record.argument);
                self.release((first_task + place) as usize, number)?;
                if self.vcpus[index].home == NONE && record.cpu != NONE {
                    self.rehome(index, record.cpu);
                }
                self.infer(index);
            }
            Kind::Complete => {
                let (place, number) = task_of(record.argument);
                explained = self.complete((first_task + place) as usize, number);
                if self.vcpus[index].is_told {
                    // A record tells who runs next.
                    self.vcpus[index].task = NOBODY;
                }
                self.infer(index);
            }
            Kind::Execute => {
                let vcpu = &mut self.vcpus[index];
                vcpu.is_told = true;
                vcpu.task = first_task + task_of(record.argument).0;
            }
            Kind::Wake => {
                self.vcpus[index].blocked = false;
                if record.cpu != NONE {
                    self.rehome(index, record.cpu);
                }
            }
            Kind::Block => {
                self.vcpus[index].blocked = true;
                self.vcpus[index].back_to_back = false;
            }
            Kind::Run => {
                self.rehome(index, record.cpu);
                let vcpu = &mut self.vcpus[index];
                vcpu.cpu = record.cpu;
                vcpu.blocked = false;
                vcpu.is_told = false;
                self.cpus[usize::from(record.cpu)].vcpu = Some(index as u32);
                self.infer(index);
                self.change(record.cpu);
            }
            Kind::Stop => {
                let vcpu = &mut self.vcpus[index];
                vcpu.cpu = NONE;
                vcpu.task = NOBODY;
                vcpu.is_told = false;
                vcpu.back_to_back = false;
                let cpu = &mut self.cpus[usize::from(record.cpu)];
                if cpu.vcpu == Some(index as u32) {
                    cpu.vcpu = None;
                }
                self.change(record.cpu);
            }
            Kind::Replenish if self.has_budgets => {
                let vcpu = &mut self.vcpus[index];
                vcpu.has_budget = record.argument > 0;
                if vcpu.has_budget {
                    // A replenishment that only pays for what was overdrawn is no new budget.
                    vcpu.budgets = vcpu.budgets.wrapping_add(1);
                    vcpu.user = (NOBODY, 0);
                }
                if self.can_repeat_budgets && vcpu.cpu != NONE {
                    vcpu.back_to_back = true;
                }
                self.change_of(index);
            }
            Kind::Exhaust | Kind::Budget if self.has_budgets => {
                let vcpu = &mut self.vcpus[index];
                vcpu.has_budget = record.kind == Kind::Budget && record.argument > 0;
                if vcpu.blocked && !vcpu.has_budget {
                    // What a blocked VCPU loses is used by no task.
                    vcpu.user = (NOBODY, i64::MAX);
                }
            }
            Kind::Class => {
                self.vcpus[index].class = record.argument;
                self.change_of(index);
            }
            Kind::Exit => {
                let exit = Exit::of(record.argument);
                let vcpu = &mut self.vcpus[index];
                vcpu.exit = exit;
                // One at time 0 says what was so then.
                if let Some(exit) = exit.filter(|_| self.now_ns > 0) {
                    vcpu.guest.exits[exit as usize].0 += 1;
                }
            }
            Kind::Enter => self.vcpus[index].exit = None,
            Kind::Migrate => self.rehome(index, record.argument as u16),
            kind => {
                if let Some(subject) = Subject::of(kind) {
                    self.finish_packet(subject, record);
                }
            }
        }
        self.classify(index);
        Ok(explained)
    }

    /// Ends the trace at its duration, and returns the jobs that should have been complete and are not.
    pub fn finish(&mut self) -> Vec<Job> {
        self.settle();
        self.now_ns = self.metadata.duration_ns.max(self.now_ns);
        for index in 0..self.vcpus.len() {
            self.flush(index);
        }
        let mut late = Vec::new();
        for index in 0..self.tasks.len() {
            let of_task = &self.metadata.domains[usize::from(self.tasks[index].domain)].tasks
                [self.tasks[index].place as usize];
            for released in std::mem::take(&mut self.tasks[index].released) {
                if of_task.deadline_of_job_ns(released.number) <= self.metadata.duration_ns {
                    late.push(self.explain(index, &released, false));
                }
                // What the task ran for counts for the first of its jobs alone.
                self.tasks[index].complete_ns =
                    self.vcpus[self.tasks[index].vcpu as usize].sums[self.tasks[index].key];
            }
        }
        late
    }

    /// The use of the time of each VCPU whose guest the trace tells of, by its domain and its number there.
    pub fn guests(&self) -> impl Iterator<Item = ((u16, u16), GuestTime)> {
        (self.vcpus.iter())
            .filter(|vcpu| vcpu.guest.exits != GuestTime::default().exits)
            .map(|vcpu| ((vcpu.domain, vcpu.number), vcpu.guest))
    }

    fn finish_packet(&mut self, subject: Subject, record: &Record) {
        let (stream, number) = task_of(record.argument);
        let mut way = std::mem::take(&mut self.way);
        for index in way.vcpus() {
            self.flush(index);
        }
        let limit_ns = self
            .metadata
            .calls
            .as_ref()
            .and_then(|calls| match subject {
                Subject::Voice => Some(calls.delay_ns),
                Subject::Registration => calls.answer_waits_ns.get(number as usize).copied(),
                Subject::Outage => Some(0),
            });
        self.packet = limit_ns.and_then(|limit_ns| {
            let packet = (record.domain, stream, number);
            way.finish(subject, packet, (limit_ns, self.now_ns), self)
        });
    }

    fn release(&mut self, task: usize, number: u64) -> Result<(), TooMany> {
        let task = &mut self.tasks[task];
        let vcpu = &mut self.vcpus[task.vcpu as usize];
        self.sums += vcpu.sums.len();
        if self.sums > SUMS_MAX {
            return Err(TooMany);
        }
        vcpu.jobs += 1;
        let mut sums = self.spare.pop().unwrap_or_default();
        sums.clear();
        sums.extend_from_slice(&vcpu.sums);
        task.released.push_back(Released {
            number,
            time_ns: self.now_ns,
            sums,
        });
        Ok(())
    }

    fn complete(&mut self, task: usize, number: u64) -> Option<Job> {
        let of_task = &mut self.tasks[task];
        let at = (of_task.released.iter()).position(|released| released.number == number)?;
        let released = of_task.released.remove(at)?;
        let job = self.explain(task, &released, true);
        let of_task = &mut self.tasks[task];
        let vcpu = &mut self.vcpus[of_task.vcpu as usize];
        of_task.complete_ns = vcpu.sums[of_task.key];
        vcpu.jobs -= 1;
        self.sums -= released.sums.len();
        self.spare.push(released.sums);
        Some(job)
    }

    /// Splits the response of a job that is complete now, or would have to be.
    fn explain(&self, task: usize, released: &Released, is_complete: bool) -> Job {
        let of_task = &self.tasks[task];
        let vcpu = &self.vcpus[of_task.vcpu as usize];
        let facts =
            &self.metadata.domains[usize::from(of_task.domain)].tasks[of_task.place as usize];
        let arrival_ns = facts.arrival_ns(released.number);
        let deadline_ns = facts.deadline_of_job_ns(released.number);
        let late_ns = (self.now_ns - deadline_ns).max(0);
        let mut job = Job {
            domain: of_task.domain,
            task: of_task.place,
            number: released.number,
            arrival_ns,
            deadline_ns,
            end_ns: self.now_ns,
            is_complete,
            late_ns,
            parts: Vec::new(),
        };
        if late_ns == 0 && is_complete && !self.every_job {
            return job;
        }
        let parts = &mut job.parts;
        let mut add = |key: Key, delay_ns: i64| {
            if delay_ns > 0 {
                parts.push(Part {
                    cause: key.cause,
                    who: key.who,
                    rule: key.rule,
                    delay_ns,
                    ns: 0,
                });
            }
        };
        add(Key::of(Cause::ReleasedLate), released.time_ns - arrival_ns);
        let mut overhead_ns = 0;
        for (index, (&key, &sum_ns)) in vcpu.keys.iter().zip(&vcpu.sums).enumerate() {
            let before_ns = released.sums.get(index).copied().unwrap_or(0);
            if index == of_task.key {
                let ran_ns = sum_ns - before_ns.max(of_task.complete_ns);
                let own_ns = ran_ns.min(facts.cost_ns);
                add(Key::of(Cause::OwnWork), own_ns);
                add(Key::of(Cause::EarlierJob), sum_ns - before_ns - ran_ns);
                overhead_ns += ran_ns - own_ns;
            } else if key.cause == Cause::Overhead {
                overhead_ns += sum_ns - before_ns;
            } else {
                add(key, sum_ns - before_ns);
            }
        }
        add(Key::of(Cause::Overhead), overhead_ns);
        parts.sort_by_key(|part| (-part.delay_ns, part.cause, part.who, part.rule));
        divide(parts, deadline_ns - arrival_ns, late_ns);
        job
    }

    /// Where no record tells which job a VCPU runs, it is the first of a rate-monotonic guest.
    fn infer(&mut self, index: usize) {
        let vcpu = &mut self.vcpus[index];
        if vcpu.cpu == NONE || vcpu.is_told {
            return;
        }
        let mut ready = vcpu.tasks.iter().copied();
        let first = ready.find(|&task| !self.tasks[task as usize].released.is_empty());
        vcpu.task = first.unwrap_or(NOBODY);
    }

    /// The VCPU goes into the queue of that CPU.
    fn rehome(&mut self, index: usize, cpu: u16) {
        let home = std::mem::replace(&mut self.vcpus[index].home, cpu);
        if home == cpu {
            return;
        }
        if home != NONE {
            let residents = &mut self.cpus[usize::from(home)].residents;
            residents.retain(|&vcpu| vcpu as usize != index);
        }
        (self.cpus[usize::from(cpu)].residents).push(index as u32);
    }

    /// The CPU's VCPU changes now, or the reason why it runs does.
    fn change(&mut self, cpu: u16) {
        if !std::mem::replace(&mut self.cpus[usize::from(cpu)].is_changed, true) {
            self.changed.push(cpu);
        }
    }

    fn change_of(&mut self, index: usize) {
        let cpu = self.vcpus[index].cpu;
        if cpu != NONE {
            self.change(cpu);
        }
    }

    /// Lets the VCPUs of the CPUs that changed at this instant spend their time on something else.
    fn settle(&mut self) {
        while let Some(number) = self.changed.pop() {
            let number = usize::from(number);
            self.cpus[number].is_changed = false;
            for place in 0..self.cpus[number].residents.len() {
                self.reclassify(self.cpus[number].residents[place]);
            }
            if let Some(running) = self.cpus[number].vcpu {
                self.reclassify(running);
            }
        }
    }

    fn reclassify(&mut self, index: u32) {
        if self.vcpus[index as usize].jobs > 0 {
            self.flush(index as usize);
            self.classify(index as usize);
        }
    }

    /// Adds the time up to now to what the VCPU spends it on.
    #[inline]
    fn flush(&mut self, index: usize) {
        let vcpu = &mut self.vcpus[index];
        let spent_ns = self.now_ns - vcpu.since_ns;
        if spent_ns <= 0 {
            return;
        }
        let switch_ns = vcpu
            .decided_ns
            .saturating_sub(vcpu.since_ns)
            .clamp(0, spent_ns);
        vcpu.since_ns = self.now_ns;
        if vcpu.jobs > 0 {
            vcpu.sums[SWITCH] += switch_ns;
            vcpu.sums[vcpu.key] += spent_ns - switch_ns;
        }
        if let Some(history) = &mut vcpu.history {
            let start_ns = self.now_ns - spent_ns;
            history.push(SWITCH, start_ns, start_ns + switch_ns);
            history.push(vcpu.key, start_ns + switch_ns, self.now_ns);
        }
        if vcpu.cpu != NONE {
            vcpu.guest.ran_ns += spent_ns;
            if let Some(exit) = vcpu.exit {
                vcpu.guest.exits[exit as usize].1 += spent_ns;
            }
        }
        if vcpu.cpu == NONE || !self.has_budgets {
            return;
        }
        let used = match self.tasks.get_mut(vcpu.task as usize) {
            Some(task) => &mut task.used,
            None => &mut vcpu.used,
        };
        if used.0 != vcpu.budgets {
            *used = (vcpu.budgets, 0);
        }
        used.1 += spent_ns;
        if used.1 > vcpu.user.1 {
            vcpu.user = (vcpu.task, used.1);
        }
    }

    /// States what the VCPU spends its time on from now.
    fn classify(&mut self, index: usize) {
        let vcpu = &self.vcpus[index];
        let itself = Who::Vcpu(vcpu.domain, vcpu.number);
        let mut decided_ns = i64::MIN;
        let key = if vcpu.cpu != NONE {
            decided_ns = self.cpus[usize::from(vcpu.cpu)].decided_ns;
            match (vcpu.exit, self.tasks.get(vcpu.task as usize)) {
                (Some(exit), _) => Key {
                    rule: Some(Rule::Exit(exit)),
                    ..Key::of(Cause::Exit)
                },
                (None, Some(task)) => Key::by(Cause::Task, Who::Task(task.domain, task.place)),
                (None, None) => Key::of(Cause::Overhead),
            }
        } else if vcpu.jobs == 0 {
            return;
        } else if vcpu.blocked {
            Key::of(Cause::Blocked)
        } else if vcpu.class == PARKED {
            Key::by(Cause::Cap, itself)
        } else if !vcpu.has_budget {
            let user = self.tasks.get(vcpu.user.0 as usize);
            let who = user.map_or(itself, |task| Who::Task(task.domain, task.place));
            Key::by(Cause::Budget, who)
        } else if let Some(cpu) = self.cpus.get(usize::from(vcpu.home)) {
            decided_ns = cpu.decided_ns;
            match cpu.vcpu.map(|index| &self.vcpus[index as usize]) {
                Some(other) => Key {
                    cause: Cause::Cpu,
                    who: other.culprit,
                    rule: Some(self.rule(vcpu, other)),
                },
                None => Key::of(Cause::Idle),
            }
        } else {
            Key::of(Cause::Idle)
        };
        let vcpu = &mut self.vcpus[index];
        vcpu.key = vcpu.index(key);
        vcpu.decided_ns = decided_ns;
    }

    fn rule(&self, waiting: &Vcpu, running: &Vcpu) -> Rule {
        match () {
            () if running.back_to_back => Rule::BackToBack,
            () if running.is_real_time && !waiting.is_real_time => Rule::Order,
            () if !self.has_classes && !running.is_inside => Rule::Order,
            () if running.class == BOOST => Rule::Boost,
            () if running.class < waiting.class => Rule::Credits,
            () => Rule::Turn,
        }
    }
}

impl Vcpu {
    fn new(domain: u16, number: u16, home: u16, tasks: Vec<u32>) -> Vcpu {
        Vcpu {
            domain,
            number,
            culprit: Who::Vcpu(domain, number),
            is_real_time: false,
            is_inside: false,
            cpu: NONE,
            home,
            blocked: true,
            has_budget: true,
            class: UNDER,
            back_to_back: false,
            is_told: false,
            task: NOBODY,
            tasks,
            jobs: 0,
            since_ns: 0,
            decided_ns: i64::MIN,
            key: SWITCH,
            keys: vec![Key::of(Cause::Switch)],
            packed: vec![Key::of(Cause::Switch).packed()],
            sums: vec![0],
            budgets: 0,
            used: (0, 0),
            user: (NOBODY, 0),
            history: None,
            exit: None,
            guest: GuestTime::default(),
        }
    }

    /// The place of the key among the keys, at which it is entered if it is new.
    fn index(&mut self, key: Key) -> usize {
        let packed = key.packed();
        if self.packed[self.key] == packed {
            return self.key;
        }
        match self.packed.iter().position(|&other| other == packed) {
            Some(index) => index,
            None => {
                self.keys.push(key);
                self.packed.push(packed);
                self.sums.push(0);
                self.keys.len() - 1
            }
        }
    }
}
