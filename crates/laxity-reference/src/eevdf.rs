//! Linux's fair class: `docs/explanation/policies.md`, "Eevdf".

use crate::rules::Rules;
use laxity_host::{Host, Parameters, Settings};

/// The unit of virtual time: that part of a nanosecond of a VCPU of weight 1.
const SCALE: i128 = 1 << 20;

struct Domain {
    parameters: Parameters,
    pool_ns: i64,
    periods_seen: i64,
    throttled: bool,
}

struct Vcpu {
    domain: usize,
    affinity: Vec<usize>,
    cpu: usize,
    awake: bool,
    /// It has work, as far as its CPU knows.
    has_work: bool,
    /// Takes part on its CPU: since when, as a count.
    place: Option<u64>,
    weight: i128,
    virtual_time: i128,
    deadline: i128,
    lag: i128,
}

impl Vcpu {
    /// It takes part without work, until it is picked.
    fn is_delayed(&self) -> bool {
        self.place.is_some() && !self.has_work
    }
}

struct Cpu {
    kicked: bool,
    running: Option<usize>,
    protected: bool,
    /// What the running VCPU has used and not paid.
    unpaid_ns: i64,
}

/// All VCPUs and CPUs under eevdf.
pub(crate) struct Eevdf {
    settings: Settings,
    domains: Vec<Domain>,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
    places_given: u64,
}

impl Eevdf {
    pub(crate) fn new(host: &Host) -> Self {
        let mut vcpus = Vec::new();
        for (number, domain) in host.domains.iter().enumerate() {
            for vcpu in &domain.vcpus {
                vcpus.push(Vcpu {
                    domain: domain.helper_of.map_or(number, |owner| owner as usize),
                    affinity: vcpu.affinity.iter().map(|&cpu| cpu as usize).collect(),
                    cpu: vcpu.cpu as usize,
                    awake: false,
                    has_work: false,
                    place: None,
                    weight: 1,
                    virtual_time: 0,
                    deadline: 0,
                    lag: 0,
                });
            }
        }
        Eevdf {
            settings: host.settings,
            domains: (host.domains.iter())
                .map(|domain| Domain {
                    parameters: domain.parameters,
                    pool_ns: domain.parameters.quota_ns,
                    periods_seen: 0,
                    throttled: false,
                })
                .collect(),
            vcpus,
            cpus: (0..host.cpus)
                .map(|_| Cpu {
                    kicked: false,
                    running: None,
                    protected: false,
                    unpaid_ns: 0,
                })
                .collect(),
            places_given: 0,
        }
    }

    /// "0.75 ms, and as much again for each doubling of the CPUs, up to 8."
    fn slice_ns(&self) -> i64 {
        match (self.settings.base_slice_ns, self.cpus.len()) {
            (0, 1) => 750_000,
            (0, 2..=3) => 1_500_000,
            (0, 4..=7) => 2_250_000,
            (0, _) => 3_000_000,
            (slice_ns, _) => slice_ns,
        }
    }

    fn virtual_of(time_ns: i64, weight: i128) -> i128 {
        i128::from(time_ns) * SCALE / weight
    }

    fn virtual_slice(&self, vcpu: usize) -> i128 {
        Eevdf::virtual_of(self.slice_ns(), self.vcpus[vcpu].weight)
    }

    fn running_on(&self, vcpu: usize) -> bool {
        self.cpus.iter().any(|cpu| cpu.running == Some(vcpu))
    }

    /// Those that take part on a CPU, in the order of their places.
    fn queue(&self, cpu: usize) -> Vec<usize> {
        let mut queue: Vec<usize> = (0..self.vcpus.len())
            .filter(|&vcpu| self.vcpus[vcpu].cpu == cpu && self.vcpus[vcpu].place.is_some())
            .collect();
        queue.sort_by_key(|&vcpu| self.vcpus[vcpu].place);
        queue
    }

    fn weight_on(&self, cpu: usize) -> i128 {
        (self.queue(cpu).iter())
            .map(|&vcpu| self.vcpus[vcpu].weight)
            .sum()
    }

