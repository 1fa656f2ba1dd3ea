//! What `check` says of hosts whose answer is known, and how it changes with them.

use laxity_analysis::davis_burns::{
    PaperServer, PaperTask, ServerKind, response_ns, server_is_schedulable,
};
use laxity_analysis::{Check, Verdict, check, minimum_budget, minimum_budgets};
use laxity_host::{
    Cache, Costs, Domain, GuestScheduler, Host, Parameters, Policy, Settings, Task, Tick, Vcpu,
    Workload,
};
use laxity_reference::simulate;
use proptest::prelude::*;

fn task(name: &str, cost_ns: i64, period_ns: i64, deadline_ns: i64) -> Task {
    Task {
        name: name.into(),
        vcpu: 0,
        cost_ns,
        period_ns,
        deadline_ns,
        offset_ns: 0,
        jitter_ns: 0,
    }
}

fn domain(budget_ns: i64, period_ns: i64, priority: u32, tasks: Vec<Task>) -> Domain {
    Domain {
        name: format!("domain-{priority}"),
        parameters: Parameters {
            budget_ns,
            period_ns,
            laxity_ns: 0,
            priority,
            extratime: false,
            weight: 256,
            cap_percent: 0,
        },
        vcpus: vec![Vcpu {
            cpu: 0,
            affinity: vec![0],
        }],
        guest: GuestScheduler::RateMonotonic,
        tasks,
        cpu_bound: false,
        workload: None,
        working_set_bytes: 0,
        tick: None,
    }
}

fn host(policy: Policy, domains: Vec<Domain>) -> Host {
    Host {
        duration_ns: 1_000_000,
        seed: 0,
        cpus: 1,
        policy,
        settings: Settings::default(),
        costs: Costs::default(),
        domains,
        caches: Vec::new(),
        network: None,
        calls: None,
        profiles: Vec::new(),
    }
}

fn bounds_ns(check: &Check, domain: usize) -> Vec<Option<i64>> {
    check.domains[domain]
        .tasks
        .iter()
        .map(|task| task.bound_ns)
        .collect()
}

const SERVERS: [Policy; 4] = [
    Policy::Deferrable,
    Policy::Periodic,
    Policy::Polling,
    Policy::Sporadic,
];

/// Burns and Wellings, "Real-Time Systems and Programming Languages": periods 80, 40, 20 and costs
/// 40, 10, 5 have response times 80, 15, 5. Polling waits for a replenishment, even with the whole
/// period.
#[test]
fn a_whole_cpu_is_the_classical_analysis() {
    let tasks = || {
        vec![
            task("a", 40, 80, 80),
            task("b", 10, 40, 40),
            task("c", 5, 20, 20),
        ]
    };
    for policy in [
        Policy::Deferrable,
        Policy::Periodic,
        Policy::Sporadic,
        Policy::Sedf,
    ] {
        let check = check(&host(policy, vec![domain(20, 20, 1, tasks())]));
        assert_eq!(
            bounds_ns(&check, 0),
            [Some(80), Some(15), Some(5)],
            "{policy:?}"
        );
        assert_eq!(check.verdict, Verdict::Schedulable);
    }
}

/// A late task has the longest of all jobs in its busy period: Lehoczky's example (1990) of costs
/// 26, 62 and periods 70, 100 has its worst job, of 118, not at the start.
#[test]
fn a_late_task_has_its_worst_job() {
    let tasks = vec![task("a", 26, 70, 70), task("b", 62, 100, 100)];
    let check = check(&host(Policy::Deferrable, vec![domain(10, 10, 1, tasks)]));
    assert_eq!(bounds_ns(&check, 0), [Some(26), Some(118)]);
    let late = &check.domains[0].tasks[1];
    assert!(!late.guaranteed);
    assert!(
        late.why
            .as_ref()
            .unwrap()
            .contains("118 ns, is above its deadline, 100 ns"),
        "{late:?}"
    );
}

/// SEDF: 1 of 4 and 5 of 200 fit, so each gets its slice in every period, at its end at worst.
#[test]
fn sedf_serves_slices_that_fit() {
    let short = domain(1, 4, 1, vec![task("short", 1, 8, 8)]);
    let long = domain(5, 200, 1, vec![task("long", 5, 400, 400)]);
    let check = check(&host(Policy::Sedf, vec![short, long]));
    assert_eq!(bounds_ns(&check, 0), [Some(4)]);
    // Within 200 the other one uses 50: 1 of a period that began before, and 1 of 4 in what remains.
    assert_eq!(bounds_ns(&check, 1), [Some(50 + 5)]);
    assert_eq!(check.verdict, Verdict::Schedulable);
}

