//! The host file as it is written: one type a table, one field a key. The comments are what editors
//! show, through the schema.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{
    Duration, Field, Flag, HOUR_NS, List, Name, Quantity, Whole, format_duration, suggest,
};
use laxity_policies::{
    ACCOUNTING, BUDGET, CAP, EXTRATIME, Facts, LAXITY, PERIOD, PRIORITY, ParameterKind, Policy,
    QUANTUM, TICK, TIME_SLICE, WEIGHT,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::costs::PROFILES;
use crate::model::GuestScheduler;
use crate::quantities::{Bytes, Cap, Load};
use crate::telephony::costs::PROFILES as PROFILES_OF_NETWORKS;
use crate::telephony::file::{CacheTable, CallsTable, NetworkChoice, NicTable, WorkloadTable};
use crate::telephony::link::LinkTable;
use crate::telephony::protect::ProtectTable;

/// 10,000 hours: the longest run.
pub const RUN_DURATION_NS_MAX: i64 = 10_000 * HOUR_NS;

pub(crate) const CPUS_MAX: i64 = 1024;
pub(crate) const DOMAIN_VCPUS_MAX: i64 = 4096;
pub(crate) const DRAWN_TASKS_MAX: i64 = 1000;

/// A time that a policy or a task takes.
pub(crate) type Positive = Duration<1, HOUR_NS>;
/// The same, and 0.
pub(crate) type NotNegative = Duration<0, HOUR_NS>;

/// What editors show of a policy's parameter: its meaning, its bounds, and who uses it.
fn described(facts: Facts) -> String {
    let bounds = match facts.kind {
        ParameterKind::Duration => format!(" At most {}.", format_duration(facts.most)),
        ParameterKind::Number => format!(" {} to {}.", facts.least, facts.most),
        ParameterKind::Percent | ParameterKind::Flag => String::new(),
    };
    let families = suggest::list(facts.families().map(|family| family.title().into()), "and");
    format!("{}{bounds} Used by {families}.", facts.meaning)
}

/// A policy's parameter where the file does not give it, as a file would.
fn default(facts: Facts) -> serde_json::Value {
    match facts.kind {
        ParameterKind::Duration => format_duration(facts.standard).into(),
        ParameterKind::Number | ParameterKind::Percent => facts.standard.into(),
        ParameterKind::Flag => (facts.standard != 0).into(),
    }
}

/// A host for Laxity: CPUs, a scheduling policy, and domains (virtual machines) with their tasks.
/// Times are written with their unit: "2 ms", "10 us", "1.5 s".
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(title = "Laxity host file", extend("required" = ["duration", "host", "domain"]))]
pub(crate) struct File {
    /// How long a run lasts: 1 ns to 10,000 h.
    pub duration: Field<Duration<1, RUN_DURATION_NS_MAX>>,
    /// Where all randomness comes from. The same file and seed give the same run, everywhere.
    #[schemars(extend("default" = 1))]
    pub seed: Field<Whole<0, { i64::MAX }>>,
    /// The physical host.
    pub host: Field<HostTable>,
    /// Task sets drawn at random, for the domains with `tasks = "drawn"`.
    pub draw: Field<DrawTable>,
    /// The virtual machines, each a `[[domain]]`.
    #[schemars(extend("minItems" = 1))]
    pub domain: Field<List<DomainTable>>,
    /// The network interface cards, each a `[[nic]]`. By default the driver domain has one.
    pub nic: Field<List<NicTable>>,
    /// The telephone calls.
    pub calls: Field<CallsTable>,
    /// Agreements about what domains send through the driver domain's cards.
    pub link: Field<LinkTable>,
    /// Protection by checkpoint, and a failure of the host.
    pub protect: Field<ProtectTable>,
}

