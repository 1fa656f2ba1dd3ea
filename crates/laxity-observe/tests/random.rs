//! Random hosts are simulated, observed by nothing but when their VCPUs woke, ran and blocked, and compared with what
//! is known of them.

use laxity_host::{Document, Host};
use laxity_observe::{
    Busy, Kernel, Load, Task, completions_ns, observe, recognize, seen, with_jobs,
};
use laxity_trace::{Kind, Metadata, Record};
use laxity_trials::{Draw, seeds};
use std::collections::BTreeMap;
use std::fmt::Write;

const POLICIES: [&str; 6] = [
    "deferrable",
    "periodic",
    "sporadic",
    "sedf",
    "credit",
    "credit2",
];

/// A host file: 1 or 2 CPUs, 2 to 4 domains with 1 to 4 tasks each, and often an endless loop.
fn text(seed: u64) -> String {
    let draw = &mut Draw::new(seed);
    let policy = draw.one_of(&POLICIES);
    let cpus = draw.one_of(&[1, 1, 2]);
    let domains = draw.between(2, 4);
    let costs = draw.one_of(&[
        "",
        "costs = { schedule = \"2 us\", context-switch = \"3 us\" }\n",
    ]);
    let mut text = format!(
        "duration = \"10 s\"\nseed = {seed}\n[host]\ncpus = {cpus}\npolicy = \"{policy}\"\n{costs}"
    );
    let whole = draw.one_of(&[true, false]);
    for domain in 0..domains {
        let budget_period_ms = draw.one_of(&[5, 10, 20]);
        let share = 0.9 * cpus as f64 / domains as f64;
        let share = share.min(0.9);
        let load = share * draw.between(20, 80) as f64 / 100.0;
        let count = draw.between(1, 4);
        write!(
            text,
            "[[domain]]\nname = \"d{domain}\"\nbudget = \"{} us\"\nperiod = \"{budget_period_ms} ms\"\ntasks = [\n",
            (share * budget_period_ms as f64 * 1000.0) as i64,
        )
        .expect("text takes everything");
        for task in 0..count {
            let period_us = if whole {
                1000 * draw.one_of(&[5, 8, 10, 20, 25, 40, 50, 100])
            } else {
                draw.between(4_000, 100_000)
            };
            let offset_us = if whole {
                0
            } else {
                draw.between(0, period_us - 1)
            };
            let cost_us = ((load / count as f64) * period_us as f64 * draw.between(50, 130) as f64
                / 100.0) as i64;
            writeln!(
                text,
                "{{ name = \"t{task}\", cost = \"{} us\", period = \"{period_us} us\", offset = \"{offset_us} us\" }},",
                cost_us.max(20),
            )
            .expect("text takes everything");
        }
        text.push_str("]\n");
    }
    if draw.between(0, 1) == 1 {
        text.push_str("[[domain]]\nname = \"loop\"\nbudget = \"500 us\"\nperiod = \"20 ms\"\nworkload = { kind = \"cpu-bound\" }\n");
    }
    text
}

