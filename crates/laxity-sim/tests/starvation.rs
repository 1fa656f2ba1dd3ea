//! What docs/explanation/policies.md says of waits under scheduler S: nothing bounds them.

use laxity_host::Host;
use laxity_trace::{Kind, NONE, Record};
use std::collections::BTreeMap;

const MS: i64 = 1_000_000;
const DURATION_MS: i64 = 10_000;

/// A queue is that of one CPU, and credits are given for two: a guest that gets a whole CPU's time by its weight is
/// never without credits.
const BY_LAXITY: &str = r#"
    host.cpus = 2
    domain = [
        { name = "urgent", laxity = "4 ms", affinity = [1], workload = { kind = "cpu-bound" } },
        { name = "other", affinity = [1], workload = { kind = "cpu-bound" } },
    ]
"#;

/// The same within a guest, whose VCPUs have the same laxity.
const BY_A_SIBLING: &str = r#"
    host.cpus = 2
    domain = [
        { name = "pair", vcpus = 2, laxity = "4 ms", affinity = [1], workload = { kind = "cpu-bound" } },
    ]
"#;

/// On one CPU, with equal weights: when both begin to compute for the rest of the run, `other` has so many credits that
/// it saves up one accounting time while it waits. It is not active any more, and all credits are for `urgent`.
const BY_SAVED_CREDITS: &str = r#"
    host.cpus = 1

    [[domain]]
    name = "urgent"
    laxity = "4 ms"
    tasks = [
        { name = "small", cost = "1 ms", period = "30 ms" },
        { name = "long", cost = "20 s", period = "30 s", offset = "61 ms" },
    ]

    [[domain]]
    name = "other"
    tasks = [
        { name = "small", cost = "5 ms", period = "30 ms" },
        { name = "long", cost = "20 s", period = "30 s", offset = "61 ms" },
    ]
"#;

/// The VCPUs of `pair` have the same credits, and one of them uses all that both get on a CPU of its own.
const BY_SHARED_CREDITS: &str = r#"
    host.cpus = 2
    domain = [
        { name = "pair", vcpus = 2, weight = 200, workload = { kind = "cpu-bound" } },
        { name = "one", weight = 400, workload = { kind = "cpu-bound" } },
    ]
"#;

/// How long the VCPU waited that waited longest, without a break.
fn longest_wait_ns(policy: &str, host: &str) -> i64 {
    let text = format!("duration = \"{DURATION_MS} ms\"\nhost.policy = \"{policy}\"\n{host}");
    let host: Host = laxity_host::load(&text, "host.toml", &[] as &[&str])
        .unwrap_or_else(|error| panic!("{error}"));
    let (_, records) = laxity_sim::run(&host, Vec::<Record>::new()).expect("valid parameters");
    let mut since_ns = BTreeMap::new();
    let mut longest_ns = 0;
    for record in records.iter().filter(|record| record.domain != NONE) {
        let vcpu = (record.domain, record.vcpu);
        match record.kind {
            Kind::Wake => {
                since_ns.entry(vcpu).or_insert(record.time_ns);
            }
            Kind::Stop if record.argument != 0 => {
                since_ns.insert(vcpu, record.time_ns);
            }
            Kind::Run => {
                if let Some(since_ns) = since_ns.remove(&vcpu) {
                    longest_ns = longest_ns.max(record.time_ns - since_ns);
                }
            }
            _ => {}
        }
    }
    let left = since_ns
        .values()
        .map(|since_ns| host.duration_ns - since_ns);
    left.fold(longest_ns, i64::max)
}

fn starves(policy: &str, host: &str) {
    let wait_ns = longest_wait_ns(policy, host);
    assert!(wait_ns > (DURATION_MS - 100) * MS, "{policy}: {wait_ns} ns");
}

fn shares(policy: &str, host: &str) {
    let wait_ns = longest_wait_ns(policy, host);
    assert!(wait_ns <= 60 * MS, "{policy}: {wait_ns} ns");
}

#[test]
fn whoever_waits_behind_a_laxity_may_wait_for_ever() {
    for host in [BY_LAXITY, BY_A_SIBLING, BY_SAVED_CREDITS] {
        for policy in ["s-a", "s-ab", "s-al", "s-all", "s-aill", "s-allc", "s-abll"] {
            starves(policy, host);
        }
        for policy in ["s-base", "credit"] {
            shares(policy, host);
        }
    }
}

#[test]
fn whoever_shares_credits_with_a_sibling_may_wait_for_ever() {
    starves("s-base", BY_SHARED_CREDITS);
    let real_time = BY_SHARED_CREDITS.replace("vcpus = 2", "vcpus = 2, laxity = \"4 ms\"");
    for policy in ["s-a", "s-ab", "s-al", "s-all", "s-allc", "s-abll"] {
        starves(policy, &real_time);
    }
    // What balances the load takes a VCPU that has waited longer, if it is not real-time.
    for policy in ["s-al", "s-all", "s-allc", "credit"] {
        shares(policy, BY_SHARED_CREDITS);
    }
}
