//! Why jobs of random hosts were late, against a second opinion that knows only the trace's text.
//!
//! Every late job's causes sum to its lateness and its parts to its response; the late jobs are those that the run
//! itself counted; and for some jobs of each host a slow reference, which looks at each interval between two records by
//! itself and reads all lines before it, finds the same parts.

mod packets;
mod reference;

use laxity_host::{Cost, Host};
use laxity_reference::random_host;
use laxity_trace::{Exit, Kind, Metadata, NONE, Reader, Record, Sink, Writer, text};
use laxity_trials::{Draw, cases, seeds};
use laxity_why::{Account, Cause, Explained, Job, Part, Question, Watch, why};
use reference::Lines;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs of each host that the reference explains, too.
const REFERENCED_JOBS: usize = 3;

/// A random host; every second one with costs of decisions and switches, every third with jitter.
fn host(seed: u64) -> Host {
    let mut host = random_host(seed);
    let unit_ns = (host.domains.iter())
        .map(|domain| domain.parameters.period_ns)
        .min()
        .expect("a host has a domain")
        / 8;
    if seed % 2 == 1 {
        host.costs.schedule = Cost::Constant { ns: unit_ns / 16 };
        host.costs.context_switch = Cost::Constant { ns: unit_ns / 9 };
    }
    if seed % 3 == 2 {
        for task in host.domains.iter_mut().flat_map(|domain| &mut domain.tasks) {
            task.jitter_ns = task.period_ns / 3;
        }
    }
    host
}

fn trace(host: &Host) -> (laxity_run::Outcome, Metadata, Vec<Record>) {
    let (outcome, records) = laxity_sim::run(host, Vec::new()).expect("the policy takes it");
    (outcome, laxity_run::metadata(host, "sim"), records)
}

fn jobs(metadata: &Metadata, records: &[Record]) -> Vec<Job> {
    let mut account = Account::new(metadata, true);
    let mut jobs = Vec::new();
    for record in records {
        jobs.extend(account.record(record).expect("the backlog is small"));
    }
    jobs.extend(account.finish());
    jobs
}

fn file(metadata: &Metadata, records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, metadata).expect("a Vec takes everything");
    records.iter().for_each(|&record| writer.record(record));
    writer.finish().expect("a Vec takes everything");
    bytes
}

fn sum(job: &Job, part_of: impl Fn(&laxity_why::Part) -> bool) -> i64 {
    (job.parts.iter())
        .filter(|part| part_of(part))
        .map(|part| part.delay_ns)
        .sum()
}

/// What is true of each job, whatever the trace.
fn check_job(host: &Host, metadata: &Metadata, job: &Job) {
    let facts = &metadata.domains[usize::from(job.domain)].tasks[job.task as usize];
    let response_ns: i64 = sum(job, |_| true);
    assert_eq!(response_ns, job.end_ns - job.arrival_ns, "no gap: {job:?}");
    let shares_ns: i64 = job.parts.iter().map(|part| part.ns).sum();
    assert_eq!(shares_ns, job.late_ns, "the causes' sum: {job:?}");
    assert!(
        job.parts
            .iter()
            .all(|part| part.delay_ns > 0 && part.ns >= 0 && part.ns <= part.delay_ns)
    );
    let own_ns = sum(job, |part| part.cause == Cause::OwnWork);
    if job.is_complete {
        assert_eq!(
            own_ns, facts.cost_ns,
            "a complete job did its work: {job:?}"
        );
    } else {
        assert!(own_ns <= facts.cost_ns);
    }
    let of = |cause| sum(job, move |part| part.cause == cause);
    if host.domains[usize::from(job.domain)].tick.is_none() {
        assert_eq!(of(Cause::Overhead), 0, "no ticks, no caches: {job:?}");
    }
    assert_eq!(
        of(Cause::Blocked),
        0,
        "no guest sleeps over its jobs: {job:?}"
    );
    let min_delta_ns =
        (host.domains[usize::from(job.domain)].tick).map_or(0, |tick| tick.min_delta_ns);
    if facts_of(host, job).jitter_ns == 0 && min_delta_ns == 0 {
        assert_eq!(of(Cause::ReleasedLate), 0);
    }
    if host.costs.is_zero() {
        assert_eq!(of(Cause::Switch), 0);
        let idles = host.policy.name() == "periodic" || host.settings.quantum_ns > 0;
        if host.cpus == 1 && !idles && host.policy.is_partitioned() {
            assert_eq!(of(Cause::Idle), 0, "these conserve work: {job:?}");
        }
    }
}

fn facts_of<'a>(host: &'a Host, job: &Job) -> &'a laxity_host::Task {
    &host.domains[usize::from(job.domain)].tasks[job.task as usize]
}