/// SEDF: 3 of 4 and 2 of 4 do not fit. Of a period of 4 the one leaves 1, the other 2, for sure.
#[test]
fn sedf_serves_in_part_what_does_not_fit() {
    let much = domain(3, 4, 1, vec![task("much", 2, 40, 40)]);
    let more = domain(2, 4, 1, vec![task("more", 2, 40, 40)]);
    let check = check(&host(Policy::Sedf, vec![much, more]));
    assert_eq!(bounds_ns(&check, 0), [Some(2 + 2)]);
    assert_eq!(bounds_ns(&check, 1), [Some(4 + 3 + 1)]);
}

/// 2 ms of every 10 ms, and 5 ms of work: all of the budget but a sixteenth of 2 ms, or 0.1 ms, is back
/// within 10 ms and a sixteenth of it, so twice 8.725 ms are waited for before it, and as long for the third piece.
#[test]
fn a_sporadic_server_gets_all_but_a_sixteenth_in_time() {
    let alone = domain(
        2_000_000,
        10_000_000,
        1,
        vec![task("t", 5_000_000, 100_000_000, 100_000_000)],
    );
    let check = check(&host(Policy::Sporadic, vec![alone]));
    assert_eq!(bounds_ns(&check, 0), [Some(3 * 8_725_000 + 5_000_000)]);
}

/// Davis and Burns by hand: server 4 of 10 under another of 2 of 5, one task of 5. Unbound: a gap
/// of 6, one whole period, then 1 behind one budget of 2 above, or behind two in a row of a
/// deferrable server's.
#[test]
fn waits_for_replenishments_and_for_those_above() {
    let hosts = |policy, offset_ns| {
        let mut tasks = vec![task("t", 5, 40, 40)];
        tasks[0].offset_ns = offset_ns;
        check(&host(
            policy,
            vec![domain(2, 5, 1, vec![]), domain(4, 10, 2, tasks)],
        ))
    };
    let answer = |policy, offset_ns| {
        let check = hosts(policy, offset_ns);
        (
            check.domains[1].tasks[0].bound_ns.unwrap(),
            check.domains[1].tasks[0].test.clone().unwrap(),
        )
    };
    assert_eq!(
        answer(Policy::Periodic, 1),
        (19, "davis-burns-2005 periodic unbound".into())
    );
    assert_eq!(
        answer(Policy::Periodic, 0),
        (13, "davis-burns-2005 periodic bound".into())
    );
    assert_eq!(
        answer(Policy::Polling, 1),
        (23, "davis-burns-2005 polling unbound".into())
    );
    assert_eq!(
        answer(Policy::Deferrable, 1),
        (21, "davis-burns-2005 deferrable unbound".into())
    );
}

/// A sporadic server of 5 in 10 under one of 5 in 11 is chosen only every 11, so 50 take 110 and
/// more; the formula of Davis and Burns gives 105 (a gap of 5, nine of 5 between ten budgets, and 5
/// at the end).
#[test]
fn a_sporadic_server_drifts() {
    let above = vec![task("a", 5, 11, 11)];
    let below = vec![task("t", 50, 400, 400)];
    let mut host = host(
        Policy::Sporadic,
        vec![domain(5, 11, 1, above), domain(5, 10, 2, below)],
    );
    host.domains[1].tasks[0].offset_ns = 11;
    host.duration_ns = 400;
    let job = simulate(&host)
        .unwrap()
        .jobs
        .into_iter()
        .find(|job| job.domain == 1)
        .unwrap();
    let response_ns = job.completion_ns.unwrap() - job.arrival_ns;
    assert!(response_ns > 105, "{response_ns}");
    assert!(response_ns <= bounds_ns(&check(&host), 1)[0].unwrap());
}

#[test]
fn credit_guarantees_nothing_and_says_so() {
    let check = check(&host(
        Policy::Credit,
        vec![domain(20, 20, 1, vec![task("t", 1, 100, 100)])],
    ));
    assert_eq!(check.verdict, Verdict::NotGuaranteed);
    let json = serde_json::to_value(&check).unwrap();
    assert_eq!(json["verdict"], "not-guaranteed");
    assert!(json["domains"][0]["tasks"][0]["bound_ns"].is_null());
    assert!(
        json["domains"][0]["tasks"][0]["why"]
            .as_str()
            .unwrap()
            .starts_with("credit gives shares")
    );
}

#[test]
fn says_which_server_is_not_schedulable() {
    let check = check(&host(
        Policy::Deferrable,
        vec![
            domain(9, 10, 1, vec![]),
            domain(5, 10, 2, vec![task("t", 1, 100, 100)]),
        ],
    ));
    let task = &check.domains[1].tasks[0];
    assert!(
        task.why
            .as_ref()
            .unwrap()
            .contains("VCPU 0 of domain-2 is not schedulable"),
        "{task:?}"
    );
}

