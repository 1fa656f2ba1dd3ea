//! The policies in C, in the simulated host, against the reference: the same jobs, completed at the same
//! nanosecond, and the same VCPU on the same CPU at every time, on random hosts.

use laxity_host::{Cost, Costs, Host};
use laxity_reference::{Interval, Job, difference, random_host, simulate};
use laxity_trace::{Kind, Off, Record};
use laxity_trials::seeds;

/// After so many different hosts the others would say nothing new.
const DIFFERENT_MOST: usize = 20;

/// Jobs, from the records of their releases and completions. A job arrives when it is due, and may be released later.
fn jobs(host: &Host, records: &[Record]) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for record in records
        .iter()
        .filter(|record| record.time_ns < host.duration_ns)
    {
        if record.kind == Kind::Release {
            let (task, number) = laxity_trace::task_of(record.argument);
            let domain = &host.domains[usize::from(record.domain)];
            let of = &domain.tasks[task as usize];
            let due_ns = of.offset_ns + number as i64 * of.period_ns;
            let late_ns = domain.tick.map_or(0, |tick| tick.min_delta_ns);
            let comes_ns = due_ns..due_ns + late_ns.max(1);
            assert!(comes_ns.contains(&record.time_ns), "{record:?}");
            jobs.push(Job {
                domain: record.domain.into(),
                task: task as usize,
                number,
                arrival_ns: due_ns,
                completion_ns: None,
            });
        }
    }
    jobs.sort_unstable();
    for record in records
        .iter()
        .filter(|record| record.kind == Kind::Complete)
    {
        let (task, number) = laxity_trace::task_of(record.argument);
        let key = (usize::from(record.domain), task as usize, number);
        let at = jobs
            .binary_search_by_key(&key, |job| (job.domain, job.task, job.number))
            .expect("a job that completes has arrived");
        assert_eq!(jobs[at].completion_ns, None, "a job completes once");
        jobs[at].completion_ns = Some(record.time_ns);
    }
    jobs
}

/// The VCPU that ran at each time, from the records of VCPUs coming onto CPUs and leaving them.
fn intervals(host: &Host, records: &[Record]) -> Vec<Interval> {
    let mut running: Vec<Option<Interval>> = vec![None; host.cpus as usize];
    let mut intervals: Vec<Interval> = Vec::new();
    let mut end = |mut interval: Interval, at_ns: i64| {
        interval.end_ns = at_ns;
        if interval.start_ns == at_ns {
            return;
        }
        let last = intervals
            .iter_mut()
            .rev()
            .find(|last| last.cpu == interval.cpu);
        match last {
            Some(last)
                if last.end_ns == interval.start_ns
                    && (last.domain, last.vcpu) == (interval.domain, interval.vcpu) =>
            {
                last.end_ns = at_ns;
            }
            _ => intervals.push(interval),
        }
    };
    for record in records {
        match record.kind {
            Kind::Run => {
                running[usize::from(record.cpu)] = Some(Interval {
                    cpu: record.cpu.into(),
                    domain: record.domain.into(),
                    vcpu: record.vcpu.into(),
                    start_ns: record.time_ns,
                    end_ns: record.time_ns,
                });
            }
            Kind::Stop => {
                let interval = running[usize::from(record.cpu)].take().expect("it ran");
                end(interval, record.time_ns);
            }
            _ => {}
        }
    }
    for interval in running.into_iter().flatten() {
        end(interval, host.duration_ns);
    }
    intervals.sort_by_key(|interval| (interval.cpu, interval.start_ns));
    intervals
}

#[test]
fn policies_do_what_the_reference_does() {
    let mut different = Vec::new();
    for seed in seeds(10_000) {
        let host = random_host(seed);
        let expected = simulate(&host).expect("random hosts are within what the reference models");
        let (_, records) = laxity_sim::run(&host, Vec::<Record>::new())
            .unwrap_or_else(|refused| panic!("seed {seed}: the policy refuses: {refused}"));
        let mut message = difference(seed, &host, &expected.jobs, &jobs(&host, &records));
        if message.is_none() {
            let found = intervals(&host, &records);
            let mut wanted = expected.intervals.clone();
            wanted.sort_by_key(|interval| (interval.cpu, interval.start_ns));
            let differs = found
                .iter()
                .zip(&wanted)
                .find(|(found, wanted)| found != wanted)
                .map(|(found, wanted)| format!("found {found:?}, expected {wanted:?}"));
            if differs.is_some() || found.len() != wanted.len() {
                message = Some(format!("seed {seed}: who ran when: {differs:?}\n{host:#?}"));
            }
        }
        if let Some(message) = message {
            different.push((seed, host.policy.name(), message));
            if different.len() == DIFFERENT_MOST {
                break;
            }
        }
    }
    if let Some((_, _, message)) = different.first() {
        let seeds: Vec<_> = different
            .iter()
            .map(|(seed, policy, _)| (seed, policy))
            .collect();
        panic!(
            "{} hosts differ (at {DIFFERENT_MOST} the search ends): {seeds:?}\n{message}",
            different.len()
        );
    }
}

/// Without a trace the engine does steps at once that a trace tells one by one.
#[test]
fn a_run_without_a_trace_has_the_results_of_one_with_it() {
    for seed in seeds(2_000) {
        let mut host = random_host(seed);
        if seed % 2 == 0 {
            let schedule = Cost::Quantiles {
                median_ns: 1 + seed as i64 % 500,
                p90_ns: None,
                p99_ns: 1_000,
                p999_ns: None,
                max_ns: 5_000,
            };
            host.costs = Costs {
                schedule,
                ..Costs::default()
            };
        }
        let (mut traced, _) = laxity_sim::run(&host, Vec::<Record>::new()).expect("valid");
        let (mut plain, _) = laxity_sim::run(&host, Off).expect("valid");
        traced.result.engine.wall_ns = 0;
        plain.result.engine.wall_ns = 0;
        assert_eq!(plain.result, traced.result, "seed {seed}");
    }
}
