//! Xen's credit2: `docs/explanation/policies.md`, "Credit2".

use crate::rules::Rules;
use laxity_host::Host;

const MILLISECOND_NS: i64 = 1_000_000;
const FULL_NS: i64 = 10 * MILLISECOND_NS;
const CARRIED_NS: i64 = 500_000;
const SHORTEST_NS: i64 = 500_000;
const LONGEST_NS: i64 = 10 * MILLISECOND_NS;
const RATELIMIT_NS: i64 = MILLISECOND_NS;
/// A VCPU that has run for longer can be preempted by a call.
const PROTECTED_NS: i64 = 950_000;
const RESISTANCE_NS: i64 = 500_000;
const PREFERENCE_NS: i64 = 10 * MILLISECOND_NS;
const COMPENSATION_NS: i64 = 50_000;
const LATE_NS: i64 = 1_000;
const CAP_PERIOD_NS: i64 = 10 * MILLISECOND_NS;
const LEAST_QUOTA_NS: i64 = 500_000;
const WEIGHT_OF_DOM0: i64 = 256;
/// A load of 1, as averages have it.
const ONE: i64 = 1 << 18;
/// A second or so, in the units in which loads know time.
const WINDOW: i64 = 1 << 20;
const TIME_UNIT_NS: i64 = 1_024;

/// The budget of a domain with a cap.
struct Cap {
    full_ns: i64,
    quota_ns: i64,
    pool_ns: i64,
    fills_ns: i64,
    /// VCPUs in the order in which they were parked.
    parked: Vec<usize>,
}

/// The average of a load.
struct Average {
    value: i64,
    at: i64,
}

impl Average {
    /// "Brought up to date", after the load has been so much.
    fn follow(&mut self, load: usize, now_ns: i64) {
        let passed = now_ns / TIME_UNIT_NS - self.at;
        let load = load as i64 * ONE;
        self.value = if passed > WINDOW {
            load
        } else {
            self.value + passed * load / WINDOW - passed * self.value / WINDOW
        };
        self.at += passed;
    }
}

/// What a run queue has besides its VCPUs and CPUs.
struct Queue {
    average: Average,
    /// How many of its VCPUs count as having work.
    load: usize,
    last_chosen: usize,
}

struct Vcpu {
    domain: usize,
    cpu: usize,
    affinity: Vec<u32>,
    preferred: Vec<u32>,
    weight: i64,
    awake: bool,
    credits_ns: i64,
    /// What the last division by the weight left.
    rest: i64,
    /// CPU time that was used and not paid yet.
    unpaid_ns: i64,
    chosen_ns: i64,
    called: Option<usize>,
    /// What it took from its domain's pool, less what it ran since.
    budget_ns: i64,
    average: Average,
    /// When it came to its run queue, as a count.
    came: usize,
    /// It is on its way to that run queue.
    way: Option<usize>,
}

struct Cpu {
    running: Option<usize>,
    until_ns: i64,
    called: bool,
}

/// All VCPUs and CPUs under credit2.
pub(crate) struct Credit2 {
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
    /// By domain.
    caps: Vec<Option<Cap>>,
    /// RunQ of each run queue.
    waiting: Vec<Vec<usize>>,
    queues: Vec<Queue>,
    queue_cpus: usize,
    /// How often a VCPU has come to a run queue.
    arrivals: usize,
    /// The CPU that is balancing, and the VCPU that it is about to run.
    balancing: Option<(usize, usize)>,
}

