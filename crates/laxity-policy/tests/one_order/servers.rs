//! Storms over servers and SEDF with one order for all CPUs: random wakes, sleeps, blocks, yields, new parameters,
//! quanta and changes of the policy. When all that is due has been served, the first of the order run, as
//! docs/explanation/policies.md says, no VCPU has used more than its budget, and nothing runs on extra time while
//! another VCPU has a claim to the CPU.

use super::machine::{Machine, tell_of_panic};
use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::DumpLine;
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
    has_budget: bool,
}

struct Storm {
    seed: u64,
    draw: Draw,
    policy: Policy,
    machine: Machine,
    vcpus: Vec<Vcpu>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut draw = Draw::new(seed);
        let policies: Vec<Policy> = (Policy::ALL.into_iter())
            .filter(|policy| policy.is_global())
            .collect();
        let policy = draw.one_of(&policies);
        let cpus = draw.between(1, 4) as u32;
        let settings = settings(&mut draw);
        let mut storm = Storm {
            seed,
            draw,
            policy,
            machine: Machine::new(policy, &settings, cpus),
            vcpus: Vec::new(),
        };
        let parameters = storm.parameters();
        let instance = &mut storm.machine.instance;
        instance.add_domain(&parameters).expect("valid");
        let in_clusters = storm.draw.between(0, 1) == 0;
        for _ in 0..storm.draw.between(1, 9) {
            let parameters = storm.parameters();
            let home = storm.draw.between(0, i64::from(cpus) - 1) as u32;
            let mut is_on = |cpu: u32| match in_clusters {
                true => cpu / 2 == home / 2,
                false => cpu == home || storm.draw.between(0, 9) < 7,
            };
            let affinity: Vec<u32> = (0..cpus).filter(|&cpu| is_on(cpu)).collect();
            let instance = &mut storm.machine.instance;
            let added = instance.add_vcpu(0, home, &affinity, &parameters, 0);
            added.expect("valid");
            storm.vcpus.push(Vcpu {
                parameters,
                affinity,
                runnable: false,
                ran: Vec::new(),
                used_ns: 0,
                due_ns: 0,
                has_budget: false,
            });
        }
        storm.machine.take();
        storm
    }

    fn parameters(&mut self) -> Parameters {
        let period_ns = self.draw.between(2, 40);
        Parameters {
            budget_ns: self.draw.between(1, period_ns),
            period_ns,
            priority: self.draw.between(1, 4) as u32,
            extratime: self.draw.between(0, 2) == 0,
            ..Parameters::default()
        }
    }

    fn run(&mut self) {
        for _ in 0..200 {
            for _ in 0..self.draw.between(0, 3) {
                self.act();
            }
            self.machine.settle(&mut self.draw);
            for vcpu in self.machine.replenished.drain(..) {
                self.vcpus[vcpu].used_ns = 0;
            }
            self.check();
            self.pass_time();
        }
    }

    fn act(&mut self) {
        let vcpu = self.draw.between(0, self.vcpus.len() as i64 - 1) as usize;
        let Machine { instance, now, .. } = &mut self.machine;
        let now = *now;
        match self.draw.between(1, 15) {
            1..=6 if !self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = true;
                instance.wake(vcpu, now);
            }
            7..=9 => {
                let cpu = self.draw.between(0, self.machine.cpus.len() as i64 - 1) as usize;
                if let Some(vcpu) = self.machine.block(cpu) {
                    self.vcpus[vcpu].runnable = false;
                }
            }
            10 | 11 if self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = false;
                instance.sleep(vcpu, now);
            }
            12 if self.vcpus[vcpu].runnable => instance.yield_now(vcpu, now),
            13 => {
                let parameters = self.parameters();
                let set = self.machine.instance.set_vcpu(vcpu, &parameters, now);
                set.expect("valid");
                let of = &mut self.vcpus[vcpu];
                (of.parameters, of.used_ns) = (parameters, 0);
                of.ran.clear();
            }
            15 if self.draw.between(0, 9) == 0 => {
                let set = instance.set_settings(&settings(&mut self.draw), now);
                set.expect("valid");
            }
            14 if self.draw.between(0, 9) == 0 => {
                let group = self.policy.switch_group();
                let policies: Vec<Policy> = (Policy::ALL.into_iter())
                    .filter(|policy| policy.switch_group() == group)
                    .collect();
                self.policy = self.draw.one_of(&policies);
                let became = instance.become_policy(self.policy, now);
                became.expect("it is of the group");
            }
            _ => {}
        }
        self.machine.take();
    }

    fn pass_time(&mut self) {
        let now = self.machine.now;
        let to_ns = self.machine.next_ns().min(now + self.draw.between(1, 9));
        for vcpu in (self.machine.cpus.iter()).filter_map(|cpu| cpu.running) {
            if self.vcpus[vcpu].has_budget {
                self.vcpus[vcpu].used_ns += to_ns - now;
                self.vcpus[vcpu].ran.push((now, to_ns));
            }
        }
        self.machine.now = to_ns;
    }

    fn check(&mut self) {
        let lines = self.machine.lines();
        let numbers = lines.iter().map(|line| line.vcpu);
        assert!(numbers.eq(0..self.vcpus.len()), "a VCPU is lost: {lines:?}");
        for (vcpu, line) in self.vcpus.iter_mut().zip(&lines) {
            vcpu.due_ns = line.next_ns;
            vcpu.has_budget = line.left_ns > 0;
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
        let waits_for = |cpu: u32| {
            let mut waits = lines.iter().filter(|line| line.state == "waits");
            waits.any(|line| self.vcpus[line.vcpu].affinity.contains(&cpu))
        };
        for (number, (vcpu, line)) in self.vcpus.iter().zip(&lines).enumerate() {
            let is_running = self.machine.places_of(number) == 1;
            assert_eq!(is_running, line.state == "runs", "{line:?}");
            assert!(line.left_ns <= vcpu.parameters.budget_ns, "{line:?}");
            self.check_use(vcpu, line);
            let may = match (vcpu.runnable, vcpu.parameters.extratime) {
                (true, true) => ["runs", "waits", "extra"],
                (true, false) => ["runs", "waits", "no budget"],
                (false, _) => ["blocked", "RdyQ", "blocked"],
            };
            assert!(may.contains(&&*line.state), "{line:?}");
            for &cpu in &vcpu.affinity {
                let running = (self.machine.cpus[cpu as usize].running).map(|of| &self.vcpus[of]);
                match (&*line.state, running) {
                    ("waits", Some(running)) => assert!(
                        running.has_budget && rank(running) <= rank(vcpu),
                        "VCPU {number} waits for a VCPU that comes after it"
                    ),
                    ("waits", None) => {
                        assert!(burning(cpu), "VCPU {number} waits, and CPU {cpu} idles");
                    }
                    ("extra", None) => assert!(
                        burning(cpu) && waits_for(cpu),
                        "VCPU {number} waits for extra time, and CPU {cpu} idles"
                    ),
                    _ => {}
                }
            }
        }
        self.machine.check_running(|vcpu| {
            let Vcpu {
                runnable, affinity, ..
            } = &self.vcpus[vcpu];
            (*runnable, affinity)
        });
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
        let from_ns = self.machine.now - period_ns;
        let used_ns = (vcpu.ran.iter().rev())
            .map(|&(start_ns, end_ns)| (end_ns - start_ns.max(from_ns)).max(0));
        let used_ns: i64 = used_ns.sum();
        assert!(used_ns <= budget_ns, "{used_ns} used in a period: {line:?}");
    }
}

fn settings(draw: &mut Draw) -> Settings {
    Settings {
        quantum_ns: draw.one_of(&[0, 0, 1, 3, 7]),
        ..Settings::default()
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        tell_of_panic(self.seed, self.policy);
    }
}

#[test]
fn the_first_of_the_order_run_in_a_storm() {
    for seed in seeds(4_000) {
        Storm::new(seed).run();
    }
}
