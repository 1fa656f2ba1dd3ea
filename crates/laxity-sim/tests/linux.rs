//! The models of Linux's schedulers against what is known without them: fixed priorities, shares by weight, quotas
//! and runtimes.

use laxity_host::{Host, Policy, load};
use laxity_reference::random_host;
use laxity_sim::run;
use laxity_trace::{Kind, Off, Record};

fn cpu_ns(text: &str) -> Vec<i64> {
    let host = load(text, "host.toml", &[] as &[&str]).unwrap_or_else(|error| panic!("{error}"));
    let (outcome, _) = run(&host, Off).expect("the policy takes it");
    (outcome.result.domains.iter())
        .map(|domain| domain.cpu_ns)
        .collect()
}

/// Domain and argument of each job that is complete, and when.
fn completions(host: &Host) -> Vec<(u16, i64, i64)> {
    let (_, records) = run(host, Vec::<Record>::new()).expect("the policy takes it");
    (records.iter())
        .filter(|record| record.kind == Kind::Complete)
        .map(|record| (record.domain, record.argument, record.time_ns))
        .collect()
}

/// A server whose budget is its whole period never lacks any: on one CPU, deferrable servers of different priorities
/// are then fixed priorities, as fifo is.
#[test]
fn fifo_is_fixed_priority_on_one_cpu() {
    let mut jobs = 0;
    for seed in 0..400 {
        let mut host = random_host(seed);
        host.cpus = 1;
        host.settings.quantum_ns = 0;
        for (number, domain) in (1..).zip(&mut host.domains) {
            domain.parameters.budget_ns = domain.parameters.period_ns;
            domain.parameters.priority = number;
            domain.parameters.rt_priority = 50 - number;
            domain.vcpus.truncate(1);
            domain.vcpus[0].cpu = 0;
            domain.vcpus[0].affinity = vec![0];
            for task in &mut domain.tasks {
                task.vcpu = 0;
            }
        }
        host.policy = Policy::Deferrable;
        let expected = completions(&host);
        host.policy = Policy::Fifo;
        assert_eq!(completions(&host), expected, "seed {seed}");
        jobs += expected.len();
    }
    assert!(jobs > 10_000, "only {jobs} jobs were compared");
}

#[test]
fn eevdf_shares_by_weight() {
    let used_ns = cpu_ns(
        r#"
        duration = "7 s"
        host = { cpus = 1, policy = "eevdf" }
        domain = [
            { name = "a", weight = 100, workload = { kind = "cpu-bound" } },
            { name = "b", weight = 200, workload = { kind = "cpu-bound" } },
            { name = "c", weight = 400, vcpus = 2, workload = { kind = "cpu-bound" } },
        ]"#,
    );
    // Two slices are the bound on lag; ticks of 4 ms make a slice as long.
    for (used_ns, share_ns) in used_ns
        .iter()
        .zip([1_000_000_000, 2_000_000_000, 4_000_000_000])
    {
        assert!(
            (used_ns - share_ns).abs() <= 20_000_000,
            "{used_ns} of {share_ns}"
        );
    }
}

#[test]
fn a_quota_holds_and_is_used() {
    let used_ns = cpu_ns(
        r#"
        duration = "10 s"
        host = { cpus = 2, policy = "eevdf" }
        domain = [
            { name = "a", vcpus = 2, quota = "30 ms", workload = { kind = "cpu-bound" } },
            { name = "b", workload = { kind = "cpu-bound" } },
        ]"#,
    );
    // 100 periods, and what two VCPUs may overrun by a tick.
    assert!(
        (used_ns[0] - 3_000_000_000).abs() <= 8_000_000,
        "{used_ns:?}"
    );
    // In each period the other shares its CPU with one of the two for about 15 ms.
    assert!(used_ns[1] > 9_100_000_000, "{used_ns:?}");
}

