//! The distance of two traces of one host, as numbers.

use crate::deadlines::Job;
use crate::{DiffError, DomainMetadata, Kind, Metadata, Reader, TraceError};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The most by which one trace's clock may be shifted against the other's.
pub const SHIFT_NS_MAX: i64 = 1_000_000;

/// How many of the longest disagreements are told.
pub const DISAGREEMENTS_MAX: usize = 20;

/// How far two traces of one host are apart.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Agreement {
    /// The share of time, over all CPUs, in which a CPU runs the same VCPU in both, or nobody in both.
    pub same_ratio: f64,
    /// The greatest such share if all times of the second trace are shifted by one amount, at most
    /// [`SHIFT_NS_MAX`] and half of the run; of the time that both have then.
    pub best_ratio: f64,
    /// That amount, to be added to the second trace's times; the smallest if there are several.
    pub best_shift_ns: i64,
    /// In the order of the metadata.
    pub domains: Vec<DomainAgreement>,
    /// Between the completions of jobs that completed in both within the run.
    pub completion_difference_ns: Quantiles,
    /// How many stretches of time there are in which a CPU runs other VCPUs in the two, each the same from
    /// its beginning to its end.
    pub disagreements: u64,
    /// The longest of these, the longest first; equal ones in order of time, then CPU. Not shifted.
    pub longest: Vec<Disagreement>,
}

/// A domain in both traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DomainAgreement {
    /// Name in the host file.
    pub name: String,
    /// CPU time in the first trace.
    pub cpu_ns_a: i64,
    /// CPU time in the second trace.
    pub cpu_ns_b: i64,
    /// In the order of the metadata.
    pub tasks: Vec<TaskAgreement>,
}

/// A task in both traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TaskAgreement {
    /// Name in the host file.
    pub name: String,
    /// Jobs that arrived in either trace, with their deadline within the run.
    pub jobs: u64,
    /// Those that had not completed at their deadline in the first trace.
    pub missed_a: u64,
    /// Those that had not in the second.
    pub missed_b: u64,
    /// Those that had not in the first, and had in the second.
    pub missed_only_a: u64,
    /// Those that had not in the second, and had in the first.
    pub missed_only_b: u64,
    /// Between the completions of jobs that completed in both within the run.
    pub completion_difference_ns: Quantiles,
}

/// Quantiles of absolute differences, by nearest rank; null where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Quantiles {
    /// How many there are.
    pub count: u64,
    /// Median.
    pub p50: Option<i64>,
    /// 90 % are at most this.
    pub p90: Option<i64>,
    /// 99 % are at most this.
    pub p99: Option<i64>,
    /// The greatest.
    pub max: Option<i64>,
}

/// A stretch of time in which a CPU runs one VCPU in one trace, and another in the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Disagreement {
    /// From here.
    pub start_ns: i64,
    /// For so long.
    pub length_ns: i64,
    /// The CPU.
    pub cpu: u16,
    /// `domain/vcpu` in the first trace; null if nobody runs.
    pub a: Option<String>,
    /// The same in the second.
    pub b: Option<String>,
}

/// Why two traces cannot be held against each other.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    /// One of them is damaged.
    #[error(transparent)]
    Trace(#[from] DiffError),
    /// They are not of one host.
    #[error("the traces are not of one host: {what}: {a} in the first, {b} in the second")]
    Hosts {
        /// What differs.
        what: String,
        /// In the first trace.
        a: String,
        /// In the second trace.
        b: String,
    },
    /// The time of all CPUs together is not to be counted in ns.
    #[error("a run of {duration_ns} ns on {cpus} CPUs is too long to compare")]
    Long {
        /// How long.
        duration_ns: i64,
        /// On how many CPUs.
        cpus: u32,
    },
}