    /// The mean virtual time by weight, rounded down.
    fn mean(&self, cpu: usize) -> i128 {
        let weights = self.weight_on(cpu);
        if weights == 0 {
            return 0;
        }
        let sum: i128 = (self.queue(cpu).iter())
            .map(|&vcpu| self.vcpus[vcpu].virtual_time * self.vcpus[vcpu].weight)
            .sum();
        sum.div_euclid(weights)
    }

    fn is_eligible(&self, vcpu: usize) -> bool {
        let cpu = self.vcpus[vcpu].cpu;
        let of = |other: usize| {
            (self.vcpus[other].virtual_time - self.vcpus[vcpu].virtual_time)
                * self.vcpus[other].weight
        };
        self.queue(cpu).into_iter().map(of).sum::<i128>() >= 0
    }

    /// The domain's weight, divided by its VCPUs with work.
    fn fair_weight(&self, vcpu: usize) -> i128 {
        let domain = self.vcpus[vcpu].domain;
        let with_work = (self.vcpus.iter())
            .filter(|other| other.domain == domain && other.has_work)
            .count() as i128;
        let weight = i128::from(self.domains[domain].parameters.weight) * 1024;
        (weight / with_work.max(1)).max(1)
    }

    fn give_place(&mut self, vcpu: usize) {
        self.places_given += 1;
        self.vcpus[vcpu].place = Some(self.places_given);
    }

    /// The VCPU takes part no more, and keeps its lag.
    fn leave(&mut self, vcpu: usize) {
        let most_ns = (2 * self.slice_ns()).max(self.settings.jiffy_ns);
        let most = Eevdf::virtual_of(most_ns, self.vcpus[vcpu].weight);
        let lag = self.mean(self.vcpus[vcpu].cpu) - self.vcpus[vcpu].virtual_time;
        self.vcpus[vcpu].lag = lag.clamp(-most, most);
        self.vcpus[vcpu].place = None;
    }

    /// The VCPU takes part from now on.
    fn join(&mut self, vcpu: usize, slice: i128) {
        let cpu = self.vcpus[vcpu].cpu;
        let (mean, others) = (self.mean(cpu), self.weight_on(cpu));
        let own = self.vcpus[vcpu].weight;
        let lag = if others == 0 {
            0
        } else {
            self.vcpus[vcpu].lag * (others + own) / others
        };
        self.vcpus[vcpu].virtual_time = mean - lag;
        self.vcpus[vcpu].deadline = mean - lag + slice;
        self.give_place(vcpu);
    }

    fn join_anew(&mut self, vcpu: usize) {
        self.vcpus[vcpu].weight = self.fair_weight(vcpu);
        let slice = self.virtual_slice(vcpu);
        self.join(vcpu, slice);
    }

    /// The running VCPU pays.
    fn pay(&mut self, cpu: usize, now_ns: i64) {
        let used_ns = std::mem::take(&mut self.cpus[cpu].unpaid_ns);
        let Some(running) = self.cpus[cpu].running.filter(|_| used_ns > 0) else {
            return;
        };
        if self.vcpus[running].place.is_some() {
            let used = Eevdf::virtual_of(used_ns, self.vcpus[running].weight);
            self.vcpus[running].virtual_time += used;
            if self.vcpus[running].virtual_time >= self.vcpus[running].deadline {
                self.vcpus[running].deadline =
                    self.vcpus[running].virtual_time + self.virtual_slice(running);
                self.cpus[cpu].protected = false;
                if self.queue(cpu).len() > 1 {
                    self.cpus[cpu].kicked = true;
                }
            }
            let (before, after) = (self.vcpus[running].weight, self.fair_weight(running));
            if before != after {
                let mean = self.mean(cpu);
                let vcpu = &mut self.vcpus[running];
                vcpu.virtual_time = mean - (mean - vcpu.virtual_time) * before / after;
                vcpu.deadline = mean + (vcpu.deadline - mean) * before / after;
                vcpu.weight = after;
            }
        }
        let domain = self.vcpus[running].domain;
        if self.domains[domain].parameters.quota_ns == 0 {
            return;
        }
        self.refill(domain, now_ns);
        self.domains[domain].pool_ns -= used_ns;
        if self.domains[domain].pool_ns <= 0 && !self.domains[domain].throttled {
            self.throttle(domain);
        }
    }

