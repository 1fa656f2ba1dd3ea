//! The VCPUs that ran within a window of a trace, and when: what a picture of it needs.

use crate::budget::BudgetLine;
use crate::deadlines::{Deadlines, Job};
use crate::{Kind, Reader, TraceError};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::Read;

/// What happened within a window. Domains, VCPUs and tasks are their places in the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Timeline {
    /// Where the window begins.
    pub from_ns: i64,
    /// Where it ends.
    pub to_ns: i64,
    /// The runs of VCPUs, in the order of their ends. Cut off at the window's ends.
    pub occupancy: Vec<Occupancy>,
    /// One for each VCPU, in the order of the metadata.
    pub budgets: Vec<Budget>,
    /// Jobs that arrived.
    pub releases: Vec<JobPoint>,
    /// Jobs that ended.
    pub completions: Vec<JobPoint>,
    /// Jobs that were not complete at their deadline, at their deadline.
    pub misses: Vec<JobPoint>,
}

/// A VCPU ran on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Occupancy {
    /// The physical CPU.
    pub cpu: u16,
    /// The VCPU's domain.
    pub domain: u16,
    /// The VCPU.
    pub vcpu: u16,
    /// From here.
    pub start_ns: i64,
    /// To here; later than the start.
    pub end_ns: i64,
    /// The part of that time: all, but for what [`Timeline::coarser`] put together.
    pub ran_ns: i64,
}

/// The budget (credit: the credits) of a VCPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Budget {
    /// The VCPU's domain.
    pub domain: u16,
    /// The VCPU.
    pub vcpu: u16,
    /// Time and value in ns, from the window's beginning to its end. Straight lines between the
    /// points are the budget; two points at one time are a step.
    pub points: Vec<(i64, i64)>,
}

/// Something about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JobPoint {
    /// When.
    pub time_ns: i64,
    /// The task's domain.
    pub domain: u16,
    /// The task.
    pub task: u32,
    /// The job's number, from 0.
    pub job: u64,
    /// How many there are: one, but for what [`Timeline::coarser`] put together.
    pub count: u64,
}

impl JobPoint {
    fn new(time_ns: i64, job: Job) -> Self {
        JobPoint {
            time_ns,
            domain: job.domain,
            task: job.task,
            job: job.number,
            count: 1,
        }
    }
}