impl Credit2 {
    pub(crate) fn new(host: &Host) -> Self {
        let mut vcpus = Vec::new();
        let mut caps = Vec::new();
        for (number, domain) in host.domains.iter().enumerate() {
            let full_ns = CAP_PERIOD_NS * i64::from(domain.parameters.cap_percent) / 100;
            caps.push((domain.parameters.cap_percent > 0).then(|| Cap {
                full_ns,
                quota_ns: (full_ns / domain.vcpus.len() as i64).max(LEAST_QUOTA_NS),
                pool_ns: full_ns,
                fills_ns: CAP_PERIOD_NS,
                parked: Vec::new(),
            }));
            for vcpu in &domain.vcpus {
                vcpus.push(Vcpu {
                    domain: number,
                    cpu: vcpu.cpu as usize,
                    affinity: vcpu.affinity.clone(),
                    preferred: vcpu.soft_affinity.clone(),
                    weight: domain.parameters.weight.into(),
                    awake: false,
                    credits_ns: domain.parameters.credit_ns,
                    rest: 0,
                    unpaid_ns: 0,
                    chosen_ns: 0,
                    called: None,
                    budget_ns: 0,
                    average: Average {
                        value: ONE / 2,
                        at: 0,
                    },
                    came: vcpus.len(),
                    way: None,
                });
            }
        }
        let cpus = (0..host.cpus)
            .map(|_| Cpu {
                running: None,
                until_ns: i64::MAX,
                called: false,
            })
            .collect();
        let queue_cpus = match host.settings.run_queue_cpus {
            0 => host.cpus as usize,
            cpus => cpus as usize,
        };
        let queues: Vec<Queue> = (0..host.cpus as usize)
            .step_by(queue_cpus)
            .map(|first| Queue {
                average: Average {
                    value: (vcpus.iter())
                        .filter(|vcpu| vcpu.cpu / queue_cpus == first / queue_cpus)
                        .map(|vcpu| vcpu.average.value)
                        .sum(),
                    at: 0,
                },
                load: 0,
                last_chosen: first,
            })
            .collect();
        Credit2 {
            arrivals: vcpus.len(),
            vcpus,
            cpus,
            caps,
            waiting: vec![Vec::new(); queues.len()],
            queues,
            queue_cpus,
            balancing: None,
        }
    }

    fn queue_of(&self, vcpu: usize) -> usize {
        self.vcpus[vcpu].cpu / self.queue_cpus
    }

    /// The CPUs of a run queue.
    fn cpus_of(&self, queue: usize) -> std::ops::Range<usize> {
        let first = queue * self.queue_cpus;
        first..(first + self.queue_cpus).min(self.cpus.len())
    }

    /// The VCPUs of a run queue, in the order in which they came there.
    fn members(&self, queue: usize) -> Vec<usize> {
        let mut members: Vec<usize> = (0..self.vcpus.len())
            .filter(|&vcpu| self.queue_of(vcpu) == queue)
            .collect();
        members.sort_by_key(|&vcpu| self.vcpus[vcpu].came);
        members
    }

    fn greatest_weight(&self, queue: usize) -> i64 {
        (self.members(queue).into_iter())
            .map(|vcpu| self.vcpus[vcpu].weight)
            .fold(WEIGHT_OF_DOM0, i64::max)
    }

    fn has_load(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake && !self.is_parked(vcpu) && self.vcpus[vcpu].way.is_none()
    }

    fn follow_queue(&mut self, queue: usize, now_ns: i64) {
        let queue = &mut self.queues[queue];
        queue.average.follow(queue.load, now_ns);
    }

    /// "Brought up to date." A VCPU that has blocked has a load until its CPU decides.
    fn follow_vcpu(&mut self, vcpu: usize, now_ns: i64) {
        let deciding = self.balancing.map(|(cpu, _)| cpu);
        let awaits_its_cpu = (self.cpus.iter().enumerate())
            .any(|(cpu, of_cpu)| of_cpu.running == Some(vcpu) && Some(cpu) != deciding);
        let still_works = awaits_its_cpu && !self.is_parked(vcpu) && self.vcpus[vcpu].way.is_none();
        let load = usize::from(self.has_load(vcpu) || still_works);
        self.vcpus[vcpu].average.follow(load, now_ns);
    }

    /// The VCPU has a load from now on, or has none any more.
    fn change_load(&mut self, vcpu: usize, has_load: bool, now_ns: i64) {
        let queue = self.queue_of(vcpu);
        self.follow_queue(queue, now_ns);
        self.vcpus[vcpu]
            .average
            .follow(usize::from(!has_load), now_ns);
        self.add_to_load(queue, has_load);
    }

