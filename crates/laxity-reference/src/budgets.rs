//! Deferrable, periodic, polling, sporadic and lending servers and SEDF: `docs/explanation/policies.md`, "Budgets".

use crate::rules::{EXTRA_TURN_NS, Rules, Told};
use laxity_host::{Host, Parameters, Policy};
use std::collections::BTreeMap;

/// Sporadic: the most replenishments of one VCPU that may be pending.
const PENDING_MAX: usize = 32;

/// Sporadic: less than this, than a sixteenth of the budget, and than what the period has beside the
/// budget, does not come back by itself.
const WORTH_NS: i64 = 100_000;

/// Lending: how many orders of work a lead distinguishes, and how many budgets it may be.
const LEADS_MAX: usize = 8;
const LEAD_BUDGETS_MAX: i64 = 16;

/// Sporadic: an amount that comes back.
pub(crate) struct Replenishment {
    pub(crate) at_ns: i64,
    pub(crate) amount_ns: i64,
    /// When the first of it would have come if nothing had been merged.
    first_ns: i64,
}

/// "When the later of them would, less the amount of the earlier."
fn merged_at_ns(earlier: &Replenishment, later: &Replenishment) -> i64 {
    later.at_ns - earlier.amount_ns
}

/// Sporadic: what a VCPU used since it was chosen.
pub(crate) struct Use {
    pub(crate) chosen_ns: i64,
    pub(crate) used_ns: i64,
}

struct Vcpu {
    cpu: usize,
    parameters: Parameters,
    awake: bool,
    budget_ns: i64,
    /// Where it stands among its equals, smaller first; `None` while it stands in no order. Every
    /// place is given once.
    place: Option<u64>,
    /// All but sporadic: when the budget is set to full next, which ends the current period.
    full_at_ns: i64,
    /// Sporadic: the run on budget that goes on.
    run: Option<Use>,
    /// Sporadic.
    pending: Vec<Replenishment>,
    /// Lending: the CPU time that it got and its server has not served yet, by the order of the work.
    leads_ns: BTreeMap<i64, i64>,
    /// Lending: what its guest told.
    told: Option<Told>,
    /// Lending: whether the deadline had passed when it was told.
    is_late: bool,
}

impl Vcpu {
    /// Whether it may wait for extra time.
    fn wants_extra_time(&self) -> bool {
        self.parameters.extratime && self.awake && self.budget_ns == 0
    }

    /// Lending: the lead that its server serves now: "the most urgent one, if it is for work that is at
    /// least as urgent as that on which the VCPU works, or the VCPU has nothing to do".
    fn lead_to_serve(&self) -> Option<i64> {
        let (&order, _) = self.leads_ns.first_key_value()?;
        let comes_first = match &self.told {
            _ if !self.awake => true,
            Some(told) => order <= told.order,
            None => false,
        };
        comes_first.then_some(order)
    }

    fn serve_lead(&mut self, order: i64, unit_ns: i64) {
        let lead_ns = self.leads_ns.get_mut(&order).expect("a lead to serve");
        *lead_ns -= unit_ns;
        if *lead_ns == 0 {
            self.leads_ns.remove(&order);
        }
    }

    /// Lending: the VCPU works, and its server does not serve that.
    fn gain_lead(&mut self, unit_ns: i64) {
        let Some(told) = &self.told.filter(|told| told.deadline_ns.is_some()) else {
            return;
        };
        *self.leads_ns.entry(told.order).or_default() += unit_ns;
        if self.leads_ns.len() > LEADS_MAX {
            let orders: Vec<i64> = self.leads_ns.keys().copied().collect();
            let merged_ns = self.leads_ns.remove(&orders[LEADS_MAX - 1]);
            *self.leads_ns.entry(orders[LEADS_MAX]).or_default() += merged_ns.expect("a lead");
        }
        let limit_ns = LEAD_BUDGETS_MAX * self.parameters.budget_ns;
        while self.leads_ns.values().sum::<i64>() > limit_ns {
            let last = *self.leads_ns.last_key_value().expect("a lead").0;
            self.serve_lead(last, unit_ns);
        }
    }
}

