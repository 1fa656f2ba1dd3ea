//! Scheduler S: `docs/explanation/policies.md`, "Scheduler S".

use crate::rules::Rules;
use laxity_host::{Host, Part, Settings};

/// How many VCPUs of one part a CPU looks at when it takes one from another CPU, and how many may
/// stand before one that is put into the queue by its laxity.
const LOOKED_AT_MAX: usize = 16;

/// L: how much longer a VCPU must have waited to be taken.
const THRESHOLD_NS: i64 = 2_000_000;

/// LL: how often real-time VCPUs are balanced.
const SECOND_NS: i64 = 1_000_000_000;

/// Classes, and the parts of a queue. The better is the smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Boost,
    Under,
    Over,
}

const CLASSES: [Class; 3] = [Class::Boost, Class::Under, Class::Over];

struct Vcpu {
    domain: usize,
    affinity: Vec<u32>,
    /// The CPU in whose queue it is, or on which it ran last.
    cpu: usize,
    awake: bool,
    class: Class,
    parked: bool,
    active: bool,
    credits_ns: i64,
    last_run_ns: i64,
    waits_since_ns: i64,
    used_ns: i64,
}

struct Domain {
    weight: u32,
    cap_percent: u32,
    laxity_ns: i64,
}

struct Cpu {
    running: Option<usize>,
    chosen_ns: i64,
    charged_ns: i64,
    /// The whole queue, first to last: the parts one behind the other.
    queue: Vec<(Class, usize)>,
    kicked: bool,
    /// Its turn is over, as seen before any CPU decides at this instant.
    turn_over: bool,
}

/// All domains, VCPUs and CPUs under scheduler S.
pub(crate) struct SchedulerS {
    settings: Settings,
    by_laxity: bool,
    by_event: bool,
    balances: bool,
    binds: bool,
    infinite: bool,
    cuts: bool,
    domains: Vec<Domain>,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
    balanced_second: i64,
    /// The VCPU that is to move, and the CPU to which.
    moving: Option<(usize, usize)>,
    now_ns: i64,
}

impl SchedulerS {
    pub(crate) fn new(host: &Host) -> Self {
        let mut domains = Vec::new();
        let mut vcpus = Vec::new();
        for (number, domain) in host.domains.iter().enumerate() {
            domains.push(Domain {
                weight: domain.parameters.weight,
                cap_percent: domain.parameters.cap_percent,
                laxity_ns: domain.parameters.laxity_ns,
            });
            for vcpu in &domain.vcpus {
                vcpus.push(Vcpu {
                    domain: number,
                    affinity: vcpu.affinity.clone(),
                    cpu: vcpu.cpu as usize,
                    awake: false,
                    class: Class::Under,
                    parked: false,
                    active: false,
                    credits_ns: 0,
                    last_run_ns: 0,
                    waits_since_ns: 0,
                    used_ns: 0,
                });
            }
        }
        let cpus = (0..host.cpus)
            .map(|_| Cpu {
                running: None,
                chosen_ns: 0,
                charged_ns: 0,
                queue: Vec::new(),
                kicked: false,
                turn_over: false,
            })
            .collect();
        SchedulerS {
            settings: host.settings,
            by_laxity: host.policy.has(Part::Laxity),
            by_event: host.policy.has(Part::Event),
            balances: host.policy.has(Part::Balance),
            binds: host.policy.has(Part::Bind),
            infinite: host.policy.has(Part::Infinite),
            cuts: host.policy.has(Part::Cut),
            domains,
            vcpus,
            cpus,
            balanced_second: 0,
            moving: None,
            now_ns: 0,
        }
    }

    fn is_real_time(&self, vcpu: usize) -> bool {
        self.domains[self.vcpus[vcpu].domain].laxity_ns > 0
    }

    fn may_run(&self, vcpu: usize, cpu: usize) -> bool {
        self.vcpus[vcpu].affinity.contains(&(cpu as u32))
    }

