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

/// A cost: constant, or drawn from a distribution given by quantiles.
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
        /// The value that 90 % of the draws are below; without it the distribution is linear from the median to
        /// `p99_ns`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("type" = "integer"))]
        p90_ns: Option<i64>,
        /// The value that 99 % of the draws are below.
        p99_ns: i64,
        /// The value that 99.9 % of the draws are below; without it the distribution is linear from `p99_ns` to
        /// `max_ns`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("type" = "integer"))]
        p999_ns: Option<i64>,
        /// The greatest value.
        max_ns: i64,
    },
}

const MEDIAN: u64 = 1 << 31;
const P90: u32 = ((1 << 32) * 90_u64 / 100) as u32;
const P99: u64 = (1 << 32) * 99 / 100;
const P999: u32 = ((1 << 32) * 999_u64 / 1000) as u32;
const MAX: u64 = 1 << 32;

impl Default for Cost {
    fn default() -> Self {
        Cost::Constant { ns: 0 }
    }
}

impl Cost {
    /// The sum of two costs that are drawn together.
    pub fn plus(self, other: Cost) -> Cost {
        if let (Cost::Constant { ns }, Cost::Constant { ns: more_ns }) = (self, other) {
            return Cost::Constant { ns: ns + more_ns };
        }
        let quantiles = |cost| match cost {
            Cost::Constant { ns } => ([ns; 3], [None; 2]),
            Cost::Quantiles {
                median_ns,
                p90_ns,
                p99_ns,
                p999_ns,
                max_ns,
            } => ([median_ns, p99_ns, max_ns], [p90_ns, p999_ns]),
        };
        let ((one, bends), (two, other_bends)) = (quantiles(self), quantiles(other));
        // The sum bends where one of both does.
        let sum_ns = |bend: usize, at: u32| {
            let bend_ns = bends[bend].or(other_bends[bend]);
            bend_ns.map(|_| self.at(at) + other.at(at))
        };
        Cost::Quantiles {
            median_ns: one[0] + two[0],
            p90_ns: sum_ns(0, P90),
            p99_ns: one[1] + two[1],
            p999_ns: sum_ns(1, P999),
            max_ns: one[2] + two[2],
        }
    }

    /// Whether it is always 0.
    pub fn is_free(&self) -> bool {
        self.max_ns() == 0
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
    #[inline]
    pub fn at(&self, quantile: u32) -> i64 {
        let at = u64::from(quantile);
        match *self {
            Cost::Constant { ns } => ns,
            // Packets draw little else, and a processor cannot foresee in which piece a draw falls.
            Cost::Quantiles {
                median_ns,
                p90_ns: None,
                p99_ns,
                p999_ns: None,
                max_ns,
            } => {
                const PIECES: [Piece; 3] = [
                    Piece::of_quantiles(0, MEDIAN),
                    Piece::of_quantiles(MEDIAN, P99),
                    Piece::of_quantiles(P99, MAX),
                ];
                let costs_ns = [median_ns / 2, median_ns, p99_ns, max_ns];
                let piece = usize::from(at >= MEDIAN) + usize::from(at >= P99);
                let from_ns = costs_ns[piece];
                Piece {
                    from_ns,
                    rise_ns: (costs_ns[piece + 1] - from_ns) as u64,
                    ..PIECES[piece]
                }
                .at(at)
            }
            Cost::Quantiles { .. } => self.distribution().at(quantile),
        }
    }

    /// The distribution of its draws, prepared for many; that of a constant cost has one value.
    #[inline(never)]
    pub fn distribution(&self) -> PiecewiseLinear {
        let (points, max_ns) = match *self {
            Cost::Constant { ns } => ([Some((0, ns)), None, None, None, None], ns),
            Cost::Quantiles {
                median_ns,
                p90_ns,
                p99_ns,
                p999_ns,
                max_ns,
            } => (
                [
                    Some((0, median_ns / 2)),
                    Some((MEDIAN, median_ns)),
                    p90_ns.map(|p90_ns| (P90.into(), p90_ns)),
                    Some((P99, p99_ns)),
                    p999_ns.map(|p999_ns| (P999.into(), p999_ns)),
                ],
                max_ns,
            ),
        };
        let mut pieces = [Line::between((MAX, max_ns), (MAX + 1, max_ns)); 5];
        let mut to = (MAX, max_ns);
        let mut place = pieces.len();
        for from in points.into_iter().flatten().rev() {
            place -= 1;
            pieces[place] = Line::between(from, to);
            to = from;
        }
        pieces.rotate_left(place);
        PiecewiseLinear {
            pieces,
            is_plain: matches!(
                self,
                Cost::Quantiles {
                    p90_ns: None,
                    p999_ns: None,
                    ..
                }
            ),
        }
    }
}

/// The values at all quantiles, which are linear in pieces.
#[derive(Debug, Clone, Copy)]
pub struct PiecewiseLinear {
    /// In order; behind them some whose quantiles are greater than any.
    pieces: [Line; 5],
    /// The pieces meet at the median and at the 99 % quantile alone, as those of most costs do.
    is_plain: bool,
}

/// A piece of a distribution, prepared so that a value takes no division.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// Its first quantile, in 1 / 2^32.
    from: u64,
    from_ns: i64,
    /// How much a value is greater than that of the quantile before: whole ns, and the rest in 1 / 2^64, rounded up.
    rise_ns: u64,
    rise_fraction: u64,
}