/// The physical host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["cpus", "policy"]))]
pub(crate) struct HostTable {
    /// The number of physical CPUs, 1 to 1024.
    pub cpus: Field<Whole<1, CPUS_MAX>>,
    /// The scheduling policy.
    pub policy: Field<Policy>,
    #[schemars(description = described(QUANTUM), extend("default" = default(QUANTUM)))]
    pub quantum: Field<Duration<{ QUANTUM.least }, { QUANTUM.most }>>,
    #[schemars(description = described(TIME_SLICE), extend("default" = default(TIME_SLICE)))]
    pub time_slice: Field<Duration<{ TIME_SLICE.least }, { TIME_SLICE.most }>>,
    #[schemars(description = described(TICK), extend("default" = default(TICK)))]
    pub tick: Field<Duration<{ TICK.least }, { TICK.most }>>,
    #[schemars(description = described(ACCOUNTING), extend("default" = default(ACCOUNTING)))]
    pub accounting: Field<Duration<{ ACCOUNTING.least }, { ACCOUNTING.most }>>,
    /// What scheduling itself costs: the name of a profile, or a table. By default nothing.
    pub costs: Field<CostsChoice>,
    /// The caches, each with the CPUs that share it. By default none: nothing is lost when a VCPU
    /// goes to another CPU, or others were there.
    pub caches: Field<List<CacheTable>>,
    /// What packets cost: the name of a profile, or a table.
    #[schemars(extend("default" = PROFILES_OF_NETWORKS[0]))]
    pub network: Field<NetworkChoice>,
}

/// Task sets drawn at random (RT-Xen, EMSOFT 2011, section 5.5).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["load"]))]
pub(crate) struct DrawTable {
    /// The utilization of a domain's tasks, as a part of the domain's share: above 0, up to 1.5, or
    /// a percentage. The share is budget / period of each VCPU; without a budget, the domain's part
    /// of all weights, times the CPUs.
    pub load: Field<Load>,
    /// The number of tasks in each domain, 1 to 1000.
    #[schemars(extend("default" = 5))]
    pub tasks: Field<Whole<1, DRAWN_TASKS_MAX>>,
    /// The least and the greatest cost of a task: whole milliseconds, drawn uniformly, both ends
    /// included.
    #[schemars(extend("default" = ["5 ms", "10 ms"], "minItems" = 2, "maxItems" = 2))]
    pub cost: Field<List<Positive>>,
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
    /// Unique in the host: letters, digits, `-`, `_` and `.`.
    pub name: Field<Name>,
    /// The number of virtual CPUs, 1 to 4096.
    #[schemars(extend("default" = 1))]
    pub vcpus: Field<Whole<1, DOMAIN_VCPUS_MAX>>,
    /// The numbers of the CPUs that the VCPUs may run on. By default all.
    #[schemars(extend("minItems" = 1, "uniqueItems" = true))]
    pub affinity: Field<List<Whole<0, { CPUS_MAX - 1 }>>>,
    #[schemars(description = described(BUDGET))]
    pub budget: Field<Duration<{ BUDGET.least }, { BUDGET.most }>>,
    /// The budget under SEDF, where it differs. By default `budget`.
    pub slice: Field<Duration<{ BUDGET.least }, { BUDGET.most }>>,
    #[schemars(description = described(PERIOD))]
    pub period: Field<Duration<{ PERIOD.least }, { PERIOD.most }>>,
    #[schemars(description = described(PRIORITY))]
    pub priority: Field<Whole<{ PRIORITY.least }, { PRIORITY.most }>>,
    #[schemars(description = described(EXTRATIME), extend("default" = default(EXTRATIME)))]
    pub extratime: Field<Flag>,
    #[schemars(description = described(WEIGHT), extend("default" = default(WEIGHT)))]
    pub weight: Field<Whole<{ WEIGHT.least }, { WEIGHT.most }>>,
    #[schemars(description = described(CAP), extend("default" = default(CAP)))]
    pub cap: Field<Cap<{ 100 * DOMAIN_VCPUS_MAX }>>,
    // A domain without laxity says so by not having the key, and not by 0 as in C.
    #[schemars(description = described(LAXITY))]
    pub laxity: Field<Duration<1, { LAXITY.most }>>,
    /// How the guest orders its ready tasks.
    #[schemars(extend("default" = "rate-monotonic"))]
    pub scheduler: Field<GuestScheduler>,
    /// The guest's periodic tasks: a list, or "drawn" for a set drawn at random as `[draw]` says.
    pub tasks: Field<Tasks>,
    /// What else the guest does, below its tasks.
    pub workload: Field<WorkloadTable>,
    /// How much of a cache each of its VCPUs uses. By default nothing.
    pub working_set: Field<Quantity<Bytes>>,
    /// The timer interrupts of the guest's kernel, on each VCPU: while it has work, and once after
    /// that. By default none. For the simulator; the guests on Xen have their own.
    pub tick: Field<TickTable>,
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
    /// Counted from the arrival; at most the period, which is the default.
    pub deadline: Field<Positive>,
    /// The arrival of the first job; before the run's end.
    #[schemars(extend("default" = "0 ms"))]
    pub offset: Field<Duration<0, RUN_DURATION_NS_MAX>>,
    /// A job is released up to this long after its arrival; shorter than the period.
    #[schemars(extend("default" = "0 ms"))]
    pub jitter: Field<NotNegative>,
    /// The number of the VCPU that it runs on. By default the one with the least utilization so far.
    pub vcpu: Field<Whole<0, { DOMAIN_VCPUS_MAX - 1 }>>,
}