#[test]
fn reclaiming_gives_what_others_leave_by_bandwidth() {
    for jiffy in ["0 ms", "1 ms"] {
        let used_ns = cpu_ns(&format!(
            r#"
            duration = "10 s"
            host = {{ cpus = 1, policy = "deadline", jiffy = "{jiffy}" }}
            domain = [
                {{ name = "a", budget = "20 ms", period = "100 ms", reclaim = true, workload = {{ kind = "cpu-bound" }} }},
                {{ name = "b", budget = "10 ms", period = "100 ms", reclaim = true, workload = {{ kind = "cpu-bound" }} }},
                {{ name = "kept", budget = "10 ms", period = "100 ms", workload = {{ kind = "cpu-bound" }} }},
                {{ name = "left", budget = "50 ms", period = "100 ms" }},
            ]"#
        ));
        // `left` never comes, so 40 of 95 % are in use: 20 ms last for 20 / (40 / 95) = 47.5 ms of every 100 ms.
        let shares_ns = [4_750_000_000, 2_375_000_000, 1_000_000_000, 0];
        for (used_ns, share_ns) in used_ns.iter().zip(shares_ns) {
            assert!(
                (used_ns - share_ns).abs() <= 50_000_000,
                "{jiffy}: {used_ns} of {share_ns}"
            );
        }
    }
}

#[test]
fn deadline_gives_runtimes_and_no_more() {
    for jiffy in ["0 ms", "4 ms"] {
        let used_ns = cpu_ns(&format!(
            r#"
            duration = "10 s"
            host = {{ cpus = 2, policy = "deadline", jiffy = "{jiffy}" }}
            domain = [
                {{ name = "a", budget = "2 ms", period = "10 ms", workload = {{ kind = "cpu-bound" }} }},
                {{ name = "b", budget = "5 ms", period = "20 ms", vcpus = 4, workload = {{ kind = "cpu-bound" }} }},
                {{ name = "c", budget = "30 ms", period = "60 ms", workload = {{ kind = "cpu-bound" }} }},
            ]"#
        ));
        for (used_ns, share_ns) in
            used_ns
                .iter()
                .zip([2_000_000_000, 10_000_000_000, 5_000_000_000])
        {
            assert!(
                (used_ns - share_ns).abs() <= 40_000_000,
                "{jiffy}: {used_ns} of {share_ns}"
            );
        }
    }
}

/// What each domain gets of 8 s of one CPU under a policy, ms.
fn helped_ms(policy: &str, domains: &str) -> Vec<i64> {
    let host = format!(
        r#"
        duration = "8 s"
        host = {{ cpus = 1, policy = "{policy}", jiffy = "4 ms" }}
        domain = [{domains}]"#
    );
    cpu_ns(&host).iter().map(|ns| ns / 1_000_000).collect()
}

#[test]
fn helpers_share_their_groups_weight_and_quota() {
    let domains = |quota: &str| {
        format!(
            r#"
            {{ name = "web", weight = 100{quota}, workload = {{ kind = "cpu-bound" }}, helpers = [
                {{ name = "emulator", cost = "50 ms", period = "50 ms" }},
            ] }},
            {{ name = "other", weight = 100, workload = {{ kind = "cpu-bound" }} }},"#
        )
    };
    let used_ms = helped_ms("eevdf", &domains(""));
    for (used_ms, share_ms) in used_ms.iter().zip([2_000, 4_000, 2_000]) {
        assert!((used_ms - share_ms).abs() <= 20, "{used_ms} of {share_ms}");
    }
    let quota = r#", quota = "20 ms", quota-period = "100 ms""#;
    let used_ms = helped_ms("eevdf", &domains(quota));
    let of_group_ms = used_ms[0] + used_ms[2];
    assert!((of_group_ms - 1_600).abs() <= 10, "{used_ms:?}");
}

#[test]
fn helpers_have_priorities_and_budgets_of_their_own() {
    let loop_and_helper = |helper: &str| {
        format!(
            r#"
            {{ name = "web", rt-priority = 40, budget = "40 ms", period = "80 ms",
               workload = {{ kind = "cpu-bound" }}, helpers = [{helper}] }},"#
        )
    };
    let above = r#"{ name = "io", cost = "1 ms", period = "10 ms", rt-priority = 50 }"#;
    assert_eq!(helped_ms("fifo", &loop_and_helper(above)), [7_200, 800]);
    let below = r#"{ name = "io", cost = "1 ms", period = "10 ms", rt-priority = 30 }"#;
    assert_eq!(helped_ms("fifo", &loop_and_helper(below)), [8_000, 0]);
    // It needs more than its budget, which ends at ticks of 4 ms.
    let limited = r#"{ name = "io", cost = "40 ms", period = "40 ms", budget = "8 ms" }"#;
    assert_eq!(
        helped_ms("deadline", &loop_and_helper(limited)),
        [4_000, 1_600]
    );
}