/// Holds two traces against each other, from 0 to the end of the run. The hosts must have the same
/// duration, CPUs, domains, VCPUs, and tasks with the same arrivals and deadlines; policy, parameters and costs may
/// differ. Programs beside the domains, which are behind these, are left out: a CPU that runs
/// one is idle.
///
/// # Errors
///
/// One of them is damaged, or they are not of one host.
pub fn agreement<A: Read, B: Read>(
    a: Reader<A>,
    b: Reader<B>,
) -> Result<Agreement, AgreementError> {
    same_host(a.metadata(), b.metadata())?;
    let metadata = a.metadata().clone();
    let Metadata {
        duration_ns, cpus, ..
    } = metadata;
    // With room for a shift.
    if duration_ns > (i64::MAX - SHIFT_NS_MAX) / i64::from(cpus) {
        return Err(AgreementError::Long { duration_ns, cpus });
    }
    let of = |second| move |error| DiffError { second, error };
    let a = Run::read(a).map_err(of(false))?;
    let b = Run::read(b).map_err(of(true))?;

    let lanes: Vec<(&Lane, &Lane)> = a.lanes.iter().zip(&b.lanes).collect();
    let best_shift_ns = best_shift(&lanes, duration_ns);
    let mut longest = disagreements(&lanes);
    let disagreements = longest.len() as u64;
    longest.sort_by_key(|part| (-part.length_ns, part.start_ns, part.cpu));
    longest.truncate(DISAGREEMENTS_MAX);

    let mut differences_ns = Vec::new();
    let mut domains = Vec::new();
    for (index, domain) in of_host(&metadata).iter().enumerate() {
        let mut tasks = Vec::new();
        for task in 0..domain.tasks.len() {
            tasks.push(a.task(&b, &metadata, (index, task), &mut differences_ns));
        }
        domains.push(DomainAgreement {
            name: domain.name.clone(),
            cpu_ns_a: a.cpu_ns(index),
            cpu_ns_b: b.cpu_ns(index),
            tasks,
        });
    }
    let name = |who: Who| who.map(|(domain, vcpu)| metadata.vcpu_name(domain, vcpu));
    Ok(Agreement {
        same_ratio: ratio(&lanes, 0, duration_ns),
        best_ratio: ratio(&lanes, best_shift_ns, duration_ns),
        best_shift_ns,
        domains,
        completion_difference_ns: Quantiles::of(&mut differences_ns),
        disagreements,
        longest: longest
            .into_iter()
            .map(|part| Disagreement {
                start_ns: part.start_ns,
                length_ns: part.length_ns,
                cpu: part.cpu,
                a: name(part.a),
                b: name(part.b),
            })
            .collect(),
    })
}

/// The domains before the first program that ran beside them.
fn of_host(metadata: &Metadata) -> &[DomainMetadata] {
    let domains = &metadata.domains;
    let first = domains.iter().position(DomainMetadata::is_beside);
    &domains[..first.unwrap_or(domains.len())]
}

fn same_host(a: &Metadata, b: &Metadata) -> Result<(), AgreementError> {
    fn same<T: PartialEq + ToString>(what: &str, a: T, b: T) -> Result<(), AgreementError> {
        if a == b {
            return Ok(());
        }
        Err(AgreementError::Hosts {
            what: what.into(),
            a: a.to_string(),
            b: b.to_string(),
        })
    }
    same("duration in ns", a.duration_ns, b.duration_ns)?;
    same("CPUs", a.cpus, b.cpus)?;
    let (a, b) = (of_host(a), of_host(b));
    same("number of domains", a.len(), b.len())?;
    for (a, b) in a.iter().zip(b) {
        same("name of a domain", &a.name, &b.name)?;
        let of = |what| format!("{what} of domain {}", a.name);
        same(&of("VCPUs"), a.vcpus, b.vcpus)?;
        same(&of("number of tasks"), a.tasks.len(), b.tasks.len())?;
        for (task_a, task_b) in a.tasks.iter().zip(&b.tasks) {
            same(&of("name of a task"), &task_a.name, &task_b.name)?;
            let of = |what| format!("{what} of task {}.{}", a.name, task_a.name);
            same(&of("offset in ns"), task_a.offset_ns, task_b.offset_ns)?;
            same(&of("period in ns"), task_a.period_ns, task_b.period_ns)?;
            same(
                &of("deadline in ns"),
                task_a.deadline_ns,
                task_b.deadline_ns,
            )?;
        }
    }
    Ok(())
}

/// Domain and VCPU, or nobody.
type Who = Option<(u16, u16)>;

/// The VCPU that runs on a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lane {
    /// From when on who runs, in order; from 0. Neighbours differ.
    changes: Vec<(i64, Who)>,
    end_ns: i64,
}

impl Lane {
    fn new(end_ns: i64) -> Self {
        Lane {
            changes: vec![(0, None)],
            end_ns,
        }
    }

