//! From a host to a verdict on every task.

use laxity_config::format_duration;
use laxity_host::{GuestScheduler, Host, Policy, Profile, ProfileOf, Workload};
use serde::Serialize;

use crate::Ns;
use crate::guest::{self, GuestTask, Response};
use crate::servers::{Assured, Nothing, Server, Servers};

/// Whether every task's deadline is guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every task of every domain is guaranteed.
    Schedulable,
    /// Some task is not. It may well meet its deadlines, but analysis cannot show it.
    NotGuaranteed,
    /// No task is without a guarantee, but the host has calls, of which analysis says nothing.
    NotAnalysed,
}

/// A part of a host that the verdict says nothing about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotAnalysed {
    /// The part.
    pub what: String,
    /// The domains that it is in, in the order of the host; empty for a part of the whole host.
    pub domains: Vec<String>,
}

/// What analysis says of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The policy's name.
    pub policy: String,
    /// Of the whole host.
    pub verdict: Verdict,
    /// In the order of the host.
    pub domains: Vec<DomainCheck>,
    /// What a run shows and analysis does not.
    pub not_analysed: Vec<NotAnalysed>,
    /// The profiles whose costs are in the bounds.
    pub profiles: Vec<Profile>,
}

/// What analysis says of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DomainCheck {
    /// The domain's name.
    pub name: String,
    /// In the order of the host; empty for a guest without tasks, which has no deadline.
    pub tasks: Vec<TaskCheck>,
}

/// What analysis says of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskCheck {
    /// The task's name.
    pub name: String,
    /// Whether no job can miss its deadline.
    pub guaranteed: bool,
    /// No job takes longer than this from its arrival to its completion; `None` where no bound is
    /// known.
    pub bound_ns: Option<i64>,
    /// The task's deadline, relative to the arrival.
    pub deadline_ns: i64,
    /// The test that gave the bound.
    pub test: Option<String>,
    /// Why the task is not guaranteed.
    pub why: Option<String>,
}

/// Bounds on the response times of all tasks of a host. Takes no randomness and no duration into
/// account: what is guaranteed holds for every seed and for ever.
pub fn check(host: &Host) -> Check {
    let mut domains: Vec<DomainCheck> = host
        .domains
        .iter()
        .map(|domain| DomainCheck {
            name: domain.name.clone(),
            tasks: Vec::new(),
        })
        .collect();
    let mut answers = Vec::new();
    for cpu in 0..host.cpus {
        let vcpus = vcpus_of(host, cpu);
        let servers = match host.policy {
            policy if policy.shares_by_weight() => Vec::new(),
            _ => vcpus.iter().map(|vcpu| server_of(host, vcpu)).collect(),
        };
        let servers = Servers::new(host, servers);
        for (number, vcpu) in vcpus.iter().enumerate() {
            if !vcpu.tasks.is_empty() {
                check_vcpu(host, &servers, number, vcpu, &mut answers);
            }
        }
    }
    answers.sort_by_key(|&(domain, task, _)| (domain, task));
    let guaranteed = answers.iter().all(|(_, _, answer)| answer.guaranteed);
    for (domain, _, answer) in answers {
        domains[domain].tasks.push(answer);
    }
    Check {
        policy: host.policy.name().into(),
        verdict: match (guaranteed, &host.calls) {
            (false, _) => Verdict::NotGuaranteed,
            (true, Some(_)) => Verdict::NotAnalysed,
            (true, None) => Verdict::Schedulable,
        },
        domains,
        not_analysed: not_analysed(host),
        profiles: (host.profiles.iter())
            .filter(|profile| profile.of == ProfileOf::Scheduling)
            .cloned()
            .collect(),
    }
}

/// Calls first, which are what the host is for; then what the domains do beside tasks and endless loops.
fn not_analysed(host: &Host) -> Vec<NotAnalysed> {
    let mut parts = Vec::new();
    let mut add = |what: &str, domain: Option<&str>| {
        let place = parts
            .iter()
            .position(|part: &NotAnalysed| part.what == what);
        let place = place.unwrap_or_else(|| {
            parts.push(NotAnalysed {
                what: what.into(),
                domains: Vec::new(),
            });
            parts.len() - 1
        });
        parts[place].domains.extend(domain.map(String::from));
    };
    if let Some(calls) = &host.calls {
        if calls.streams > 0 || calls.rate.is_some() {
            add("loss, delay and quality of calls", None);
        }
        if calls.registrations.is_some() {
            add("registrations", None);
        }
    }
    if let Some(network) = &host.network {
        if network.link.is_some() {
            add("agreements about a link", None);
        }
        if network.protect.is_some() {
            add("checkpoints and failures", None);
        }
    }
    for domain in &host.domains {
        let what = match &domain.workload {
            Some(Workload::Driver) => "the driver domain",
            Some(Workload::MediaServer(_)) => "a media server",
            Some(Workload::SignallingServer(_)) => "a signalling server",
            Some(Workload::CallControl(_)) => "call control",
            Some(Workload::Sender { .. }) => "a sender",
            Some(Workload::Bursts { .. }) => "computation with pauses",
            None => continue,
        };
        add(what, Some(&domain.name));
    }
    parts
}

