//! RT-Xen (EMSOFT 2011), table 4: at which loads the theory guarantees that drawn task sets are
//! schedulable.
//!
//! `cargo run --release --example table_4 [SEEDS]` prints, for each server, share pattern and load, the percentage of
//! task sets that the test of Davis and Burns accepts (as the paper applied it, and with the
//! servers' own schedulability asked for too), and those that [`laxity_analysis::check`] guarantees
//! as a host.

use laxity_analysis::davis_burns::{
    PaperServer, PaperTask, ServerKind, server_is_schedulable, tasks_are_schedulable,
};
use laxity_analysis::{Verdict, check};
use laxity_host::{Host, Policy};

const BUDGETS_MS: [u32; 5] = [2, 4, 6, 8, 10];
const PATTERNS: [(&str, [u32; 5]); 3] = [
    ("decreasing", [4, 20, 40, 80, 200]),
    ("even", [10, 20, 30, 40, 50]),
    ("increasing", [40, 40, 40, 40, 20]),
];

fn host(policy: Policy, periods_ms: [u32; 5], load_percent: u32, seed: u64) -> Host {
    let mut text = format!(
        "duration = \"300 s\"\nseed = {seed}\n[host]\ncpus = 1\npolicy = \"{}\"\n[draw]\nload = \"{load_percent} %\"\n",
        policy.name()
    );
    for (number, (budget_ms, period_ms)) in BUDGETS_MS.into_iter().zip(periods_ms).enumerate() {
        text += &format!(
            "[[domain]]\nname = \"domain-{0}\"\nbudget = \"{budget_ms} ms\"\nperiod = \"{period_ms} ms\"\n\
             priority = {0}\ntasks = \"drawn\"\n",
            number + 1
        );
    }
    laxity_host::load(&text, "table 3", &[] as &[&str]).unwrap_or_else(|error| panic!("{error}"))
}

/// The paper's servers, in order of priority.
fn paper_servers(host: &Host) -> Vec<PaperServer> {
    host.domains
        .iter()
        .map(|domain| {
            let mut tasks: Vec<PaperTask> = domain
                .tasks
                .iter()
                .map(|task| PaperTask {
                    cost_ns: task.cost_ns,
                    period_ns: task.period_ns,
                    deadline_ns: task.deadline_ns,
                })
                .collect();
            tasks.sort_by_key(|task| task.period_ns);
            PaperServer {
                budget_ns: domain.parameters.budget_ns,
                period_ns: domain.parameters.period_ns,
                tasks,
            }
        })
        .collect()
}

fn main() {
    let seeds: u64 = std::env::args()
        .nth(1)
        .map_or(100, |text| text.parse().expect("SEEDS is a number"));
    println!(
        "{:<11} {:<11} {:>5} {:>7} {:>8} {:>6}",
        "server", "pattern", "load", "paper", "+servers", "check"
    );
    for (policy, kind) in [
        (Policy::Deferrable, ServerKind::Deferrable),
        (Policy::Periodic, ServerKind::Periodic),
    ] {
        for (pattern, periods_ms) in PATTERNS {
            for load_percent in (30..=100).step_by(5) {
                let (mut paper, mut with_servers, mut guaranteed) = (0, 0, 0);
                for seed in 0..seeds {
                    let host = host(policy, periods_ms, load_percent, seed);
                    let servers = paper_servers(&host);
                    let accepted = tasks_are_schedulable(kind, &servers);
                    let servers_too = (1..=servers.len())
                        .all(|upto| server_is_schedulable(kind, &servers[..upto]));
                    paper += u64::from(accepted);
                    with_servers += u64::from(accepted && servers_too);
                    guaranteed += u64::from(check(&host).verdict == Verdict::Schedulable);
                }
                let percent = |count: u64| 100 * count / seeds;
                println!(
                    "{:<11} {pattern:<11} {load_percent:>4}% {:>6}% {:>7}% {:>5}%",
                    policy.name(),
                    percent(paper),
                    percent(with_servers),
                    percent(guaranteed)
                );
            }
        }
    }
}
