//! Designs of random hosts: against brute force, and whether what is said of them is true.
//!
//! `LAXITY_DOMAINS` is the most domains of hosts that brute force takes (default 2). A failure names its seed.

use laxity_analysis::{Verdict, check, is_guaranteed};
use laxity_design::{Aim, Answer, Demand, Design, Limit, Request, design};
use laxity_host::{Document, Domain, Host, Open};
use laxity_trials::{Draw, cases, number, seeds};

#[derive(Debug, Clone)]
struct Task {
    name: String,
    cost_us: u64,
    period_us: u64,
    deadline_us: u64,
}

/// A host of random tasks, as a file: `domains` domains, which together need about `percent` of the CPU.
fn domains(random: &mut Draw, domains: u64, percent: u64) -> Vec<(String, Vec<Task>)> {
    (0..domains)
        .map(|number| {
            let tasks = 1 + random.below(2);
            let tasks = (0..tasks).map(|index| {
                let period_us = 1_000 * random.one_of(&[4, 5, 8, 10, 12, 16, 20, 24, 40]);
                let most = period_us * percent / 100 / domains / tasks;
                let cost_us = (most / 2 + random.below(most.max(2))).max(20) / 10 * 10;
                let deadline_us = random.one_of(&[period_us, period_us, period_us * 3 / 4]);
                Task {
                    name: format!("t{index}"),
                    cost_us: cost_us.min(deadline_us),
                    period_us,
                    deadline_us,
                }
            });
            (format!("d{number}"), tasks.collect())
        })
        .collect()
}

fn file(random: &mut Draw, domains: &[(String, Vec<Task>)]) -> String {
    let policy = random.one_of(&["deferrable", "deferrable", "periodic", "polling"]);
    let switch_ns = random.one_of(&[0, 0, 2_000, 10_000]);
    let mut text = format!(
        "duration = \"1 s\"\n[host]\ncpus = 1\npolicy = \"{policy}\"\ncosts = {{ schedule = \"200 ns\", \
         context-switch = \"{switch_ns} ns\" }}\n"
    );
    let drawn = random.number();
    for (name, tasks) in domains {
        // A domain is the same whichever others there are.
        let mut random = Draw::new(drawn ^ name.bytes().map(u64::from).sum::<u64>());
        text += &format!("[[domain]]\nname = \"{name}\"\n");
        let scheduler = random.one_of(&["rate-monotonic", "rate-monotonic", "edf"]);
        text += &format!("scheduler = \"{scheduler}\"\n");
        for task in tasks {
            text += &format!(
                "[[domain.tasks]]\nname = \"{}\"\ncost = \"{} us\"\nperiod = \"{} us\"\ndeadline = \"{} us\"\n",
                task.name, task.cost_us, task.period_us, task.deadline_us
            );
        }
    }
    text
}

fn opened(text: &str) -> (Host, Open) {
    let document = Document::parse(text, "host.toml").unwrap();
    document.open(&[""; 0]).unwrap()
}

fn designed(text: &str) -> Answer {
    let (host, open) = opened(text);
    design(&host, &open, Request::default()).unwrap()
}

/// Budgets in parts of the period that brute force tries.
const BUDGETS: i64 = 20;

/// The least CPU time by trying each order, period and budget of a grid. All that is used is that a domain is affected
/// only by those of higher priority.
struct BruteForce {
    domains: Vec<Domain>,
    best: f64,
}

impl BruteForce {
    fn go(&mut self, host: &mut Host, left: &[usize], used: f64) {
        if left.is_empty() {
            if check(host).verdict == Verdict::Schedulable {
                self.best = used;
            }
            return;
        }
        for &number in left {
            let rest: Vec<usize> = left
                .iter()
                .copied()
                .filter(|&other| other != number)
                .collect();
            let longest_ns = self.domains[number]
                .tasks
                .iter()
                .map(|task| task.period_ns)
                .max();
            for period_ns in
                (1..=longest_ns.unwrap() / 1_000_000).map(|period_ms| period_ms * 1_000_000)
            {
                for part in 1..=BUDGETS {
                    let share = part as f64 / BUDGETS as f64;
                    if used + share >= self.best {
                        break;
                    }
                    let mut domain = self.domains[number].clone();
                    domain.parameters.period_ns = period_ns;
                    domain.parameters.budget_ns = period_ns * part / BUDGETS;
                    domain.parameters.priority = host.domains.len() as u32 + 1;
                    host.domains.push(domain);
                    if is_guaranteed(host, host.domains.len() - 1) {
                        self.go(host, &rest, used + share);
                    }
                    host.domains.pop();
                }
            }
        }
    }
}