    /// "At each multiple of the period", of which several may have passed.
    fn refill(&mut self, domain: usize, now_ns: i64) {
        let domain = &mut self.domains[domain];
        let Parameters {
            quota_ns,
            quota_period_ns,
            quota_burst_ns,
            ..
        } = domain.parameters;
        while domain.periods_seen < now_ns / quota_period_ns {
            domain.periods_seen += 1;
            domain.pool_ns = (domain.pool_ns + quota_ns).min(quota_ns + quota_burst_ns);
        }
    }

    fn throttle(&mut self, domain: usize) {
        self.domains[domain].throttled = true;
        for vcpu in 0..self.vcpus.len() {
            if self.vcpus[vcpu].domain == domain && self.vcpus[vcpu].place.is_some() {
                self.leave(vcpu);
                if self.running_on(vcpu) {
                    let cpu = self.vcpus[vcpu].cpu;
                    self.cpus[cpu].kicked = true;
                }
            }
        }
    }

    fn unthrottle(&mut self, domain: usize, now_ns: i64) {
        self.domains[domain].throttled = false;
        for vcpu in 0..self.vcpus.len() {
            let one = &self.vcpus[vcpu];
            if one.domain == domain && one.awake && one.place.is_none() {
                self.pay(self.vcpus[vcpu].cpu, now_ns);
                if self.domains[domain].throttled {
                    return;
                }
                self.join_anew(vcpu);
                self.preempt(vcpu);
            }
        }
    }

    /// The VCPU that a CPU would run now.
    fn pick(&self, cpu: usize) -> Option<usize> {
        let running = self.cpus[cpu].running.filter(|&vcpu| {
            let one = &self.vcpus[vcpu];
            one.place.is_some() && one.has_work && self.is_eligible(vcpu)
        });
        if running.is_some() && self.cpus[cpu].protected {
            return running;
        }
        let others = (self.queue(cpu).into_iter()).filter(|&vcpu| {
            let runs = self.cpus[cpu].running == Some(vcpu) && self.vcpus[vcpu].has_work;
            !runs && self.is_eligible(vcpu)
        });
        others
            .chain(running)
            .min_by_key(|&vcpu| self.vcpus[vcpu].deadline)
    }

    fn preempt(&mut self, vcpu: usize) {
        let cpu = self.vcpus[vcpu].cpu;
        if self.cpus[cpu].running.is_none() || self.pick(cpu) == Some(vcpu) {
            self.cpus[cpu].kicked = true;
        }
    }

    fn is_idle(&self, cpu: usize) -> bool {
        self.cpus[cpu].running.is_none() && self.queue(cpu).is_empty()
    }

    /// The other CPUs, next number first.
    fn others(&self, cpu: usize) -> Vec<usize> {
        let count = self.cpus.len();
        (1..count).map(|step| (cpu + step) % count).collect()
    }

    /// The first VCPU that waits on one CPU and may run on the other.
    fn waiting(&self, from: usize, to: usize) -> Option<usize> {
        self.queue(from).into_iter().find(|&vcpu| {
            let one = &self.vcpus[vcpu];
            !one.is_delayed() && !self.running_on(vcpu) && one.affinity.contains(&to)
        })
    }

    /// "A CPU that would idle takes a VCPU from another."
    fn pull(&mut self, cpu: usize, now_ns: i64) {
        let mut busiest: Option<usize> = None;
        for other in self.others(cpu) {
            let is_busier =
                busiest.is_none_or(|one| self.queue(other).len() > self.queue(one).len());
            if is_busier && self.waiting(other, cpu).is_some() {
                busiest = Some(other);
            }
        }
        let Some(busiest) = busiest else { return };
        self.pay(busiest, now_ns);
        if let Some(vcpu) = self.waiting(busiest, cpu) {
            let slice = self.vcpus[vcpu].deadline - self.vcpus[vcpu].virtual_time;
            self.leave(vcpu);
            self.vcpus[vcpu].cpu = cpu;
            self.join(vcpu, slice);
        }
    }

