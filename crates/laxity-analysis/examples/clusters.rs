//! What `check` accepts of random hosts by their load, on several CPUs, beside those that no search of phases makes
//! miss: under rtds, and under the policies with one order for all CPUs.
//!
//! `cargo run --release -p laxity-analysis --example clusters -- [HOSTS] [RUNS]` prints two Markdown tables. They are
//! the same for the same numbers.

use laxity_analysis::{Verdict, check};
use laxity_host::{Host, Policy};
use laxity_trials::Draw;

const CPUS: [i64; 3] = [2, 4, 8];

/// The budgets of all VCPUs together, in percent of the CPUs.
const LOADS_PERCENT: [i64; 7] = [20, 30, 40, 50, 60, 70, 80];

/// VCPUs for each CPU.
const VCPUS_PER_CPU: i64 = 2;

/// The part of its budget that a guest uses, in percent.
const USED_PERCENT: i64 = 60;

/// The number of CPUs of the hosts under policies with one order for all CPUs.
const CPUS_OF_ONE_ORDER: i64 = 4;

/// What such hosts have beside their VCPUs, and the keys that say so.
const WITH: [(&str, &str); 4] = [
    ("nothing", ""),
    ("costs of emsoft-2011", "costs = \"emsoft-2011\""),
    ("a quantum of 1 ms", "quantum = \"1 ms\""),
    ("timers that are 100 us late", "timer-latency = \"100 us\""),
];

/// A guest has two tasks. Half of the hosts also have guests that always have work, one of four.
fn host(policy: Policy, cpus: i64, load_percent: i64, keys: &str, seed: u64) -> Host {
    let draw = &mut Draw::new(seed);
    let vcpus = cpus * VCPUS_PER_CPU;
    let parts: Vec<i64> = (0..vcpus).map(|_| draw.between(10, 100)).collect();
    let sum: i64 = parts.iter().sum();
    let mut text = format!(
        "duration = \"2 s\"\nseed = {seed}\n[host]\ncpus = {cpus}\npolicy = \"{}\"\n{keys}\n",
        policy.name()
    );
    for (number, part) in parts.iter().enumerate() {
        let period_us = [10_000, 16_000, 20_000, 25_000, 40_000][draw.between(0, 4) as usize];
        let budget_us =
            (period_us * part * load_percent * cpus / (100 * sum)).min(period_us * 9 / 10);
        let domain = format!(
            "[[domain]]\nname = \"d{number}\"\nbudget = \"{budget_us} us\"\nperiod = \"{period_us} us\"\n"
        );
        text.push_str(&domain);
        if seed.is_multiple_of(2) && number % 4 == 3 {
            text.push_str("workload = { kind = \"cpu-bound\" }\n");
            continue;
        }
        text.push_str("tasks = [\n");
        for task in 1..=2 {
            let task_period_us = period_us * draw.between(3, 8) + draw.between(0, period_us);
            let cost_us = task_period_us * budget_us * USED_PERCENT / (200 * period_us);
            let line = format!(
                "{{ name = \"t{task}\", cost = \"{cost_us} us\", period = \"{task_period_us} us\" }},\n"
            );
            text.push_str(&line);
        }
        text.push_str("]\n");
    }
    let mut host =
        laxity_host::load(&text, "drawn.toml", &[] as &[&str]).expect("the drawn host is valid");
    for task in host.domains.iter_mut().flat_map(|domain| &mut domain.tasks) {
        task.offset_ns = 1;
    }
    host
}

/// What runs with drawn phases showed.
struct Searched {
    has_missed: bool,
    /// Worst responses, in the order of domains and tasks.
    worst_ns: Vec<i64>,
}

fn search(host: &Host, runs: usize, seed: u64) -> Searched {
    let draw = &mut Draw::new(seed ^ 0x5eed);
    let mut found = Searched {
        has_missed: false,
        worst_ns: vec![0; host.domains.iter().map(|domain| domain.tasks.len()).sum()],
    };
    let mut host = host.clone();
    for _ in 0..runs {
        for domain in &mut host.domains {
            domain.parameters.phase_ns = draw.between(0, domain.parameters.period_ns);
            for task in &mut domain.tasks {
                task.offset_ns = draw.between(0, task.period_ns - 1);
            }
        }
        let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("the host is valid");
        let responses = outcome.responses.iter().flatten();
        for (worst_ns, responses) in found.worst_ns.iter_mut().zip(responses) {
            *worst_ns = responses.max_ns().unwrap_or(0).max(*worst_ns);
        }
        let mut domains = outcome.result.domains.iter();
        found.has_missed |= domains.any(|domain| domain.tasks.iter().any(|task| task.missed > 0));
    }
    found
}