fn brute_force(host: &Host) -> Option<f64> {
    let mut search = BruteForce {
        domains: host.domains.clone(),
        best: 1.0 + 1e-9,
    };
    let mut empty = Host {
        domains: Vec::new(),
        ..host.clone()
    };
    let all: Vec<usize> = (0..host.domains.len()).collect();
    search.go(&mut empty, &all, 0.0);
    (search.best <= 1.0).then_some(search.best)
}

#[test]
fn reserves_no_more_than_brute_force() {
    let (mut held, mut worst) = (0, 0.0_f64);
    // The host of the last seed needs a period a little below its longest one.
    for seed in seeds(16).chain([5013]) {
        let mut random = Draw::new(seed);
        let (count, percent) = (
            1 + random.below(number("LAXITY_DOMAINS", 2)),
            30 + random.below(60),
        );
        let domains = domains(&mut random, count, percent);
        let text = file(&mut random, &domains);
        let (host, _) = opened(&text);
        let best = brute_force(&host);
        match (designed(&text), best) {
            (Answer::Holds(design), best) => {
                held += 1;
                if let Some(best) = best {
                    worst = worst.max(design.cpu_share / best);
                    assert!(
                        design.cpu_share <= 1.02 * best,
                        "seed {seed}: {} in place of {best}\n{text}",
                        design.cpu_share
                    );
                }
            }
            (answer, best) => assert!(
                best.is_none(),
                "seed {seed}: {answer:?} in place of {best:?}\n{text}"
            ),
        }
    }
    println!(
        "{held} held of the seeds from {}; at most {worst:.4} of brute force's least CPU",
        seeds(1).start
    );
    assert!(held > 0);
}

/// A host of one or two domains, each of which may have values and offsets, as a file.
fn tricky_file(random: &mut Draw) -> String {
    let policy = random.one_of(&[
        "deferrable",
        "periodic",
        "polling",
        "sporadic",
        "sedf",
        "lending",
    ]);
    let switch_ns = random.one_of(&[0, 2_000]);
    let mut text = format!(
        "duration = \"1 s\"\n[host]\ncpus = 1\npolicy = \"{policy}\"\n\
         costs = {{ context-switch = \"{switch_ns} ns\" }}\n"
    );
    let (count, percent) = (1 + random.below(2), 30 + random.below(60));
    for (name, tasks) in domains(random, count, percent) {
        text += &format!("[[domain]]\nname = \"{name}\"\n");
        let period_ms = random.one_of(&[1, 2, 3, 4, 5, 8]);
        let budget_us = 50 * period_ms * random.one_of(&[2, 4, 6, 8, 10, 14]);
        let (budget, period) =
            random.one_of(&[(false, false), (false, true), (true, false), (true, true)]);
        if budget {
            text += &format!("budget = \"{budget_us} us\"\n");
        }
        if period {
            text += &format!("period = \"{period_ms} ms\"\n");
        }
        if random.number().is_multiple_of(3) {
            text += &format!("priority = {}\n", random.one_of(&[1, 2, 5]));
        }
        for task in tasks {
            let deadline_us = random.one_of(&[task.period_us, task.period_us / 2]);
            let offset_us = random.one_of(&[0, 0, 1_000, 1_500]);
            text += &format!(
                "[[domain.tasks]]\nname = \"{}\"\ncost = \"{} us\"\nperiod = \"{} us\"\n\
                 deadline = \"{} us\"\noffset = \"{offset_us} us\"\n",
                task.name,
                task.cost_us.min(deadline_us),
                task.period_us,
                deadline_us
            );
        }
    }
    text
}

