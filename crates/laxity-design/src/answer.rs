//! The design of a host: the values for its open keys.

use laxity_host::{Domain, Host, Open, OpenDomain, Policy};
use rayon::prelude::*;
use serde::Serialize;

use crate::conflict::{Impossible, impossible};
use crate::designs::{Failed, groups_designed};
use crate::group::{Group, cpu_time, retain, room_of, share};
use crate::reasons::{self, Alternative, Binding, Point, Room};
use crate::request::{Aim, Request, names, policies, prepared, with_policy};
use crate::search::{Effort, Search};

/// What came of a design.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Answer {
    /// Every deadline is guaranteed with these values.
    Holds(Design),
    /// No values were found with which every deadline is guaranteed.
    Impossible(Impossible),
}

/// Why a question makes no sense for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The value of the file that is in the way, as overrides name it.
    pub path: String,
    /// Why.
    pub message: String,
    /// What would be right.
    pub help: String,
}

/// Values for what was open.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Design {
    /// The policy.
    pub policy: String,
    /// In the order of the host.
    pub domains: Vec<DomainDesign>,
    /// The part of all CPUs' time that is reserved as budgets.
    pub cpu_share: f64,
    /// The part of all CPUs' time that the tasks need.
    pub load: f64,
    /// The values, each with its path, as TOML.
    pub values: Vec<(String, String)>,
    /// What limits each domain's budget.
    pub bindings: Vec<Binding>,
    /// How much each task may grow.
    pub rooms: Vec<Room>,
    /// What other choices would have cost.
    pub alternatives: Vec<Alternative>,
    /// The factor by which every cost may be greater, where the aim was room.
    pub room_factor: Option<f64>,
    /// What room costs, from none to the most: no other point has more of it for as much time.
    pub front: Vec<Point>,
}

/// The values of one domain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DomainDesign {
    /// The domain's name.
    pub name: String,
    /// The budget of each of its VCPUs.
    pub budget_ns: i64,
    /// The period.
    pub period_ns: i64,
    /// The priority.
    pub priority: u32,
    /// The part of one CPU that its budgets are.
    pub share: f64,
    /// The part of one CPU that its tasks need.
    pub load: f64,
}

/// Finds values for what is open in a host. `host` is what [`laxity_host::Document::open`] gives, with placeholders for
/// open values; the CPUs of its VCPUs are taken as they are.
///
/// # Errors
///
/// Why the question makes no sense for this host.
pub fn design(host: &Host, open: &Open, request: Request) -> Result<Answer, Refusal> {
    refusal(host, open).map_or(Ok(()), Err)?;
    let host = &prepared(host, request);
    refused_growth(host, open, request).map_or(Ok(()), Err)?;
    let policies = policies(host, open);
    let answers: Vec<Result<Vec<Group>, Box<Failed>>> = policies
        .par_iter()
        .map(|&policy| groups_designed(&with_policy(host, policy), open, request, Effort::FULL))
        .collect();
    let best = answers
        .iter()
        .zip(policies)
        .filter_map(|(answer, &policy)| Some((answer.as_ref().ok()?, policy)))
        .min_by(|(one, _), (other, _)| {
            let least_time = cpu_time(one).total_cmp(&cpu_time(other));
            match request.aim {
                Aim::LeastTime | Aim::Room(_) => least_time,
                Aim::MostRoom => room_of(other).total_cmp(&room_of(one)).then(least_time),
            }
        });
    Ok(match best {
        Some((groups, policy)) => {
            Answer::Holds(designed(&with_policy(host, policy), open, request, groups))
        }
        None => {
            let failed = policies.iter().zip(&answers);
            let failed: Vec<(Policy, &Failed)> = failed
                .filter_map(|(&policy, answer)| Some((policy, &**answer.as_ref().err()?)))
                .collect();
            Answer::Impossible(impossible(host, open, request, &failed))
        }
    })
}

/// Values of a host without reasons, for what is asked of many hosts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Values {
    /// The policy.
    pub policy: String,
    /// The part of all CPUs' time that is reserved as budgets.
    pub cpu_share: f64,
    /// The values, each with its path, as TOML.
    pub values: Vec<(String, String)>,
}

/// Finds values as [`design`] does, with a twelfth of its effort and without reasons. `None`: none were found.
///
/// # Errors
///
/// Why the question makes no sense for this host.
pub fn values_of(host: &Host, open: &Open) -> Result<Option<Values>, Refusal> {
    refusal(host, open).map_or(Ok(()), Err)?;
    let policies = policies(host, open);
    let answers = policies.iter().filter_map(|&policy| {
        let host = with_policy(host, policy);
        let effort = Effort::FULL.less();
        let groups = groups_designed(&host, open, Request::default(), effort).ok()?;
        Some((host, groups))
    });
    let best = answers.min_by(|(_, one), (_, other)| cpu_time(one).total_cmp(&cpu_time(other)));
    Ok(best.map(|(host, groups)| Values {
        policy: host.policy.name().into(),
        cpu_share: cpu_time(&groups) / f64::from(host.cpus),
        values: values(&host, open, &domains_designed(&host, &groups)),
    }))
}

