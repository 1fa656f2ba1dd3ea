//! What one call of a policy costs: `schedule`, `wake` and `timer`, for 5 to 1,000 VCPUs on one CPU, and for 1 to 64
//! CPUs with 8 VCPUs each.
//!
//! Every call is timed by itself, as what matters inside a hypervisor is how long one call keeps a CPU, and
//! the dear calls are rare; a mean over many calls, as benchmark harnesses take it, would hide them. What
//! reading the clock twice costs is measured first and taken off. Where the clock's steps are coarse against the
//! times, the mean is finer than median and 99th percentile.
//!
//! The calls are those of a busy host: VCPUs wake at random times with more or less work than they have
//! budget for, so that budgets run out and are replenished, VCPUs block, and those that come first preempt.
//! Together they want about as much of the CPUs as there is. On one CPU, every `schedule` among them changes who runs.
//!
//! Prints one JSON object a line for each policy and host, with times in nanoseconds.

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{Instance, NEVER, Request};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg32;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// VCPUs of hosts with one CPU.
const VCPU_COUNTS: [usize; 6] = [5, 10, 30, 100, 300, 1000];
/// CPUs of hosts with [`VCPUS_PER_CPU`] VCPUs for each.
const CPU_COUNTS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const VCPUS_PER_CPU: usize = 8;
const SCHEDULE_CALLS: usize = 200_000;
/// Calls before the first that counts.
const WARM_UP_CALLS: usize = 20_000;
const MILLISECOND_NS: i64 = 1_000_000;

/// The times of the calls of one operation, ns.
#[derive(Default)]
struct Times(Vec<i64>);

impl Times {
    /// Does something, and notes how long it took.
    fn time<T>(&mut self, clock_ns: i64, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = std::hint::black_box(work());
        self.0.push(start.elapsed().as_nanos() as i64 - clock_ns);
        result
    }

    fn quantile_ns(&mut self, percent: usize) -> i64 {
        self.0.sort_unstable();
        self.0[(self.0.len() - 1) * percent / 100].max(0)
    }

