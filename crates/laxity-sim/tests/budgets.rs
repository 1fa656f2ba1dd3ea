//! Budget that a VCPU is entitled to comes in time, whatever the others do, and however its use is split.

use laxity_host::Host;
use laxity_reference::{Interval, simulate};
use laxity_trace::{Kind, Record};
use proptest::prelude::*;

fn load(text: &str) -> Host {
    laxity_host::load(text, "host.toml", &[] as &[&str]).unwrap_or_else(|error| panic!("{error}"))
}

/// The number of deadlines that each domain's tasks missed.
fn missed(host: &Host) -> Vec<Vec<u64>> {
    let (outcome, _) = laxity_sim::run(host, laxity_trace::Off).expect("the policy takes it");
    let of_tasks =
        |tasks: &[laxity_run::TaskResult]| tasks.iter().map(|task| task.missed).collect();
    (outcome.result.domains.iter())
        .map(|domain| of_tasks(&domain.tasks))
        .collect()
}

/// When each job completed.
fn completions(host: &Host) -> Vec<(i64, i64)> {
    let (_, records) = laxity_sim::run(host, Vec::<Record>::new()).expect("the policy takes it");
    (records.iter())
        .filter(|record| record.kind == Kind::Complete)
        .map(|record| (record.time_ns, record.argument))
        .collect()
}

/// A domain, and tasks of (cost, period, offset), in nanoseconds.
fn domain(
    name: &str,
    budget_ns: i64,
    period_ns: i64,
    tasks: &[(i64, i64, i64)],
    rest: &str,
) -> String {
    let tasks: Vec<String> = (tasks.iter().enumerate())
        .map(|(number, (cost_ns, period_ns, offset_ns))| {
            format!(
                r#"{{ name = "t{number}", cost = "{cost_ns} ns", period = "{period_ns} ns", offset = "{offset_ns} ns" }}"#
            )
        })
        .collect();
    format!(
        r#"
        [[domain]]
        name = "{name}"
        budget = "{budget_ns} ns"
        period = "{period_ns} ns"
        priority = 1
        tasks = [{}]
        {rest}
        "#,
        tasks.join(", ")
    )
}

fn host(policy: &str, duration_ns: i64, domains: &str) -> Host {
    load(&format!(
        r#"
        duration = "{duration_ns} ns"
        [host]
        cpus = 1
        policy = "{policy}"
        {domains}
        "#
    ))
}

const MS: i64 = 1_000_000;

/// A hundred runs a period, and more than twice as many as replenishments can be pending: 30 % of the CPU
/// for one that may have 40 %.
#[test]
fn a_sporadic_server_of_many_short_runs_misses_nothing() {
    let tasks = [(3 * MS / 10, MS, 0)];
    let host = host(
        "sporadic",
        2_000 * MS,
        &domain("a", 40 * MS, 100 * MS, &tasks, ""),
    );
    assert_eq!(missed(&host), [[0]]);
}

/// 93 % of the CPU for one that may have all of it.
#[test]
fn a_sporadic_server_of_the_whole_cpu_misses_nothing() {
    let tasks = [
        (3 * MS, 7 * MS, 0),
        (3 * MS, 12 * MS, 0),
        (5 * MS, 20 * MS, 0),
    ];
    let host = host(
        "sporadic",
        10_000 * MS,
        &domain("a", 1_000 * MS, 1_000 * MS, &tasks, ""),
    );
    assert_eq!(missed(&host), [[0, 0, 0]]);
}

/// "Small replenishments": the first run's is a trifle, and no other run follows until it is due. It comes
/// then: at 14 the budget is whole again, and the job of 11 is done at 15.
#[test]
fn a_small_replenishment_alone_comes_when_it_is_due() {
    let trifle = (MS / 10, 1_000 * MS, 4 * MS);
    let whole = (4 * MS, 1_000 * MS, 11 * MS);
    let host = host(
        "sporadic",
        30 * MS,
        &domain("a", 4 * MS, 10 * MS, &[trifle, whole], ""),
    );
    let done_ns: Vec<i64> = completions(&host).iter().map(|&(at_ns, _)| at_ns).collect();
    assert_eq!(done_ns, [4 * MS + MS / 10, 15 * MS]);
}

/// The slice that was kept until 195 ms is not used beside the next one.
#[test]
fn a_slice_that_was_kept_over_a_block_makes_nobody_miss() {
    let short = domain("short", MS, 4 * MS, &[(MS, 4 * MS, 0)], "");
    let long = domain(
        "long",
        5 * MS,
        200 * MS,
        &[(5 * MS, 200 * MS, 195 * MS)],
        "",
    );
    let host = host("sedf", 2_000 * MS, &(short + &long));
    assert_eq!(missed(&host), [[0], [0]]);
}

/// The most CPU time within any window of a length: one that begins or ends with an interval.
fn most_used_ns(ran: &[Interval], window_ns: i64) -> i64 {
    let used_ns = |from_ns: i64| -> i64 {
        (ran.iter())
            .map(|one| (one.end_ns.min(from_ns + window_ns) - one.start_ns.max(from_ns)).max(0))
            .sum()
    };
    (ran.iter())
        .flat_map(|one| [one.start_ns, one.end_ns - window_ns])
        .map(used_ns)
        .max()
        .unwrap_or(0)
}

