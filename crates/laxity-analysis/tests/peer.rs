//! Against a public peer, the `response-time-analysis` crate, on what both do: a guest under fixed priorities
//! that owns its CPU.

use laxity_analysis::check;
use laxity_host::{Costs, Domain, GuestScheduler, Host, Parameters, Policy, Settings, Task, Vcpu};
use proptest::prelude::*;
use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::RBF;
use response_time_analysis::fixed_priority::fully_preemptive::dedicated_uniproc_rta;
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;

/// A server whose budget is its period never keeps its guest waiting.
fn host(tasks: Vec<Task>) -> Host {
    Host {
        duration_ns: 1,
        seed: 0,
        cpus: 1,
        policy: Policy::Deferrable,
        settings: Settings::default(),
        costs: Costs::default(),
        domains: vec![Domain {
            name: "guest".into(),
            parameters: Parameters {
                budget_ns: 1 << 40,
                period_ns: 1 << 40,
                laxity_ns: 0,
                priority: 1,
                extratime: false,
                weight: 256,
                cap_percent: 0,
                rt_priority: 1,
                quota_ns: 0,
                quota_period_ns: 100_000_000,
                quota_burst_ns: 0,
                phase_ns: 0,
                credit_ns: 10_000_000,
                reclaim: false,
            },
            vcpus: vec![Vcpu {
                cpu: 0,
                affinity: vec![0],
                soft_affinity: Vec::new(),
            }],
            guest: GuestScheduler::RateMonotonic,
            tasks,
            cpu_bound: false,
            workload: None,
            working_set_bytes: 0,
            tick: None,
            helper_of: None,
        }],
        timer_latency_ns: 0,
        caches: Vec::new(),
        network: None,
        calls: None,
        profiles: Vec::new(),
    }
}

/// Costs, periods that are all different (so that the order of priorities is plain), jitters.
fn tasks() -> impl Strategy<Value = Vec<Task>> {
    prop::collection::vec((1_i64..20, 20_i64..400, 0_i64..20), 1..9).prop_map(|drawn| {
        let mut period_ns = 0;
        let mut drawn = drawn;
        drawn.sort_by_key(|&(_, period_ns, _)| period_ns);
        drawn
            .into_iter()
            .enumerate()
            .map(|(number, (cost_ns, least_ns, jitter_ns))| {
                period_ns = least_ns.max(period_ns + 1);
                Task {
                    name: format!("task-{number}"),
                    vcpu: 0,
                    cost_ns,
                    period_ns,
                    deadline_ns: period_ns,
                    offset_ns: 0,
                    jitter_ns,
                }
            })
            .collect()
    })
}

fn demand(task: &Task) -> RBF<Sporadic, Scalar> {
    let period = Duration::from(task.period_ns as u64);
    let jitter = Duration::from(task.jitter_ns as u64);
    RBF::new(
        Sporadic::new(period, jitter),
        Scalar::new(Service::from(task.cost_ns as u64)),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bounds_are_those_of_the_peer(tasks in tasks()) {
        let ours = check(&host(tasks.clone()));
        for (rank, task) in tasks.iter().enumerate() {
            let above: Vec<_> = tasks[..rank].iter().map(demand).collect();
            let limit = Duration::from(100_000);
            // The peer counts from the release, we from the arrival, up to the jitter before it.
            let peer = dedicated_uniproc_rta(&demand(task), &above, limit)
                .ok()
                .map(|bound| u64::from(bound) as i64 + task.jitter_ns)
                .filter(|&bound_ns| bound_ns <= task.deadline_ns);
            let found = &ours.domains[0].tasks[rank];
            prop_assert_eq!(found.bound_ns.filter(|_| found.guaranteed), peer, "{:?}", tasks);
        }
    }
}