fn host(text: &str) -> Host {
    let document = Document::parse(text.as_bytes(), "host.toml").expect("it is TOML");
    document
        .host(&[""; 0])
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(host: &Host) -> (laxity_run::Outcome, Metadata, Vec<Record>) {
    let (outcome, records) = laxity_sim::run(host, Vec::new()).expect("the policy takes it");
    (outcome, laxity_run::metadata(host, "sim"), records)
}

/// The tasks of a VCPU that can be told apart: those that always arrive together are one.
fn distinct(tasks: &[laxity_host::Task], vcpu: u32) -> Vec<(i64, i64, i64)> {
    let mut sums = BTreeMap::<(i64, i64), i64>::new();
    for task in tasks.iter().filter(|task| task.vcpu == vcpu) {
        *sums.entry((task.period_ns, task.offset_ns)).or_default() += task.cost_ns;
    }
    sums.into_iter()
        .map(|((period_ns, offset_ns), cost_ns)| (period_ns, offset_ns, cost_ns))
        .collect()
}

#[derive(Default, Debug)]
struct Count {
    domains: u64,
    unrecognized: u64,
    tasks: u64,
    periods: u64,
    costs: u64,
    invented: u64,
    compared: u64,
    miss_ratios: u64,
}

impl Count {
    /// Most domains and tasks are found as they are, and few tasks that there are not.
    fn assert_nearly_all(&self, percent: u64) {
        let nearly_all = |part: u64, of: u64| part * 100 >= of * percent;
        assert!(nearly_all(self.domains - self.unrecognized, self.domains));
        assert!(nearly_all(self.periods, self.tasks));
        assert!(nearly_all(self.costs, self.tasks));
        let true_ones = self.tasks - self.invented.min(self.tasks);
        assert!(nearly_all(true_ones, self.tasks));
    }

    /// Counts the tasks whose periods are within 1 % and costs within 5 %; returns whether any is wrong.
    fn compare(&mut self, truth: &[(i64, i64, i64)], found: &[Task]) -> bool {
        let mut left = found.to_vec();
        let before = (self.costs, self.invented);
        let near = |a: i64, b: i64, part: i64| (a - b).abs() * part <= b;
        for &(period_ns, _, cost_ns) in truth {
            let best = (0..left.len())
                .filter(|&index| near(left[index].period_ns, period_ns, 100))
                .min_by_key(|&index| {
                    (left[index].period_ns - period_ns).abs()
                        + (left[index].cost_ns - cost_ns).abs()
                });
            if let Some(best) = best {
                self.periods += 1;
                self.costs += u64::from(near(left.swap_remove(best).cost_ns, cost_ns, 20));
            }
        }
        self.invented += left.len() as u64;
        (self.costs, self.invented) != (before.0 + truth.len() as u64, before.1)
    }
}

/// The first domain waits for its budget and its CPU, so that most jobs of its task of 25 ms find it awake.
const RARELY_WOKEN: &str = r#"
duration = "8 s"
host = { cpus = 1, policy = "rtds" }
[[domain]]
name = "rarely"
budget = "2076 us"
period = "25 ms"
extratime = false
tasks = [
    { name = "often", cost = "527 us", period = "25 ms" },
    { name = "seldom", cost = "1557 us", period = "40 ms" },
]
[[domain]]
name = "before"
budget = "4166 us"
period = "10 ms"
extratime = false
workload = { kind = "cpu-bound" }
"#;

/// Every second job of the task of 5 ms finds the domain awake, so that only the first two wakes are 5 ms apart.
const EVERY_SECOND: &str = r#"
duration = "1 s"
host = { cpus = 1, policy = "deferrable" }
[[domain]]
name = "second"
budget = "2400 us"
period = "5 ms"
tasks = [
    { name = "often", cost = "600 us", period = "5 ms", offset = "1 ms" },
    { name = "seldom", cost = "2 ms", period = "10 ms", offset = "9 ms" },
]
"#;

#[test]
fn a_period_is_found_that_hardly_any_wakes_have_between_them() {
    for (text, pairs_max) in [(RARELY_WOKEN, 0), (EVERY_SECOND, 1)] {
        let host = host(text);
        let (_, metadata, records) = run(&host);
        let found = observe(&metadata, &records, &Kernel::default());
        let Load::Tasks(recognized) = &found.domains[0].vcpus[0].load else {
            panic!("{found:?}");
        };
        let of = |task: &Task| (task.period_ns, task.offset_ns, task.cost_ns);
        let tasks: Vec<_> = recognized.tasks.iter().map(of).collect();
        let truth = distinct(&host.domains[0].tasks, 0);
        assert_eq!(tasks, truth);
        let wakes_ns: Vec<i64> = (seen(&metadata, &records)[0][0].busy.iter())
            .map(|busy| busy.start_ns)
            .collect();
        let pairs = (wakes_ns.iter())
            .filter(|&from_ns| wakes_ns.contains(&(from_ns + truth[0].0)))
            .count();
        assert_eq!(pairs, pairs_max);
    }
}

#[test]
fn what_domains_do_is_recognized() {
    let mut count = Count::default();
    for seed in seeds(25) {
        let text = text(seed);
        let mut host = host(&text);
        let (outcome, metadata, records) = run(&host);
        let found = observe(&metadata, &records, &Kernel::default());
        for (domain, observed) in host.domains.iter_mut().zip(&found.domains) {
            if domain.tasks.is_empty() {
                assert_eq!(observed.vcpus[0].load, Load::Endless, "seed {seed}");
                continue;
            }
            count.domains += 1;
            let truth = distinct(&domain.tasks, 0);
            let Load::Tasks(recognized) = &observed.vcpus[0].load else {
                println!(
                    "seed {seed}: {} of {truth:?}: {:?}",
                    domain.name, observed.vcpus[0].load
                );
                count.unrecognized += 1;
                continue;
            };
            count.tasks += truth.len() as u64;
            if count.compare(&truth, &recognized.tasks) {
                let (policy, name) = (host.policy.name(), &domain.name);
                println!("seed {seed}: {policy} {name} {truth:?}\n   found {recognized:?}");
            }
            let template = domain.tasks[0].clone();
            domain.tasks = (0..)
                .zip(&recognized.tasks)
                .map(|(number, task)| laxity_host::Task {
                    name: format!("t{number}"),
                    cost_ns: task.cost_ns,
                    period_ns: task.period_ns,
                    deadline_ns: task.period_ns,
                    offset_ns: task.offset_ns,
                    ..template.clone()
                })
                .collect();
        }
        // What the host did, told by the recognized tasks, and what the model of them does.
        let metadata = laxity_run::metadata(&host, "sim");
        let completions = completions_ns(&metadata, &records);
        let told = laxity_run::released_jobs(&metadata, &completions);
        told.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let traced = with_jobs(&metadata, &records, &completions);
        assert!(
            traced.is_sorted_by_key(|record| record.time_ns),
            "seed {seed}"
        );
        let model = laxity_sim::run(&host, Vec::new())
            .expect("the policy takes it")
            .0;
        for (truth, model) in outcome.result.domains.iter().zip(&model.result.domains) {
            if truth.jobs == 0 || model.jobs == 0 {
                continue;
            }
            count.compared += 1;
            let ratio = |missed: u64, jobs: u64| missed as f64 / jobs as f64;
            let points =
                100.0 * (ratio(truth.missed, truth.jobs) - ratio(model.missed, model.jobs)).abs();
            if points <= 2.0 {
                count.miss_ratios += 1
            } else {
                println!(
                    "seed {seed}: {} {}: {points:.1} points apart",
                    host.policy.name(),
                    truth.name
                );
            }
        }
    }
    println!("{count:?}");
    count.assert_nearly_all(97);
    assert!(count.miss_ratios * 100 >= count.compared * 97);
}

/// Real kernels wake VCPUs late, and work takes longer at times.
#[test]
fn noise_does_not_hide_tasks() {
    let mut count = Count::default();
    for seed in seeds(25) {
        let host = host(&text(seed));
        let (_, metadata, records) = run(&host);
        let draw = &mut Draw::new(seed);
        let late_ns = draw.one_of(&[2_000, 10_000, 30_000]);
        for (domain, vcpus) in host.domains.iter().zip(seen(&metadata, &records)) {
            if domain.tasks.is_empty() {
                continue;
            }
            let mut busy = vcpus[0].busy.clone();
            for busy in busy.iter_mut().filter(|busy| busy.is_whole) {
                busy.start_ns += draw.between(0, late_ns.min(busy.end_ns - busy.start_ns));
                busy.work_ns += busy.work_ns * draw.between(-30, 30) / 1000;
            }
            count.domains += 1;
            let truth = distinct(&domain.tasks, 0);
            let Some(recognized) = recognize(&busy, host.duration_ns, None) else {
                println!("seed {seed}: {} of {truth:?}: not recognized", domain.name);
                count.unrecognized += 1;
                continue;
            };
            count.tasks += truth.len() as u64;
            let wrong = count.compare(&truth, &recognized.tasks);
            if wrong {
                println!(
                    "seed {seed}: up to {late_ns} ns late: {truth:?}\n   found {recognized:?}"
                );
            }
        }
    }
    println!("with noise: {count:?}");
    count.assert_nearly_all(90);
}

/// A guest's kernel takes a part of what a job does at each wake. Most jobs are followed by another wake, for a tick.
/// The costs are found without it.
#[test]
fn ticks_of_a_kernel_beside_small_tasks_are_no_tasks() {
    const US: i64 = 1_000;
    const TICK_NS: i64 = 4_000 * US;
    const WAKE_NS: (i64, i64) = (20 * US, 45 * US);
    for seed in seeds(10) {
        let draw = &mut Draw::new(seed);
        let costs_us = [
            draw.between(150, 400),
            draw.between(150, 900),
            draw.between(150, 900),
        ];
        let mut busy = Vec::new();
        let mut add = |start_ns: i64, work_ns: i64| {
            busy.push(Busy {
                start_ns,
                end_ns: start_ns + work_ns,
                work_ns,
                runs: 1,
                is_whole: true,
            });
            start_ns + work_ns
        };
        for number in 0..400 {
            let jobs = [true, number % 2 == 0, number % 4 == 0];
            let work_us: i64 = (costs_us.iter().zip(jobs))
                .map(|(&cost_us, comes)| if comes { cost_us } else { 0 })
                .sum();
            let work_ns = work_us * US + draw.between(WAKE_NS.0, WAKE_NS.1);
            let mut end_ns = add(number * 5 * TICK_NS + draw.between(1, 3 * US), work_ns);
            for chance in [80, 10] {
                end_ns = (end_ns / TICK_NS + 1) * TICK_NS - 600 * US;
                if draw.between(1, 100) <= chance {
                    end_ns = add(end_ns, draw.between(WAKE_NS.0, WAKE_NS.1));
                }
                end_ns += TICK_NS / 2;
            }
        }
        let end_ns = 400 * 5 * TICK_NS;
        let found = recognize(&busy, end_ns, None)
            .unwrap_or_else(|| panic!("seed {seed}: nothing is found of {costs_us:?}"));
        let periods: Vec<i64> = (found.tasks.iter())
            .map(|task| (task.period_ns + US / 2) / US)
            .collect();
        assert_eq!(periods, [20_000, 40_000, 80_000], "seed {seed}: {found:?}");
        let off_ns = found.wake_ns - WAKE_NS.0.midpoint(WAKE_NS.1);
        assert!(off_ns.abs() <= 3 * US, "seed {seed}: {found:?}");
        for (task, cost_us) in found.tasks.iter().zip(costs_us) {
            let off_us = task.cost_ns / US - cost_us;
            assert!(
                off_us.abs() <= cost_us / 20,
                "seed {seed}: {cost_us} us, {task:?}"
            );
        }
    }
}

/// A budget stretches the work of tasks with 50 ms and 80 ms so that the VCPU is awake at each multiple of 40 ms: a
/// task of that period, which is not there, explains what it does as well, with others.
#[test]
fn a_task_that_is_not_there_is_left_out() {
    let text = "duration = \"8 s\"\n[host]\ncpus = 1\npolicy = \"sedf\"\n[[domain]]\nname = \"d0\"\n\
        budget = \"2633 us\"\nperiod = \"10 ms\"\ntasks = [\n\
        { name = \"a\", cost = \"7554 us\", period = \"50 ms\" },\n\
        { name = \"b\", cost = \"3628 us\", period = \"80 ms\" },\n]\n";
    let host = host(text);
    let (_, metadata, records) = run(&host);
    let draw = &mut Draw::new(1);
    let mut busy = seen(&metadata, &records)[0][0].busy.clone();
    for busy in busy.iter_mut().filter(|busy| busy.is_whole) {
        busy.start_ns += draw.between(0, 10_000);
        busy.work_ns += draw.between(0, 8_000);
    }
    let found = recognize(&busy, host.duration_ns, None).expect("its tasks are seen");
    let tasks: Vec<_> = (found.tasks.iter())
        .map(|task| (task.period_ns / 100_000, (task.cost_ns + 50_000) / 100_000))
        .collect();
    assert_eq!(tasks, [(500, 76), (800, 36)], "{found:?}");
}

/// What kernels take is known: 30 us for each time that a VCPU gets a CPU, interrupts of 10 us, 20 us for a job, and
/// 1 % of all that jobs take. A tick comes after each busy period. A job of the second task waits for two ticks, which
/// are one then, and works while another one comes.
#[test]
fn what_kernels_take_is_in_no_cost() {
    const US: i64 = 1_000;
    const TICK_NS: i64 = 4_000 * US;
    const TICK_OFFSET_NS: i64 = 1_234 * US;
    let kernel = Kernel {
        arrival_ns: 30 * US,
        interrupt_ns: 10 * US,
        wake_ns: 20 * US,
        tick_ns: Some(TICK_NS),
        stolen: 0.01,
    };
    let mut metadata = laxity_run::metadata(&host(&text(1)), "sim");
    metadata.duration_ns = 100 * 20_000 * US;
    metadata.cpus = 1;
    metadata.domains.truncate(1);
    metadata.domains[0].vcpus = 1;
    let mut records = Vec::new();
    let mut record = |time_ns, kind| {
        records.push(Record {
            time_ns,
            argument: 0,
            cpu: 0,
            domain: 0,
            vcpu: 0,
            kind,
        });
    };
    let job_ns = |cost_us: i64| (20 + cost_us) * US * 101 / 100;
    for number in 0..100 {
        let mut now_ns = (1 + number * 20_000) * US;
        record(now_ns, Kind::Wake);
        record(now_ns, Kind::Run);
        now_ns += (30 + 10) * US + job_ns(100);
        if number % 2 == 1 {
            record(now_ns, Kind::Stop);
            now_ns += 6_000 * US;
            record(now_ns, Kind::Run);
            now_ns += (30 + 10) * US + job_ns(4_300) + 10 * US;
        }
        // It runs on for a moment after it has blocked.
        record(now_ns - US, Kind::Block);
        record(now_ns, Kind::Stop);
        now_ns = (now_ns / TICK_NS + 1) * TICK_NS + TICK_OFFSET_NS;
        record(now_ns, Kind::Wake);
        record(now_ns, Kind::Run);
        record(now_ns + 39 * US, Kind::Block);
        record(now_ns + 40 * US, Kind::Stop);
    }
    let tasks = |kernel: &Kernel| {
        let found = observe(&metadata, &records, kernel);
        let Load::Tasks(found) = &found.domains[0].vcpus[0].load else {
            return None;
        };
        let tasks: Vec<_> = (found.tasks.iter())
            .map(|task| (task.period_ns / US, (task.cost_ns + US / 2) / US))
            .collect();
        Some((tasks, found.tick_offset_ns))
    };
    let known = Some((vec![(20_000, 100), (40_000, 4_300)], Some(TICK_OFFSET_NS)));
    assert_eq!(tasks(&kernel), known);
    // Each part counts, and nothing is known by default.
    for other in [
        Kernel {
            arrival_ns: 0,
            ..kernel
        },
        Kernel {
            interrupt_ns: 0,
            ..kernel
        },
        Kernel {
            wake_ns: 0,
            ..kernel
        },
        Kernel {
            tick_ns: None,
            ..kernel
        },
        Kernel {
            stolen: 0.0,
            ..kernel
        },
        Kernel::default(),
    ] {
        assert_ne!(tasks(&other), known, "{other:?}");
    }
}

/// A task that takes a hundred and fiftieth of another one's work wakes its VCPU, and is none of a kernel's own wakes.
#[test]
fn a_small_task_beside_a_large_one_is_found() {
    const US: i64 = 1_000;
    let draw = &mut Draw::new(1);
    let mut busy = Vec::new();
    for number in (0..400).filter(|number| number % 10 == 0 || number % 10 > 2) {
        let (work_us, awake_us) = match number % 10 {
            0 => (46_000 + 3 * 300, 55_000),
            _ => (300, 400),
        };
        let start_ns = number * 20_000 * US + 4 * US + draw.between(0, 3 * US);
        busy.push(Busy {
            start_ns,
            end_ns: start_ns + awake_us * US,
            work_ns: work_us * US + draw.between(0, 4 * US),
            runs: 1,
            is_whole: true,
        });
    }
    let found = recognize(&busy, 400 * 20_000 * US, None).expect("its tasks are seen");
    let tasks: Vec<_> = (found.tasks.iter())
        .map(|task| {
            let cost_us = (task.cost_ns + 50 * US) / (100 * US) * 100;
            ((task.period_ns + US / 2) / US, cost_us)
        })
        .collect();
    assert_eq!(tasks, [(20_000, 300), (200_000, 46_000)], "{found:?}");
}

/// The jobs of one task always arrive behind those of another, which wake the VCPU: every 50 ms after
/// every 20 ms, where two of these run for more than 20 ms together. Kernels take 20 us for each busy
/// period beside.
#[test]
fn a_task_that_wakes_every_second_time_is_one() {
    const US: i64 = 1_000;
    let mut busy = Vec::new();
    let mut add = |start_us: i64, end_us: i64, work_us: i64| {
        busy.push(Busy {
            start_ns: start_us * US + 5_000,
            end_ns: end_us * US,
            work_ns: (work_us + 20) * US,
            runs: 1,
            is_whole: true,
        });
    };
    for number in 0..80 {
        let start_us = number * 100_000;
        add(start_us, start_us + 18_000, 9_700);
        add(start_us + 20_000, start_us + 29_000, 4_500);
        // Jobs at 40 ms, 50 ms and 60 ms.
        add(start_us + 40_000, start_us + 74_000, 14_200);
        add(start_us + 80_000, start_us + 89_000, 4_500);
    }
    let found = recognize(&busy, 80 * 100_000 * US, None).expect("its tasks are seen");
    let tasks: Vec<_> = (found.tasks.iter())
        .map(|task| {
            (
                (task.period_ns + US / 2) / US,
                (task.cost_ns + 50 * US) / (100 * US),
            )
        })
        .collect();
    assert_eq!(tasks, [(20_000, 45), (50_000, 52)], "{found:?}");
}

/// What is awake for a hundred years has as many arrivals as there are microseconds in hours, and nobody looks at each.
#[test]
fn a_vcpu_that_stays_awake_is_recognized_by_what_it_did_before() {
    const MS: i64 = 1_000_000;
    let end_ns = 100 * 365 * 86_400_000 * MS;
    let wake_ns = |number: i64| 5_000 + number * MS / 50;
    let mut busy: Vec<Busy> = (0..40)
        .map(|number| Busy {
            start_ns: wake_ns(number),
            end_ns: wake_ns(number) + 3_000,
            work_ns: 3_000,
            runs: 1,
            is_whole: true,
        })
        .collect();
    busy.push(Busy {
        start_ns: wake_ns(40),
        end_ns,
        work_ns: end_ns - wake_ns(40),
        runs: 1,
        is_whole: false,
    });
    let found = recognize(&busy, end_ns, None).expect("its tasks are seen");
    let tasks: Vec<_> = (found.tasks.iter())
        .map(|task| (task.period_ns, task.cost_ns))
        .collect();
    assert_eq!(tasks, [(MS / 50, 3_000)]);
}

/// Jobs every 25, 50 and 100 ms, of which those at 25 and 50 ms come while the VCPU is busy, but for
/// a single time.
#[test]
fn a_single_busy_period_tells_two_tasks_apart() {
    const US: i64 = 1_000;
    const COSTS_US: [(i64, i64); 3] = [(25_000, 2_922), (50_000, 1_744), (100_000, 31_545)];
    let busy = |start_us: i64, end_us: i64, jobs: [i64; 3]| Busy {
        start_ns: start_us * US,
        end_ns: end_us * US,
        work_ns: COSTS_US
            .iter()
            .zip(jobs)
            .map(|(task, jobs)| task.1 * jobs * US)
            .sum(),
        runs: 1,
        is_whole: start_us > 0,
    };
    let mut periods = Vec::new();
    for start_us in (0..8_000_000).step_by(100_000) {
        if start_us == 200_000 {
            periods.push(busy(start_us, start_us + 49_000, [2, 1, 1]));
            periods.push(busy(start_us + 50_000, start_us + 55_000, [1, 1, 0]));
        } else {
            periods.push(busy(start_us, start_us + 55_000, [3, 2, 1]));
        }
        periods.push(busy(start_us + 75_000, start_us + 78_000, [1, 0, 0]));
    }
    let found = recognize(&periods, 8_000_000 * US, None).unwrap();
    let found: Vec<_> = (found.tasks.iter())
        .map(|task| (task.period_ns / US, task.cost_ns / US))
        .collect();
    assert_eq!(found, COSTS_US);
}
