//! The result of a run that was not simulated.

use crate::jobs::{JobsError, jobs_due, released_jobs};
use crate::outcome::{Outcome, metadata};
use crate::responses::{Responses, kept_jobs_max};
use crate::result::{Cpu, DomainResult, Engine, Overhead, RunResult};
use laxity_host::Host;
use schemars::JsonSchema;
use serde::Deserialize;

/// What was measured of a run, beside its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// CPU time of each domain, in the order of the host file.
    pub cpu_ns: Vec<i64>,
    /// [`Overhead::schedule_calls`]; null if not measured.
    pub schedule_calls: Option<u64>,
    /// [`Overhead::context_switches`]; null if not measured.
    pub context_switches: Option<u64>,
    /// [`Overhead::schedule_ns`]; null if not measured.
    pub schedule_ns: Option<i64>,
    /// [`Overhead::context_switch_ns`]; null if not measured.
    pub context_switch_ns: Option<i64>,
    /// [`Engine::events`].
    pub events: u64,
    /// [`Engine::wall_ns`].
    pub wall_ns: u64,
}

/// Why what was measured is not of the host.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// The completion times.
    #[error(transparent)]
    Jobs(#[from] JobsError),
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
/// [`UNFINISHED`](crate::UNFINISHED) for those that did not, as for those behind the list's end.
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
        network: None,
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
