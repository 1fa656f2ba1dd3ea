//! The rules of the policies with budgets (docs/explanation/policies.md), in vectors that are searched from end to
//! end: what every budget must be after every operation, who must run, and until when.
//!
//! It knows live changes and an embedder that is late, which the reference of whole hosts does not.

use laxity_policies::{Parameters, Policy};
use laxity_policy::NEVER;
use std::collections::{BTreeMap, VecDeque};

const EXTRA_TURN_NS: i64 = 1_000_000;
const REPLENISHMENTS_MAX: usize = 32;
const WORTH_NS: i64 = 100_000;
const WORTH_PARTS: i64 = 16;
const LEADS_MAX: usize = 8;
const LEAD_BUDGETS_MAX: i64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Neither,
    /// Runnable, with budget.
    Run,
    /// Blocked, and its budget runs down (periodic).
    Ready,
}

/// A sporadic server's.
#[derive(Debug, Clone, Copy)]
struct Replenishment {
    at_ns: i64,
    amount_ns: i64,
    /// When the first of it would have come if nothing had been merged.
    first_ns: i64,
}

impl Replenishment {
    fn merged(self, next: Replenishment) -> Replenishment {
        Replenishment {
            at_ns: self.at_ns.max(next.at_ns - self.amount_ns),
            amount_ns: self.amount_ns + next.amount_ns,
            first_ns: self.first_ns,
        }
    }
}

/// What SEDF lets a VCPU use from some time on, until its deadline.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    pub from_ns: i64,
    pub deadline_ns: i64,
    pub used_ns: i64,
}

#[derive(Debug, Clone)]
pub struct Vcpu {
    pub cpu: usize,
    pub parameters: Parameters,
    pub runnable: bool,
    pub queue: Queue,
    /// Place among equals.
    order: u64,
    /// Place among those of its CPU, who are served in this order what is due at the same time.
    arrival: u64,
    pub left_ns: i64,
    /// When the next replenishment is due; of a sporadic server, that of the first pending one.
    due_ns: i64,
    /// No timer brings it: the VCPU gets it when it wakes.
    pub rests: bool,
    pending: VecDeque<Replenishment>,
    run_start_ns: i64,
    run_used_ns: i64,
    /// From when to when its budget ran down.
    pub uses: Vec<(i64, i64)>,
    /// A sporadic server's runs that ended: when each began, and what it used.
    runs: Vec<(i64, i64)>,
    /// Lending: CPU time that it got and its server has not served, by the order of the work.
    pub leads_ns: BTreeMap<i64, i64>,
    /// Lending: as its guest told; NEVER: none that can be kept.
    deadline_ns: i64,
    /// Lending: as its guest told.
    order_of_work: i64,
    /// Lending: the deadline of that, whether it can be kept or not.
    told_ns: i64,
    /// Lending: whether it was runnable up to when use is accounted.
    works: bool,
    /// SEDF's slices, one more for each time that a VCPU wakes and goes on with one.
    pub slices: Vec<Slice>,
}

impl Vcpu {
    /// Up to which order of work its server may serve a lead.
    fn lead_through(&self) -> i64 {
        if self.works {
            self.order_of_work
        } else {
            NEVER
        }
    }

    /// The lead that its server may serve.
    pub fn lead_to_serve_ns(&self) -> i64 {
        self.leads_ns
            .range(..=self.lead_through())
            .map(|(_, ns)| ns)
            .sum()
    }

    fn serve_lead(&mut self, through: i64, for_ns: i64) -> i64 {
        let mut rest_ns = for_ns;
        for lead_ns in self.leads_ns.range_mut(..=through).map(|(_, ns)| ns) {
            let served_ns = rest_ns.min(*lead_ns);
            *lead_ns -= served_ns;
            rest_ns -= served_ns;
        }
        self.leads_ns.retain(|_, lead_ns| *lead_ns > 0);
        for_ns - rest_ns
    }