/// SEDF, at a wake: a new period begins if what is left of the slice is to the rest of the period at least what the
/// slice is to the period; so it is when the period is over.
pub(crate) fn renew_at_wake(
    left_ns: &mut i64,
    full_at_ns: &mut i64,
    parameters: &Parameters,
    now_ns: i64,
) {
    let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
    let rest_ns = *full_at_ns - now_ns;
    if product(*left_ns, parameters.period_ns) >= product(rest_ns, parameters.budget_ns) {
        *left_ns = parameters.budget_ns;
        *full_at_ns = now_ns + parameters.period_ns;
    }
}

/// Sporadic: a VCPU stops running on budget. "What it used since it was chosen comes back one
/// period after it was chosen."
pub(crate) fn register(pending: &mut Vec<Replenishment>, parameters: &Parameters, run: &Use) {
    if run.used_ns == 0 {
        return;
    }
    let at_ns = run.chosen_ns + parameters.period_ns;
    let slack_ns = parameters.period_ns - parameters.budget_ns;
    let worth_ns = WORTH_NS.min(parameters.budget_ns / 16).min(slack_ns);
    pending.push(Replenishment {
        at_ns,
        amount_ns: run.used_ns,
        first_ns: at_ns,
    });
    let neighbours = pending.len() - 1;
    let to_merge = if neighbours > 0 && pending[neighbours - 1].amount_ns < worth_ns {
        Some(neighbours - 1)
    } else if pending.len() > PENDING_MAX {
        let late_ns = |&number: &usize| {
            let (earlier, later) = (&pending[number], &pending[number + 1]);
            merged_at_ns(earlier, later) - earlier.first_ns
        };
        (0..neighbours).min_by_key(late_ns)
    } else {
        None
    };
    if let Some(number) = to_merge {
        let later = pending.remove(number + 1);
        let earlier = &mut pending[number];
        earlier.at_ns = merged_at_ns(earlier, &later);
        earlier.amount_ns += later.amount_ns;
    }
}

/// The VCPU that comes first on a CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
struct First {
    vcpu: usize,
    /// Periodic: false while an idle task uses the budget of a blocked VCPU.
    awake: bool,
}

/// A CPU and its last decision.
struct Cpu {
    decided_ns: i64,
    /// The VCPU whose budget is used.
    first: Option<First>,
    /// The VCPU that runs without paying; its turn began when the CPU decided. Lending: the VCPU that
    /// runs.
    extra: Option<usize>,
    /// The VCPUs that wait for extra time, without the one that runs on it.
    extra_queue: Vec<usize>,
}

/// All VCPUs and CPUs under a policy with budgets.
pub(crate) struct Budgets {
    policy: Policy,
    quantum_ns: i64,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
    places_given: u64,
}

impl Budgets {
    pub(crate) fn new(host: &Host) -> Self {
        let mut vcpus = Vec::new();
        for domain in &host.domains {
            for vcpu in &domain.vcpus {
                vcpus.push(Vcpu {
                    cpu: vcpu.cpu as usize,
                    parameters: domain.parameters,
                    awake: false,
                    // The others get theirs by the first timer, at time 0.
                    budget_ns: match host.policy {
                        Policy::Sporadic | Policy::Lending => domain.parameters.budget_ns,
                        _ => 0,
                    },
                    place: None,
                    full_at_ns: 0,
                    run: None,
                    pending: Vec::new(),
                    leads_ns: BTreeMap::new(),
                    told: None,
                    is_late: false,
                });
            }
        }
        let cpus = (0..host.cpus)
            .map(|_| Cpu {
                decided_ns: 0,
                first: None,
                extra: None,
                extra_queue: Vec::new(),
            })
            .collect();
        Budgets {
            policy: host.policy,
            quantum_ns: host.settings.quantum_ns,
            vcpus,
            cpus,
            places_given: 0,
        }
    }

