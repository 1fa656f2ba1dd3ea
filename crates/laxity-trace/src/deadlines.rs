//! The jobs of a trace that miss their deadlines, found in order of time.

use crate::{Kind, Metadata, Record, task_of};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// A job of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Job {
    pub domain: u16,
    pub task: u32,
    pub number: u64,
}

impl Job {
    /// The job that a record of a job is of.
    pub fn of(record: &Record) -> Job {
        let (task, number) = task_of(record.argument);
        Job {
            domain: record.domain,
            task,
            number,
        }
    }
}

/// The jobs that are not complete, by deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    incomplete: HashSet<Job>,
    /// Also of jobs that have completed since.
    due: BinaryHeap<Reverse<(i64, Job)>>,
}

impl Deadlines {
    /// Takes every record of the trace.
    pub fn record(&mut self, metadata: &Metadata, record: &Record) {
        match record.kind {
            Kind::Release => {
                let job = Job::of(record);
                let deadline_ns = metadata
                    .task(job.domain, job.task)
                    .deadline_of_job_ns(job.number);
                self.incomplete.insert(job);
                self.due.push(Reverse((deadline_ns, job)));
            }
            Kind::Complete => {
                self.incomplete.remove(&Job::of(record));
            }
            _ => {}
        }
    }

    /// The next job that had not completed at its deadline, if the deadline is before `time_ns`, when
    /// every record before `time_ns` was taken. (One that completes at its deadline is in time.)
    pub fn missed_before(&mut self, time_ns: i64) -> Option<(i64, Job)> {
        while let Some(&Reverse((deadline_ns, job))) = self.due.peek() {
            if deadline_ns >= time_ns {
                return None;
            }
            self.due.pop();
            if self.incomplete.contains(&job) {
                return Some((deadline_ns, job));
            }
        }
        None
    }
}
