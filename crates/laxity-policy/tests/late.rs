//! Timers that a hypervisor handles late.

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{Instance, Request};

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
