//! Servers and SEDF with one order for all CPUs: `docs/explanation/policies.md`, "Servers with one order for all
//! CPUs" and "Budgets".

use crate::budgets::{Replenishment, Use, register, renew_at_wake};
use crate::rules::{EXTRA_TURN_NS, Rules};
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

impl Vcpu {
    fn wants_extra_time(&self) -> bool {
        self.parameters.extratime && self.awake && self.budget_ns == 0
    }
}

/// All VCPUs and CPUs under a global policy with budgets.
pub(crate) struct GlobalServers {
    /// The policy whose budgets they have.
    budgets: Policy,
    quantum_ns: i64,
    vcpus: Vec<Vcpu>,
    /// The VCPU that runs on each CPU.
    running: Vec<Option<usize>>,
    /// When each CPU decided last.
    decided_ns: Vec<i64>,
    /// The VCPU to which each CPU gave a turn on extra time.
    extra: Vec<Option<usize>>,
    /// The VCPUs that wait for extra time, without those that run on it.
    extra_queue: Vec<usize>,
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
            quantum_ns: host.settings.quantum_ns,
            vcpus,
            running: vec![None; host.cpus as usize],
            decided_ns: vec![0; host.cpus as usize],
            extra: vec![None; host.cpus as usize],
            extra_queue: Vec::new(),
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
        self.extra_queue.retain(|&waiting| waiting != vcpu);
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
        if let Some((_, since)) = self.vcpus[vcpu].place {
            self.move_to(vcpu, (self.rank(vcpu), since));
        }
    }

    /// A VCPU that stands in the order has another place there.
    fn move_to(&mut self, vcpu: usize, place: (i64, u64)) {
        self.vcpus[vcpu].place = Some(place);
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

    /// A budget that is used up is so before anything else happens at that instant, by the numbers of the CPUs. Other
    /// CPUs learn of it by the first thing that does.
    fn end_budgets(&mut self) {
        for cpu in 0..self.running.len() {
            if let Some(number) = self.holder(cpu)
                && self.vcpus[number].budget_ns == 0
            {
                self.leave(number);
                self.end_run(number);
            }
        }
    }

    /// Whether the budget of the VCPU that has the CPU has just been used up.
    fn is_used_up(&self, cpu: usize) -> bool {
        (self.holder(cpu)).is_some_and(|holder| self.vcpus[holder].budget_ns == 0)
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
        let has_not_blocked = self.has_not_blocked(number);
        let vcpu = &mut self.vcpus[number];
        if self.budgets == Policy::Polling && !has_not_blocked {
            vcpu.budget_ns = 0;
        } else if (has_not_blocked || self.budgets == Policy::Periodic) && vcpu.place.is_none() {
            self.enter(number);
        }
    }

    /// The VCPU that the CPU should run: the one that has it, if that runs nowhere else; on a free CPU one on extra
    /// time.
    fn should_run(&self, cpu: usize) -> Option<usize> {
        if let Some(holder) = self
            .holder(cpu)
            .filter(|&holder| self.has_not_blocked(holder))
        {
            let is_elsewhere = self.runs_on(holder).is_some_and(|other| other != cpu);
            return (!is_elsewhere).then_some(holder);
        }
        if !self.is_free(cpu) {
            return None;
        }
        let goes_on = self.extra[cpu].filter(|&vcpu| self.vcpus[vcpu].wants_extra_time());
        goes_on.or(self.first_for_extra_time(cpu))
    }

    /// The replenishments that are to be served, each with when it was due.
    fn due(&self, now_ns: i64) -> Vec<(i64, usize)> {
        if self.quantum_ns > 0 && now_ns % self.quantum_ns != 0 {
            return Vec::new();
        }
        (0..self.vcpus.len())
            .filter_map(|number| Some((self.due_ns(number)?, number)))
            .filter(|&(due_ns, _)| due_ns <= now_ns)
            .collect()
    }

    /// "A VCPU blocks at the decision of its CPU."
    fn has_not_blocked(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake || self.runs_on(vcpu).is_some()
    }

    /// "No VCPU has it, or a blocked one while no eligible VCPU waits that may run there."
    fn is_free(&self, cpu: usize) -> bool {
        match self.holder(cpu) {
            None => true,
            Some(holder) => {
                let waits = |number: usize| {
                    let vcpu = &self.vcpus[number];
                    self.has_not_blocked(number)
                        && vcpu.budget_ns > 0
                        && vcpu.has.is_none()
                        && vcpu.affinity.contains(&cpu)
                };
                !self.has_not_blocked(holder) && !(0..self.vcpus.len()).any(waits)
            }
        }
    }

    /// The first VCPU that waits for extra time and may run on the CPU.
    fn first_for_extra_time(&self, cpu: usize) -> Option<usize> {
        let mut waiting = self.extra_queue.iter().copied();
        waiting.find(|&vcpu| self.vcpus[vcpu].affinity.contains(&cpu))
    }
}