    fn gain_lead(&mut self, ns: i64) {
        if self.told_ns == NEVER || ns == 0 {
            return;
        }
        *self.leads_ns.entry(self.order_of_work).or_default() += ns;
        if self.leads_ns.len() > LEADS_MAX {
            let (last, last_ns) = self.leads_ns.pop_last().expect("many");
            let (_, merged_ns) = self.leads_ns.pop_last().expect("many");
            self.leads_ns.insert(last, last_ns + merged_ns);
        }
        let limit_ns = LEAD_BUDGETS_MAX * self.parameters.budget_ns;
        let mut kept_ns = 0;
        for lead_ns in self.leads_ns.values_mut() {
            *lead_ns = (*lead_ns).min(limit_ns - kept_ns);
            kept_ns += *lead_ns;
        }
        self.leads_ns.retain(|_, lead_ns| *lead_ns > 0);
    }

    fn begin_slice(&mut self, now: i64) {
        self.slices.push(Slice {
            from_ns: now,
            deadline_ns: self.due_ns,
            used_ns: 0,
        });
    }

    /// The sum of what came back of a sporadic server's use.
    pub fn came_back_ns(&self) -> i64 {
        let used_ns: i64 = self.runs.iter().map(|(_, used_ns)| used_ns).sum();
        self.left_ns + self.run_used_ns + used_ns - self.parameters.budget_ns
    }

    /// The same, if each run came back by itself a period after it began.
    pub fn runs_back_ns(&self, now: i64) -> i64 {
        let back = |&(start_ns, used_ns): &(i64, i64)| {
            let is_back = start_ns + self.parameters.period_ns <= now;
            if is_back { used_ns } else { 0 }
        };
        self.runs.iter().map(back).sum()
    }

    /// The same, if every nanosecond came back a period after it was used.
    pub fn each_back_ns(&self, now: i64) -> i64 {
        let before_ns = now - self.parameters.period_ns;
        let current = (self.run_start_ns, self.run_used_ns);
        let back = |&(start_ns, used_ns): &(i64, i64)| (before_ns - start_ns).clamp(0, used_ns);
        self.runs.iter().chain([&current]).map(back).sum()
    }

    /// What a sporadic server gets back by itself, at the least.
    pub fn worth_ns(&self) -> i64 {
        let Parameters {
            budget_ns,
            period_ns,
            ..
        } = self.parameters;
        (WORTH_NS.min(budget_ns / WORTH_PARTS)).min(period_ns - budget_ns)
    }
}

#[derive(Debug, Clone, Default)]
pub struct Cpu {
    pub running: Option<usize>,
    /// The VCPU whose budget runs down.
    burning: Option<usize>,
    pub used_until_ns: i64,
    /// Until when it is busy with its last decision.
    pub switched_ns: i64,
    decided_ns: i64,
    extra: Vec<usize>,
    next_order: u64,
}

#[derive(Debug)]
pub struct Budgets {
    pub policy: Policy,
    pub quantum_ns: i64,
    pub cpus: Vec<Cpu>,
    pub vcpus: Vec<Vcpu>,
}

/// The VCPU that should run, and the one whose budget should run down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub run: Option<usize>,
    pub burn: Option<usize>,
}

impl Budgets {
    pub fn new(policy: Policy, quantum_ns: i64, cpus: usize) -> Budgets {
        let cpus = vec![Cpu::default(); cpus];
        Budgets {
            policy,
            quantum_ns,
            cpus,
            vcpus: Vec::new(),
        }
    }

    pub fn add(&mut self, cpu: usize, parameters: Parameters, now: i64) {
        let sporadic = self.is_sporadic();
        if !sporadic {
            self.use_up(cpu, now); // a sporadic server's coming changes nothing for the others
        }
        let arrival = self.take_order(cpu);
        self.vcpus.push(Vcpu {
            cpu,
            parameters,
            runnable: false,
            queue: Queue::Neither,
            order: 0,
            arrival,
            left_ns: if sporadic { parameters.budget_ns } else { 0 },
            due_ns: now,
            rests: false,
            pending: VecDeque::new(),
            run_start_ns: 0,
            run_used_ns: 0,
            uses: Vec::new(),
            runs: Vec::new(),
            leads_ns: BTreeMap::new(),
            deadline_ns: NEVER,
            order_of_work: 0,
            told_ns: NEVER,
            works: false,
            slices: Vec::new(),
        });
    }

