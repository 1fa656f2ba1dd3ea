//! How tight `check` is: what it accepts of whole hosts that no search of phases makes miss, and how
//! near the worst response found comes to its bound.
//!
//! `cargo run --release -p laxity-analysis --example tightness -- [HOSTS] [RUNS] [EARLIER]` prints both as
//! Markdown tables, beside those of `EARLIER`, a page that it printed at another commit. Whole hosts are those
//! of RT-Xen (EMSOFT 2011, table 3 and section 5.5) with budgets of 70 % in all. Small ones have one to three
//! domains of one to three tasks. The search draws the offsets of all tasks, then moves one at a time and keeps
//! what is not better for the host. It is the same for the same numbers.

use std::collections::HashMap;
use std::fmt::Write;

use laxity_analysis::{Check, Verdict, check};
use laxity_host::{GuestScheduler, Host, Policy};
use laxity_trials::Draw;

const POLICIES: [Policy; 5] = [
    Policy::Periodic,
    Policy::Polling,
    Policy::Deferrable,
    Policy::Sporadic,
    Policy::Sedf,
];

/// Periods of the five domains, in milliseconds; their budgets are 2, 4, 6, 8 and 10 ms.
const PATTERNS: [(&str, [i64; 5]); 3] = [
    ("decreasing", [4, 20, 40, 80, 200]),
    ("even", [10, 20, 30, 40, 50]),
    ("increasing", [40, 40, 40, 40, 20]),
];

/// The part of the paper's budgets that the domains have, in percent.
const BUDGETS_PERCENT: i64 = 70;

/// The parts of the budgets that tasks use, in percent.
const LOADS_PERCENT: [i64; 2] = [50, 70];

/// No task arrives with a replenishment for sure: what `check` says is to hold for all offsets.
fn load(text: &str) -> Host {
    let mut host =
        laxity_host::load(text, "drawn.toml", &[] as &[&str]).expect("the drawn host is valid");
    for task in host.domains.iter_mut().flat_map(|domain| &mut domain.tasks) {
        task.offset_ns = 1;
    }
    host
}

fn whole_host(policy: Policy, periods_ms: [i64; 5], load_percent: i64, seed: u64) -> Host {
    let mut text = format!(
        "duration = \"3 s\"\nseed = {seed}\n[host]\ncpus = 1\npolicy = \"{}\"\n\
         [draw]\nload = \"{load_percent} %\"\n",
        policy.name()
    );
    for (number, period_ms) in (1..).zip(periods_ms) {
        let budget_us = 2_000 * number * BUDGETS_PERCENT / 100;
        write!(
            text,
            "[[domain]]\nname = \"d{number}\"\npriority = {number}\nbudget = \"{budget_us} us\"\n\
             period = \"{period_ms} ms\"\ntasks = \"drawn\"\n"
        )
        .expect("a string takes all");
    }
    load(&text)
}

fn scheduler(guest: GuestScheduler) -> &'static str {
    match guest {
        GuestScheduler::RateMonotonic => "rate-monotonic",
        GuestScheduler::Edf => "edf",
    }
}

fn small_host(policy: Policy, guest: GuestScheduler, seed: u64) -> Host {
    let draw = &mut Draw::new(seed);
    let domains = draw.between(1, 3);
    let share_percent = draw.between(30, 90) / domains;
    let scheduler = scheduler(guest);
    let mut text = format!(
        "duration = \"2 s\"\nseed = {seed}\n[host]\ncpus = 1\npolicy = \"{}\"\n",
        policy.name()
    );
    for number in 1..=domains {
        let period_us = [4_000, 5_000, 10_000, 16_000, 25_000, 40_000][draw.between(0, 5) as usize];
        let budget_us = period_us * share_percent / 100;
        let tasks = draw.between(1, 3);
        let load_percent = draw.between(20, 75);
        write!(
            text,
            "[[domain]]\nname = \"d{number}\"\nscheduler = \"{scheduler}\"\nbudget = \"{budget_us} us\"\n\
             period = \"{period_us} us\"\ntasks = [\n"
        )
        .expect("a string takes all");
        for task in 1..=tasks {
            let task_period_us = draw.between(10_000, 200_000);
            let cost_us = (task_period_us * share_percent * load_percent / 10_000 / tasks).max(1);
            writeln!(
                text,
                "{{ name = \"t{task}\", cost = \"{cost_us} us\", period = \"{task_period_us} us\" }},"
            )
            .expect("a string takes all");
        }
        text.push_str("]\n");
    }
    load(&text)
}

