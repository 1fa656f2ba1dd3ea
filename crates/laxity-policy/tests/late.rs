//! Timers that a hypervisor handles late.

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{Instance, Report, Request};

const MS: i64 = 1_000_000;
const LATE_NS: i64 = 5_000;

/// When accounting comes that the tick at a time is followed by, for the first VCPU that a tick finds.
fn accounting_after(policy: Policy, phase_ns: i64, tick_ns: i64, late_ns: i64) -> Vec<i64> {
    let settings = Settings {
        accounting_phase_ns: phase_ns,
        ..Settings::default()
    };
    let parameters = Parameters::default();
    let mut host = Instance::new(policy, &settings, 1).expect("valid");
    host.add_domain(&parameters).expect("valid");
    let added = host.add_vcpu(0, 0, &[0], &parameters, 0);
    host.wake(added.expect("valid"), tick_ns - MS);
    host.schedule(0, tick_ns - MS);
    host.take_requests(|_| {});
    host.timer(0, tick_ns + late_ns);
    let mut found = Vec::new();
    host.take_requests(|request| {
        if let Request::ArmAccount(at_ns) = request {
            found.push(at_ns);
        }
    });
    found
}

/// A tick at the time of an accounting is followed by that, however late it is handled; the simulator, in which
/// nothing is late, and a hypervisor agree.
#[test]
fn an_accounting_follows_the_tick_of_its_time() {
    for policy in [Policy::Credit, Policy::SBase, Policy::SAllc] {
        for phase_ns in [0, 7 * MS] {
            for late_ns in [0, LATE_NS] {
                let after = |tick_ms: i64| {
                    let tick_ns = phase_ns + tick_ms * MS;
                    let found = accounting_after(policy, phase_ns, tick_ns, late_ns);
                    found.last().map(|at_ns| at_ns - phase_ns)
                };
                let found = [20, 30, 40].map(after);
                assert_eq!(
                    found,
                    [30, 30, 60].map(|at_ms| Some(at_ms * MS)),
                    "{policy:?}, phase {phase_ns} ns, {late_ns} ns late"
                );
            }
        }
    }
}

/// What the policy says of 4 VCPUs on 2 CPUs over 120 ms, and its last word on each timer.
///
/// Where a tick and an accounting are of one time, `serve` is told to serve both: an accounting, and a tick of
/// each CPU.
fn served(policy: Policy, serve: fn(&mut Instance, i64)) -> (Vec<(i64, Report)>, [i64; 3]) {
    let mut host = Instance::new(policy, &Settings::default(), 2).expect("valid");
    host.set_tracing(true);
    for weight in [256, 512, 128, 64] {
        let parameters = Parameters {
            weight,
            ..Parameters::default()
        };
        let domain = host.add_domain(&parameters).expect("valid");
        let cpu = u32::try_from(domain % 2).expect("small");
        let added = host.add_vcpu(domain, cpu, &[cpu], &parameters, 0);
        host.wake(added.expect("valid"), MS);
    }
    host.schedule(0, MS);
    host.schedule(1, MS);
    let (mut reports, mut armed) = (Vec::new(), [i64::MAX; 3]);
    for step in 1..=12 {
        let now = step * 10 * MS + LATE_NS;
        if step % 3 == 0 {
            serve(&mut host, now);
        } else {
            host.timer(0, now);
            host.timer(1, now);
        }
        // What queues in which class shows in who is next.
        host.schedule(0, now + MS);
        host.schedule(1, now + MS);
        host.take_reports(|report| reports.push((now, report)));
        host.take_requests(|request| match request {
            Request::ArmTimer(cpu, at_ns) => armed[cpu as usize] = at_ns,
            Request::ArmAccount(at_ns) => armed[2] = at_ns,
            _ => {}
        });
    }
    (reports, armed)
}

/// Timers of one time come in the hypervisor's order, which may be another one each time.
#[test]
fn a_tick_comes_before_the_accounting_of_its_time() {
    for policy in [Policy::Credit, Policy::SBase, Policy::SAllc] {
        let expected = served(policy, |host, now| {
            host.timer(0, now);
            host.timer(1, now);
            host.account(now);
        });
        assert!(
            expected.0.len() > 24,
            "{policy:?} says {}",
            expected.0.len()
        );
        let others: [fn(&mut Instance, i64); 2] = [
            |host, now| {
                host.account(now);
                host.timer(1, now);
                host.timer(0, now);
            },
            |host, now| {
                host.timer(0, now);
                host.account(now);
                host.timer(1, now);
            },
        ];
        for serve in others {
            assert_eq!(served(policy, serve), expected, "{policy:?}");
        }
    }
}

/// The decision after a turn may be late, too, and a tick may come between.
#[test]
fn a_tick_behind_the_end_of_a_turn_gives_no_other_one() {
    for policy in [Policy::Credit, Policy::SBase, Policy::SAllc] {
        let mut host = Instance::new(policy, &Settings::default(), 1).expect("valid");
        let parameters = Parameters::default();
        for _ in 0..2 {
            let domain = host.add_domain(&parameters).expect("valid");
            let added = host.add_vcpu(domain, 0, &[0], &parameters, 0);
            host.wake(added.expect("valid"), MS);
        }
        let end_ns = host.schedule(0, MS).until_ns;
        assert_eq!(end_ns, MS + Settings::default().time_slice_ns);
        host.take_requests(|_| {});
        host.timer(0, end_ns + LATE_NS);
        host.take_requests(|request| {
            assert!(
                !matches!(request, Request::Extend(..)),
                "{policy:?}: {request:?}"
            );
        });
    }
}