#[test]
fn causes_sum_and_agree_with_the_reference() {
    let mut late_jobs = BTreeMap::<&str, u64>::new();
    let mut causes = BTreeMap::<Cause, u64>::new();
    let mut referenced = 0;
    for seed in seeds(500) {
        let host = host(seed);
        let (outcome, metadata, records) = trace(&host);
        let jobs = jobs(&metadata, &records);
        println!("seed {seed}: {}, {} jobs", host.policy.name(), jobs.len());
        let counted = |job: &&Job| job.deadline_ns <= host.duration_ns;
        for job in jobs.iter().filter(counted) {
            check_job(&host, &metadata, job);
            for part in job.parts.iter().filter(|part| part.ns > 0) {
                *causes.entry(part.cause).or_default() += 1;
            }
        }
        let is_late = |job: &&Job| counted(job) && (job.late_ns > 0 || !job.is_complete);
        let late: Vec<&Job> = jobs.iter().filter(is_late).collect();
        for (domain, result) in outcome.result.domains.iter().enumerate() {
            for (place, task) in result.tasks.iter().enumerate() {
                let of_task: Vec<&&Job> = (late.iter())
                    .filter(|job| (usize::from(job.domain), job.task as usize) == (domain, place))
                    .collect();
                let worst_ns = of_task.iter().map(|job| job.late_ns).max();
                // The trace has no release of a job that its jitter or its kernel's timer keeps back beyond the end.
                let facts = facts_of_place(&host, domain, place);
                let min_delta_ns = host.domains[domain]
                    .tick
                    .map_or(0, |tick| tick.min_delta_ns);
                let kept_ns = facts.jitter_ns + min_delta_ns;
                let unseen = task.missed - of_task.len() as u64;
                assert!(
                    unseen as i64 * facts.period_ns < kept_ns + facts.period_ns,
                    "{unseen} jobs of {domain}/{place} are missing, kept back for {kept_ns} ns"
                );
                if unseen == 0 {
                    assert_eq!(worst_ns, task.lateness_ns.max);
                }
            }
        }
        *late_jobs.entry(host.policy.name()).or_default() += late.len() as u64;
        check_answer(&metadata, &records, &late);

        let lines = lines(&metadata, &records);
        let step = (late.len() / REFERENCED_JOBS).max(1);
        for job in late.iter().step_by(step).take(REFERENCED_JOBS) {
            assert_eq!(
                named(&metadata, job),
                lines.explain(&metadata, job),
                "{job:?}"
            );
            referenced += 1;
        }
    }
    println!("late jobs by policy: {late_jobs:?}; causes: {causes:?}; referenced: {referenced}");
    if cases(500) >= 500 {
        // The test sees every policy late and every cause but those that no simulated host has.
        assert_eq!(late_jobs.len(), laxity_host::Policy::ALL.len());
        assert!(late_jobs.values().all(|&jobs| jobs > 0), "{late_jobs:?}");
        assert_eq!(causes.len(), 9, "{causes:?}");
    }
}

/// The records with exits and entries of random guests between them, every second one at the instant of a record.
fn with_exits(metadata: &Metadata, records: &[Record], seed: u64) -> Vec<Record> {
    let mut draw = Draw::new(seed);
    let mut below = |bound: usize| draw.below(bound as u64) as usize;
    let mut with = records.to_vec();
    for number in 0..records.len() / 2 {
        let domain = below(metadata.domains.len());
        let exit = Exit::ALL[below(Exit::ALL.len())];
        let (kind, argument) = [(Kind::Exit, exit as i64), (Kind::Enter, 0)][below(2)];
        let place = below(records.len() - 1);
        let length_ns = records[place + 1].time_ns - records[place].time_ns;
        with.push(Record {
            time_ns: records[place].time_ns + (number % 2) as i64 * length_ns / 2,
            argument,
            cpu: NONE,
            domain: domain as u16,
            vcpu: below(metadata.domains[domain].vcpus as usize) as u16,
            kind,
        });
    }
    with.sort_by_key(|record| record.time_ns);
    with
}

/// The time that the host has after exits is taken from what the VCPU would have done with it, and from nothing else.
/// The reference finds the same parts.
#[test]
fn exits_take_the_time_of_what_runs() {
    let (mut exits, mut referenced) = (0, 0);
    for seed in seeds(60) {
        let host = host(seed);
        let (_, metadata, records) = trace(&host);
        println!("seed {seed}: {}", host.policy.name());
        let with = with_exits(&metadata, &records, seed);
        let (before, after) = (jobs(&metadata, &records), jobs(&metadata, &with));
        assert_eq!(before.len(), after.len());
        let runs = |part: &Part| {
            use Cause::{EarlierJob, Exit, Overhead, OwnWork, Task};
            matches!(part.cause, EarlierJob | Exit | Overhead | OwnWork | Task)
        };
        for (before, after) in before.iter().zip(&after) {
            let late_ns: i64 = after.parts.iter().map(|part| part.ns).sum();
            assert_eq!(late_ns, after.late_ns, "the causes' sum: {after:?}");
            assert_eq!(sum(before, runs), sum(after, runs), "{before:?} {after:?}");
            let others = |job: &Job| -> BTreeMap<_, i64> {
                let others = job.parts.iter().filter(|part| !runs(part));
                let named = |part: &Part| (part.cause, part.who, part.rule);
                others.map(|part| (named(part), part.delay_ns)).collect()
            };
            assert_eq!(others(before), others(after));
            exits += (after.parts.iter())
                .filter(|part| part.cause == Cause::Exit && part.ns > 0)
                .count();
        }
        let lines = lines(&metadata, &with);
        for job in after.iter().filter(|job| job.late_ns > 0).take(2) {
            assert_eq!(
                named(&metadata, job),
                lines.explain(&metadata, job),
                "{job:?}"
            );
            referenced += 1;
        }

        // The sums of all VCPUs are those of a look at each stretch between two records.
        let bytes = file(&metadata, &with);
        let question = Question::default();
        let reader = Reader::new(&bytes[..]).expect("a whole trace");
        let answer = why(reader, &Watch::default(), &question).expect("a whole trace");
        let found: BTreeMap<_, _> = (answer.guests.iter())
            .flat_map(|guest| {
                let exits = guest.exits.iter().filter(|exits| exits.ns > 0);
                exits.map(|exits| ((guest.vcpu.clone(), exits.reason), exits.ns))
            })
            .collect();
        assert_eq!(found, exits_by_stretch(&metadata, &with));
    }
    assert!(exits > 0 && referenced > 0, "{exits} {referenced}");
}

