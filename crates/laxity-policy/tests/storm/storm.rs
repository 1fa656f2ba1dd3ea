//! A storm: an embedder that does at random whatever it may do, and checks what comes of it.

use crate::budgets::{self, Budgets, Choice, Queue};
use crate::{credits, invalid, scheduler_s};
use laxity_policies::{Parameters, Part, Policy, Settings, WEIGHT_MAX};
use laxity_policy::{DumpLine, Event, NEVER, Refused, Report, Request};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

pub const PARAMETERS: Parameters = Parameters {
    budget_ns: 1,
    period_ns: 1,
    laxity_ns: 0,
    priority: 1,
    extratime: false,
    weight: laxity_policies::WEIGHT.standard as u32,
    cap_percent: 0,
    rt_priority: 1,
    quota_ns: 0,
    quota_period_ns: 100_000_000,
    quota_burst_ns: 0,
    phase_ns: 0,
    credit_ns: 10_000_000,
    reclaim: false,
};

/// What a dump of classes says.
const STATES: [&str; 4] = ["runs", "boost", "under", "over"];

/// Draws that read like the sentences that describe them.
struct Draw(Pcg64);

impl Draw {
    /// From `least` to `most`, both included. The bias of the remainder is far below what matters.
    fn between(&mut self, least: i64, most: i64) -> i64 {
        least + (self.0.next_u64() % (most - least + 1) as u64) as i64
    }

    fn percent(&mut self, percent: i64) -> bool {
        self.between(1, 100) <= percent
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn below(&mut self, count: usize) -> usize {
        self.between(0, count as i64 - 1) as usize
    }
}

/// Something that the policy asked for.
#[derive(Debug, Clone, Copy)]
struct Due {
    /// When it is due.
    at_ns: i64,
    /// When the embedder gets to it.
    served_ns: i64,
}

const NOT_DUE: Due = Due {
    at_ns: NEVER,
    served_ns: NEVER,
};

#[derive(Debug, Clone)]
struct Cpu {
    timer: Due,
    /// The end of the decision.
    end: Due,
    kick: Due,
    running: Option<usize>,
    /// When that was chosen.
    chosen_ns: i64,
    /// Scheduler S: up to when that has paid.
    charged_ns: i64,
}

#[derive(Debug)]
struct Vcpu {
    domain: usize,
    affinity: Vec<u32>,
    runnable: bool,
    added_ns: i64,
    credits: credits::Vcpu,
    known: scheduler_s::Vcpu,
}

#[derive(Debug, Clone, Copy)]
enum Service {
    Timer(usize),
    Account,
    Schedule(usize),
}

pub struct Storm {
    draw: Draw,
    policy: Policy,
    settings: Settings,
    instance: laxity_policy::Instance,
    /// The longest that a timer, a decision's end or a kick waits for the embedder; 0: on time.
    late_ns_max: i64,
    /// Whether parameters change.
    changes: bool,
    unit_ns: i64,
    period_units: i64,
    extratime_percent: i64,
    now: i64,
    cpus: Vec<Cpu>,
    account: Due,
    domains: Vec<Parameters>,
    vcpus: Vec<Vcpu>,
    budgets: Budgets,
    reports: Vec<Report>,
    /// LL: how often a real-time VCPU was moved.
    moves: i64,
}

impl Storm {
    pub fn new(seed: u64) -> Storm {
        let mut draw = Draw(Pcg64::seed_from_u64(seed));
        // Those of scheduler S are many and much alike.
        let is_scheduler_s = draw.percent(30);
        let policies: Vec<Policy> = (Policy::ALL.into_iter())
            .filter(|policy| !policy.is_model() && !policy.is_global())
            .filter(|policy| policy.is_scheduler_s() == is_scheduler_s)
            .collect();
        let policy = draw.one_of(&policies);
        let unit_ns = draw.one_of(&[1, 10, 1_000, 100_000, 1_000_000]);
        let settings = random_settings(&mut draw, unit_ns);
        let cpus = if policy.shares_by_weight() {
            draw.between(1, 4)
        } else {
            draw.between(1, 3)
        };
        let mut instance = laxity_policy::Instance::new(policy, &settings, cpus as u32)
            .expect("random settings are valid");
        instance.set_tracing(true);
        let cpu = Cpu {
            timer: NOT_DUE,
            end: NOT_DUE,
            kick: NOT_DUE,
            running: None,
            chosen_ns: 0,
            charged_ns: 0,
        };
        let late = draw.percent(30);
        let mut storm = Storm {
            late_ns_max: if late {
                unit_ns * draw.between(1, 4)
            } else {
                0
            },
            changes: draw.percent(60),
            period_units: draw.one_of(&[6, 12, 12, 40, 150]),
            extratime_percent: draw.one_of(&[0, 0, 30, 100]),
            draw,
            policy,
            settings,
            instance,
            unit_ns,
            now: 0,
            cpus: vec![cpu; cpus as usize],
            account: NOT_DUE,
            domains: Vec::new(),
            vcpus: Vec::new(),
            budgets: Budgets::new(policy, settings.quantum_ns, cpus as usize),
            reports: Vec::new(),
            moves: 0,
        };
        for _ in 0..storm.draw.between(1, 3) {
            storm.add_domain();
        }
        for _ in 0..storm.draw.between(1, 8) {
            storm.add_vcpu();
        }
        storm
    }

    pub fn run(&mut self) {
        for _ in 0..self.draw.between(100, 800) {
            self.step();
        }
        if !self.changes {
            self.check_windows();
        }
    }

    fn step(&mut self) {
        let due = self.due();
        if !due.is_empty() && self.draw.percent(70) {
            match self.draw.one_of(&due) {
                Service::Timer(cpu) => self.timer(cpu),
                Service::Account => self.account(),
                Service::Schedule(cpu) => self.schedule(cpu),
            }
        } else if !due.is_empty() || self.draw.percent(40) {
            self.act();
        } else {
            self.pass_time();
        }
        self.check_settled();
    }