    fn change(&mut self, time_ns: i64, who: Who) {
        if time_ns >= self.end_ns {
            return;
        }
        let last = self.changes.len() - 1;
        if self.changes[last].0 == time_ns {
            self.changes[last].1 = who;
        } else if self.changes[last].1 != who {
            self.changes.push((time_ns, who));
            return;
        }
        if let [.., (_, before), (_, after)] = self.changes[..]
            && before == after
        {
            self.changes.pop();
        }
    }

    /// From when to when who runs.
    fn stretches(&self) -> impl Iterator<Item = (i64, i64, Who)> {
        let ends = self.changes[1..].iter().map(|change| change.0);
        self.changes
            .iter()
            .zip(ends.chain([self.end_ns]))
            .map(|(&(start_ns, who), end_ns)| (start_ns, end_ns, who))
    }

    /// When who runs becomes who: the beginning and the end of the lane included, outside of which is
    /// `None`.
    fn steps(&self) -> Vec<Step> {
        let within = self
            .changes
            .iter()
            .map(|&(time_ns, who)| (time_ns, Some(who)));
        let mut before = None;
        within
            .chain([(self.end_ns, None)])
            .map(|(time_ns, after)| Step {
                time_ns,
                before: std::mem::replace(&mut before, after),
                after,
            })
            .collect()
    }
}

struct Step {
    time_ns: i64,
    before: Option<Who>,
    after: Option<Who>,
}

/// What is compared of a trace.
struct Run {
    /// By CPU.
    lanes: Vec<Lane>,
    /// When the jobs that arrived completed.
    jobs: BTreeMap<Job, Option<i64>>,
}

impl Run {
    fn read<R: Read>(reader: Reader<R>) -> Result<Run, TraceError> {
        let end_ns = reader.metadata().duration_ns;
        let cpus = reader.metadata().cpus;
        let mut lanes = vec![Lane::new(end_ns); cpus as usize];
        let domains = of_host(reader.metadata()).len();
        let mut jobs = BTreeMap::new();
        for record in reader {
            let record = record?;
            if record.time_ns > end_ns {
                break;
            }
            match record.kind {
                // What runs on a VCPU is no matter of the host.
                Kind::Run | Kind::Stop if u32::from(record.cpu) >= cpus => {}
                Kind::Run => {
                    let is_of_host = usize::from(record.domain) < domains;
                    let who = is_of_host.then_some((record.domain, record.vcpu));
                    lanes[usize::from(record.cpu)].change(record.time_ns, who);
                }
                Kind::Stop => lanes[usize::from(record.cpu)].change(record.time_ns, None),
                Kind::Release => {
                    jobs.entry(Job::of(&record)).or_insert(None);
                }
                Kind::Complete => {
                    jobs.insert(Job::of(&record), Some(record.time_ns));
                }
                _ => {}
            }
        }
        Ok(Run { lanes, jobs })
    }

    fn cpu_ns(&self, domain: usize) -> i64 {
        let stretches = self.lanes.iter().flat_map(Lane::stretches);
        stretches
            .filter(|(.., who)| who.is_some_and(|(of, _)| usize::from(of) == domain))
            .map(|(start_ns, end_ns, _)| end_ns - start_ns)
            .sum()
    }

    /// The task with these places, and in `b`. Adds the differences of its completions to all of them.
    fn task(
        &self,
        b: &Run,
        metadata: &Metadata,
        (domain, task): (usize, usize),
        all_ns: &mut Vec<i64>,
    ) -> TaskAgreement {
        let first = |task: usize| Job {
            domain: domain as u16,
            task: task as u32,
            number: 0,
        };
        let of = |run: &Run| {
            run.jobs
                .range(first(task)..first(task + 1))
                .map(|(&job, _)| job)
                .collect::<Vec<_>>()
        };
        let numbers: BTreeSet<Job> = of(self).into_iter().chain(of(b)).collect();
        let described = &metadata.domains[domain].tasks[task];
        let mut found = TaskAgreement {
            name: described.name.clone(),
            jobs: 0,
            missed_a: 0,
            missed_b: 0,
            missed_only_a: 0,
            missed_only_b: 0,
            completion_difference_ns: Quantiles::of(&mut []),
        };
        let first_ns = all_ns.len();
        for job in numbers {
            let completed = |run: &Run| run.jobs.get(&job).copied().flatten();
            let (a_ns, b_ns) = (completed(self), completed(b));
            if let (Some(a_ns), Some(b_ns)) = (a_ns, b_ns) {
                all_ns.push((a_ns - b_ns).abs());
            }
            let deadline_ns = described.deadline_of_job_ns(job.number);
            if deadline_ns > metadata.duration_ns {
                continue;
            }
            let missed = |time_ns: Option<i64>| time_ns.is_none_or(|time_ns| time_ns > deadline_ns);
            let (a, b) = (missed(a_ns), missed(b_ns));
            found.jobs += 1;
            found.missed_a += u64::from(a);
            found.missed_b += u64::from(b);
            found.missed_only_a += u64::from(a && !b);
            found.missed_only_b += u64::from(b && !a);
        }
        found.completion_difference_ns = Quantiles::of(&mut all_ns[first_ns..].to_vec());
        found
    }
}

