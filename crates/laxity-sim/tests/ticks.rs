//! What a guest's kernel cannot set its timer for comes late, and interrupts and the wakes of tasks take time: hosts
//! that are small enough to be computed by hand.

use laxity_host::Host;
use laxity_trace::{Kind, Record, task_of};

const US: i64 = 1_000;

fn loaded(text: &str) -> Host {
    laxity_host::load(text, "host.toml", &[] as &[&str]).unwrap_or_else(|error| panic!("{error}"))
}

/// One guest, alone on its CPU, whose kernel sets its timer for 100 us ahead at least.
fn host(tasks: &str) -> Host {
    let text = format!(
        r#"
        duration = "9 ms"
        host = {{ cpus = 1, policy = "fifo" }}
        [[domain]]
        name = "guest"
        tick = {{ period = "4 ms", cost = "10 us", offset = "2 ms", min-delta = "100 us" }}
        tasks = [{tasks}]
        "#
    );
    loaded(&text)
}

/// When the first jobs of a task come, and how long after they were due they are complete, us.
fn first_jobs_us<const JOBS: usize>(host: &Host, task: u32) -> [(i64, i64); JOBS] {
    let (_, records) = laxity_sim::run(host, Vec::<Record>::new()).expect("valid parameters");
    let of = &host.domains[0].tasks[task as usize];
    let time_us = |kind: Kind, number: u64| {
        let is_it =
            |record: &&Record| record.kind == kind && task_of(record.argument) == (task, number);
        records
            .iter()
            .find(is_it)
            .expect("it is in the run")
            .time_ns
            / US
    };
    std::array::from_fn(|number| {
        let due_us = (of.offset_ns + number as i64 * of.period_ns) / US;
        let number = number as u64;
        let response_us = time_us(Kind::Complete, number) - due_us;
        (time_us(Kind::Release, number), response_us)
    })
}

/// The tick at 6 ms is taken, since a job is being done. The other one, of 6.05 ms, comes at 6.1 ms.
#[test]
fn a_job_that_is_due_soon_after_a_tick_comes_late() {
    let long = r#"{ name = "long", cost = "1 ms", period = "9 ms", offset = "5.5 ms" }"#;
    let with = |offset: &str| {
        let short = r#"{ name = "short", cost = "20 us", period = "8 ms", deadline = "1 ms", offset = "OFFSET" }"#;
        host(&format!("{long}, {}", short.replace("OFFSET", offset)))
    };
    assert_eq!(first_jobs_us(&with("6050 us"), 1), [(6_100, 70)]);
    // With the tick it comes, and 100 us after it the timer can be set for it.
    assert_eq!(first_jobs_us(&with("6000 us"), 1), [(6_000, 30)]);
    assert_eq!(first_jobs_us(&with("6099 us"), 1), [(6_100, 21)]);
    assert_eq!(first_jobs_us(&with("6100 us"), 1), [(6_100, 20)]);
    let host = with("6050 us");
    let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("valid parameters");
    assert_eq!(outcome.responses[0][1].max_ns(), Some(70 * US));
}