    /// What the embedder gets to now.
    fn due(&self) -> Vec<Service> {
        let mut due = Vec::new();
        for (number, cpu) in self.cpus.iter().enumerate() {
            if cpu.timer.served_ns <= self.now {
                due.push(Service::Timer(number));
            }
            if cpu.end.served_ns <= self.now || cpu.kick.served_ns <= self.now {
                due.push(Service::Schedule(number));
            }
        }
        if self.account.served_ns <= self.now {
            due.push(Service::Account);
        }
        due
    }

    /// Nothing that is due is passed over.
    fn pass_time(&mut self) {
        let of_cpus = self
            .cpus
            .iter()
            .flat_map(|cpu| [cpu.timer, cpu.end, cpu.kick]);
        let served_ns = of_cpus.chain([self.account]).map(|due| due.served_ns);
        let next_ns = served_ns.min().expect("a CPU");
        let longest_ns = next_ns - self.now;
        let step_ns = self.unit_ns * self.draw.between(1, 10);
        self.now += match self.draw.between(1, 4) {
            1 => step_ns.min(longest_ns),
            2 => self.draw.between(1, step_ns).min(longest_ns),
            _ if next_ns == NEVER => step_ns,
            _ => longest_ns,
        };
    }

    fn act(&mut self) {
        let now = self.now;
        let vcpu = self.draw.below(self.vcpus.len());
        match self.draw.between(1, 100) {
            1..=36 => {
                let cpu = self.cpu_of(vcpu);
                if !self.vcpus[vcpu].runnable {
                    self.vcpus[vcpu].runnable = true;
                    let waits = self.policy.is_scheduler_s()
                        && self.cpus[cpu].running != Some(vcpu)
                        && self.vcpus[vcpu].credits.class != credits::PARKED;
                    if waits {
                        self.vcpus[vcpu].known.waits_since_ns = now;
                    }
                    let queue = waits.then(|| self.queue(cpu));
                    self.instance.wake(vcpu, now);
                    if self.has_budgets() {
                        self.budgets.wake(vcpu, now);
                    }
                    self.after(&[cpu]);
                    if let Some(queue) = queue {
                        self.check_place(cpu, queue, vcpu);
                    }
                } else {
                    self.event(vcpu);
                }
            }
            37..=40 => self.move_vcpu(vcpu),
            41..=55 => {
                let cpu = self.draw.below(self.cpus.len());
                if let Some(vcpu) = self.cpus[cpu].running {
                    // A VCPU blocks by itself, and the CPU decides there and then.
                    self.instance.block_running(vcpu);
                    self.vcpus[vcpu].runnable = false;
                    if self.has_budgets() {
                        self.budgets.vcpus[vcpu].runnable = false;
                    }
                    self.schedule(cpu);
                }
            }
            56..=63 => {
                let cpu = self.cpu_of(vcpu);
                if self.vcpus[vcpu].runnable {
                    self.vcpus[vcpu].runnable = false;
                    self.instance.sleep(vcpu, now);
                    if self.has_budgets() {
                        self.budgets.sleep(vcpu, now);
                    }
                    self.after(&[cpu]);
                }
            }
            64..=70 => {
                let cpu = self.cpu_of(vcpu);
                if self.vcpus[vcpu].runnable {
                    self.instance.yield_now(vcpu, now);
                    if self.has_budgets() {
                        self.budgets.yield_now(vcpu, now);
                    }
                    self.after(&[cpu]);
                }
            }
            71..=73 => self.tell(vcpu),
            74..=76 => {
                let cpu = self.draw.below(self.cpus.len());
                self.schedule(cpu);
            }
            77 | 78 if self.vcpus.len() < 10 => self.add_vcpu(),
            79..=82 => self.change_wrongly(vcpu),
            83..=94 if self.changes => self.change_parameters(vcpu),
            95..=97 if self.changes => self.change_settings(),
            98..=100 if self.changes => self.change_policy(),
            _ => {}
        }
    }

    /// A guest tells on what it works.
    fn tell(&mut self, vcpu: usize) {
        let cpu = self.cpu_of(vcpu);
        let deadline_ns = match self.draw.between(1, 5) {
            1 => NEVER,
            _ => self.now + self.unit_ns * self.draw.between(-2, 2 * self.period_units),
        };
        let order = self.draw.between(-1, 14);
        self.instance.tell(vcpu, deadline_ns, order, self.now);
        if self.budgets.lends() {
            self.budgets.tell(vcpu, deadline_ns, order, self.now);
            self.after(&[cpu]);
        }
    }

    /// A VCPU that is runnable already gets work.
    fn event(&mut self, vcpu: usize) {
        let cpu = self.cpu_of(vcpu);
        let boosted = self.policy.has(Part::Event)
            && self.domains[self.vcpus[vcpu].domain].laxity_ns > 0
            && self.cpus[cpu].running != Some(vcpu)
            && self.vcpus[vcpu].credits.class == credits::UNDER;
        let mut queue = self.queue(cpu);
        self.instance.event(vcpu, self.now);
        self.after(&[cpu]);
        let told = !self.reports.is_empty();
        assert_eq!(told, boosted, "VCPU {vcpu}: {:?}", self.reports);
        if boosted {
            assert_eq!(self.vcpus[vcpu].credits.class, credits::BOOST);
            queue.retain(|other| other.vcpu != vcpu);
            self.check_place(cpu, queue, vcpu);
        }
    }

    /// The queue of a CPU under scheduler S.
    fn queue(&mut self, cpu: usize) -> Vec<scheduler_s::Waiting> {
        let lines = scheduler_s::waiting(&self.instance.dump(cpu as u32));
        (lines.into_iter())
            .map(|(part, vcpu)| scheduler_s::Waiting {
                part,
                ..self.waiting(vcpu)
            })
            .collect()
    }

