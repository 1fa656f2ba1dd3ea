//! The jobs of a run: which there are, and when they completed.

use laxity_host::Task;
use laxity_trace::{Metadata, TaskMetadata};

/// In a task's completion times: the job did not complete.
pub const UNFINISHED: i64 = i64::MAX;

/// Jobs of one task; all are in memory.
const JOBS_MAX: u64 = 1 << 24;

/// Why completion times are not those of a run's jobs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JobsError(String);

/// How many jobs of each domain's tasks arrive before the end of the run, if the completion times fit them.
///
/// # Errors
///
/// If the numbers of domains, tasks and jobs differ, a job completes before it arrives, or before the
/// one before it, or the metadata has a task that cannot be.
pub fn released_jobs(
    metadata: &Metadata,
    completions_ns: &[Vec<Vec<i64>>],
) -> Result<Vec<Vec<u64>>, JobsError> {
    let domains = &metadata.domains;
    let shape = domains.iter().map(|domain| domain.tasks.len());
    if !completions_ns.iter().map(Vec::len).eq(shape) {
        return Err(JobsError(
            "the jobs' completion times are not those of the host file's domains and tasks".into(),
        ));
    }
    let mut released = Vec::with_capacity(domains.len());
    for (domain, times) in domains.iter().zip(completions_ns) {
        let mut of_domain = Vec::with_capacity(times.len());
        for (task, times_ns) in domain.tasks.iter().zip(times) {
            let jobs = released_of_task(task, times_ns, metadata.duration_ns);
            of_domain.push(jobs.map_err(|reason| {
                JobsError(format!("task {}.{}: {reason}", domain.name, task.name))
            })?);
        }
        released.push(of_domain);
    }
    Ok(released)
}

fn released_of_task(task: &TaskMetadata, times_ns: &[i64], end_ns: i64) -> Result<u64, String> {
    if task.period_ns < 1 || task.offset_ns < 0 {
        let (period_ns, offset_ns) = (task.period_ns, task.offset_ns);
        return Err(format!(
            "a period of {period_ns} ns and an offset of {offset_ns} ns"
        ));
    }
    let released = match u64::try_from(end_ns - task.offset_ns) {
        Ok(time_ns) => time_ns.div_ceil(task.period_ns as u64),
        Err(_) => 0,
    };
    if released > JOBS_MAX {
        return Err(format!(
            "{released} jobs are released; at most {JOBS_MAX} are traced"
        ));
    }
    if times_ns.len() as u64 > released {
        let reported = times_ns.len();
        return Err(format!(
            "{reported} jobs are reported, and {released} are released"
        ));
    }
    let mut before_ns = 0;
    for (number, &time_ns) in (0..).zip(times_ns) {
        let arrival_ns = task.arrival_ns(number);
        if time_ns < arrival_ns || time_ns < before_ns {
            return Err(format!(
                "job {number} cannot have completed at {time_ns} ns: it arrived at {arrival_ns} ns, and the one \
                 before completed at {before_ns} ns"
            ));
        }
        before_ns = time_ns;
    }
    Ok(released)
}

/// How many jobs of the task have their deadline within the run.
pub fn jobs_due(task: &Task, duration_ns: i64) -> u64 {
    let due_ns = duration_ns - task.offset_ns - task.deadline_ns;
    if due_ns < 0 {
        0
    } else {
        (due_ns / task.period_ns) as u64 + 1
    }
}
