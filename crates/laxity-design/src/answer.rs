//! From a host with open values to the values.

use laxity_host::{Host, Open, Policy};
use rayon::prelude::*;
use serde::Serialize;

use crate::conflict::{Impossible, impossible};
use crate::designs::{Failed, groups_designed};
use crate::group::{Group, cpu_time, room_of, share};
use crate::reasons::{self, Alternative, Binding, Point, Room};
use crate::request::{Aim, POLICIES, Request, prepared, with_policy};
use crate::search::{Effort, Search};

/// What came of a design.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Answer {
    /// Every deadline is guaranteed with these values.
    Holds(Design),
    /// No values were found with which every deadline is guaranteed.
    Impossible(Impossible),
    /// The question makes no sense for this host.
    Refused {
        /// Why.
        message: String,
        /// What would be right.
        help: String,
    },
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
pub fn design(host: &Host, open: &Open, request: Request) -> Answer {
    if let Some((message, help)) = refusal(host, open) {
        return Answer::Refused { message, help };
    }
    let host = &prepared(host, request);
    if let Some((message, help)) = refused_growth(host, request) {
        return Answer::Refused { message, help };
    }
    let policies: &[Policy] = match open.policy {
        true => &POLICIES,
        false => std::slice::from_ref(&host.policy),
    };
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
    match (best, answers.first()) {
        (Some((groups, policy)), _) => {
            Answer::Holds(designed(&with_policy(host, policy), open, request, groups))
        }
        (None, Some(Err(failed))) => Answer::Impossible(impossible(failed, host, request)),
        _ => Answer::Refused {
            message: "this host has no domain".into(),
            help: "add one".into(),
        },
    }
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
/// Why the question makes no sense for this host, and what would be right.
pub fn values_of(host: &Host, open: &Open) -> Result<Option<Values>, (String, String)> {
    if let Some(refused) = refusal(host, open) {
        return Err(refused);
    }
    let policies: &[Policy] = match open.policy {
        true => &POLICIES,
        false => std::slice::from_ref(&host.policy),
    };
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

/// The least part of a CPU that each domain of the file needs by itself, in its order, for placing them; `None` where
/// no budget is enough. Domains whose budget is given have that part, and their helpers are left out.
pub fn least_shares(host: &Host, open: &Open, request: Request) -> Vec<Option<f64>> {
    let host = &prepared(host, request);
    (0..open.domains.len())
        .into_par_iter()
        .map(|domain| {
            let group = Group::of_domains(host, open, vec![domain]);
            Search::new(&group, Effort::FULL).least_share(0)
        })
        .collect()
}

/// Why a host cannot be designed by analysis, and what would be right.
pub fn refusal(host: &Host, open: &Open) -> Option<(String, String)> {
    if let Some(path) = open.others.first() {
        return Some((
            format!("nothing is known that would tell `{path}`"),
            "write a value; budget, period, priority, affinity and policy may be open".into(),
        ));
    }
    if !open.policy && !host.policy.is_partitioned() {
        return Some((
            format!(
                "the {} policy gives no VCPU a budget of its own, and guarantees no deadline",
                host.policy.name()
            ),
            "write policy = \"?\", or \"deferrable\", say, or give --missed".into(),
        ));
    }
    if let Some(domain) = host.domains.iter().find(|domain| domain.workload.is_some()) {
        return Some((
            format!(
                "analysis has no bound on how often {} wakes, which packets or pauses decide",
                domain.name
            ),
            "leave it out, or ask `laxity sweep` and `laxity capacity`, which simulate".into(),
        ));
    }
    let idle = host.domains.iter().zip(&open.domains);
    let mut idle =
        idle.filter(|(domain, open)| (open.budget || open.period) && domain.tasks.is_empty());
    if let Some((domain, _)) = idle.next() {
        return Some((
            format!(
                "nothing tells how much {} needs: it has no tasks, and no budget and period",
                domain.name
            ),
            "write its budget and period, or its tasks".into(),
        ));
    }
    None
}

/// Why no cost can be so much greater, and what would be right.
fn refused_growth(host: &Host, request: Request) -> Option<(String, String)> {
    let factor = request.growth();
    let tasks = (host.domains.iter()).flat_map(|domain| {
        let named = move |task| (domain, task);
        domain.tasks.iter().map(named)
    });
    let most = tasks
        .map(|(domain, task)| (task.deadline_ns as f64 / task.cost_ns as f64, domain, task))
        .min_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let (most, domain, task) = most.filter(|(most, ..)| *most < factor)?;
    Some((
        format!(
            "with every cost {factor} times what it is, {}/{} takes longer than its deadline",
            domain.name, task.name
        ),
        format!("ask for less than {most:.4}"),
    ))
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

fn domain_design(domain: &laxity_host::Domain) -> DomainDesign {
    DomainDesign {
        name: domain.name.clone(),
        budget_ns: domain.parameters.budget_ns,
        period_ns: domain.parameters.period_ns,
        priority: domain.parameters.priority,
        share: share(domain),
        load: (domain.tasks.iter())
            .map(|task| task.cost_ns as f64 / task.period_ns as f64)
            .sum(),
    }
}

fn values(host: &Host, open: &Open, domains: &[DomainDesign]) -> Vec<(String, String)> {
    let mut values = Vec::new();
    if open.policy {
        values.push(("host.policy".into(), format!("{:?}", host.policy.name())));
    }
    let time = |ns: i64| format!("{:?}", laxity_config::format_duration(ns));
    // Under SEDF they mean nothing, but a file has them of all domains or of none.
    let has_priorities = host.policy != Policy::Sedf || open.has_priorities;
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