/// The least part of a CPU that each domain of the file needs by itself, in its order, for placing them: the least
/// under any policy that may be chosen, and `None` where no budget is enough. Domains whose budget is given have that
/// part, and their helpers are left out.
pub fn least_shares(host: &Host, open: &Open, request: Request) -> Vec<Option<f64>> {
    let host = &prepared(host, request);
    let share = |domain: usize, policy: Policy| {
        let group = Group::of_domains(&with_policy(host, policy), open, vec![domain]);
        Search::new(&group, Effort::FULL).least_share(0)
    };
    (0..open.domains.len())
        .into_par_iter()
        .map(|domain| {
            let shares = policies(host, open).iter();
            let shares = shares.filter_map(|&policy| share(domain, policy));
            shares.min_by(f64::total_cmp)
        })
        .collect()
}

/// The part of a CPU that a domain of the file needs at least, wherever it is: what is given to it, or what its tasks
/// compute.
pub fn needed(host: &Host, open: &Open, number: usize) -> f64 {
    let domain = &host.domains[number];
    match open.domains[number].is_given() {
        true => share(domain),
        false => load(domain),
    }
}

/// The names of the policies that may be chosen for a host.
pub fn policy_names(host: &Host, open: &Open) -> Vec<String> {
    names(policies(host, open).iter().copied())
}

/// The host with these demands alone, each a domain's name and a task's; no task stands for the budget and the period
/// that are given to the domain. Domains of which no demand is left are left out.
pub fn with_only(host: &Host, open: &Open, demands: &[(String, Option<String>)]) -> (Host, Open) {
    let (mut only, mut open) = (host.clone(), open.clone());
    retain(&mut only.domains, &mut open.domains, |domain, task| {
        let domain = &host.domains[domain];
        let task = task.map(|task| domain.tasks[task].name.as_str());
        (demands.iter()).any(|(name, of)| *name == domain.name && of.as_deref() == task)
    });
    (only, open)
}

/// Why a host of a fleet cannot be designed by analysis.
pub fn refusal_of_fleet(host: &Host, open: &Open) -> Option<Refusal> {
    if open.policy || host.policy.is_partitioned() || !laxity_analysis::has_bounds(host.policy) {
        return refusal(host, open);
    }
    let policy = host.policy.name();
    Some(Refusal {
        path: "host.policy".into(),
        message: format!(
            "a fleet's guests are placed on dedicated CPUs, which guarantees no deadline under the {policy} policy"
        ),
        help: "write \"deferrable\", say, or design each host by itself".into(),
    })
}

/// Why a host cannot be designed by analysis.
pub fn refusal(host: &Host, open: &Open) -> Option<Refusal> {
    let refused = |path: String, message: String, help: &str| {
        let help = help.into();
        Some(Refusal {
            path,
            message,
            help,
        })
    };
    if let Some(path) = open.others.first() {
        return refused(
            path.clone(),
            format!("`laxity design` cannot find a value for `{path}`"),
            "write a value; budget, period, priority, affinity and policy may be open",
        );
    }
    let policy = host.policy;
    if !open.policy && !laxity_analysis::has_bounds(policy) {
        let (path, help) = (
            "host.policy",
            "write policy = \"?\", or \"deferrable\", say, or give --missed",
        );
        let why = match policy.has_budgets() || policy.is_model() {
            true => format!("analysis has no bound for the {} policy", policy.name()),
            false => format!("the {} policy gives VCPUs no budgets", policy.name()),
        };
        return refused(
            path.into(),
            format!("{why}, so no deadline is guaranteed"),
            help,
        );
    }
    if !open.policy
        && let Some((number, key, why)) = laxity_analysis::beyond_bounds(host)
    {
        let path = format!("{}.{key}", open.domains[number].path);
        let help = match key {
            "extratime" => "leave it out",
            _ => "let two domains share all of their CPUs or none",
        };
        return refused(path, why, help);
    }
    let domains = || host.domains.iter().zip(&open.domains);
    if let Some((domain, of)) = domains().find(|(domain, _)| domain.workload.is_some()) {
        return refused(
            format!("{}.workload", of.path),
            format!(
                "analysis has no bound on how often {} wakes, because that depends on packets or pauses",
                domain.name
            ),
            "leave it out, or use `laxity sweep` and `laxity capacity`, which simulate",
        );
    }
    let fetches =
        |(domain, _): &(&Domain, _)| !host.caches.is_empty() && domain.working_set_bytes > 0;
    if let Some((_, of)) = domains().find(fetches) {
        return refused(
            format!("{}.working-set", of.path),
            "analysis has no bound on the cost of a cold cache, so it guarantees no deadline"
                .into(),
            "leave it out, and include it in the costs of a context switch",
        );
    }
    let is_idle =
        |(domain, of): &(&Domain, &OpenDomain)| (of.budget || of.period) && domain.tasks.is_empty();
    if let Some((domain, of)) = domains().find(is_idle) {
        return refused(
            of.path.clone(),
            format!(
                "the demand of {} is unknown: it has neither tasks nor a budget and a period",
                domain.name
            ),
            "write its budget and period, or its tasks",
        );
    }
    None
}