    /// When a timer brings the VCPU's next replenishment.
    pub fn due_ns(&self, vcpu: usize) -> i64 {
        match self.vcpus[vcpu].rests {
            true => NEVER,
            false => self.comes_ns(vcpu),
        }
    }

    fn comes_ns(&self, vcpu: usize) -> i64 {
        let vcpu = &self.vcpus[vcpu];
        match self.is_sporadic() {
            true => vcpu.pending.front().map_or(NEVER, |first| first.at_ns),
            false => vcpu.due_ns,
        }
    }

    /// The first multiple of the quantum that is not before the time.
    pub fn on_quantum(&self, time_ns: i64) -> i64 {
        match self.quantum_ns {
            0 => time_ns,
            _ if time_ns == NEVER => NEVER,
            quantum_ns => (time_ns + quantum_ns - 1) / quantum_ns * quantum_ns,
        }
    }

    /// When the CPU's timer must fire.
    pub fn timer_ns(&self, cpu: usize) -> i64 {
        let here = (0..self.vcpus.len()).filter(|&vcpu| self.vcpus[vcpu].cpu == cpu);
        let due_ns = here.map(|vcpu| self.due_ns(vcpu)).min().unwrap_or(NEVER);
        let timer_ns = self.on_quantum(due_ns);
        match self.cpus[cpu].burning {
            Some(vcpu) if self.lends() => {
                let rest_ns = (self.vcpus[vcpu].left_ns).min(self.vcpus[vcpu].lead_to_serve_ns());
                let ends = self.cpus[cpu].running != Some(vcpu) && rest_ns > 0;
                match ends {
                    true => timer_ns.min(self.cpus[cpu].used_until_ns + rest_ns),
                    false => timer_ns,
                }
            }
            Some(vcpu) if !self.vcpus[vcpu].runnable => {
                timer_ns.min(self.cpus[cpu].used_until_ns + self.vcpus[vcpu].left_ns)
            }
            _ => timer_ns,
        }
    }

    fn key(&self, vcpu: usize) -> (i64, u64) {
        let Vcpu {
            parameters,
            due_ns,
            order,
            ..
        } = &self.vcpus[vcpu];
        match self.policy {
            Policy::Sedf => (*due_ns, *order),
            _ => (parameters.priority.into(), *order),
        }
    }

    fn first(&self, cpu: usize, queue: Queue) -> Option<usize> {
        (0..self.vcpus.len())
            .filter(|&vcpu| self.vcpus[vcpu].cpu == cpu && self.vcpus[vcpu].queue == queue)
            .min_by_key(|&vcpu| self.key(vcpu))
    }

    pub fn is_sporadic(&self) -> bool {
        matches!(self.policy, Policy::Sporadic | Policy::Lending)
    }

    pub fn lends(&self) -> bool {
        self.policy == Policy::Lending
    }

    /// The earliest deadline first; then those without one that can be kept, by priority.
    fn most_urgent(&self, cpu: usize) -> Option<usize> {
        (0..self.vcpus.len())
            .filter(|&vcpu| self.vcpus[vcpu].cpu == cpu && self.vcpus[vcpu].runnable)
            .min_by_key(|&vcpu| {
                let Vcpu {
                    deadline_ns,
                    parameters,
                    arrival,
                    ..
                } = &self.vcpus[vcpu];
                let rank = match *deadline_ns {
                    NEVER => parameters.priority,
                    _ => 0,
                };
                (*deadline_ns, rank, *arrival)
            })
    }

