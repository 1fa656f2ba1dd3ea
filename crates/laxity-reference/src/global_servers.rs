//! Servers and SEDF with one order for all CPUs: `docs/explanation/policies.md`, "Servers with one order for all
//! CPUs" and "Budgets".

use crate::budgets::{Replenishment, Use, register, renew_at_wake};
use crate::rules::Rules;
use laxity_host::{Host, Parameters, Policy};

struct Vcpu {
    parameters: Parameters,
    affinity: Vec<usize>,
    awake: bool,
    budget_ns: i64,
    /// Its place in the order, while it stands there: what it is ordered by, then since when. Smaller is first.
    place: Option<(i64, u64)>,
    /// The CPU that it has.
    has: Option<usize>,
    /// Where it was last.
    last: usize,
    /// All but sporadic: when the budget is set to full next, which ends the current period.
    full_at_ns: i64,
    /// Sporadic: the run on budget that goes on.
    run: Option<Use>,
    /// Sporadic.
    pending: Vec<Replenishment>,
}

/// All VCPUs and CPUs under a global policy with budgets.
pub(crate) struct GlobalServers {
    /// The policy whose budgets they have.
    budgets: Policy,
    vcpus: Vec<Vcpu>,
    /// The VCPU that runs on each CPU.
    running: Vec<Option<usize>>,
    counted: u64,
}

impl GlobalServers {
    pub(crate) fn new(host: &Host) -> Self {
        let budgets = host.policy.on_each_cpu().expect("it is a global policy");
        let mut vcpus = Vec::new();
        for domain in &host.domains {
            for vcpu in &domain.vcpus {
                vcpus.push(Vcpu {
                    parameters: domain.parameters,
                    affinity: vcpu.affinity.iter().map(|&cpu| cpu as usize).collect(),
                    awake: false,
                    // The others get theirs by the first timer, at time 0.
                    budget_ns: match budgets {
                        Policy::Sporadic => domain.parameters.budget_ns,
                        _ => 0,
                    },
                    place: None,
                    has: None,
                    last: vcpu.cpu as usize,
                    full_at_ns: 0,
                    run: None,
                    pending: Vec::new(),
                });
            }
        }
        GlobalServers {
            budgets,
            vcpus,
            running: vec![None; host.cpus as usize],
            counted: 0,
        }
    }

    fn holder(&self, cpu: usize) -> Option<usize> {
        self.vcpus.iter().position(|vcpu| vcpu.has == Some(cpu))
    }

    fn place(&self, vcpu: usize) -> (i64, u64) {
        self.vcpus[vcpu].place.expect("it stands in the order")
    }

    fn rank(&self, vcpu: usize) -> i64 {
        match self.budgets {
            Policy::Sedf => self.vcpus[vcpu].full_at_ns,
            _ => i64::from(self.vcpus[vcpu].parameters.priority),
        }
    }

    fn runs_on(&self, vcpu: usize) -> Option<usize> {
        (self.running.iter()).position(|&running| running == Some(vcpu))
    }

    /// "The VCPU's own CPU."
    fn own(&self, vcpu: usize) -> usize {
        self.runs_on(vcpu).unwrap_or(self.vcpus[vcpu].last)
    }

    /// A VCPU comes to stand in the order, behind its equals.
    fn enter(&mut self, vcpu: usize) {
        self.counted += 1;
        self.vcpus[vcpu].place = Some((self.rank(vcpu), self.counted));
        self.look_for_cpu(vcpu);
    }

    /// "It gets a CPU that no VCPU has: its own if it can, else the next one by number. If there is none, it gets the
    /// CPU of the VCPU that is the last in the order, if that comes after it."
    fn look_for_cpu(&mut self, vcpu: usize) {
        let (own, count) = (self.own(vcpu), self.running.len());
        let may_have: Vec<usize> = (0..count)
            .map(|step| (own + step) % count)
            .filter(|cpu| self.vcpus[vcpu].affinity.contains(cpu))
            .collect();
        let idle = may_have.iter().find(|&&cpu| self.holder(cpu).is_none());
        if let Some(&cpu) = idle {
            self.give(cpu, vcpu);
            return;
        }
        let held = may_have.iter().filter_map(|&cpu| self.holder(cpu));
        let last = held.max_by_key(|&holder| self.place(holder));
        if let Some(last) = last
            && self.place(vcpu) < self.place(last)
        {
            self.take_cpu_of(last, vcpu);
        }
    }

    /// "The VCPU that loses its CPU keeps its place and looks for another one."
    fn take_cpu_of(&mut self, holder: usize, vcpu: usize) {
        let cpu = self.vcpus[holder].has.take().expect("it has a CPU");
        self.give(cpu, vcpu);
        self.look_for_cpu(holder);
    }

    fn give(&mut self, cpu: usize, vcpu: usize) {
        self.vcpus[vcpu].has = Some(cpu);
        if self.runs_on(vcpu).is_none() {
            self.vcpus[vcpu].last = cpu;
        }
    }

    /// The first VCPU that waits and may have the CPU.
    fn first_waiting(&self, cpu: usize) -> Option<usize> {
        (0..self.vcpus.len())
            .filter(|&vcpu| {
                let vcpu = &self.vcpus[vcpu];
                vcpu.has.is_none() && vcpu.place.is_some() && vcpu.affinity.contains(&cpu)
            })
            .min_by_key(|&vcpu| self.place(vcpu))
    }

    /// A VCPU stands in the order no more. "Its CPU goes to the first VCPU that waits and may run there."
    fn leave(&mut self, vcpu: usize) {
        self.vcpus[vcpu].place = None;
        if let Some(cpu) = self.vcpus[vcpu].has.take()
            && let Some(first) = self.first_waiting(cpu)
        {
            self.give(cpu, first);
        }
    }

