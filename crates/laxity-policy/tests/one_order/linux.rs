//! Storms over the models of Linux's fifo and deadline: random wakes, sleeps, blocks, yields and new parameters. When
//! all that is due has been served, the first of all VCPUs run, as docs/explanation/policies.md says, and no VCPU has
//! used more than its runtime. One that reclaims pays for its time at most that time, and at least its bandwidth of it.

use super::machine::{Machine, tell_of_panic};
use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::DumpLine;
use laxity_trials::{Draw, seeds};

/// How soon a VCPU that reclaims pays again without a jiffy.
const LOOKS_AGAIN_NS: i64 = 10_000;

fn below(draw: &mut Draw, count: usize) -> usize {
    draw.between(0, count as i64 - 1) as usize
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
    machine: Machine,
    vcpus: Vec<Vcpu>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut draw = Draw::new(seed);
        let policy = draw.one_of(&[Policy::Fifo, Policy::Deadline]);
        let reclaims = policy == Policy::Deadline && draw.between(0, 1) == 0;
        let unit_ns = if reclaims { 1_000_000 } else { 1 };
        let jiffy_ns = unit_ns * draw.one_of(&[0, 0, 1, 3, 7]);
        let settings = Settings {
            jiffy_ns,
            ..Settings::default()
        };
        let cpus = draw.between(1, 4) as u32;
        let changes = draw.between(0, 1) == 0;
        let mut storm = Storm {
            seed,
            draw,
            policy,
            jiffy_ns,
            unit_ns,
            reclaims,
            changes,
            machine: Machine::new(policy, &settings, cpus),
            vcpus: Vec::new(),
        };
        let parameters = storm.parameters();
        let instance = &mut storm.machine.instance;
        instance.add_domain(&parameters).expect("valid");
        for _ in 0..storm.draw.between(1, 9) {
            let parameters = storm.parameters();
            let home = below(&mut storm.draw, cpus as usize) as u32;
            let affinity: Vec<u32> = (0..cpus)
                .filter(|&cpu| cpu == home || storm.draw.between(0, 9) < 7)
                .collect();
            let instance = &mut storm.machine.instance;
            let added = instance.add_vcpu(0, home, &affinity, &parameters, 0);
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
            reclaim: self.reclaims && self.draw.between(0, 2) > 0,
            rt_priority: self.draw.between(1, 4) as u32,
            ..Parameters::default()
        }
    }

    fn run(&mut self) {
        for _ in 0..200 {
            for _ in 0..self.draw.between(0, 3) {
                self.act();
            }
            self.machine.settle(&mut self.draw);
            self.check();
            self.pass_time();
        }
        if self.policy == Policy::Deadline && !self.changes && self.jiffy_ns == 0 {
            self.check_bandwidth();
        }
    }

    fn act(&mut self) {
        let vcpu = below(&mut self.draw, self.vcpus.len());
        let Machine { instance, now, .. } = &mut self.machine;
        let now = *now;
        match self.draw.between(1, 12) {
            1..=6 if !self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = true;
                instance.wake(vcpu, now);
            }
            7..=9 => {
                let cpu = below(&mut self.draw, self.machine.cpus.len());
                if let Some(vcpu) = self.machine.block(cpu) {
                    self.vcpus[vcpu].runnable = false;
                }
            }
            10 if self.vcpus[vcpu].runnable => {
                self.vcpus[vcpu].runnable = false;
                instance.sleep(vcpu, now);
            }
            11 if self.changes && self.vcpus[vcpu].runnable => instance.yield_now(vcpu, now),
            12 if self.changes => {
                let parameters = self.parameters();
                let set = self.machine.instance.set_vcpu(vcpu, &parameters, now);
                set.expect("valid");
                self.vcpus[vcpu].parameters = parameters;
            }
            _ => {}
        }
        self.machine.take();
    }

    fn pass_time(&mut self) {
        let now = self.machine.now;
        let next_ns = self.machine.next_ns();
        let step_ns = self.unit_ns * self.draw.between(1, 9);
        let to_ns = next_ns.min(now + step_ns);
        for line in self.machine.lines() {
            if self.machine.places_of(line.vcpu) > 0 {
                self.use_time(line.vcpu, &line, to_ns - now);
            }
        }
        self.machine.now = to_ns;
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
        let mut lines = vec![None; self.vcpus.len()];
        for line in self.machine.lines() {
            let number = line.vcpu;
            lines[number] = Some(line);
        }
        let rank = |vcpu: usize| match (self.policy, &lines[vcpu]) {
            (Policy::Deadline, Some(line)) => line.next_ns,
            _ => -i64::from(self.vcpus[vcpu].parameters.rt_priority),
        };
        for (number, vcpu) in self.vcpus.iter().enumerate() {
            let places = self.machine.places_of(number);
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
                assert!(
                    self.machine.account_ns <= line.next_ns,
                    "nothing ends it: {line:?}"
                );
                continue;
            }
            for (cpu, state) in self.machine.cpus.iter().enumerate() {
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
        self.machine.check_running(|vcpu| {
            let Vcpu {
                runnable, affinity, ..
            } = &self.vcpus[vcpu];
            (*runnable, affinity)
        });
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
        tell_of_panic(self.seed, self.policy);
    }
}

#[test]
fn the_first_of_all_vcpus_run_in_a_storm() {
    for seed in seeds(4_000) {
        Storm::new(seed).run();
    }
}