/// A VCPU by its place in the host, and its tasks by theirs in the domain, in order of rank.
struct Place {
    domain: usize,
    vcpu: usize,
    tasks: Vec<usize>,
}

fn vcpus_of(host: &Host, cpu: u32) -> Vec<Place> {
    let mut places = Vec::new();
    for (number, domain) in host.domains.iter().enumerate() {
        for (vcpu, _) in domain
            .vcpus
            .iter()
            .enumerate()
            .filter(|(_, vcpu)| vcpu.cpu == cpu)
        {
            let mut tasks: Vec<usize> = (0..domain.tasks.len())
                .filter(|&task| domain.tasks[task].vcpu as usize == vcpu)
                .collect();
            tasks.sort_by_key(|&task| domain.tasks[task].period_ns);
            places.push(Place {
                domain: number,
                vcpu,
                tasks,
            });
        }
    }
    places
}

fn server_of(host: &Host, place: &Place) -> Server {
    let domain = &host.domains[place.domain];
    let parameters = &domain.parameters;
    let (period_ns, quantum_ns) = (parameters.period_ns, host.settings.quantum_ns);
    let is_late = match host.policy {
        Policy::Sporadic | Policy::Sedf => quantum_ns > 0,
        _ => quantum_ns > 0 && period_ns % quantum_ns != 0,
    };
    let is_bound = |task: &laxity_host::Task| {
        host.policy != Policy::Sporadic
            && !is_late
            && task.jitter_ns == 0
            && task.period_ns % period_ns == 0
            && task.offset_ns % period_ns == 0
    };
    // Under SEDF a wake at any other time would shift the periods.
    let keeps_phase = host.policy != Policy::Sedf
        || domain.cpu_bound
        || domain.tick.is_none()
            && place
                .tasks
                .iter()
                .all(|&task| is_bound(&domain.tasks[task]));
    Server {
        budget_ns: parameters.budget_ns.into(),
        period_ns: period_ns.into(),
        priority: parameters.priority,
        late_ns: if is_late { quantum_ns.into() } else { 0 },
        guest: domain.guest,
        tasks: (domain.tick.iter().map(GuestTask::of_tick))
            .chain(place.tasks.iter().map(|&task| {
                let task = &domain.tasks[task];
                GuestTask::new(task, keeps_phase && is_bound(task))
            }))
            .collect(),
        cpu_bound: domain.cpu_bound,
    }
}

/// What of a host analysis has no bound for.
fn beyond_analysis(host: &Host) -> Option<String> {
    let wakes = host.domains.iter().find(|domain| domain.workload.is_some());
    if let Some(domain) = wakes {
        return Some(format!(
            "analysis has no bound on how often {} wakes, which packets or pauses decide",
            domain.name
        ));
    }
    let fetches = host
        .domains
        .iter()
        .any(|domain| domain.working_set_bytes > 0);
    (fetches && !host.caches.is_empty())
        .then(|| "analysis does not know what a cold cache costs".to_string())
}