    /// "Nobody steals a real-time VCPU."
    fn may_be_stolen(&self, vcpu: usize, by: usize) -> bool {
        self.may_run(vcpu, by) && !(self.binds && self.is_real_time(vcpu))
    }

    /// The other CPUs, next number first.
    fn others(&self, cpu: usize) -> Vec<usize> {
        (1..self.cpus.len())
            .map(|distance| (cpu + distance) % self.cpus.len())
            .collect()
    }

    fn waits(&self, vcpu: usize) -> bool {
        let in_queue = |cpu: &Cpu| cpu.queue.iter().any(|&(_, waiting)| waiting == vcpu);
        self.cpus.iter().any(in_queue)
    }

    fn dequeue(&mut self, vcpu: usize) {
        for cpu in &mut self.cpus {
            cpu.queue.retain(|&(_, waiting)| waiting != vcpu);
        }
    }

    /// Where a VCPU would be put into a CPU's queue, and in which part that is: "A".
    fn place(&self, cpu: usize, vcpu: usize) -> (usize, Class) {
        let class = self.vcpus[vcpu].class;
        let queue = &self.cpus[cpu].queue;
        // The end of its class's part is before the first of a worse one.
        let end = (queue.iter())
            .position(|&(part, _)| part > class)
            .unwrap_or(queue.len());
        let mut place = (end, class);
        if self.by_laxity && self.is_real_time(vcpu) && class != Class::Over {
            let laxity_ns = self.domains[self.vcpus[vcpu].domain].laxity_ns;
            let mut wait_ns = 0;
            for (number, &(part, other)) in queue[..end].iter().enumerate() {
                wait_ns += self.vcpus[other].last_run_ns;
                if wait_ns > laxity_ns || number == LOOKED_AT_MAX {
                    place = (number, part);
                    break;
                }
            }
        }
        place
    }

    /// Puts a VCPU into its CPU's queue.
    fn enqueue(&mut self, vcpu: usize) {
        let (number, part) = self.place(self.vcpus[vcpu].cpu, vcpu);
        let queue = &mut self.cpus[self.vcpus[vcpu].cpu].queue;
        queue.insert(number, (part, vcpu));
    }

    /// The first of a part of the queue of `cpu` that `taker` could steal.
    fn stealable(&self, cpu: usize, part: Class, taker: usize) -> Option<usize> {
        (self.cpus[cpu].queue.iter())
            .filter(|&&(of, _)| of == part)
            .take(LOOKED_AT_MAX)
            .map(|&(_, vcpu)| vcpu)
            .find(|&vcpu| self.may_be_stolen(vcpu, taker))
    }

    fn is_idle(&self, cpu: usize) -> bool {
        self.cpus[cpu].running.is_none()
    }

    /// A CPU decides if it idles or runs a worse class than that of the VCPU; with C also if it runs one
    /// of the same that is not real-time, as the VCPU is.
    fn has_decide(&mut self, cpu: usize, vcpu: usize) -> bool {
        let decides = match self.cpus[cpu].running {
            None => true,
            Some(running) => {
                let (own, its) = (self.vcpus[vcpu].class, self.vcpus[running].class);
                let cuts_short = self.cuts
                    && own != Class::Over
                    && self.is_real_time(vcpu)
                    && !self.is_real_time(running);
                own < its || own == its && cuts_short
            }
        };
        self.cpus[cpu].kicked |= decides;
        decides
    }

    /// "A VCPU that becomes ready."
    fn ready(&mut self, vcpu: usize) {
        let cpu = self.vcpus[vcpu].cpu;
        self.enqueue(vcpu);
        if let Some((moving, goal)) = self.moving
            && moving == vcpu
            && self.has_decide(goal, vcpu)
        {
            return;
        }
        self.has_decide(cpu, vcpu);
        if self.is_idle(cpu) {
            return;
        }
        if let Some(idle) = (self.others(cpu).into_iter())
            .find(|&other| self.is_idle(other) && self.may_be_stolen(vcpu, other))
        {
            self.cpus[idle].kicked = true;
        }
    }