    pub fn choice(&self, cpu: usize) -> Choice {
        if self.lends() {
            let serving = self.first(cpu, Queue::Run);
            let run = match serving {
                Some(vcpu) if self.vcpus[vcpu].lead_to_serve_ns() == 0 => serving,
                _ => self.most_urgent(cpu),
            };
            return Choice { run, burn: serving };
        }
        let extra = self.cpus[cpu].extra.first().copied();
        match (self.first(cpu, Queue::Run), self.first(cpu, Queue::Ready)) {
            (Some(run), Some(ready)) if self.key(ready) < self.key(run) => Choice {
                run: None,
                burn: Some(ready),
            },
            (Some(run), _) => Choice {
                run: Some(run),
                burn: Some(run),
            },
            (None, ready) => Choice {
                run: extra,
                burn: ready,
            },
        }
    }

    /// Until when a choice holds.
    pub fn until_ns(&self, cpu: usize, choice: Choice, now: i64) -> i64 {
        let Cpu {
            decided_ns, extra, ..
        } = &self.cpus[cpu];
        let until_ns = match choice.run {
            Some(vcpu) if choice.burn == Some(vcpu) => now + self.vcpus[vcpu].left_ns,
            Some(_) if extra.len() > 1 => (decided_ns + EXTRA_TURN_NS).max(now),
            _ => NEVER,
        };
        match self.quantum_ns {
            0 => until_ns,
            quantum_ns => until_ns.min(decided_ns + quantum_ns),
        }
    }

    /// The place behind all others on a CPU.
    fn take_order(&mut self, cpu: usize) -> u64 {
        let cpu = &mut self.cpus[cpu];
        cpu.next_order += 1;
        cpu.next_order
    }

    fn enqueue(&mut self, vcpu: usize, queue: Queue) {
        self.vcpus[vcpu].order = self.take_order(self.vcpus[vcpu].cpu);
        self.vcpus[vcpu].queue = queue;
    }

    fn leave_extra(&mut self, vcpu: usize) {
        let cpu = self.vcpus[vcpu].cpu;
        self.cpus[cpu].extra.retain(|&other| other != vcpu);
    }

    fn join_extra(&mut self, vcpu: usize) {
        self.leave_extra(vcpu);
        if self.vcpus[vcpu].parameters.extratime && !self.lends() {
            let cpu = self.vcpus[vcpu].cpu;
            self.cpus[cpu].extra.push(vcpu);
        }
    }

    /// A run ends: a sporadic server will get back what it used.
    fn stop(&mut self, vcpu: usize) {
        let sporadic = self.is_sporadic();
        let vcpu = &mut self.vcpus[vcpu];
        let amount_ns = std::mem::take(&mut vcpu.run_used_ns);
        if !sporadic || amount_ns == 0 {
            return;
        }
        vcpu.runs.push((vcpu.run_start_ns, amount_ns));
        let latest_ns = vcpu.pending.back().map_or(0, |latest| latest.at_ns);
        let at_ns = latest_ns.max(vcpu.run_start_ns + vcpu.parameters.period_ns);
        let worth_ns = vcpu.worth_ns();
        let is_trifle = |latest: &Replenishment| latest.amount_ns < worth_ns;
        let joins = vcpu.pending.back().is_some_and(is_trifle);
        vcpu.pending.push_back(Replenishment {
            at_ns,
            amount_ns,
            first_ns: at_ns,
        });
        let pairs = vcpu.pending.len() - 1;
        if !joins && pairs < REPLENISHMENTS_MAX {
            return;
        }
        let late_ns = |first: usize| {
            let (first, next) = (vcpu.pending[first], vcpu.pending[first + 1]);
            next.at_ns - first.amount_ns - first.first_ns
        };
        let merged = match joins {
            true => pairs - 1,
            false => (0..pairs).min_by_key(|&first| late_ns(first)).unwrap(),
        };
        let next = vcpu.pending.remove(merged + 1).expect("a pair");
        vcpu.pending[merged] = vcpu.pending[merged].merged(next);
    }

    fn burn(&mut self, cpu: usize, vcpu: Option<usize>, now: i64) {
        let before = self.cpus[cpu].burning;
        if before == vcpu {
            return;
        }
        self.cpus[cpu].burning = vcpu;
        if let Some(before) = before {
            self.stop(before);
        }
        if let Some(vcpu) = vcpu {
            self.vcpus[vcpu].run_start_ns = now;
            self.vcpus[vcpu].run_used_ns = 0;
        }
    }