impl Rules for GlobalServers {
    fn wake(&mut self, number: usize, now_ns: i64) {
        self.end_budgets();
        let vcpu = &mut self.vcpus[number];
        vcpu.awake = true;
        if self.budgets == Policy::Sedf {
            let (left_ns, full_at_ns) = (&mut vcpu.budget_ns, &mut vcpu.full_at_ns);
            renew_at_wake(left_ns, full_at_ns, &vcpu.parameters, now_ns);
        }
        // Under periodic, one with budget has kept its place.
        if vcpu.budget_ns > 0 && vcpu.place.is_none() {
            self.enter(number);
        } else if vcpu.wants_extra_time() {
            self.extra_queue.push(number);
        }
    }

    fn event(&mut self, _vcpu: usize) {}

    /// A timer also ends the budget of a blocked VCPU.
    fn timers(&mut self, now_ns: i64) {
        let ends_for_nobody = (0..self.running.len())
            .any(|cpu| self.is_used_up(cpu) && self.holder(cpu) != self.running[cpu]);
        if ends_for_nobody || !self.due(now_ns).is_empty() {
            self.end_budgets();
        }
        let mut due = self.due(now_ns);
        due.sort_unstable();
        for (_, number) in due {
            self.replenish(number, now_ns);
        }
    }

    fn block(&mut self, vcpu: usize) {
        self.vcpus[vcpu].awake = false;
    }

    fn has_reason(&self, cpu: usize, now_ns: i64) -> bool {
        let has_blocked = self.running[cpu].is_some_and(|vcpu| !self.vcpus[vcpu].awake);
        let decided_for_ns = now_ns - self.decided_ns[cpu];
        let has_turn = (self.extra[cpu]).is_some_and(|vcpu| self.vcpus[vcpu].wants_extra_time());
        let turn_over =
            has_turn && decided_for_ns >= EXTRA_TURN_NS && self.first_for_extra_time(cpu).is_some();
        let quantum_over = self.quantum_ns > 0 && decided_for_ns >= self.quantum_ns;
        has_blocked
            || self.is_used_up(cpu)
            || self.should_run(cpu) != self.running[cpu]
            || turn_over
            || quantum_over
    }

    fn decide(&mut self, cpu: usize, now_ns: i64) {
        self.end_budgets();
        // The end of a sporadic server's budget can make a replenishment due, with which the VCPU goes on.
        self.timers(now_ns);
        if !self.has_reason(cpu, now_ns) {
            return;
        }
        let before = self.running[cpu];
        self.decided_ns[cpu] = now_ns;
        self.extra[cpu] = None;
        if let Some(before) = before.filter(|&before| !self.vcpus[before].awake) {
            if self.budgets == Policy::Polling {
                self.vcpus[before].budget_ns = 0;
            }
            if self.budgets != Policy::Periodic {
                self.leave(before);
            }
            self.running[cpu] = None;
        }
        if let Some(before) = before.filter(|&before| self.vcpus[before].awake) {
            let has = self.vcpus[before].has;
            if self.vcpus[before].wants_extra_time() {
                self.extra_queue.push(before);
            } else if self.quantum_ns > 0
                && self.vcpus[before].place.is_some()
                && has.is_none_or(|has| has == cpu)
            {
                // "With a quantum it goes behind its equals, unless it has another CPU."
                self.counted += 1;
                self.move_to(before, (self.rank(before), self.counted));
            }
        }
        let next = self.should_run(cpu);
        self.running[cpu] = next;
        if let Some(next) = next.filter(|&next| self.vcpus[next].place.is_none()) {
            self.extra_queue.retain(|&waiting| waiting != next);
            self.extra[cpu] = Some(next);
        }
        if let Some(before) = before
            && next != Some(before)
        {
            let has = self.vcpus[before].has;
            self.vcpus[before].last = has.unwrap_or(cpu);
            self.end_run(before);
        }
    }

    /// A VCPU that ran on extra time and has budget again goes on without a decision, if it has its CPU.
    fn settle(&mut self, now_ns: i64) {
        for (cpu, extra) in self.extra.iter_mut().enumerate() {
            let vcpus = &self.vcpus;
            extra.take_if(|vcpu| vcpus[*vcpu].has == Some(cpu));
        }
        if self.budgets != Policy::Sporadic {
            return;
        }
        for vcpu in self.running.iter().flatten() {
            let vcpu = &mut self.vcpus[*vcpu];
            let run = &mut vcpu.run;
            if vcpu.has.is_some() && run.is_none() {
                *run = Some(Use {
                    chosen_ns: now_ns,
                    used_ns: 0,
                });
            }
        }
    }

    /// Whoever has a CPU pays, be it for an idle task.
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
    }

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.running[cpu]
    }
}