/// The least CPU time of all values of a grid around what is given, by asking `check` of each host.
fn brute_force_around(host: &Host, open: &Open) -> Option<f64> {
    let values = |number: usize| {
        let (domain, open) = (&host.domains[number], &open.domains[number]);
        let longest_ns = domain.tasks.iter().map(|task| task.period_ns).max();
        let given = &domain.parameters;
        let periods: Vec<i64> = match open.period {
            true => (1..=longest_ns.unwrap() / 1_000_000)
                .map(|ms| ms * 1_000_000)
                .collect(),
            false => vec![given.period_ns],
        };
        let priorities = match open.priority {
            true => 1..=6,
            false => given.priority..=given.priority,
        };
        let mut all = Vec::new();
        for period_ns in periods {
            let budgets: Vec<i64> = match open.budget {
                true => (1..=BUDGETS)
                    .map(|part| period_ns * part / BUDGETS)
                    .collect(),
                false => vec![given.budget_ns],
            };
            for budget_ns in budgets
                .into_iter()
                .filter(|budget_ns| *budget_ns <= period_ns)
            {
                all.extend(
                    priorities
                        .clone()
                        .map(|priority| (budget_ns, period_ns, priority)),
                );
            }
        }
        all
    };
    let all: Vec<Vec<(i64, i64, u32)>> = (0..host.domains.len()).map(values).collect();
    let mut best = f64::INFINITY;
    let mut tried = host.clone();
    let mut chosen = vec![0; all.len()];
    'all: loop {
        let mut used = 0.0;
        for (number, domain) in tried.domains.iter_mut().enumerate() {
            let (budget_ns, period_ns, priority) = all[number].get(chosen[number]).copied()?;
            (domain.parameters.budget_ns, domain.parameters.period_ns) = (budget_ns, period_ns);
            domain.parameters.priority = priority;
            used += budget_ns as f64 / period_ns as f64;
        }
        if used < best && used <= 1.0 + 1e-9 {
            let guaranteed = (0..all.len()).all(|number| is_guaranteed(&tried, number));
            if guaranteed {
                best = used;
            }
        }
        for (place, values) in chosen.iter_mut().zip(&all) {
            *place += 1;
            if *place < values.len() {
                continue 'all;
            }
            *place = 0;
        }
        break;
    }
    best.is_finite().then_some(best)
}

/// Whether the written file holds, and also with each cost that is said to be possible.
fn holds_with_its_rooms(text: &str, design: &Design, seed: u64) {
    let document = Document::parse(text, "host.toml").unwrap();
    let answered = document.with_values(&design.values).unwrap();
    let answered = laxity_host::load(&answered, "host.toml", &[""; 0]).unwrap();
    assert_eq!(
        check(&answered).verdict,
        Verdict::Schedulable,
        "seed {seed}\n{text}"
    );
    for room in &design.rooms {
        let mut grown = answered.clone();
        let domains = grown.domains.iter_mut().filter(|of| of.name == room.domain);
        let tasks = domains.flat_map(|of| &mut of.tasks);
        for task in tasks.filter(|task| task.name == room.task) {
            task.cost_ns = room.most_ns;
        }
        let verdict = check(&grown).verdict;
        assert_eq!(
            verdict,
            Verdict::Schedulable,
            "seed {seed}: {room:?}\n{text}"
        );
    }
}

/// A host under rtds: the first CPU by itself, and two that share their VCPUs.
fn clustered_file(random: &mut Draw) -> String {
    let domains = domains(random, 5, 120);
    let mut text = file(random, &domains).replace("cpus = 1", "cpus = 3");
    for policy in ["deferrable", "periodic", "polling"] {
        text = text.replace(policy, "rtds");
    }
    for (name, _) in &domains {
        let line = format!("name = \"{name}\"\n");
        let cpus = random.one_of(&["[0]", "[1, 2]", "[1, 2]"]);
        text = text.replace(&line, &format!("{line}affinity = {cpus}\n"));
    }
    text
}