/// The worst responses that a search of phases finds, in the order of domains and tasks, and whether
/// a deadline was missed.
struct Worst {
    responses_ns: Vec<Vec<i64>>,
    has_missed: bool,
}

fn search(host: &Host, runs: usize, seed: u64) -> Worst {
    let draw = &mut Draw::new(seed ^ 0x5eed);
    let places: Vec<(usize, usize)> = (host.domains.iter().enumerate())
        .flat_map(|(domain, of)| (0..of.tasks.len()).map(move |task| (domain, task)))
        .collect();
    let mut worst = Worst {
        responses_ns: (host.domains.iter())
            .map(|domain| vec![0; domain.tasks.len()])
            .collect(),
        has_missed: false,
    };
    let mut host = host.clone();
    let (mut best_ns, mut unchanged) = (-1, 0);
    let mut best = host.clone();
    for run in 0..runs {
        // Each task in turn is what the search is after.
        let target = places[run * places.len() / runs];
        let is_new = run == 0 || target != places[(run - 1) * places.len() / runs];
        if is_new {
            (best_ns, unchanged) = (-1, 0);
        }
        let is_fresh = is_new && run == 0 || unchanged > 12;
        if is_fresh {
            unchanged = 0;
            best_ns = -1;
        }
        host.clone_from(&best);
        for &(domain, task) in &places {
            let task = &mut host.domains[domain].tasks[task];
            if is_fresh {
                task.offset_ns = draw.between(0, task.period_ns - 1);
            }
        }
        if !is_fresh && !is_new {
            let (domain, task) = places[draw.between(0, places.len() as i64 - 1) as usize];
            let near_ns = host.domains[domain].parameters.period_ns;
            let task = &mut host.domains[domain].tasks[task];
            task.offset_ns = if draw.between(0, 1) == 0 {
                draw.between(0, task.period_ns - 1)
            } else {
                (task.offset_ns + draw.between(-near_ns, near_ns)).rem_euclid(task.period_ns)
            };
        }
        let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("the host is valid");
        for (found, responses) in worst.responses_ns.iter_mut().zip(&outcome.responses) {
            for (found_ns, responses) in found.iter_mut().zip(responses) {
                *found_ns = responses.max_ns().unwrap_or(0).max(*found_ns);
            }
        }
        worst.has_missed |= (outcome.result.domains.iter())
            .any(|domain| domain.tasks.iter().any(|task| task.missed > 0));
        let reached_ns = outcome.responses[target.0][target.1].max_ns().unwrap_or(0);
        unchanged = if reached_ns > best_ns {
            0
        } else {
            unchanged + 1
        };
        if reached_ns >= best_ns {
            best_ns = reached_ns;
            best.clone_from(&host);
        }
    }
    worst
}

/// Response by bound of each task with a bound; no bound may be exceeded.
fn ratios(check: &Check, worst: &Worst) -> Vec<f64> {
    (check.domains.iter().zip(&worst.responses_ns))
        .flat_map(|(domain, responses_ns)| domain.tasks.iter().zip(responses_ns))
        .filter_map(|(task, &response_ns)| {
            let bound_ns = task.bound_ns?;
            assert!(response_ns <= bound_ns, "{response_ns} ns: {task:?}");
            Some(response_ns as f64 / bound_ns as f64)
        })
        .collect()
}

fn median(mut of: Vec<f64>) -> String {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2)
        .map_or("-".into(), |median| format!("{median:.2}"))
}

/// The cells of the tables of a page, by those that say what was measured.
struct Earlier(HashMap<Vec<String>, Vec<String>>);

impl Earlier {
    fn read(path: Option<String>) -> Earlier {
        let page = path.map_or(String::new(), |path| {
            std::fs::read_to_string(path).expect("EARLIER is a page")
        });
        let cells = |line: &str| -> Vec<String> {
            (line.trim_matches('|').split('|'))
                .map(|cell| cell.trim().to_string())
                .collect()
        };
        let rows = page
            .lines()
            .filter(|line| line.starts_with("| "))
            .map(cells);
        Earlier(
            rows.filter_map(|mut row| {
                let keys = if row.get(1)?.ends_with('%') { 3 } else { 2 };
                let values = row.split_off(keys.min(row.len()));
                Some((row, values))
            })
            .collect(),
        )
    }