/// The reason why costs cannot grow by the requested factor.
fn refused_growth(host: &Host, open: &Open, request: Request) -> Option<Refusal> {
    let factor = request.growth();
    let tasks = (host.domains.iter().zip(&open.domains)).flat_map(|(domain, of)| {
        let named = move |task| (domain, of, task);
        domain.tasks.iter().map(named)
    });
    let most = tasks
        .map(|(domain, of, task)| {
            (
                task.deadline_ns as f64 / task.cost_ns as f64,
                domain,
                of,
                task,
            )
        })
        .min_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let (most, domain, of, task) = most.filter(|(most, ..)| *most < factor)?;
    Some(Refusal {
        path: format!("{}.tasks.{}.cost", of.path, task.name),
        message: format!(
            "with every cost multiplied by {factor}, {}/{} takes longer than its deadline",
            domain.name, task.name
        ),
        help: format!("ask for less than {most:.4}"),
    })
}

/// The values of each domain, in the order of the host.
fn domains_designed(host: &Host, groups: &[Group]) -> Vec<DomainDesign> {
    let mut domains: Vec<Option<DomainDesign>> = vec![None; host.domains.len()];
    for group in groups {
        for (domain, &number) in group.host.domains.iter().zip(&group.numbers) {
            domains[number] = Some(domain_design(domain));
        }
    }
    domains.into_iter().flatten().collect()
}

fn designed(host: &Host, open: &Open, request: Request, groups: &[Group]) -> Design {
    let domains = domains_designed(host, groups);
    let of_all_cpus = |time: f64| time / f64::from(host.cpus);
    let cpu_share = of_all_cpus(cpu_time(groups));
    let (bindings, rooms, alternatives, front) = match request.values_only {
        true => (Vec::new(), Vec::new(), Vec::new(), Vec::new()),
        false => (
            reasons::bindings(groups),
            reasons::rooms(groups),
            reasons::alternatives(host, open, request),
            reasons::front(host, open, request, cpu_share),
        ),
    };
    Design {
        policy: host.policy.name().into(),
        cpu_share,
        load: of_all_cpus(domains.iter().map(|domain| domain.load).sum()),
        values: values(host, open, &domains),
        bindings,
        rooms,
        alternatives,
        room_factor: Some(room_of(groups)).filter(|factor| factor.is_finite()),
        front,
        domains,
    }
}

fn domain_design(domain: &Domain) -> DomainDesign {
    DomainDesign {
        name: domain.name.clone(),
        budget_ns: domain.parameters.budget_ns,
        period_ns: domain.parameters.period_ns,
        priority: domain.parameters.priority,
        share: share(domain),
        load: load(domain),
    }
}

/// The part of one CPU that a domain's tasks need.
fn load(domain: &Domain) -> f64 {
    let tasks = domain.tasks.iter();
    tasks
        .map(|task| task.cost_ns as f64 / task.period_ns as f64)
        .sum()
}

fn values(host: &Host, open: &Open, domains: &[DomainDesign]) -> Vec<(String, String)> {
    let mut values = Vec::new();
    if open.policy {
        values.push(("host.policy".into(), format!("{:?}", host.policy.name())));
    }
    let time = |ns: i64| format!("{:?}", laxity_config::format_duration(ns));
    // Under SEDF and rtds they mean nothing, but a file has them of all domains or of none.
    let has_priorities = host.policy.is_fixed_priority_server() || open.has_priorities;
    let cpus: Vec<String> = (0..host.cpus).map(|cpu| cpu.to_string()).collect();
    let all_cpus = format!("[{}]", cpus.join(", "));
    for (open, domain) in open.domains.iter().zip(domains) {
        let mut put = |is_open: bool, key: &str, value: String| {
            if is_open {
                values.push((format!("{}.{key}", open.path), value));
            }
        };
        put(open.budget, "budget", time(domain.budget_ns));
        put(open.period, "period", time(domain.period_ns));
        put(
            open.priority && has_priorities,
            "priority",
            domain.priority.to_string(),
        );
        // CPUs that were chosen are given by now: these are all that the domain may run on.
        put(open.affinity_is_asked, "affinity", all_cpus.clone());
    }
    values
}
