//! The completion times of the jobs of known tasks, derived from the runs of their VCPUs.

use crate::busy::{Busy, Seen, seen};
use laxity_trace::{Kind, Metadata, NONE, Record, TaskMetadata, job};

/// In a task's completion times: the job was not complete at the end of the trace.
const UNFINISHED: i64 = i64::MAX;

/// A job that has arrived.
struct Pending {
    /// The place of its task among the VCPU's, by which it comes first.
    rank: usize,
    number: usize,
    left_ns: i64,
}

/// When each job of the metadata's tasks was complete, by domain and task, [`i64::MAX`] for those that were not; jobs
/// that arrive within the trace. `records` need none of jobs.
///
/// The guest is taken to be rate-monotonic and preemptive. What a VCPU ran in a busy period is divided among the jobs
/// that arrive in it in proportion to their tasks' costs, so that all of them are complete when it blocks.
pub fn completions_ns(metadata: &Metadata, records: &[Record]) -> Vec<Vec<Vec<i64>>> {
    let seen = seen(metadata, records);
    let mut completions: Vec<Vec<Vec<i64>>> = Vec::with_capacity(metadata.domains.len());
    for (domain, vcpus) in metadata.domains.iter().zip(&seen) {
        let mut of_domain: Vec<Vec<i64>> = domain
            .tasks
            .iter()
            .map(|task| vec![UNFINISHED; arrivals(task, metadata.duration_ns)])
            .collect();
        for (number, vcpu) in (0..).zip(vcpus) {
            let mut tasks: Vec<usize> = (0..domain.tasks.len())
                .filter(|&task| domain.tasks[task].vcpu == number)
                .collect();
            tasks.sort_by_key(|&task| domain.tasks[task].period_ns);
            let facts: Vec<&TaskMetadata> = tasks.iter().map(|&task| &domain.tasks[task]).collect();
            complete(
                vcpu,
                &facts,
                metadata.duration_ns,
                |rank, number, time_ns| {
                    of_domain[tasks[rank]][number] = time_ns;
                },
            );
        }
        completions.push(of_domain);
    }
    completions
}

fn arrivals(task: &TaskMetadata, end_ns: i64) -> usize {
    usize::try_from(end_ns - task.offset_ns)
        .map_or(0, |ns| ns.div_ceil(task.period_ns.max(1) as usize))
}

/// Calls `done` with the rank of the task, the number of the job, and when it was complete.
fn complete(
    vcpu: &Seen,
    tasks: &[&TaskMetadata],
    end_ns: i64,
    mut done: impl FnMut(usize, usize, i64),
) {
    let mut next = vec![0_usize; tasks.len()];
    let mut spans = vcpu.ran_ns.iter().copied().peekable();
    for busy in &vcpu.busy {
        let jobs = jobs_of(busy, tasks, &mut next, end_ns);
        let asked_ns: i64 = jobs.iter().map(|&(_, rank, _)| tasks[rank].cost_ns).sum();
        // The last busy period may be cut short, and the first may have begun before the trace.
        let scale = if busy.is_whole && asked_ns > 0 {
            busy.work_ns as f64 / asked_ns as f64
        } else {
            1.0
        };
        let mut arriving = jobs.iter().peekable();
        let mut ready: Vec<Pending> = Vec::new();
        while let Some(&(from_ns, to_ns)) = spans.peek().filter(|span| span.0 < busy.end_ns) {
            spans.next();
            let mut now_ns = from_ns;
            while now_ns < to_ns {
                while let Some(&&(_, rank, number)) = arriving.peek().filter(|job| job.0 <= now_ns)
                {
                    let left_ns = ((tasks[rank].cost_ns as f64 * scale).round() as i64).max(1);
                    ready.push(Pending {
                        rank,
                        number,
                        left_ns,
                    });
                    arriving.next();
                }
                let until_ns = arriving.peek().map_or(to_ns, |job| job.0.min(to_ns));
                // Jobs of one task are in order, so that the first one is the oldest.
                let Some(first) = (0..ready.len()).min_by_key(|&index| ready[index].rank) else {
                    now_ns = until_ns;
                    continue;
                };
                let spent_ns = ready[first].left_ns.min(until_ns - now_ns);
                now_ns += spent_ns;
                ready[first].left_ns -= spent_ns;
                if ready[first].left_ns == 0 {
                    let job = ready.remove(first);
                    done(job.rank, job.number, now_ns);
                }
            }
        }
        // What is left by rounding, or arrived after all work was done.
        if busy.end_ns < end_ns {
            for job in ready {
                done(job.rank, job.number, busy.end_ns);
            }
            for &(arrival_ns, rank, number) in arriving {
                done(rank, number, busy.end_ns.max(arrival_ns));
            }
        }
    }
}

/// The jobs that arrive up to the end of a busy period and not in one before: arrival, rank and number, in order.
fn jobs_of(
    busy: &Busy,
    tasks: &[&TaskMetadata],
    next: &mut [usize],
    end_ns: i64,
) -> Vec<(i64, usize, usize)> {
    let mut jobs = Vec::new();
    for (rank, (task, next)) in tasks.iter().zip(next).enumerate() {
        loop {
            let arrival_ns = task.arrival_ns(*next as u64);
            if arrival_ns >= busy.end_ns || arrival_ns >= end_ns {
                break;
            }
            jobs.push((arrival_ns, rank, *next));
            *next += 1;
        }
    }
    jobs.sort_unstable();
    jobs
}

/// The records of a trace with those of the jobs of the metadata's tasks in place of those that it had.
pub fn with_jobs(
    metadata: &Metadata,
    records: &[Record],
    completions_ns: &[Vec<Vec<i64>>],
) -> Vec<Record> {
    let mut jobs = Vec::new();
    for (domain, (facts, of_domain)) in (0..).zip(metadata.domains.iter().zip(completions_ns)) {
        for (place, (task, of_task)) in (0..).zip(facts.tasks.iter().zip(of_domain)) {
            for (number, &completion_ns) in (0..).zip(of_task) {
                let record = |time_ns, kind| Record {
                    time_ns,
                    argument: job(place, number),
                    cpu: NONE,
                    domain,
                    vcpu: task.vcpu as u16,
                    kind,
                };
                jobs.push(record(task.arrival_ns(number), Kind::Release));
                if completion_ns < UNFINISHED {
                    jobs.push(record(completion_ns, Kind::Complete));
                }
            }
        }
    }
    jobs.sort_by_key(|record| (record.time_ns, record.kind == Kind::Release));
    let mut jobs = jobs.into_iter().peekable();
    let mut all = Vec::with_capacity(records.len() + jobs.len());
    let mut cpus: Vec<Vec<u16>> = metadata
        .domains
        .iter()
        .map(|domain| vec![NONE; domain.vcpus as usize])
        .collect();
    for record in records.iter().filter(|record| !record.kind.is_of_job()) {
        while let Some(job) = jobs.next_if(|job| job.time_ns <= record.time_ns) {
            let cpu = cpus[usize::from(job.domain)][usize::from(job.vcpu)];
            all.push(Record { cpu, ..job });
        }
        if matches!(record.kind, Kind::Run | Kind::Stop) {
            let cpu = if record.kind == Kind::Run {
                record.cpu
            } else {
                NONE
            };
            cpus[usize::from(record.domain)][usize::from(record.vcpu)] = cpu;
        }
        all.push(*record);
    }
    all.extend(jobs);
    all
}
