//! The model of Xen's credit2 with several run queues, against what is known without it: who
//! shares a CPU with whom, and that an idle CPU does not stay so.

use laxity_host::{Host, load};
use laxity_sim::run;
use laxity_trace::{Kind, Off, Record};
use std::collections::BTreeSet;

/// Each domain has one VCPU, and they begin on the CPUs in turn.
fn host(cpus: u32, run_queue_cpus: u32, domains: &str) -> Host {
    let text = format!(
        r#"
        duration = "4 s"
        host = {{ cpus = {cpus}, policy = "credit2", run-queue-cpus = {run_queue_cpus} }}
        domain = [{domains}]"#
    );
    load(&text, "host.toml", &[] as &[&str]).unwrap_or_else(|error| panic!("{error}"))
}

/// What each domain gets of 4 s, ms.
fn used_ms(cpus: u32, run_queue_cpus: u32, domains: &str) -> Vec<i64> {
    let (outcome, _) = run(&host(cpus, run_queue_cpus, domains), Off).expect("the policy takes it");
    (outcome.result.domains.iter())
        .map(|domain| domain.cpu_ns / 1_000_000)
        .collect()
}

/// The CPUs on which the first domain runs.
fn cpus_of_first(cpus: u32, domains: &str) -> Vec<u16> {
    let records = run(&host(cpus, 0, domains), Vec::<Record>::new())
        .expect("the policy takes it")
        .1;
    let runs = records
        .iter()
        .filter(|record| record.kind == Kind::Run && record.domain == 0);
    let cpus: BTreeSet<u16> = runs.map(|record| record.cpu).collect();
    cpus.into_iter().collect()
}

fn busy(name: &str) -> String {
    format!(r#"{{ name = "{name}", workload = {{ kind = "cpu-bound" }} }},"#)
}

fn idle(name: &str) -> String {
    format!(r#"{{ name = "{name}" }},"#)
}

fn assert_about(used_ms: &[i64], wanted_ms: &[i64]) {
    let are_near = |(used_ms, wanted_ms): (&i64, &i64)| (used_ms - wanted_ms).abs() <= 100;
    let all_are = used_ms.iter().zip(wanted_ms).all(are_near);
    assert!(all_are, "{used_ms:?} and not {wanted_ms:?}");
}

#[test]
fn three_loops_share_two_cpus_by_their_run_queues() {
    let domains = ["a", "b", "c"].map(busy).concat();
    let of_one_queue = used_ms(2, 0, &domains);
    assert_eq!(used_ms(2, 2, &domains), of_one_queue);
    // Two run queues have two CPUs, too, whoever goes over between them.
    let of_two_queues = used_ms(2, 1, &domains);
    assert_ne!(of_two_queues, of_one_queue);
    for used_ms in [of_one_queue, of_two_queues] {
        assert!(used_ms.iter().sum::<i64>() >= 7_990, "{used_ms:?}");
        // Nobody has a CPU alone, or half of one, all the time.
        let is_shared = |ms: &i64| (2_050..3_500).contains(ms);
        assert!(used_ms.iter().all(is_shared), "{used_ms:?}");
    }
}

#[test]
fn balancing_fills_an_idle_run_queue() {
    // Both loops begin on CPU 0. One goes to CPU 1 when the averages differ by an eighth, within 0.2 s.
    let domains = [busy("a"), idle("b"), busy("c"), idle("d")].concat();
    let used_ms = used_ms(2, 1, &domains);
    assert!(used_ms[0] + used_ms[2] > 7_700, "{used_ms:?}");
    assert_eq!([used_ms[1], used_ms[3]], [0, 0]);
}

#[test]
fn balancing_keeps_affinity() {
    let pinned = r#"{ name = "a", affinity = [0], workload = { kind = "cpu-bound" } },
                    { name = "b", affinity = [0], workload = { kind = "cpu-bound" } },"#;
    assert_about(&used_ms(2, 1, pinned), &[2_000, 2_000]);
}

#[test]
fn a_weight_counts_in_its_run_queue_alone() {
    // The weight of b makes nobody's credits burn faster but those of d, which shares its CPU.
    let domains = r#"
        { name = "a", weight = 100, affinity = [0], workload = { kind = "cpu-bound" } },
        { name = "b", weight = 900, affinity = [1], workload = { kind = "cpu-bound" } },
        { name = "c", weight = 300, affinity = [0], workload = { kind = "cpu-bound" } },
        { name = "d", weight = 100, affinity = [1], workload = { kind = "cpu-bound" } },"#;
    assert_about(&used_ms(2, 1, domains), &[1_000, 3_600, 3_000, 400]);
}

#[test]
fn a_vcpu_runs_where_it_prefers() {
    let first = |soft_affinity: &str| {
        format!(r#"{{ name = "a"{soft_affinity}, workload = {{ kind = "cpu-bound" }} }}, "#)
    };
    assert_eq!(cpus_of_first(2, &first("")), [0]);
    let soft = first(", soft-affinity = [1]");
    assert_eq!(cpus_of_first(2, &soft), [1]);
    // Its preference does not keep it waiting for CPU 1, nor CPU 0 idle.
    let pinned = r#"{ name = "b", affinity = [1], workload = { kind = "cpu-bound" } }"#;
    assert_about(&used_ms(2, 0, &(soft + pinned)), &[4_000, 4_000]);
}