    /// "At the end of a slice at which nobody waits in the part of the running VCPU's class or a
    /// better one, nothing is decided."
    fn is_turn_over(&self, number: usize) -> bool {
        let cpu = &self.cpus[number];
        let Some(running) = cpu.running else {
            return false;
        };
        let class = self.vcpus[running].class;
        let could_steal = (class == Class::Over || self.balances) && self.cpus.len() > 1;
        let waits = (cpu.queue.first()).is_some_and(|&(part, _)| part <= class);
        let for_ns = self.now_ns - cpu.chosen_ns;
        for_ns > 0 && for_ns % self.settings.time_slice_ns == 0 && (could_steal || waits)
    }

    /// "A running VCPU is charged what it used."
    fn charge(&mut self, cpu: usize) {
        let used_ns = self.now_ns - self.cpus[cpu].charged_ns;
        self.cpus[cpu].charged_ns = self.now_ns;
        if let Some(running) = self.cpus[cpu].running
            && used_ns > 0
        {
            let vcpu = &mut self.vcpus[running];
            vcpu.credits_ns -= used_ns;
            vcpu.used_ns += used_ns;
            vcpu.active = true;
        }
    }

    fn vcpus_of(&self, domain: usize) -> Vec<usize> {
        (0..self.vcpus.len())
            .filter(|&vcpu| self.vcpus[vcpu].domain == domain)
            .collect()
    }

    fn active_vcpus(&self, domain: usize) -> i64 {
        let of_domain = self.vcpus_of(domain).into_iter();
        of_domain.filter(|&vcpu| self.vcpus[vcpu].active).count() as i64
    }

    /// The most credits that a domain can take.
    fn most_ns(&self, domain: usize) -> i64 {
        let by_vcpus_ns = self.active_vcpus(domain) * self.settings.accounting_ns;
        match i64::from(self.domains[domain].cap_percent) {
            0 => by_vcpus_ns,
            percent => by_vcpus_ns.min(self.settings.accounting_ns * percent / 100),
        }
    }

    /// "Each such domain is offered what credit would offer it": by weight; what one cannot take
    /// goes to the others.
    fn offers_ns(&self) -> Vec<Option<i64>> {
        let mut offers_ns = vec![None; self.domains.len()];
        let mut left_ns = self.cpus.len() as i64 * self.settings.accounting_ns;
        let mut sharing: Vec<usize> = (0..self.domains.len())
            .filter(|&domain| self.active_vcpus(domain) > 0)
            .collect();
        loop {
            let weights: i128 = (sharing.iter())
                .map(|&domain| i128::from(self.domains[domain].weight))
                .sum();
            let offer_ns = |domain: usize| {
                (i128::from(left_ns) * i128::from(self.domains[domain].weight) / weights) as i64
            };
            let (full, rest): (Vec<usize>, Vec<usize>) = (sharing.iter().copied())
                .partition(|&domain| offer_ns(domain) > self.most_ns(domain));
            if full.is_empty() {
                for domain in rest {
                    offers_ns[domain] = Some(offer_ns(domain));
                }
                return offers_ns;
            }
            for domain in full {
                offers_ns[domain] = Some(self.most_ns(domain));
                left_ns -= self.most_ns(domain);
            }
            sharing = rest;
        }
    }

    fn account(&mut self) {
        let accounting_ns = self.settings.accounting_ns;
        for cpu in 0..self.cpus.len() {
            self.charge(cpu);
        }
        if self.vcpus.iter().all(|vcpu| !vcpu.active) {
            return;
        }
        for (domain, offer_ns) in self.offers_ns().into_iter().enumerate() {
            let Some(offer_ns) = offer_ns else { continue };
            let vcpus = self.vcpus_of(domain);
            let has_ns: i64 = vcpus.iter().map(|&vcpu| self.vcpus[vcpu].credits_ns).sum();
            let each_ns = (has_ns + offer_ns) / vcpus.len() as i64;
            for vcpu in vcpus {
                if each_ns > accounting_ns {
                    self.vcpus[vcpu].active = false;
                    self.vcpus[vcpu].credits_ns = 0;
                } else {
                    self.vcpus[vcpu].credits_ns = each_ns.max(-accounting_ns);
                }
                self.classify(vcpu);
            }
        }
        let second = self.now_ns / SECOND_NS;
        if self.binds && second != self.balanced_second {
            self.balanced_second = second;
            self.balance();
        }
        if let Some((vcpu, goal)) = self.moving
            && self.waits(vcpu)
        {
            self.has_decide(goal, vcpu);
        }
    }

