//! Linux's fifo and deadline: `docs/explanation/policies.md`, "Linux: one order for all CPUs", "Fifo", "Deadline".

use crate::rules::Rules;
use laxity_host::{Host, Parameters, Policy};

/// Bandwidths are whole numbers of this part of a CPU.
const BANDWIDTH_UNIT: i64 = 1 << 20;
/// 95 % of a CPU.
const MOST_BANDWIDTH: i64 = BANDWIDTH_UNIT * 95 / 100;
/// The shortest time between two payments without a jiffy.
const LOOKS_AGAIN_NS: i64 = 10_000;

struct Vcpu {
    parameters: Parameters,
    affinity: Vec<usize>,
    awake: bool,
    /// Where it was last.
    last: usize,
    /// Its place among all, while it is ready: what it is ordered by, then since when. Smaller is first.
    place: Option<(i64, u64)>,
    /// The CPU that it has.
    has: Option<usize>,
    /// Deadline.
    left_ns: i64,
    /// Deadline.
    deadline_ns: i64,
    /// Deadline: since when it is throttled, as a count.
    throttled: Option<u64>,
    /// Deadline: since it blocked, the time from which on it is inactive.
    zero_lag_ns: Option<i128>,
    /// Deadline with reclaiming: CPU time that it has not paid for.
    unpaid_ns: i64,
}

struct Cpu {
    /// Its VCPU is another one, or was meanwhile.
    kicked: bool,
    running: Option<usize>,
    /// When its VCPU pays next beside decisions, or has used up its runtime.
    pays_ns: i64,
}

/// All VCPUs and CPUs under fifo or deadline.
pub(crate) struct Global {
    is_deadline: bool,
    jiffy_ns: i64,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
    counted: u64,
}

impl Global {
    pub(crate) fn new(host: &Host) -> Self {
        let mut vcpus = Vec::new();
        for domain in &host.domains {
            for vcpu in &domain.vcpus {
                vcpus.push(Vcpu {
                    parameters: domain.parameters,
                    affinity: vcpu.affinity.iter().map(|&cpu| cpu as usize).collect(),
                    awake: false,
                    last: vcpu.cpu as usize,
                    place: None,
                    has: None,
                    left_ns: 0,
                    deadline_ns: -1,
                    throttled: None,
                    zero_lag_ns: Some(0),
                    unpaid_ns: 0,
                });
            }
        }
        Global {
            is_deadline: host.policy == Policy::Deadline,
            jiffy_ns: host.settings.jiffy_ns,
            vcpus,
            cpus: (0..host.cpus)
                .map(|_| Cpu {
                    kicked: false,
                    running: None,
                    pays_ns: i64::MAX,
                })
                .collect(),
            counted: 0,
        }
    }

    fn count(&mut self) -> u64 {
        self.counted += 1;
        self.counted
    }

    fn holder(&self, cpu: usize) -> Option<usize> {
        self.vcpus.iter().position(|vcpu| vcpu.has == Some(cpu))
    }

    fn rank(&self, vcpu: usize) -> i64 {
        self.vcpus[vcpu].place.expect("it is ready").0
    }

    /// "Its own CPU": where it runs, even if it is to leave; else where it was last.
    fn own(&self, vcpu: usize) -> usize {
        let runs = (self.cpus.iter()).position(|cpu| cpu.running == Some(vcpu));
        runs.unwrap_or(self.vcpus[vcpu].last)
    }

    /// The VCPU becomes ready, behind its equals.
    fn enter(&mut self, vcpu: usize) {
        let rank = if self.is_deadline {
            self.vcpus[vcpu].deadline_ns
        } else {
            -i64::from(self.vcpus[vcpu].parameters.rt_priority)
        };
        self.vcpus[vcpu].place = Some((rank, self.count()));
        let own = self.own(vcpu);
        let takes_own = match self.holder(own) {
            None => true,
            Some(holder) => self.rank(holder) > rank && self.vcpus[holder].affinity.len() > 1,
        };
        if takes_own {
            self.take(vcpu, own);
        } else {
            self.look_for_cpu(vcpu);
        }
    }

    /// "It takes the lowest CPU of its affinity", or waits.
    fn look_for_cpu(&mut self, vcpu: usize) {
        let own = self.own(vcpu);
        let count = self.cpus.len();
        let mut lowest: Option<(i64, usize)> = None;
        for cpu in (0..count).map(|step| (own + step) % count) {
            if !self.vcpus[vcpu].affinity.contains(&cpu) {
                continue;
            }
            let rank = self
                .holder(cpu)
                .map_or(i64::MAX, |holder| self.rank(holder));
            if rank > lowest.map_or(self.rank(vcpu), |(rank, _)| rank) {
                lowest = Some((rank, cpu));
            }
        }
        if let Some((_, cpu)) = lowest {
            self.take(vcpu, cpu);
        }
    }

