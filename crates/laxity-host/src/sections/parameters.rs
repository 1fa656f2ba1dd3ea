//! The scheduling parameters of a domain, which are keys of `[[domain]]`.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{
    Duration, Field, Flag, MICROSECOND_NS, PERCENT_PATTERN, Problem, Problems, Span, Whole,
    parse_percent,
};
use laxity_policies::{
    BUDGET, CAP, CREDIT, EXTRATIME, LAXITY, PERIOD, PHASE, PRIORITY, Parameters, Policy, QUOTA,
    QUOTA_BURST, QUOTA_PERIOD, RECLAIM, RT_PRIORITY, WEIGHT,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::checks::not_longer;
use crate::facts::{default, described};
use crate::quantities::VCPUS_MAX;

const CAP_PERCENT_MAX: i64 = 100 * VCPUS_MAX;

/// The parameters as they are written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", expecting = "a table")]
pub(crate) struct ParametersTable {
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
    /// The weight as Linux's nice value, -20 to 19, in place of `weight`: 0 is the default weight, and each step down
    /// multiplies the weight by 1.25.
    pub nice: Field<Whole<-20, 19>>,
    #[schemars(description = described(CAP), extend("default" = default(CAP)))]
    pub cap: Field<Cap<CAP_PERCENT_MAX>>,
    // A domain without laxity does not have the key; in C its laxity is 0.
    #[schemars(description = described(LAXITY))]
    pub laxity: Field<Duration<1, { LAXITY.most }, MICROSECOND_NS>>,
    #[schemars(description = described(RT_PRIORITY), extend("default" = default(RT_PRIORITY)))]
    pub rt_priority: Field<Whole<{ RT_PRIORITY.least }, { RT_PRIORITY.most }>>,
    #[schemars(description = described(QUOTA), extend("default" = default(QUOTA)))]
    pub quota: Field<Duration<{ QUOTA.least }, { QUOTA.most }>>,
    #[schemars(description = described(QUOTA_PERIOD), extend("default" = default(QUOTA_PERIOD)))]
    pub quota_period: Field<Duration<{ QUOTA_PERIOD.least }, { QUOTA_PERIOD.most }>>,
    #[schemars(description = described(QUOTA_BURST), extend("default" = default(QUOTA_BURST)))]
    pub quota_burst: Field<Duration<{ QUOTA_BURST.least }, { QUOTA_BURST.most }>>,
    #[schemars(description = described(PHASE), extend("default" = default(PHASE)))]
    pub phase: Field<Duration<{ PHASE.least }, { PHASE.most }>>,
    #[schemars(description = described(CREDIT), extend("default" = default(CREDIT)))]
    pub credit: Field<Duration<{ CREDIT.least }, { CREDIT.most }>>,
    #[schemars(description = described(RECLAIM), extend("default" = default(RECLAIM)))]
    pub reclaim: Field<Flag>,
}

impl ParametersTable {
    /// The budget and the period that are written, the same under every policy: the budget comes before sedf's own
    /// slice.
    pub fn budget_and_period(&self) -> Option<(i64, i64)> {
        let budget = self.budget.value.or(self.slice.value)?;
        Some((budget.ns, self.period.value?.ns))
    }
}

/// Whole percent of one CPU, 0 to `MAX`: a number, or with a percent sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cap<const MAX: i64> {
    pub percent: u32,
}

impl<'de, const MAX: i64> Deserialize<'de> for Cap<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CapVisitor<const MAX: i64>;

        impl<const MAX: i64> Visitor<'_> for CapVisitor<MAX> {
            type Value = Cap<MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number of percent, such as 40 or \"40 %\"")
            }

            fn visit_i64<E: Error>(self, percent: i64) -> Result<Cap<MAX>, E> {
                match u32::try_from(percent) {
                    Ok(percent) if i64::from(percent) <= MAX => Ok(Cap { percent }),
                    _ => Err(E::custom(format!(
                        "is out of bounds: {percent} %\nwrite 0 (no cap) to {MAX} (percent of one CPU)"
                    ))),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Cap<MAX>, E> {
                match parse_percent(text) {
                    Some(percent) if percent.fract() == 0.0 => self.visit_i64(percent as i64),
                    _ => Err(E::custom(
                        "must be a whole number of percent, such as 40 or \"40 %\"",
                    )),
                }
            }
        }

        deserializer.deserialize_any(CapVisitor)
    }
}

impl<const MAX: i64> JsonSchema for Cap<MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cap".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": MAX },
            { "type": "string", "pattern": PERCENT_PATTERN, "examples": ["40 %"] },
        ] })
    }
}

/// The domain whose parameters are resolved.
#[derive(Clone)]
pub(crate) struct Owner {
    /// "domain `control`"
    pub title: String,
    /// The place of its table.
    pub span: Span,
    pub vcpus: u32,
}

