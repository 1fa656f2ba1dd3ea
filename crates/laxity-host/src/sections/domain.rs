//! `[[domain]]`: the virtual machines.

use std::collections::HashMap;

use laxity_config::{Field, List, Measured, Name, Problem, Problems, Span, Whole, suggest};
use laxity_policies::{Parameters, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::helpers::{self, HelperTable};
use super::network::NetworkCosts;
use super::parameters::{self, Owner, ParametersTable};
use super::tasks::{self, Task, Tasks};
use super::tick::{self, Tick, TickTable};
use super::workload::{self, Workload, WorkloadKind, WorkloadTable};
use crate::checks::unique;
use crate::quantities::{CpuNumber, Size, VCPUS_MAX};

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Domain {
    /// The name, unique in the host.
    pub name: String,
    /// The scheduling parameters of every VCPU. What the host's policy uses is valid. Budget and period are 0 where the
    /// file gives none and the policy needs none.
    pub parameters: Parameters,
    /// The virtual CPUs; at least one.
    pub vcpus: Vec<Vcpu>,
    /// The order in which the guest runs its ready tasks.
    pub guest: GuestScheduler,
    /// The tasks, in the order of the file. May be empty.
    pub tasks: Vec<Task>,
    /// Whether each VCPU also has an endless loop that runs when no task is ready.
    pub cpu_bound: bool,
    /// What the domain does besides its tasks and an endless loop.
    pub workload: Option<Workload>,
    /// The size of what each of the domain's VCPUs uses of a cache; may be 0.
    pub working_set_bytes: u64,
    /// The timer interrupts of the guest's kernel; `None`: it has none.
    pub tick: Option<Tick>,
    /// The number of the domain whose helper it is: a thread of the host beside that domain's VCPUs,
    /// with one task. `None`: it is a domain of the file.
    pub helper_of: Option<u32>,
}

/// A virtual CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Vcpu {
    /// The CPU whose queue the VCPU starts in. Per-CPU policies keep it there.
    pub cpu: u32,
    /// The CPUs that the VCPU may run on, ascending. They include `cpu`.
    pub affinity: Vec<u32>,
    /// The CPUs that the VCPU prefers, ascending; empty: none.
    pub soft_affinity: Vec<u32>,
}

/// The order in which a guest runs its ready tasks. Preemptive, per VCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestScheduler {
    /// Shorter period first; equal periods in the order of the file.
    #[default]
    RateMonotonic,
    /// Earlier absolute deadline first; equal ones in the order of the file.
    Edf,
}

/// A virtual machine.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct DomainTable {
    /// The name, unique in the host: letters, digits, `-`, `_` and `.`.
    pub name: Field<Name>,
    /// The number of virtual CPUs, 1 to 4096.
    #[schemars(extend("default" = 1))]
    pub vcpus: Field<Whole<1, VCPUS_MAX>>,
    /// The numbers of the CPUs that the VCPUs may run on. By default all.
    #[schemars(extend("minItems" = 1, "uniqueItems" = true))]
    pub affinity: Field<List<CpuNumber>>,
    /// The numbers of the CPUs that the VCPUs prefer, under Xen's credit2. By default none.
    #[schemars(extend("minItems" = 1, "uniqueItems" = true))]
    pub soft_affinity: Field<List<CpuNumber>>,
    #[serde(rename = "$parameters")]
    #[schemars(flatten)]
    pub parameters: ParametersTable,
    /// The order in which the guest runs its ready tasks.
    #[schemars(extend("default" = GuestScheduler::default()))]
    pub scheduler: Field<GuestScheduler>,
    /// The guest's periodic tasks: a list, or "drawn" for a set drawn at random as `[draw]` says.
    pub tasks: Field<Tasks>,
    /// The guest's other work, which runs when no task is ready.
    pub workload: Field<WorkloadTable>,
    /// The working set of each VCPU in a cache. By default 0.
    pub working_set: Field<Measured<Size>>,
    /// The timer interrupts of the guest's kernel, on each VCPU: while it has work, and once after that. By default
    /// none. Only the simulator uses it: guests on Xen have their own ticks.
    pub tick: Field<TickTable>,
    /// Threads of the domain's emulator and of its I/O, which compete with VCPUs. They need the policy fifo, deadline
    /// or eevdf, and the simulator.
    pub helpers: Field<List<HelperTable>>,
}

impl DomainTable {
    /// "domain `control`", in messages.
    pub fn title(&self) -> String {
        match &self.name.value {
            Some(Name(name)) => format!("domain `{name}`"),
            None => "this domain".into(),
        }
    }

    pub fn vcpus(&self) -> u32 {
        self.vcpus.or(1) as u32
    }

    pub fn kind(&self) -> Option<WorkloadKind> {
        self.workload.value.as_ref()?.kind.value
    }

    pub fn is_drawn(&self) -> bool {
        matches!(self.tasks.value, Some(Tasks::Drawn))
    }