    fn exhaust(&mut self, vcpu: usize, now: i64) {
        let cpu = self.vcpus[vcpu].cpu;
        self.vcpus[vcpu].queue = Queue::Neither;
        if self.cpus[cpu].burning == Some(vcpu) {
            self.burn(cpu, None, now);
        }
        if self.vcpus[vcpu].runnable && self.cpus[cpu].running != Some(vcpu) {
            self.join_extra(vcpu);
        }
    }

    /// Budgets run down to now.
    pub fn use_up(&mut self, cpu: usize, now: i64) {
        let from_ns = std::mem::replace(&mut self.cpus[cpu].used_until_ns, now);
        let passed_ns = now - from_ns;
        let mut used_ns = passed_ns;
        let Cpu {
            running, burning, ..
        } = self.cpus[cpu];
        if self.lends() {
            let done_ns = (now - self.cpus[cpu].switched_ns).clamp(0, used_ns);
            if let Some(running) = running {
                let vcpu = &mut self.vcpus[running];
                let mut gained_ns = done_ns;
                if burning == Some(running) {
                    vcpu.serve_lead(vcpu.order_of_work, used_ns - done_ns);
                    // A lead of the order of the work, which is to grow, is served and grows.
                    let grows = i64::from(vcpu.told_ns < NEVER);
                    gained_ns = vcpu.serve_lead(vcpu.order_of_work - grows, done_ns);
                }
                vcpu.gain_lead(gained_ns);
            }
            if let Some(serving) = burning
                && running != burning
            {
                // No more, should the embedder be late.
                let vcpu = &mut self.vcpus[serving];
                used_ns = vcpu.serve_lead(vcpu.lead_through(), used_ns);
            }
        }
        let Some(index) = burning else {
            return;
        };
        let vcpu = &mut self.vcpus[index];
        vcpu.left_ns -= used_ns;
        vcpu.run_used_ns += used_ns;
        match vcpu.uses.last_mut() {
            Some((_, end_ns)) if *end_ns == from_ns => *end_ns += used_ns,
            _ => vcpu.uses.push((from_ns, from_ns + used_ns)),
        }
        if let Some(slice) = vcpu.slices.last_mut() {
            slice.used_ns += used_ns;
        }
        let has_work = vcpu.works || !vcpu.leads_ns.is_empty() || running == Some(index);
        if vcpu.left_ns <= 0 {
            self.exhaust(index, now);
        } else if self.lends() && (!has_work || used_ns < passed_ns) {
            if !has_work {
                self.blocked(index);
            }
            self.burn(cpu, None, now);
        }
    }

    /// The VCPU whose replenishment is the first to serve, if one is due.
    fn first_due(&self, cpu: usize, now: i64) -> Option<usize> {
        (0..self.vcpus.len())
            .filter(|&vcpu| self.vcpus[vcpu].cpu == cpu)
            .min_by_key(|&vcpu| (self.due_ns(vcpu), self.vcpus[vcpu].arrival))
            .filter(|&vcpu| self.on_quantum(self.due_ns(vcpu)) <= now)
    }

    /// One that was put to sleep uses its CPU until a decision takes it off; the server of one with a
    /// lead has that to serve.
    fn is_active(&self, vcpu: usize) -> bool {
        let Vcpu {
            runnable,
            cpu,
            ref leads_ns,
            ..
        } = self.vcpus[vcpu];
        runnable || !leads_ns.is_empty() || self.cpus[cpu].running == Some(vcpu)
    }

    fn replenish(&mut self, vcpu: usize, now: i64) {
        self.fill_up(vcpu, now);
        if !self.is_active(vcpu) {
            self.vcpus[vcpu].rests = self.may_rest();
        }
        let replenished = &self.vcpus[vcpu];
        if replenished.left_ns > 0 && replenished.queue == Queue::Neither {
            if self.is_active(vcpu) {
                self.leave_extra(vcpu);
                self.enqueue(vcpu, Queue::Run);
            } else if self.policy == Policy::Periodic {
                self.enqueue(vcpu, Queue::Ready);
            }
        }
    }