#[test]
fn vcpus_of_clusters_are_designed_together() {
    let (mut held, mut bound) = (0, 0);
    for seed in seeds(4) {
        let text = clustered_file(&mut Draw::new(seed));
        let Answer::Holds(design) = designed(&text) else {
            continue;
        };
        held += 1;
        holds_with_its_rooms(&text, &design, seed);
        let is_found = |path: &str| path.ends_with(".budget") || path.ends_with(".period");
        assert!(
            design.values.iter().all(|(path, _)| is_found(path)),
            "{design:?}"
        );
        for binding in &design.bindings {
            bound += 1;
            let mut values = design.values.clone();
            let path = format!("domain.{}.budget", binding.domain);
            let value = values
                .iter_mut()
                .find(|(of, _)| *of == path)
                .expect("it was open");
            value.1 = format!("\"{} ns\"", binding.too_little_ns);
            let document = Document::parse(&text, "host.toml").unwrap();
            let less = document.with_values(&values).unwrap();
            let less = laxity_host::load(&less, "host.toml", &[""; 0]).unwrap();
            let number = less.domains.iter().position(|of| of.name == binding.domain);
            assert!(
                !is_guaranteed(&less, number.unwrap()),
                "seed {seed}: {binding:?}\n{text}"
            );
        }
    }
    println!("{held} held, {bound} budgets");
    assert!(held > 0 && bound > 3, "{held} held, {bound} budgets");
}

#[test]
fn hosts_without_bounds_are_refused_under_rtds() {
    let text = |affinity: &str, more: &str| {
        format!(
            "duration = \"1 s\"\n[host]\ncpus = 3\npolicy = \"rtds\"\n\
             [[domain]]\nname = \"a\"\naffinity = [0, 1]\n\
             tasks = [{{ name = \"t\", cost = \"1 ms\", period = \"20 ms\" }}]\n\
             [[domain]]\nname = \"b\"\naffinity = {affinity}\n{more}\
             tasks = [{{ name = \"t\", cost = \"1 ms\", period = \"20 ms\" }}]\n"
        )
    };
    let refused = |text: &str| {
        let (host, open) = opened(text);
        laxity_design::refusal(&host, &open).map(|refusal| refusal.path)
    };
    assert_eq!(refused(&text("[2]", "")), None);
    assert_eq!(
        refused(&text("[1, 2]", "")).as_deref(),
        Some("domain.b.affinity")
    );
    let lends = text("[2]", "extratime = true\n");
    assert_eq!(refused(&lends).as_deref(), Some("domain.b.extratime"));
}

#[test]
fn values_around_those_given_reserve_no_more_than_brute_force() {
    let (mut held, mut failed, mut worst) = (0, 0, 0.0_f64);
    for seed in seeds(24) {
        let text = tricky_file(&mut Draw::new(seed));
        let (host, open) = opened(&text);
        let best = brute_force_around(&host, &open);
        match designed(&text) {
            Answer::Holds(design) => {
                held += 1;
                holds_with_its_rooms(&text, &design, seed);
                if let Some(best) = best {
                    worst = worst.max(design.cpu_share / best);
                    assert!(
                        design.cpu_share <= 1.02 * best,
                        "seed {seed}: {} in place of {best}\n{text}",
                        design.cpu_share
                    );
                }
            }
            Answer::Impossible(impossible) => {
                failed += 1;
                assert!(
                    best.is_none(),
                    "seed {seed}: {impossible:?} in place of {best:?}\n{text}"
                );
            }
        }
    }
    println!(
        "{held} held of the seeds from {}, {failed} did not; at most {worst:.4} of brute force's least CPU",
        seeds(1).start
    );
    assert!(held > 0 && failed > 0);
}

/// All orders of some numbers.
fn orders(numbers: &[u32]) -> Vec<Vec<u32>> {
    if numbers.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for &first in numbers {
        let rest: Vec<u32> = (numbers.iter().copied())
            .filter(|&number| number != first)
            .collect();
        for mut order in orders(&rest) {
            order.push(first);
            all.push(order);
        }
    }
    all
}

