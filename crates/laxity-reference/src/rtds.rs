//! Xen's rtds: `docs/explanation/policies.md`, "Rtds".

use crate::rules::Rules;
use laxity_host::{Host, Parameters};

struct Vcpu {
    cpu: usize,
    affinity: Vec<u32>,
    parameters: Parameters,
    awake: bool,
    budget_ns: i64,
    deadline_ns: i64,
    level: u32,
    /// Whether it waits: with budget for a CPU, or without for budget.
    waits: bool,
    /// Where it stands among its equals, smaller first. Every place is given once.
    place: u64,
    /// Whether it ran out of budget since a replenishment last found it so while it waited.
    ran_out: bool,
}

impl Vcpu {
    /// Smaller comes first.
    fn rank(&self) -> (u32, i64) {
        (self.level, self.deadline_ns)
    }

    /// "A new period: the deadline moves by whole periods to the first time after now."
    fn begin_period(&mut self, now_ns: i64) {
        while self.deadline_ns <= now_ns {
            self.deadline_ns += self.parameters.period_ns;
        }
        self.budget_ns = self.parameters.budget_ns;
        self.level = 0;
    }
}

struct Cpu {
    running: Option<usize>,
    /// When the last decision ends.
    until_ns: i64,
    called: bool,
}

/// All VCPUs and CPUs under rtds.
pub(crate) struct Rtds {
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
    /// Replenishments to come, of VCPUs by number.
    expected: Vec<usize>,
    places_given: u64,
}

impl Rtds {
    pub(crate) fn new(host: &Host) -> Self {
        let mut vcpus = Vec::new();
        for domain in &host.domains {
            for vcpu in &domain.vcpus {
                vcpus.push(Vcpu {
                    cpu: vcpu.cpu as usize,
                    affinity: vcpu.affinity.clone(),
                    parameters: domain.parameters,
                    awake: false,
                    budget_ns: domain.parameters.budget_ns,
                    deadline_ns: match domain.parameters.phase_ns {
                        0 => domain.parameters.period_ns,
                        phase_ns => phase_ns,
                    },
                    level: 0,
                    waits: false,
                    place: 0,
                    ran_out: false,
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
        Rtds {
            vcpus,
            cpus,
            expected: Vec::new(),
            places_given: 0,
        }
    }

    fn may_run(&self, vcpu: usize, cpu: usize) -> bool {
        self.vcpus[vcpu].affinity.contains(&(cpu as u32))
    }

    fn begin_to_wait(&mut self, vcpu: usize) {
        self.places_given += 1;
        self.vcpus[vcpu].waits = true;
        self.vcpus[vcpu].place = self.places_given;
    }

    /// The first of the VCPUs that wait with budget and fulfil the condition.
    fn first(&self, condition: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.vcpus.len())
            .filter(|&number| self.vcpus[number].waits && self.vcpus[number].budget_ns > 0)
            .filter(|&number| condition(number))
            .min_by_key(|&number| (self.vcpus[number].rank(), self.vcpus[number].place))
    }

    /// "Behind all that come before it or are its equals."
    fn expect(&mut self, vcpu: usize) {
        let rank = self.vcpus[vcpu].rank();
        let place = (self.expected.iter()).position(|&other| rank < self.vcpus[other].rank());
        self.expected
            .insert(place.unwrap_or(self.expected.len()), vcpu);
    }

    /// A VCPU calls a CPU.
    fn call(&mut self, vcpu: usize) {
        let count = self.cpus.len();
        let own = self.vcpus[vcpu].cpu;
        let reachable: Vec<usize> = (0..count)
            .map(|step| (own + step) % count)
            .filter(|&cpu| self.may_run(vcpu, cpu) && !self.cpus[cpu].called)
            .collect();
        let idle = (reachable.iter()).find(|&&cpu| self.cpus[cpu].running.is_none());
        if let Some(&cpu) = idle {
            self.cpus[cpu].called = true;
            return;
        }
        let rank_on = |cpu: usize| {
            let running = self.cpus[cpu].running.expect("no CPU is idle");
            self.vcpus[running].rank()
        };
        let Some(last) = reachable.iter().map(|&cpu| rank_on(cpu)).max() else {
            return;
        };
        if self.vcpus[vcpu].rank() < last {
            let cpu = reachable.into_iter().find(|&cpu| rank_on(cpu) == last);
            self.cpus[cpu.expect("one of them is the last")].called = true;
        }
    }

    fn is_due(&self, now_ns: i64) -> bool {
        (self.expected.first()).is_some_and(|&head| self.vcpus[head].deadline_ns <= now_ns)
    }
}

impl Rules for Rtds {
    fn wake(&mut self, vcpu: usize, now_ns: i64) {
        self.vcpus[vcpu].awake = true;
        if self.vcpus[vcpu].deadline_ns <= now_ns {
            self.vcpus[vcpu].begin_period(now_ns);
        }
        self.expect(vcpu);
        self.begin_to_wait(vcpu);
        self.call(vcpu);
    }

    fn event(&mut self, _vcpu: usize) {}

    fn timers(&mut self, now_ns: i64) {
        while self.is_due(now_ns) {
            let mut begun = Vec::new();
            while self.is_due(now_ns) {
                let vcpu = self.expected.remove(0);
                self.vcpus[vcpu].begin_period(now_ns);
                if self.vcpus[vcpu].waits {
                    self.begin_to_wait(vcpu);
                }
                begun.push(vcpu);
            }
            for vcpu in begun.into_iter().rev() {
                if self.cpus[self.vcpus[vcpu].cpu].running == Some(vcpu) {
                    if let Some(first) = self.first(|_| true)
                        && self.vcpus[first].rank() < self.vcpus[vcpu].rank()
                    {
                        self.call(first);
                    }
                } else if std::mem::take(&mut self.vcpus[vcpu].ran_out) {
                    self.call(vcpu);
                }
                self.expect(vcpu);
            }
        }
    }

    fn is_due_again(&self, now_ns: i64) -> bool {
        self.is_due(now_ns)
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
        if let Some(vcpu) = before.map(|before| &mut self.vcpus[before])
            && vcpu.budget_ns == 0
        {
            if vcpu.parameters.extratime {
                vcpu.level += 1;
                vcpu.budget_ns = vcpu.parameters.budget_ns;
            } else {
                vcpu.ran_out = true;
            }
        }
        let other = self.first(|vcpu| self.may_run(vcpu, number));
        let stays = before.filter(|&before| {
            let vcpu = &self.vcpus[before];
            let comes_first = other.is_none_or(|other| vcpu.rank() < self.vcpus[other].rank());
            vcpu.awake && vcpu.budget_ns > 0 && comes_first
        });
        let chosen = stays.or(other);
        let cpu = &mut self.cpus[number];
        cpu.called = false;
        cpu.running = chosen;
        cpu.until_ns = i64::MAX;
        if let Some(chosen) = chosen {
            self.vcpus[chosen].waits = false;
            self.vcpus[chosen].cpu = number;
            self.cpus[number].until_ns = now_ns + self.vcpus[chosen].budget_ns;
        }
        if let Some(before) = before
            && stays.is_none()
        {
            if self.vcpus[before].awake {
                self.begin_to_wait(before);
                self.call(before);
            } else {
                self.expected.retain(|&vcpu| vcpu != before);
            }
        }
    }

    fn settle(&mut self, _now_ns: i64) {}

    fn pass(&mut self, unit_ns: i64) {
        for running in self.cpus.iter().filter_map(|cpu| cpu.running) {
            self.vcpus[running].budget_ns -= unit_ns;
        }
    }

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running
    }
}