/// What happened from `from_ns` to `to_ns`, both included. Reads the trace up to the window's end;
/// keeps in memory what is within the window.
///
/// # Errors
///
/// The trace is damaged; the window is empty, or not within the run.
pub fn timeline<R: Read>(
    mut reader: Reader<R>,
    from_ns: i64,
    to_ns: i64,
) -> Result<Timeline, TraceError> {
    let metadata = reader.metadata().clone();
    let duration_ns = metadata.duration_ns;
    if from_ns < 0 || to_ns <= from_ns || to_ns > duration_ns {
        return Err(TraceError::Window {
            from_ns,
            to_ns,
            duration_ns,
        });
    }
    let has_credits = metadata.has_credits();
    let mut budgets: Vec<Vec<BudgetLine>> = Vec::with_capacity(metadata.domains.len());
    for domain in &metadata.domains {
        let initial_ns = metadata.initial_budget_ns(domain);
        let line = BudgetLine::new(initial_ns, has_credits, from_ns);
        budgets.push(vec![line; domain.vcpus as usize]);
    }
    let mut running: Vec<Option<Occupancy>> = vec![None; metadata.lanes() as usize];
    let mut occupancy = Vec::new();
    let mut leave = |running: &mut Option<Occupancy>, time_ns: i64| {
        if let Some(ran) = running.take() {
            let ran = Occupancy {
                start_ns: ran.start_ns.max(from_ns),
                end_ns: time_ns,
                ..ran
            };
            let ran = Occupancy {
                ran_ns: ran.end_ns - ran.start_ns,
                ..ran
            };
            if ran.start_ns < ran.end_ns {
                occupancy.push(ran);
            }
        }
    };
    let mut deadlines = Deadlines::default();
    let (mut releases, mut completions, mut misses) = (Vec::new(), Vec::new(), Vec::new());
    let mut miss_before = |deadlines: &mut Deadlines, time_ns: i64| {
        while let Some((deadline_ns, job)) = deadlines.missed_before(time_ns) {
            if deadline_ns >= from_ns {
                misses.push(JobPoint::new(deadline_ns, job));
            }
        }
    };

    for record in reader.by_ref() {
        let record = record?;
        if record.time_ns > to_ns {
            break;
        }
        miss_before(&mut deadlines, record.time_ns);
        deadlines.record(&metadata, &record);
        match record.kind {
            Kind::Run => {
                let on_cpu = &mut running[usize::from(record.cpu)];
                leave(on_cpu, record.time_ns);
                *on_cpu = Some(Occupancy {
                    cpu: record.cpu,
                    domain: record.domain,
                    vcpu: record.vcpu,
                    start_ns: record.time_ns,
                    end_ns: record.time_ns,
                    ran_ns: 0,
                });
            }
            Kind::Stop => leave(&mut running[usize::from(record.cpu)], record.time_ns),
            Kind::Release if record.time_ns >= from_ns => {
                releases.push(JobPoint::new(record.time_ns, Job::of(&record)));
            }
            Kind::Complete if record.time_ns >= from_ns => {
                completions.push(JobPoint::new(record.time_ns, Job::of(&record)));
            }
            _ => {}
        }
        if let Some(lines) = budgets.get_mut(usize::from(record.domain)) {
            lines[usize::from(record.vcpu)].record(&record);
        }
    }

    for on_cpu in &mut running {
        leave(on_cpu, to_ns);
    }
    miss_before(&mut deadlines, to_ns.saturating_add(1));
    let numbered = |lines: Vec<BudgetLine>, domain: usize| {
        lines
            .into_iter()
            .enumerate()
            .map(move |(vcpu, line)| Budget {
                domain: domain as u16,
                vcpu: vcpu as u16,
                points: line.finish(to_ns),
            })
    };
    let budgets = budgets.into_iter().enumerate();
    let budgets = budgets
        .flat_map(|(domain, lines)| numbered(lines, domain))
        .collect();
    Ok(Timeline {
        from_ns,
        to_ns,
        occupancy,
        budgets,
        releases,
        completions,
        misses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, sample};

    const MS: i64 = 1_000_000;

    fn of(records: &[Record], from_ms: i64, to_ms: i64) -> Timeline {
        let file = sample::file(&sample::metadata(), records);
        timeline(sample::reader(&file), from_ms * MS, to_ms * MS).expect("the trace is whole")
    }

    /// In ms.
    fn occupancy(timeline: &Timeline) -> Vec<(u16, i64, i64)> {
        timeline
            .occupancy
            .iter()
            .map(|ran| (ran.domain, ran.start_ns / MS, ran.end_ns / MS))
            .collect()
    }

    /// In ms.
    fn budget(timeline: &Timeline, domain: usize) -> Vec<(i64, i64)> {
        timeline.budgets[domain]
            .points
            .iter()
            .map(|&(at, value)| (at / MS, value / MS))
            .collect()
    }

    fn points(points: &[JobPoint]) -> Vec<(i64, u64)> {
        points
            .iter()
            .map(|point| (point.time_ns / MS, point.job))
            .collect()
    }

    #[test]
    fn the_whole_sample() {
        let whole = of(&sample::records(), 0, 21);
        assert_eq!(
            occupancy(&whole),
            [(0, 0, 2), (1, 2, 7), (0, 10, 11), (1, 11, 16), (0, 20, 21)]
        );
        let control = [
            (0, 2),
            (2, 0),
            (10, 0),
            (10, 2),
            (11, 1),
            (20, 1),
            (20, 2),
            (21, 1),
        ];
        assert_eq!(budget(&whole, 0), control);
        let batch = [
            (0, 5),
            (2, 5),
            (7, 0),
            (10, 0),
            (10, 5),
            (11, 5),
            (16, 0),
            (20, 0),
            (20, 5),
            (21, 5),
        ];
        assert_eq!(budget(&whole, 1), batch);
        assert_eq!(points(&whole.releases), [(0, 0), (20, 1)]);
        assert_eq!(points(&whole.completions), [(11, 0)]);
        assert_eq!(points(&whole.misses), [(5, 0)]);
    }

    #[test]
    fn a_window_is_cut_off_at_both_ends() {
        let window = of(&sample::records(), 1, 4);
        assert_eq!(occupancy(&window), [(0, 1, 2), (1, 2, 4)]);
        assert_eq!(budget(&window, 0), [(1, 1), (2, 0), (4, 0)]);
        assert_eq!(budget(&window, 1), [(1, 5), (2, 5), (4, 3)]);
        assert!(
            window.releases.is_empty() && window.completions.is_empty() && window.misses.is_empty()
        );

        let running_through = of(&sample::records(), 4, 6);
        assert_eq!(occupancy(&running_through), [(1, 4, 6)]);
        assert_eq!(budget(&running_through, 1), [(4, 3), (6, 1)]);
        assert_eq!(points(&running_through.misses), [(5, 0)]);

        let idle = of(&sample::records(), 8, 9);
        assert_eq!(occupancy(&idle), []);
        assert_eq!(budget(&idle, 0), [(8, 0), (9, 0)]);
    }

    #[test]
    fn a_job_that_completes_at_its_deadline_is_in_time() {
        let mut records = sample::records();
        records.retain(|record| record.kind == Kind::Release || record.kind == Kind::Complete);
        records[1].time_ns = 5 * MS;
        assert_eq!(points(&of(&records, 0, 21).misses), []);
        records[1].time_ns += 1;
        assert_eq!(points(&of(&records, 0, 21).misses), [(5, 0)]);
        records.truncate(1);
        assert_eq!(
            points(&of(&records, 0, 5).misses),
            [(5, 0)],
            "a deadline at the window's end"
        );
        assert_eq!(points(&of(&records, 0, 4).misses), []);
    }

    /// Budget of *control* (2 ms at first) after these records, each (ms, kind, argument in ms).
    fn budget_after(changes: &[(i64, Kind, i64)]) -> Vec<(i64, i64)> {
        let changes = changes.iter().map(|&(time_ms, kind, argument)| Record {
            time_ns: time_ms * MS,
            argument: argument * MS,
            cpu: 0,
            domain: 0,
            vcpu: 0,
            kind,
        });
        budget(&of(&changes.collect::<Vec<_>>(), 0, 20), 0)
    }

    #[test]
    fn budget_runs_down_where_records_leave_it_open() {
        // A periodic server's, while its VCPU is blocked: last thing before it was stated.
        assert_eq!(
            budget_after(&[(8, Kind::Budget, 1)]),
            [(0, 2), (7, 2), (8, 1), (20, 1)]
        );
        // A polling server's is dropped: there was no time in which it could be used.
        assert_eq!(
            budget_after(&[(1, Kind::Budget, 0)]),
            [(0, 2), (1, 2), (1, 0), (20, 0)]
        );
        // Replenished while it runs.
        assert_eq!(
            budget_after(&[
                (3, Kind::Run, 0),
                (4, Kind::Replenish, 2),
                (5, Kind::Stop, 1)
            ]),
            [(0, 2), (3, 2), (4, 1), (4, 2), (20, 2)]
        );
        // Running on when nothing is left (extra time) costs nothing.
        assert_eq!(
            budget_after(&[(3, Kind::Run, 0)]),
            [(0, 2), (3, 2), (5, 0), (20, 0)]
        );
    }

    #[test]
    fn credits_are_charged_in_steps() {
        let mut metadata = sample::metadata();
        metadata.policy = "credit".into();
        let mut tick = sample::records()[20];
        (tick.time_ns, tick.argument) = (20 * MS, -10 * MS);
        let file = sample::file(&metadata, &[tick]);
        let credit = timeline(sample::reader(&file), 0, 21 * MS).expect("the trace is whole");
        assert_eq!(budget(&credit, 0), [(0, 0), (20, 0), (20, -10), (21, -10)]);
    }

    #[test]
    fn a_window_outside_the_run_is_refused() {
        let file = sample::file(&sample::metadata(), &[]);
        for (from_ns, to_ns) in [(-1, 5), (5, 5), (6, 5), (0, 21 * MS + 1)] {
            let error =
                timeline(sample::reader(&file), from_ns, to_ns).expect_err("no such window");
            assert!(matches!(error, TraceError::Window { .. }), "{error}");
        }
    }

    #[test]
    fn it_is_json() {
        let json = serde_json::to_value(of(&sample::records(), 1, 2)).expect("it is plain data");
        assert_eq!(
            json["occupancy"][0],
            serde_json::json!({"cpu": 0, "domain": 0, "vcpu": 0, "start_ns": MS, "end_ns": 2 * MS, "ran_ns": MS})
        );
        assert_eq!(
            json["budgets"][0]["points"],
            serde_json::json!([[MS, MS], [2 * MS, 0]])
        );
    }
}