    fn classify(&mut self, number: usize) {
        let waits = self.waits(number);
        let runs = self.cpus.iter().any(|cpu| cpu.running == Some(number));
        let (has_cap, is_real_time) = (
            self.domains[self.vcpus[number].domain].cap_percent > 0,
            self.is_real_time(number),
        );
        let vcpu = &mut self.vcpus[number];
        let (class_before, was_parked) = (vcpu.class, vcpu.parked);
        vcpu.class = Class::Under;
        vcpu.parked = false;
        if vcpu.credits_ns < 0 && has_cap {
            vcpu.class = Class::Over;
            vcpu.parked = true;
        } else if vcpu.credits_ns < 0 && !(self.infinite && is_real_time) {
            vcpu.class = Class::Over;
        }
        let (class, parked, awake) = (vcpu.class, vcpu.parked, vcpu.awake);
        if parked {
            self.dequeue(number);
        } else if was_parked && awake && !runs {
            self.vcpus[number].waits_since_ns = self.now_ns;
            self.ready(number);
        } else if waits && class != class_before {
            self.dequeue(number);
            self.enqueue(number);
        }
    }

    /// "LL": chooses who is to move.
    fn balance(&mut self) {
        let real_time: Vec<usize> = (0..self.vcpus.len())
            .filter(|&vcpu| self.is_real_time(vcpu))
            .collect();
        let used_ns = |cpu: usize| -> i64 {
            (real_time.iter())
                .filter(|&&vcpu| self.vcpus[vcpu].cpu == cpu)
                .map(|&vcpu| self.vcpus[vcpu].used_ns)
                .sum()
        };
        let cpus = 0..self.cpus.len();
        let most = (cpus.clone().rev())
            .max_by_key(|&cpu| used_ns(cpu))
            .expect("a CPU");
        let least = cpus.min_by_key(|&cpu| used_ns(cpu)).expect("a CPU");
        let difference_ns =
            |moved_ns: i64| ((used_ns(most) - moved_ns) - (used_ns(least) + moved_ns)).abs();
        let best = (real_time.iter().copied())
            .filter(|&vcpu| self.vcpus[vcpu].cpu == most && self.may_run(vcpu, least))
            .min_by_key(|&vcpu| difference_ns(self.vcpus[vcpu].used_ns))
            .filter(|&vcpu| difference_ns(self.vcpus[vcpu].used_ns) < difference_ns(0));
        let before = self.moving.map(|(vcpu, _)| vcpu);
        self.moving = best.map(|vcpu| (vcpu, least));
        if let Some(before) = before
            && best != Some(before)
            && self.waits(before)
        {
            self.has_decide(self.vcpus[before].cpu, before);
        }
        for vcpu in &mut self.vcpus {
            vcpu.used_ns = 0;
        }
    }

    /// "It moves at a decision of that other CPU if it waits then and would be the first in the queue
    /// there, and runs."
    fn fetched(&mut self, cpu: usize) -> Option<usize> {
        let (vcpu, _) = self
            .moving
            .filter(|&(vcpu, goal)| goal == cpu && self.waits(vcpu))?;
        if self.place(cpu, vcpu).0 == 0 {
            self.moving = None;
            return Some(vcpu);
        }
        self.has_decide(self.vcpus[vcpu].cpu, vcpu);
        None
    }