    fn waiting(&self, vcpu: usize) -> scheduler_s::Waiting {
        scheduler_s::Waiting {
            vcpu,
            part: self.vcpus[vcpu].credits.class,
            laxity_ns: self.domains[self.vcpus[vcpu].domain].laxity_ns,
            known: self.vcpus[vcpu].known,
        }
    }

    /// A VCPU came to its class's end of that queue, or to where its laxity puts it.
    fn check_place(&mut self, cpu: usize, mut queue: Vec<scheduler_s::Waiting>, vcpu: usize) {
        scheduler_s::enqueue(self.policy, &mut queue, self.waiting(vcpu));
        let expected: Vec<_> = queue.iter().map(|other| (other.part, other.vcpu)).collect();
        let found = scheduler_s::waiting(&self.instance.dump(cpu as u32));
        assert_eq!(found, expected, "where VCPU {vcpu} waits: {queue:?}");
    }

    /// Scheduler S: what the VCPU that runs on a CPU must have when it has paid up to now.
    fn charge(&mut self, cpu: usize) {
        let used_ns = self.now - self.cpus[cpu].charged_ns;
        self.cpus[cpu].charged_ns = self.now;
        if let Some(running) = self.cpus[cpu].running {
            self.vcpus[running].credits.credits_ns -= used_ns;
        }
    }

    /// If it is asleep and off its CPU.
    fn move_vcpu(&mut self, vcpu: usize) {
        let from = self.cpu_of(vcpu);
        let to = self.draw.one_of(&self.vcpus[vcpu].affinity);
        if self.vcpus[vcpu].runnable || self.cpus[from].running == Some(vcpu) {
            return;
        }
        self.instance.move_vcpu(vcpu, to, self.now);
        assert_eq!(self.instance.cpu_of(vcpu), to);
        if from == to as usize {
            return self.instance.take_requests(|request| {
                panic!("VCPU {vcpu} stays where it is, and yet {request:?}")
            });
        }
        if self.has_budgets() {
            self.budgets.move_vcpu(vcpu, to as usize, self.now);
        }
        self.after(&[from, to as usize]);
        let migration = Report {
            vcpu,
            event: Event::Migrate,
            argument: to.into(),
        };
        assert!(self.reports.contains(&migration), "{:?}", self.reports);
    }

    fn has_budgets(&self) -> bool {
        !self.policy.shares_by_weight()
    }

    fn cpu_of(&self, vcpu: usize) -> usize {
        self.instance.cpu_of(vcpu) as usize
    }

    fn random_parameters(&mut self) -> Parameters {
        let draw = &mut self.draw;
        let period_units = draw.between(2, self.period_units);
        let budget_units = match draw.between(1, 5) {
            1 => 1,
            2 => period_units,
            _ => draw.between(1, (period_units / 2).max(1)),
        };
        Parameters {
            budget_ns: budget_units * self.unit_ns,
            period_ns: period_units * self.unit_ns,
            laxity_ns: draw.one_of(&[0, 0, 1, 3, 10]) * self.unit_ns,
            priority: draw.between(1, 4) as u32,
            extratime: draw.percent(self.extratime_percent),
            weight: draw.one_of(&[1, 128, 256, 256, 512, WEIGHT_MAX as u32]),
            cap_percent: draw.one_of(&[0, 0, 10, 50, 150]),
            ..PARAMETERS
        }
    }

    fn add_domain(&mut self) {
        let parameters = self.random_parameters();
        self.instance
            .add_domain(&parameters)
            .expect("random parameters are valid");
        self.domains.push(parameters);
    }

    fn add_vcpu(&mut self) {
        let domain = self.draw.below(self.domains.len());
        let cpu = self.draw.below(self.cpus.len());
        let affinity: Vec<u32> = (0..self.cpus.len())
            .filter(|&other| other == cpu || self.draw.percent(60))
            .map(|cpu| cpu as u32)
            .collect();
        let parameters = self.random_parameters();
        let added = self
            .instance
            .add_vcpu(domain, cpu as u32, &affinity, &parameters, self.now);
        assert_eq!(added, Ok(self.vcpus.len()));
        let credits = credits::Vcpu::NEW;
        let added_ns = self.now;
        self.vcpus.push(Vcpu {
            domain,
            affinity,
            runnable: false,
            added_ns,
            credits,
            known: scheduler_s::Vcpu::default(),
        });
        if self.has_budgets() {
            self.budgets.add(cpu, parameters, self.now);
        }
        self.after(&[cpu]);
    }

    fn change_parameters(&mut self, vcpu: usize) {
        let cpu = self.cpu_of(vcpu);
        if self.has_budgets() {
            let parameters = self.random_parameters();
            assert_eq!(self.instance.set_vcpu(vcpu, &parameters, self.now), Ok(()));
            self.budgets.set(vcpu, parameters, self.now);
        } else {
            let domain = self.draw.below(self.domains.len());
            let parameters = self.random_parameters();
            assert_eq!(
                self.instance.set_domain(domain, &parameters, self.now),
                Ok(())
            );
            self.domains[domain] = parameters;
        }
        self.after(&[cpu]);
    }

    fn change_settings(&mut self) {
        self.settings = random_settings(&mut self.draw, self.unit_ns);
        assert_eq!(self.instance.set_settings(&self.settings, self.now), Ok(()));
        if self.has_budgets() {
            self.budgets.set_quantum(self.settings.quantum_ns, self.now);
        }
        self.after_all();
    }