    /// One cell of a row, or a dash.
    fn cell(&self, of: &[&str], place: usize) -> &str {
        let key: Vec<String> = of.iter().map(|cell| (*cell).to_string()).collect();
        let row = self.0.get(&key);
        row.and_then(|row| row.get(place))
            .map_or("-", String::as_str)
    }
}

fn main() {
    let number = |place, otherwise: usize| {
        std::env::args().nth(place).map_or(otherwise, |text| {
            text.parse().expect("HOSTS and RUNS are numbers")
        })
    };
    let (hosts, runs) = (number(1, 100), number(2, 60));
    let earlier = Earlier::read(std::env::args().nth(3));
    println!(
        "# Analysis\n\nWritten by `make tightness`: {hosts} hosts a row, {runs} runs a host.\n\n\
         Hosts in the first table have the five domains of RT-Xen (EMSOFT 2011, table 3), with budgets of\n\
         {BUDGETS_PERCENT} % of the CPU in all, and five drawn tasks each, which use the stated part of the budgets.\n\
         A host *never missed* if no run of a search over the offsets of all tasks missed a deadline.\n\
         *Response / bound* is the worst response found divided by the bound, in the median of all tasks\n\
         with a bound. The command fails if a response is above its bound, or if an accepted host misses.\n\
         *Before* is the result of the same command with the analysis of commit 841644c.\n"
    );
    println!(
        "| policy | load | pattern | accepted | never missed | response / bound | accepted before | \
         response / bound before |"
    );
    println!("|---|---|---|--:|--:|--:|--:|--:|");
    for load_percent in LOADS_PERCENT {
        for policy in POLICIES {
            for (name, periods_ms) in PATTERNS {
                let (mut accepted, mut held, mut both) = (0, 0, Vec::new());
                for seed in 1..=hosts as u64 {
                    let host = whole_host(policy, periods_ms, load_percent, seed);
                    let found = check(&host);
                    let is_accepted = found.verdict == Verdict::Schedulable;
                    let worst = search(&host, runs, seed);
                    assert!(
                        !(is_accepted && worst.has_missed),
                        "{policy:?} {name} {seed}"
                    );
                    accepted += usize::from(is_accepted);
                    held += usize::from(!worst.has_missed);
                    both.extend(ratios(&found, &worst));
                }
                let load = format!("{load_percent} %");
                let before = |place| earlier.cell(&[policy.name(), &load, name], place);
                println!(
                    "| {} | {load} | {name} | {accepted} | {held} | {} | {} | {} |",
                    policy.name(),
                    median(both),
                    before(0),
                    before(2)
                );
            }
        }
    }
    println!(
        "\n| policy | guests | tasks | guaranteed | never missed | with a bound | response / bound | \
         guaranteed before | response / bound before |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for policy in POLICIES {
        for guest in [GuestScheduler::RateMonotonic, GuestScheduler::Edf] {
            let (mut tasks, mut guaranteed, mut held, mut both) = (0, 0, 0, Vec::new());
            for seed in 1..=hosts as u64 {
                let host = small_host(policy, guest, seed);
                let found = check(&host);
                let worst = search(&host, runs, seed);
                both.extend(ratios(&found, &worst));
                for (domain, responses_ns) in found.domains.iter().zip(&worst.responses_ns) {
                    for (task, &response_ns) in domain.tasks.iter().zip(responses_ns) {
                        tasks += 1;
                        guaranteed += usize::from(task.guaranteed);
                        held += usize::from(response_ns <= task.deadline_ns);
                    }
                }
            }
            let before = |place| earlier.cell(&[policy.name(), scheduler(guest)], place);
            println!(
                "| {} | {} | {tasks} | {guaranteed} | {held} | {} | {} | {} | {} |",
                policy.name(),
                scheduler(guest),
                both.len(),
                median(both),
                before(1),
                before(4)
            );
        }
    }
}
