//! Storms over the models of Linux's fifo and deadline: random wakes, sleeps, blocks, yields and new parameters. When
//! all that is due has been served, the first of all VCPUs run, as docs/explanation/policies.md says, and no VCPU has
//! used more than its runtime. One that reclaims pays for its time at most that time, and at least its bandwidth of it.

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{DumpLine, Instance, NEVER, Request};
use laxity_trials::seeds;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// How soon a VCPU that reclaims pays again without a jiffy.
const LOOKS_AGAIN_NS: i64 = 10_000;

struct Draw(Pcg64);

impl Draw {
    fn between(&mut self, least: i64, most: i64) -> i64 {
        least + (self.0.next_u64() % (most - least + 1) as u64) as i64
    }

    fn below(&mut self, count: usize) -> usize {
        self.between(0, count as i64 - 1) as usize
    }
}

/// What a VCPU used of one runtime.
#[derive(Debug)]
struct Slice {
    from_ns: i64,
    /// What was left of the runtime when it began.
    left_ns: i64,
    deadline_ns: i64,
    used_ns: i64,
}

struct Vcpu {
    parameters: Parameters,
    affinity: Vec<u32>,
    runnable: bool,
    slices: Vec<Slice>,
}

struct Cpu {
    end_ns: i64,
    /// When its timer is due.
    timer_ns: i64,
    kicked: bool,
    running: Option<usize>,
}

