//! The first difference of two results, as text.

use crate::outcome::Job;
use laxity_host::{Host, Parameter};
use std::fmt::Write;

/// How many differing jobs are told one by one.
const TOLD_MAX: usize = 5;

/// How `found` differs from `expected`, the earliest difference first, with the host in brief;
/// `None` where both are the same. Both are sorted by domain, task and number.
pub fn difference(seed: u64, host: &Host, expected: &[Job], found: &[Job]) -> Option<String> {
    let key = |job: &Job| (job.domain, job.task, job.number);
    let mut keys: Vec<_> = expected.iter().chain(found).map(key).collect();
    keys.sort_unstable();
    keys.dedup();

    let mut differences: Vec<(i64, String)> = Vec::new();
    let (mut expected, mut found) = (expected.iter().peekable(), found.iter().peekable());
    for (domain, task, number) in keys {
        let is_this = |job: &&Job| key(job) == (domain, task, number);
        let (wanted, got) = (expected.next_if(is_this), found.next_if(is_this));
        if wanted != got {
            let at_ns = [wanted, got]
                .into_iter()
                .flatten()
                .map(|job| job.completion_ns.unwrap_or(i64::MAX))
                .min();
            differences.push((
                at_ns.unwrap_or(i64::MAX),
                format!(
                    "seed {seed}: domain {domain} task {task} job {number} {}, expected: {}\n",
                    fate(got),
                    fate(wanted)
                ),
            ));
        }
    }
    if differences.is_empty() {
        return None;
    }
    differences.sort();
    let mut text: String = (differences.iter().take(TOLD_MAX))
        .map(|(_, line)| line.as_str())
        .collect();
    if differences.len() > TOLD_MAX {
        let _ = writeln!(text, "and {} more", differences.len() - TOLD_MAX);
    }
    Some(text + &brief(host))
}

fn fate(job: Option<&Job>) -> String {
    match job {
        None => "does not exist".to_string(),
        Some(Job {
            arrival_ns,
            completion_ns: None,
            ..
        }) => format!("arrived at {} and did not complete", time(*arrival_ns)),
        Some(Job {
            arrival_ns,
            completion_ns: Some(completion_ns),
            ..
        }) => format!(
            "arrived at {} and completed at {}",
            time(*arrival_ns),
            time(*completion_ns)
        ),
    }
}

/// The host in a few lines: what its policy looks at, and nothing else.
fn brief(host: &Host) -> String {
    let mut text = format!(
        "{} on {} CPUs for {}",
        host.policy.name(),
        host.cpus,
        time(host.duration_ns)
    );
    let settings = &host.settings;
    if host.policy.shares_by_weight() {
        let _ = write!(
            text,
            ", time slice {}, tick {}, accounting {}",
            time(settings.time_slice_ns),
            time(settings.tick_ns),
            time(settings.accounting_ns)
        );
    } else if host.policy.uses(Parameter::Quantum) {
        let _ = write!(text, ", quantum {}", time(settings.quantum_ns));
    }
    text.push('\n');
    for (number, domain) in host.domains.iter().enumerate() {
        let parameters = &domain.parameters;
        let _ = write!(text, "  domain {number}:");
        if host.policy.shares_by_weight() {
            let _ = write!(
                text,
                " weight {}, cap {} %",
                parameters.weight, parameters.cap_percent
            );
            if parameters.laxity_ns > 0 && host.policy.is_scheduler_s() {
                let _ = write!(text, ", laxity {}", time(parameters.laxity_ns));
            }
        } else if host.policy.has_budgets() {
            let _ = write!(
                text,
                " {} every {}",
                time(parameters.budget_ns),
                time(parameters.period_ns)
            );
            if host.policy.is_fixed_priority_server() {
                let _ = write!(text, ", priority {}", parameters.priority);
            }
            if parameters.extratime {
                text.push_str(", extratime");
            }
        }
        let _ = write!(text, ", {:?}", domain.guest);
        if domain.cpu_bound {
            text.push_str(", cpu-bound");
        }
        if let Some(owner) = domain.helper_of {
            let _ = write!(text, ", helper of {owner}");
        }
        if let Some(tick) = &domain.tick {
            let _ = write!(
                text,
                ", ticks of {} every {} from {}, timers of {} at least, tasks woken in {}",
                time(tick.cost_ns),
                time(tick.period_ns),
                time(tick.offset_ns),
                time(tick.min_delta_ns),
                time(tick.wake_ns)
            );
        }
        text.push('\n');
        for (number, vcpu) in domain.vcpus.iter().enumerate() {
            let _ = writeln!(
                text,
                "    vcpu {number} on CPU {} of {:?}",
                vcpu.cpu, vcpu.affinity
            );
        }
        for (number, task) in domain.tasks.iter().enumerate() {
            let _ = writeln!(
                text,
                "    task {number} on vcpu {}: {} every {} from {}, deadline {}",
                task.vcpu,
                time(task.cost_ns),
                time(task.period_ns),
                time(task.offset_ns),
                time(task.deadline_ns)
            );
        }
    }
    text
}

/// In the largest unit in which it is a whole number.
fn time(time_ns: i64) -> String {
    let (unit_ns, unit) = [(1_000_000, "ms"), (1_000, "us"), (1, "ns")]
        .into_iter()
        .find(|(unit_ns, _)| time_ns % unit_ns == 0)
        .unwrap_or((1, "ns"));
    format!("{} {unit}", time_ns / unit_ns)
}