#[test]
fn a_host_without_tasks_has_no_deadline_to_miss() {
    let mut lone = domain(5, 10, 1, vec![]);
    lone.cpu_bound = true;
    assert_eq!(
        check(&host(Policy::Credit, vec![lone])).verdict,
        Verdict::Schedulable
    );
}

/// The largest times there are do not overflow, and end soon.
#[test]
fn extreme_times_are_answered() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    for policy in Policy::ALL {
        for guest in [GuestScheduler::RateMonotonic, GuestScheduler::Edf] {
            for (budget_ns, period_ns) in [
                (1, HOUR_NS),
                (HOUR_NS, HOUR_NS),
                (1, 1),
                (1, 2),
                (HOUR_NS - 1, HOUR_NS),
            ] {
                let tasks = vec![
                    task("a", 1, 1, 1),
                    task("b", HOUR_NS, HOUR_NS, HOUR_NS),
                    task("c", 1, HOUR_NS, HOUR_NS),
                ];
                let mut first = domain(1, 2, 1, tasks.clone());
                let mut second = domain(budget_ns, period_ns, 1, tasks);
                (first.guest, second.guest) = (guest, guest);
                let host = host(policy, vec![first, second]);
                check(&host);
                minimum_budgets(&host);
            }
        }
    }
}

/// Twenty-five tasks in five domains: below a millisecond where optimized, and hours if the cost grew with the times.
#[test]
fn does_not_take_long() {
    let domains = (1..=5)
        .map(|number| {
            let tasks = (1..=5)
                .map(|rank| task("t", 5_000_000, 180_000_000 * rank, 180_000_000 * rank))
                .collect();
            domain(
                2_000_000 * number,
                10_000_000 * number,
                number as u32,
                tasks,
            )
        })
        .collect();
    let host = host(Policy::Deferrable, domains);
    let begin = std::time::Instant::now();
    for _ in 0..20 {
        std::hint::black_box(check(&host));
    }
    let took = begin.elapsed();
    assert!(took < std::time::Duration::from_secs(600), "{took:?}");
}

/// With the whole CPU: the task's 3 ns and, before it and 4 ns later, a tick of 1 ns each. It meets a
/// deadline that it would not with a second tick before it, rate-monotonic or not.
#[test]
fn ticks_come_before_every_task() {
    let tick = Some(Tick {
        period_ns: 4,
        cost_ns: 1,
        offset_ns: 0,
    });
    for guest in [GuestScheduler::RateMonotonic, GuestScheduler::Edf] {
        for (cost_ns, deadline_ns, bound_ns) in [(3, 4, Some(4)), (4, 6, Some(6)), (4, 5, None)] {
            let mut domain = domain(10, 10, 1, vec![task("t", cost_ns, 20, deadline_ns)]);
            (domain.tick, domain.guest) = (tick, guest);
            let host = host(Policy::Deferrable, vec![domain]);
            let check = check(&host);
            let found = check.domains[0].tasks[0].guaranteed;
            assert_eq!(found, bound_ns.is_some(), "{guest:?}: {check:?}");
            let slowest_ns = (simulate(&host).expect("it is small").jobs.iter())
                .filter_map(|job| Some(job.completion_ns? - job.arrival_ns))
                .max();
            assert_eq!(slowest_ns <= Some(deadline_ns), found, "{guest:?}");
            if found {
                assert_eq!(bounds_ns(&check, 0), [bound_ns]);
                assert_eq!(slowest_ns, bound_ns);
            }
        }
    }
}

fn tasks() -> impl Strategy<Value = Vec<Task>> {
    let one = (1..4i64, 10..60i64, 0..8i64).prop_map(|(cost_ns, period_ns, less_ns)| Task {
        jitter_ns: less_ns / 3,
        ..task("t", cost_ns, period_ns, period_ns - less_ns)
    });
    prop::collection::vec(one, 1..4)
}

fn ticks() -> impl Strategy<Value = Option<Tick>> {
    let tick = (1..3i64, 8..20i64).prop_map(|(cost_ns, period_ns)| Tick {
        period_ns,
        cost_ns,
        offset_ns: 0,
    });
    prop::option::of(tick)
}

fn guests() -> impl Strategy<Value = GuestScheduler> {
    prop_oneof![
        Just(GuestScheduler::RateMonotonic),
        Just(GuestScheduler::Edf)
    ]
}