/// Priorities stay 0 where they are not given: [`set_priorities`] sets them, when all domains are known.
pub(crate) fn resolve(
    table: &ParametersTable,
    owner: &Owner,
    policy: Policy,
    problems: &Problems,
) -> Parameters {
    let period = ("period", &table.period);
    not_longer(("budget", &table.budget), period, "the period", problems);
    not_longer(("slice", &table.slice), period, "the period", problems);
    not_longer(("phase", &table.phase), period, "the period", problems);
    if policy.has_budgets() {
        has_budget_and_period(table, owner, policy, problems);
    }
    cap_is_usable(table, owner.vcpus, problems);
    burst_has_quota(table, problems);
    let budget = match policy {
        Policy::Sedf if !table.slice.is_absent() => &table.slice,
        _ => &table.budget,
    };
    let standard = Parameters::default();
    Parameters {
        budget_ns: budget.ns_or(standard.budget_ns),
        period_ns: table.period.ns_or(standard.period_ns),
        laxity_ns: table.laxity.ns_or(standard.laxity_ns),
        priority: table.priority.or(standard.priority.into()) as u32,
        extratime: (table.extratime.value).map_or(standard.extratime, |flag| flag.0),
        weight: weight(table, standard.weight, problems),
        cap_percent: (table.cap.value).map_or(standard.cap_percent, |cap| cap.percent),
        rt_priority: table.rt_priority.or(standard.rt_priority.into()) as u32,
        quota_ns: table.quota.ns_or(standard.quota_ns),
        quota_period_ns: table.quota_period.ns_or(standard.quota_period_ns),
        quota_burst_ns: table.quota_burst.ns_or(standard.quota_burst_ns),
        phase_ns: table.phase.ns_or(standard.phase_ns),
        credit_ns: table.credit.ns_or(standard.credit_ns),
        reclaim: (table.reclaim.value).map_or(standard.reclaim, |flag| flag.0),
    }
}

fn has_budget_and_period(
    table: &ParametersTable,
    owner: &Owner,
    policy: Policy,
    problems: &Problems,
) {
    let has_slice = policy == Policy::Sedf && !table.slice.is_absent();
    let lacks_budget = !has_slice && table.budget.is_missing("budget", owner.span, problems);
    let lacks_period = table.period.is_missing("period", owner.span, problems);
    let (missing, example) = match (lacks_budget, lacks_period) {
        (true, true) => (
            "`budget` and no `period`",
            "budget = \"2 ms\" and period = \"10 ms\"",
        ),
        (true, false) => ("`budget`", "budget = \"2 ms\""),
        (false, true) => ("`period`", "period = \"10 ms\""),
        (false, false) => return,
    };
    let policy = policy.name();
    problems.report(
        owner.span,
        format!("{} has no {missing}", owner.title),
        format!(
            "under the {policy} policy every domain needs a budget and a period: \
             write {example}, say; `laxity design` finds sufficient values"
        ),
    );
}

/// The weight that is written, or follows from `nice`. Linux's own weights of nice values are rounded from the same
/// powers of 1.25.
fn weight(table: &ParametersTable, standard: u32, problems: &Problems) -> u32 {
    let Some((nice, span)) = table.nice.given() else {
        return table.weight.or(standard.into()) as u32;
    };
    if let Some(other) = table.weight.span {
        problems.push(Problem {
            help: Some("leave one of them out".into()),
            related: Some((other, "the other one")),
            ..Problem::new(span, "`nice` and `weight` both set the domain's weight")
        });
    }
    let steps = nice.0.unsigned_abs() as u32;
    let (more, less) = (5_u128.pow(steps), 4_u128.pow(steps));
    let (times, by) = if nice.0 < 0 {
        (more, less)
    } else {
        (less, more)
    };
    ((u128::from(standard) * times + by / 2) / by).max(1) as u32
}

fn cap_is_usable(table: &ParametersTable, vcpus: u32, problems: &Problems) {
    let usable = 100 * vcpus;
    if let Some((cap, span)) = table.cap.given()
        && cap.percent > usable
    {
        let plural = if vcpus == 1 { "" } else { "s" };
        problems.report(
            span,
            format!(
                "`cap` ({} %) is more than {vcpus} VCPU{plural} can use ({usable} %)",
                cap.percent
            ),
            format!("write at most {usable}, or 0 for no cap"),
        );
    }
}

fn burst_has_quota(table: &ParametersTable, problems: &Problems) {
    let burst = ("quota-burst", &table.quota_burst);
    not_longer(burst, ("quota", &table.quota), "the quota", problems);
    if let Some((burst, span)) = table.quota_burst.given()
        && burst.ns > 0
        && table.quota.is_absent()
    {
        let help = "write quota = \"50 ms\", say";
        problems.report(span, "`quota-burst` has no effect without `quota`", help);
    }
}

/// Sets the priorities that are not given: rate-monotonic, 1, 2, 3 … by period, equal ones in the order of the file,
/// domains without a period last. Either all are given or none.
pub(crate) fn set_priorities<'d>(
    domains: impl Iterator<Item = (&'d ParametersTable, Owner)> + Clone,
    parameters: &mut [&mut Parameters],
    problems: &Problems,
) {
    let given = domains.clone().find_map(|(table, _)| table.priority.span);
    let Some(given) = given else {
        parameters.sort_by_key(|parameters| match parameters.period_ns {
            0 => i64::MAX,
            period_ns => period_ns,
        });
        for (parameters, priority) in parameters.iter_mut().zip(1..) {
            parameters.priority = priority;
        }
        return;
    };
    for (table, owner) in domains {
        if table.priority.is_missing("priority", owner.span, problems) {
            problems.push(Problem {
                help: Some(
                    "give a priority to every domain or to none (a shorter period then has a higher priority)"
                        .into(),
                ),
                related: Some((given, "another domain has one")),
                ..Problem::new(owner.span, format!("{} has no `priority`", owner.title))
            });
        }
    }
}