    /// Puts a VCPU behind its equals.
    fn give_place(&mut self, vcpu: usize) {
        self.places_given += 1;
        self.vcpus[vcpu].place = Some(self.places_given);
    }

    /// "First means: the smaller priority number (servers), the earlier end of the current period
    /// (SEDF). Among equals, the one that has been eligible longer."
    fn first(&self, cpu: usize) -> Option<First> {
        (0..self.vcpus.len())
            .filter(|&number| self.vcpus[number].cpu == cpu)
            .filter_map(|number| {
                let vcpu = &self.vcpus[number];
                let rank = match self.policy {
                    Policy::Sedf => vcpu.full_at_ns,
                    _ => i64::from(vcpu.parameters.priority),
                };
                vcpu.place.map(|place| (rank, place, number))
            })
            .min()
            .map(|(_, _, number)| First {
                vcpu: number,
                awake: self.vcpus[number].awake,
            })
    }

    fn lends(&self) -> bool {
        self.policy == Policy::Lending
    }

    fn is_sporadic(&self) -> bool {
        matches!(self.policy, Policy::Sporadic | Policy::Lending)
    }

    /// Lending: "the earliest deadline; those that have none, or were late when they told it, come
    /// after, by their priorities; equals stand in the order of the host file".
    fn most_urgent(&self, cpu: usize) -> Option<usize> {
        (0..self.vcpus.len())
            .filter(|&number| self.vcpus[number].cpu == cpu && self.vcpus[number].awake)
            .min_by_key(|&number| {
                let vcpu = &self.vcpus[number];
                match &vcpu.told {
                    Some(Told {
                        deadline_ns: Some(deadline_ns),
                        ..
                    }) if !vcpu.is_late => (false, *deadline_ns, number),
                    _ => (true, i64::from(vcpu.parameters.priority), number),
                }
            })
    }

    /// The VCPU that comes first, if it is awake; else whoever has extra time, or waits for it.
    fn should_run(&self, cpu: usize) -> Option<usize> {
        match self.first(cpu) {
            Some(first) if self.lends() && self.vcpus[first.vcpu].lead_to_serve().is_none() => {
                Some(first.vcpu)
            }
            _ if self.lends() => self.most_urgent(cpu),
            Some(first) if first.awake => Some(first.vcpu),
            _ if self.someone_is_eligible(cpu) => None,
            _ => {
                let cpu = &self.cpus[cpu];
                let goes_on = cpu
                    .extra
                    .filter(|&vcpu| self.vcpus[vcpu].wants_extra_time());
                goes_on.or(cpu.extra_queue.first().copied())
            }
        }
    }

    /// "A VCPU is eligible when it is runnable and has budget left."
    fn someone_is_eligible(&self, cpu: usize) -> bool {
        self.vcpus
            .iter()
            .any(|vcpu| vcpu.cpu == cpu && vcpu.awake && vcpu.budget_ns > 0)
    }

    /// A VCPU has more budget than it had.
    fn replenished(&mut self, number: usize) {
        let vcpu = &mut self.vcpus[number];
        if self.policy == Policy::Polling && !vcpu.awake {
            vcpu.budget_ns = 0;
            return;
        }
        let stands_in_order =
            vcpu.awake || self.policy == Policy::Periodic || !vcpu.leads_ns.is_empty();
        if stands_in_order && vcpu.place.is_none() {
            self.give_place(number);
        }
        for cpu in &mut self.cpus {
            cpu.extra_queue.retain(|&waiting| waiting != number);
        }
    }

    fn end_run(&mut self, number: usize) {
        let vcpu = &mut self.vcpus[number];
        if let Some(run) = vcpu.run.take() {
            register(&mut vcpu.pending, &vcpu.parameters, &run);
        }
    }

    /// When the VCPU's budget changes next by the clock, if it is to.
    fn due_ns(&self, number: usize) -> Option<i64> {
        let vcpu = &self.vcpus[number];
        match self.is_sporadic() {
            true => vcpu.pending.iter().map(|pending| pending.at_ns).min(),
            false => Some(vcpu.full_at_ns),
        }
    }