/// The timer interrupts of a guest's kernel.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { period = \"4 ms\", cost = \"40 us\" }"
)]
#[schemars(extend("required" = ["period", "cost"]))]
pub(crate) struct TickTable {
    /// The time between two ticks. At most 1 h.
    pub period: Field<Positive>,
    /// The CPU time of each; shorter than the period.
    pub cost: Field<Positive>,
    /// The first one; shorter than the period.
    #[schemars(extend("default" = "0 ms"))]
    pub offset: Field<NotNegative>,
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

/// `costs`: a profile's name, or the costs themselves.
#[derive(Debug)]
pub(crate) enum CostsChoice {
    Profile(&'static str),
    Given(Box<CostsTable>),
}

/// What scheduling costs the CPU on which it happens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub(crate) struct CostsTable {
    /// Of every decision.
    pub schedule: Field<CostChoice>,
    /// Of every decision that changes the running VCPU, on top.
    pub context_switch: Field<CostChoice>,
}

impl<'de> Deserialize<'de> for CostsChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CostsVisitor;

        impl<'de> Visitor<'de> for CostsVisitor {
            type Value = CostsChoice;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter
                    .write_str("a profile's name or a table, such as { schedule = \"120 ns\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CostsChoice, E> {
                match PROFILES.into_iter().find(|name| *name == text) {
                    Some(name) => Ok(CostsChoice::Profile(name)),
                    None => Err(E::custom(suggest::unknown(text, PROFILES.into_iter()))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<CostsChoice, A::Error> {
                Box::deserialize(MapAccessDeserializer::new(entries)).map(CostsChoice::Given)
            }
        }

        deserializer.deserialize_struct("Costs", &["schedule", "context-switch"], CostsVisitor)
    }
}

impl JsonSchema for CostsChoice {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Costs".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<CostsTable>();
        json_schema!({ "anyOf": [{ "enum": PROFILES }, table] })
    }
}

/// One cost: a time, or quantiles of its distribution.
#[derive(Debug)]
pub(crate) enum CostChoice {
    Constant(NotNegative),
    Quantiles(QuantilesTable),
}

/// Quantiles of a cost, with straight lines between them; the least is half the median.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["median", "p99", "max"]))]
pub(crate) struct QuantilesTable {
    /// Half of the draws are below.
    pub median: Field<NotNegative>,
    /// 99 % of the draws are below.
    pub p99: Field<NotNegative>,
    /// No draw is above.
    pub max: Field<NotNegative>,
}

impl<'de> Deserialize<'de> for CostChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CostVisitor;

        impl<'de> Visitor<'de> for CostVisitor {
            type Value = CostChoice;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a time, such as \"120 ns\", or { median, p99, max }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CostChoice, E> {
                let text = serde::de::value::StrDeserializer::new(text);
                Duration::deserialize(text).map(CostChoice::Constant)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<CostChoice, E> {
                let number = serde::de::value::I64Deserializer::new(number);
                Duration::deserialize(number).map(CostChoice::Constant)
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<CostChoice, A::Error> {
                let entries = MapAccessDeserializer::new(entries);
                QuantilesTable::deserialize(entries).map(CostChoice::Quantiles)
            }
        }

        deserializer.deserialize_struct("Cost", &["median", "p99", "max"], CostVisitor)
    }
}

impl JsonSchema for CostChoice {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cost".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (time, table) = (
            generator.subschema_for::<NotNegative>(),
            generator.subschema_for::<QuantilesTable>(),
        );
        json_schema!({ "anyOf": [time, table] })
    }
}
