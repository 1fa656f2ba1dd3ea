//! The check of a host: a verdict on every task.

use std::collections::BTreeSet;
use std::iter;

use laxity_config::format_duration;
use laxity_host::{Domain, GuestScheduler, Host, Policy, Profile, ProfileOf, Vcpu, Workload};
use serde::Serialize;

use crate::effort::Effort;
use crate::guest::{self, GuestTask, History, Kind, Response, Useful};
use crate::server::{Server, quantum_ns};
use crate::servers::{Assured, Nothing, Servers};
use crate::supply::Supply;
use crate::time::Ns;

/// Whether every task's deadline is guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every task of every domain is guaranteed.
    Schedulable,
    /// Some task is not. It may well meet its deadlines, but analysis cannot show it.
    NotGuaranteed,
    /// No task is without a guarantee, but the host has calls or agreements about a link, of which analysis says
    /// nothing.
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
    /// Verdict on the whole host.
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
    if let Some(server) = server_that_lends(host) {
        return Check {
            policy: host.policy.name().into(),
            ..check(&server)
        };
    }
    let mut domains: Vec<DomainCheck> = host
        .domains
        .iter()
        .map(|domain| DomainCheck {
            name: domain.name.clone(),
            tasks: Vec::new(),
        })
        .collect();
    let mut answers: Vec<_> = (shares(host).iter())
        .flat_map(|cpus| answers(host, cpus, |_| true))
        .collect();
    answers.sort_by_key(|&(domain, task, _)| (domain, task));
    let guaranteed = answers.iter().all(|(_, _, answer)| answer.guaranteed);
    for (domain, _, answer) in answers {
        domains[domain].tasks.push(answer);
    }
    Check {
        policy: host.policy.name().into(),
        verdict: match (guaranteed, is_more_than_tasks(host)) {
            (false, _) => Verdict::NotGuaranteed,
            (true, true) => Verdict::NotAnalysed,
            (true, false) => Verdict::Schedulable,
        },
        domains,
        not_analysed: not_analysed(host),
        profiles: (host.profiles.iter())
            .filter(|profile| profile.of == ProfileOf::Scheduling)
            .cloned()
            .collect(),
    }
}

/// Whether every deadline of one domain is guaranteed whatever the guests of the others ask for. [`check`] guarantees
/// what this does, and more: it also counts that guests use less than their budgets, which takes longer to find out
/// than a search over many hosts can wait.
pub fn is_guaranteed(host: &Host, domain: usize) -> bool {
    Budgets::new(host, domain).is_guaranteed()
}

/// [`is_guaranteed`] of one domain with one budget after the other, for searches: the others are looked at once.
pub struct Budgets {
    has_bounds: bool,
    /// For all CPUs of the domain that are analysed together all VCPUs, and which of them are the domain's, each with
    /// whether it has tasks.
    shares: Vec<(Servers, Vec<(usize, bool)>)>,
}

impl Budgets {
    /// Takes the domain of that number.
    pub fn new(host: &Host, domain: usize) -> Budgets {
        if let Some(server) = server_that_lends(host) {
            return Budgets::new(&server, domain);
        }
        let of_share = |cpus: Vec<u32>| {
            let (vcpus, mut servers) = vcpus_and_servers(host, &cpus, Effort::Little);
            let own: Vec<(usize, bool)> = (vcpus.iter().enumerate())
                .filter(|(_, vcpu)| vcpu.domain == domain)
                .map(|(number, vcpu)| (number, !vcpu.tasks.is_empty()))
                .collect();
            if let [(number, _)] = own[..] {
                servers.vary(number);
            }
            (servers, own)
        };
        Budgets {
            has_bounds: beyond_analysis(host).is_none(),
            shares: shares_of(host, domain).into_iter().map(of_share).collect(),
        }
    }

    /// Whether the domain is guaranteed if each of its VCPUs has this budget.
    pub fn are_enough(&mut self, budget_ns: i64) -> bool {
        for (servers, own) in &mut self.shares {
            for (number, _) in own {
                if let Some(server) = servers.servers.get_mut(*number) {
                    server.budget_ns = budget_ns.into();
                }
            }
            servers.find_slacks();
        }
        self.is_guaranteed()
    }