    fn change_policy(&mut self) {
        let group = self.policy.switch_group();
        let policies: Vec<Policy> = (Policy::ALL.into_iter())
            .filter(|policy| policy.switch_group() == group)
            .collect();
        let policy = self.draw.one_of(&policies);
        assert_eq!(self.instance.become_policy(policy, self.now), Ok(()));
        if policy != self.policy && self.has_budgets() {
            self.budgets.become_policy(policy, self.now);
        }
        self.policy = policy;
        self.after_all();
    }

    /// What is wrong is refused for what is wrong with it, and nothing has changed.
    fn change_wrongly(&mut self, vcpu: usize) {
        let before = self.dump_all();
        let mut parameters = self.random_parameters();
        let mut settings = random_settings(&mut self.draw, self.unit_ns);
        settings.tick_ns += settings.tick_ns % 2; // so that half a tick is no whole one
        settings.accounting_ns = settings.tick_ns.max(2);
        settings.tick_ns = settings.accounting_ns;
        settings.accounting_phase_ns = 0;
        let now = self.now;
        let (found, expected) = match self.draw.between(1, 4) {
            1 if self.has_budgets() => {
                let (spoil, refused) = self.draw.one_of(invalid::parameters(self.policy));
                spoil(&mut parameters);
                (self.instance.set_vcpu(vcpu, &parameters, now), refused)
            }
            1 => {
                let (spoil, refused) = self.draw.one_of(invalid::parameters(self.policy));
                spoil(&mut parameters);
                let domain = self.draw.below(self.domains.len());
                (self.instance.set_domain(domain, &parameters, now), refused)
            }
            2 => {
                let (spoil, refused) = self.draw.one_of(invalid::settings(self.policy));
                spoil(&mut settings);
                (self.instance.set_settings(&settings, now), refused)
            }
            3 if self.has_budgets() => {
                let (spoil, refused) = self.draw.one_of(invalid::parameters(self.policy));
                spoil(&mut parameters);
                (
                    self.instance
                        .add_vcpu(0, 0, &[0], &parameters, now)
                        .map(drop),
                    refused,
                )
            }
            _ => {
                let group = self.policy.switch_group();
                let others: Vec<Policy> = (Policy::ALL.into_iter())
                    .filter(|policy| policy.switch_group() != group)
                    .collect();
                let other = self.draw.one_of(&others);
                (self.instance.become_policy(other, now), Refused::Switch)
            }
        };
        assert_eq!(found, Err(expected));
        assert_eq!(self.dump_all(), before);
        self.instance
            .take_requests(|request| panic!("refused, and yet {request:?}"));
        self.instance
            .take_reports(|report| panic!("refused, and yet {report:?}"));
    }

    fn timer(&mut self, cpu: usize) {
        let before = self.cpus[cpu].running.map(|vcpu| self.vcpus[vcpu].credits);
        self.cpus[cpu].timer = NOT_DUE;
        let charged_ns = self.cpus[cpu].charged_ns;
        self.instance.timer(cpu as u32, self.now);
        if self.has_budgets() {
            self.budgets.timer(cpu, self.now);
        }
        self.after(&[cpu]);
        if !self.has_budgets()
            && let Some(before) = before
        {
            self.check_tick(cpu, before, self.now - charged_ns);
        }
    }

    /// A tick takes a whole tick (scheduler S: what was used), ends a boost, and sees to it that accounting follows.
    fn check_tick(&mut self, cpu: usize, before: credits::Vcpu, used_ns: i64) {
        let vcpu = self.cpus[cpu].running.expect("it runs");
        let charge_ns = if self.policy.is_scheduler_s() {
            self.cpus[cpu].charged_ns = self.now;
            used_ns
        } else {
            self.settings.tick_ns
        };
        let after = self.vcpus[vcpu].credits;
        assert_eq!(
            after.credits_ns,
            before.credits_ns - charge_ns,
            "VCPU {vcpu}"
        );
        assert_ne!(after.class, credits::BOOST, "VCPU {vcpu}");
        let by_ns = self.now + self.settings.accounting_ns;
        assert!(
            charge_ns == 0 || self.account.at_ns <= by_ns,
            "no accounting follows: {:?}",
            self.account
        );
    }

    fn account(&mut self) {
        self.account = NOT_DUE;
        if self.policy.is_scheduler_s() {
            for cpu in 0..self.cpus.len() {
                self.charge(cpu);
            }
        }
        let before: Vec<_> = self.vcpus.iter().map(|vcpu| vcpu.credits).collect();
        self.instance.account(self.now);
        self.after_all();
        if self.policy.is_scheduler_s() {
            self.check_accounting_of_scheduler_s(&before);
        } else {
            self.check_accounting(&before);
        }
    }