    /// The VCPU that a CPU is to run; those that are picked without work leave.
    fn take(&mut self, cpu: usize) -> Option<usize> {
        while let Some(vcpu) = self.pick(cpu) {
            if self.vcpus[vcpu].has_work {
                return Some(vcpu);
            }
            self.leave(vcpu);
            self.vcpus[vcpu].lag = self.vcpus[vcpu].lag.min(0);
        }
        None
    }
}

impl Rules for Eevdf {
    fn wake(&mut self, number: usize, now_ns: i64) {
        let was_delayed = self.vcpus[number].is_delayed();
        let domain = self.vcpus[number].domain;
        self.vcpus[number].awake = true;
        if self.domains[domain].throttled {
            self.vcpus[number].has_work = true;
            return;
        }
        if !was_delayed {
            let own = self.vcpus[number].cpu;
            if !self.is_idle(own) {
                let idle = (self.others(own).into_iter())
                    .find(|&cpu| self.is_idle(cpu) && self.vcpus[number].affinity.contains(&cpu));
                self.vcpus[number].cpu = idle.unwrap_or(own);
            }
        }
        self.vcpus[number].has_work = true;
        self.pay(self.vcpus[number].cpu, now_ns);
        if self.domains[domain].throttled {
            return;
        }
        if !was_delayed {
            self.join_anew(number);
        } else if self.is_eligible(number) {
            self.leave(number);
            self.vcpus[number].lag = 0;
            self.join_anew(number);
        }
        self.preempt(number);
    }

    fn event(&mut self, _vcpu: usize) {}

    /// Ticks on CPUs by number; then periods of domains that are throttled, in the order of the file.
    fn timers(&mut self, now_ns: i64) {
        if now_ns % self.settings.jiffy_ns == 0 {
            for cpu in 0..self.cpus.len() {
                self.pay(cpu, now_ns);
            }
        }
        for domain in 0..self.domains.len() {
            let period_ns = self.domains[domain].parameters.quota_period_ns;
            if self.domains[domain].throttled && now_ns % period_ns == 0 {
                self.refill(domain, now_ns);
                if self.domains[domain].pool_ns > 0 {
                    self.unthrottle(domain, now_ns);
                }
            }
        }
    }

    fn block(&mut self, vcpu: usize) {
        self.vcpus[vcpu].awake = false;
    }

    fn has_reason(&self, number: usize, _now_ns: i64) -> bool {
        let cpu = &self.cpus[number];
        cpu.kicked || cpu.running.is_some_and(|vcpu| !self.vcpus[vcpu].awake)
    }

    fn decide(&mut self, number: usize, now_ns: i64) {
        self.cpus[number].kicked = false;
        self.pay(number, now_ns);
        self.cpus[number].kicked = false;
        let before = self.cpus[number].running;
        if let Some(before) = before.filter(|&vcpu| !self.vcpus[vcpu].awake) {
            // "A VCPU that blocks with a debt takes part until it is picked."
            self.vcpus[before].has_work = false;
            if self.vcpus[before].place.is_some() && self.is_eligible(before) {
                self.leave(before);
            }
        }
        let mut next = self.take(number);
        if next.is_none() {
            self.pull(number, now_ns);
            next = self.take(number);
        }
        if let Some(before) = before.filter(|&vcpu| self.vcpus[vcpu].place.is_some()) {
            self.give_place(before);
        }
        if next != before {
            self.cpus[number].protected = true;
        }
        self.cpus[number].running = next;
    }

    fn settle(&mut self, _now_ns: i64) {}

    fn pass(&mut self, unit_ns: i64) {
        for cpu in &mut self.cpus {
            if cpu.running.is_some() {
                cpu.unpaid_ns += unit_ns;
            }
        }
    }

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running
    }
}
