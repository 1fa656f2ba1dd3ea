//! What holds on every random host, whatever the schedule. A failure names the seed of its host.

use laxity_host::{Host, Policy};
use laxity_reference::{Interval, Outcome, random_host, simulate};

const HOSTS: u64 = 3_000;

fn each_random_host(check: impl Fn(u64, &Host, &Outcome)) {
    for seed in 0..HOSTS {
        let host = random_host(seed);
        let outcome = simulate(&host).unwrap_or_else(|refusal| panic!("seed {seed}: {refusal}"));
        check(seed, &host, &outcome);
    }
}

/// Every VCPU of the host that `wanted` names, with the intervals in which it ran, by time.
fn each_vcpu(host: &Host, outcome: &Outcome, mut check: impl FnMut(usize, usize, &[Interval])) {
    for (domain, description) in host.domains.iter().enumerate() {
        for vcpu in 0..description.vcpus.len() {
            let mut ran: Vec<Interval> = (outcome.intervals.iter().copied())
                .filter(|one| (one.domain, one.vcpu) == (domain, vcpu))
                .collect();
            ran.sort_by_key(|interval| interval.start_ns);
            check(domain, vcpu, &ran);
        }
    }
}

/// How much of these intervals falls into the window.
fn used_ns(ran: &[Interval], from_ns: i64, to_ns: i64) -> i64 {
    (ran.iter())
        .map(|one| (one.end_ns.min(to_ns) - one.start_ns.max(from_ns)).max(0))
        .sum()
}

/// Nobody runs twice at a time or where it may not; only credit moves VCPUs.
#[test]
fn every_vcpu_runs_on_one_cpu_of_its_affinity() {
    each_random_host(|seed, host, outcome| {
        for pair in outcome.intervals.windows(2) {
            let in_order = pair[0].cpu < pair[1].cpu || pair[0].end_ns <= pair[1].start_ns;
            assert!(in_order, "seed {seed}: {pair:?}");
        }
        each_vcpu(host, outcome, |domain, vcpu, ran| {
            let vcpu = &host.domains[domain].vcpus[vcpu];
            for pair in ran.windows(2) {
                assert!(pair[0].end_ns <= pair[1].start_ns, "seed {seed}: {pair:?}");
            }
            for one in ran {
                let at_home = !host.policy.is_partitioned() || one.cpu == vcpu.cpu as usize;
                let may_run = vcpu.affinity.contains(&(one.cpu as u32));
                assert!(at_home && may_run, "seed {seed}: {one:?}");
            }
        });
    });
}

/// The most that ticks can take of a VCPU: those that fall due while it has a job, and after each job
/// one more.
fn ticks_ns(host: &Host, outcome: &Outcome, domain: usize, vcpu: usize) -> i64 {
    let Some(tick) = host.domains[domain].tick else {
        return 0;
    };
    let is_of = |task: usize| host.domains[domain].tasks[task].vcpu as usize == vcpu;
    let jobs: Vec<_> = (outcome.jobs.iter())
        .filter(|job| job.domain == domain && is_of(job.task))
        .collect();
    let has_job = |at_ns: i64| {
        (jobs.iter()).any(|job| {
            job.arrival_ns <= at_ns && job.completion_ns.is_none_or(|done_ns| at_ns < done_ns)
        })
    };
    let due = (tick.offset_ns..host.duration_ns).step_by(tick.period_ns as usize);
    let ticks = due.filter(|&at_ns| has_job(at_ns)).count() + jobs.len();
    tick.cost_ns * ticks as i64
}

