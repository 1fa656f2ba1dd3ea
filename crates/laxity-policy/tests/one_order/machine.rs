//! The CPUs of a storm, which serve what a policy asks for in any order.

use laxity_policies::{Policy, Settings};
use laxity_policy::{DumpLine, Event, Instance, NEVER, Request};
use laxity_trials::Draw;

pub struct Cpu {
    pub end_ns: i64,
    /// When its timer is due.
    pub timer_ns: i64,
    kicked: bool,
    pub running: Option<usize>,
}

pub struct Machine {
    pub instance: Instance,
    pub now: i64,
    pub account_ns: i64,
    pub cpus: Vec<Cpu>,
    /// VCPUs that were replenished since this was last emptied.
    pub replenished: Vec<usize>,
    /// The next decision that would only be repeated is left out; every other one is.
    leaves_out: bool,
}

impl Machine {
    pub fn new(policy: Policy, settings: &Settings, cpus: u32) -> Machine {
        let mut instance = Instance::new(policy, settings, cpus).expect("valid");
        instance.set_tracing(true);
        let cpu = || Cpu {
            end_ns: NEVER,
            timer_ns: NEVER,
            kicked: false,
            running: None,
        };
        Machine {
            instance,
            now: 0,
            account_ns: NEVER,
            cpus: (0..cpus).map(|_| cpu()).collect(),
            replenished: Vec::new(),
            leaves_out: false,
        }
    }

    /// The CPU's VCPU blocks, if it has one: its number.
    pub fn block(&mut self, cpu: usize) -> Option<usize> {
        let vcpu = self.cpus[cpu].running?;
        self.instance.block_running(vcpu);
        self.schedule(cpu);
        Some(vcpu)
    }

    fn schedule(&mut self, cpu: usize) {
        self.cpus[cpu].kicked = false;
        let repeats = self.instance.repeats(cpu as u32, self.now);
        let decision = if repeats && self.leaves_out {
            self.instance.repeat(cpu as u32, self.now)
        } else {
            self.instance.schedule(cpu as u32, self.now)
        };
        assert!(decision.until_ns > self.now, "a decision for no time");
        if repeats {
            self.leaves_out = !self.leaves_out;
            assert_eq!(decision.vcpu, self.cpus[cpu].running, "CPU {cpu} repeats");
        }
        self.cpus[cpu].end_ns = decision.until_ns;
        self.cpus[cpu].running = decision.vcpu;
        self.take();
    }

    /// Takes what the policy asked for and reported.
    pub fn take(&mut self) {
        let (cpus, account_ns) = (&mut self.cpus, &mut self.account_ns);
        self.instance.take_requests(|request| match request {
            Request::Kick(cpu) => cpus[cpu as usize].kicked = true,
            Request::Extend(cpu, until_ns) => cpus[cpu as usize].end_ns = until_ns,
            Request::ArmAccount(at_ns) => *account_ns = at_ns,
            Request::ArmTimer(cpu, at_ns) => cpus[cpu as usize].timer_ns = at_ns,
        });
        let replenished = &mut self.replenished;
        self.instance.take_reports(|report| {
            if report.event == Event::Replenish {
                replenished.push(report.vcpu);
            }
        });
    }

    /// Serves all that is due: timers first, then accounting and decisions in any order.
    pub fn settle(&mut self, draw: &mut Draw) {
        loop {
            let due: Vec<usize> = (0..self.cpus.len())
                .filter(|&cpu| self.cpus[cpu].kicked || self.cpus[cpu].end_ns <= self.now)
                .collect();
            let decides_first = !due.is_empty() && draw.between(0, 1) == 0;
            if let Some(cpu) = (self.cpus.iter()).position(|cpu| cpu.timer_ns <= self.now) {
                self.cpus[cpu].timer_ns = NEVER;
                self.instance.timer(cpu as u32, self.now);
                self.take();
            } else if self.account_ns <= self.now && !decides_first {
                self.account_ns = NEVER;
                self.instance.account(self.now);
                self.take();
            } else if due.is_empty() {
                return;
            } else {
                self.schedule(draw.one_of(&due));
            }
        }
    }

    /// When something is due next.
    pub fn next_ns(&self) -> i64 {
        let ends_ns = (self.cpus.iter()).map(|cpu| cpu.end_ns.min(cpu.timer_ns));
        ends_ns.min().expect("a CPU").min(self.account_ns)
    }

    /// What the policy tells of VCPUs, by number.
    pub fn lines(&mut self) -> Vec<DumpLine> {
        let cpus = 0..self.cpus.len() as u32;
        let mut lines: Vec<DumpLine> = cpus.flat_map(|cpu| self.instance.dump(cpu)).collect();
        lines.sort_by_key(|line| line.vcpu);
        lines
    }

    /// How many CPUs run the VCPU: none or one.
    pub fn places_of(&self, vcpu: usize) -> usize {
        let places = (self.cpus.iter()).filter(|cpu| cpu.running == Some(vcpu));
        let places = places.count();
        assert!(places <= 1, "VCPU {vcpu} runs twice");
        places
    }

    /// Each VCPU that runs is runnable, and may run on its CPU. `told` is these two of a VCPU.
    pub fn check_running<'a>(&self, told: impl Fn(usize) -> (bool, &'a [u32])) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            if let Some(vcpu) = cpu.running {
                let (is_runnable, affinity) = told(vcpu);
                assert!(is_runnable, "VCPU {vcpu} has nothing to do");
                assert!(affinity.contains(&(number as u32)), "VCPU {vcpu}");
            }
        }
    }
}

/// Tells how to repeat a storm that panics.
pub fn tell_of_panic(seed: u64, policy: Policy) {
    if std::thread::panicking() {
        eprintln!(
            "This was storm {seed} under {}: LAXITY_SEED={seed} LAXITY_CASES=1 repeats it.",
            policy.name()
        );
    }
}