    /// The VCPUs of a domain have the same, no more is given than there is, nor to a domain more than
    /// its cap, and nothing is lost but what is above the bound.
    fn check_accounting_of_scheduler_s(&mut self, before: &[credits::Vcpu]) {
        let accounting_ns = self.settings.accounting_ns;
        let mut all_given_ns = 0;
        for (number, domain) in self.domains.clone().iter().enumerate() {
            let vcpus: Vec<usize> = (0..self.vcpus.len())
                .filter(|&vcpu| self.vcpus[vcpu].domain == number)
                .collect();
            let replenished = |vcpu: usize| {
                let told = |report: &&Report| report.vcpu == vcpu;
                (self.reports.iter().filter(told)).any(|report| report.event == Event::Replenish)
            };
            let Some(&first) = vcpus.iter().find(|&&vcpu| replenished(vcpu)) else {
                continue;
            };
            let each = self.vcpus[first].credits;
            assert!((-accounting_ns..=accounting_ns).contains(&each.credits_ns));
            for &vcpu in &vcpus {
                let after = self.vcpus[vcpu].credits;
                assert_eq!(after.credits_ns, each.credits_ns, "VCPU {vcpu}");
                let runs = self.cpus.iter().any(|cpu| cpu.running == Some(vcpu));
                let unparked = before[vcpu].class == credits::PARKED && !runs;
                if unparked && after.class != credits::PARKED {
                    self.vcpus[vcpu].known.waits_since_ns = self.now;
                }
                let infinite = self.policy.has(Part::Infinite) && domain.laxity_ns > 0;
                let expected = match (after.credits_ns < 0, domain.cap_percent > 0) {
                    (true, true) => credits::PARKED,
                    (true, false) if !infinite => credits::OVER,
                    _ => credits::UNDER,
                };
                assert_eq!(after.class, expected, "VCPU {vcpu}: {after:?}");
            }
            let count = vcpus.len() as i64;
            let had_ns: i64 = vcpus.iter().map(|&vcpu| before[vcpu].credits_ns).sum();
            let given_ns = each.credits_ns * count - had_ns;
            let is_full = each.credits_ns == 0 && had_ns + accounting_ns * count >= 0;
            if each.credits_ns > -accounting_ns && !is_full {
                let rounded_ns = count - 1;
                assert!(given_ns >= -rounded_ns, "credits are lost: {given_ns}");
                let cap_ns = accounting_ns * i64::from(domain.cap_percent) / 100;
                assert!(
                    domain.cap_percent == 0 || given_ns <= cap_ns + rounded_ns,
                    "{given_ns} above {cap_ns}"
                );
                all_given_ns += given_ns - rounded_ns;
            }
        }
        let all_ns = accounting_ns * self.cpus.len() as i64;
        assert!(all_given_ns <= all_ns, "{all_given_ns} above {all_ns}");
    }

    /// No more is given than there is, nor to a domain more than its cap, and credits stay in bounds.
    fn check_accounting(&self, before: &[credits::Vcpu]) {
        let accounting_ns = self.settings.accounting_ns;
        let mut given_ns = vec![0; self.domains.len()];
        for (index, (vcpu, before)) in self.vcpus.iter().zip(before).enumerate() {
            let after = vcpu.credits;
            if !self.reports.iter().any(|report| report.vcpu == index) {
                continue;
            }
            assert!(
                (-accounting_ns..=accounting_ns).contains(&after.credits_ns),
                "{vcpu:?}"
            );
            assert_ne!(after.class, credits::BOOST, "VCPU {index}");
            let has_cap = self.domains[vcpu.domain].cap_percent > 0;
            let expected = match (after.credits_ns < 0, has_cap) {
                (false, _) => credits::UNDER,
                (true, false) => credits::OVER,
                (true, true) => credits::PARKED,
            };
            assert_eq!(after.class, expected, "VCPU {index}: {after:?}");
            // Credits that were forgiven at the lower bound were not given.
            if after.credits_ns > -accounting_ns {
                given_ns[vcpu.domain] += (after.credits_ns - before.credits_ns).max(0);
            }
        }
        for (domain, given_ns) in self.domains.iter().zip(&given_ns) {
            let cap_ns = accounting_ns * i64::from(domain.cap_percent) / 100;
            assert!(
                domain.cap_percent == 0 || *given_ns <= cap_ns,
                "{given_ns} above {cap_ns}"
            );
        }
        let all_ns = accounting_ns * self.cpus.len() as i64;
        assert!(
            given_ns.iter().sum::<i64>() <= all_ns,
            "{given_ns:?} above {all_ns}"
        );
    }

    fn schedule(&mut self, cpu: usize) {
        let now = self.now;
        self.cpus[cpu].kick = NOT_DUE;
        let expected = if self.policy.is_scheduler_s() {
            (self.choice_of_scheduler_s(cpu), None)
        } else if self.has_budgets() {
            let (run, until_ns) = self.budgets.schedule(cpu, now);
            (run, Some(until_ns))
        } else {
            (self.credit_choice(cpu), None)
        };
        let repeated = self.instance.repeats(cpu as u32, now);
        let decision = if repeated && self.draw.between(0, 1) == 0 {
            self.instance.repeat(cpu as u32, now)
        } else {
            self.instance.schedule(cpu as u32, now)
        };
        if repeated {
            assert_eq!(decision.vcpu, self.cpus[cpu].running, "CPU {cpu} repeats");
            let quantum_ns = self.settings.quantum_ns;
            assert_eq!(decision.until_ns, now + quantum_ns, "CPU {cpu} repeats");
        }
        // For some decisions the embedder says how long they take.
        let switched_ns = match self.draw.between(1, 4) {
            1 => now + self.draw.between(0, 3 * self.unit_ns),
            _ => 0,
        };
        self.instance.set_switched(cpu as u32, switched_ns);
        if self.has_budgets() {
            self.budgets.cpus[cpu].switched_ns = switched_ns;
        }
        self.cpus[cpu].running = decision.vcpu;
        self.cpus[cpu].chosen_ns = now;
        self.cpus[cpu].charged_ns = now;
        self.cpus[cpu].end = self.from(decision.until_ns);
        if let Some(vcpu) = decision.vcpu {
            assert!(
                self.vcpus[vcpu].runnable,
                "VCPU {vcpu} runs and has nothing to do"
            );
            assert!(
                self.vcpus[vcpu].affinity.contains(&(cpu as u32)),
                "VCPU {vcpu} on CPU {cpu}"
            );
            assert_eq!(self.cpu_of(vcpu), cpu);
            let places = self
                .cpus
                .iter()
                .filter(|cpu| cpu.running == Some(vcpu))
                .count();
            assert_eq!(places, 1, "VCPU {vcpu} runs twice");
        }
        assert!(
            decision.until_ns > now,
            "a decision for no time: {decision:?}"
        );
        let moved = self.policy.has(Part::Bind) && self.takes_move(cpu);
        if !moved {
            assert_eq!(decision.vcpu, expected.0, "CPU {cpu} at {now}, who runs");
        }
        if let Some(until_ns) = expected.1 {
            assert_eq!(decision.until_ns, until_ns, "CPU {cpu}, until when");
        }
        self.after_schedule(cpu);
    }