#[test]
fn priorities_are_found_wherever_some_order_holds() {
    let (mut held, mut failed) = (0, 0);
    // On the host of the last seed, one domain holds only because another asks for less than its budget.
    for seed in seeds(100).chain([236]) {
        let mut random = Draw::new(seed);
        let count = 2 + random.below(3);
        let percent = 50 + random.below(40);
        let domains = domains(&mut random, count, percent);
        let mut text = file(&mut random, &domains);
        for (name, tasks) in &domains {
            // A budget a little above what the tasks need, at a part of the shortest period.
            let period_us = tasks.iter().map(|task| task.period_us).min().unwrap()
                / random.one_of(&[1, 2, 3, 4]);
            let load: f64 = (tasks.iter())
                .map(|task| task.cost_us as f64 / task.period_us as f64)
                .sum();
            let spare = random.one_of(&[1.1, 1.2, 1.3, 1.5]);
            let budget_us = ((load * spare * period_us as f64) as u64).clamp(1, period_us);
            let given = format!(
                "name = \"{name}\"\nbudget = \"{budget_us} us\"\nperiod = \"{period_us} us\"\n"
            );
            text = text.replace(&format!("name = \"{name}\"\n"), &given);
        }
        let (mut host, _) = opened(&text);
        let numbers: Vec<u32> = (1..=count as u32).collect();
        let any = orders(&numbers).into_iter().any(|order| {
            for (domain, priority) in host.domains.iter_mut().zip(order) {
                domain.parameters.priority = priority;
            }
            check(&host).verdict == Verdict::Schedulable
        });
        let answer = designed(&text);
        let holds = matches!(answer, Answer::Holds(_));
        assert_eq!(holds, any, "seed {seed}: {answer:?}\n{text}");
        if let Answer::Holds(design) = &answer {
            holds_with_its_rooms(&text, design, seed);
        }
        *(if any { &mut held } else { &mut failed }) += 1;
    }
    println!("{held} held, {failed} did not");
    assert!(held > 0 && failed > 0);
}

fn without(
    domains: &[(String, Vec<Task>)],
    kept: &dyn Fn(&str, &str) -> bool,
) -> Vec<(String, Vec<Task>)> {
    domains
        .iter()
        .map(|(name, tasks)| {
            let tasks = tasks.iter().filter(|task| kept(name, &task.name)).cloned();
            (name.clone(), tasks.collect::<Vec<_>>())
        })
        .filter(|(_, tasks)| !tasks.is_empty())
        .collect()
}

#[test]
fn conflicts_are_minimal() {
    let mut conflicts = 0;
    for seed in seeds(4) {
        let mut random = Draw::new(seed);
        let domains = domains(&mut random, 3, 110);
        let drawn = random.number();
        let of = |domains: &[(String, Vec<Task>)]| designed(&file(&mut Draw::new(drawn), domains));
        let Answer::Impossible(impossible) = of(&domains) else {
            continue;
        };
        conflicts += 1;
        let is_in = |demand: &Demand, domain: &str, task: &str| {
            demand.domain == domain && demand.task == task
        };
        let conflict = &impossible.conflict;
        let all =
            |domain: &str, task: &str| conflict.iter().any(|demand| is_in(demand, domain, task));
        let answer = of(&without(&domains, &all));
        assert!(
            matches!(answer, Answer::Impossible(_)),
            "seed {seed}: {answer:?}"
        );
        for demand in conflict {
            let kept = |domain: &str, task: &str| all(domain, task) && !is_in(demand, domain, task);
            let fewer = without(&domains, &kept);
            if fewer.is_empty() {
                continue;
            }
            let answer = of(&fewer);
            assert!(
                matches!(answer, Answer::Holds(_)),
                "seed {seed}: without {demand:?}: {answer:?}"
            );
        }
    }
    assert!(conflicts > 0);
}

