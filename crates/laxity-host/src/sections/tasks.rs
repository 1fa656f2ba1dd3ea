//! A domain's `tasks`.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{Duration, Field, Name, Problems, Span, Whole, format_duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::run::RUN_DURATION_NS_MAX;
use crate::checks::{not_longer, shorter, unique};
use crate::placement::{Assignment, ratio};
use crate::quantities::{NotNegative, Positive, VCPUS_MAX};

/// A periodic task of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Task {
    /// Unique in its domain.
    pub name: String,
    /// The VCPU on which the task runs.
    pub vcpu: u32,
    /// The CPU time of every job; at least 1, at most the deadline.
    pub cost_ns: i64,
    /// The time between arrivals; at least 1.
    pub period_ns: i64,
    /// The deadline, relative to the arrival; at least 1, at most the period.
    pub deadline_ns: i64,
    /// The arrival of the first job.
    pub offset_ns: i64,
    /// A job is released up to this much after its arrival, uniformly; response time and deadline
    /// count from the arrival. Below the period.
    pub jitter_ns: i64,
}

/// A periodic task.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["name", "cost", "period"]))]
pub(crate) struct TaskTable {
    /// Unique in the domain: letters, digits, `-`, `_` and `.`.
    pub name: Field<Name>,
    /// The CPU time of every job; at most the deadline.
    pub cost: Field<Positive>,
    /// The time between arrivals. At most 1 h.
    pub period: Field<Positive>,
    /// The deadline of a job, counted from its arrival; at most the period, which is the default.
    pub deadline: Field<Positive>,
    /// The arrival of the first job; before the run's end.
    #[schemars(extend("default" = "0 ms"))]
    pub offset: Field<Duration<0, RUN_DURATION_NS_MAX>>,
    /// A job is released up to this long after its arrival; shorter than the period.
    #[schemars(extend("default" = "0 ms"))]
    pub jitter: Field<NotNegative>,
    /// The number of the VCPU on which the task runs. By default the one with the least utilization so far.
    pub vcpu: Field<Whole<0, { VCPUS_MAX - 1 }>>,
}

/// A domain's tasks: given one by one, or drawn.
#[derive(Debug)]
pub(crate) enum Tasks {
    Given(Vec<Field<TaskTable>>),
    Drawn,
}

/// The word for [`Tasks::Drawn`].
const DRAWN: &str = "drawn";

impl<'de> Deserialize<'de> for Tasks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TasksVisitor;

        impl<'de> Visitor<'de> for TasksVisitor {
            type Value = Tasks;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of tasks, or \"{DRAWN}\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Tasks, E> {
                match text {
                    DRAWN => Ok(Tasks::Drawn),
                    _ => Err(E::custom(format!(
                        "must be a list of tasks, or \"{DRAWN}\""
                    ))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Tasks, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(elements)).map(Tasks::Given)
            }
        }

        deserializer.deserialize_any(TasksVisitor)
    }
}

impl JsonSchema for Tasks {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Tasks".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<Vec<TaskTable>>();
        json_schema!({ "anyOf": [{ "const": DRAWN }, list] })
    }
}

/// The tasks that are written one by one, each on its VCPU. `vcpus` is the number of the domain's VCPUs, and
/// `duration_ns` the run's duration.
pub(crate) fn resolve(
    tasks: &[Field<TaskTable>],
    vcpus: u32,
    duration_ns: i64,
    problems: &Problems,
) -> Vec<Task> {
    let given = || tasks.iter().filter_map(Field::given);
    unique(
        "task",
        given().map(|(table, span)| (&table.name, span)),
        problems,
    );
    let mut assignment = Assignment::new(vcpus);
    let mut resolved = Vec::with_capacity(tasks.len());
    for (table, span) in given() {
        let mut task = task(table, span, duration_ns, problems);
        task.vcpu = match table.vcpu.given() {
            None => assignment.least(),
            Some((vcpu, _)) if vcpu.0 < i64::from(vcpus) => vcpu.0 as u32,
            Some((vcpu, span)) => {
                let message = format!("this domain has no VCPU {}", vcpu.0);
                problems.report(
                    span,
                    message,
                    match vcpus {
                        1 => "it has one VCPU, number 0; `vcpus` gives it more".into(),
                        _ => format!("it has {vcpus} VCPUs, numbers 0 to {}", vcpus - 1),
                    },
                );
                0
            }
        };
        // What is wrong may exceed its period, and has been reported.
        if task.cost_ns <= task.period_ns {
            assignment.add(task.vcpu, ratio(task.cost_ns, task.period_ns));
        }
        resolved.push(task);
    }
    resolved
}

fn task(table: &TaskTable, span: Span, duration_ns: i64, problems: &Problems) -> Task {
    let name = table.name.value.as_ref().map_or("", |name| name.0.as_str());
    let title = || {
        if name.is_empty() {
            "this task".into()
        } else {
            format!("task `{name}`")
        }
    };
    if table.cost.is_missing("cost", span, problems) {
        let help = "write the CPU time of each of its jobs: cost = \"5 ms\", say";
        problems.report(span, format!("{} has no `cost`", title()), help);
    }
    if table.period.is_missing("period", span, problems) {
        let help = "write the time between its jobs: period = \"200 ms\", say";
        problems.report(span, format!("{} has no `period`", title()), help);
    }
    let (cost, period, deadline) = (
        ("cost", &table.cost),
        ("period", &table.period),
        ("deadline", &table.deadline),
    );
    not_longer(deadline, period, "the period", problems);
    if table.deadline.is_absent() {
        not_longer(cost, period, "the period", problems);
    } else {
        not_longer(cost, deadline, "the deadline", problems);
    }
    shorter(("jitter", &table.jitter), period, "the period", problems);
    starts_in_run(&table.offset, duration_ns, problems);
    let period_ns = table.period.ns_or(1);
    Task {
        name: name.into(),
        vcpu: 0,
        cost_ns: table.cost.ns_or(1),
        period_ns,
        deadline_ns: table.deadline.ns_or(period_ns),
        offset_ns: table.offset.ns_or(0),
        jitter_ns: table.jitter.ns_or(0),
    }
}

/// Reports a first arrival that is not within the run.
pub(crate) fn starts_in_run(
    offset: &Field<Duration<0, RUN_DURATION_NS_MAX>>,
    duration_ns: i64,
    problems: &Problems,
) {
    if let Some((offset, span)) = offset.given()
        && offset.ns >= duration_ns
    {
        let (offset, run) = (format_duration(offset.ns), format_duration(duration_ns));
        problems.report(
            span,
            format!("`offset` ({offset}) is not before the run's end ({run})"),
            format!("write less than \"{run}\", or a longer `duration`"),
        );
    }
}