    fn fill_up(&mut self, index: usize, now: i64) {
        let active = self.is_active(index);
        let sporadic = self.is_sporadic();
        let vcpu = &mut self.vcpus[index];
        if sporadic {
            while let Some(&Replenishment {
                at_ns, amount_ns, ..
            }) = vcpu.pending.front()
                && at_ns <= now
            {
                vcpu.pending.pop_front();
                vcpu.left_ns += amount_ns;
            }
            return;
        }
        while vcpu.due_ns <= now {
            vcpu.due_ns += vcpu.parameters.period_ns;
        }
        // What it used beyond its budget, when the embedder was late, is owed.
        vcpu.left_ns = vcpu.parameters.budget_ns + vcpu.left_ns.min(0);
        if self.policy == Policy::Sedf {
            vcpu.begin_slice(now);
        }
        if self.policy == Policy::Polling && !active {
            vcpu.left_ns = vcpu.left_ns.min(0);
        }
    }

    /// Whether nothing but a wake makes a difference to a blocked VCPU.
    fn may_rest(&self) -> bool {
        !matches!(self.policy, Policy::Periodic | Policy::Polling)
    }

    /// A VCPU that rests gets what timers would have brought it before now.
    fn catch_up(&mut self, vcpu: usize, now: i64) {
        let served_ns = match self.quantum_ns {
            0 => now - 1,
            quantum_ns => (now - 1) / quantum_ns * quantum_ns,
        };
        if self.vcpus[vcpu].rests && self.comes_ns(vcpu) <= served_ns {
            self.fill_up(vcpu, served_ns);
        }
    }

    fn blocked(&mut self, index: usize) {
        self.vcpus[index].rests = self.may_rest() && self.vcpus[index].leads_ns.is_empty();
        let vcpu = &mut self.vcpus[index];
        match self.policy {
            Policy::Lending if !vcpu.leads_ns.is_empty() => {}
            Policy::Periodic if vcpu.queue == Queue::Run => vcpu.queue = Queue::Ready,
            Policy::Periodic => {}
            policy => {
                vcpu.queue = Queue::Neither;
                if policy == Policy::Polling {
                    vcpu.left_ns = vcpu.left_ns.min(0);
                }
            }
        }
    }

    /// After an operation: unless another VCPU should run now, what it changed is in force already.
    pub fn review(&mut self, cpu: usize, now: i64) {
        let choice = self.choice(cpu);
        if choice.run == self.cpus[cpu].running {
            self.burn(cpu, choice.burn, now);
        }
    }

    pub fn wake(&mut self, vcpu: usize, now: i64) {
        let cpu = self.vcpus[vcpu].cpu;
        let timer_is_late = self.first_due(cpu, now - 1).is_some();
        self.vcpus[vcpu].runnable = true;
        if timer_is_late {
            self.timer(cpu, now);
        } else {
            self.use_up(cpu, now);
        }
        if self.policy != Policy::Sedf {
            self.catch_up(vcpu, now);
        }
        self.vcpus[vcpu].rests = false;
        self.vcpus[vcpu].works = true;
        // One that has not been taken off its CPU never blocked.
        if self.policy == Policy::Sedf && self.cpus[cpu].running != Some(vcpu) {
            self.unblock_sedf(vcpu, now);
        }
        match self.vcpus[vcpu].queue {
            Queue::Run => {}
            Queue::Ready => self.vcpus[vcpu].queue = Queue::Run,
            Queue::Neither if self.vcpus[vcpu].left_ns > 0 => self.enqueue(vcpu, Queue::Run),
            Queue::Neither => self.join_extra(vcpu),
        }
    }

