//! The answer about a whole trace: its late jobs with their causes, and the sums of the causes.

use crate::account::Account;
use crate::cause::{Cause, Part, Rule, Who};
use crate::share::Job;
use laxity_trace::{Metadata, Reader, TraceError};
use serde::Serialize;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Read;

/// What is asked about a trace.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Only jobs of this task, by the places of its domain and of itself.
    pub task: Option<(u16, u32)>,
    /// The number of jobs that are explained, those that are late by most; all without it. The totals are of all.
    pub worst: Option<usize>,
    /// Jobs that were in time are explained, too.
    pub every_job: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The host is so overloaded that its backlog does not fit into memory.
    #[error(
        "at {time_ns} ns so many jobs are released and not complete that explaining them would take more than 256 MiB"
    )]
    TooMany {
        /// When the bound was met, from the start of the run.
        time_ns: i64,
    },
}

/// Why the jobs of a trace were late.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Jobs whose deadline fell within the run, and of which the trace has the release.
    pub jobs: u64,
    /// The number of late ones.
    pub late_jobs: u64,
    /// The sum of their lateness, ns.
    pub late_sum_ns: i64,
    /// The explained jobs: in the order of their ends, or with [`Question::worst`] from the latest on.
    pub late: Vec<Explained>,
    /// The lateness of all late jobs, by task, cause and culprit.
    pub totals: Vec<Total>,
}

/// A job with the causes of its lateness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    /// `domain/task#job`.
    pub what: String,
    /// When it arrived, ns from the start of the run.
    pub arrival_ns: i64,
    /// When it had to be complete, ns from the start of the run.
    pub deadline_ns: i64,
    /// When it was complete, ns from the start of the run; null if it was not at the end of the run.
    pub completion_ns: Option<i64>,
    /// How long after its deadline that was, or the end of the run.
    pub late_ns: i64,
    /// From the greatest to the smallest; their `ns` sum to `late_ns`.
    pub causes: Vec<ExplainedCause>,
}

/// A cause of a job's lateness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedCause {
    /// What it is.
    pub cause: Cause,
    /// The task (`domain/task`) or the VCPU (`domain`, or `domain/vcpu` if it has several) behind it.
    pub who: Option<String>,
    /// Why another VCPU ran.
    pub rule: Option<Rule>,
    /// Its share of the lateness.
    pub ns: i64,
    /// Its part of the response.
    pub delay_ns: i64,
}

/// What a cause adds up to over all late jobs of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    /// The task that was late: `domain/task`.
    pub task: String,
    /// What it is.
    pub cause: Cause,
    /// The task or VCPU behind it, as in [`ExplainedCause`].
    pub who: Option<String>,
    /// Why another VCPU ran.
    pub rule: Option<Rule>,
    /// Its share of the lateness.
    pub ns: i64,
    /// Late jobs of which it has a share.
    pub jobs: u64,
}

type TotalKey = (u16, u32, Cause, Who, Option<Rule>);

/// Collects the jobs of a trace.
struct Answering<'a> {
    metadata: &'a Metadata,
    question: &'a Question,
    answer: Answer,
    totals: BTreeMap<TotalKey, (i64, u64)>,
    /// The jobs that are late by most: the least late first.
    worst: BinaryHeap<Worst>,
}

/// A job among the worst; the greatest is the first to be dropped.
#[derive(PartialEq, Eq)]
struct Worst(Job);

impl Worst {
    fn order(&self) -> (i64, i64, u16, u32, u64) {
        let Job {
            late_ns,
            end_ns,
            domain,
            task,
            number,
            ..
        } = self.0;
        (-late_ns, end_ns, domain, task, number)
    }
}