    fn is_guaranteed(&self) -> bool {
        self.shares.iter().all(|(servers, own)| {
            (own.iter())
                .filter(|(_, has_tasks)| *has_tasks)
                .all(|(number, _)| self.has_bounds && holds(servers, *number))
        })
    }
}

/// Whether [`check`] guarantees every deadline of one domain.
pub fn is_accepted(host: &Host, domain: usize) -> bool {
    if let Some(server) = server_that_lends(host) {
        return is_accepted(&server, domain);
    }
    shares_of(host, domain)
        .iter()
        .flat_map(|cpus| answers(host, cpus, |place| place.domain == domain))
        .all(|(_, _, answer)| answer.guaranteed)
}

/// The CPUs for which a VCPU competes with others: its own, or where there are clusters all of its affinity.
pub fn share_of(host: &Host, vcpu: &Vcpu) -> Vec<u32> {
    match host.policy.has_clusters() {
        true => vcpu.affinity.clone(),
        false => vec![vcpu.cpu],
    }
}

/// CPUs whose VCPUs are analysed together.
fn shares(host: &Host) -> BTreeSet<Vec<u32>> {
    (0..host.domains.len())
        .flat_map(|domain| shares_of(host, domain))
        .collect()
}

/// Those of a domain.
fn shares_of(host: &Host, domain: usize) -> BTreeSet<Vec<u32>> {
    (host.domains[domain].vcpus.iter())
        .map(|vcpu| share_of(host, vcpu))
        .collect()
}

/// Whether the policy assures a VCPU what its tasks need, with what is known of all.
fn holds(servers: &Servers, number: usize) -> bool {
    let Some(server) = servers.servers.get(number) else {
        return false; // The policy has no budgets.
    };
    let by_budget = servers.by_budget(number).ok();
    let supplies = by_budget.into_iter().flat_map(|assured| assured.supplies);
    let free = iter::once_with(|| servers.never_waits(number)).flatten();
    let mut best = vec![None; server.tasks.len()];
    for supply in supplies.chain(free) {
        improve(servers, number, &supply, Useful::InTime, &mut best);
        let mut tasks = best.iter().zip(&server.tasks);
        let all_hold = tasks.all(|(response, task)| {
            task.is_tick || response.is_some_and(|response| response.bound_ns <= task.deadline_ns)
        });
        if all_hold {
            return true;
        }
    }
    false
}

fn vcpus_and_servers(host: &Host, cpus: &[u32], effort: Effort) -> (Vec<Place>, Servers) {
    let vcpus = vcpus_of(host, cpus);
    let servers = match host.policy {
        policy if !policy.has_budgets() => Vec::new(),
        _ => vcpus.iter().map(|vcpu| server_of(host, vcpu)).collect(),
    };
    (vcpus, Servers::new(host, effort, cpus.len(), servers))
}

/// The host whose bounds hold for a host with lending servers: each job ends no later than with its sporadic
/// server alone. A VCPU may be switched to once more for each job, when its server has served the lead that
/// comes before it; that is a decision more, which the job pays.
fn server_that_lends(host: &Host) -> Option<Host> {
    if host.policy != Policy::Lending || no_bound_for_lending(host).is_some() {
        return None;
    }
    let decision_ns = host.costs.schedule.max_ns() + host.costs.context_switch.max_ns();
    let mut server = host.clone();
    server.policy = Policy::Sporadic;
    for domain in &mut server.domains {
        for task in &mut domain.tasks {
            task.cost_ns += decision_ns;
        }
    }
    Some(server)
}

/// Why jobs may end later than with their sporadic servers alone. A lead goes on while a timer is late, and while a
/// guest has not told of a more urgent job.
fn no_bound_for_lending(host: &Host) -> Option<String> {
    if host.timer_latency_ns > 0 {
        return Some("where its timers are served late".into());
    }
    let tells_late = |domain: &&Domain| {
        let by_interrupts = domain.tick.is_some_and(|tick| tick.interrupt_ns() > 0);
        let mut tasks = domain
            .tasks
            .iter()
            .map(|task| task.vcpu)
            .collect::<Vec<u32>>();
        tasks.sort_unstable();
        by_interrupts && tasks.windows(2).any(|two| two[0] == two[1])
    };
    let domain = host.domains.iter().find(tells_late)?;
    Some(format!(
        "where a guest tells of a job late, as {} does: its jobs come by interrupts, and one of its VCPUs has several \
         tasks",
        domain.name
    ))
}