    fn add_to_load(&mut self, queue: usize, more: bool) {
        let load = &mut self.queues[queue].load;
        *load = if more { *load + 1 } else { *load - 1 };
    }

    /// "It pays for what it ran."
    fn pay(&mut self, number: usize) {
        let greatest_weight = self.greatest_weight(self.queue_of(number));
        let vcpu = &mut self.vcpus[number];
        let price = vcpu.unpaid_ns * greatest_weight + vcpu.rest;
        vcpu.budget_ns -= vcpu.unpaid_ns;
        vcpu.unpaid_ns = 0;
        vcpu.rest = price % vcpu.weight;
        vcpu.credits_ns = (vcpu.credits_ns - price / vcpu.weight).max(-FULL_NS);
    }

    fn begin_to_wait(&mut self, number: usize) {
        let credits_ns = self.vcpus[number].credits_ns;
        let waiting = &self.waiting[self.queue_of(number)];
        let behind = (waiting.iter())
            .rposition(|&other| self.vcpus[other].credits_ns >= credits_ns)
            .map_or(0, |last| last + 1);
        let queue = self.queue_of(number);
        self.waiting[queue].insert(behind, number);
    }

    fn stop_waiting(&mut self, vcpu: usize) {
        for waiting in &mut self.waiting {
            waiting.retain(|&other| other != vcpu);
        }
    }

    fn may_run_on(&self, vcpu: usize, cpu: usize) -> bool {
        self.vcpus[vcpu].affinity.contains(&(cpu as u32))
    }

    fn prefers(&self, vcpu: usize, cpu: usize) -> bool {
        let preferred = &self.vcpus[vcpu].preferred;
        preferred.is_empty() || preferred.contains(&(cpu as u32))
    }

    /// It prefers some of the CPUs that it may run on, and not all.
    fn is_choosy(&self, vcpu: usize) -> bool {
        let affinity = &self.vcpus[vcpu].affinity;
        let preferred = affinity
            .iter()
            .filter(|&&cpu| self.prefers(vcpu, cpu as usize))
            .count();
        0 < preferred && preferred < affinity.len()
    }

    fn can_call(&self, vcpu: usize, cpu: usize) -> bool {
        self.may_run_on(vcpu, cpu) && !self.cpus[cpu].called
    }

    fn idles(&self, cpu: usize) -> bool {
        let is_balancing = self
            .balancing
            .is_some_and(|(balancing, _)| balancing == cpu);
        self.cpus[cpu].running.is_none() && !is_balancing
    }

    /// By how much the VCPU is ahead of the one that runs on a busy CPU, if it may take that CPU.
    fn lead_ns(&mut self, vcpu: usize, cpu: usize, now_ns: i64) -> Option<i64> {
        let running = self.cpus[cpu].running?;
        if now_ns - self.vcpus[running].chosen_ns <= PROTECTED_NS {
            return None;
        }
        self.pay(running);
        let distance_ns = if self.vcpus[vcpu].cpu == cpu {
            0
        } else {
            RESISTANCE_NS
        };
        let lead_ns = self.vcpus[vcpu].credits_ns - self.vcpus[running].credits_ns - distance_ns;
        let suits = i64::from(self.prefers(vcpu, cpu)) + i64::from(!self.prefers(running, cpu));
        (lead_ns > 0).then_some(lead_ns + suits * PREFERENCE_NS)
    }

    /// The idle CPUs that the VCPU can call, from its own on, going round.
    fn idle_cpus(&self, vcpu: usize) -> impl Iterator<Item = usize> {
        let own = self.vcpus[vcpu].cpu;
        let cpus = self.cpus_of(self.queue_of(vcpu));
        (own..cpus.end)
            .chain(cpus.start..own)
            .filter(move |&cpu| self.can_call(vcpu, cpu) && self.idles(cpu))
    }