fn check_vcpu(
    host: &Host,
    servers: &Servers<'_>,
    number: usize,
    place: &Place,
    answers: &mut Vec<(usize, usize, TaskCheck)>,
) {
    let domain = &host.domains[place.domain];
    let vcpu = format!("VCPU {} of {}", place.vcpu, domain.name);
    let assured = beyond_analysis(host).map_or_else(
        || {
            servers
                .assured(number)
                .map_err(|nothing| nothing_because(nothing, &vcpu))
        },
        Err,
    );
    let assured = match assured {
        Ok(assured) => assured,
        Err(why) => {
            answers.extend(place.tasks.iter().map(|&task| {
                (
                    place.domain,
                    task,
                    TaskCheck::unknown(&domain.tasks[task], why.clone()),
                )
            }));
            return;
        }
    };
    let tasks = &servers.servers[number].tasks;
    match domain.guest {
        GuestScheduler::RateMonotonic => {
            let ticks = usize::from(domain.tick.is_some());
            let responses = guest::fixed_priority(tasks, &assured.supply);
            for (&task, response) in place.tasks.iter().zip(responses.into_iter().skip(ticks)) {
                let task_check = match response {
                    Some(response) => bounded(host, &domain.tasks[task], response, &vcpu, &assured),
                    None => {
                        let why = format!(
                            "this task and those of higher rank on {vcpu} can need more than it is assured{}",
                            shortfall(&vcpu, &assured)
                        );
                        TaskCheck::unknown(&domain.tasks[task], why)
                    }
                };
                answers.push((place.domain, task, task_check));
            }
        }
        GuestScheduler::Edf => {
            let schedulable = guest::edf_is_schedulable(tasks, &assured.supply);
            for &number in &place.tasks {
                let task = &domain.tasks[number];
                let task_check = if schedulable {
                    TaskCheck {
                        name: task.name.clone(),
                        guaranteed: true,
                        bound_ns: Some(task.deadline_ns),
                        deadline_ns: task.deadline_ns,
                        test: Some("periodic-resource-model edf".into()),
                        why: None,
                    }
                } else {
                    let why = format!(
                        "the tasks on {vcpu} can need more by some deadline than it is assured{}",
                        shortfall(&vcpu, &assured)
                    );
                    TaskCheck::unknown(task, why)
                };
                answers.push((place.domain, number, task_check));
            }
        }
    }
}

impl TaskCheck {
    fn unknown(task: &laxity_host::Task, why: String) -> TaskCheck {
        TaskCheck {
            name: task.name.clone(),
            guaranteed: false,
            bound_ns: None,
            deadline_ns: task.deadline_ns,
            test: None,
            why: Some(why),
        }
    }
}

fn bounded(
    host: &Host,
    task: &laxity_host::Task,
    response: Response,
    vcpu: &str,
    assured: &Assured,
) -> TaskCheck {
    let Ok(bound_ns) = i64::try_from(response.bound_ns) else {
        return TaskCheck::unknown(
            task,
            "its response-time bound is beyond every deadline".into(),
        );
    };
    let guaranteed = bound_ns <= task.deadline_ns;
    let test = match host.policy {
        Policy::Sedf => "periodic-resource-model rate-monotonic".into(),
        policy => {
            let kind = if response.bound_task {
                "bound"
            } else {
                "unbound"
            };
            format!("davis-burns-2005 {} {kind}", policy.name())
        }
    };
    let why = || {
        format!(
            "its response-time bound, {}, is above its deadline, {}{}",
            format_duration(bound_ns),
            format_duration(task.deadline_ns),
            shortfall(vcpu, assured)
        )
    };
    TaskCheck {
        name: task.name.clone(),
        guaranteed,
        bound_ns: Some(bound_ns),
        deadline_ns: task.deadline_ns,
        test: Some(test),
        why: (!guaranteed).then(why),
    }
}

/// The end of a sentence on a VCPU that is not assured all of its budget.
fn shortfall(vcpu: &str, assured: &Assured) -> String {
    let Some(sure_ns) = assured.short_ns else {
        return String::new();
    };
    format!(
        "; {vcpu} is not schedulable as a server: the others leave it only {} of its budget in every period for sure",
        short_duration(sure_ns)
    )
}

fn short_duration(time_ns: Ns) -> String {
    format_duration(i64::try_from(time_ns).unwrap_or(i64::MAX))
}

fn nothing_because(nothing: Nothing, vcpu: &str) -> String {
    match nothing {
        Nothing::Shares => {
            "credit gives shares of CPU over time, and no bound on how long a VCPU waits for its share".into()
        }
        Nothing::SedfQuantum => {
            "with a quantum sedf can let a VCPU run on with a period that is over".into()
        }
        Nothing::Crowded => format!(
            "{vcpu} is not schedulable as a server: those that come before it, or are its equals, can take all of its \
             period"
        ),
        Nothing::SporadicCrowded => format!(
            "{vcpu} is not schedulable as a server: those that come before it, or are its equals, can keep it from using \
             its budget within a period"
        ),
        Nothing::Costs => {
            format!("the costs of scheduling can take all of the budget of {vcpu}")
        }
    }
}