/// What analysis says of the tasks of some VCPUs of CPUs that are analysed together, each with its domain and its
/// number there.
fn answers(
    host: &Host,
    cpus: &[u32],
    is_asked: impl Fn(&Place) -> bool,
) -> Vec<(usize, usize, TaskCheck)> {
    let mut answers = Vec::new();
    let (vcpus, mut servers) = vcpus_and_servers(host, cpus, Effort::Full);
    if beyond_analysis(host).is_none() {
        find_responses(&mut servers);
    }
    for (number, vcpu) in vcpus.iter().enumerate() {
        if !vcpu.tasks.is_empty() && is_asked(vcpu) {
            check_vcpu(host, &servers, number, vcpu, &mut answers);
        }
    }
    answers
}

/// How often bounds are looked for again with those that were found. One that is not the best is a bound.
const ROUNDS_MAX: usize = 4;

/// Finds bounds on the response times of all tasks of VCPUs that are analysed together. Those of one VCPU's tasks bound
/// what they ask for, and with it those of the VCPUs that it keeps waiting, and what they themselves used before; so
/// every bound that is found may make others less.
fn find_responses(servers: &mut Servers) {
    let mut order: Vec<usize> = (0..servers.servers.len())
        .filter(|&number| !servers.servers[number].tasks.is_empty())
        .collect();
    order.sort_by_key(|&number| servers.servers[number].priority);
    for _ in 0..ROUNDS_MAX {
        let mut has_changed = false;
        servers.find_slacks();
        for &number in &order {
            let Ok(assured) = servers.assured(number) else {
                continue;
            };
            let found = responses(servers, number, &assured);
            let responses_ns = &mut servers.servers[number].responses_ns;
            for (known_ns, found) in responses_ns.iter_mut().zip(found) {
                let Some(found) = found else { continue };
                if known_ns.is_none_or(|known_ns| found.bound_ns < known_ns) {
                    *known_ns = Some(found.bound_ns);
                    has_changed = true;
                }
            }
        }
        if !has_changed {
            break;
        }
    }
}

/// Bounds on the response times of the tasks of a VCPU, with what is known of all.
fn responses(servers: &Servers, number: usize, assured: &Assured) -> Vec<Option<Response>> {
    let mut best = vec![None; servers.servers[number].tasks.len()];
    for supply in &assured.supplies {
        improve(servers, number, supply, Useful::All, &mut best);
    }
    best
}

/// Lowers the bounds on the response times of the tasks of a VCPU as far as one supply does.
fn improve(
    servers: &Servers,
    number: usize,
    supply: &Supply,
    useful: Useful,
    best: &mut [Option<Response>],
) {
    let server = &servers.servers[number];
    let history = match supply.memory_ns {
        Some(window_ns) => History {
            window_ns,
            tasks: server.demand(),
            decisions_ns: servers.woken_ns(number, window_ns),
        },
        None => History::unknown(),
    };
    let found = guest::responses(
        server.guest,
        &server.tasks,
        supply,
        &history,
        servers.effort,
        useful,
    );
    for (best, found) in best.iter_mut().zip(found) {
        *best = ([*best, found].into_iter().flatten()).min_by_key(|response| response.bound_ns);
    }
}

