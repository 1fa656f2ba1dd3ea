//! Time that something other than a VCPU had in the turn of a VCPU: no budget pays for it.

use laxity_policies::{Parameters, Policy, Settings};
use laxity_policy::{Instance, Request};

const MS: i64 = 1_000_000;

/// One CPU with VCPUs of these budgets in 10 ms, ms, all with work, the first one first; decided at 0.
fn host(policy: Policy, budgets_ms: &[i64]) -> Instance {
    let mut host = Instance::new(policy, &Settings::default(), 1).expect("valid");
    host.add_domain(&parameters(1, 1)).expect("valid");
    for (priority, &budget_ms) in (1..).zip(budgets_ms) {
        let added = host.add_vcpu(0, 0, &[0], &parameters(budget_ms, priority), 0);
        host.wake(added.expect("valid"), 0);
        host.timer(0, 0);
    }
    host
}

fn parameters(budget_ms: i64, priority: u32) -> Parameters {
    Parameters {
        budget_ns: budget_ms * MS,
        period_ns: 10 * MS,
        priority,
        ..Parameters::default()
    }
}

#[test]
fn stolen_time_is_nobodys_use() {
    for policy in [
        Policy::Deferrable,
        Policy::Periodic,
        Policy::Polling,
        Policy::Sporadic,
        Policy::Sedf,
    ] {
        let mut host = host(policy, &[2, 3]);
        let first = host.schedule(0, 0);
        assert_eq!(
            (first.vcpu, first.until_ns),
            (Some(0), 2 * MS),
            "{policy:?}"
        );
        // Half of the first millisecond is not its own, so the budget ends later by as much.
        host.steal(0, MS / 2);
        let same = host.schedule(0, MS);
        assert_eq!(
            (same.vcpu, same.until_ns),
            (Some(0), 2 * MS + MS / 2),
            "{policy:?}"
        );
        let second = host.schedule(0, 2 * MS + MS / 2);
        assert_eq!(
            (second.vcpu, second.until_ns),
            (Some(1), 5 * MS + MS / 2),
            "{policy:?}"
        );
    }
}

#[test]
fn what_a_vcpu_had_out_of_its_turn_is_use() {
    let mut host = host(Policy::Deferrable, &[2, 3]);
    assert_eq!(host.schedule(0, 0).until_ns, 2 * MS);
    host.steal(0, -MS / 2);
    let same = host.schedule(0, MS);
    assert_eq!((same.vcpu, same.until_ns), (Some(0), MS + MS / 2));
}

#[test]
fn the_budget_of_a_blocked_vcpu_runs_down_whoever_has_the_cpu() {
    let mut host = host(Policy::Periodic, &[2, 3]);
    assert_eq!(host.schedule(0, 0).vcpu, Some(0));
    host.block_running(0);
    assert_eq!(host.schedule(0, MS).vcpu, None, "it idles on its account");
    host.take_requests(|_| {});
    host.steal(0, MS / 2);
    host.timer(0, 2 * MS);
    let mut kicked = false;
    host.take_requests(|request| kicked |= matches!(request, Request::Kick { .. }));
    assert!(kicked, "its budget is used up");
    assert_eq!(host.schedule(0, 2 * MS).vcpu, Some(1));
}

#[test]
fn credits_of_scheduler_s_do_not_pay_for_it() {
    let spent_ns = |stolen_ns| {
        let mut host = host(Policy::SBase, &[1]);
        assert_eq!(host.schedule(0, 0).vcpu, Some(0));
        host.set_tracing(true);
        host.steal(0, stolen_ns);
        host.schedule(0, 5 * MS);
        let mut left_ns = None;
        host.take_reports(|report| left_ns = left_ns.or(Some(report.argument)));
        left_ns.expect("it pays")
    };
    assert_eq!(spent_ns(2 * MS) - spent_ns(0), 2 * MS);
}
