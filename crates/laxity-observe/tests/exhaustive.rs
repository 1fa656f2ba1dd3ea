//! Random hosts with few tasks on a grid of whole milliseconds, whose tasks are also found by trying all that there can
//! be. What is recognized explains every busy period to the nanosecond, and hardly ever do fewer tasks.

use laxity_host::{Document, Host};
use laxity_observe::{Kernel, Load, observe};
use laxity_trace::{Kind, Record};
use laxity_trials::{Draw, seeds};
use std::fmt::Write;

const POLICIES: [&str; 5] = ["deferrable", "periodic", "sporadic", "sedf", "credit"];
const MS: i64 = 1_000_000;
/// Costs are multiples of it.
const COST_STEP_NS: i64 = 100_000;
const PERIOD_MAX_MS: i64 = 40;
const DURATION_NS: i64 = 1_000 * MS;
/// Least squares and rounding are that exact.
const EXACT_NS: i64 = 10;

/// A host file: two domains with 1 to 3 tasks each, on one CPU that is not too busy.
fn text(seed: u64) -> String {
    let draw = &mut Draw::new(seed);
    let policy = draw.one_of(&POLICIES);
    let mut text =
        format!("duration = \"1 s\"\nseed = {seed}\n[host]\ncpus = 1\npolicy = \"{policy}\"\n");
    for domain in 0..2 {
        let head =
            format!("[[domain]]\nname = \"d{domain}\"\nbudget = \"2400 us\"\nperiod = \"5 ms\"\n");
        text.push_str(&head);
        text.push_str("tasks = [\n");
        let count = draw.between(1, 3);
        for task in 0..count {
            let period_ms = draw.one_of(&[4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40]);
            let offset_ms = draw.between(0, period_ms - 1);
            let steps = (period_ms * MS * 4 / 10 / count / COST_STEP_NS).max(1);
            let cost_us = draw.between((steps / 3).max(1), steps) * COST_STEP_NS / 1000;
            writeln!(
                text,
                "{{ name = \"t{task}\", cost = \"{cost_us} us\", period = \"{period_ms} ms\", offset = \"{offset_ms} ms\" }},",
            )
            .expect("text takes everything");
        }
        text.push_str("]\n");
    }
    text
}