/// Whether the host has calls or agreements about a link, which are what it is for.
fn is_more_than_tasks(host: &Host) -> bool {
    let link = host
        .network
        .as_ref()
        .and_then(|network| network.link.as_ref());
    host.calls.is_some() || link.is_some()
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

fn vcpus_of(host: &Host, cpus: &[u32]) -> Vec<Place> {
    let mut places = Vec::new();
    for (number, domain) in host.domains.iter().enumerate() {
        for (vcpu, _) in domain
            .vcpus
            .iter()
            .enumerate()
            .filter(|(_, vcpu)| share_of(host, vcpu) == cpus)
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
    let policy = host.policy.on_each_cpu().unwrap_or(host.policy);
    let (period_ns, quantum_ns) = (parameters.period_ns, quantum_ns(host));
    let phase_ns = match policy {
        Policy::Rtds => parameters.phase_ns,
        _ => 0,
    };
    let by_quantum_ns = match policy {
        Policy::Sporadic | Policy::Sedf => quantum_ns,
        _ if quantum_ns > 0 && period_ns % quantum_ns != 0 => quantum_ns,
        _ => 0,
    };
    let late_ns = by_quantum_ns + host.timer_latency_ns;
    let is_bound = |task: &laxity_host::Task| {
        policy != Policy::Sporadic
            && late_ns == 0
            && task.jitter_ns == 0
            && domain.tick.is_none_or(|tick| tick.min_delta_ns == 0)
            && task.period_ns % period_ns == 0
            && (task.offset_ns - phase_ns) % period_ns == 0
    };
    // Under SEDF a wake at any other time would shift the periods.
    let keeps_phase = policy != Policy::Sedf
        || domain.cpu_bound
        || domain.tick.is_none()
            && place
                .tasks
                .iter()
                .all(|&task| is_bound(&domain.tasks[task]));
    let tick = domain.tick.as_ref();
    let tasks: Vec<GuestTask> = (place.tasks.iter().map(|&task| &domain.tasks[task]))
        .map(|task| GuestTask::new(task, tick, keeps_phase && is_bound(task)))
        .collect();
    let interrupts = tasks.iter().filter_map(|task| task.interrupt(tick));
    let tasks: Vec<GuestTask> = (tick.map(GuestTask::of_tick).into_iter())
        .chain(interrupts)
        .chain(tasks.iter().copied())
        .collect();
    Server {
        budget_ns: parameters.budget_ns.into(),
        period_ns: period_ns.into(),
        phase_ns: phase_ns.into(),
        priority: parameters.priority,
        late_ns: late_ns.into(),
        guest: domain.guest,
        responses_ns: vec![None; tasks.len()],
        tasks,
        cpu_bound: domain.cpu_bound,
    }
}

/// Whether analysis has bounds for hosts under the policy, other than where no VCPU waits for budget.
pub fn has_bounds(policy: Policy) -> bool {
    policy.is_partitioned() || policy.has_clusters()
}

/// The part of a host that analysis has no bound for.
fn beyond_analysis(host: &Host) -> Option<String> {
    if host.policy.is_model() && !has_bounds(host.policy) {
        return Some(format!(
            "analysis has no bound for the policy {}",
            host.policy.name()
        ));
    }
    if let Some((_, _, why)) = beyond_bounds(host) {
        return Some(why);
    }
    let because = match host.policy {
        Policy::Lending => no_bound_for_lending(host),
        // Late timers move the deadlines by which rtds orders.
        Policy::Rtds if host.timer_latency_ns > 0 => {
            Some("where its timers are served late".into())
        }
        _ => None,
    };
    if let Some(because) = because {
        return Some(format!(
            "analysis has no bound for the policy {} {because}",
            host.policy.name()
        ));
    }
    let wakes = host.domains.iter().find(|domain| domain.workload.is_some());
    if let Some(domain) = wakes {
        return Some(format!(
            "analysis has no bound on how often {} wakes, because that depends on packets or pauses",
            domain.name
        ));
    }
    let fetches = host
        .domains
        .iter()
        .any(|domain| domain.working_set_bytes > 0);
    (fetches && !host.caches.is_empty())
        .then(|| "analysis has no bound on the cost of a cold cache".to_string())
}

/// The part of a host that rules out bounds although its policy has them: the number of a domain, the key of the
/// domain, and the reason.
pub fn beyond_bounds(host: &Host) -> Option<(usize, &'static str, String)> {
    if !host.policy.has_clusters() {
        return None;
    }
    let domains = || host.domains.iter().enumerate();
    let has_extratime = |(_, domain): &(usize, &Domain)| domain.parameters.extratime;
    if host.policy == Policy::Rtds
        && let Some((number, domain)) = domains().find(has_extratime)
    {
        let why = format!(
            "rtds can replenish other VCPUs late while {} runs in extratime",
            domain.name
        );
        return Some((number, "extratime", why));
    }
    let all: Vec<(usize, &[u32])> = domains()
        .flat_map(|(number, domain)| domain.vcpus.iter().map(move |vcpu| (number, vcpu)))
        .map(|(number, vcpu)| (number, &*vcpu.affinity))
        .collect();
    let overlap =
        |one: &[u32], other: &[u32]| one != other && one.iter().any(|cpu| other.contains(cpu));
    let (earlier, later) = all.iter().enumerate().find_map(|(place, later)| {
        let mut before = all[..place].iter();
        let earlier = before.find(|earlier| overlap(earlier.1, later.1))?;
        Some((earlier.0, later.0))
    })?;
    let name = |number: usize| &host.domains[number].name;
    let why = format!(
        "analysis of {} needs clusters of CPUs that do not overlap, and {} and {} share some of their CPUs, but not all",
        host.policy.name(),
        name(later),
        name(earlier)
    );
    Some((later, "affinity", why))
}

fn check_vcpu(
    host: &Host,
    servers: &Servers,
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
    // Those of ticks and interrupts come first.
    let found = responses(servers, number, &assured);
    let of_tasks = found.into_iter().rev().take(place.tasks.len()).rev();
    for (&task, response) in place.tasks.iter().zip(of_tasks) {
        let of = &domain.tasks[task];
        let task_check = match response {
            Some(response) => bounded(servers, of, response, &vcpu, &assured),
            None => {
                let those = match domain.guest {
                    GuestScheduler::RateMonotonic => "this task and the tasks of higher priority",
                    GuestScheduler::Edf => "the tasks",
                };
                let why = format!(
                    "{those} on {vcpu} can need more CPU time than the VCPU is assured{}",
                    shortfall(&vcpu, &assured)
                );
                TaskCheck::unknown(of, why)
            }
        };
        answers.push((place.domain, task, task_check));
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
    servers: &Servers,
    task: &laxity_host::Task,
    response: Response,
    vcpu: &str,
    assured: &Assured,
) -> TaskCheck {
    let Ok(bound_ns) = i64::try_from(response.bound_ns) else {
        return TaskCheck::unknown(
            task,
            "its response-time bound exceeds the longest possible deadline".into(),
        );
    };
    let guaranteed = bound_ns <= task.deadline_ns;
    let (has_clusters, policy) = servers.sharing();
    let test = match (response.kind, policy) {
        (kind, _) if has_clusters => {
            // Without a wait for budget only any order of the VCPUs is a bound.
            let test = match kind {
                Kind::Free => None,
                _ => assured.test,
            };
            let of_guest = match kind {
                Kind::Edf | Kind::EdfDemand => "edf",
                _ => "rate-monotonic",
            };
            format!("{} {of_guest}", test.unwrap_or("bertogna-cirinei-2007"))
        }
        (Kind::Edf, _) => "spuri-1996 edf".into(),
        (Kind::EdfDemand, _) => "periodic-resource-model edf".into(),
        (Kind::Free, _) => "lehoczky-1990 rate-monotonic".into(),
        (_, Policy::Sedf) => "periodic-resource-model rate-monotonic".into(),
        (Kind::Bound, policy) => format!("davis-burns-2005 {} bound", policy.name()),
        (Kind::Unbound, policy) => format!("davis-burns-2005 {} unbound", policy.name()),
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

/// The end of a sentence about a VCPU that is not assured its whole budget.
fn shortfall(vcpu: &str, assured: &Assured) -> String {
    let Some(sure_ns) = assured.short_ns else {
        return String::new();
    };
    format!(
        "; {vcpu} is not schedulable as a server: in the worst case the others leave it only {} of its budget in a period",
        short_duration(sure_ns)
    )
}

fn short_duration(time_ns: Ns) -> String {
    format_duration(i64::try_from(time_ns).unwrap_or(i64::MAX))
}

fn nothing_because(nothing: Nothing, vcpu: &str) -> String {
    match nothing {
        Nothing::Shares => {
            "credit shares the CPU over time, but does not bound how long a VCPU waits for its share".into()
        }
        Nothing::SedfQuantum => {
            "with a quantum, sedf can let a VCPU run beyond the end of its period".into()
        }
        Nothing::Crowded => format!(
            "{vcpu} is not schedulable as a server: VCPUs of higher or equal priority can take all of its \
             period"
        ),
        Nothing::Costs => {
            format!("the costs of scheduling can use up all of the budget of {vcpu}")
        }
    }
}