/// Time that a VCPU was given is time that its jobs and ticks got, and no job arrives too often or is
/// lost.
#[test]
fn cpu_time_is_conserved() {
    each_random_host(|seed, host, outcome| {
        each_vcpu(host, outcome, |domain, vcpu, ran| {
            let time = (outcome.vcpus.iter())
                .find(|one| (one.domain, one.vcpu) == (domain, vcpu))
                .expect("every VCPU has its time");
            let ran_ns = used_ns(ran, 0, host.duration_ns);
            assert_eq!(
                time.cpu_ns, ran_ns,
                "seed {seed}: domain {domain} vcpu {vcpu}"
            );

            let on_vcpu = |task: usize| host.domains[domain].tasks[task].vcpu as usize == vcpu;
            // What jobs take if their tasks are woken for all of them, by an interrupt each, or for none.
            let costs_ns = |completed_only: bool, wake_ns: i64| -> i64 {
                (outcome.jobs.iter())
                    .filter(|job| job.domain == domain && on_vcpu(job.task))
                    .filter(|job| !completed_only || job.completion_ns.is_some())
                    .map(|job| host.domains[domain].tasks[job.task].cost_ns + wake_ns)
                    .sum()
            };
            let wake_ns =
                (host.domains[domain].tick).map_or(0, |tick| tick.wake_ns + tick.interrupt_ns());
            assert!(
                costs_ns(true, 0) <= ran_ns,
                "seed {seed}: domain {domain} vcpu {vcpu}"
            );
            if !host.domains[domain].cpu_bound {
                assert!(
                    ran_ns <= costs_ns(false, wake_ns) + ticks_ns(host, outcome, domain, vcpu),
                    "seed {seed}: domain {domain} vcpu {vcpu}"
                );
            }
        });
        for (domain, description) in host.domains.iter().enumerate() {
            for (number, task) in description.tasks.iter().enumerate() {
                let jobs: Vec<_> = (outcome.jobs.iter())
                    .filter(|job| (job.domain, job.task) == (domain, number))
                    .collect();
                let arrivals: Vec<i64> = (task.offset_ns..host.duration_ns)
                    .step_by(task.period_ns as usize)
                    .collect();
                let arrived: Vec<i64> = jobs.iter().map(|job| job.arrival_ns).collect();
                let text = format!("seed {seed}: domain {domain} task {number}: {arrived:?}");
                assert!(arrivals.starts_with(&arrived), "{text}");
                let min_delta_ns = description.tick.map_or(0, |tick| tick.min_delta_ns);
                let surely_ns = host.duration_ns - min_delta_ns;
                let lost = arrivals[arrived.len()..].iter();
                assert_eq!(
                    lost.filter(|&&at_ns| at_ns <= surely_ns).count(),
                    0,
                    "{text}"
                );
                let mut free_ns = 0;
                for job in jobs {
                    let completion_ns = job.completion_ns.unwrap_or(i64::MAX);
                    let earliest_ns = job.arrival_ns.max(free_ns).saturating_add(task.cost_ns);
                    assert!(completion_ns >= earliest_ns, "seed {seed}: {job:?}");
                    free_ns = completion_ns;
                }
            }
        }
    });
}

/// "In every window of one period a VCPU uses at most one budget." A window in which it uses most
/// begins or ends with an interval.
#[test]
fn sporadic_never_uses_more_than_a_budget_in_a_period() {
    each_random_host(|seed, host, outcome| {
        if host.policy != Policy::Sporadic {
            return;
        }
        each_vcpu(host, outcome, |domain, vcpu, ran| {
            let parameters = &host.domains[domain].parameters;
            if parameters.extratime {
                return;
            }
            let windows =
                (ran.iter()).flat_map(|one| [one.start_ns, one.end_ns - parameters.period_ns]);
            for from_ns in windows {
                let used_ns = used_ns(ran, from_ns, from_ns + parameters.period_ns);
                assert!(
                    used_ns <= parameters.budget_ns,
                    "seed {seed}: domain {domain} vcpu {vcpu} used {used_ns} from {from_ns}"
                );
            }
        });
    });
}

/// Between two replenishments no server uses more than a budget. A window of one period that
/// begins `d` before a replenishment therefore holds at most min(budget, d) before it and
/// min(budget, period - d) after it: twice the budget at most. (SEDF's replenishments are not at
/// multiples of the period, and a VCPU under lending also gets what other servers lend.)
#[test]
fn no_server_uses_more_than_a_budget_between_replenishments() {
    each_random_host(|seed, host, outcome| {
        let elsewhere = [Policy::Sporadic, Policy::Sedf, Policy::Lending].contains(&host.policy);
        if elsewhere || !host.policy.is_partitioned() || host.settings.quantum_ns != 0 {
            return;
        }
        each_vcpu(host, outcome, |domain, vcpu, ran| {
            let parameters = &host.domains[domain].parameters;
            if parameters.extratime {
                return;
            }
            let (budget_ns, period_ns) = (parameters.budget_ns, parameters.period_ns);
            for from_ns in (0..host.duration_ns).step_by(period_ns as usize) {
                let used = used_ns(ran, from_ns, from_ns + period_ns);
                assert!(
                    used <= budget_ns,
                    "seed {seed}: domain {domain} vcpu {vcpu} used {used} from {from_ns}"
                );
            }
            for one in ran {
                let used = used_ns(ran, one.start_ns, one.start_ns + period_ns);
                let before_ns = period_ns - one.start_ns % period_ns;
                let bound = budget_ns.min(before_ns) + budget_ns.min(period_ns - before_ns);
                assert!(
                    used <= bound,
                    "seed {seed}: domain {domain} vcpu {vcpu} used {used} from {}",
                    one.start_ns
                );
            }
        });
    });
}