    fn replenish(&mut self, number: usize, now_ns: i64) {
        let sporadic = self.is_sporadic();
        let vcpu = &mut self.vcpus[number];
        if sporadic {
            for replenishment in vcpu.pending.extract_if(.., |one| one.at_ns <= now_ns) {
                vcpu.budget_ns += replenishment.amount_ns;
            }
        } else {
            vcpu.budget_ns = vcpu.parameters.budget_ns;
            while vcpu.full_at_ns <= now_ns {
                vcpu.full_at_ns += vcpu.parameters.period_ns;
            }
        }
        self.replenished(number);
    }
}

impl Rules for Budgets {
    fn event(&mut self, _vcpu: usize) {}

    fn wake(&mut self, number: usize, now_ns: i64) {
        let vcpu = &mut self.vcpus[number];
        vcpu.awake = true;
        if self.policy == Policy::Sedf {
            let (left_ns, full_at_ns) = (&mut vcpu.budget_ns, &mut vcpu.full_at_ns);
            renew_at_wake(left_ns, full_at_ns, &vcpu.parameters, now_ns);
        }
        // Under periodic, one with budget has kept its place.
        if vcpu.budget_ns > 0 && vcpu.place.is_none() {
            self.give_place(number);
        } else if vcpu.wants_extra_time() && self.policy != Policy::Lending {
            self.cpus[vcpu.cpu].extra_queue.push(number);
        }
    }

    /// Replenishments; with a quantum, at the first multiple of it that is not before they are due.
    /// CPUs in order; on each, what was due first comes first, then the order of the host file.
    fn timers(&mut self, now_ns: i64) {
        if self.quantum_ns > 0 && now_ns % self.quantum_ns != 0 {
            return;
        }
        let mut due: Vec<(usize, i64, usize)> = (0..self.vcpus.len())
            .filter_map(|number| {
                self.due_ns(number)
                    .map(|due_ns| (self.vcpus[number].cpu, due_ns, number))
            })
            .filter(|&(_, due_ns, _)| due_ns <= now_ns)
            .collect();
        due.sort();
        for (_, _, number) in due {
            self.replenish(number, now_ns);
        }
    }

    fn block(&mut self, number: usize) {
        let vcpu = &mut self.vcpus[number];
        vcpu.awake = false;
        if !vcpu.leads_ns.is_empty() {
            return; // its server has more to serve
        }
        if self.policy == Policy::Polling {
            vcpu.budget_ns = 0;
        }
        if self.policy != Policy::Periodic {
            vcpu.place = None;
        }
        self.end_run(number);
    }

    fn tell(&mut self, number: usize, told: Told, now_ns: i64) {
        let vcpu = &mut self.vcpus[number];
        if vcpu.told.and_then(|before| before.deadline_ns) != told.deadline_ns {
            vcpu.is_late = (told.deadline_ns).is_some_and(|deadline_ns| deadline_ns <= now_ns);
        }
        vcpu.told = Some(told);
    }

    fn has_reason(&self, number: usize, now_ns: i64) -> bool {
        let cpu = &self.cpus[number];
        let has_turn = cpu
            .extra
            .is_some_and(|vcpu| self.vcpus[vcpu].wants_extra_time());
        let turn_over = has_turn
            && !self.lends()
            && !cpu.extra_queue.is_empty()
            && now_ns - cpu.decided_ns >= EXTRA_TURN_NS;
        let quantum_over = self.quantum_ns > 0 && now_ns - cpu.decided_ns >= self.quantum_ns;
        self.should_run(number) != self.running(number) || turn_over || quantum_over
    }