/// Tasks of a few times the unit, so that a long period holds many runs.
fn short_tasks() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    let task = (1..=6i64, 8..=40i64, 0..40i64)
        .prop_map(|(cost, period, offset)| (cost * 1_000, period * 1_000, offset * 1_000));
    prop::collection::vec(task, 1..4)
}

/// What one guest of a host does, and what it may.
#[derive(Debug, Clone)]
struct Guest {
    period_ns: i64,
    /// Its part of the CPU, against the others' parts.
    part: i64,
    /// `None`: it has one task that needs the whole slice, and comes no oftener than the slice.
    hostile: Option<Hostile>,
    /// In percent of the period.
    pause_percent: i64,
    offset_ns: i64,
}

#[derive(Debug, Clone)]
struct Hostile {
    tasks: Vec<(i64, i64, i64)>,
    cpu_bound: bool,
    extratime: bool,
}

fn guests() -> impl Strategy<Value = Vec<Guest>> {
    let task = (1..400_000i64, 1_000..400_000i64, 0..400_000i64)
        .prop_map(|(cost_ns, period_ns, offset_ns)| (cost_ns.min(period_ns), period_ns, offset_ns));
    let hostile = (
        prop::collection::vec(task, 1..4),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(tasks, busy, extratime)| Hostile {
            tasks,
            cpu_bound: busy && extratime,
            extratime,
        });
    let guest = (
        prop_oneof![
            4_000..400_000i64,
            (1..=5i64).prop_map(|units| units * 40_000)
        ],
        1..20i64,
        prop::option::of(hostile),
        0..300i64,
        0..400_000i64,
    )
        .prop_map(
            |(period_ns, part, hostile, pause_percent, offset_ns)| Guest {
                period_ns,
                part,
                hostile,
                pause_percent,
                offset_ns,
            },
        );
    prop::collection::vec(guest, 2..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A guest alone on its CPU that would never use more within a period than its budget less a
    /// sixteenth of the period, or less what is too little to come back by itself, never waits for
    /// budget, however many pieces that is in: its jobs are complete when they are without a limit.
    #[test]
    fn merged_replenishments_are_late_by_a_sixteenth_of_a_period_at_most(
        tasks in short_tasks(), period_units in 100..1_500i64,
    ) {
        let (period_ns, duration_ns) = (period_units * 1_000, 6_000_000);
        let host_of = |budget_ns: i64| {
            host("sporadic", duration_ns, &domain("a", budget_ns, period_ns, &tasks, ""))
        };
        let free = host_of(period_ns);
        let ran = simulate(&free).expect("a host that is modelled").intervals;
        // What is too little is less than a sixteenth of the budget, which is less than that of the period.
        let budget_ns = most_used_ns(&ran, period_ns) + period_ns / 16;
        prop_assume!(budget_ns <= period_ns);
        prop_assert_eq!(completions(&host_of(budget_ns)), completions(&free));
    }

    /// Where slices fit beside one another, a guest whose work fits its own slice misses nothing under
    /// SEDF, whatever the others do.
    #[test]
    fn sedf_isolates(guests in guests()) {
        let parts: i64 = guests.iter().map(|guest| guest.part).sum();
        let mut domains = String::new();
        for (number, guest) in guests.iter().enumerate() {
            let slice_ns = (guest.period_ns * guest.part / parts).max(1);
            let task = (
                slice_ns,
                guest.period_ns + guest.period_ns * guest.pause_percent / 100,
                guest.offset_ns,
            );
            let (tasks, rest) = match &guest.hostile {
                None => (vec![task], String::new()),
                Some(hostile) => (
                    hostile.tasks.clone(),
                    format!("extratime = {}\n{}", hostile.extratime, if hostile.cpu_bound {
                        r#"workload = { kind = "cpu-bound" }"#
                    } else {
                        ""
                    }),
                ),
            };
            domains += &domain(&format!("d{number}"), slice_ns, guest.period_ns, &tasks, &rest);
        }
        let host = host("sedf", 20_000_000, &domains);
        for (number, missed) in missed(&host).iter().enumerate() {
            let is_good = guests[number].hostile.is_none();
            prop_assert!(!is_good || missed == &[0], "d{} missed {:?}", number, missed);
        }
    }
}

/// Starts of the runs of a VCPU that always wants to run, with timers that are served a millisecond late.
fn late_starts_ms(policy: &str) -> Vec<i64> {
    let host = load(&format!(
        r#"
        duration = "45 ms"
        [host]
        cpus = 1
        policy = "{policy}"
        timer-latency = "1 ms"
        [[domain]]
        name = "busy"
        budget = "2 ms"
        period = "10 ms"
        workload = {{ kind = "cpu-bound" }}
        "#
    ));
    let (_, records) = laxity_sim::run(&host, Vec::<Record>::new()).expect("the policy takes it");
    (records.iter())
        .filter(|record| record.kind == Kind::Run)
        .map(|record| record.time_ns / 1_000_000)
        .collect()
}

#[test]
fn late_timers_delay_every_replenishment() {
    // The first budget comes by a timer, too.
    for policy in ["deferrable", "periodic", "polling"] {
        assert_eq!(late_starts_ms(policy), [1, 11, 21, 31, 41], "{policy}");
    }
    // Here it is there from the wake on.
    assert_eq!(late_starts_ms("sedf"), [0, 11, 21, 31, 41]);
    // Each comes a period after the use that it gives back, which began late itself.
    assert_eq!(late_starts_ms("sporadic"), [0, 11, 22, 33, 44]);
}