impl Ord for Worst {
    fn cmp(&self, other: &Worst) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Worst {
    fn partial_cmp(&self, other: &Worst) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Explains the late jobs of a trace.
///
/// # Errors
///
/// The trace is damaged, or its backlog too large.
pub fn why<R: Read>(reader: Reader<R>, question: &Question) -> Result<Answer, WhyError> {
    let metadata = reader.metadata().clone();
    let mut account = Account::new(&metadata, question.every_job);
    let mut answering = Answering::new(&metadata, question);
    for record in reader {
        let record = record?;
        let job = (account.record(&record)).map_err(|_| WhyError::TooMany {
            time_ns: record.time_ns,
        })?;
        if let Some(job) = job {
            answering.job(job);
        }
    }
    for job in account.finish() {
        answering.job(job);
    }
    Ok(answering.finish())
}

impl<'a> Answering<'a> {
    fn new(metadata: &'a Metadata, question: &'a Question) -> Answering<'a> {
        Answering {
            metadata,
            question,
            answer: Answer {
                jobs: 0,
                late_jobs: 0,
                late_sum_ns: 0,
                late: Vec::new(),
                totals: Vec::new(),
            },
            totals: BTreeMap::new(),
            worst: BinaryHeap::new(),
        }
    }

    fn job(&mut self, job: Job) {
        let is_asked = match self.question.task {
            Some(task) => task == (job.domain, job.task),
            None => true,
        };
        if !is_asked || job.deadline_ns > self.metadata.duration_ns {
            return;
        }
        self.answer.jobs += 1;
        let is_late = job.late_ns > 0 || !job.is_complete;
        if is_late {
            self.answer.late_jobs += 1;
            self.answer.late_sum_ns = self.answer.late_sum_ns.saturating_add(job.late_ns);
            for part in job.parts.iter().filter(|part| part.ns > 0) {
                let key = (job.domain, job.task, part.cause, part.who, part.rule);
                let (ns, jobs) = self.totals.entry(key).or_default();
                *ns = ns.saturating_add(part.ns);
                *jobs += 1;
            }
        }
        if !is_late && !self.question.every_job {
            return;
        }
        match self.question.worst {
            None => {
                let explained = self.explained(&job);
                self.answer.late.push(explained);
            }
            Some(most) => {
                self.worst.push(Worst(job));
                if self.worst.len() > most {
                    self.worst.pop();
                }
            }
        }
    }

    fn finish(mut self) -> Answer {
        for Worst(job) in std::mem::take(&mut self.worst).into_sorted_vec() {
            let explained = self.explained(&job);
            self.answer.late.push(explained);
        }
        let totals = std::mem::take(&mut self.totals);
        self.answer.totals = (totals.into_iter())
            .map(|((domain, task, cause, who, rule), (ns, jobs))| Total {
                task: self.task_name(domain, task),
                cause,
                who: self.name(who),
                rule,
                ns,
                jobs,
            })
            .collect();
        // Sorting is stable, so that equals stay in the order of tasks.
        self.answer.totals.sort_by_key(|total| -total.ns);
        self.answer
    }

    fn explained(&self, job: &Job) -> Explained {
        let cause = |part: &Part| ExplainedCause {
            cause: part.cause,
            who: self.name(part.who),
            rule: part.rule,
            ns: part.ns,
            delay_ns: part.delay_ns,
        };
        let mut causes: Vec<ExplainedCause> = job.parts.iter().map(cause).collect();
        causes.sort_by_key(|cause| (-cause.ns, -cause.delay_ns));
        Explained {
            what: format!("{}#{}", self.task_name(job.domain, job.task), job.number),
            arrival_ns: job.arrival_ns,
            deadline_ns: job.deadline_ns,
            completion_ns: job.is_complete.then_some(job.end_ns),
            late_ns: job.late_ns,
            causes,
        }
    }

    fn task_name(&self, domain: u16, task: u32) -> String {
        let domain = &self.metadata.domains[usize::from(domain)];
        format!("{}/{}", domain.name, domain.tasks[task as usize].name)
    }

    fn name(&self, who: Who) -> Option<String> {
        match who {
            Who::Nobody => None,
            Who::Task(domain, task) => Some(self.task_name(domain, task)),
            Who::Vcpu(domain, vcpu) => {
                let of_vcpu = &self.metadata.domains[usize::from(domain)];
                Some(match of_vcpu.vcpus {
                    1 => of_vcpu.name.clone(),
                    _ => self.metadata.vcpu_name(domain, vcpu),
                })
            }
        }
    }
}
