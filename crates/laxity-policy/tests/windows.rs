//! Storms over the model of Xen's arinc653: random windows, wakes, blocks, sleeps, yields and new windows. At every
//! nanosecond each CPU runs the first of its VCPUs whose window is open, if that has work, and nobody else.

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{Instance, NEVER, Request};
use laxity_trials::seeds;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

struct Draw(Pcg64);

impl Draw {
    fn between(&mut self, least: i64, most: i64) -> i64 {
        least + (self.0.next_u64() % (most - least + 1) as u64) as i64
    }

    fn below(&mut self, count: usize) -> usize {
        self.between(0, count as i64 - 1) as usize
    }

    fn parameters(&mut self) -> Parameters {
        let period_ns = self.between(1, 30);
        let budget_ns = self.between(1, period_ns);
        Parameters {
            budget_ns,
            period_ns,
            phase_ns: self.between(0, period_ns),
            ..Parameters::default()
        }
    }
}

struct Vcpu {
    cpu: usize,
    parameters: Parameters,
    runnable: bool,
}

impl Vcpu {
    /// Whether any window is open of the period that ends at the phase and of those after it.
    fn has_window(&self, now: i64) -> bool {
        let parameters = &self.parameters;
        (-1..=now / parameters.period_ns).any(|period| {
            let opens_ns = period * parameters.period_ns + parameters.phase_ns;
            (opens_ns..opens_ns + parameters.budget_ns).contains(&now)
        })
    }
}

struct Cpu {
    end_ns: i64,
    kicked: bool,
    running: Option<usize>,
}

struct Storm {
    draw: Draw,
    instance: Instance,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
    now: i64,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut draw = Draw(Pcg64::seed_from_u64(seed));
        let cpus = draw.between(1, 3) as usize;
        let settings = Settings::default();
        let mut instance =
            Instance::new(Policy::Arinc653, &settings, cpus as u32).expect("no settings");
        instance.set_tracing(true);
        instance
            .add_domain(&Parameters::default())
            .expect("no checks");
        let all: Vec<u32> = (0..cpus as u32).collect();
        let mut vcpus = Vec::new();
        for _ in 0..draw.between(1, 6) {
            let (cpu, parameters) = (draw.below(cpus), draw.parameters());
            let added = instance.add_vcpu(0, cpu as u32, &all, &parameters, 0);
            added.expect("valid");
            vcpus.push(Vcpu {
                cpu,
                parameters,
                runnable: false,
            });
        }
        let cpus = (0..cpus)
            .map(|_| Cpu {
                end_ns: NEVER,
                kicked: false,
                running: None,
            })
            .collect();
        let mut storm = Storm {
            draw,
            instance,
            vcpus,
            cpus,
            now: 0,
        };
        storm.take();
        storm
    }

    fn run(&mut self) {
        while self.now < 300 {
            if self.draw.below(3) == 0 {
                self.act();
            }
            self.settle();
            self.check();
            self.now += 1;
        }
    }

    fn act(&mut self) {
        let vcpu = self.draw.below(self.vcpus.len());
        let (now, cpu) = (self.now, self.vcpus[vcpu].cpu);
        let is_running = self.cpus[cpu].running == Some(vcpu);
        match (self.draw.below(8), self.vcpus[vcpu].runnable) {
            (0..=4, false) => {
                self.vcpus[vcpu].runnable = true;
                self.instance.wake(vcpu, now);
            }
            (0..=1, true) if is_running => {
                self.vcpus[vcpu].runnable = false;
                self.instance.block_running(vcpu);
                self.schedule(cpu);
            }
            (2, true) => {
                self.vcpus[vcpu].runnable = false;
                self.instance.sleep(vcpu, now);
            }
            (3, true) => self.instance.yield_now(vcpu, now),
            (5, _) => {
                let parameters = self.draw.parameters();
                let set = self.instance.set_vcpu(vcpu, &parameters, now);
                set.expect("valid");
                self.vcpus[vcpu].parameters = parameters;
            }
            (6, _) => {
                let parameters = self.draw.parameters();
                let wrong = Parameters {
                    phase_ns: parameters.period_ns + 1,
                    ..parameters
                };
                let set = self.instance.set_vcpu(vcpu, &wrong, now);
                set.expect_err("a phase that is longer than the period");
            }
            _ => {}
        }
        self.take();
    }

    fn take(&mut self) {
        let cpus = &mut self.cpus;
        self.instance.take_requests(|request| match request {
            Request::Kick(cpu) => cpus[cpu as usize].kicked = true,
            other => panic!("nobody asks for {other:?}"),
        });
        self.instance.take_reports(|_| {});
    }

    fn schedule(&mut self, cpu: usize) {
        self.cpus[cpu].kicked = false;
        let decision = self.instance.schedule(cpu as u32, self.now);
        assert!(decision.until_ns > self.now, "a decision for no time");
        self.cpus[cpu].end_ns = decision.until_ns;
        self.cpus[cpu].running = decision.vcpu;
        self.take();
    }

    fn settle(&mut self) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].kicked || self.cpus[cpu].end_ns <= self.now {
                self.schedule(cpu);
            }
        }
    }

    fn check(&mut self) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            let owner = (self.vcpus.iter())
                .position(|vcpu| vcpu.cpu == number && vcpu.has_window(self.now));
            let wanted = owner.filter(|&vcpu| self.vcpus[vcpu].runnable);
            assert_eq!(cpu.running, wanted, "CPU {number} at {}", self.now);
        }
    }
}

#[test]
fn windows_are_kept_in_a_storm() {
    for seed in seeds(1_000) {
        println!("LAXITY_SEED={seed} LAXITY_CASES=1 repeats it");
        Storm::new(seed).run();
    }
}
