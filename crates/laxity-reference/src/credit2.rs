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
const COMPENSATION_NS: i64 = 50_000;
const LATE_NS: i64 = 1_000;
const CAP_PERIOD_NS: i64 = 10 * MILLISECOND_NS;
const LEAST_QUOTA_NS: i64 = 500_000;
const WEIGHT_OF_DOM0: i64 = 256;

/// The budget of a domain with a cap.
struct Cap {
    full_ns: i64,
    quota_ns: i64,
    pool_ns: i64,
    fills_ns: i64,
    /// VCPUs in the order in which they were parked.
    parked: Vec<usize>,
}

struct Vcpu {
    domain: usize,
    cpu: usize,
    affinity: Vec<u32>,
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
    /// RunQ.
    waiting: Vec<usize>,
    greatest_weight: i64,
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
                    weight: domain.parameters.weight.into(),
                    awake: false,
                    credits_ns: domain.parameters.credit_ns,
                    rest: 0,
                    unpaid_ns: 0,
                    chosen_ns: 0,
                    called: None,
                    budget_ns: 0,
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
        Credit2 {
            greatest_weight: (vcpus.iter().map(|vcpu| vcpu.weight)).fold(WEIGHT_OF_DOM0, i64::max),
            vcpus,
            cpus,
            caps,
            waiting: Vec::new(),
        }
    }

    /// "It pays for what it ran."
    fn pay(&mut self, number: usize) {
        let vcpu = &mut self.vcpus[number];
        let price = vcpu.unpaid_ns * self.greatest_weight + vcpu.rest;
        vcpu.budget_ns -= vcpu.unpaid_ns;
        vcpu.unpaid_ns = 0;
        vcpu.rest = price % vcpu.weight;
        vcpu.credits_ns = (vcpu.credits_ns - price / vcpu.weight).max(-FULL_NS);
    }

    fn begin_to_wait(&mut self, number: usize) {
        let credits_ns = self.vcpus[number].credits_ns;
        let behind = (self.waiting.iter())
            .rposition(|&other| self.vcpus[other].credits_ns >= credits_ns)
            .map_or(0, |last| last + 1);
        self.waiting.insert(behind, number);
    }

    fn can_call(&self, vcpu: usize, cpu: usize) -> bool {
        self.vcpus[vcpu].affinity.contains(&(cpu as u32)) && !self.cpus[cpu].called
    }

    /// By how much the VCPU is ahead of the one that runs on a busy CPU, if it may take that CPU.
    fn lead_ns(&mut self, vcpu: usize, cpu: usize, now_ns: i64) -> Option<i64> {
        let running = self.cpus[cpu].running.expect("the CPU is busy");
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
        (lead_ns > 0).then_some(lead_ns)
    }

    fn call(&mut self, vcpu: usize, now_ns: i64) {
        let count = self.cpus.len();
        let own = self.vcpus[vcpu].cpu;
        let idle = (0..count)
            .map(|step| (own + step) % count)
            .find(|&cpu| self.can_call(vcpu, cpu) && self.cpus[cpu].running.is_none());
        let mut wanted = idle;
        if wanted.is_none() && self.can_call(vcpu, own) && self.lead_ns(vcpu, own, now_ns).is_some()
        {
            wanted = Some(own);
        }
        if wanted.is_none() {
            let mut leads = Vec::new();
            for cpu in (0..count).filter(|&cpu| cpu != own) {
                if self.can_call(vcpu, cpu)
                    && let Some(lead_ns) = self.lead_ns(vcpu, cpu, now_ns)
                {
                    leads.push((lead_ns, std::cmp::Reverse(cpu)));
                }
            }
            wanted = leads.into_iter().max().map(|(_, cpu)| cpu.0);
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
    fn has_budget(&mut self, number: usize) -> bool {
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
        cap.parked.push(number);
        self.waiting.retain(|&vcpu| vcpu != number);
        false
    }

    /// All who are parked compete again, the last of them first.
    fn unpark(&mut self, domain: usize, now_ns: i64) {
        let Some(cap) = &mut self.caps[domain] else {
            return;
        };
        for vcpu in std::mem::take(&mut cap.parked).into_iter().rev() {
            if self.vcpus[vcpu].awake {
                self.begin_to_wait(vcpu);
                self.call(vcpu, now_ns);
            }
        }
    }

    fn choose(&mut self, number: usize, now_ns: i64) -> Option<usize> {
        let stays = self.cpus[number]
            .running
            .filter(|&vcpu| self.vcpus[vcpu].awake && !self.is_parked(vcpu));
        if let Some(stays) = stays
            && now_ns - self.vcpus[stays].chosen_ns < RATELIMIT_NS
        {
            return Some(stays);
        }
        // An idle CPU counts as one that runs a VCPU with less than the least credits.
        let to_beat_ns = stays.map_or(-FULL_NS - 1, |stays| self.vcpus[stays].credits_ns);
        let is_better = |credit2: &Credit2, vcpu: usize| {
            let vcpu = &credit2.vcpus[vcpu];
            let goes_elsewhere =
                (vcpu.called).is_some_and(|cpu| cpu != number && credit2.cpus[cpu].called);
            let is_near = vcpu.cpu == number || vcpu.credits_ns >= to_beat_ns + RESISTANCE_NS;
            vcpu.credits_ns > to_beat_ns
                && vcpu.affinity.contains(&(number as u32))
                && !goes_elsewhere
                && is_near
        };
        for vcpu in self.waiting.clone() {
            if is_better(self, vcpu) && self.has_budget(vcpu) {
                return Some(vcpu);
            }
        }
        stays
    }

    fn give_credits(&mut self, next: usize) {
        let given_ns = if self.vcpus[next].credits_ns == -FULL_NS {
            2 * FULL_NS
        } else {
            FULL_NS
        };
        for cpu in 0..self.cpus.len() {
            if let Some(running) = self.cpus[cpu].running {
                self.pay(running);
                let vcpu = &self.vcpus[running];
                if self.caps[vcpu.domain].is_some() && vcpu.budget_ns <= 0 {
                    self.cpus[cpu].called = true;
                }
            }
        }
        for vcpu in 0..self.vcpus.len() {
            let vcpu = &mut self.vcpus[vcpu];
            vcpu.credits_ns = (vcpu.credits_ns + given_ns).min(FULL_NS + CARRIED_NS);
        }
    }

    fn best_waiting_ns(&self) -> Option<i64> {
        (self.waiting.first()).map(|&first| self.vcpus[first].credits_ns)
    }

    fn run_ns(&self, vcpu: usize, now_ns: i64) -> i64 {
        let vcpu = &self.vcpus[vcpu];
        let down_to_ns = self.best_waiting_ns().map_or(0, |best_ns| best_ns.max(0));
        let lead_ns = (vcpu.credits_ns - down_to_ns).max(0);
        let shortest_ns = (vcpu.chosen_ns + RATELIMIT_NS - now_ns).max(SHORTEST_NS);
        let mut run_ns = lead_ns * vcpu.weight / self.greatest_weight;
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
            self.has_budget(before);
        }
        let next = self.choose(number, now_ns);
        self.cpus[number].until_ns = i64::MAX;
        if let Some(next) = next {
            self.waiting.retain(|&vcpu| vcpu != next);
            let best_ns = self.best_waiting_ns().unwrap_or(i64::MIN);
            if best_ns.max(self.vcpus[next].credits_ns) <= 0 {
                self.give_credits(next);
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
            let (domain, is_awake) = (vcpu.domain, vcpu.awake);
            if is_awake && !self.is_parked(before) {
                self.begin_to_wait(before);
                self.call(before, now_ns);
            }
            if gives_back {
                self.unpark(domain, now_ns);
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
