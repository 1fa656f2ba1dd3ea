//! A cost of CPU time: constant, or drawn from a distribution.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{Duration, Field, MICROSECOND_NS, Problem, Problems, format_duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::quantities::NotNegative;

/// The time of a cost, most often in microseconds.
type Time = NotNegative<MICROSECOND_NS>;

/// A cost: constant, or drawn from a distribution given by three quantiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Cost {
    /// A constant cost.
    Constant {
        /// The cost in nanoseconds.
        ns: i64,
    },
    /// Quantiles of a distribution, which is linear between them; the 0 quantile is half the median.
    Quantiles {
        /// The value that half of the draws are below.
        median_ns: i64,
        /// The value that 99 % of the draws are below.
        p99_ns: i64,
        /// The greatest value.
        max_ns: i64,
    },
}

impl Default for Cost {
    fn default() -> Self {
        Cost::Constant { ns: 0 }
    }
}

impl Cost {
    /// The sum of two costs that are drawn together.
    pub fn plus(self, other: Cost) -> Cost {
        let quantiles = |cost| match cost {
            Cost::Constant { ns } => (ns, ns, ns),
            Cost::Quantiles {
                median_ns,
                p99_ns,
                max_ns,
            } => (median_ns, p99_ns, max_ns),
        };
        if let (Cost::Constant { ns }, Cost::Constant { ns: more_ns }) = (self, other) {
            return Cost::Constant { ns: ns + more_ns };
        }
        let (one, two) = (quantiles(self), quantiles(other));
        Cost::Quantiles {
            median_ns: one.0 + two.0,
            p99_ns: one.1 + two.1,
            max_ns: one.2 + two.2,
        }
    }

    /// The greatest value that a draw can have, in nanoseconds.
    pub fn max_ns(&self) -> i64 {
        match *self {
            Cost::Constant { ns } => ns,
            Cost::Quantiles { max_ns, .. } => max_ns,
        }
    }

    /// The value at the quantile `quantile` / 2^32, in nanoseconds. It is computed in integers, so that every machine
    /// draws the same.
    pub fn at(&self, quantile: u32) -> i64 {
        let Cost::Quantiles {
            median_ns,
            p99_ns,
            max_ns,
        } = *self
        else {
            return self.max_ns();
        };
        const MEDIAN: u64 = 1 << 31;
        const P99: u64 = (1 << 32) * 99 / 100;
        const QUANTILES: [u64; 4] = [0, MEDIAN, P99, 1 << 32];
        let costs_ns = [median_ns / 2, median_ns, p99_ns, max_ns];
        let at = u64::from(quantile);
        let piece = usize::from(at >= MEDIAN) + usize::from(at >= P99);
        let rise_ns = (costs_ns[piece + 1] - costs_ns[piece]) as u64;
        let length = QUANTILES[piece + 1] - QUANTILES[piece];
        let along = at - QUANTILES[piece];
        let risen_ns = match rise_ns.checked_mul(along) {
            Some(product) => product / length,
            None => (u128::from(rise_ns) * u128::from(along) / u128::from(length)) as u64,
        };
        costs_ns[piece] + risen_ns as i64
    }
}

/// One cost: a time, or quantiles of its distribution.
#[derive(Debug)]
pub(crate) enum CostChoice {
    Constant(Time),
    Quantiles(QuantilesTable),
}

/// Quantiles of a cost, whose distribution is linear between them; the least value is half the median.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["median", "p99", "max"]))]
pub(crate) struct QuantilesTable {
    /// The value that half of the draws are below.
    pub median: Field<Time>,
    /// The value that 99 % of the draws are below.
    pub p99: Field<Time>,
    /// The greatest value.
    pub max: Field<Time>,
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
            generator.subschema_for::<Time>(),
            generator.subschema_for::<QuantilesTable>(),
        );
        json_schema!({ "anyOf": [time, table] })
    }
}

/// The cost that is written; 0 if none is.
pub(crate) fn cost(choice: &Field<CostChoice>, problems: &Problems) -> Cost {
    let Some((choice, span)) = choice.given() else {
        return Cost::default();
    };
    let quantiles = match choice {
        CostChoice::Constant(time) => return Cost::Constant { ns: time.ns },
        CostChoice::Quantiles(quantiles) => quantiles,
    };
    let named = [
        ("median", &quantiles.median),
        ("p99", &quantiles.p99),
        ("max", &quantiles.max),
    ];
    for (name, field) in named {
        if field.is_absent() {
            let help = "write { median = \"120 ns\", p99 = \"250 ns\", max = \"5 us\" }, say";
            problems.report(
                span,
                format!("a cost given by quantiles has no `{name}`"),
                help,
            );
        }
    }
    for [(low_name, low), (high_name, high)] in [[named[0], named[1]], [named[1], named[2]]] {
        if let (Some((low, low_span)), Some((high, high_span))) = (low.given(), high.given())
            && low.ns > high.ns
        {
            let (low, high) = (format_duration(low.ns), format_duration(high.ns));
            problems.push(Problem {
                help: Some("write quantiles in ascending order: median, p99, max".into()),
                related: Some((high_span, "the higher quantile")),
                ..Problem::new(
                    low_span,
                    format!("`{low_name}` ({low}) is above `{high_name}` ({high})"),
                )
            });
        }
    }
    Cost::Quantiles {
        median_ns: quantiles.median.ns_or(0),
        p99_ns: quantiles.p99.ns_or(0),
        max_ns: quantiles.max.ns_or(0),
    }
}