    /// LL: whether a real-time VCPU was moved to the CPU at this decision. That happens at most once a
    /// second, since the accounting of each tells one.
    fn takes_move(&mut self, cpu: usize) -> bool {
        self.take();
        let moved = self.reports.iter().find(|report| {
            let domain = self.vcpus[report.vcpu].domain;
            report.event == Event::Migrate && self.domains[domain].laxity_ns > 0
        });
        if let Some(report) = moved {
            assert_eq!(report.argument, cpu as i64);
            self.moves += 1;
            assert!(self.moves <= self.now / 1_000_000_000, "moved too often");
        }
        moved.is_some()
    }

    /// The VCPU that scheduler S must choose. What it did before is over then.
    fn choice_of_scheduler_s(&mut self, cpu: usize) -> Option<usize> {
        self.charge(cpu);
        let mut queues: Vec<_> = (0..self.cpus.len()).map(|cpu| self.queue(cpu)).collect();
        if let Some(before) = self.cpus[cpu].running {
            let ran_ns = self.now - self.cpus[cpu].chosen_ns;
            if ran_ns > 0 {
                self.vcpus[before].known.last_run_ns = ran_ns;
            }
            let class = self.vcpus[before].credits.class;
            if self.vcpus[before].runnable && class != credits::PARKED {
                self.vcpus[before].known.waits_since_ns = self.now;
                let waiting = self.waiting(before);
                scheduler_s::enqueue(self.policy, &mut queues[cpu], waiting);
            }
        }
        let vcpus = &self.vcpus;
        scheduler_s::choice(self.policy, cpu, &queues, |vcpu, cpu| {
            vcpus[vcpu].affinity.contains(&(cpu as u32))
        })
    }

    /// The VCPU that credit must choose.
    fn credit_choice(&mut self, cpu: usize) -> Option<usize> {
        let dumps = self.dump_all();
        let mut waiting: Vec<_> = dumps.iter().map(|lines| credits::waiting(lines)).collect();
        if let Some(vcpu) = self.cpus[cpu].running
            && self.vcpus[vcpu].runnable
            && self.vcpus[vcpu].credits.class != credits::PARKED
        {
            waiting[cpu][self.vcpus[vcpu].credits.class as usize].push(vcpu);
        }
        let vcpus = &self.vcpus;
        credits::choice(cpu, &waiting, |vcpu, cpu| {
            vcpus[vcpu].affinity.contains(&(cpu as u32))
        })
    }

    /// When the embedder gets to what is due then.
    fn from(&mut self, at_ns: i64) -> Due {
        let late_ns = self.draw.between(0, self.late_ns_max);
        Due {
            at_ns,
            served_ns: at_ns.saturating_add(late_ns),
        }
    }

    /// Takes what the policy asked for and reported.
    fn take(&mut self) {
        let mut requests = Vec::new();
        self.instance
            .take_requests(|request| requests.push(request));
        for request in requests {
            match request {
                Request::ArmTimer(cpu, at_ns) => self.cpus[cpu as usize].timer = self.from(at_ns),
                Request::Extend(cpu, at_ns) => self.cpus[cpu as usize].end = self.from(at_ns),
                Request::ArmAccount(at_ns) => self.account = self.from(at_ns),
                Request::Kick(cpu) => {
                    if self.cpus[cpu as usize].kick.at_ns == NEVER {
                        self.cpus[cpu as usize].kick = self.from(self.now);
                    }
                }
            }
        }
        self.reports.clear();
        let Storm {
            instance,
            reports,
            vcpus,
            ..
        } = self;
        instance.take_reports(|report| {
            vcpus[report.vcpu].credits.hear(&report);
            reports.push(report);
        });
    }

    /// After an operation that concerned these CPUs.
    fn after(&mut self, cpus: &[usize]) {
        self.take();
        if self.has_budgets() {
            for &cpu in cpus {
                self.budgets.review(cpu, self.now);
                self.check_budgets(cpu);
            }
        }
    }

    fn after_all(&mut self) {
        let all: Vec<usize> = (0..self.cpus.len()).collect();
        self.after(&all);
    }

    fn after_schedule(&mut self, cpu: usize) {
        self.take();
        if self.has_budgets() {
            assert_eq!(
                self.cpus[cpu].kick.at_ns, NEVER,
                "a decision that is not the last word"
            );
            self.check_budgets(cpu);
        }
    }

    fn dump_all(&mut self) -> Vec<Vec<DumpLine>> {
        (0..self.cpus.len())
            .map(|cpu| self.instance.dump(cpu as u32))
            .collect()
    }

    /// Every budget is what the rules say, right after an operation on the CPU.
    fn check_budgets(&mut self, cpu: usize) {
        if self.instance.is_repeated(cpu as u32) {
            return; // the next operation accounts for the time before the decision that was left out
        }
        let on_time = self.late_ns_max == 0;
        for line in self.instance.dump(cpu as u32) {
            let expected = &self.budgets.vcpus[line.vcpu];
            let state = if self.cpus[cpu].running == Some(line.vcpu) {
                "runs"
            } else {
                match expected.queue {
                    Queue::Run => "RunQ",
                    Queue::Ready => "RdyQ",
                    Queue::Neither if !expected.runnable => "blocked",
                    Queue::Neither if expected.parameters.extratime && !self.budgets.lends() => {
                        "extra"
                    }
                    Queue::Neither => "no budget",
                }
            };
            let found = (line.left_ns, line.next_ns, line.state.as_str());
            let due_ns = self.budgets.due_ns(line.vcpu);
            assert_eq!(
                found,
                (expected.left_ns, due_ns, state),
                "{line:?} against {expected:?}"
            );
            assert!(
                line.left_ns <= expected.parameters.budget_ns,
                "amplified: {line:?}"
            );
            assert!(!on_time || line.left_ns >= 0, "overrun: {line:?}");
            if self.budgets.is_sporadic() {
                assert_eq!(
                    self.budgets.sum_ns(line.vcpu),
                    expected.parameters.budget_ns
                );
            }
        }
    }