    /// The VCPU has the CPU from now on. Whoever had it looks for another.
    fn take(&mut self, vcpu: usize, cpu: usize) {
        let holder = self.holder(cpu);
        self.cpus[cpu].kicked = true;
        self.vcpus[vcpu].has = Some(cpu);
        if self.cpus.iter().all(|cpu| cpu.running != Some(vcpu)) {
            self.vcpus[vcpu].last = cpu;
        }
        if let Some(holder) = holder {
            self.vcpus[holder].has = None;
            self.look_for_cpu(holder);
        }
    }

    /// The VCPU is not ready any more. "Its CPU goes to the first VCPU that waits and may run there."
    fn leave(&mut self, vcpu: usize) {
        self.vcpus[vcpu].place = None;
        let Some(cpu) = self.vcpus[vcpu].has.take() else {
            return;
        };
        self.cpus[cpu].kicked = true;
        let first = (0..self.vcpus.len())
            .filter(|&other| {
                let other = &self.vcpus[other];
                other.has.is_none() && other.affinity.contains(&cpu)
            })
            .filter_map(|other| self.vcpus[other].place.map(|place| (place, other)))
            .min();
        if let Some((_, first)) = first {
            self.take(first, cpu);
        }
    }

    fn begin_period(&mut self, vcpu: usize, now_ns: i64) {
        let vcpu = &mut self.vcpus[vcpu];
        vcpu.left_ns = vcpu.parameters.budget_ns;
        vcpu.deadline_ns = now_ns + vcpu.parameters.period_ns;
    }

    /// Deadline: a period is over whose runtime was used up.
    fn replenish(&mut self, number: usize, now_ns: i64) {
        let vcpu = &mut self.vcpus[number];
        while vcpu.left_ns <= 0 {
            vcpu.left_ns += vcpu.parameters.budget_ns;
            vcpu.deadline_ns += vcpu.parameters.period_ns;
        }
        if vcpu.deadline_ns < now_ns {
            self.begin_period(number, now_ns);
        }
    }

    /// Deadline: "is throttled until its period ends", which may be already.
    fn throttle(&mut self, vcpu: usize, now_ns: i64) {
        self.leave(vcpu);
        if self.vcpus[vcpu].deadline_ns <= now_ns {
            self.replenish(vcpu, now_ns);
            self.enter(vcpu);
        } else {
            self.vcpus[vcpu].throttled = Some(self.count());
        }
    }

    fn reclaims(&self, vcpu: usize) -> bool {
        self.is_deadline && self.vcpus[vcpu].parameters.reclaim
    }

    fn bandwidth(&self, vcpu: usize) -> i64 {
        let parameters = &self.vcpus[vcpu].parameters;
        BANDWIDTH_UNIT * parameters.budget_ns / parameters.period_ns
    }

    /// "It pays for the part of its time that is in use."
    fn pay(&mut self, vcpu: usize, cpu: usize, now_ns: i64) {
        let inactive: i64 = (0..self.vcpus.len())
            .filter(|&other| self.own(other) == cpu)
            .filter(|&other| {
                let zero_lag_ns = self.vcpus[other].zero_lag_ns;
                zero_lag_ns.is_some_and(|zero_lag_ns| zero_lag_ns <= i128::from(now_ns))
            })
            .map(|other| self.bandwidth(other))
            .sum();
        let given: i64 = (0..self.vcpus.len())
            .filter(|&other| self.vcpus[other].affinity.contains(&cpu))
            .map(|other| self.bandwidth(other) / self.vcpus[other].affinity.len() as i64)
            .sum();
        let extra = MOST_BANDWIDTH - given;
        let in_use = (MOST_BANDWIDTH - inactive - extra).max(self.bandwidth(vcpu));
        let rate = in_use * 269 / 256;
        let vcpu = &mut self.vcpus[vcpu];
        vcpu.left_ns -= (i128::from(vcpu.unpaid_ns) * i128::from(rate) / (1 << 20)) as i64;
        vcpu.unpaid_ns = 0;
    }

    /// When the VCPU of the CPU pays if nothing happens before.
    fn next_payment_ns(&self, cpu: usize, now_ns: i64) -> i64 {
        match self.cpus[cpu].running {
            Some(vcpu) if self.reclaims(vcpu) && self.jiffy_ns > 0 => {
                (now_ns / self.jiffy_ns + 1) * self.jiffy_ns
            }
            Some(vcpu) if self.reclaims(vcpu) => {
                now_ns + self.vcpus[vcpu].left_ns.max(LOOKS_AGAIN_NS)
            }
            Some(vcpu) if self.is_deadline && self.jiffy_ns == 0 => {
                now_ns + self.vcpus[vcpu].left_ns
            }
            _ => i64::MAX,
        }
    }

    fn is_exhausted(&self, vcpu: usize) -> bool {
        let vcpu = &self.vcpus[vcpu];
        self.is_deadline && vcpu.place.is_some() && vcpu.left_ns <= 0
    }
}