    fn decide(&mut self, number: usize, now_ns: i64) {
        // "A VCPU that ran on extra time and still has no budget goes to the queue's end first",
        // and so does one that has just used its budget up.
        let ran_on_budget = self.cpus[number]
            .first
            .map(|first| first.vcpu)
            .filter(|&vcpu| self.running(number) == Some(vcpu));
        if let Some(vcpu) = self.running(number)
            && self.vcpus[vcpu].wants_extra_time()
            && !self.lends()
        {
            self.cpus[number].extra_queue.push(vcpu);
        }
        // "With a quantum: at each decision the running VCPU, if it is eligible, goes behind its
        // equals."
        if let Some(vcpu) = self.running(number)
            && self.quantum_ns > 0
            && self.vcpus[vcpu].awake
            && self.vcpus[vcpu].place.is_some()
        {
            self.give_place(vcpu);
        }
        if self.lends() {
            self.cpus[number].decided_ns = now_ns;
            self.cpus[number].extra = self.should_run(number);
            return;
        }

        let first = self.first(number);
        let on_budget = first.filter(|first| first.awake).map(|first| first.vcpu);
        let may_give_extra_time = !self.someone_is_eligible(number);
        let cpu = &mut self.cpus[number];
        cpu.decided_ns = now_ns;
        cpu.first = first;
        cpu.extra = if may_give_extra_time && !cpu.extra_queue.is_empty() {
            Some(cpu.extra_queue.remove(0))
        } else {
            None
        };

        // Sporadic: "A run that goes on across a decision (it is chosen again) is one run."
        if let Some(before) = ran_on_budget
            && on_budget != Some(before)
        {
            self.end_run(before);
        }
    }

    /// Without a decision, whoever comes first may be another: a blocked VCPU whose budget runs
    /// down, or the running one, which has budget again. Sporadic: a run begins when a VCPU is
    /// chosen, or when it has budget again while it runs. Lending: a run is a time in which the server
    /// serves.
    fn settle(&mut self, now_ns: i64) {
        for number in 0..self.cpus.len() {
            let first = self.first(number);
            let before = std::mem::replace(&mut self.cpus[number].first, first);
            let serves = |first: Option<First>| first.map(|first| first.vcpu);
            if self.lends()
                && let Some(before) = serves(before).filter(|_| serves(before) != serves(first))
            {
                self.end_run(before);
            }
            let vcpu = match first {
                Some(First { vcpu, .. }) if self.lends() => vcpu,
                Some(First { vcpu, awake: true }) => {
                    self.cpus[number].extra = None;
                    vcpu
                }
                _ => continue,
            };
            if self.is_sporadic() && self.vcpus[vcpu].run.is_none() {
                self.vcpus[vcpu].run = Some(Use {
                    chosen_ns: now_ns,
                    used_ns: 0,
                });
            }
        }
    }

    /// Whoever comes first on its CPU pays, be it for an idle task. A budget that is used up is so
    /// before anything else happens at that instant.
    fn pass(&mut self, unit_ns: i64) {
        for cpu in 0..self.cpus.len() {
            let serving = self.cpus[cpu].first.map(|first| first.vcpu);
            if self.lends() {
                let served = serving.and_then(|serving| self.vcpus[serving].lead_to_serve());
                if let (Some(serving), Some(order)) = (serving, served) {
                    self.vcpus[serving].serve_lead(order, unit_ns);
                }
                if let Some(running) = self.cpus[cpu].extra
                    && (serving != Some(running) || served.is_some())
                {
                    self.vcpus[running].gain_lead(unit_ns);
                }
            }
            let Some(number) = serving else { continue };
            let vcpu = &mut self.vcpus[number];
            vcpu.budget_ns -= unit_ns;
            if let Some(run) = &mut vcpu.run {
                run.used_ns += unit_ns;
            }
            let has_work =
                self.policy != Policy::Lending || vcpu.awake || !vcpu.leads_ns.is_empty();
            if vcpu.budget_ns == 0 || !has_work {
                vcpu.place = None;
                self.end_run(number);
            }
        }
    }

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        let cpu = &self.cpus[cpu];
        match cpu.first {
            Some(first) if first.awake && !self.lends() => Some(first.vcpu),
            _ => cpu.extra,
        }
    }
}