    /// On every CPU for which nothing is waiting to be served, the right one runs, and the embedder
    /// will hear of all that time brings.
    fn check_settled(&mut self) {
        if !self.has_budgets() {
            self.check_queues();
        }
        for cpu in 0..self.cpus.len() {
            let Cpu {
                timer,
                end,
                kick,
                running,
                ..
            } = self.cpus[cpu].clone();
            if timer.at_ns <= self.now || end.at_ns <= self.now || kick.at_ns <= self.now {
                continue;
            }
            if !self.has_budgets() {
                self.check_settled_credit(cpu);
                continue;
            }
            let choice = self.budgets.choice(cpu);
            assert_eq!(running, choice.run, "CPU {cpu} at {}", self.now);
            assert_eq!(timer.at_ns, self.budgets.timer_ns(cpu), "CPU {cpu}'s timer");
            self.check_order(cpu, choice);
            self.check_returns(cpu);
            let used_until_ns = self.budgets.cpus[cpu].used_until_ns;
            let until_ns = self.budgets.until_ns(cpu, choice, used_until_ns);
            assert!(
                running.is_none() || end.at_ns <= until_ns,
                "CPU {cpu}: {end:?} after {until_ns}"
            );
        }
    }

    /// No lost wake-up, no lower priority before a higher one, no extra time ahead of budget.
    fn check_order(&self, cpu: usize, choice: Choice) {
        let rank = |vcpu: usize| match self.policy {
            Policy::Sedf => self.budgets.due_ns(vcpu),
            _ => self.budgets.vcpus[vcpu].parameters.priority.into(),
        };
        let running = self.cpus[cpu].running;
        if self.budgets.lends() {
            return self.check_lending(cpu, choice, rank);
        }
        let burns_for_blocked = choice.burn.is_some_and(|vcpu| !self.vcpus[vcpu].runnable);
        for (waiting, vcpu) in self.budgets.vcpus.iter().enumerate() {
            if vcpu.cpu != cpu || !self.vcpus[waiting].runnable || running == Some(waiting) {
                continue;
            }
            match running {
                _ if vcpu.left_ns <= 0 => assert!(
                    running.is_some() || burns_for_blocked || !vcpu.parameters.extratime,
                    "VCPU {waiting} waits for extra time, and the CPU idles"
                ),
                Some(running) => {
                    assert!(
                        self.budgets.vcpus[running].left_ns > 0,
                        "extra time before budget"
                    );
                    assert!(rank(running) <= rank(waiting), "{running} before {waiting}");
                }
                None => {
                    let blocked = choice.burn.expect("a VCPU with budget waits for nobody");
                    assert!(
                        burns_for_blocked && rank(blocked) <= rank(waiting),
                        "lost wake-up"
                    );
                }
            }
        }
    }

    /// Lending: no VCPU waits whose server comes first and has no lead to serve before, and no CPU idles
    /// while a VCPU is runnable.
    fn check_lending(&self, cpu: usize, choice: Choice, rank: impl Fn(usize) -> i64) {
        let running = self.cpus[cpu].running;
        for (waiting, vcpu) in self.budgets.vcpus.iter().enumerate() {
            if vcpu.cpu != cpu || !vcpu.runnable || running == Some(waiting) {
                continue;
            }
            assert!(running.is_some(), "lost wake-up");
            if vcpu.left_ns > 0 {
                let serving = choice.burn.expect("a server with budget serves");
                assert!(rank(serving) <= rank(waiting), "{serving} before {waiting}");
                let is_owed = vcpu.lead_to_serve_ns() == 0;
                assert!(serving != waiting || !is_owed, "{waiting} is owed");
            }
        }
    }

    /// Every VCPU that may run runs or stands in its CPU's queue, once, in the class that it is in.
    fn check_queues(&mut self) {
        let dumps = self.dump_all();
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let lines = dumps.iter().enumerate().flat_map(|(cpu, lines)| {
                let mine = lines.iter().filter(move |line| line.vcpu == index);
                mine.map(move |line| (cpu, line.state.as_str()))
            });
            let found: Vec<_> = lines.collect();
            let cpu = self.instance.cpu_of(index) as usize;
            let class = vcpu.credits.class;
            let expected = if self.cpus[cpu].running == Some(index) {
                vec![(cpu, STATES[0])]
            } else if vcpu.runnable && class != credits::PARKED {
                vec![(cpu, STATES[1 + class as usize])]
            } else {
                vec![]
            };
            if self.policy.is_scheduler_s() && expected.len() == 1 && found.len() == 1 {
                // Laxity may have put it into a better part.
                let part = |state: &str| STATES.iter().position(|&one| one == state);
                let in_place = found[0].0 == cpu && part(found[0].1) <= part(expected[0].1);
                assert!(in_place, "VCPU {index}: {found:?} for {expected:?}");
            } else {
                assert_eq!(found, expected, "VCPU {index}: {vcpu:?}");
            }
            for line in dumps.iter().flatten().filter(|line| line.vcpu == index) {
                assert_eq!(line.left_ns, vcpu.credits.credits_ns, "VCPU {index}");
            }
        }
    }