impl Rules for Global {
    fn wake(&mut self, number: usize, now_ns: i64) {
        let vcpu = &mut self.vcpus[number];
        vcpu.awake = true;
        vcpu.zero_lag_ns = None;
        if vcpu.throttled.is_some() {
            return;
        }
        if self.is_deadline {
            let Parameters {
                budget_ns,
                period_ns,
                ..
            } = vcpu.parameters;
            let rest_ns = vcpu.deadline_ns - now_ns;
            let has = i128::from(vcpu.left_ns) * i128::from(period_ns);
            let may_have = i128::from(rest_ns) * i128::from(budget_ns);
            if rest_ns < 0 || has > may_have {
                self.begin_period(number, now_ns);
            }
        }
        self.enter(number);
    }

    fn event(&mut self, _vcpu: usize) {}

    fn timers(&mut self, now_ns: i64) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].pays_ns > now_ns {
                continue;
            }
            if let Some(vcpu) = self.cpus[cpu].running.filter(|&vcpu| self.reclaims(vcpu)) {
                self.pay(vcpu, cpu, now_ns);
                if self.is_exhausted(vcpu) {
                    self.throttle(vcpu, now_ns);
                }
            }
            self.cpus[cpu].pays_ns = match self.cpus[cpu].running {
                Some(vcpu) if self.reclaims(vcpu) => self.next_payment_ns(cpu, now_ns),
                _ => i64::MAX,
            };
        }
        let mut due: Vec<(i64, u64, usize)> = (0..self.vcpus.len())
            .filter(|&vcpu| self.vcpus[vcpu].deadline_ns <= now_ns)
            .filter_map(|vcpu| {
                let throttled = self.vcpus[vcpu].throttled?;
                Some((self.vcpus[vcpu].deadline_ns, throttled, vcpu))
            })
            .collect();
        due.sort_unstable();
        for (_, _, vcpu) in due {
            self.vcpus[vcpu].throttled = None;
            self.replenish(vcpu, now_ns);
            if self.vcpus[vcpu].awake {
                self.enter(vcpu);
            }
        }
    }

    fn block(&mut self, vcpu: usize) {
        self.vcpus[vcpu].awake = false;
    }

    fn has_reason(&self, number: usize, now_ns: i64) -> bool {
        let cpu = &self.cpus[number];
        let is_tick = self.jiffy_ns == 0 || now_ns % self.jiffy_ns == 0;
        // A VCPU that reclaims is throttled when it pays.
        let must_stop = |vcpu: usize| !self.vcpus[vcpu].awake || is_tick && self.is_exhausted(vcpu);
        cpu.kicked || cpu.running.is_some_and(must_stop)
    }

    fn decide(&mut self, number: usize, now_ns: i64) {
        let before = self.cpus[number].running;
        if let Some(before) = before {
            if self.reclaims(before) {
                self.pay(before, number, now_ns);
            }
            if self.is_exhausted(before) {
                self.throttle(before, now_ns);
            }
            if !self.vcpus[before].awake {
                let vcpu = &mut self.vcpus[before];
                let worth_ns = i128::from(vcpu.left_ns) * i128::from(vcpu.parameters.period_ns)
                    / i128::from(vcpu.parameters.budget_ns.max(1));
                vcpu.zero_lag_ns = Some(i128::from(vcpu.deadline_ns) - worth_ns);
            }
            if !self.vcpus[before].awake && self.vcpus[before].place.is_some() {
                self.leave(before);
            }
        }
        self.cpus[number].kicked = false;
        // "It runs there when the CPU that it leaves has decided."
        let is_elsewhere = |vcpu: usize| {
            let mut others = (0..self.cpus.len()).filter(|&other| other != number);
            others.any(|other| self.cpus[other].running == Some(vcpu))
        };
        let next = self.holder(number).filter(|&vcpu| !is_elsewhere(vcpu));
        self.cpus[number].running = next;
        if let Some(before) = before
            && next != Some(before)
        {
            let has = self.vcpus[before].has;
            self.vcpus[before].last = has.unwrap_or(number);
            if let Some(has) = has {
                self.cpus[has].kicked = true;
            }
        }
        self.cpus[number].pays_ns = self.next_payment_ns(number, now_ns);
    }

    fn settle(&mut self, _now_ns: i64) {}

    fn pass(&mut self, unit_ns: i64) {
        for cpu in &self.cpus {
            if let Some(vcpu) = cpu.running {
                if self.is_deadline && self.vcpus[vcpu].parameters.reclaim {
                    self.vcpus[vcpu].unpaid_ns += unit_ns;
                } else {
                    self.vcpus[vcpu].left_ns -= unit_ns;
                }
            }
        }
    }

    fn next_ns(&self) -> i64 {
        let pays_ns = self.cpus.iter().map(|cpu| cpu.pays_ns);
        // What follows a payment need not be a whole number of units: periods that begin then.
        let throttled = self.vcpus.iter().filter(|vcpu| vcpu.throttled.is_some());
        pays_ns
            .chain(throttled.map(|vcpu| vcpu.deadline_ns))
            .min()
            .unwrap_or(i64::MAX)
    }

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].running
    }
}