    fn owner(&self, span: Span) -> Owner {
        Owner {
            title: self.title(),
            span,
            vcpus: self.vcpus(),
        }
    }
}

/// The domains of a file as they are written, in its order, for what refers to them.
pub(crate) struct Domains<'f> {
    pub tables: Vec<(&'f DomainTable, Span)>,
    by_name: HashMap<&'f str, usize>,
}

impl<'f> Domains<'f> {
    /// `root` is the place of the file. Reports names that are missing or the same, and that there is no domain.
    pub fn of(list: &'f Field<List<DomainTable>>, root: Span, problems: &Problems) -> Domains<'f> {
        let tables: Vec<(&DomainTable, Span)> = match &list.value {
            Some(list) => list.0.iter().filter_map(Field::given).collect(),
            None => Vec::new(),
        };
        let place = match list {
            Field { span: None, .. } => Some(root),
            Field {
                span,
                value: Some(list),
            } if list.0.is_empty() => *span,
            _ => None,
        };
        if let Some(place) = place {
            let help = "add one: [[domain]] with name = \"control\"";
            problems.report(place, "this host has no domain", help);
        }
        unique(
            "domain",
            tables.iter().map(|(table, span)| (&table.name, *span)),
            problems,
        );
        let named = tables.iter().enumerate();
        let by_name =
            named.filter_map(|(index, (table, _))| Some((&*table.name.value.as_ref()?.0, index)));
        Domains {
            by_name: by_name.collect(),
            tables,
        }
    }

    /// The domain that the field names, and the place of the field.
    pub fn find(&self, field: &Field<Name>, problems: &Problems) -> Option<(usize, Span)> {
        let (Name(name), span) = field.given()?;
        let found = self.by_name.get(name.as_str()).copied();
        if found.is_none() {
            let mut names: Vec<&str> = self.by_name.keys().copied().collect();
            names.sort_unstable();
            let help = suggest::help(name, names.into_iter(), "the domains are");
            problems.report(span, format!("there is no domain `{name}`"), help);
        }
        Some((found?, span))
    }

    pub fn kind(&self, domain: usize) -> Option<WorkloadKind> {
        self.tables[domain].0.kind()
    }

    /// "domain `control`", in messages.
    pub fn title(&self, domain: usize) -> String {
        self.tables[domain].0.title()
    }

    /// The driver domain, if there is one. Reports a second one.
    pub fn driver(&self, problems: &Problems) -> Option<usize> {
        let all = self.tables.iter().enumerate();
        let mut drivers = all.filter(|(_, (table, _))| table.kind() == Some(WorkloadKind::Driver));
        let (driver, (_, first)) = drivers.next()?;
        if let Some((_, (table, span))) = drivers.next() {
            problems.push(Problem {
                help: Some("a host has one driver domain".into()),
                related: Some((*first, "the first one")),
                ..Problem::new(
                    *span,
                    format!("{} is a second driver domain", table.title()),
                )
            });
        }
        Some(driver)
    }
}

/// The facts about the rest of the host that domains depend on.
pub(crate) struct Surroundings<'h> {
    pub duration_ns: i64,
    pub cpus: u32,
    pub policy: Policy,
    pub network: &'h NetworkCosts,
}

/// The domains, whose VCPUs are not placed yet, and whose tasks are not drawn.
pub(crate) fn resolve(
    domains: &Domains<'_>,
    surroundings: &Surroundings<'_>,
    problems: &Problems,
) -> Vec<Domain> {
    let tables = || domains.tables.iter();
    let mut resolved: Vec<Domain> = tables()
        .map(|(table, span)| domain(table, *span, surroundings, problems))
        .collect();
    parameters::set_priorities(
        tables().map(|(table, span)| (&table.parameters, table.owner(*span))),
        &mut resolved
            .iter_mut()
            .map(|domain| &mut domain.parameters)
            .collect::<Vec<_>>(),
        problems,
    );
    resolved
}

fn domain(
    table: &DomainTable,
    span: Span,
    surroundings: &Surroundings<'_>,
    problems: &Problems,
) -> Domain {
    let vcpus = table.vcpus();
    let vcpu = vcpu(table, surroundings.cpus, problems);
    let tasks = match &table.tasks.value {
        Some(Tasks::Given(tasks)) => {
            tasks::resolve(tasks, vcpus, surroundings.duration_ns, problems)
        }
        Some(Tasks::Drawn) | None => Vec::new(),
    };
    let name = table.name.value.as_ref();
    let endless = table
        .workload
        .value
        .as_ref()
        .is_some_and(WorkloadTable::is_endless);
    Domain {
        name: name.map_or(String::new(), |name| name.0.clone()),
        parameters: parameters::resolve(
            &table.parameters,
            &table.owner(span),
            surroundings.policy,
            problems,
        ),
        vcpus: vec![vcpu; vcpus as usize],
        guest: table.scheduler.value.unwrap_or_default(),
        tasks,
        cpu_bound: endless,
        workload: workload(table, surroundings.network, problems),
        working_set_bytes: table
            .working_set
            .value
            .map_or(0, |size| size.0.bytes as u64),
        tick: table
            .tick
            .given()
            .map(|(table, span)| tick::resolve(table, span, problems)),
        helper_of: None,
    }
}