    fn check_settled_credit(&mut self, cpu: usize) {
        let waiting = credits::waiting(&self.instance.dump(cpu as u32));
        let Cpu {
            timer,
            end,
            running,
            ..
        } = self.cpus[cpu].clone();
        let Some(running) = running else {
            // LL: who is to move may be left to the CPU to which it goes, which is then called.
            let calls = |cpu: &Cpu| cpu.kick.at_ns != NEVER;
            let is_left = self.policy.has(Part::Bind) && self.cpus.iter().any(calls);
            assert!(
                is_left || waiting.iter().all(Vec::is_empty),
                "CPU {cpu} idles, and {waiting:?} wait"
            );
            return;
        };
        assert!(
            timer.at_ns <= self.now + self.settings.tick_ns,
            "no tick comes: {timer:?}"
        );
        let class = self.vcpus[running].credits.class;
        if class != credits::PARKED && waiting[..=class as usize].iter().any(|all| !all.is_empty())
        {
            let by_ns = self.now + self.settings.time_slice_ns;
            assert!(end.at_ns <= by_ns, "a turn without end: {end:?}");
        }
    }

    /// With constant parameters, nothing that a sporadic server used comes back later than a sixteenth of a
    /// period after it would by itself, and at no time is more than that late, but for trifles. Where
    /// the budget is the whole period nobody is ever without.
    fn check_returns(&self, cpu: usize) {
        if !self.budgets.is_sporadic() || self.changes || self.late_ns_max > 0 {
            return;
        }
        let quantum_ns = self.budgets.quantum_ns;
        // One that rests gets everything when it wakes.
        let waits = |vcpu: &&budgets::Vcpu| vcpu.cpu == cpu && !vcpu.rests;
        for vcpu in self.budgets.vcpus.iter().filter(waits) {
            let Parameters {
                budget_ns,
                period_ns,
                ..
            } = vcpu.parameters;
            let late_ns = (period_ns + quantum_ns) / 16;
            let worth_ns = vcpu.worth_ns();
            let now = self.now - quantum_ns;
            let came_back_ns = vcpu.came_back_ns();
            assert!(
                came_back_ns >= vcpu.runs_back_ns(now - late_ns) - worth_ns,
                "late by more than {late_ns}: {vcpu:?}"
            );
            assert!(
                came_back_ns >= vcpu.each_back_ns(now) - worth_ns.max(late_ns),
                "more than {late_ns} is late: {vcpu:?}"
            );
            assert!(
                budget_ns < period_ns || vcpu.left_ns > 0 || quantum_ns > 0,
                "without budget, which is all: {vcpu:?}"
            );
        }
    }

    /// Under SEDF, with constant parameters, a VCPU uses no more than its slice a period within any time
    /// that begins with a wake or a period and ends with a period. All slices that fit beside one
    /// another are therefore served, whatever the VCPUs do.
    fn check_slices(&self) {
        if self.late_ns_max > 0 || self.budgets.quantum_ns > 0 {
            return;
        }
        for (index, vcpu) in self.budgets.vcpus.iter().enumerate() {
            let Parameters {
                budget_ns,
                period_ns,
                ..
            } = vcpu.parameters;
            for (number, first) in vcpu.slices.iter().enumerate() {
                let mut used_ns = 0;
                for slice in &vcpu.slices[number..] {
                    used_ns += slice.used_ns;
                    let window_ns = slice.deadline_ns - first.from_ns;
                    assert!(
                        i128::from(used_ns) * i128::from(period_ns)
                            <= i128::from(window_ns) * i128::from(budget_ns),
                        "VCPU {index} used {used_ns} from {first:?} to {slice:?}"
                    );
                }
            }
        }
    }

    /// With constant parameters, how much budget is used in any window of one period.
    fn check_windows(&self) {
        if !self.has_budgets() {
            return;
        }
        if self.policy == Policy::Sedf {
            return self.check_slices();
        }
        for (index, vcpu) in self.budgets.vcpus.iter().enumerate() {
            let Parameters {
                budget_ns,
                period_ns,
                ..
            } = vcpu.parameters;
            let bound_ns = budget_ns + self.late_ns_max;
            let used_ns = |from_ns: i64, to_ns: i64| {
                let within = vcpu
                    .uses
                    .iter()
                    .map(|&(start_ns, end_ns)| (end_ns.min(to_ns) - start_ns.max(from_ns)).max(0));
                within.sum::<i64>()
            };
            if self.budgets.is_sporadic() {
                for &(start_ns, end_ns) in &vcpu.uses {
                    let used_ns = used_ns(start_ns, start_ns + period_ns)
                        .max(used_ns(end_ns - period_ns, end_ns));
                    assert!(
                        used_ns <= bound_ns,
                        "VCPU {index} used {used_ns} from {start_ns}"
                    );
                }
                continue;
            }
            // Between two replenishments.
            let mut due_ns = self.vcpus[index].added_ns;
            while due_ns < self.now {
                let from_ns = self.budgets.on_quantum(due_ns);
                while due_ns < self.now && self.budgets.on_quantum(due_ns) == from_ns {
                    due_ns += period_ns;
                }
                let used_ns = used_ns(from_ns, self.budgets.on_quantum(due_ns));
                // A late replenishment lets what it replaces be used after its time.
                let late_ns = if self.late_ns_max > 0 { budget_ns } else { 0 };
                assert!(
                    used_ns <= bound_ns + late_ns,
                    "VCPU {index} used {used_ns} from {from_ns}"
                );
            }
        }
    }
}

fn random_settings(draw: &mut Draw, unit_ns: i64) -> Settings {
    let tick_ns = unit_ns * draw.between(1, 10);
    let accounting_ns = tick_ns * draw.between(1, 4);
    let phase_ns = draw.between(0, accounting_ns - 1);
    Settings {
        quantum_ns: unit_ns * draw.one_of(&[0, 0, 0, 1, 2, 3, 5, 10]),
        time_slice_ns: unit_ns * draw.between(1, 30),
        tick_ns,
        accounting_ns,
        accounting_phase_ns: draw.one_of(&[0, phase_ns]),
        ..Settings::default()
    }
}