fn main() {
    let number = |place, otherwise: usize| {
        std::env::args().nth(place).map_or(otherwise, |text| {
            text.parse().expect("HOSTS and RUNS are numbers")
        })
    };
    let (hosts, runs) = (number(1, 100), number(2, 20));
    println!(
        "# Several CPUs\n\nWritten by `make clusters`: {hosts} hosts a row, {runs} runs a host.\n\n\
         Hosts under `rtds` have {VCPUS_PER_CPU} VCPUs for each CPU, which share all CPUs. *Load* is the\n\
         utilization of all budgets; each guest uses {USED_PERCENT} % of its budget for two tasks. On every second host\n\
         one guest in four is always busy. *Accepted* counts the hosts of which `laxity check` guarantees\n\
         every deadline. A host *never missed* if no run with drawn phases missed a deadline.\n\
         *Guaranteed* is the share of the tasks of all hosts whose deadlines are guaranteed. *Response /\n\
         bound* is the worst response found divided by the bound, in the median of all tasks with a\n\
         bound. The command fails if a response is above its bound, or if an accepted host misses.\n"
    );
    println!("| CPUs | costs | load | accepted | never missed | guaranteed | response / bound |");
    println!("|--:|---|--:|--:|--:|--:|--:|");
    for (name, costs) in [("none", ""), ("emsoft-2011", "costs = \"emsoft-2011\"")] {
        for cpus in CPUS {
            for load_percent in LOADS_PERCENT {
                let of_host = |seed| host(Policy::Rtds, cpus, load_percent, costs, seed);
                let Found {
                    accepted,
                    held,
                    guaranteed_percent,
                    median,
                } = find(of_host, hosts, runs);
                println!(
                    "| {cpus} | {name} | {load_percent} % | {accepted} | {held} | {guaranteed_percent} % | {median} |"
                );
            }
        }
    }
    println!(
        "\nUnder the policies with one order for all CPUs, hosts of {CPUS_OF_ONE_ORDER} CPUs are drawn in the same way.\n\
         Each cell has *guaranteed* and *response / bound* at a load.\n"
    );
    let loads = LOADS_PERCENT.map(|load_percent| format!(" {load_percent} % |"));
    println!("| policy | with |{}", loads.concat());
    println!("|---|---|{}", "--:|".repeat(LOADS_PERCENT.len()));
    for policy in (Policy::ALL.into_iter()).filter(|policy| policy.is_global()) {
        for (name, keys) in WITH {
            let of_load = |load_percent| {
                let of_host = |seed| host(policy, CPUS_OF_ONE_ORDER, load_percent, keys, seed);
                let found = find(of_host, hosts, runs);
                format!(" {} %, {} |", found.guaranteed_percent, found.median)
            };
            println!(
                "| `{}` | {name} |{}",
                policy.name(),
                LOADS_PERCENT.map(of_load).concat()
            );
        }
    }
}

/// What hosts of one kind showed.
struct Found {
    accepted: usize,
    /// Those in which no run missed.
    held: usize,
    guaranteed_percent: usize,
    /// The median of all worst responses divided by their bounds.
    median: String,
}

fn find(of_host: impl Fn(u64) -> Host, hosts: usize, runs: usize) -> Found {
    let (mut accepted, mut held, mut tasks, mut guaranteed) = (0, 0, 0, 0);
    let mut ratios: Vec<f64> = Vec::new();
    for seed in 1..=hosts as u64 {
        let host = of_host(seed);
        let found = check(&host);
        let searched = search(&host, runs, seed);
        let is_accepted = found.verdict == Verdict::Schedulable;
        assert!(
            !(is_accepted && searched.has_missed),
            "{} {seed}",
            host.policy.name()
        );
        accepted += usize::from(is_accepted);
        held += usize::from(!searched.has_missed);
        let of_all = found.domains.iter().flat_map(|domain| &domain.tasks);
        for (task, &worst_ns) in of_all.zip(&searched.worst_ns) {
            tasks += 1;
            guaranteed += usize::from(task.guaranteed);
            if let Some(bound_ns) = task.bound_ns {
                assert!(worst_ns <= bound_ns, "{seed}: {worst_ns} ns: {task:?}");
                ratios.push(worst_ns as f64 / bound_ns as f64);
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    Found {
        accepted,
        held,
        guaranteed_percent: 100 * guaranteed / tasks.max(1),
        median: (ratios.get(ratios.len() / 2)).map_or("-".into(), |median| format!("{median:.2}")),
    }
}