    fn summary(&mut self) -> String {
        let (median_ns, p99_ns) = (self.quantile_ns(50), self.quantile_ns(99));
        // Without the dearest hundredth: among them are calls that an interrupt fell into.
        let most = &self.0[..self.0.len() * 99 / 100];
        let mean_ns = most.iter().sum::<i64>() as f64 / most.len() as f64;
        format!(r#"{{"mean_ns":{mean_ns:.1},"median_ns":{median_ns},"p99_ns":{p99_ns}}}"#)
    }
}

/// What timing nothing takes.
fn clock_ns() -> i64 {
    let mut times = Times::default();
    for _ in 0..100_000 {
        times.time(0, || ());
    }
    times.quantile_ns(50)
}

/// A CPU, and what the policy has asked for it.
struct Cpu {
    running: Option<usize>,
    timer_ns: i64,
    until_ns: i64,
    kicked: bool,
}

/// CPUs with VCPUs that come and go.
struct Host {
    instance: Instance,
    cpus: Vec<Cpu>,
    random: Pcg32,
    parameters: Vec<Parameters>,
    /// Work that each VCPU still has, ns.
    work_ns: Vec<i64>,
    wakes: BinaryHeap<Reverse<(i64, usize)>>,
    account_ns: i64,
    /// A decision may leave the VCPU that ran: one whose turn is over may come first again by its laxity, or by the
    /// deadline that its guest told; and of several CPUs another one may have taken what this one was asked for.
    may_stay: bool,
    clock_ns: i64,
    schedule: Times,
    wake: Times,
    timer: Times,
}

impl Host {
    fn new(policy: Policy, cpus: u32, vcpus: usize, clock_ns: i64) -> Host {
        let mut instance = Instance::new(policy, &Settings::default(), cpus)
            .expect("the default settings are right");
        let every_cpu: Vec<u32> = (0..cpus).collect();
        let mut random = Pcg32::seed_from_u64(vcpus as u64);
        let mut parameters = Vec::new();
        let mut wakes = BinaryHeap::new();
        for vcpu in 0..vcpus {
            // Not whole milliseconds: then a call of `timer` seldom serves more than one replenishment.
            let period_ns = 10 * MILLISECOND_NS + below(&mut random, 40 * MILLISECOND_NS);
            let of_vcpu = Parameters {
                budget_ns: period_ns * 95 / 100 * i64::from(cpus) / vcpus as i64,
                period_ns,
                // This is so long that looking for a place ends at the class's end, or behind many.
                laxity_ns: if vcpu % 2 == 0 { period_ns } else { 0 },
                priority: 1 + random.next_u32() % vcpus as u32,
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
            let domain = instance
                .add_domain(&of_vcpu)
                .expect("the parameters are right");
            instance
                .add_vcpu(domain, vcpu as u32 % cpus, &every_cpu, &of_vcpu, 0)
                .expect("the parameters are right");
            wakes.push(Reverse((below(&mut random, period_ns), vcpu)));
            parameters.push(of_vcpu);
        }
        let mut host = Host {
            instance,
            cpus: every_cpu
                .iter()
                .map(|_| Cpu {
                    running: None,
                    timer_ns: NEVER,
                    until_ns: NEVER,
                    kicked: false,
                })
                .collect(),
            random,
            parameters,
            work_ns: vec![0; vcpus],
            wakes,
            account_ns: NEVER,
            may_stay: cpus > 1 || policy.is_scheduler_s() || policy == Policy::Lending,
            clock_ns,
            schedule: Times::default(),
            wake: Times::default(),
            timer: Times::default(),
        };
        host.serve_requests();
        host
    }

    fn serve_requests(&mut self) {
        self.instance.take_requests(|request| match request {
            Request::ArmTimer(cpu, at_ns) => self.cpus[cpu as usize].timer_ns = at_ns,
            Request::ArmAccount(at_ns) => self.account_ns = at_ns,
            Request::Kick(cpu) => self.cpus[cpu as usize].kicked = true,
            Request::Extend(cpu, until_ns) => self.cpus[cpu as usize].until_ns = until_ns,
        });
    }

    fn run(&mut self, schedule_calls: usize) {
        let mut now = 0;
        while self.schedule.0.len() < schedule_calls {
            let wake_ns = self
                .wakes
                .peek()
                .map_or(NEVER, |Reverse((at_ns, _))| *at_ns);
            let of_cpus = self.cpus.iter().map(|cpu| {
                let work_end_ns = cpu.running.map_or(NEVER, |vcpu| now + self.work_ns[vcpu]);
                work_end_ns.min(cpu.timer_ns).min(cpu.until_ns)
            });
            let before = now;
            now = of_cpus.fold(wake_ns.min(self.account_ns), i64::min);
            for vcpu in self.cpus.iter().filter_map(|cpu| cpu.running) {
                self.work_ns[vcpu] -= now - before;
            }
            self.wake_due(now);
            for cpu in 0..self.cpus.len() {
                if self.cpus[cpu].timer_ns <= now {
                    self.cpus[cpu].timer_ns = NEVER;
                    self.timer
                        .time(self.clock_ns, || self.instance.timer(cpu as u32, now));
                    self.serve_requests();
                }
            }
            if self.account_ns <= now {
                self.account_ns = NEVER;
                self.instance.account(now);
                self.serve_requests();
            }
            // A decision may ask a CPU with a smaller number to decide: at once, as the others' do.
            while let Some(cpu) = (0..self.cpus.len()).find(|&cpu| self.has_to_decide(cpu, now)) {
                self.decide(cpu, now);
            }
        }
    }

    fn has_to_decide(&self, cpu: usize, now: i64) -> bool {
        let cpu = &self.cpus[cpu];
        cpu.kicked || cpu.until_ns <= now || cpu.running.is_some_and(|vcpu| self.work_ns[vcpu] == 0)
    }

    fn wake_due(&mut self, now: i64) {
        while let Some(&Reverse((at_ns, vcpu))) = self.wakes.peek()
            && at_ns <= now
        {
            self.wakes.pop();
            let budget_ns = self.parameters[vcpu].budget_ns;
            self.work_ns[vcpu] = budget_ns / 5 + below(&mut self.random, budget_ns * 8 / 5);
            // Each job is of one of five tasks.
            let (deadline_ns, task) = (
                now + self.parameters[vcpu].period_ns,
                below(&mut self.random, 5),
            );
            self.instance.tell(vcpu, deadline_ns, task, now);
            self.serve_requests();
            self.wake
                .time(self.clock_ns, || self.instance.wake(vcpu, now));
            self.serve_requests();
        }
    }

    fn decide(&mut self, cpu: usize, now: i64) {
        let before = self.cpus[cpu].running;
        if let Some(vcpu) = before.filter(|&vcpu| self.work_ns[vcpu] == 0) {
            self.instance.block_running(vcpu);
            let period_ns = self.parameters[vcpu].period_ns;
            let wake_ns = now + period_ns / 2 + below(&mut self.random, period_ns);
            self.wakes.push(Reverse((wake_ns, vcpu)));
        }
        self.cpus[cpu].kicked = false;
        let decision = self
            .schedule
            .time(self.clock_ns, || self.instance.schedule(cpu as u32, now));
        assert!(
            decision.vcpu != before || self.may_stay,
            "a call that has nothing to do would be a cheap one"
        );
        self.cpus[cpu].running = decision.vcpu;
        self.cpus[cpu].until_ns = decision.until_ns;
        self.serve_requests();
    }

    /// Forgets the times of the calls up to now.
    fn forget(&mut self) {
        for times in [&mut self.schedule, &mut self.wake, &mut self.timer] {
            times.0.clear();
        }
    }
}

fn below(random: &mut Pcg32, limit: i64) -> i64 {
    (random.next_u64() % limit.max(1) as u64) as i64
}

fn main() {
    let clock_ns = clock_ns();
    // A model and a server of all CPUs need not be cheap: they never decide in a hypervisor.
    let decides = |policy: &Policy| !policy.is_model() && !policy.is_global();
    for policy in Policy::ALL.into_iter().filter(decides) {
        let of_one = VCPU_COUNTS.map(|vcpus| (1, vcpus));
        let of_several = CPU_COUNTS.map(|cpus| (cpus, VCPUS_PER_CPU * cpus as usize));
        for (cpus, vcpus) in of_one.into_iter().chain(of_several) {
            let mut host = Host::new(policy, cpus, vcpus, clock_ns);
            host.run(WARM_UP_CALLS);
            host.forget();
            host.run(SCHEDULE_CALLS);
            println!(
                r#"{{"policy":"{}","cpus":{cpus},"vcpus":{vcpus},"clock_ns":{clock_ns},"schedule":{},"wake":{},"timer":{}}}"#,
                policy.name(),
                host.schedule.summary(),
                host.wake.summary(),
                host.timer.summary(),
            );
        }
    }
}