struct Storm {
    seed: u64,
    draw: Draw,
    policy: Policy,
    jiffy_ns: i64,
    /// All times are multiples of it. Payments of VCPUs that reclaim are rounded to whole nanoseconds.
    unit_ns: i64,
    /// Whether VCPUs reclaim: their bandwidths then fit all CPUs.
    reclaims: bool,
    /// Whether parameters change and VCPUs yield.
    changes: bool,
    instance: Instance,
    now: i64,
    account_ns: i64,
    vcpus: Vec<Vcpu>,
    cpus: Vec<Cpu>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut draw = Draw(Pcg64::seed_from_u64(seed));
        let policy = [Policy::Fifo, Policy::Deadline][draw.below(2)];
        let reclaims = policy == Policy::Deadline && draw.below(2) == 0;
        let unit_ns = if reclaims { 1_000_000 } else { 1 };
        let jiffy_ns = unit_ns * [0, 0, 1, 3, 7][draw.below(5)];
        let settings = Settings {
            jiffy_ns,
            ..Settings::default()
        };
        let cpus = draw.between(1, 4) as usize;
        let mut instance = Instance::new(policy, &settings, cpus as u32).expect("valid");
        instance.set_tracing(true);
        let changes = draw.below(2) == 0;
        let mut storm = Storm {
            seed,
            draw,
            policy,
            jiffy_ns,
            unit_ns,
            reclaims,
            changes,
            instance,
            now: 0,
            account_ns: NEVER,
            vcpus: Vec::new(),
            cpus: (0..cpus)
                .map(|_| Cpu {
                    end_ns: NEVER,
                    timer_ns: NEVER,
                    kicked: false,
                    running: None,
                })
                .collect(),
        };
        let parameters = storm.parameters();
        storm.instance.add_domain(&parameters).expect("valid");
        for _ in 0..storm.draw.between(1, 9) {
            let parameters = storm.parameters();
            let home = storm.draw.below(cpus) as u32;
            let affinity: Vec<u32> = (0..cpus as u32)
                .filter(|&cpu| cpu == home || storm.draw.below(10) < 7)
                .collect();
            let added = storm
                .instance
                .add_vcpu(0, home, &affinity, &parameters, storm.now);
            added.expect("valid");
            storm.vcpus.push(Vcpu {
                parameters,
                affinity,
                runnable: false,
                slices: Vec::new(),
            });
        }
        storm
    }

    fn parameters(&mut self) -> Parameters {
        let mut period_units = self.draw.between(2, 40);
        let budget_units = self.draw.between(1, period_units);
        // Nine VCPUs have less than 90 % then.
        if self.reclaims {
            period_units += 10 * budget_units;
        }
        Parameters {
            budget_ns: self.unit_ns * budget_units,
            period_ns: self.unit_ns * period_units,
            reclaim: self.reclaims && self.draw.below(3) > 0,
            rt_priority: self.draw.between(1, 4) as u32,
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
        if self.policy == Policy::Deadline && !self.changes && self.jiffy_ns == 0 {
            self.check_bandwidth();
        }
    }

    fn act(&mut self) {
        let vcpu = self.draw.below(self.vcpus.len());
        let now = self.now;
        match self.draw.between(1, 12) {
            1..=6 if !self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = true;
                self.instance.wake(vcpu, now);
            }
            7..=9 => {
                let cpu = self.draw.below(self.cpus.len());
                if let Some(vcpu) = self.cpus[cpu].running {
                    self.vcpus[vcpu].runnable = false;
                    self.instance.block_running(vcpu);
                    self.schedule(cpu);
                }
            }
            10 if self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = false;
                self.instance.sleep(vcpu, now);
            }
            11 if self.changes && self.vcpus[vcpu].runnable => self.instance.yield_now(vcpu, now),
            12 if self.changes => {
                let parameters = self.parameters();
                let set = self.instance.set_vcpu(vcpu, &parameters, now);
                set.expect("valid");
                self.vcpus[vcpu].parameters = parameters;
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
            Request::ArmAccount(at_ns) => *account_ns = at_ns,
            Request::ArmTimer(cpu, at_ns) => cpus[cpu as usize].timer_ns = at_ns,
            other => panic!("nobody asks for {other:?}"),
        });
        self.instance.take_reports(|_| {});
    }

    fn line(&mut self, vcpu: usize) -> Option<DumpLine> {
        let cpu = self.instance.cpu_of(vcpu);
        let lines = self.instance.dump(cpu);
        lines.into_iter().find(|line| line.vcpu == vcpu)
    }

    /// Serves all that is due, in any order.
    fn settle(&mut self) {
        loop {
            let due: Vec<usize> = (0..self.cpus.len())
                .filter(|&cpu| self.cpus[cpu].kicked || self.cpus[cpu].end_ns <= self.now)
                .collect();
            if let Some(cpu) = (self.cpus.iter()).position(|cpu| cpu.timer_ns <= self.now) {
                self.cpus[cpu].timer_ns = NEVER;
                self.instance.timer(cpu as u32, self.now);
                self.take();
            } else if self.account_ns <= self.now && (due.is_empty() || self.draw.below(2) == 0) {
                self.account_ns = NEVER;
                self.instance.account(self.now);
                self.take();
            } else if due.is_empty() {
                return;
            } else {
                let cpu = due[self.draw.below(due.len())];
                self.schedule(cpu);
            }
        }
    }

    fn pass_time(&mut self) {
        let next_ns = (self.cpus.iter().map(|cpu| cpu.end_ns.min(cpu.timer_ns)))
            .min()
            .expect("a CPU")
            .min(self.account_ns);
        let step_ns = self.unit_ns * self.draw.between(1, 9);
        let to_ns = next_ns.min(self.now + step_ns);
        for cpu in 0..self.cpus.len() {
            if let Some(vcpu) = self.cpus[cpu].running {
                let line = self.line(vcpu).expect("it runs");
                self.use_time(vcpu, &line, to_ns - self.now);
            }
        }
        self.now = to_ns;
    }

    fn use_time(&mut self, vcpu: usize, line: &DumpLine, used_ns: i64) {
        let deadline_ns = line.next_ns;
        let Vcpu {
            slices, parameters, ..
        } = &mut self.vcpus[vcpu];
        match slices.last_mut() {
            Some(slice) if slice.deadline_ns == deadline_ns => slice.used_ns += used_ns,
            _ => slices.push(Slice {
                from_ns: deadline_ns.saturating_sub(parameters.period_ns),
                left_ns: line.left_ns,
                deadline_ns,
                used_ns,
            }),
        }
    }

    fn check(&mut self) {
        let lines: Vec<Option<DumpLine>> =
            (0..self.vcpus.len()).map(|vcpu| self.line(vcpu)).collect();
        let rank = |vcpu: usize| match (self.policy, &lines[vcpu]) {
            (Policy::Deadline, Some(line)) => line.next_ns,
            _ => -i64::from(self.vcpus[vcpu].parameters.rt_priority),
        };
        for (number, vcpu) in self.vcpus.iter().enumerate() {
            let places = (self.cpus.iter())
                .filter(|cpu| cpu.running == Some(number))
                .count();
            assert!(places <= 1, "VCPU {number} runs twice");
            let Some(line) = &lines[number] else {
                assert!(!vcpu.runnable && places == 0, "VCPU {number} is lost");
                continue;
            };
            if self.policy == Policy::Deadline && !self.changes {
                let overrun_ns = -line.left_ns;
                let most_ns = if vcpu.parameters.reclaim && self.jiffy_ns == 0 {
                    LOOKS_AGAIN_NS
                } else {
                    self.jiffy_ns
                };
                assert!(overrun_ns <= most_ns, "an overrun: {line:?}");
                check_payment(vcpu, line);
                assert!(line.left_ns <= vcpu.parameters.budget_ns, "{line:?}");
            }
            if line.state == "throttled" {
                assert!(self.account_ns <= line.next_ns, "nothing ends it: {line:?}");
                continue;
            }
            for (cpu, state) in self.cpus.iter().enumerate() {
                if places > 0 || !vcpu.affinity.contains(&(cpu as u32)) {
                    continue;
                }
                let running = state.running.unwrap_or_else(|| {
                    panic!("VCPU {number} waits, and CPU {cpu} idles: {line:?}")
                });
                assert!(
                    rank(running) <= rank(number),
                    "VCPU {number} waits for VCPU {running}, which comes after it"
                );
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

    /// From the beginning of any period to any deadline a VCPU uses at most its runtime a period.
    fn check_bandwidth(&self) {
        let others = |(_, vcpu): &(usize, &Vcpu)| !vcpu.parameters.reclaim;
        for (number, vcpu) in self.vcpus.iter().enumerate().filter(others) {
            let Parameters {
                budget_ns,
                period_ns,
                ..
            } = vcpu.parameters;
            for first in 0..vcpu.slices.len() {
                let mut used_ns = 0;
                for slice in &vcpu.slices[first..] {
                    used_ns += slice.used_ns;
                    let window_ns = slice.deadline_ns - vcpu.slices[first].from_ns;
                    assert!(
                        used_ns * period_ns <= window_ns * budget_ns,
                        "VCPU {number} used {used_ns} of {budget_ns} every {period_ns} to {slice:?}"
                    );
                }
            }
        }
    }
}

/// A VCPU that reclaims pays at most the time that it used. When it is throttled it has paid for all of it, and at
/// least its bandwidth.
fn check_payment(vcpu: &Vcpu, line: &DumpLine) {
    let Parameters {
        budget_ns,
        period_ns,
        reclaim,
        ..
    } = vcpu.parameters;
    let slice = (vcpu.slices.last()).filter(|slice| reclaim && slice.deadline_ns == line.next_ns);
    let Some(slice) = slice else {
        return;
    };
    let paid_ns = slice.left_ns - line.left_ns;
    assert!(paid_ns <= slice.used_ns, "it pays {paid_ns}: {slice:?}");
    assert!(
        line.state != "throttled" || slice.used_ns * budget_ns <= paid_ns * period_ns,
        "it is throttled after {paid_ns}: {slice:?}"
    );
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
fn the_first_of_all_vcpus_run_in_a_storm() {
    for seed in seeds(4_000) {
        Storm::new(seed).run();
    }
}