/// The helpers of all domains, each as a domain of one VCPU with one task, and their places. `owners` are the domains
/// of the file.
pub(crate) fn resolve_helpers(
    domains: &Domains<'_>,
    owners: &[Domain],
    surroundings: &Surroundings<'_>,
    problems: &Problems,
) -> Vec<(Domain, Span)> {
    let mut resolved = Vec::new();
    for (number, ((table, _), owner)) in (0..).zip(domains.tables.iter().zip(owners)) {
        let helpers = helpers::resolve(
            &table.helpers,
            &owner.parameters,
            surroundings.policy,
            surroundings.duration_ns,
            problems,
        );
        for helper in helpers {
            let affinity = if helper.affinity.is_absent() {
                owner.vcpus[0].affinity.clone()
            } else {
                affinity("affinity", helper.affinity, surroundings.cpus, problems)
            };
            let vcpu = Vcpu {
                cpu: 0,
                affinity,
                soft_affinity: Vec::new(),
            };
            let domain = Domain {
                name: format!("{}:{}", owner.name, helper.task.name),
                parameters: helper.parameters,
                vcpus: vec![vcpu],
                guest: GuestScheduler::RateMonotonic,
                tasks: vec![helper.task],
                cpu_bound: false,
                workload: None,
                working_set_bytes: 0,
                tick: None,
                helper_of: Some(number),
            };
            resolved.push((domain, helper.span));
        }
    }
    resolved
}

/// A VCPU of the domain, which is not placed yet.
fn vcpu(table: &DomainTable, cpus: u32, problems: &Problems) -> Vcpu {
    let hard = affinity("affinity", &table.affinity, cpus, problems);
    let mut soft = Vec::new();
    if let Some((_, span)) = table.soft_affinity.given() {
        soft = affinity("soft-affinity", &table.soft_affinity, cpus, problems);
        if !soft.is_empty() && !hard.is_empty() && !soft.iter().any(|cpu| hard.contains(cpu)) {
            let message = "`soft-affinity` has none of the CPUs of `affinity`";
            problems.report(span, message, "name CPUs that the domain may run on");
        }
    }
    Vcpu {
        cpu: 0,
        affinity: hard,
        soft_affinity: soft,
    }
}

/// The CPUs that VCPUs or threads may run on, or prefer, ascending; by default all. `key` is the key that names them.
fn affinity(
    key: &str,
    written: &Field<List<CpuNumber>>,
    cpus: u32,
    problems: &Problems,
) -> Vec<u32> {
    let Some((list, span)) = written.given() else {
        return (0..cpus).collect();
    };
    if list.0.is_empty() {
        let help = format!("name at least one CPU, or leave `{key}` out to allow all");
        problems.report(span, format!("`{key}` allows no CPU"), help);
    }
    let mut first = HashMap::new();
    for (cpu, span) in list.0.iter().filter_map(Field::given) {
        if cpu.0 >= i64::from(cpus) {
            let message = format!("there is no CPU {}", cpu.0);
            let help = match cpus {
                1 => "this host has one CPU, number 0".into(),
                _ => format!("this host has {cpus} CPUs, numbers 0 to {}", cpus - 1),
            };
            problems.report(span, message, help);
        }
        if let Some(first) = first.insert(cpu.0, span) {
            problems.push(Problem {
                help: Some("name each CPU once".into()),
                related: Some((first, "the first time")),
                ..Problem::new(span, format!("`{key}` names CPU {} twice", cpu.0))
            });
        }
    }
    let mut affinity: Vec<u32> = list
        .0
        .iter()
        .filter_map(|cpu| cpu.value.map(|cpu| cpu.0 as u32))
        .collect();
    affinity.sort_unstable();
    affinity
}

/// What the domain does besides its tasks and an endless loop. Only an endless loop goes with tasks and ticks.
fn workload(table: &DomainTable, costs: &NetworkCosts, problems: &Problems) -> Option<Workload> {
    let (workload, span) = table.workload.given()?;
    let resolved = workload::resolve(workload, span, costs, problems)?;
    if let Some(span) = table.tasks.span
        && table.tasks.value.is_some()
    {
        let message = format!("{} has both tasks and a workload", table.title());
        let help = "tasks can stand beside an endless loop only: move them to another domain";
        problems.report(span, message, help);
    }
    if let Some(span) = table.tick.span {
        let message = format!("{} has both ticks and a workload", table.title());
        let help = "leave `tick` out: the costs of packets and computations already include ticks";
        problems.report(span, message, help);
    }
    Some(resolved)
}