    /// A period begins, unless what is left can be used no faster than slices may be.
    fn unblock_sedf(&mut self, vcpu: usize, now: i64) {
        let vcpu = &mut self.vcpus[vcpu];
        let Parameters {
            budget_ns,
            period_ns,
            ..
        } = vcpu.parameters;
        let rest_ns = vcpu.due_ns - now;
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        let goes_on = rest_ns > 0 && product(vcpu.left_ns, period_ns) < product(rest_ns, budget_ns);
        if !goes_on {
            vcpu.left_ns = budget_ns + vcpu.left_ns.min(0);
            vcpu.due_ns = now + period_ns;
        }
        vcpu.begin_slice(now);
    }

    /// A deadline that has passed is none to keep.
    pub fn tell(&mut self, vcpu: usize, deadline_ns: i64, order: i64, now: i64) {
        self.use_up(self.vcpus[vcpu].cpu, now);
        self.vcpus[vcpu].order_of_work = order;
        let before_ns = std::mem::replace(&mut self.vcpus[vcpu].told_ns, deadline_ns);
        if before_ns != deadline_ns {
            let can_be_kept = deadline_ns > now;
            self.vcpus[vcpu].deadline_ns = if can_be_kept { deadline_ns } else { NEVER };
        }
    }

    pub fn sleep(&mut self, vcpu: usize, now: i64) {
        let cpu = self.vcpus[vcpu].cpu;
        self.vcpus[vcpu].runnable = false;
        self.use_up(cpu, now);
        self.vcpus[vcpu].works = false;
        self.leave_extra(vcpu);
        if self.cpus[cpu].running != Some(vcpu) {
            self.blocked(vcpu);
        }
    }

    pub fn yield_now(&mut self, vcpu: usize, now: i64) {
        self.use_up(self.vcpus[vcpu].cpu, now);
        if self.vcpus[vcpu].queue != Queue::Neither {
            self.enqueue(vcpu, self.vcpus[vcpu].queue);
        }
    }

    /// Everything goes with it, but its places, which are the last there.
    pub fn move_vcpu(&mut self, vcpu: usize, to: usize, now: i64) {
        let from = self.vcpus[vcpu].cpu;
        self.use_up(from, now);
        self.use_up(to, now);
        if self.cpus[from].burning == Some(vcpu) {
            self.burn(from, None, now);
        }
        self.vcpus[vcpu].cpu = to;
        self.vcpus[vcpu].arrival = self.take_order(to);
        if self.vcpus[vcpu].queue != Queue::Neither {
            self.enqueue(vcpu, self.vcpus[vcpu].queue);
        }
    }

    pub fn timer(&mut self, cpu: usize, now: i64) {
        self.use_up(cpu, now);
        while let Some(vcpu) = self.first_due(cpu, now) {
            self.replenish(vcpu, now);
        }
    }

    /// The VCPU that runs from now on, and until when.
    pub fn schedule(&mut self, cpu: usize, now: i64) -> (Option<usize>, i64) {
        self.use_up(cpu, now);
        let current = self.cpus[cpu].running;
        // Its use may have made its own replenishment due. All others are the timer's to serve.
        if let Some(vcpu) = current
            && self.first_due(cpu, now) == current
        {
            self.replenish(vcpu, now);
        }
        let runnable = current.is_none_or(|vcpu| self.vcpus[vcpu].runnable);
        let choice = self.choice(cpu);
        if choice.run != current || !runnable || self.until_ns(cpu, choice, now) <= now {
            if let Some(vcpu) = current {
                if !runnable {
                    self.vcpus[vcpu].works = false;
                    self.leave_extra(vcpu);
                    self.blocked(vcpu);
                } else if self.vcpus[vcpu].queue == Queue::Neither {
                    self.join_extra(vcpu);
                } else if self.quantum_ns > 0 {
                    self.enqueue(vcpu, self.vcpus[vcpu].queue);
                }
            }
            self.cpus[cpu].decided_ns = now;
        }
        let choice = self.choice(cpu);
        self.burn(cpu, choice.burn, now);
        self.cpus[cpu].running = choice.run;
        (choice.run, self.until_ns(cpu, choice, now))
    }