    fn idle_for(&self, vcpu: usize) -> Option<usize> {
        let preferred = || self.idle_cpus(vcpu).find(|&cpu| self.prefers(vcpu, cpu));
        let choosy = self.is_choosy(vcpu).then(preferred).flatten();
        choosy.or_else(|| self.idle_cpus(vcpu).next())
    }

    fn call(&mut self, vcpu: usize, now_ns: i64) {
        let own = self.vcpus[vcpu].cpu;
        let cpus = self.cpus_of(self.queue_of(vcpu));
        let mut wanted = self.idle_for(vcpu);
        let mut leads = Vec::new();
        if wanted.is_none()
            && self.can_call(vcpu, own)
            && let Some(lead_ns) = self.lead_ns(vcpu, own, now_ns)
        {
            leads.push((lead_ns, true, std::cmp::Reverse(own)));
            wanted = self.prefers(vcpu, own).then_some(own);
        }
        if wanted.is_none() {
            for cpu in cpus.filter(|&cpu| cpu != own) {
                if self.can_call(vcpu, cpu)
                    && let Some(lead_ns) = self.lead_ns(vcpu, cpu, now_ns)
                {
                    leads.push((lead_ns, false, std::cmp::Reverse(cpu)));
                }
            }
            wanted = leads.into_iter().max().map(|(_, _, cpu)| cpu.0);
        }
        if let Some(cpu) = wanted {
            self.cpus[cpu].called = true;
            self.vcpus[vcpu].called = Some(cpu);
        }
    }

    fn is_parked(&self, vcpu: usize) -> bool {
        let cap = self.caps[self.vcpus[vcpu].domain].as_ref();
        cap.is_some_and(|cap| cap.parked.contains(&vcpu))
    }

    /// "It takes its quota from the pool, or what is there; if there is nothing, it is parked."
    fn has_budget(&mut self, number: usize, now_ns: i64) -> bool {
        let vcpu = &mut self.vcpus[number];
        let Some(cap) = &mut self.caps[vcpu.domain] else {
            return true;
        };
        if vcpu.budget_ns > 0 {
            return true;
        }
        cap.pool_ns += std::mem::take(&mut vcpu.budget_ns);
        if cap.pool_ns > 0 {
            vcpu.budget_ns = cap.pool_ns.min(cap.quota_ns);
            cap.pool_ns -= vcpu.budget_ns;
            return true;
        }
        let waits = self.waiting.iter().flatten().any(|&vcpu| vcpu == number);
        if waits {
            self.change_load(number, false, now_ns);
            self.stop_waiting(number);
        }
        if let Some(cap) = &mut self.caps[self.vcpus[number].domain] {
            cap.parked.push(number);
        }
        false
    }

    /// All who are parked compete again, the last of them first.
    fn unpark(&mut self, domain: usize, now_ns: i64) {
        let Some(cap) = &mut self.caps[domain] else {
            return;
        };
        for vcpu in std::mem::take(&mut cap.parked).into_iter().rev() {
            if self.vcpus[vcpu].awake && self.vcpus[vcpu].way.is_none() {
                self.change_load(vcpu, true, now_ns);
                self.begin_to_wait(vcpu);
                self.call(vcpu, now_ns);
            }
        }
    }