impl Line {
    /// Between two quantiles, each with its value.
    fn between(from: (u64, i64), to: (u64, i64)) -> Line {
        let (length, rise_ns) = (to.0 - from.0, (to.1 - from.1) as u64);
        Line {
            from: from.0,
            from_ns: from.1,
            rise_ns: rise_ns / length,
            rise_fraction: (u128::from(rise_ns % length) << 64).div_ceil(length.into()) as u64,
        }
    }

    /// The value at one of its quantiles. There are at most 2^32 of them, and so the fraction, which is too great by
    /// less than 1 / 2^64, makes no value reach the next nanosecond.
    #[inline]
    fn at(&self, quantile: u64) -> i64 {
        let along = quantile - self.from;
        let risen = u128::from(along) * u128::from(self.rise_fraction);
        self.from_ns + (along * self.rise_ns + (risen >> 64) as u64) as i64
    }
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Its first quantile, and the number of its quantiles, in 1 / 2^32.
    from: u64,
    length: u64,
    from_ns: i64,
    rise_ns: u64,
}

impl Piece {
    /// Between two quantiles, with no values yet.
    const fn of_quantiles(from: u64, to: u64) -> Piece {
        Piece {
            from,
            length: to - from,
            from_ns: 0,
            rise_ns: 0,
        }
    }

    /// The value at one of its quantiles.
    #[inline]
    fn at(&self, quantile: u64) -> i64 {
        let along = quantile - self.from;
        let risen_ns = match self.rise_ns.checked_mul(along) {
            Some(product) => product / self.length,
            None => {
                let product = u128::from(self.rise_ns) * u128::from(along);
                (product / u128::from(self.length)) as u64
            }
        };
        self.from_ns + risen_ns as i64
    }
}

