//! Storms: random wakes, sleeps, blocks, yields, decisions and live changes, right and wrong, on every
//! policy, with timers that fire on time and with timers that are late. After every step all that can be
//! seen from outside must be as docs/explanation/policies.md says.

mod budgets;
mod credits;
mod invalid;
mod scheduler_s;
mod storm;

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{Decision, Instance, NEVER, Request};
use laxity_trials::seeds;
use storm::Storm;

const MS: i64 = 1_000_000;

/// Says how to repeat a storm that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "This was storm {0}: LAXITY_SEED={0} LAXITY_CASES=1 repeats it.",
                self.0
            );
        }
    }
}

#[test]
fn nothing_is_lost_in_a_storm() {
    for seed in seeds(20_000) {
        let seed = Seed(seed);
        Storm::new(seed.0).run();
    }
}

/// A VCPU that is paused while it runs pays for its CPU until it is taken off, also when what kept it from
/// running on its budget ends at the pause: the first VCPU's blocked budget, which nobody came to see.
#[test]
fn a_paused_vcpu_pays_until_it_is_taken_off() {
    let mut instance =
        Instance::new(Policy::Periodic, &Settings::default(), 1).expect("default settings");
    let domain = instance.add_domain(&storm::PARAMETERS).expect("valid");
    for (priority, period_ns) in [(1, 11), (2, 12)] {
        let parameters = Parameters {
            budget_ns: 5,
            period_ns,
            priority,
            extratime: true,
            ..storm::PARAMETERS
        };
        let added = instance.add_vcpu(domain, 0, &[0], &parameters, 0);
        added.expect("valid");
    }
    let (blocked, paused) = (0, 1);
    instance.timer(0, 0);
    instance.wake(paused, 0);
    let runs = |vcpu, until_ns| Decision { vcpu, until_ns };
    assert_eq!(instance.schedule(0, 0), runs(None, NEVER));
    instance.timer(0, 5);
    assert_eq!(instance.schedule(0, 5), runs(Some(paused), 10));
    assert_eq!(instance.schedule(0, 10), runs(Some(paused), NEVER));
    instance.timer(0, 11); // the blocked one's budget, while the other is on extra time
    instance.timer(0, 12); // the other's budget, which has to wait
    instance.sleep(paused, 17);
    assert_eq!(instance.schedule(0, 19), runs(None, NEVER));
    let left_ns: Vec<_> = instance.dump(0).iter().map(|line| line.left_ns).collect();
    assert_eq!((left_ns[blocked], left_ns[paused]), (-1, 3));
}

/// Domains of endless loops under credit, one a pair of weight and cap, with as many VCPUs as said, each
/// of which may run everywhere. Returns what each domain got, in CPUs.
fn shares(cpus: usize, domains: &[(u32, u32, usize)], duration_ns: i64) -> Vec<f64> {
    let mut instance =
        Instance::new(Policy::Credit, &Settings::default(), cpus as u32).expect("default settings");
    let everywhere: Vec<u32> = (0..cpus as u32).collect();
    let mut domain_of = Vec::new();
    for &(weight, cap_percent, vcpus) in domains {
        let parameters = Parameters {
            weight,
            cap_percent,
            ..storm::PARAMETERS
        };
        let domain = instance.add_domain(&parameters).expect("valid");
        for _ in 0..vcpus {
            let cpu = (domain_of.len() % cpus) as u32;
            instance
                .add_vcpu(domain, cpu, &everywhere, &parameters, 0)
                .expect("valid");
            domain_of.push(domain);
        }
    }
    for vcpu in 0..domain_of.len() {
        instance.wake(vcpu, 0);
    }
    // For each CPU its timer and the end of its decision, then accounting.
    let mut times = vec![(NEVER, 0); cpus];
    let mut account_ns = NEVER;
    let mut running = vec![None; cpus];
    let mut used_ns = vec![0_i64; domains.len()];
    let mut now = 0;
    loop {
        instance.take_requests(|request| match request {
            Request::ArmTimer(cpu, at_ns) => times[cpu as usize].0 = at_ns,
            Request::Kick(cpu) => times[cpu as usize].1 = now,
            Request::Extend(cpu, at_ns) => times[cpu as usize].1 = at_ns,
            Request::ArmAccount(at_ns) => account_ns = at_ns,
        });
        let next = times
            .iter()
            .map(|&(timer_ns, end_ns)| timer_ns.min(end_ns))
            .min();
        let next = next.expect("a CPU").min(account_ns);
        assert!(next >= now && next < NEVER, "somebody always runs");
        for vcpu in running.iter().flatten() {
            used_ns[domain_of[*vcpu]] += next.min(duration_ns) - now;
        }
        now = next;
        if now >= duration_ns {
            break;
        }
        if let Some(cpu) = times.iter().position(|&(timer_ns, _)| timer_ns == now) {
            times[cpu].0 = NEVER;
            instance.timer(cpu as u32, now);
        } else if account_ns == now {
            account_ns = NEVER;
            instance.account(now);
        } else if let Some(cpu) = times.iter().position(|&(_, end_ns)| end_ns == now) {
            let decision = instance.schedule(cpu as u32, now);
            times[cpu].1 = decision.until_ns;
            running[cpu] = decision.vcpu;
        }
    }
    used_ns
        .iter()
        .map(|&used_ns| used_ns as f64 / duration_ns as f64)
        .collect()
}

/// Every domain's share is that of its weight, within 2 % of a CPU, over 60 s.
#[test]
fn credit_shares_by_weight() {
    for weights in [
        &[256, 256][..],
        &[256, 512],
        &[100, 300, 600],
        &[1000, 250, 250, 100, 400],
    ] {
        let domains: Vec<_> = weights.iter().map(|&weight| (weight, 0, 1)).collect();
        let total: u32 = weights.iter().sum();
        let got = shares(1, &domains, 60_000 * MS);
        for (&weight, &got) in weights.iter().zip(&got) {
            let expected = f64::from(weight) / f64::from(total);
            assert!(
                (got - expected).abs() < 0.02,
                "{weights:?}: {got} instead of {expected}"
            );
        }
    }
    // Two CPUs, two VCPUs each: twice the weight is twice the time.
    let got = shares(2, &[(256, 0, 2), (512, 0, 2)], 60_000 * MS);
    assert!(
        (got[0] - 2.0 / 3.0).abs() < 0.05 && (got[1] - 4.0 / 3.0).abs() < 0.05,
        "{got:?}"
    );
}

/// No domain gets more than its cap, nor, if there is enough, much less.
#[test]
fn credit_holds_caps() {
    for (cpus, domains) in [
        (1, &[(256, 10, 1), (256, 0, 1)][..]),
        (1, &[(256, 25, 1)]),
        (1, &[(512, 40, 1), (256, 30, 1)]),
        (2, &[(256, 50, 1), (1024, 100, 2), (256, 0, 1)]),
        (2, &[(256, 60, 2)]),
    ] {
        let got = shares(cpus, domains, 60_000 * MS);
        for (&(_, cap_percent, _), &got) in domains.iter().zip(&got) {
            let cap = f64::from(cap_percent) / 100.0;
            if cap > 0.0 {
                assert!(got < cap + 0.01, "{domains:?}: {got} above {cap}");
                assert!(got > cap * 0.9 - 0.01, "{domains:?}: {got} below {cap}");
            }
        }
    }
}