    fn choose(&mut self, number: usize, now_ns: i64) -> Option<usize> {
        let stays = self.cpus[number]
            .running
            .filter(|&vcpu| self.has_load(vcpu));
        if let Some(stays) = stays
            && now_ns - self.vcpus[stays].chosen_ns < RATELIMIT_NS
        {
            return Some(stays);
        }
        let stays = stays.filter(|&vcpu| {
            let spurns = self.is_choosy(vcpu) && !self.prefers(vcpu, number);
            !(spurns && self.idle_cpus(vcpu).any(|cpu| self.prefers(vcpu, cpu)))
        });
        // An idle CPU counts as one that runs a VCPU with less than the least credits.
        let to_beat_ns = stays.map_or(-FULL_NS - 1, |stays| self.vcpus[stays].credits_ns);
        let is_better = |credit2: &Credit2, vcpu: usize| {
            let vcpu = &credit2.vcpus[vcpu];
            let goes_elsewhere = vcpu.called.is_some_and(|cpu| {
                let is_of_queue = credit2.cpus_of(number / credit2.queue_cpus).contains(&cpu);
                cpu != number && is_of_queue && credit2.cpus[cpu].called
            });
            let is_near = vcpu.cpu == number || vcpu.credits_ns >= to_beat_ns + RESISTANCE_NS;
            vcpu.credits_ns > to_beat_ns
                && vcpu.affinity.contains(&(number as u32))
                && !goes_elsewhere
                && is_near
        };
        for vcpu in self.waiting[number / self.queue_cpus].clone() {
            if is_better(self, vcpu) && self.has_budget(vcpu, now_ns) {
                return Some(vcpu);
            }
        }
        stays
    }

    fn give_credits(&mut self, queue: usize, next: usize) {
        let given_ns = if self.vcpus[next].credits_ns == -FULL_NS {
            2 * FULL_NS
        } else {
            FULL_NS
        };
        for cpu in self.cpus_of(queue) {
            if let Some(running) = self.cpus[cpu].running {
                self.pay(running);
                let vcpu = &self.vcpus[running];
                if self.caps[vcpu.domain].is_some() && vcpu.budget_ns <= 0 {
                    self.cpus[cpu].called = true;
                }
            }
        }
        for vcpu in self.members(queue) {
            let vcpu = &mut self.vcpus[vcpu];
            vcpu.credits_ns = (vcpu.credits_ns + given_ns).min(FULL_NS + CARRIED_NS);
        }
    }

    fn can_go_to(&self, vcpu: usize, queue: usize) -> bool {
        let here = |cpu: usize| self.may_run_on(vcpu, cpu);
        self.vcpus[vcpu].way.is_none() && self.cpus_of(queue).any(here)
    }

    /// The run queue with which `here` is to be balanced, and how far apart their averages are.
    fn unlike(&mut self, here: usize, now_ns: i64) -> Option<(usize, i64)> {
        for queue in 0..self.queues.len() {
            self.follow_queue(queue, now_ns);
        }
        let average = |queue: usize| self.queues[queue].average.value;
        let apart = |queue: usize| (average(queue) - average(here)).abs();
        let there =
            (0..self.queues.len()).max_by_key(|&queue| (apart(queue), std::cmp::Reverse(queue)))?;
        let last = self.queues.len() - 1;
        let most_cpus = self.cpus_of(here).len().max(self.cpus_of(last).len());
        let has_room = average(here).max(average(last)) < most_cpus as i64 * ONE;
        let least = if has_room { ONE } else { ONE / 8 };
        (apart(there) >= least).then_some((there, apart(there)))
    }

    /// What goes over between two run queues: nobody, one or two.
    fn balance(&mut self, here: usize, now_ns: i64) {
        let Some((there, apart)) = self.unlike(here, now_ns) else {
            return;
        };
        let (ours, theirs) = (self.members(here), self.members(there));
        for &our in &ours {
            self.follow_vcpu(our, now_ns);
        }
        let (ours, all_theirs) = (
            ours.into_iter()
                .filter(|&our| self.can_go_to(our, there))
                .collect::<Vec<_>>(),
            theirs,
        );
        if !ours.is_empty() {
            for &their in &all_theirs {
                self.follow_vcpu(their, now_ns);
            }
        }
        let theirs: Vec<usize> = (all_theirs.into_iter())
            .filter(|&their| self.can_go_to(their, here))
            .collect();
        let mut candidates = Vec::new();
        for &our in &ours {
            candidates.extend(theirs.iter().map(|&their| (Some(our), Some(their))));
            candidates.push((Some(our), None));
        }
        candidates.extend(theirs.iter().map(|&their| (None, Some(their))));
        let load = |vcpu: Option<usize>| vcpu.map_or(0, |vcpu| self.vcpus[vcpu].average.value);
        let apart_with = |(our, their): (Option<usize>, Option<usize>)| {
            let goes = load(our) - load(their);
            let ours = self.queues[here].average.value - goes;
            (ours - (self.queues[there].average.value + goes)).abs()
        };
        // The first of equals.
        let best = candidates.into_iter().min_by_key(|&pair| apart_with(pair));
        let Some((our, their)) = best.filter(|&pair| apart_with(pair) < apart) else {
            return;
        };
        for (goes, to) in [(our, there), (their, here)] {
            if let Some(vcpu) = goes {
                self.go_over(vcpu, to, now_ns);
            }
        }
    }