fn host(text: &str) -> Host {
    let document = Document::parse(text.as_bytes(), "host.toml").expect("it is TOML");
    (document.host(&[""; 0])).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Between a wake and the next block.
#[derive(Debug, Clone, Copy)]
struct Awake {
    from_ns: i64,
    to_ns: i64,
    ran_ns: i64,
    /// Neither cut off by the beginning nor by the end of the trace.
    is_whole: bool,
}

/// When the only VCPU of a domain was awake, and for how long it ran then, record by record.
fn awake(records: &[Record], domain: u16) -> Vec<Awake> {
    let mut all: Vec<Awake> = Vec::new();
    let mut is_awake = false;
    let mut runs_since_ns = None;
    let of_domain = |record: &&Record| record.domain == domain && record.time_ns < DURATION_NS;
    for record in records.iter().filter(of_domain) {
        let now_ns = record.time_ns;
        if matches!(record.kind, Kind::Wake | Kind::Run) && !is_awake {
            is_awake = true;
            all.push(Awake {
                from_ns: now_ns,
                to_ns: DURATION_NS,
                ran_ns: 0,
                is_whole: now_ns > 0,
            });
        }
        if matches!(record.kind, Kind::Run | Kind::Stop | Kind::Block)
            && let Some(since_ns) = runs_since_ns.take()
        {
            all.last_mut().expect("what runs is awake").ran_ns += now_ns - since_ns;
        }
        if record.kind == Kind::Run {
            runs_since_ns = Some(now_ns);
        }
        if record.kind == Kind::Block && is_awake {
            is_awake = false;
            all.last_mut().expect("what blocks was awake").to_ns = now_ns;
        }
    }
    if is_awake && let Some(last) = all.last_mut() {
        last.is_whole = false;
    }
    all
}

/// Period, offset and cost, ns.
type Task = (i64, i64, i64);

fn arrivals((period_ns, offset_ns): (i64, i64)) -> impl Iterator<Item = i64> {
    (0..)
        .map(move |number| offset_ns + number * period_ns)
        .take_while(|&time_ns| time_ns < DURATION_NS)
}

/// For each time awake, how many jobs arrive in it; `None` if one arrives in sleep.
fn counts(all: &[Awake], task: (i64, i64), near_ns: i64) -> Option<Vec<i64>> {
    let mut counts = vec![0; all.len()];
    for time_ns in arrivals(task) {
        let place = (all.iter())
            .position(|each| each.from_ns - near_ns <= time_ns && time_ns < each.to_ns - near_ns)?;
        counts[place] += 1;
    }
    Some(counts)
}

/// For each time awake, whether a job of the task began it.
fn begun(all: &[Awake], task: (i64, i64), near_ns: i64) -> Vec<bool> {
    let begins =
        |each: &Awake| arrivals(task).any(|time_ns| (time_ns - each.from_ns).abs() <= near_ns);
    all.iter().map(begins).collect()
}

/// Whether the tasks make exactly these times awake.
fn explains(all: &[Awake], tasks: &[Task], near_ns: i64) -> bool {
    let of = |&(period_ns, offset_ns, _): &Task| (period_ns, offset_ns);
    let Some(counts) = (tasks.iter())
        .map(|task| counts(all, of(task), near_ns))
        .collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    let begun: Vec<Vec<bool>> = tasks
        .iter()
        .map(|task| begun(all, of(task), near_ns))
        .collect();
    (0..all.len()).all(|place| {
        let jobs = || {
            tasks
                .iter()
                .zip(&counts)
                .map(|(task, counts)| (task.2, counts[place]))
        };
        let work_ns: i64 = jobs().map(|(cost_ns, jobs)| cost_ns * jobs).sum();
        let number: i64 = jobs().map(|(_, jobs)| jobs).sum();
        let is_begun = all[place].from_ns == 0 || begun.iter().any(|begun| begun[place]);
        let is_work =
            !all[place].is_whole || (work_ns - all[place].ran_ns).abs() <= near_ns * number;
        is_begun && is_work
    })
}

/// A period and an offset that no sleep contradicts.
struct Possible {
    counts: Vec<i64>,
    begun: Vec<bool>,
}

fn possible(all: &[Awake]) -> Vec<Possible> {
    let mut found = Vec::new();
    for period_ms in 1..=PERIOD_MAX_MS {
        for offset_ms in 0..period_ms {
            let task = (period_ms * MS, offset_ms * MS);
            if let Some(counts) = counts(all, task, 0) {
                let begun = begun(all, task, 0);
                found.push(Possible { counts, begun });
            }
        }
    }
    found
}

/// Whether costs on the grid exist with which the tasks do the work of all whole times awake.
fn have_costs(all: &[Awake], tasks: &[&Possible], costs_ns: &mut Vec<i64>) -> bool {
    let whole = || (0..all.len()).filter(|&place| all[place].is_whole);
    let Some(next) = tasks.get(costs_ns.len()) else {
        return whole().all(|place| {
            let work_ns: i64 = (tasks.iter().zip(&*costs_ns))
                .map(|(task, cost_ns)| task.counts[place] * cost_ns)
                .sum();
            work_ns == all[place].ran_ns
        });
    };
    // A job costs no more than any time awake in which one arrived.
    let most_ns = whole()
        .filter(|&place| next.counts[place] > 0)
        .map(|place| all[place].ran_ns / next.counts[place])
        .min()
        .unwrap_or(0);
    (1..=most_ns / COST_STEP_NS).any(|steps| {
        costs_ns.push(steps * COST_STEP_NS);
        let found = have_costs(all, tasks, costs_ns);
        costs_ns.pop();
        found
    })
}

/// Whether so few tasks on the grid make exactly these times awake.
fn so_few_explain(all: &[Awake], count: usize) -> bool {
    fn extend<'a>(
        all: &[Awake],
        pool: &'a [Possible],
        chosen: &mut Vec<&'a Possible>,
        count: usize,
    ) -> bool {
        if chosen.len() == count {
            let is_begun = |place: usize| {
                all[place].from_ns == 0 || chosen.iter().any(|task| task.begun[place])
            };
            return (0..all.len()).all(is_begun) && have_costs(all, chosen, &mut Vec::new());
        }
        (0..pool.len()).any(|place| {
            chosen.push(&pool[place]);
            let found = extend(all, &pool[place + 1..], chosen, count);
            chosen.pop();
            found
        })
    }
    extend(all, &possible(all), &mut Vec::new(), count)
}

#[test]
fn what_is_recognized_is_what_trying_everything_finds() {
    let (mut domains, mut more) = (0, 0);
    for seed in seeds(25) {
        let host = host(&text(seed));
        let (_, records) = laxity_sim::run(&host, Vec::new()).expect("the policy takes it");
        let observed = observe(
            &laxity_run::metadata(&host, "sim"),
            &records,
            &Kernel::default(),
        );
        for (number, domain) in (0..).zip(&host.domains) {
            let all = awake(&records, number);
            let truth: Vec<Task> = (domain.tasks.iter())
                .map(|task| (task.period_ns, task.offset_ns, task.cost_ns))
                .collect();
            assert!(explains(&all, &truth, 0), "seed {seed}: {truth:?} {all:?}");
            let mut found: Vec<Task> = Vec::new();
            if let Load::Tasks(recognized) = &observed.domains[usize::from(number)].vcpus[0].load {
                let of =
                    |task: &laxity_observe::Task| (task.period_ns, task.offset_ns, task.cost_ns);
                found.extend(recognized.tasks.iter().map(of));
            }
            assert!(
                explains(&all, &found, EXACT_NS),
                "seed {seed}: {truth:?}\n   found {found:?}"
            );
            domains += 1;
            if (1..found.len()).any(|fewer| so_few_explain(&all, fewer)) {
                more += 1;
                println!(
                    "seed {seed}: {} {}: {truth:?}\n   found {found:?}",
                    host.policy.name(),
                    domain.name
                );
            }
        }
    }
    println!("{more} of {domains} domains with more tasks than are needed");
    assert!(more * 50 <= domains);
}
