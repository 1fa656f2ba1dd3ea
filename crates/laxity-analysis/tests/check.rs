//! What `check` says of hosts whose answer is known, and how it changes with them.

use laxity_analysis::{Check, Verdict, check, is_guaranteed, minimum_budget, minimum_budgets};
use laxity_host::{
    Cache, Cost, Costs, Domain, GuestScheduler, Host, Parameters, Policy, Settings, Task, Tick,
    Vcpu, Workload,
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
    }
}

/// A domain that uses all of its budget.
fn busy(budget_ns: i64, period_ns: i64, priority: u32) -> Domain {
    Domain {
        cpu_bound: true,
        ..domain(budget_ns, period_ns, priority, Vec::new())
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
        timer_latency_ns: 0,
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
    // The other one asks for 1 of 8, and has one job to do that came before.
    assert_eq!(bounds_ns(&check, 1), [Some(2 + 5)]);
    assert_eq!(check.verdict, Verdict::Schedulable);
}

/// SEDF: 3 of 4 and 2 of 4 do not fit. The one leaves 1 of a period of 4 for sure, the other 2.
#[test]
fn sedf_serves_in_part_what_does_not_fit() {
    let mut much = domain(3, 4, 1, vec![task("much", 2, 40, 40)]);
    let mut more = domain(2, 4, 1, vec![task("more", 2, 40, 40)]);
    (much.cpu_bound, more.cpu_bound) = (true, true);
    let check = check(&host(Policy::Sedf, vec![much, more]));
    assert_eq!(bounds_ns(&check, 0), [Some(2 + 2)]);
    assert_eq!(bounds_ns(&check, 1), [Some(4 + 3 + 1)]);
}

/// SEDF: while a job of 100 waits, a rival uses its slice twice, and after 400 a fifth of the time: *w* = 100 + 400 +
/// (*w* - 400) / 5. A slice that is replaced late is used for as long, so that *w* - 400 is longer by that.
#[test]
fn slices_that_are_replaced_late_are_used_for_longer() {
    let own = domain(300, 1500, 2, vec![task("own", 100, 9000, 9000)]);
    let mut host = host(Policy::Sedf, vec![busy(200, 1000, 1), own]);
    assert_eq!(bounds_ns(&check(&host), 1), [Some(525)]);
    host.timer_latency_ns = 100;
    assert_eq!(bounds_ns(&check(&host), 1), [Some(550)]);
}

/// 2 ms of every 10 ms, and 5 ms of work each 100 ms: the job before was done long ago, so the budget is
/// whole. All of it but a sixteenth of 2 ms, or 0.1 ms, is back within 10 ms: more than 20 replenishments of 0.1 ms
/// or more are never pending.
#[test]
fn a_sporadic_server_that_was_idle_has_its_budget() {
    let alone = domain(
        2_000_000,
        10_000_000,
        1,
        vec![task("t", 5_000_000, 100_000_000, 100_000_000)],
    );
    let check = check(&host(Policy::Sporadic, vec![alone]));
    assert_eq!(
        bounds_ns(&check, 0),
        [Some(2 * 10_000_000 + 5_000_000 - 2 * 1_900_000)]
    );
}

/// 32 replenishments of 0.1 ms are more than a budget of 3.19 ms, and not more than one of 3.2 ms. With
/// the latter two may be merged, and the first of them be late by a sixteenth of the period.
#[test]
fn a_sporadic_server_of_many_pieces_may_get_them_late() {
    let with_budget = |budget_ns| {
        let task = task("t", 6_000_000, 100_000_000, 18_950_000);
        host(
            Policy::Sporadic,
            vec![domain(budget_ns, 16_000_000, 1, vec![task])],
        )
    };
    let bound_ns = |budget_ns| bounds_ns(&check(&with_budget(budget_ns)), 0)[0].expect("a bound");
    assert_eq!(bound_ns(3_190_000), 16_000_000 + 6_000_000 - 3_090_000);
    assert_eq!(bound_ns(3_200_000), 17_000_000 + 6_000_000 - 3_100_000);
    // Between 3.2 and 4.15 ms the bound is above the deadline.
    assert_eq!(minimum_budget(&with_budget(1), 0), Some(3_150_000));
}

/// 2 ms of every 20 ms, of which the only task uses 1 ms: it never waits for budget.
#[test]
fn a_budget_that_cannot_run_out_makes_nobody_wait() {
    for policy in [Policy::Deferrable, Policy::Sporadic, Policy::Sedf] {
        let mut domain = domain(
            2_000_000,
            20_000_000,
            1,
            vec![task("t", 1_000_000, 20_000_000, 5_000_000)],
        );
        domain.tasks[0].offset_ns = 3_000_000;
        let check = check(&host(policy, vec![domain]));
        assert_eq!(bounds_ns(&check, 0), [Some(1_000_000)], "{policy:?}");
        assert_eq!(check.verdict, Verdict::Schedulable);
    }
}

/// The rival could take 5 of 10, twice in a row, and asks for 1 of 100.
#[test]
fn rivals_count_with_what_their_guests_ask_for() {
    for policy in [Policy::Deferrable, Policy::Sporadic] {
        let above = domain(5, 10, 1, vec![task("above", 1, 100, 100)]);
        let below = domain(4, 10, 2, vec![task("t", 4, 100, 100)]);
        let check = check(&host(policy, vec![above, below]));
        assert_eq!(bounds_ns(&check, 1), [Some(1 + 4)], "{policy:?}");
    }
}

/// 6 of 10 below 5 of 14, which can run twice in a row, but not in every period of 10.
#[test]
fn a_deferrable_server_cannot_run_twice_in_a_row_in_every_period() {
    let mut below = domain(6, 10, 2, vec![task("t", 30, 400, 400)]);
    below.tasks[0].offset_ns = 1;
    let check = check(&host(Policy::Deferrable, vec![busy(5, 14, 1), below]));
    // With that, nothing would be sure.
    let bound_ns = bounds_ns(&check, 1)[0].expect("a bound");
    assert!(bound_ns < 150, "{bound_ns}");
}

/// 6 of 10 below 3 of 10, which are replenished together: the one below gets all of it in every period, so 30
/// wait for at most 4 and take four periods, and 6 more behind 3.
#[test]
fn a_deferrable_server_is_replenished_with_those_above() {
    let mut below = domain(6, 10, 2, vec![task("t", 30, 200, 200)]);
    below.tasks[0].offset_ns = 1;
    let check = check(&host(Policy::Deferrable, vec![busy(3, 10, 1), below]));
    assert_eq!(bounds_ns(&check, 1), [Some(4 + 40 + 9)]);
}

/// Behind 14 of 40 a sporadic server of 7 in 20 is not served within each 20, and is not without a bound for that.
#[test]
fn a_sporadic_server_that_is_not_schedulable_has_bounds() {
    const MS: i64 = 1_000_000;
    let below = domain(
        7 * MS,
        20 * MS,
        2,
        vec![task("t", 30 * MS, 400 * MS, 400 * MS)],
    );
    let check = check(&host(
        Policy::Sporadic,
        vec![busy(14 * MS, 40 * MS, 1), below],
    ));
    let bound_ns = bounds_ns(&check, 1)[0].expect("a bound");
    // Four whole budgets, each of which waits for 14 in one of two cycles, and the rest.
    assert!((122 * MS..250 * MS).contains(&bound_ns), "{bound_ns}");
}

/// On a whole CPU: against the worst over all offsets.
#[test]
fn bounds_of_edf_guests_are_responses() {
    let (mut exact, mut all) = (0, 0);
    for shape in 0..64_i64 {
        let (a, b) = (
            task("a", 1 + shape % 2, 4 + shape % 3, 3 + shape % 2),
            task("b", 2 + shape % 3, 9 + shape % 5, 7 + shape % 6),
        );
        let mut guest = domain(20, 20, 1, vec![a, b]);
        guest.guest = GuestScheduler::Edf;
        let mut host = host(Policy::Deferrable, vec![guest]);
        host.duration_ns = 300;
        let bounds_ns = bounds_ns(&check(&host), 0);
        let mut worst_ns = [0, 0];
        for offsets_ns in 0..7 * 14 {
            host.domains[0].tasks[0].offset_ns = offsets_ns % 7;
            host.domains[0].tasks[1].offset_ns = offsets_ns / 7;
            for job in simulate(&host).expect("it is small").jobs {
                let end_ns = job.completion_ns.unwrap_or(0);
                worst_ns[job.task] = worst_ns[job.task].max(end_ns - job.arrival_ns);
            }
        }
        for (bound_ns, worst_ns) in bounds_ns.into_iter().zip(worst_ns) {
            let Some(bound_ns) = bound_ns else { continue };
            assert!(worst_ns <= bound_ns, "{host:#?}");
            exact += usize::from(worst_ns == bound_ns);
            all += 1;
        }
    }
    println!("{exact} of {all}");
    assert!(all > 80 && exact * 10 > all * 8, "{exact} of {all}");
}

/// Davis and Burns by hand: server 4 of 10 under another of 2 of 5, one task of 5. Unbound: a gap
/// of 6, one whole period, then 1 behind one budget of 2 above. A deferrable server above cannot run twice in
/// a row after a replenishment of the one below, since it is replenished at the same time.
#[test]
fn waits_for_replenishments_and_for_those_above() {
    let hosts = |policy, offset_ns| {
        let mut tasks = vec![task("t", 5, 40, 40)];
        tasks[0].offset_ns = offset_ns;
        check(&host(policy, vec![busy(2, 5, 1), domain(4, 10, 2, tasks)]))
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
        (19, "davis-burns-2005 deferrable unbound".into())
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
            .starts_with("credit shares the CPU")
    );
}

#[test]
fn says_which_server_is_not_schedulable() {
    let check = check(&host(
        Policy::Deferrable,
        vec![busy(9, 10, 1), domain(5, 10, 2, vec![task("t", 6, 50, 50)])],
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
                let mut host = host(policy, vec![first, second]);
                // Decisions may take more time than there is between two of them.
                for cost_ns in [0, 1, HOUR_NS] {
                    let cost = Cost::Constant { ns: cost_ns };
                    host.costs = Costs {
                        schedule: cost,
                        context_switch: cost,
                    };
                    check(&host);
                    minimum_budgets(&host);
                }
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
        min_delta_ns: 0,
        wake_ns: 0,
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

/// An endless loop takes the tick at 4 ns, after which the job that is due at 5 ns comes at 7 ns: it is done for 1 ns,
/// and for another one after the tick at 8 ns.
#[test]
fn a_timer_that_cannot_be_set_is_in_the_bound() {
    let tick = Some(Tick {
        period_ns: 4,
        cost_ns: 1,
        offset_ns: 0,
        min_delta_ns: 3,
        wake_ns: 0,
    });
    for guest in [GuestScheduler::RateMonotonic, GuestScheduler::Edf] {
        let late = Task {
            offset_ns: 5,
            ..task("t", 2, 20, 5)
        };
        let mut domain = domain(10, 10, 1, vec![late]);
        (domain.tick, domain.guest, domain.cpu_bound) = (tick, guest, true);
        let host = host(Policy::Deferrable, vec![domain]);
        let jobs = simulate(&host).expect("it is small").jobs;
        assert_eq!(jobs[0].completion_ns, Some(10), "{guest:?}");
        assert_eq!(bounds_ns(&check(&host), 0), [Some(5)], "{guest:?}");
    }
}

fn ticks() -> impl Strategy<Value = Option<Tick>> {
    let tick = (1..3i64, 8..20i64).prop_map(|(cost_ns, period_ns)| Tick {
        period_ns,
        cost_ns,
        offset_ns: 0,
        min_delta_ns: cost_ns - 1,
        wake_ns: 0,
    });
    prop::option::of(tick)
}

fn guests() -> impl Strategy<Value = GuestScheduler> {
    prop_oneof![
        Just(GuestScheduler::RateMonotonic),
        Just(GuestScheduler::Edf)
    ]
}

/// The demand of EDF jobs against what a server that is alone supplies at least, at every nanosecond up
/// to `limit_ns`.
fn edf_by_walking(tasks: &[Task], period_ns: i64, budget_ns: i64, limit_ns: i64) -> bool {
    let mut supplied_ns = 0;
    (1..=limit_ns).all(|window_ns| {
        supplied_ns += i64::from(is_supplied(period_ns, budget_ns, window_ns));
        let demand_ns: i64 = tasks
            .iter()
            .filter(|task| window_ns >= task.deadline_ns)
            .map(|task| ((window_ns - task.deadline_ns) / task.period_ns + 1) * task.cost_ns)
            .sum();
        demand_ns <= supplied_ns
    })
}

/// Rate-monotonic response times: the first window, of all, in which the supply is the request.
fn rate_monotonic_by_walking(tasks: &[Task], period_ns: i64, budget_ns: i64) -> bool {
    let mut ranked: Vec<&Task> = tasks.iter().collect();
    ranked.sort_by_key(|task| task.period_ns);
    (0..ranked.len()).all(|rank| {
        let mut supplied_ns = 0;
        (1..=ranked[rank].deadline_ns).any(|window_ns| {
            supplied_ns += i64::from(is_supplied(period_ns, budget_ns, window_ns));
            let above_ns: i64 = ranked[..rank]
                .iter()
                .map(|task| (window_ns + task.period_ns - 1) / task.period_ns * task.cost_ns)
                .sum();
            ranked[rank].cost_ns + above_ns <= supplied_ns
        })
    })
}

/// Whether a server that is alone serves in the nanosecond that ends a window, at the worst: nothing until it
/// is replenished, and its budget at the begin of each period from then on.
fn is_supplied(period_ns: i64, budget_ns: i64, window_ns: i64) -> bool {
    let since_ns = window_ns - 1 - (period_ns - budget_ns);
    since_ns >= 0 && since_ns % period_ns < budget_ns
}

proptest! {
    /// The smallest budget is accepted, and a microsecond less is not, with costs and another domain.
    #[test]
    fn minimum_budget_is_the_least(
        tasks in tasks(), tick in ticks(), guest in guests(), period_ns in 1..30i64,
        other_percent in 0..50i64, has_costs in any::<bool>(), policy in 0..SERVERS.len() + 1,
    ) {
        const UNIT_NS: i64 = 100_000;
        let policy = SERVERS.get(policy).copied().unwrap_or(Policy::Sedf);
        let scaled = |mut task: Task| {
            for time_ns in [&mut task.cost_ns, &mut task.period_ns, &mut task.deadline_ns, &mut task.jitter_ns] {
                *time_ns *= UNIT_NS;
            }
            task
        };
        let period_ns = period_ns * UNIT_NS;
        let mut own = domain(1, period_ns, 2, tasks.into_iter().map(scaled).collect());
        own.guest = guest;
        own.tick = tick.map(|tick| Tick {
            period_ns: tick.period_ns * UNIT_NS,
            cost_ns: UNIT_NS / 10,
            offset_ns: 0,
            min_delta_ns: tick.min_delta_ns * UNIT_NS,
            wake_ns: tick.wake_ns * UNIT_NS,
        });
        let mut host = host(policy, vec![busy(other_percent * UNIT_NS / 10 + 1, 10 * UNIT_NS, 1), own]);
        if has_costs {
            host.costs.schedule = Cost::Constant { ns: UNIT_NS / 200 };
        }
        let is_enough = |budget_ns: i64| {
            let mut host = host.clone();
            host.domains[1].parameters.budget_ns = budget_ns;
            check(&host).domains[1].tasks.iter().all(|task| task.guaranteed)
        };
        match minimum_budget(&host, 1) {
            Some(smallest_ns) => {
                prop_assert!(is_enough(smallest_ns), "{smallest_ns}");
                prop_assert!(smallest_ns <= 1000 || !is_enough(smallest_ns - 1000), "{smallest_ns}");
            }
            None => prop_assert!(!is_enough(period_ns)),
        }
    }

    /// What holds whatever others ask for holds with what they ask for.
    #[test]
    fn check_guarantees_what_others_cannot_endanger(
        own in tasks(), others in tasks(), guest in guests(), periods_ns in (2..30i64, 2..30i64),
        percents in (5..70i64, 5..70i64), priority in 1..4u32, policy in 0..SERVERS.len() + 1,
    ) {
        let policy = SERVERS.get(policy).copied().unwrap_or(Policy::Sedf);
        let budget_ns = |period_ns: i64, percent: i64| (period_ns * percent / 100).max(1);
        let mut own = domain(budget_ns(periods_ns.0, percents.0), periods_ns.0, 2, own);
        own.guest = guest;
        let other = domain(budget_ns(periods_ns.1, percents.1), periods_ns.1, priority, others);
        let host = host(policy, vec![own, other]);
        if is_guaranteed(&host, 0) {
            prop_assert!(check(&host).domains[0].tasks.iter().all(|task| task.guaranteed));
        }
    }

    /// Trying every budget, with tests that walk through time.
    #[test]
    fn minimum_budget_is_what_a_linear_search_finds(
        shapes in prop::collection::vec((1..4i64, 0..5usize, 0..4i64), 1..4), period_ns in 1..14i64,
    ) {
        let tasks: Vec<Task> = shapes
            .into_iter()
            .map(|(cost_ns, period, less_ns)| {
                let period_ns = [10, 12, 15, 20, 30][period];
                Task { offset_ns: 1, ..task("t", cost_ns, period_ns, period_ns - less_ns) }
            })
            .collect();
        for guest in [GuestScheduler::RateMonotonic, GuestScheduler::Edf] {
            let mut own = domain(1, period_ns, 1, tasks.clone());
            own.guest = guest;
            let found = minimum_budget(&host(Policy::Periodic, vec![own]), 0);
            // A failure shows in the longest busy period, which these tasks keep below a few hundred.
            let slow = (1..=period_ns).find(|&budget_ns| match guest {
                GuestScheduler::Edf => edf_by_walking(&tasks, period_ns, budget_ns, 4000),
                GuestScheduler::RateMonotonic => rate_monotonic_by_walking(&tasks, period_ns, budget_ns),
            });
            prop_assert_eq!(found, slow, "{:?}", guest);
        }
    }

    /// More budget for a VCPU, alone or the lowest, never worsens its bounds, but for that of a sporadic server at
    /// 3.2 ms, of which these are far.
    #[test]
    fn more_budget_never_worsens(
        tasks in tasks(), guest in guests(), above_ns in 1..6i64, budget_ns in 1..11i64, policy in 0..SERVERS.len(),
    ) {
        let bounds = |budget_ns| {
            let mut own = domain(budget_ns, 12, 2, tasks.clone());
            own.guest = guest;
            bounds_ns(&check(&host(SERVERS[policy], vec![busy(above_ns, 12, 1), own])), 1)
        };
        for (less, more) in bounds(budget_ns).into_iter().zip(bounds(budget_ns + 1)) {
            let Some(less) = less else { continue };
            // A sporadic server whose budget is not to be had within a period is given up as a
            // whole.
            if SERVERS[policy] == Policy::Sporadic && above_ns + budget_ns + 1 > 12 { continue }
            prop_assert!(more.is_some_and(|more| more <= less), "{less} became {more:?}");
        }
    }
}

#[test]
fn nothing_is_guaranteed_beside_packets_pauses_cold_caches_and_leads_that_go_on() {
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
    let mut late = alone.clone();
    late.timer_latency_ns = 1;
    assert_eq!(check(&late).verdict, Verdict::Schedulable);
    late.policy = Policy::Lending;
    let mut telling = alone;
    telling.policy = Policy::Lending;
    telling.domains[0].tick = Some(Tick {
        period_ns: 20,
        cost_ns: 1,
        offset_ns: 0,
        min_delta_ns: 0,
        wake_ns: 1,
    });
    // With one task it has told before it waits.
    assert!(check(&telling).domains[0].tasks[0].bound_ns.is_some());
    telling.domains[0].tasks.push(task("loop", 1, 40, 40));
    for (host, why) in [
        (beside, "domain-2 wakes"),
        (cold, "cold cache"),
        (late, "served late"),
        (telling, "tells of a job late"),
    ] {
        let found = check(&host);
        assert_eq!(found.verdict, Verdict::NotGuaranteed);
        let said = found.domains[0].tasks[0].why.as_ref().expect("a reason");
        assert!(said.contains(why), "{said}");
    }
}
