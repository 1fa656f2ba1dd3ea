//! A domain's `helpers`: threads of its emulator and of its I/O, which compete with VCPUs.

use laxity_config::{Duration, Field, List, Name, Problems, Span, Whole};
use laxity_policies::{BUDGET, Parameter, Parameters, Policy, RT_PRIORITY, Substrate};
use schemars::JsonSchema;
use serde::Deserialize;

use super::run::RUN_DURATION_NS_MAX;
use super::tasks::{Task, starts_in_run};
use crate::checks::{not_longer, unique};
use crate::quantities::{CpuNumber, Positive};

/// A thread of a domain beside its VCPUs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { name = \"emulator\", cost = \"0.2 ms\", period = \"10 ms\" }"
)]
#[schemars(extend("required" = ["name", "cost", "period"]))]
pub(crate) struct HelperTable {
    /// Unique in the domain: letters, digits, `-`, `_` and `.`.
    pub name: Field<Name>,
    /// The CPU time that the thread needs in each period.
    pub cost: Field<Positive>,
    /// The time between two activations of the thread. At most 1 h.
    pub period: Field<Positive>,
    /// The time of the first activation; before the run's end.
    #[schemars(extend("default" = "0 ms"))]
    pub offset: Field<Duration<0, RUN_DURATION_NS_MAX>>,
    /// The numbers of the CPUs that the thread may run on. By default those of the domain.
    #[schemars(extend("minItems" = 1, "uniqueItems" = true))]
    pub affinity: Field<List<CpuNumber>>,
    /// The priority of the thread; required under fifo.
    pub rt_priority: Field<Whole<{ RT_PRIORITY.least }, { RT_PRIORITY.most }>>,
    /// The runtime of the thread in each of its periods; required under deadline.
    pub budget: Field<Duration<{ BUDGET.least }, { BUDGET.most }>>,
}

impl HelperTable {
    fn title(&self) -> String {
        match &self.name.value {
            Some(Name(name)) => format!("helper `{name}`"),
            None => "this helper".into(),
        }
    }
}

/// A thread that a domain has beside its VCPUs.
pub(crate) struct Helper<'f> {
    pub parameters: Parameters,
    pub task: Task,
    pub affinity: &'f Field<List<CpuNumber>>,
    /// The place of its table.
    pub span: Span,
}

/// The helpers of a list, as they are written.
pub(crate) fn given(list: &Field<List<HelperTable>>) -> impl Iterator<Item = (&HelperTable, Span)> {
    let list = list.value.as_ref();
    list.into_iter()
        .flat_map(|list| list.0.iter().filter_map(Field::given))
}

/// The helpers of a domain with such parameters. Reports helpers that the policy does not know.
pub(crate) fn resolve<'f>(
    list: &'f Field<List<HelperTable>>,
    owner: &Parameters,
    policy: Policy,
    duration_ns: i64,
    problems: &Problems,
) -> Vec<Helper<'f>> {
    let names = given(list).map(|(table, span)| (&table.name, span));
    unique("helper", names, problems);
    if let (Some(_), Some(span)) = (given(list).next(), list.span)
        && policy.own_of() != Some(Substrate::Linux)
    {
        let message = format!("the policy {} does not support helpers", policy.name());
        let help =
            "helpers are threads of Linux: choose fifo, deadline or eevdf, or leave them out";
        problems.report(span, message, help);
        return Vec::new();
    }
    given(list)
        .map(|(table, span)| Helper {
            parameters: parameters(table, span, owner, policy, problems),
            task: task(table, span, duration_ns, problems),
            affinity: &table.affinity,
            span,
        })
        .collect()
}

/// The parameters of the domain, replaced by those that the thread has itself.
fn parameters(
    table: &HelperTable,
    span: Span,
    owner: &Parameters,
    policy: Policy,
    problems: &Problems,
) -> Parameters {
    let needs = |parameter: Parameter, is_missing: bool, key: &str, example: &str| {
        if policy.uses(parameter) && is_missing {
            let name = policy.name();
            problems.report(
                span,
                format!("{} has no `{key}`", table.title()),
                format!("under the {name} policy every thread needs one: write {example}, say"),
            );
        }
    };
    let is_missing = table.rt_priority.is_missing("rt-priority", span, problems);
    needs(
        Parameter::RtPriority,
        is_missing,
        "rt-priority",
        "rt-priority = 50",
    );
    let is_missing = table.budget.is_missing("budget", span, problems);
    needs(Parameter::Budget, is_missing, "budget", "budget = \"1 ms\"");
    let period = ("period", &table.period);
    not_longer(("budget", &table.budget), period, "the period", problems);
    Parameters {
        budget_ns: table.budget.ns_or(0),
        period_ns: table.period.ns_or(1),
        rt_priority: table.rt_priority.or(owner.rt_priority.into()) as u32,
        reclaim: false,
        ..*owner
    }
}

/// The thread's work, as a task.
fn task(table: &HelperTable, span: Span, duration_ns: i64, problems: &Problems) -> Task {
    if table.cost.is_missing("cost", span, problems) {
        let help = "write the CPU time that it needs in each period: cost = \"0.2 ms\", say";
        problems.report(span, format!("{} has no `cost`", table.title()), help);
    }
    if table.period.is_missing("period", span, problems) {
        let help = "write the time between two activations: period = \"10 ms\", say";
        problems.report(span, format!("{} has no `period`", table.title()), help);
    }
    let period = ("period", &table.period);
    not_longer(("cost", &table.cost), period, "the period", problems);
    starts_in_run(&table.offset, duration_ns, problems);
    let period_ns = table.period.ns_or(1);
    Task {
        name: table
            .name
            .value
            .as_ref()
            .map_or(String::new(), |name| name.0.clone()),
        vcpu: 0,
        cost_ns: table.cost.ns_or(1),
        period_ns,
        deadline_ns: period_ns,
        offset_ns: table.offset.ns_or(0),
        jitter_ns: 0,
    }
}