    fn go_over(&mut self, vcpu: usize, to: usize, now_ns: i64) {
        let runs = self.cpus.iter().any(|cpu| cpu.running == Some(vcpu));
        let is_next = self.balancing.is_some_and(|(_, next)| next == vcpu);
        if runs || is_next {
            self.vcpus[vcpu].way = Some(to);
            let cpu = self.vcpus[vcpu].cpu;
            self.cpus[cpu].called = true;
            return;
        }
        let from = self.queue_of(vcpu);
        let waits = self.waiting[from].contains(&vcpu);
        if waits {
            self.stop_waiting(vcpu);
            self.follow_queue(from, now_ns);
            self.add_to_load(from, false);
        }
        self.arrive(vcpu, to);
        if waits {
            self.follow_queue(to, now_ns);
            self.add_to_load(to, true);
            self.begin_to_wait(vcpu);
            self.call(vcpu, now_ns);
        }
    }

    /// "The next one on which it may run, going round."
    fn next_cpu(&mut self, vcpu: usize, queue: usize) -> usize {
        let cpus = self.cpus_of(queue);
        let last = self.queues[queue].last_chosen;
        let next = (last + 1..cpus.end)
            .chain(cpus.start..=last)
            .find(|&cpu| self.may_run_on(vcpu, cpu))
            .expect("it can go there");
        self.queues[queue].last_chosen = next;
        next
    }

    fn arrive(&mut self, vcpu: usize, queue: usize) {
        let from = self.queue_of(vcpu);
        let average = self.vcpus[vcpu].average.value;
        let left = &mut self.queues[from].average.value;
        *left = (*left - average).max(0);
        self.queues[queue].average.value += average;
        self.vcpus[vcpu].cpu = self.next_cpu(vcpu, queue);
        self.arrivals += 1;
        self.vcpus[vcpu].came = self.arrivals;
    }

    fn best_waiting_ns(&self, queue: usize) -> Option<i64> {
        (self.waiting[queue].first()).map(|&first| self.vcpus[first].credits_ns)
    }

    fn run_ns(&self, number: usize, now_ns: i64) -> i64 {
        let queue = self.queue_of(number);
        let vcpu = &self.vcpus[number];
        let down_to_ns = self
            .best_waiting_ns(queue)
            .map_or(0, |best_ns| best_ns.max(0));
        let lead_ns = (vcpu.credits_ns - down_to_ns).max(0);
        let shortest_ns = (vcpu.chosen_ns + RATELIMIT_NS - now_ns).max(SHORTEST_NS);
        let mut run_ns = lead_ns * vcpu.weight / self.greatest_weight(queue);
        if self.caps[vcpu.domain].is_some() {
            run_ns = run_ns.min(vcpu.budget_ns);
        }
        run_ns.clamp(shortest_ns, LONGEST_NS)
    }
}

impl Rules for Credit2 {
    fn wake(&mut self, vcpu: usize, now_ns: i64) {
        self.vcpus[vcpu].awake = true;
        if !self.is_parked(vcpu) {
            self.change_load(vcpu, true, now_ns);
            self.begin_to_wait(vcpu);
            self.call(vcpu, now_ns);
        }
    }

    fn event(&mut self, _vcpu: usize) {}