/// No CPU idles while one of its VCPUs has work: with extra time for all, under all servers but the
/// periodic one (whose idle task keeps others with budget waiting); on the single CPU of a host
/// under credit without caps, fifo, or eevdf without quotas.
#[test]
fn no_cpu_idles_in_vain() {
    for seed in 0..HOSTS {
        let mut host = random_host(seed);
        // A CPU that is given to one VCPU, for good or for a window, idles while that one does, and one idles
        // whose VCPUs are throttled.
        if [Policy::Null, Policy::Deadline, Policy::Arinc653].contains(&host.policy) {
            continue;
        }
        host.policy = match host.policy {
            Policy::Periodic => Policy::Deferrable,
            Policy::GlobalPeriodic => Policy::GlobalDeferrable,
            other => other,
        };
        for domain in &mut host.domains {
            domain.parameters.extratime = true;
            domain.parameters.cap_percent = 0;
            domain.parameters.quota_ns = 0;
            if !host.policy.is_partitioned() {
                for vcpu in &mut domain.vcpus {
                    vcpu.cpu = 0;
                    vcpu.affinity = vec![0];
                }
            }
        }
        let outcome = simulate(&host).unwrap_or_else(|refusal| panic!("seed {seed}: {refusal}"));
        for cpu in 0..host.cpus as usize {
            let ran: Vec<Interval> = (outcome.intervals.iter().copied())
                .filter(|one| one.cpu == cpu)
                .collect();
            let starts = ran.iter().map(|one| one.start_ns).chain([host.duration_ns]);
            let ends = [0].into_iter().chain(ran.iter().map(|one| one.end_ns));
            for (idle_from_ns, idle_to_ns) in ends.zip(starts) {
                if idle_from_ns == idle_to_ns {
                    continue;
                }
                for (domain, description) in host.domains.iter().enumerate() {
                    let here = |vcpu: usize| description.vcpus[vcpu].cpu as usize == cpu;
                    let min_delta_ns = description.tick.map_or(0, |tick| tick.min_delta_ns);
                    let endless = description.cpu_bound && (0..description.vcpus.len()).any(here);
                    assert!(!endless, "seed {seed}: CPU {cpu} idles at {idle_from_ns}");
                    let waits = outcome.jobs.iter().find(|job| {
                        job.domain == domain
                            && here(description.tasks[job.task].vcpu as usize)
                            && job.arrival_ns + min_delta_ns < idle_to_ns
                            && job.completion_ns.is_none_or(|at_ns| at_ns > idle_from_ns)
                    });
                    assert_eq!(
                        waits, None,
                        "seed {seed}: CPU {cpu} idles at {idle_from_ns}"
                    );
                }
            }
        }
    }
}

/// Each policy, each kind of equal and each guest comes up often enough to be compared.
#[test]
fn random_hosts_are_valid_repeatable_and_various() {
    let mut seen = std::collections::BTreeMap::<String, u64>::new();
    for seed in 0..HOSTS {
        let host = random_host(seed);
        assert_eq!(host, random_host(seed), "seed {seed}");
        let policy = if host.policy.is_scheduler_s() {
            "scheduler S"
        } else {
            host.policy.name()
        };
        *seen.entry(policy.to_string()).or_default() += 1;
        *seen.entry(format!("{} CPUs", host.cpus)).or_default() += 1;
        let helpers = host.domains.iter().filter(|one| one.helper_of.is_some());
        let helpers = helpers.count();
        let domains = host.domains.len() - helpers;
        *seen.entry(format!("{domains} domains")).or_default() += 1;
        if helpers > 0 {
            *seen.entry("helpers".to_string()).or_default() += 1;
        }
        if host.settings.quantum_ns > 0 {
            *seen.entry("quantum".to_string()).or_default() += 1;
        }
        let settings = &host.settings;
        assert!(
            settings.accounting_ns % settings.tick_ns == 0,
            "seed {seed}"
        );
        for domain in &host.domains {
            let parameters = &domain.parameters;
            let valid = (1..=parameters.period_ns).contains(&parameters.budget_ns)
                && (1..=3).contains(&domain.vcpus.len());
            assert!(valid, "seed {seed}: {domain:?}");
            for vcpu in &domain.vcpus {
                let valid = vcpu.affinity.contains(&vcpu.cpu)
                    && vcpu.affinity.is_sorted()
                    && vcpu.affinity.iter().all(|&cpu| cpu < host.cpus);
                assert!(valid, "seed {seed}: {vcpu:?}");
            }
            for task in &domain.tasks {
                let valid = (1..=task.deadline_ns).contains(&task.cost_ns)
                    && task.deadline_ns <= task.period_ns
                    && task.offset_ns >= 0
                    && (task.vcpu as usize) < domain.vcpus.len();
                assert!(valid, "seed {seed}: {task:?}");
            }
            *seen.entry(format!("{:?}", domain.guest)).or_default() += 1;
            for (what, is_so) in [
                ("extratime", parameters.extratime),
                ("cpu-bound", domain.cpu_bound),
                ("laxity", parameters.laxity_ns > 0),
                ("full budget", parameters.budget_ns == parameters.period_ns),
            ] {
                *seen.entry(what.to_string()).or_default() += u64::from(is_so);
            }
        }
    }
    for (what, times) in seen {
        assert!(
            times >= HOSTS / 50,
            "{what}: {times} times in {HOSTS} hosts"
        );
    }
}