    /// The VCPU that a CPU steals, where `own` is the first of its own queue.
    fn stolen(&self, cpu: usize, own: Option<(Class, usize)>) -> Option<usize> {
        if !self.balances && own.is_some_and(|(part, _)| part != Class::Over) {
            return None;
        }
        self.others(cpu).into_iter().find_map(|other| {
            let better = CLASSES
                .into_iter()
                .filter(|&class| own.is_none_or(|(part, _)| class < part))
                .find_map(|class| self.stealable(other, class, cpu));
            better.or_else(|| {
                let (part, own) = own?;
                let equal = self.stealable(other, part, cpu)?;
                let longer_ns = self.vcpus[own].waits_since_ns - self.vcpus[equal].waits_since_ns;
                let is_taken = self.balances
                    && !self.is_real_time(own)
                    && (self.is_real_time(equal) || longer_ns >= THRESHOLD_NS);
                is_taken.then_some(equal)
            })
        })
    }
}

impl Rules for SchedulerS {
    fn wake(&mut self, number: usize, now_ns: i64) {
        self.now_ns = now_ns;
        let vcpu = &mut self.vcpus[number];
        vcpu.awake = true;
        if vcpu.parked {
            return;
        }
        if vcpu.class == Class::Under {
            vcpu.class = Class::Boost;
        }
        vcpu.waits_since_ns = now_ns;
        self.ready(number);
    }

    fn event(&mut self, number: usize) {
        if self.by_event
            && self.is_real_time(number)
            && self.waits(number)
            && self.vcpus[number].class == Class::Under
        {
            self.vcpus[number].class = Class::Boost;
            self.dequeue(number);
            self.ready(number);
        }
    }

    fn timers(&mut self, now_ns: i64) {
        self.now_ns = now_ns;
        let of_phase_ns = now_ns - self.settings.accounting_phase_ns;
        if of_phase_ns % self.settings.tick_ns == 0 {
            for cpu in 0..self.cpus.len() {
                self.charge(cpu);
                if let Some(running) = self.cpus[cpu].running
                    && self.vcpus[running].class == Class::Boost
                {
                    self.vcpus[running].class = Class::Under;
                }
            }
        }
        if of_phase_ns % self.settings.accounting_ns == 0 {
            self.account();
        }
        for cpu in 0..self.cpus.len() {
            self.cpus[cpu].turn_over = self.is_turn_over(cpu);
        }
    }

    fn block(&mut self, number: usize) {
        self.vcpus[number].awake = false;
    }

    fn has_reason(&self, number: usize, _now_ns: i64) -> bool {
        let cpu = &self.cpus[number];
        let Some(running) = cpu.running else {
            return cpu.kicked;
        };
        let vcpu = &self.vcpus[running];
        cpu.kicked || cpu.turn_over || !vcpu.awake || vcpu.parked
    }

    fn decide(&mut self, number: usize, now_ns: i64) {
        self.now_ns = now_ns;
        self.charge(number);
        self.cpus[number].kicked = false;
        self.cpus[number].turn_over = false;
        let before = self.cpus[number].running.take();
        if let Some(before) = before {
            let ran_ns = now_ns - self.cpus[number].chosen_ns;
            if ran_ns > 0 {
                self.vcpus[before].last_run_ns = ran_ns;
            }
            if self.vcpus[before].awake && !self.vcpus[before].parked {
                self.vcpus[before].waits_since_ns = now_ns;
                self.enqueue(before);
            }
        }
        let own = self.cpus[number].queue.first().copied();
        let chosen = (self.fetched(number))
            .or_else(|| self.stolen(number, own))
            .or(own.map(|(_, vcpu)| vcpu));
        self.cpus[number].chosen_ns = now_ns;
        if let Some(vcpu) = chosen {
            self.dequeue(vcpu);
            self.vcpus[vcpu].cpu = number;
            self.cpus[number].running = Some(vcpu);
        }
        if let (Some(before), Some((moving, goal))) = (before, self.moving)
            && before == moving
            && self.waits(before)
        {
            self.has_decide(goal, before);
        }
    }

    fn settle(&mut self, _now_ns: i64) {}

    /// What is used is counted when it is charged.
    fn pass(&mut self, _unit_ns: i64) {}

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running
    }
}