/// The first job is complete 50 us before the second one is due, which thus comes 50 us late, and is complete when
/// the third one is due.
#[test]
fn a_job_that_is_due_soon_after_the_one_before_it_was_complete_comes_late() {
    let host = host(r#"{ name = "one", cost = "150 us", period = "200 us" }"#);
    let expected = [(0, 150), (250, 200), (400, 150), (650, 200)];
    assert_eq!(first_jobs_us(&host, 0), expected);
}

/// The job of 1.05 ms is put off for another one that comes at 1 ms, and not once more for that of 1.06 ms. The end of
/// another task's job puts off none.
#[test]
fn a_job_is_put_off_once() {
    let task = |name: &str, cost: &str, offset: &str| {
        format!(r#"{{ name = "{name}", cost = "{cost}", period = "8 ms", offset = "{offset}" }}"#)
    };
    let late = task("late", "10 us", "1050 us");
    let others = [task("a", "10 us", "1 ms"), task("b", "10 us", "1060 us")].join(", ");
    // Task b waits for a timer that is set at 1 ms, too.
    assert_eq!(
        first_jobs_us(&host(&format!("{late}, {others}")), 0),
        [(1_100, 60)]
    );
    assert_eq!(
        first_jobs_us(&host(&format!("{late}, {others}")), 2),
        [(1_100, 60)]
    );
    let ends = task("ends", "140 us", "900 us");
    assert_eq!(
        first_jobs_us(&host(&format!("{late}, {ends}")), 0),
        [(1_050, 10)]
    );
}

/// A job that waits for the one before it needs no timer.
#[test]
fn a_job_behind_another_one_comes_when_it_is_due() {
    let host = host(
        r#"
        { name = "behind", cost = "150 us", period = "200 us", deadline = "200 us" },
        { name = "first", cost = "100 us", period = "190 us", offset = "140 us" },
        "#,
    );
    assert_eq!(first_jobs_us::<2>(&host, 0)[1].0, 200);
}

/// One guest, alone on its CPU, whose kernel takes time to wake tasks.
fn host_that_wakes(tick: &str, tasks: &str) -> Host {
    let text = format!(
        r#"
        duration = "7 ms"
        host = {{ cpus = 1, policy = "fifo" }}
        [[domain]]
        name = "guest"
        tick = {{ period = "8 ms", {tick} }}
        tasks = [{tasks}]
        "#
    );
    loaded(&text)
}

fn first_responses_us<const JOBS: usize>(host: &Host, task: u32) -> [i64; JOBS] {
    first_jobs_us(host, task).map(|(_, response_us)| response_us)
}

/// The interrupt of 400 us makes the first job late, so that its task goes on with the second one. The task has to be
/// woken for the third one, and is late again.
#[test]
fn a_task_is_woken_for_a_job_that_it_waits_for() {
    let host = host_that_wakes(
        r#"cost = "400 us", wake = "26 us""#,
        r#"{ name = "one", cost = "674 us", period = "1 ms" }"#,
    );
    assert_eq!(first_responses_us(&host, 0), [1_100, 774, 1_100, 774]);
}

/// The jobs of 0.5 ms come by one interrupt, which interrupts the job that runs.
#[test]
fn jobs_of_an_instant_come_by_one_interrupt() {
    let low = |name: &str| {
        format!(r#"{{ name = "{name}", cost = "200 us", period = "9 ms", offset = "500 us" }}"#)
    };
    let host = host_that_wakes(
        r#"offset = "7 ms", cost = "100 us", wake = "10 us""#,
        &[
            r#"{ name = "high", cost = "1 ms", period = "8 ms" }"#,
            &low("a"),
            &low("b"),
        ]
        .join(", "),
    );
    let responses_us: [[i64; 1]; 3] = [0, 1, 2].map(|task| first_responses_us(&host, task));
    assert_eq!(responses_us, [[1_210], [920], [1_130]]);
}

/// A tick that falls due before the interrupt was served finds nothing more to do.
#[test]
fn ticks_and_jobs_share_an_interrupt() {
    for (offset, response_us) in [("0 us", 310), ("99 us", 310), ("100 us", 410)] {
        let host = host_that_wakes(
            &format!(r#"offset = "{offset}", cost = "100 us", wake = "10 us""#),
            r#"{ name = "one", cost = "200 us", period = "8 ms" }"#,
        );
        assert_eq!(first_responses_us(&host, 0), [response_us], "{offset}");
    }
}

/// A guest and a rival, whose server has no more budget either after 100 us. The longest response of each one's first
/// task, us.
fn responses_beside_a_rival_us(tick: &str, tasks: &str, rival_ms: u32) -> [i64; 2] {
    let text = format!(
        r#"
        duration = "50 ms"
        host = {{ cpus = 1, policy = "lending" }}
        [[domain]]
        name = "guest"
        priority = 1
        budget = "100 us"
        period = "100 ms"
        tick = {{ period = "100 ms", cost = "100 us", {tick} }}
        tasks = [{tasks}]
        [[domain]]
        name = "rival"
        priority = 2
        budget = "100 us"
        period = "100 ms"
        tasks = [{{ name = "one", cost = "{rival_ms} ms", period = "50 ms" }}]
        "#
    );
    let host = loaded(&text);
    let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("valid parameters");
    [0, 1].map(|domain| {
        let response_ns = &outcome.result.domains[domain].tasks[0].response_ns;
        response_ns.max.expect("it has jobs") / US
    })
}

/// The guest waits with a less urgent job when the urgent one comes. It tells of that when its VCPU has served the
/// interrupt, which is after the rival's job.
#[test]
fn a_guest_whose_jobs_come_by_interrupts_tells_when_it_runs() {
    let tasks = r#"
        { name = "urgent", cost = "1 ms", period = "50 ms", deadline = "10 ms", offset = "5 ms" },
        { name = "other", cost = "2 ms", period = "50.5 ms" }"#;
    let by_interrupts = r#"offset = "99 ms", wake = "10 us""#;
    assert_eq!(
        responses_beside_a_rival_us(by_interrupts, tasks, 20)[0],
        16_210
    );
    assert_eq!(
        responses_beside_a_rival_us(r#"offset = "99 ms""#, tasks, 20)[0],
        1_000
    );
}

/// The guest has told for which job it will wake, which is more urgent than the rival's, and so its tick does not wait.
#[test]
fn a_guest_whose_jobs_come_by_interrupts_tells_for_what_it_will_wake() {
    let tasks = r#"{ name = "often", cost = "1 ms", period = "10 ms" }"#;
    let by_interrupts = r#"offset = "3 ms", wake = "10 us""#;
    assert_eq!(
        responses_beside_a_rival_us(by_interrupts, tasks, 8),
        [1_210, 9_210]
    );
    assert_eq!(
        responses_beside_a_rival_us(r#"offset = "3 ms""#, tasks, 8),
        [1_100, 9_000]
    );
}

/// The kernel serves the tick of 6 ms for 10 us, and sets its timer then.
#[test]
fn a_timer_is_set_when_an_interrupt_has_been_served() {
    let with = |offset: &str| {
        host_that_wakes(
            r#"offset = "6 ms", cost = "10 us", min-delta = "100 us", wake = "5 us""#,
            &format!(
                r#"{{ name = "long", cost = "1 ms", period = "9 ms", offset = "5.5 ms" }},
                {{ name = "short", cost = "20 us", period = "8 ms", deadline = "1 ms", offset = "{offset}" }}"#
            ),
        )
    };
    for (offset, at_us, response_us) in [
        ("6005 us", 6_005, 30),
        ("6050 us", 6_110, 95),
        ("6110 us", 6_110, 35),
    ] {
        assert_eq!(
            first_jobs_us(&with(offset), 1),
            [(at_us, response_us)],
            "{offset}"
        );
    }
}