/// The time that the host had after exits of each VCPU's guest, by the reason.
fn exits_by_stretch(metadata: &Metadata, records: &[Record]) -> BTreeMap<(String, Exit), i64> {
    let (mut running, mut left, mut sums) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    let ends = records.iter().skip(1).map(|record| record.time_ns);
    for (record, end_ns) in records.iter().zip(ends.chain([metadata.duration_ns])) {
        let vcpu = (record.domain, record.vcpu);
        match record.kind {
            Kind::Run => drop(running.insert(vcpu)),
            Kind::Stop => drop(running.remove(&vcpu)),
            Kind::Exit => drop(left.insert(vcpu, Exit::of(record.argument).expect("a reason"))),
            Kind::Enter => drop(left.remove(&vcpu)),
            _ => {}
        }
        for (&(domain, vcpu), &exit) in left.iter().filter(|(vcpu, _)| running.contains(vcpu)) {
            let of_vcpu = &metadata.domains[usize::from(domain)];
            let name = match of_vcpu.vcpus {
                1 => of_vcpu.name.clone(),
                _ => metadata.vcpu_name(domain, vcpu),
            };
            *sums.entry((name, exit)).or_default() += end_ns - record.time_ns;
        }
    }
    sums.retain(|_, ns| *ns > 0);
    sums
}

/// The parts of a job by the reference's names, in their order.
fn named(metadata: &Metadata, job: &Job) -> Vec<(String, i64)> {
    let mut found: Vec<(String, i64)> = (job.parts.iter())
        .map(|part| (reference::name(metadata, part), part.delay_ns))
        .collect();
    found.sort();
    found
}

/// The trace as the reference reads it.
fn lines(metadata: &Metadata, records: &[Record]) -> Lines {
    let bytes = file(metadata, records);
    let mut lines = Vec::new();
    text::write(Reader::new(&bytes[..]).expect("a whole trace"), &mut lines)
        .expect("a Vec takes everything");
    Lines::parse(&String::from_utf8(lines).expect("text"), metadata)
}

fn facts_of_place(host: &Host, domain: usize, place: usize) -> &laxity_host::Task {
    &host.domains[domain].tasks[place]
}

/// The answer for people says the same as the jobs it is made of.
fn check_answer(metadata: &Metadata, records: &[Record], late: &[&Job]) {
    let bytes = file(metadata, records);
    let ask = |question: &Question| {
        let reader = || Reader::new(&bytes[..]).expect("a whole trace");
        let watch = Watch::of(reader()).expect("a whole trace");
        why(reader(), &watch, question).expect("a whole trace")
    };
    let all = ask(&Question::default());
    assert_eq!(all.late_jobs, late.len() as u64);
    assert_eq!(all.late.len(), late.len());
    let sum_ns: i64 = late.iter().map(|job| job.late_ns).sum();
    assert_eq!(all.late_sum_ns, sum_ns);
    assert_eq!(all.totals.iter().map(|total| total.ns).sum::<i64>(), sum_ns);
    let worst = ask(&Question {
        worst: Some(3),
        ..Question::default()
    });
    assert_eq!(worst.totals, all.totals);
    let mut by_lateness: Vec<&Explained> = all.late.iter().collect();
    by_lateness.sort_by_key(|explained| -explained.late_ns);
    by_lateness.truncate(3);
    let lateness = |explained: &Explained| explained.late_ns;
    assert_eq!(
        worst.late.iter().map(lateness).collect::<Vec<_>>(),
        by_lateness.into_iter().map(lateness).collect::<Vec<_>>()
    );
    let every = ask(&Question {
        every_job: true,
        ..Question::default()
    });
    assert_eq!(every.late.len() as u64, every.jobs);
    assert!(
        records
            .iter()
            .filter(|record| record.kind == Kind::Release)
            .count()
            >= every.late.len()
    );
}
