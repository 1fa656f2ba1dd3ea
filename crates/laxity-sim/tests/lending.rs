//! What lending servers promise: every VCPU gets at all times at least what its sporadic server alone would
//! have given it, and every job ends no later than with that server, whatever the other guests do or tell.

use laxity_host::{Host, Policy};
use laxity_reference::random_host;
use laxity_trace::{Kind, NONE, Record};
use laxity_trials::{Draw, seeds};
use std::collections::BTreeMap;

/// A random host whose VCPUs have no equals, so that nothing depends on who of two equals came first. Its
/// guests' kernels do not tick: when they would depends on when the guest ran. Its times are so fine that
/// nothing falls together by chance, as a job's end with another's arrival; which job of equal deadlines is the
/// more urgent one, and whether two uses are one run, would depend on that.
fn host_without_coincidences(seed: u64) -> Host {
    const FINE: i64 = 1_000_000;
    const LONGEST_NS: i64 = 3_600_000_000_000;
    let mut host = random_host(seed);
    let mut draw = Draw::new(seed);
    let mut below = |limit: i64| draw.between(0, limit - 1);
    let unit_ns = host.domains.iter().flat_map(|domain| &domain.tasks);
    let unit_ns = unit_ns.map(|task| task.cost_ns).min().unwrap_or(1);
    let periods_ns = host
        .domains
        .iter()
        .map(|domain| domain.parameters.period_ns);
    let longest_ns = periods_ns.max().expect("a host has domains");
    let scale = (FINE / unit_ns).clamp(1, LONGEST_NS / longest_ns);
    host.duration_ns *= scale;
    host.settings.quantum_ns = 0;
    for (number, domain) in host.domains.iter_mut().enumerate() {
        domain.parameters.priority = number as u32 + 1;
        domain.parameters.extratime = false;
        domain.parameters.budget_ns *= scale;
        domain.parameters.period_ns *= scale;
        domain.tick = None;
        domain.vcpus.truncate(1);
        for task in &mut domain.tasks {
            task.vcpu = 0;
            let shortest_ns = task.cost_ns * scale;
            task.cost_ns = shortest_ns - below(shortest_ns / 16 + 1);
            task.period_ns *= scale;
            task.deadline_ns *= scale;
            task.offset_ns = task.offset_ns * scale + below(shortest_ns / 16 + 1);
        }
    }
    host
}

#[derive(Default)]
struct Found {
    /// For each domain, when its VCPU began and stopped to run.
    runs: BTreeMap<u16, Vec<(i64, i64)>>,
    /// When each job was complete: by domain, task and number.
    complete: BTreeMap<(u16, i64), i64>,
}

impl Found {
    fn of(host: &Host, policy: Policy) -> Found {
        let host = Host {
            policy,
            ..host.clone()
        };
        let (_, records) = laxity_sim::run(&host, Vec::<Record>::new()).expect("valid parameters");
        let mut found = Found::default();
        for record in records.iter().filter(|record| record.domain != NONE) {
            let runs = found.runs.entry(record.domain).or_default();
            match record.kind {
                Kind::Run => runs.push((record.time_ns, host.duration_ns)),
                Kind::Stop => runs.last_mut().expect("it ran").1 = record.time_ns,
                Kind::Complete => {
                    let job = (record.domain, record.argument);
                    found.complete.insert(job, record.time_ns);
                }
                _ => {}
            }
        }
        found
    }

    /// How much CPU time the domain got before a time.
    fn supply_ns(&self, domain: u16, before_ns: i64) -> i64 {
        let runs = self.runs.get(&domain).map_or(&[][..], Vec::as_slice);
        (runs.iter())
            .map(|&(start_ns, end_ns)| (end_ns.min(before_ns) - start_ns).max(0))
            .sum()
    }
}

impl Found {
    /// Up to when no VCPU is further ahead of its server alone than a lead may be: nothing is forgiven before.
    fn forgives_ns(&self, host: &Host, server: &Found) -> i64 {
        let mut first_ns = i64::MAX;
        for (&domain, runs) in &self.runs {
            let limit_ns = 16 * host.domains[domain as usize].parameters.budget_ns;
            // An endless loop has no lead.
            let tasks = &host.domains[domain as usize].tasks;
            for &(start_ns, end_ns) in runs.iter().filter(|_| !tasks.is_empty()) {
                let ahead_ns = self.supply_ns(domain, end_ns) - server.supply_ns(domain, end_ns);
                if ahead_ns >= limit_ns {
                    first_ns = first_ns.min(start_ns);
                }
            }
        }
        first_ns
    }
}

#[test]
fn every_vcpu_and_every_job_is_where_its_server_alone_would_have_it_or_further() {
    let (mut earlier, mut same) = (0, 0);
    for seed in seeds(3000) {
        let host = host_without_coincidences(seed);
        let server = Found::of(&host, Policy::Sporadic);
        let lending = Found::of(&host, Policy::Lending);
        let horizon_ns = lending.forgives_ns(&host, &server);
        for (&domain, runs) in &server.runs {
            // Between these times the server's supply grows as fast as time, or not at all.
            for &(start_ns, end_ns) in runs {
                for at_ns in [start_ns, end_ns].map(|at_ns| at_ns.min(horizon_ns)) {
                    let promised_ns = server.supply_ns(domain, at_ns);
                    let got_ns = lending.supply_ns(domain, at_ns);
                    assert!(
                        got_ns >= promised_ns,
                        "seed {seed}: domain {domain} has {got_ns} ns at {at_ns}, and not {promised_ns}"
                    );
                }
            }
        }
        for (job, &by_ns) in server
            .complete
            .iter()
            .filter(|&(_, &by_ns)| by_ns < horizon_ns)
        {
            let at_ns = lending.complete.get(job).copied().unwrap_or(i64::MAX);
            assert!(
                at_ns <= by_ns,
                "seed {seed}: the job {job:?} ends at {at_ns}, and with its server alone at {by_ns}\n{host:#?}"
            );
            if at_ns < by_ns {
                earlier += 1;
            } else {
                same += 1;
            }
        }
    }
    println!("{earlier} jobs are earlier than with the server alone, {same} as early");
    // On hosts that never lend the test would say nothing.
    assert!(earlier * 10 > same, "{earlier} earlier, {same} as early");
}