    /// SEDF: the period ends at another time, which moves the VCPU in the order.
    fn end_period_at(&mut self, vcpu: usize, at_ns: i64) {
        self.vcpus[vcpu].full_at_ns = at_ns;
        let rank = self.rank(vcpu);
        let Some((_, since)) = self.vcpus[vcpu].place else {
            return;
        };
        self.vcpus[vcpu].place = Some((rank, since));
        match self.vcpus[vcpu].has {
            None => self.look_for_cpu(vcpu),
            Some(cpu) => {
                if let Some(first) = self.first_waiting(cpu)
                    && self.place(first) < self.place(vcpu)
                {
                    self.take_cpu_of(vcpu, first);
                }
            }
        }
    }

    fn end_run(&mut self, number: usize) {
        let vcpu = &mut self.vcpus[number];
        if let Some(run) = vcpu.run.take() {
            register(&mut vcpu.pending, &vcpu.parameters, &run);
        }
    }

    fn due_ns(&self, number: usize) -> Option<i64> {
        let vcpu = &self.vcpus[number];
        match self.budgets {
            Policy::Sporadic => vcpu.pending.iter().map(|pending| pending.at_ns).min(),
            _ => Some(vcpu.full_at_ns),
        }
    }

    fn replenish(&mut self, number: usize, now_ns: i64) {
        let vcpu = &mut self.vcpus[number];
        if self.budgets == Policy::Sporadic {
            for replenishment in vcpu.pending.extract_if(.., |one| one.at_ns <= now_ns) {
                vcpu.budget_ns += replenishment.amount_ns;
            }
        } else {
            vcpu.budget_ns = vcpu.parameters.budget_ns;
            let mut full_at_ns = vcpu.full_at_ns;
            while full_at_ns <= now_ns {
                full_at_ns += vcpu.parameters.period_ns;
            }
            self.end_period_at(number, full_at_ns);
        }
        let vcpu = &mut self.vcpus[number];
        if self.budgets == Policy::Polling && !vcpu.awake {
            vcpu.budget_ns = 0;
        } else if (vcpu.awake || self.budgets == Policy::Periodic) && vcpu.place.is_none() {
            self.enter(number);
        }
    }

    /// The VCPU that the CPU should run: the one that has it, if that is awake and runs nowhere else.
    fn should_run(&self, cpu: usize) -> Option<usize> {
        let holder = self.holder(cpu)?;
        let is_elsewhere = self.runs_on(holder).is_some_and(|other| other != cpu);
        (self.vcpus[holder].awake && !is_elsewhere).then_some(holder)
    }
}

impl Rules for GlobalServers {
    fn wake(&mut self, number: usize, now_ns: i64) {
        let vcpu = &mut self.vcpus[number];
        vcpu.awake = true;
        if self.budgets == Policy::Sedf {
            let (left_ns, full_at_ns) = (&mut vcpu.budget_ns, &mut vcpu.full_at_ns);
            renew_at_wake(left_ns, full_at_ns, &vcpu.parameters, now_ns);
        }
        // Under periodic, one with budget has kept its place.
        if vcpu.budget_ns > 0 && vcpu.place.is_none() {
            self.enter(number);
        }
    }

    fn event(&mut self, _vcpu: usize) {}

    fn timers(&mut self, now_ns: i64) {
        let mut due: Vec<(i64, usize)> = (0..self.vcpus.len())
            .filter_map(|number| Some((self.due_ns(number)?, number)))
            .filter(|&(due_ns, _)| due_ns <= now_ns)
            .collect();
        due.sort_unstable();
        for (_, number) in due {
            self.replenish(number, now_ns);
        }
    }

    fn block(&mut self, vcpu: usize) {
        self.vcpus[vcpu].awake = false;
    }

    fn has_reason(&self, cpu: usize, _now_ns: i64) -> bool {
        let has_blocked = self.running[cpu].is_some_and(|vcpu| !self.vcpus[vcpu].awake);
        has_blocked || self.should_run(cpu) != self.running[cpu]
    }

    fn decide(&mut self, cpu: usize, _now_ns: i64) {
        let before = self.running[cpu];
        if let Some(before) = before.filter(|&before| !self.vcpus[before].awake) {
            if self.budgets == Policy::Polling {
                self.vcpus[before].budget_ns = 0;
            }
            if self.budgets != Policy::Periodic {
                self.leave(before);
            }
        }
        let next = self.should_run(cpu);
        self.running[cpu] = next;
        if let Some(before) = before
            && next != Some(before)
        {
            let has = self.vcpus[before].has;
            self.vcpus[before].last = has.unwrap_or(cpu);
            self.end_run(before);
        }
    }

    fn settle(&mut self, now_ns: i64) {
        if self.budgets != Policy::Sporadic {
            return;
        }
        for vcpu in self.running.iter().flatten() {
            let run = &mut self.vcpus[*vcpu].run;
            if run.is_none() {
                *run = Some(Use {
                    chosen_ns: now_ns,
                    used_ns: 0,
                });
            }
        }
    }

    /// Whoever has a CPU pays, be it for an idle task. A budget that is used up is so before anything else happens at
    /// that instant.
    fn pass(&mut self, unit_ns: i64) {
        for cpu in 0..self.running.len() {
            let Some(number) = self.holder(cpu) else {
                continue;
            };
            let vcpu = &mut self.vcpus[number];
            vcpu.budget_ns -= unit_ns;
            if let Some(run) = &mut vcpu.run {
                run.used_ns += unit_ns;
            }
        }
        for cpu in 0..self.running.len() {
            if let Some(number) = self.holder(cpu)
                && self.vcpus[number].budget_ns == 0
            {
                self.leave(number);
                self.end_run(number);
            }
        }
    }

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.running[cpu]
    }
}
