//! Storms over servers and SEDF with one order for all CPUs: random wakes, sleeps, blocks, yields, new parameters and
//! changes of the policy. When all that is due has been served, the first of the order run, as
//! docs/explanation/policies.md says, and no VCPU has used more than its budget.

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{DumpLine, Event, Instance, NEVER, Request};
use laxity_trials::{Draw, seeds};

struct Vcpu {
    parameters: Parameters,
    affinity: Vec<u32>,
    runnable: bool,
    /// When it ran, while its parameters were what they are.
    ran: Vec<(i64, i64)>,
    /// What it used since its last replenishment.
    used_ns: i64,
    /// The end of its period under SEDF.
    due_ns: i64,
}

struct Cpu {
    end_ns: i64,
    kicked: bool,
    running: Option<usize>,
}

struct Storm {
    seed: u64,
    draw: Draw,
    policy: Policy,
    instance: Instance,
    now: i64,
    account_ns: i64,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut draw = Draw::new(seed);
        let policies: Vec<Policy> = (Policy::ALL.into_iter())
            .filter(|policy| policy.is_global())
            .collect();
        let policy = draw.one_of(&policies);
        let cpus = draw.between(1, 4) as u32;
        let mut instance = Instance::new(policy, &Settings::default(), cpus).expect("valid");
        instance.set_tracing(true);
        let cpu = || Cpu {
            end_ns: NEVER,
            kicked: false,
            running: None,
        };
        let mut storm = Storm {
            seed,
            draw,
            policy,
            instance,
            now: 0,
            account_ns: NEVER,
            vcpus: Vec::new(),
            cpus: (0..cpus).map(|_| cpu()).collect(),
        };
        let parameters = storm.parameters();
        storm.instance.add_domain(&parameters).expect("valid");
        let in_clusters = storm.draw.between(0, 1) == 0;
        for _ in 0..storm.draw.between(1, 9) {
            let parameters = storm.parameters();
            let home = storm.draw.between(0, i64::from(cpus) - 1) as u32;
            let mut is_on = |cpu: u32| match in_clusters {
                true => cpu / 2 == home / 2,
                false => cpu == home || storm.draw.between(0, 9) < 7,
            };
            let affinity: Vec<u32> = (0..cpus).filter(|&cpu| is_on(cpu)).collect();
            let instance = &mut storm.instance;
            let added = instance.add_vcpu(0, home, &affinity, &parameters, 0);
            added.expect("valid");
            storm.vcpus.push(Vcpu {
                parameters,
                affinity,
                runnable: false,
                ran: Vec::new(),
                used_ns: 0,
                due_ns: 0,
            });
        }
        storm.take();
        storm
    }

    fn parameters(&mut self) -> Parameters {
        let period_ns = self.draw.between(2, 40);
        Parameters {
            budget_ns: self.draw.between(1, period_ns),
            period_ns,
            priority: self.draw.between(1, 4) as u32,
            ..Parameters::default()
        }
    }

    fn run(&mut self) {
        for _ in 0..200 {
            for _ in 0..self.draw.between(0, 3) {
                self.act();
            }
            self.settle();
            self.check();
            self.pass_time();
        }
    }

    fn act(&mut self) {
        let vcpu = self.draw.between(0, self.vcpus.len() as i64 - 1) as usize;
        let now = self.now;
        match self.draw.between(1, 14) {
            1..=6 if !self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = true;
                self.instance.wake(vcpu, now);
            }
            7..=9 => {
                let cpu = self.draw.between(0, self.cpus.len() as i64 - 1) as usize;
                if let Some(vcpu) = self.cpus[cpu].running {
                    self.vcpus[vcpu].runnable = false;
                    self.instance.block_running(vcpu);
                    self.schedule(cpu);
                }
            }
            10 | 11 if self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = false;
                self.instance.sleep(vcpu, now);
            }
            12 if self.vcpus[vcpu].runnable => self.instance.yield_now(vcpu, now),
            13 => {
                let parameters = self.parameters();
                let set = self.instance.set_vcpu(vcpu, &parameters, now);
                set.expect("valid");
                let of = &mut self.vcpus[vcpu];
                (of.parameters, of.used_ns) = (parameters, 0);
                of.ran.clear();
            }
            14 if self.draw.between(0, 9) == 0 => {
                let group = self.policy.switch_group();
                let policies: Vec<Policy> = (Policy::ALL.into_iter())
                    .filter(|policy| policy.switch_group() == group)
                    .collect();
                self.policy = self.draw.one_of(&policies);
                let became = self.instance.become_policy(self.policy, now);
                became.expect("it is of the group");
            }
            _ => {}
        }
        self.take();
    }

    fn schedule(&mut self, cpu: usize) {
        self.cpus[cpu].kicked = false;
        let decision = self.instance.schedule(cpu as u32, self.now);
        assert!(decision.until_ns > self.now, "a decision for no time");
        self.cpus[cpu].end_ns = decision.until_ns;
        self.cpus[cpu].running = decision.vcpu;
        self.take();
    }

    fn take(&mut self) {
        let (cpus, account_ns) = (&mut self.cpus, &mut self.account_ns);
        self.instance.take_requests(|request| match request {
            Request::Kick(cpu) => cpus[cpu as usize].kicked = true,
            Request::Extend(cpu, until_ns) => cpus[cpu as usize].end_ns = until_ns,
            Request::ArmAccount(at_ns) => *account_ns = at_ns,
            other @ Request::ArmTimer(..) => panic!("nobody asks for {other:?}"),
        });
        let vcpus = &mut self.vcpus;
        self.instance.take_reports(|report| {
            if report.event == Event::Replenish {
                vcpus[report.vcpu].used_ns = 0;
            }
        });
    }

    /// Serves all that is due, in any order.
    fn settle(&mut self) {
        loop {
            let due: Vec<usize> = (0..self.cpus.len())
                .filter(|&cpu| self.cpus[cpu].kicked || self.cpus[cpu].end_ns <= self.now)
                .collect();
            let decides_first = !due.is_empty() && self.draw.between(0, 1) == 0;
            if self.account_ns <= self.now && !decides_first {
                self.account_ns = NEVER;
                self.instance.account(self.now);
                self.take();
            } else if due.is_empty() {
                return;
            } else {
                let cpu = self.draw.one_of(&due);
                self.schedule(cpu);
            }
        }
    }

    fn pass_time(&mut self) {
        let ends_ns = self.cpus.iter().map(|cpu| cpu.end_ns);
        let next_ns = ends_ns.min().expect("a CPU").min(self.account_ns);
        let to_ns = next_ns.min(self.now + self.draw.between(1, 9));
        for vcpu in self.cpus.iter().filter_map(|cpu| cpu.running) {
            self.vcpus[vcpu].used_ns += to_ns - self.now;
            self.vcpus[vcpu].ran.push((self.now, to_ns));
        }
        self.now = to_ns;
    }

    /// What the policy tells of each VCPU, by number.
    fn lines(&mut self) -> Vec<DumpLine> {
        let cpus = 0..self.cpus.len() as u32;
        let mut lines: Vec<DumpLine> = cpus.flat_map(|cpu| self.instance.dump(cpu)).collect();
        lines.sort_by_key(|line| line.vcpu);
        let numbers = lines.iter().map(|line| line.vcpu);
        assert!(numbers.eq(0..self.vcpus.len()), "a VCPU is lost: {lines:?}");
        lines
    }

    fn check(&mut self) {
        let lines = self.lines();
        for (vcpu, line) in self.vcpus.iter_mut().zip(&lines) {
            vcpu.due_ns = line.next_ns;
        }
        let is_sedf = self.policy == Policy::GlobalSedf;
        let rank = |vcpu: &Vcpu| match is_sedf {
            true => vcpu.due_ns,
            false => vcpu.parameters.priority.into(),
        };
        let burning = |cpu: u32| {
            let of = |line: &&DumpLine| line.state == "RdyQ";
            lines
                .iter()
                .filter(of)
                .any(|line| self.vcpus[line.vcpu].affinity.contains(&cpu))
        };
        for (number, (vcpu, line)) in self.vcpus.iter().zip(&lines).enumerate() {
            let places = self.cpus.iter().filter(|cpu| cpu.running == Some(number));
            let is_running = places.count();
            assert!(is_running <= 1, "VCPU {number} runs twice");
            assert_eq!(is_running == 1, line.state == "runs", "{line:?}");
            assert!(line.left_ns <= vcpu.parameters.budget_ns, "{line:?}");
            self.check_use(vcpu, line);
            let may = match vcpu.runnable {
                true => ["runs", "waits", "no budget"],
                false => ["blocked", "RdyQ", "blocked"],
            };
            assert!(may.contains(&&*line.state), "{line:?}");
            if line.state != "waits" {
                continue;
            }
            for &cpu in &vcpu.affinity {
                match self.cpus[cpu as usize].running {
                    Some(running) => assert!(
                        rank(&self.vcpus[running]) <= rank(vcpu),
                        "VCPU {number} waits for VCPU {running}, which comes after it"
                    ),
                    None => assert!(burning(cpu), "VCPU {number} waits, and CPU {cpu} idles"),
                }
            }
        }
        for (number, cpu) in self.cpus.iter().enumerate() {
            if let Some(vcpu) = cpu.running {
                assert!(self.vcpus[vcpu].runnable, "VCPU {vcpu} has nothing to do");
                let affinity = &self.vcpus[vcpu].affinity;
                assert!(affinity.contains(&(number as u32)), "VCPU {vcpu}");
            }
        }
    }

    /// No more than a budget is used after a replenishment, and by a sporadic server in any period.
    fn check_use(&self, vcpu: &Vcpu, line: &DumpLine) {
        let Parameters {
            budget_ns,
            period_ns,
            ..
        } = vcpu.parameters;
        if self.policy != Policy::GlobalSporadic {
            assert!(vcpu.used_ns <= budget_ns, "{} used: {line:?}", vcpu.used_ns);
            return;
        }
        let from_ns = self.now - period_ns;
        let used_ns = (vcpu.ran.iter().rev())
            .map(|&(start_ns, end_ns)| (end_ns - start_ns.max(from_ns)).max(0));
        let used_ns: i64 = used_ns.sum();
        assert!(used_ns <= budget_ns, "{used_ns} used in a period: {line:?}");
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "This was storm {0} under {1}: LAXITY_SEED={0} LAXITY_CASES=1 repeats it.",
                self.seed,
                self.policy.name()
            );
        }
    }
}

#[test]
fn the_first_of_the_order_run_in_a_storm() {
    for seed in seeds(4_000) {
        Storm::new(seed).run();
    }
}