#[test]
fn what_binds_improves_the_aim_when_relaxed() {
    let mut relaxed = 0;
    for seed in seeds(4) {
        let mut random = Draw::new(seed);
        let domains = domains(&mut random, 2, 60);
        let drawn = random.number();
        let of = |domains: &[(String, Vec<Task>)]| designed(&file(&mut Draw::new(drawn), domains));
        let Answer::Holds(before) = of(&domains) else {
            continue;
        };
        for binding in &before.bindings {
            for limit in &binding.limits {
                let mut changed = domains.clone();
                let of_domain = changed.iter_mut().find(|(name, _)| *name == binding.domain);
                let tasks = &mut of_domain.unwrap().1;
                let task = tasks
                    .iter_mut()
                    .find(|task| task.name == binding.task)
                    .unwrap();
                match limit {
                    Limit::Cost => task.cost_us = task.cost_us * 95 / 100,
                    Limit::Deadline => {
                        task.deadline_us = (task.deadline_us * 105 / 100).min(task.period_us)
                    }
                }
                let Answer::Holds(after) = of(&changed) else {
                    panic!("seed {seed}: nothing holds with a relaxed {binding:?}");
                };
                relaxed += 1;
                assert!(
                    after.cpu_share < before.cpu_share,
                    "seed {seed}: {} with a relaxed {limit:?} of {binding:?}, {} before",
                    after.cpu_share,
                    before.cpu_share
                );
            }
        }
    }
    assert!(relaxed > 0);
}

#[test]
fn growth_within_budgets_holds_and_no_more() {
    let text = include_str!("../../../examples/three-loops.toml");
    let Answer::Holds(found) = designed(text) else {
        panic!("the three loops hold");
    };
    assert!(found.cpu_share <= 0.667, "{}", found.cpu_share);
    let document = Document::parse(text, "host.toml").unwrap();
    let answered = document.with_values(&found.values).unwrap();
    for room in &found.rooms {
        for (cost_ns, verdict) in [
            (room.most_ns, Verdict::Schedulable),
            (
                room.most_ns + room.most_ns / 500 + 1,
                Verdict::NotGuaranteed,
            ),
        ] {
            let grown = format!(
                "domain.{}.tasks.{}.cost={cost_ns} ns",
                room.domain, room.task
            );
            let host = laxity_host::load(&answered, "host.toml", &[grown]).unwrap();
            assert_eq!(check(&host).verdict, verdict, "{room:?}");
        }
    }
}

/// Costs as many times greater as was asked for, or found, hold with the values that were found for them.
#[test]
fn room_to_grow_holds_and_costs_time() {
    let mut held = 0;
    for seed in seeds(20) {
        let mut random = Draw::new(seed);
        let count = 1 + random.below(3);
        let domains = domains(&mut random, count, 45);
        let text = file(&mut random, &domains);
        let (host, open) = opened(&text);
        let of = |aim| {
            let request = Request {
                aim,
                ..Request::default()
            };
            match design(&host, &open, request).unwrap() {
                Answer::Holds(found) => Some(found),
                _ => None,
            }
        };
        let Some(least) = of(Aim::LeastTime) else {
            continue;
        };
        assert_eq!(
            least.front.first().map(|point| point.room_factor),
            Some(1.0)
        );
        for points in least.front.windows(2) {
            assert!(points[0].room_factor < points[1].room_factor, "seed {seed}");
            assert!(points[0].cpu_share < points[1].cpu_share, "seed {seed}");
        }
        for aim in [Aim::Room(1.1), Aim::MostRoom] {
            let Some(found) = of(aim) else {
                continue;
            };
            let factor = found.room_factor.unwrap();
            let document = Document::parse(&text, "host.toml").unwrap();
            let answered = document.with_values(&found.values).unwrap();
            let mut grown = laxity_host::load(&answered, "host.toml", &[""; 0]).unwrap();
            for task in grown
                .domains
                .iter_mut()
                .flat_map(|domain| &mut domain.tasks)
            {
                task.cost_ns = (task.cost_ns as f64 * factor).ceil() as i64;
            }
            assert_eq!(
                check(&grown).verdict,
                Verdict::Schedulable,
                "seed {seed} {aim:?}"
            );
            assert!(
                found.cpu_share >= least.cpu_share - 0.02,
                "seed {seed} {aim:?}"
            );
            held += 1;
        }
    }
    assert!(held > cases(20) / 2, "{held}");
}

/// Four budgets of which each fits, and all of them do not.
#[test]
fn budgets_without_tasks_fit_their_cpu() {
    let of = |last_ms: u32| {
        let mut text =
            String::from("duration = \"1 s\"\n[host]\ncpus = 1\npolicy = \"deferrable\"\n");
        for (number, budget_ms) in [3, 3, 3, last_ms].into_iter().enumerate() {
            text += &format!("[[domain]]\nname = \"d{number}\"\n");
            text += &format!("budget = \"{budget_ms} ms\"\nperiod = \"10 ms\"\n");
        }
        designed(&text)
    };
    assert!(matches!(of(1), Answer::Holds(_)));
    assert!(!matches!(of(2), Answer::Holds(_)));
}