    fn timers(&mut self, now_ns: i64) {
        for domain in 0..self.caps.len() {
            let Some(cap) = &mut self.caps[domain] else {
                continue;
            };
            if cap.fills_ns > now_ns {
                continue;
            }
            while cap.fills_ns <= now_ns {
                cap.fills_ns += CAP_PERIOD_NS;
                cap.pool_ns += cap.full_ns;
            }
            if cap.pool_ns > 0 {
                cap.pool_ns = cap.pool_ns.min(cap.full_ns);
                self.unpark(domain, now_ns);
            }
        }
    }

    fn next_ns(&self) -> i64 {
        let ends = self.cpus.iter().map(|cpu| cpu.until_ns);
        let fills = self.caps.iter().flatten().map(|cap| cap.fills_ns);
        ends.chain(fills).min().unwrap_or(i64::MAX)
    }

    fn block(&mut self, vcpu: usize) {
        self.vcpus[vcpu].awake = false;
    }

    fn has_reason(&self, number: usize, now_ns: i64) -> bool {
        let cpu = &self.cpus[number];
        let has_blocked = cpu.running.is_some_and(|vcpu| !self.vcpus[vcpu].awake);
        cpu.called || has_blocked || cpu.until_ns <= now_ns
    }

    fn decide(&mut self, number: usize, now_ns: i64) {
        let before = self.cpus[number].running;
        self.cpus[number].called = false;
        if let Some(before) = before {
            self.pay(before);
            self.has_budget(before, now_ns);
        }
        let queue = number / self.queue_cpus;
        let next = self.choose(number, now_ns);
        self.cpus[number].until_ns = i64::MAX;
        if next.is_none() {
            self.follow_queue(queue, now_ns);
        }
        if let Some(next) = next {
            if before == Some(next) {
                self.follow_queue(queue, now_ns);
                self.follow_vcpu(next, now_ns);
            }
            self.stop_waiting(next);
            let best_ns = self.best_waiting_ns(queue).unwrap_or(i64::MIN);
            if best_ns.max(self.vcpus[next].credits_ns) <= 0 {
                self.give_credits(queue, next);
                self.balancing = Some((number, next));
                self.balance(queue, now_ns);
                self.balancing = None;
            }
            if before != Some(next) {
                self.vcpus[next].chosen_ns = now_ns;
            }
            if self.vcpus[next].cpu != number {
                self.vcpus[next].cpu = number;
                self.vcpus[next].credits_ns += COMPENSATION_NS;
            }
            self.vcpus[next].called = None;
            self.cpus[number].until_ns = now_ns + self.run_ns(next, now_ns) + LATE_NS;
        }
        self.cpus[number].running = next;
        if let Some(before) = before
            && next != Some(before)
        {
            let vcpu = &mut self.vcpus[before];
            let mut gives_back = false;
            if let Some(cap) = &mut self.caps[vcpu.domain]
                && vcpu.budget_ns > 0
            {
                cap.pool_ns += std::mem::take(&mut vcpu.budget_ns);
                gives_back = cap.pool_ns > 0;
            }
            let domain = vcpu.domain;
            if self.has_load(before) {
                self.begin_to_wait(before);
                self.call(before, now_ns);
            } else {
                // It had a load up to now.
                self.change_load(before, false, now_ns);
            }
            if gives_back {
                self.unpark(domain, now_ns);
            }
            if let Some(queue) = self.vcpus[before].way {
                self.next_cpu(before, queue);
                self.arrive(before, queue);
                self.vcpus[before].way = None;
                if self.has_load(before) {
                    self.change_load(before, true, now_ns);
                    self.begin_to_wait(before);
                    self.call(before, now_ns);
                }
            }
        }
    }

    fn settle(&mut self, _now_ns: i64) {}

    fn pass(&mut self, unit_ns: i64) {
        for running in self.cpus.iter().filter_map(|cpu| cpu.running) {
            self.vcpus[running].unpaid_ns += unit_ns;
        }
    }

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running
    }
}
