//! Servers and SEDF with one order for all CPUs: where every VCPU has one CPU, they do what the policies of each CPU
//! do, to the record, on a host of one CPU also if decisions cost time. On several CPUs one may decide once more for
//! the same VCPU, since what happens on any of them accounts for all.

use laxity_host::{Cost, Host, Policy};
use laxity_reference::random_host;
use laxity_trace::{Kind, Record};
use laxity_trials::seeds;

/// A random host under a policy of each CPU that has a global counterpart, without what global policies leave out.
fn partitioned(seed: u64) -> Option<(Host, Policy)> {
    let mut host = random_host(seed);
    host.policy = host.policy.on_each_cpu().unwrap_or(host.policy);
    let global = host.policy.on_all_cpus()?;
    host.settings.quantum_ns = 0;
    for domain in &mut host.domains {
        domain.parameters.extratime = false;
        for vcpu in &mut domain.vcpus {
            vcpu.affinity = vec![vcpu.cpu];
        }
    }
    if host.cpus == 1 && seed.is_multiple_of(2) {
        host.costs.schedule = cost(seed % 7 * 100);
        host.costs.context_switch = cost(seed % 5 * 1_000);
    }
    Some((host, global))
}

fn cost(most_ns: u64) -> Cost {
    Cost::Quantiles {
        median_ns: most_ns as i64 / 3,
        p90_ns: None,
        p99_ns: most_ns as i64 / 2,
        p999_ns: None,
        max_ns: most_ns as i64,
    }
}

/// All that happens on one CPU, in order.
fn on_cpu(host: &Host, cpu: u16) -> Vec<Record> {
    let (_, records) = laxity_sim::run(host, Vec::<Record>::new()).expect("the policy takes it");
    let decides = [Kind::Schedule, Kind::Execute];
    records
        .into_iter()
        .filter(|record| record.cpu == cpu)
        .filter(|record| host.cpus == 1 || !decides.contains(&record.kind))
        .collect()
}

#[test]
fn on_one_cpu_each_does_what_the_policy_of_each_cpu_does() {
    let mut compared = 0;
    for seed in seeds(2_000) {
        let Some((host, global)) = partitioned(seed) else {
            continue;
        };
        compared += 1;
        let other = Host {
            policy: global,
            ..host.clone()
        };
        for cpu in 0..host.cpus as u16 {
            let (one, all) = (on_cpu(&host, cpu), on_cpu(&other, cpu));
            let records = 0..one.len().max(all.len());
            let differs = records
                .map(|at| (one.get(at), all.get(at)))
                .find(|(one, all)| one != all);
            assert_eq!(differs, None, "seed {seed}, {}, CPU {cpu}", global.name());
        }
    }
    assert!(compared > 0, "no host is compared");
}