proptest! {
    /// No budget from the smallest on is too small for a server that is alone on its CPU.
    #[test]
    fn minimum_budget_is_enough(
        tasks in tasks(), tick in ticks(), guest in guests(), period_ns in 1..30i64,
        policy in 0..SERVERS.len(),
    ) {
        let policy = SERVERS[policy];
        let smallest_ns = minimum_budget(&tasks, tick.as_ref(), guest, period_ns, policy);
        for budget_ns in smallest_ns.unwrap_or(period_ns + 1)..=period_ns {
            let mut domain = domain(budget_ns, period_ns, 1, tasks.clone());
            domain.guest = guest;
            domain.tick = tick;
            prop_assert_eq!(check(&host(policy, vec![domain])).verdict, Verdict::Schedulable, "{}", budget_ns);
        }
    }

    /// More budget for a VCPU, alone or the lowest, never worsens its bounds.
    #[test]
    fn more_budget_never_worsens(
        tasks in tasks(), guest in guests(), above_ns in 1..6i64, budget_ns in 1..11i64, policy in 0..SERVERS.len(),
    ) {
        let bounds = |budget_ns| {
            let mut own = domain(budget_ns, 12, 2, tasks.clone());
            own.guest = guest;
            bounds_ns(&check(&host(SERVERS[policy], vec![domain(above_ns, 12, 1, vec![]), own])), 1)
        };
        for (less, more) in bounds(budget_ns).into_iter().zip(bounds(budget_ns + 1)) {
            let Some(less) = less else { continue };
            // A sporadic server whose budget is not to be had within a period is given up as a
            // whole.
            if SERVERS[policy] == Policy::Sporadic && above_ns + budget_ns + 1 > 12 { continue }
            prop_assert!(more.is_some_and(|more| more <= less), "{less} became {more:?}");
        }
    }

    /// Where the servers are schedulable and differ in priority, the bounds of unbound tasks are
    /// the paper's.
    #[test]
    fn agrees_with_the_paper(
        shapes in prop::collection::vec((1..5i64, 8..25i64), 1..4), mut tasks in tasks(), deferrable in any::<bool>(),
    ) {
        let (policy, kind) = if deferrable {
            (Policy::Deferrable, ServerKind::Deferrable)
        } else {
            (Policy::Periodic, ServerKind::Periodic)
        };
        for (number, task) in tasks.iter_mut().enumerate() {
            task.jitter_ns = 0;
            // No task arrives with a replenishment.
            (task.offset_ns, task.name) = (1, format!("t-{number}"));
        }
        tasks.sort_by_key(|task| task.period_ns);
        let mut servers: Vec<PaperServer> = shapes
            .iter()
            .map(|&(budget_ns, period_ns)| PaperServer { budget_ns, period_ns, tasks: vec![] })
            .collect();
        servers.last_mut().unwrap().tasks = tasks
            .iter()
            .map(|task| PaperTask {
                cost_ns: task.cost_ns,
                period_ns: task.period_ns,
                deadline_ns: task.deadline_ns,
            })
            .collect();
        prop_assume!((1..=servers.len()).all(|upto| server_is_schedulable(kind, &servers[..upto])));
        let mut domains: Vec<Domain> = shapes
            .iter()
            .zip(1..)
            .map(|(&(budget_ns, period_ns), priority)| domain(budget_ns, period_ns, priority, vec![]))
            .collect();
        domains.last_mut().unwrap().tasks = tasks.clone();
        let check = check(&host(policy, domains));
        for (rank, task) in check.domains.last().unwrap().tasks.iter().enumerate() {
            let ours = task.bound_ns.filter(|_| task.guaranteed);
            prop_assert_eq!(ours, response_ns(kind, &servers, rank), "{:?}", task);
        }
    }
}

#[test]
fn nothing_is_guaranteed_beside_packets_pauses_and_cold_caches() {
    let alone = host(
        Policy::Deferrable,
        vec![domain(5, 10, 1, vec![task("loop", 1, 20, 20)])],
    );
    assert_eq!(check(&alone).verdict, Verdict::Schedulable);
    let mut beside = alone.clone();
    let mut pausing = domain(5, 10, 2, Vec::new());
    pausing.workload = Some(Workload::Bursts {
        run_ns: 1,
        idle_ns: 1,
    });
    beside.domains.push(pausing);
    let mut cold = alone.clone();
    cold.caches = vec![Cache {
        cpus: vec![0],
        bytes: 1 << 20,
        refill_kib_ns: 1_600,
    }];
    assert_eq!(check(&cold).verdict, Verdict::Schedulable);
    cold.domains[0].working_set_bytes = 64;
    for (host, why) in [(beside, "domain-2 wakes"), (cold, "cold cache")] {
        let found = check(&host);
        assert_eq!(found.verdict, Verdict::NotGuaranteed);
        let said = found.domains[0].tasks[0].why.as_ref().expect("a reason");
        assert!(said.contains(why), "{said}");
    }
}
