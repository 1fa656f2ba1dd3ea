//! The result of a run that was not simulated.

use crate::engine::{Outcome, metadata};
use crate::responses::{Responses, kept_jobs_max};
use crate::result::{Cpu, DomainResult, Engine, Overhead, RunResult, jobs_due};
use laxity_host::Host;
use laxity_trace::xen::{XenError, released_jobs};
use serde::Deserialize;

/// What was measured of a run, beside its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// CPU time of each domain, in the order of the host file.
    pub cpu_ns: Vec<i64>,
    /// As [`Overhead::schedule_calls`].
    pub schedule_calls: Option<u64>,
    /// As [`Overhead::context_switches`].
    pub context_switches: Option<u64>,
    /// As [`Overhead::schedule_ns`].
    pub schedule_ns: Option<i64>,
    /// As [`Overhead::context_switch_ns`].
    pub context_switch_ns: Option<i64>,
    /// As [`Engine::events`].
    pub events: u64,
    /// As [`Engine::wall_ns`].
    pub wall_ns: u64,
}

/// Why what was measured is not of the host.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// The completion times.
    #[error(transparent)]
    Jobs(#[from] XenError),
    /// The CPU times.
    #[error("{found} CPU times were measured; the host file has {domains} domains")]
    CpuTimes {
        /// How many there are.
        found: usize,
        /// How many there should be.
        domains: usize,
    },
}

/// The outcome of a run on a real host, by the rules of simulated ones: a job counts if its deadline is within the
/// run, and one that completes after the run does not complete.
///
/// `completions_ns` has for each domain and task when its jobs completed, from the start of the run, by job number;
/// [`UNFINISHED`](laxity_trace::xen::UNFINISHED) for those that did not, as for those behind the list's end.
///
/// # Errors
/// What was measured cannot be of this host.
pub fn outcome_of_jobs(
    host: &Host,
    substrate: &str,
    completions_ns: &[Vec<Vec<i64>>],
    measured: &Measured,
) -> Result<Outcome, MeasuredError> {
    released_jobs(&metadata(host, substrate), completions_ns)?;
    if measured.cpu_ns.len() != host.domains.len() {
        return Err(MeasuredError::CpuTimes {
            found: measured.cpu_ns.len(),
            domains: host.domains.len(),
        });
    }
    let kept_jobs_max = kept_jobs_max(host);
    let mut domains = Vec::with_capacity(host.domains.len());
    let mut responses = Vec::with_capacity(host.domains.len());
    for ((domain, times_ns), &cpu_ns) in host
        .domains
        .iter()
        .zip(completions_ns)
        .zip(&measured.cpu_ns)
    {
        let of_domain: Vec<Responses> = domain
            .tasks
            .iter()
            .zip(times_ns)
            .map(|(task, times_ns)| {
                let jobs = jobs_due(task, host.duration_ns);
                let arrivals_ns =
                    (0..jobs as i64).map(|number| task.offset_ns + number * task.period_ns);
                let mut responses = Responses::new(task, jobs, kept_jobs_max);
                let completed = (times_ns.iter().zip(arrivals_ns))
                    .take_while(|&(&time_ns, _)| time_ns <= host.duration_ns);
                for (time_ns, arrival_ns) in completed {
                    responses.record(time_ns - arrival_ns, task.deadline_ns);
                }
                responses
            })
            .collect();
        domains.push(DomainResult::of(
            host.policy,
            domain,
            &of_domain,
            Cpu {
                used_ns: cpu_ns,
                ..Cpu::default()
            },
            host.duration_ns,
        ));
        responses.push(of_domain);
    }
    let result = RunResult {
        policy: host.policy.name().to_string(),
        seed: host.seed,
        substrate: substrate.to_string(),
        machine: None,
        duration_ns: host.duration_ns,
        measured_duration_ns: None,
        domains,
        telephony: None,
        overhead: Overhead::of(
            host,
            (measured.schedule_calls, measured.schedule_ns),
            (measured.context_switches, measured.context_switch_ns),
        ),
        profiles: Vec::new(),
        engine: Engine {
            events: measured.events,
            wall_ns: measured.wall_ns,
        },
    };
    Ok(Outcome {
        result,
        responses,
        kept: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use laxity_trace::Kind;

    /// Overloaded, so that jobs complete late and not at all; the second task's last deadline is the end.
    const HOST: &str = r#"
        duration = "1 s"
        [host]
        cpus = 1
        policy = "deferrable"
        [[domain]]
        name = "control"
        budget = "5 ms"
        period = "10 ms"
        tasks = [
            { name = "loop", cost = "8 ms", period = "15 ms", offset = "1 ms" },
            { name = "log", cost = "3 ms", period = "100 ms", deadline = "50 ms", offset = "50 ms" },
        ]
        [[domain]]
        name = "batch"
        budget = "5 ms"
        period = "10 ms"
        workload = { kind = "cpu-bound" }
    "#;

    fn measured(outcome: &Outcome) -> Measured {
        let result = &outcome.result;
        Measured {
            cpu_ns: result.domains.iter().map(|domain| domain.cpu_ns).collect(),
            schedule_calls: result.overhead.schedule_calls,
            context_switches: result.overhead.context_switches,
            schedule_ns: result.overhead.schedule_ns,
            context_switch_ns: result.overhead.context_switch_ns,
            events: result.engine.events,
            wall_ns: result.engine.wall_ns,
        }
    }

    #[test]
    fn a_simulated_run_told_by_its_jobs_has_the_same_outcome() {
        let host = laxity_host::load(HOST, "host.toml", &[] as &[&str]).expect("it is right");
        let (mut simulated, trace) = crate::run(&host, Vec::new()).expect("the policy takes it");
        for domain in &mut simulated.result.domains {
            domain.waits = None; // jobs do not tell them
        }
        let mut completions_ns: Vec<Vec<Vec<i64>>> = host
            .domains
            .iter()
            .map(|domain| vec![vec![]; domain.tasks.len()])
            .collect();
        for record in trace.iter().filter(|record| record.kind == Kind::Complete) {
            let (task, _) = laxity_trace::task_of(record.argument);
            completions_ns[usize::from(record.domain)][task as usize].push(record.time_ns);
        }
        // Real guests go on behind the end.
        completions_ns[0][0].push(host.duration_ns + 1);
        let found = outcome_of_jobs(&host, "sim", &completions_ns, &measured(&simulated))
            .expect("it is of this host");
        assert_eq!(found.result, simulated.result);
        assert_eq!(found.responses, simulated.responses);
        let unfinished = found.result.domains[0].tasks[0].unfinished;
        assert!(unfinished > 0, "the host is overloaded");
    }

    #[test]
    fn what_is_of_another_host_is_refused() {
        let host = laxity_host::load(HOST, "host.toml", &[] as &[&str]).expect("it is right");
        let (outcome, _) = crate::run(&host, laxity_trace::Off).expect("the policy takes it");
        let mut measured = measured(&outcome);
        let error = |completions_ns: &[Vec<Vec<i64>>], measured: &Measured| {
            let error = outcome_of_jobs(&host, "xen", completions_ns, measured);
            error.expect_err("it is of another host").to_string()
        };
        assert!(error(&[vec![vec![], vec![]]], &measured).contains("domains and tasks"));
        let early = [vec![vec![0], vec![]], vec![]];
        assert!(error(&early, &measured).contains("task control.loop: job 0 cannot"));
        measured.cpu_ns.push(0);
        assert_eq!(
            error(&[vec![vec![], vec![]], vec![]], &measured),
            "3 CPU times were measured; the host file has 2 domains"
        );
    }
}
