//! The credit scheduler: `docs/explanation/policies.md`, "Credit".

use crate::rules::Rules;
use laxity_host::{Host, Settings};

/// How many VCPUs of one class a CPU looks at when it takes one from another CPU.
const LOOKED_AT_MAX: usize = 16;

/// The better class is the smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Boost,
    Under,
    Over,
}

struct Vcpu {
    domain: usize,
    affinity: Vec<u32>,
    /// The CPU in whose queue it waits, or on which it ran last.
    cpu: usize,
    awake: bool,
    class: Class,
    /// Over, in a domain with a cap: it may not run.
    parked: bool,
    active: bool,
    credits_ns: i64,
}

struct Domain {
    weight: u32,
    cap_percent: u32,
}

struct Cpu {
    running: Option<usize>,
    chosen_ns: i64,
    /// Every VCPU that waits here, of all classes, in the order in which they came to the end of
    /// their class.
    queue: Vec<usize>,
    kicked: bool,
}

/// All domains, VCPUs and CPUs under credit.
pub(crate) struct Credit {
    settings: Settings,
    domains: Vec<Domain>,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
}

impl Credit {
    pub(crate) fn new(host: &Host) -> Self {
        let mut domains = Vec::new();
        let mut vcpus = Vec::new();
        for (number, domain) in host.domains.iter().enumerate() {
            domains.push(Domain {
                weight: domain.parameters.weight,
                cap_percent: domain.parameters.cap_percent,
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
                });
            }
        }
        let cpus = (0..host.cpus)
            .map(|_| Cpu {
                running: None,
                chosen_ns: 0,
                queue: Vec::new(),
                kicked: false,
            })
            .collect();
        Credit {
            settings: host.settings,
            domains,
            vcpus,
            cpus,
        }
    }

    /// The class of a CPU's running VCPU; `None` is idle.
    fn running_class(&self, cpu: usize) -> Option<Class> {
        self.cpus[cpu].running.map(|vcpu| self.vcpus[vcpu].class)
    }

    /// The best class of those who wait in the queue of `cpu` and may run on `runs_on`, and the
    /// first of it.
    fn head(&self, cpu: usize, runs_on: usize) -> Option<(Class, usize)> {
        let queue = &self.cpus[cpu].queue;
        [Class::Boost, Class::Under, Class::Over]
            .into_iter()
            .find_map(|class| {
                queue
                    .iter()
                    .filter(|&&vcpu| self.vcpus[vcpu].class == class)
                    .take(LOOKED_AT_MAX)
                    .find(|&&vcpu| self.may_run(vcpu, runs_on))
                    .map(|&vcpu| (class, vcpu))
            })
    }

    /// A VCPU waits: calls an idle CPU on which it may run, the next one by number.
    fn call_idle(&mut self, vcpu: usize) {
        let idle = (self.others(self.vcpus[vcpu].cpu).into_iter())
            .find(|&other| self.cpus[other].running.is_none() && self.may_run(vcpu, other));
        if let Some(idle) = idle {
            self.cpus[idle].kicked = true;
        }
    }

    /// "A VCPU that becomes ready, by waking or by being unparked": its CPU decides anew if its class
    /// is better than that of the running VCPU, or the CPU is idle; if it is not, an idle CPU is
    /// called.
    fn ready(&mut self, vcpu: usize) {
        let (class, cpu) = (self.vcpus[vcpu].class, self.vcpus[vcpu].cpu);
        self.enqueue(vcpu);
        if self
            .running_class(cpu)
            .is_none_or(|running| class < running)
        {
            self.cpus[cpu].kicked = true;
        }
        if self.cpus[cpu].running.is_some() {
            self.call_idle(vcpu);
        }
    }

    fn may_run(&self, vcpu: usize, cpu: usize) -> bool {
        self.vcpus[vcpu].affinity.contains(&(cpu as u32))
    }

    /// The other CPUs, next number first.
    fn others(&self, cpu: usize) -> Vec<usize> {
        (1..self.cpus.len())
            .map(|distance| (cpu + distance) % self.cpus.len())
            .collect()
    }

    /// To the end of its class.
    fn enqueue(&mut self, vcpu: usize) {
        let cpu = self.vcpus[vcpu].cpu;
        self.cpus[cpu].queue.push(vcpu);
    }

    fn dequeue(&mut self, vcpu: usize) {
        for cpu in &mut self.cpus {
            cpu.queue.retain(|&waiting| waiting != vcpu);
        }
    }

    /// "Tick, on each CPU, for the running VCPU."
    fn tick(&mut self, cpu: usize) {
        if let Some(number) = self.cpus[cpu].running {
            let vcpu = &mut self.vcpus[number];
            if vcpu.class == Class::Boost {
                vcpu.class = Class::Under;
            }
            vcpu.active = true;
            vcpu.credits_ns -= self.settings.tick_ns;
        }
    }

    /// How many active VCPUs a domain has.
    fn active_vcpus(&self, domain: usize) -> i64 {
        self.vcpus
            .iter()
            .filter(|vcpu| vcpu.domain == domain && vcpu.active)
            .count() as i64
    }

    /// The credits of each domain. "Domains with active VCPUs share by weight; none gets more than
    /// one accounting time for each of its active VCPUs, nor more than its cap; what one cannot
    /// take goes to the others by weight." Whole nanoseconds, rounded down once at the end.
    fn shares_ns(&self) -> Vec<i64> {
        let accounting_ns = self.settings.accounting_ns;
        let mut shares_ns = vec![0; self.domains.len()];
        let mut left_ns = self.cpus.len() as i64 * accounting_ns;
        let mut sharing: Vec<usize> = (0..self.domains.len())
            .filter(|&domain| self.active_vcpus(domain) > 0)
            .collect();
        loop {
            let weights: i128 = sharing
                .iter()
                .map(|&domain| i128::from(self.domains[domain].weight))
                .sum();
            for &domain in &sharing {
                let weight = i128::from(self.domains[domain].weight);
                shares_ns[domain] = (i128::from(left_ns) * weight / weights) as i64;
            }
            // Whoever is offered more than it can take takes that; the others share anew.
            let full: Vec<usize> = sharing
                .iter()
                .copied()
                .filter(|&domain| shares_ns[domain] > self.most_ns(domain))
                .collect();
            if full.is_empty() {
                return shares_ns;
            }
            for domain in full {
                shares_ns[domain] = self.most_ns(domain);
                left_ns -= shares_ns[domain];
                sharing.retain(|&other| other != domain);
            }
        }
    }

    /// The most credits that a domain can take.
    fn most_ns(&self, domain: usize) -> i64 {
        let by_vcpus_ns = self.active_vcpus(domain) * self.settings.accounting_ns;
        match i64::from(self.domains[domain].cap_percent) {
            0 => by_vcpus_ns,
            percent => by_vcpus_ns.min(self.settings.accounting_ns * percent / 100),
        }
    }

    /// "Accounting, over the active VCPUs."
    fn account(&mut self) {
        let accounting_ns = self.settings.accounting_ns;
        let each_ns: Vec<i64> = (self.shares_ns().into_iter().enumerate())
            .map(|(domain, share_ns)| share_ns / self.active_vcpus(domain).max(1))
            .collect();
        for number in 0..self.vcpus.len() {
            let vcpu = &mut self.vcpus[number];
            if !vcpu.active {
                continue;
            }
            let before = (vcpu.class, vcpu.parked);
            vcpu.credits_ns += each_ns[vcpu.domain];
            if vcpu.credits_ns < 0 {
                vcpu.class = Class::Over;
                vcpu.parked = self.domains[vcpu.domain].cap_percent != 0;
                vcpu.credits_ns = vcpu.credits_ns.max(-accounting_ns);
            } else {
                vcpu.class = Class::Under;
                vcpu.parked = false;
                if vcpu.credits_ns > accounting_ns {
                    vcpu.credits_ns = 0;
                    vcpu.active = false;
                }
            }
            // One that changes class goes to the end of the new one; a parked one waits nowhere.
            let after = (vcpu.class, vcpu.parked);
            let waits = vcpu.awake && self.cpus.iter().all(|cpu| cpu.running != Some(number));
            if after != before {
                self.dequeue(number);
                if waits && before.1 && !after.1 {
                    self.ready(number);
                } else if waits && !after.1 {
                    self.enqueue(number);
                }
            }
        }
    }
}