impl PiecewiseLinear {
    /// The value at the quantile `quantile` / 2^32, in nanoseconds.
    #[inline]
    pub fn at(&self, quantile: u32) -> i64 {
        let at = u64::from(quantile);
        // A processor cannot foresee in which piece a draw falls: no branch depends on it.
        let piece = if self.is_plain {
            usize::from(at >= MEDIAN) + usize::from(at >= P99)
        } else {
            let (_, later) = self.pieces.split_at(1);
            later.iter().filter(|piece| piece.from <= at).count()
        };
        self.pieces[piece].at(at)
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
    /// The value that 90 % of the draws are below. By default the distribution is linear from `median` to `p99`.
    pub p90: Field<Time>,
    /// The value that 99 % of the draws are below.
    pub p99: Field<Time>,
    /// The value that 99.9 % of the draws are below. By default the distribution is linear from `p99` to `max`.
    pub p999: Field<Time>,
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

        deserializer.deserialize_struct(
            "Cost",
            &["median", "p90", "p99", "p999", "max"],
            CostVisitor,
        )
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

/// The quantiles that need not be given.
const MAY_BE_ABSENT: [&str; 2] = ["p90", "p999"];

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
        ("p90", &quantiles.p90),
        ("p99", &quantiles.p99),
        ("p999", &quantiles.p999),
        ("max", &quantiles.max),
    ];
    for (name, field) in named {
        if field.is_absent() && !MAY_BE_ABSENT.contains(&name) {
            let help = "write { median = \"120 ns\", p99 = \"250 ns\", max = \"5 us\" }, say";
            problems.report(
                span,
                format!("a cost given by quantiles has no `{name}`"),
                help,
            );
        }
    }
    let given: Vec<_> = (named.into_iter())
        .filter(|(_, field)| !field.is_absent())
        .collect();
    for pair in given.windows(2) {
        let ((low_name, low), (high_name, high)) = (pair[0], pair[1]);
        if let (Some((low, low_span)), Some((high, high_span))) = (low.given(), high.given())
            && low.ns > high.ns
        {
            let (low, high) = (format_duration(low.ns), format_duration(high.ns));
            problems.push(Problem {
                help: Some(
                    "write quantiles in ascending order: median, p90, p99, p999, max".into(),
                ),
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
        p90_ns: quantiles.p90.given().map(|(time, _)| time.ns),
        p99_ns: quantiles.p99.ns_or(0),
        p999_ns: quantiles.p999.given().map(|(time, _)| time.ns),
        max_ns: quantiles.max.ns_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BENT: Cost = Cost::Quantiles {
        median_ns: 100,
        p90_ns: Some(200),
        p99_ns: 1_100,
        p999_ns: Some(10_100),
        max_ns: 110_100,
    };
    const STRAIGHT: Cost = Cost::Quantiles {
        median_ns: 100,
        p90_ns: None,
        p99_ns: 1_080,
        p999_ns: None,
        max_ns: 2_080,
    };

    /// A part of 2^32.
    fn part(part: f64) -> u32 {
        (part * MAX as f64) as u32
    }

    #[test]
    fn a_cost_is_linear_between_the_quantiles_that_are_given() {
        for (quantile, bent_ns, straight_ns) in [
            (0.0, 50, 50),
            (0.25, 75, 75),
            (0.5, 100, 100),
            (0.7, 150, 500),
            (0.9, 200, 900),
            (0.945, 650, 990),
            (0.9995, 60_100, 2_030),
        ] {
            for (cost, expected_ns) in [(BENT, bent_ns), (STRAIGHT, straight_ns)] {
                let found_ns = cost.at(part(quantile));
                assert!(
                    (expected_ns - 1..=expected_ns).contains(&found_ns),
                    "{quantile}: {found_ns}"
                );
                assert_eq!(cost.distribution().at(part(quantile)), found_ns);
            }
        }
    }

    #[test]
    fn a_prepared_cost_is_to_the_nanosecond_what_a_division_gives() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        for (median_ns, p99_ns, max_ns) in [
            (1, 2, 3),
            (100, 1_080, 2_080),
            (7, 7, HOUR_NS),
            (HOUR_NS / 3, HOUR_NS / 3 + 1, HOUR_NS),
            (1 << 33, 1 << 34, i64::MAX),
        ] {
            let cost = Cost::Quantiles {
                median_ns,
                p90_ns: None,
                p99_ns,
                p999_ns: None,
                max_ns,
            };
            let distribution = cost.distribution();
            let edges = [0, (MEDIAN - 1) as u32, MEDIAN as u32, P99 as u32, u32::MAX];
            for quantile in (0..u32::MAX).step_by(40_009).chain(edges) {
                assert_eq!(distribution.at(quantile), cost.at(quantile), "{quantile}");
            }
        }
    }

    #[test]
    fn a_sum_bends_where_one_of_both_does() {
        let sum = Cost::Quantiles {
            median_ns: 200,
            p90_ns: Some(1_099),
            p99_ns: 2_180,
            p999_ns: Some(12_079),
            max_ns: 112_180,
        };
        assert_eq!(BENT.plus(STRAIGHT), sum);
        let more = Cost::Quantiles {
            median_ns: 101,
            p90_ns: None,
            p99_ns: 1_081,
            p999_ns: None,
            max_ns: 2_081,
        };
        assert_eq!(STRAIGHT.plus(Cost::Constant { ns: 1 }), more);
    }
}
