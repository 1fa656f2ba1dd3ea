//! The outcome of a run, and the metadata of its trace.

use crate::responses::Responses;
use crate::result::RunResult;
use laxity_host::{ANSWER_WAITS_NS, Host};
use laxity_trace::{CallsMetadata, DomainMetadata, Metadata, TaskMetadata};

/// What a run found.
#[derive(Debug)]
pub struct Outcome {
    /// The result.
    pub result: RunResult,
    /// The response times of jobs that completed and whose deadline fell within the run: for each domain, for each
    /// task.
    pub responses: Vec<Vec<Responses>>,
    /// The packets of the streams that were sampled, in the order in which they began.
    pub kept: Vec<KeptStream>,
}

/// When the packets of a stream, or of a piece of one, were sent and arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptStream {
    /// The stream, from 0.
    pub stream: u64,
    /// Its call; none for one of the streams that are always there.
    pub call: Option<u64>,
    /// When the first packet was sent; the others follow evenly.
    pub start_ns: i64,
    /// When each arrived; [`LOST`] for those that did not.
    pub arrived_ns: Vec<i64>,
}

/// In place of a time of arrival.
pub const LOST: i64 = -1;

/// What a trace of the host says about the run before its first record.
pub fn metadata(host: &Host, substrate: &str) -> Metadata {
    Metadata {
        substrate: substrate.to_string(),
        policy: host.policy.name().to_string(),
        seed: host.seed,
        duration_ns: host.duration_ns,
        cpus: host.cpus,
        domains: host
            .domains
            .iter()
            .map(|domain| DomainMetadata {
                name: domain.name.clone(),
                vcpus: domain.vcpus.len() as u32,
                budget_ns: domain.parameters.budget_ns,
                period_ns: domain.parameters.period_ns,
                real_time: false,
                tasks: domain
                    .tasks
                    .iter()
                    .map(|task| TaskMetadata {
                        name: task.name.clone(),
                        vcpu: task.vcpu,
                        cost_ns: task.cost_ns,
                        period_ns: task.period_ns,
                        deadline_ns: task.deadline_ns,
                        offset_ns: task.offset_ns,
                    })
                    .collect(),
            })
            .collect(),
        programs_in: None,
        calls: (host.calls.as_ref()).map(|calls| CallsMetadata {
            delay_ns: calls.acceptance.delay_ns,
            answer_waits_ns: match calls.registrations {
                Some(_) => ANSWER_WAITS_NS.to_vec(),
                None => Vec::new(),
            },
            not_seen: Vec::new(),
        }),
    }
}