impl Quantiles {
    fn of(values: &mut [i64]) -> Quantiles {
        values.sort_unstable();
        // Nearest rank: the least value with at least this share of all values at or below it.
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100);
            rank.checked_sub(1).map(|place| values[place])
        };
        Quantiles {
            count: values.len() as u64,
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

/// A stretch of time of one CPU, who runs in the first trace and who in the second.
struct Part {
    start_ns: i64,
    length_ns: i64,
    cpu: u16,
    a: Who,
    b: Who,
}

/// The stretches of two lanes, cut so that in each one runs in either; the second shifted.
fn parts(a: &Lane, b: &Lane, shift_ns: i64) -> impl Iterator<Item = (i64, i64, Who, Who)> {
    let mut of_a = a.stretches().peekable();
    let mut of_b = b
        .stretches()
        .map(move |(start_ns, end_ns, who)| (start_ns + shift_ns, end_ns + shift_ns, who))
        .peekable();
    std::iter::from_fn(move || {
        loop {
            let (&(start_a, end_a, who_a), &(start_b, end_b, who_b)) = (of_a.peek()?, of_b.peek()?);
            if end_a <= end_b {
                of_a.next();
            }
            if end_b <= end_a {
                of_b.next();
            }
            let (start_ns, end_ns) = (start_a.max(start_b), end_a.min(end_b));
            if start_ns < end_ns {
                return Some((start_ns, end_ns, who_a, who_b));
            }
        }
    })
}

fn disagreements(lanes: &[(&Lane, &Lane)]) -> Vec<Part> {
    let mut found = Vec::new();
    for (cpu, (lane_a, lane_b)) in lanes.iter().enumerate() {
        for (start_ns, end_ns, a, b) in parts(lane_a, lane_b, 0) {
            if a != b {
                found.push(Part {
                    start_ns,
                    length_ns: end_ns - start_ns,
                    cpu: cpu as u16,
                    a,
                    b,
                });
            }
        }
    }
    found
}

/// The time, over all CPUs, in which both run the same, the second shifted.
fn same_ns(lanes: &[(&Lane, &Lane)], shift_ns: i64) -> i128 {
    lanes
        .iter()
        .flat_map(|(a, b)| parts(a, b, shift_ns))
        .filter(|(_, _, a, b)| a == b)
        .map(|(start_ns, end_ns, ..)| i128::from(end_ns - start_ns))
        .sum()
}

/// The share of the time that both have; 1 where there is none.
fn ratio(lanes: &[(&Lane, &Lane)], shift_ns: i64, time_ns: i64) -> f64 {
    let both_ns = i128::from(time_ns - shift_ns.abs()) * lanes.len() as i128;
    if both_ns == 0 {
        return 1.0;
    }
    same_ns(lanes, shift_ns) as f64 / both_ns as f64
}

/// The shift with the greatest [`ratio`]; the smallest of several, and of these the positive one.
///
/// The time in which both run the same is a correlation of step functions, so as a function of the shift it
/// consists of straight lines, and bends only where a step of one meets a step of the other. The bends of
/// all pairs of steps together, summed up twice, give it for every shift at once.
fn best_shift(lanes: &[(&Lane, &Lane)], time_ns: i64) -> i64 {
    let most_ns = SHIFT_NS_MAX.min(time_ns / 2);
    if most_ns == 0 {
        return 0;
    }
    let place = |shift_ns: i64| (shift_ns + most_ns) as usize;
    let mut bends = vec![0_i64; place(most_ns) + 1];
    for (a, b) in lanes {
        let steps_b = b.steps();
        let mut first = 0;
        for a in a.steps() {
            while steps_b[first..]
                .first()
                .is_some_and(|b| b.time_ns < a.time_ns - most_ns)
            {
                first += 1;
            }
            let near = steps_b[first..].iter();
            for b in near.take_while(|b| b.time_ns <= a.time_ns + most_ns) {
                let same = |a: Option<Who>, b: Option<Who>| i64::from(a.is_some() && a == b);
                bends[place(a.time_ns - b.time_ns)] += same(a.before, b.after)
                    + same(a.after, b.before)
                    - same(a.before, b.before)
                    - same(a.after, b.after);
            }
        }
    }
    let mut same = same_ns(lanes, -most_ns);
    let mut slope = same_ns(lanes, 1 - most_ns) - same;
    let (mut best_shift_ns, mut best) = (-most_ns, same);
    for shift_ns in 1 - most_ns..=most_ns {
        same += slope;
        slope += i128::from(bends[place(shift_ns)]);
        let of_ns = |shift_ns: i64| i128::from(time_ns - shift_ns.abs());
        // The greater ratio, without division.
        let (this, that) = (same * of_ns(best_shift_ns), best * of_ns(shift_ns));
        if this > that || this == that && shift_ns.abs() <= best_shift_ns.abs() {
            (best_shift_ns, best) = (shift_ns, same);
        }
    }
    best_shift_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, job, sample};
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn of(a: &[Record], b: &[Record], metadata: &Metadata) -> Agreement {
        let (a, b) = (sample::file(metadata, a), sample::file(metadata, b));
        agreement(sample::reader(&a), sample::reader(&b)).expect("both traces are whole")
    }

    #[test]
    fn a_trace_agrees_with_itself() {
        let records = sample::records();
        let agreement = of(&records, &records, &sample::metadata());
        assert_eq!((agreement.same_ratio, agreement.best_ratio), (1.0, 1.0));
        assert_eq!((agreement.best_shift_ns, agreement.disagreements), (0, 0));
        let [control, batch] = &agreement.domains[..] else {
            panic!("two domains");
        };
        assert_eq!((control.cpu_ns_a, control.cpu_ns_b), (4 * MS, 4 * MS));
        assert_eq!((batch.cpu_ns_a, batch.cpu_ns_b), (10 * MS, 10 * MS));
        let task = &control.tasks[0];
        assert_eq!((task.jobs, task.missed_a, task.missed_b), (1, 1, 1));
        let none = Some(0);
        let quantiles = Quantiles {
            count: 1,
            p50: none,
            p90: none,
            p99: none,
            max: none,
        };
        assert_eq!(agreement.completion_difference_ns, quantiles);
    }

    #[test]
    fn the_sample_against_one_that_ends_its_first_job_at_once() {
        let a = sample::records();
        let mut b = a.clone();
        // *control* goes on to 3 ms, and its job is done; *batch* follows.
        for record in &mut b[6..10] {
            record.time_ns = 3 * MS;
        }
        b.remove(18);
        b.insert(
            9,
            Record {
                time_ns: 3 * MS,
                kind: Kind::Complete,
                argument: job(0, 0),
                ..a[5]
            },
        );
        let agreement = of(&a, &b, &sample::metadata());
        assert_eq!(agreement.same_ratio, 20.0 / 21.0);
        assert_eq!(agreement.disagreements, 1);
        assert_eq!(
            agreement.longest,
            [Disagreement {
                start_ns: 2 * MS,
                length_ns: MS,
                cpu: 0,
                a: Some("batch/0".into()),
                b: Some("control/0".into()),
            }]
        );
        let task = &agreement.domains[0].tasks[0];
        assert_eq!(
            (
                task.missed_a,
                task.missed_only_a,
                task.missed_b,
                task.missed_only_b
            ),
            (1, 1, 0, 0)
        );
        assert_eq!(task.completion_difference_ns.max, Some(8 * MS));
        assert_eq!(
            (agreement.domains[0].cpu_ns_a, agreement.domains[0].cpu_ns_b),
            (4 * MS, 5 * MS)
        );
    }

    #[test]
    fn a_clock_that_is_behind_is_found() {
        let a = sample::records();
        let shifted = |shift_ns: i64| {
            let mut b = a.clone();
            for record in b.iter_mut().filter(|record| record.time_ns > 0) {
                record.time_ns += shift_ns;
            }
            b
        };
        for shift_ns in [777_777, -777_777] {
            let agreement = of(&a, &shifted(shift_ns), &sample::metadata());
            assert_eq!(agreement.best_shift_ns, -shift_ns);
            assert_eq!(agreement.best_ratio, 1.0);
            assert!(agreement.same_ratio < 0.85);
        }
        let far = of(&a, &shifted(-2 * MS), &sample::metadata());
        assert_eq!(far.best_shift_ns, SHIFT_NS_MAX);
    }

    #[test]
    fn other_hosts_are_refused() {
        let a = sample::file(&sample::metadata(), &[]);
        let error = |change: fn(&mut Metadata)| {
            let mut metadata = sample::metadata();
            change(&mut metadata);
            let b = sample::file(&metadata, &[]);
            agreement(sample::reader(&a), sample::reader(&b)).map_err(|error| error.to_string())
        };
        assert_eq!(
            error(|metadata| metadata.domains[0].tasks[0].period_ns += 1),
            Err("the traces are not of one host: period in ns of task control.loop: 20000000 in the first, \
                 20000001 in the second"
                .into())
        );
        assert!(error(|metadata| metadata.domains[0].tasks[0].offset_ns += 1).is_err());
        assert!(error(|metadata| metadata.cpus = 2).is_err());
        assert!(error(|metadata| metadata.duration_ns += 1).is_err());
        assert!(error(|metadata| metadata.domains[1].vcpus = 2).is_err());
        assert!(error(|metadata| metadata.domains[1].name.push('x')).is_err());
        assert!(error(|metadata| metadata.policy = "credit".into()).is_ok());
        let mut cut = a.clone();
        cut.push(0);
        let error = agreement(sample::reader(&a), sample::reader(&cut)).expect_err("it is cut");
        assert!(error.to_string().starts_with("the second trace: "));
    }

    /// What runs beside the domains is nobody of the host, in whichever trace it is.
    #[test]
    fn programs_beside_the_domains_are_left_out() {
        let metadata = sample::metadata();
        let mut with_sshd = metadata.clone();
        with_sshd.domains.push(DomainMetadata {
            name: "(sshd)".into(),
            vcpus: 1,
            tasks: Vec::new(),
            ..metadata.domains[0].clone()
        });
        let run = |time_ns, kind, domain| Record {
            time_ns,
            argument: 0,
            cpu: 0,
            domain,
            vcpu: 0,
            kind,
        };
        let own = [run(10, Kind::Run, 0), run(20, Kind::Stop, 0)];
        let beside = [run(30, Kind::Run, 2), run(40, Kind::Stop, 2)];
        let bare = sample::file(&metadata, &own);
        let whole = sample::file(&with_sshd, &[own, beside].concat());
        for (a, b) in [(&bare, &whole), (&whole, &bare), (&whole, &whole)] {
            let found = agreement(sample::reader(a), sample::reader(b)).expect("one host");
            assert_eq!((found.same_ratio, found.domains.len()), (1.0, 2));
        }
        // Nor is what runs within a domain, on a VCPU of it.
        let inside = Metadata {
            programs_in: Some(0),
            ..with_sshd
        };
        let on_vcpu = beside.map(|record| Record {
            cpu: metadata.cpus as u16,
            ..record
        });
        let within = sample::file(&inside, &[own, on_vcpu].concat());
        let found = agreement(sample::reader(&bare), sample::reader(&within)).expect("one host");
        assert_eq!((found.same_ratio, found.domains.len()), (1.0, 2));
    }

    #[test]
    fn a_run_of_all_time_is_refused() {
        let mut metadata = sample::metadata();
        metadata.duration_ns = i64::MAX - 1;
        let file = sample::file(&metadata, &[]);
        let error = agreement(sample::reader(&file), sample::reader(&file)).expect_err("too long");
        assert!(error.to_string().contains("too long"), "{error}");
    }

    #[test]
    fn a_run_of_no_time_agrees() {
        let mut metadata = sample::metadata();
        metadata.duration_ns = 0;
        assert_eq!(of(&[], &[], &metadata).best_ratio, 1.0);
    }

    /// The VCPU that runs in each ns of each CPU, from random changes.
    fn random_run(
        changes: &[(u8, u8, u8)],
        cpus: u32,
        duration_ns: i64,
    ) -> (Vec<Vec<Who>>, Vec<Record>) {
        let mut grid = vec![vec![None; duration_ns as usize]; cpus as usize];
        let mut records = Vec::new();
        let mut time_ns = 0;
        for &(step_ns, cpu, who) in changes {
            time_ns += i64::from(step_ns % 8);
            if time_ns > duration_ns {
                break;
            }
            let cpu = u32::from(cpu) % cpus;
            let domain = u16::from(who) % 3;
            let who = (domain < 2).then_some((domain, 0));
            let (kind, domain) = who.map_or((Kind::Stop, 0), |(domain, _)| (Kind::Run, domain));
            let cpu_number = cpu as u16;
            records.push(Record {
                time_ns,
                argument: 0,
                cpu: cpu_number,
                domain,
                vcpu: 0,
                kind,
            });
            grid[cpu as usize][time_ns as usize..].fill(who);
        }
        (grid, records)
    }

    proptest! {
        #[test]
        fn it_is_what_counting_every_ns_gives(
            a in prop::collection::vec(any::<(u8, u8, u8)>(), 0..40),
            b in prop::collection::vec(any::<(u8, u8, u8)>(), 0..40),
            cpus in 1u32..4, duration_ns in 1i64..80,
        ) {
            let metadata = Metadata { cpus, duration_ns, ..sample::metadata() };
            let (grid_a, records_a) = random_run(&a, cpus, duration_ns);
            let (grid_b, records_b) = random_run(&b, cpus, duration_ns);
            let found = of(&records_a, &records_b, &metadata);

            let same_ns = |shift_ns: i64| -> i64 {
                let times = shift_ns.max(0)..(duration_ns + shift_ns).min(duration_ns);
                times.map(|time_ns| {
                    let same = |(a, b): &(&Vec<Who>, &Vec<Who>)|
                        a[time_ns as usize] == b[(time_ns - shift_ns) as usize];
                    grid_a.iter().zip(&grid_b).filter(same).count() as i64
                }).sum()
            };
            let ratio = |shift_ns: i64|
                same_ns(shift_ns) as f64 / ((duration_ns - shift_ns.abs()) * i64::from(cpus)) as f64;
            prop_assert_eq!(found.same_ratio, ratio(0));
            let most_ns = duration_ns / 2;
            let best = (-most_ns..=most_ns)
                .min_by(|&left, &right| {
                    ratio(right).total_cmp(&ratio(left)).then(left.abs().cmp(&right.abs())).then(right.cmp(&left))
                });
            prop_assert_eq!(Some(found.best_shift_ns), best);
            prop_assert_eq!(found.best_ratio, ratio(found.best_shift_ns));

            for (domain, agreement) in found.domains.iter().enumerate() {
                let cpu_ns = |grid: &[Vec<Who>]| {
                    let runs = |who: &&Who| **who == Some((domain as u16, 0));
                    grid.iter().flatten().filter(runs).count() as i64
                };
                prop_assert_eq!(agreement.cpu_ns_a, cpu_ns(&grid_a));
                prop_assert_eq!(agreement.cpu_ns_b, cpu_ns(&grid_b));
            }

            let mut parts = Vec::new();
            for cpu in 0..cpus as usize {
                let pair = |time_ns: usize| (grid_a[cpu][time_ns], grid_b[cpu][time_ns]);
                let mut start_ns = 0;
                for time_ns in 1..=duration_ns as usize {
                    if time_ns == duration_ns as usize || pair(time_ns) != pair(start_ns) {
                        let (a, b) = pair(start_ns);
                        if a != b {
                            parts.push((-((time_ns - start_ns) as i64), start_ns as i64, cpu as u16));
                        }
                        start_ns = time_ns;
                    }
                }
            }
            parts.sort_unstable();
            prop_assert_eq!(found.disagreements, parts.len() as u64);
            parts.truncate(DISAGREEMENTS_MAX);
            let longest = found.longest.iter().map(|part| (-part.length_ns, part.start_ns, part.cpu));
            prop_assert_eq!(longest.collect::<Vec<_>>(), parts);
        }
    }
}