impl Rules for Credit {
    fn wake(&mut self, number: usize, _now_ns: i64) {
        let vcpu = &mut self.vcpus[number];
        vcpu.awake = true;
        if vcpu.parked {
            return;
        }
        if vcpu.class == Class::Under {
            vcpu.class = Class::Boost;
        }
        self.ready(number);
    }

    fn event(&mut self, _vcpu: usize) {}

    /// "CPUs in the order of their numbers, accounting last."
    fn timers(&mut self, now_ns: i64) {
        let of_phase_ns = now_ns - self.settings.accounting_phase_ns;
        if of_phase_ns % self.settings.tick_ns == 0 {
            for cpu in 0..self.cpus.len() {
                self.tick(cpu);
            }
        }
        if of_phase_ns % self.settings.accounting_ns == 0 {
            self.account();
        }
    }

    fn block(&mut self, number: usize) {
        self.vcpus[number].awake = false;
    }

    fn has_reason(&self, number: usize, now_ns: i64) -> bool {
        let cpu = &self.cpus[number];
        let head_class = self.head(number, number).map(|(class, _)| class);
        let Some(running) = cpu.running else {
            return cpu.kicked || head_class.is_some();
        };
        let vcpu = &self.vcpus[running];
        let may_not_go_on = !vcpu.awake || vcpu.parked;
        // "At the end of a slice at which nobody waits in the running VCPU's class or a better one,
        // nothing is decided", but for a VCPU that is over where there is something to steal.
        let for_ns = now_ns - cpu.chosen_ns;
        let could_steal = vcpu.class == Class::Over && self.cpus.len() > 1;
        let slice_over = for_ns > 0
            && for_ns % self.settings.time_slice_ns == 0
            && (could_steal || head_class.is_some_and(|class| class <= vcpu.class));
        cpu.kicked || may_not_go_on || slice_over
    }

    fn decide(&mut self, number: usize, now_ns: i64) {
        self.cpus[number].kicked = false;
        // Whoever is still runnable goes to the end of its class.
        if let Some(before) = self.cpus[number].running.take()
            && self.vcpus[before].awake
            && !self.vcpus[before].parked
        {
            self.enqueue(before);
        }
        let mut chosen = self.head(number, number);
        // "A CPU that would run over or idle first looks at the others, next number first, and
        // takes the first VCPU that may run here from a strictly better class than its own best."
        if chosen.is_none_or(|(class, _)| class == Class::Over) {
            let better = (self.others(number).into_iter())
                .filter_map(|other| self.head(other, number))
                .find(|&(class, _)| chosen.is_none_or(|(own, _)| class < own));
            chosen = better.or(chosen);
        }
        self.cpus[number].chosen_ns = now_ns;
        if let Some((_, vcpu)) = chosen {
            self.dequeue(vcpu);
            self.vcpus[vcpu].cpu = number;
            self.cpus[number].running = Some(vcpu);
        }
    }

    fn settle(&mut self, _now_ns: i64) {}

    /// Nothing is counted but at ticks.
    fn pass(&mut self, _unit_ns: i64) {}

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running
    }
}