    pub fn set(&mut self, vcpu: usize, parameters: Parameters, now: i64) {
        let cpu = self.vcpus[vcpu].cpu;
        self.use_up(cpu, now);
        if !self.is_sporadic() && self.policy != Policy::Sedf {
            self.catch_up(vcpu, now);
        }
        let before = std::mem::replace(&mut self.vcpus[vcpu].parameters, parameters);
        let mut behind_equals = parameters.priority != before.priority;
        if self.is_sporadic() {
            if self.set_sporadic(vcpu, before.budget_ns, now) {
                behind_equals = false;
            }
        } else {
            let vcpu = &mut self.vcpus[vcpu];
            vcpu.left_ns = vcpu.left_ns.min(parameters.budget_ns);
            vcpu.due_ns = (vcpu.due_ns - before.period_ns + parameters.period_ns).max(now);
            behind_equals &= self.policy != Policy::Sedf;
        }
        if behind_equals && self.vcpus[vcpu].queue != Queue::Neither {
            self.enqueue(vcpu, self.vcpus[vcpu].queue);
        }
        let waits = self.vcpus[vcpu].runnable && self.vcpus[vcpu].queue == Queue::Neither;
        if !parameters.extratime {
            self.leave_extra(vcpu);
        } else if waits && !self.cpus[cpu].extra.contains(&vcpu) {
            self.join_extra(vcpu);
        }
    }

    /// True if the VCPU came into its queue or left it.
    fn set_sporadic(&mut self, index: usize, before_ns: i64, now: i64) -> bool {
        let vcpu = &mut self.vcpus[index];
        vcpu.left_ns += (vcpu.parameters.budget_ns - before_ns).max(0);
        let mut cut_ns = (before_ns - vcpu.parameters.budget_ns).max(0);
        let mut take = |from: &mut i64| {
            let taken_ns = cut_ns.min(*from).max(0);
            *from -= taken_ns;
            cut_ns -= taken_ns;
            taken_ns
        };
        take(&mut vcpu.left_ns);
        for pending in vcpu.pending.iter_mut().rev() {
            take(&mut pending.amount_ns);
        }
        take(&mut vcpu.run_used_ns);
        vcpu.pending.retain(|pending| pending.amount_ns > 0);

        let (queued, has_budget) = (vcpu.queue != Queue::Neither, vcpu.left_ns > 0);
        if queued && !has_budget {
            self.exhaust(index, now);
        } else if !queued && has_budget && self.is_active(index) {
            self.leave_extra(index);
            self.enqueue(index, Queue::Run);
        }
        queued != (self.vcpus[index].queue != Queue::Neither)
    }

    pub fn set_quantum(&mut self, quantum_ns: i64, now: i64) {
        self.quantum_ns = quantum_ns;
        for cpu in 0..self.cpus.len() {
            self.use_up(cpu, now);
        }
    }

    pub fn become_policy(&mut self, policy: Policy, now: i64) {
        self.policy = policy;
        for cpu in 0..self.cpus.len() {
            self.use_up(cpu, now);
        }
        let mut all: Vec<usize> = (0..self.vcpus.len()).collect();
        all.sort_by_key(|&vcpu| self.vcpus[vcpu].arrival);
        for index in all {
            if self.is_active(index) {
                continue;
            }
            self.catch_up(index, now);
            self.vcpus[index].rests = self.may_rest();
            let vcpu = &mut self.vcpus[index];
            vcpu.queue = Queue::Neither;
            if policy == Policy::Polling {
                vcpu.left_ns = vcpu.left_ns.min(0);
            } else if policy == Policy::Periodic && vcpu.left_ns > 0 {
                self.enqueue(index, Queue::Ready);
            }
        }
    }

    /// Budget that is left, used in the run that goes on, and coming back.
    pub fn sum_ns(&self, vcpu: usize) -> i64 {
        let Vcpu {
            left_ns,
            run_used_ns,
            pending,
            ..
        } = &self.vcpus[vcpu];
        left_ns + run_used_ns + pending.iter().map(|one| one.amount_ns).sum::<i64>()
    }
}