const ONE_CPU: &str = "duration = \"1 s\"\n[host]\ncpus = 1\npolicy = \"deferrable\"\n";

#[test]
fn a_given_priority_stays_and_others_are_found_around_it() {
    let given = "[[domain]]\nname = \"slow\"\nbudget = \"5 ms\"\nperiod = \"20 ms\"\n\
        tasks = [{ name = \"s\", cost = \"4 ms\", period = \"100 ms\" }]\n\
        [[domain]]\nname = \"fast\"\nbudget = \"1 ms\"\nperiod = \"2 ms\"\npriority = 1\n\
        tasks = [{ name = \"f\", cost = \"500 us\", period = \"2 ms\" }]\n";
    let Answer::Holds(found) = designed(&format!("{ONE_CPU}{given}")) else {
        panic!("fast comes first, and slow has time enough below it");
    };
    let priorities: Vec<u32> = found.domains.iter().map(|each| each.priority).collect();
    assert_eq!(priorities, [2, 1]);

    // More domains than orders are tried of, in which the given one is not the most urgent.
    for (given, others) in [(1, 3), (1, 8), (4, 8)] {
        let mut text = format!(
            "{ONE_CPU}[[domain]]\nname = \"dom0\"\nbudget = \"1 ms\"\nperiod = \"10 ms\"\n\
             priority = {given}\n"
        );
        for number in 0..others {
            text += &format!(
                "[[domain]]\nname = \"d{number}\"\n\
                 tasks = [{{ name = \"t\", cost = \"100 us\", period = \"10 ms\" }}]\n"
            );
        }
        let Answer::Holds(found) = designed(&text) else {
            panic!("{given} of {others}: their load is small");
        };
        assert_eq!(found.domains[0].priority, given);
        let mut priorities: Vec<u32> = found.domains.iter().map(|each| each.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        assert_eq!(priorities.len(), others + 1, "{given} of {others}");
    }
}

#[test]
fn budgets_that_are_too_much_by_themselves_are_no_conflict_of_tasks() {
    let full = |name: &str| {
        format!("[[domain]]\nname = \"{name}\"\nbudget = \"6 ms\"\nperiod = \"10 ms\"\n")
    };
    let text = format!(
        "{ONE_CPU}{}{}[[domain]]\nname = \"c\"\nbudget = \"1 ms\"\nperiod = \"10 ms\"\n\
         tasks = [{{ name = \"t\", cost = \"10 us\", period = \"10 ms\" }}]\n",
        full("a"),
        full("b")
    );
    let Answer::Impossible(found) = designed(&text) else {
        panic!("12 ms of every 10 ms are given");
    };
    assert_eq!((found.conflict.len(), found.reliefs.len()), (0, 0));
    assert_eq!(found.given, ["a", "b"]);
}

#[test]
fn of_several_cpus_that_fail_the_first_is_told() {
    let mut text = ONE_CPU.replace("cpus = 1", "cpus = 2");
    for (name, cpu, period) in [
        ("a", 0, ""),
        ("b", 0, ""),
        ("c", 1, "10 ms"),
        ("d", 1, "10 ms"),
    ] {
        let period = match period {
            "" => String::new(),
            given => format!("period = \"{given}\"\n"),
        };
        text += &format!(
            "[[domain]]\nname = \"{name}\"\naffinity = [{cpu}]\n{period}\
             tasks = [{{ name = \"t\", cost = \"6 ms\", period = \"10 ms\" }}]\n"
        );
    }
    for _ in 0..20 {
        let Answer::Impossible(found) = designed(&text) else {
            panic!("each CPU has 12 ms of work in every 10 ms");
        };
        let domains: Vec<&str> = found
            .conflict
            .iter()
            .map(|demand| &*demand.domain)
            .collect();
        assert_eq!(domains, ["a", "b"]);
    }
}
