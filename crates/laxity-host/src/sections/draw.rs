//! `[draw]`: task sets drawn at random, by the procedure of RT-Xen (EMSOFT 2011, section 5.5).
//!
//! The cost of each task is drawn first; then the domain's load is split among the tasks, uniformly
//! over all splits (UUniFast: Bini and Buttazzo, "Measuring the Performance of Schedulability
//! Tests", 2005); period and deadline follow from cost and utilization, in whole milliseconds. The
//! paper does not say how it splits; UUniFast has become the field's way.
//!
//! Random numbers and logarithms are computed by this crate and its libraries, never by the
//! platform's, so that every machine draws the same tasks.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{
    Field, HOUR_NS, List, MILLISECOND_NS, PERCENT_PATTERN, Problem, Problems, Span, Whole,
    format_duration, parse_percent,
};
use rand_core::RngCore;
use rand_pcg::Pcg64;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::tasks::Task;
use crate::quantities::Positive;

const DRAWN_TASKS_MAX: i64 = 1000;
const COST_MS: (i64, i64) = (5, 10);

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
    #[schemars(extend("default" = DrawTable::TASKS))]
    pub tasks: Field<Whole<1, DRAWN_TASKS_MAX>>,
    /// The least and the greatest cost of a task: whole milliseconds, drawn uniformly, both ends
    /// included.
    #[schemars(extend("default" = costs_default(), "minItems" = 2, "maxItems" = 2))]
    pub cost: Field<List<Positive>>,
}

/// A load: a number above 0 and up to 1.5, or a percentage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load(pub f64);

impl Load {
    const MAX: f64 = 1.5;
}

impl<'de> Deserialize<'de> for Load {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LoadVisitor;

        impl Visitor<'_> for LoadVisitor {
            type Value = Load;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number such as 0.7, or \"70 %\"")
            }

            fn visit_f64<E: Error>(self, load: f64) -> Result<Load, E> {
                if load > 0.0 && load <= Load::MAX {
                    return Ok(Load(load));
                }
                Err(E::custom(
                    if load > Load::MAX && load <= 100.0 * Load::MAX {
                        format!(
                            "is too high: {load}\nwrite {} or \"{load} %\", if that is meant",
                            load / 100.0
                        )
                    } else {
                        format!(
                            "is out of bounds: {load}\nwrite a number above 0 and up to {}",
                            Load::MAX
                        )
                    },
                ))
            }

            fn visit_i64<E: Error>(self, load: i64) -> Result<Load, E> {
                self.visit_f64(load as f64)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Load, E> {
                let percent = parse_percent(text).ok_or_else(|| {
                    E::custom(format!(
                        "is not a percentage: {text:?}\nwrite a number such as 0.7, or \"70 %\""
                    ))
                })?;
                let load = percent / 100.0;
                if load > 0.0 && load <= Load::MAX {
                    return Ok(Load(load));
                }
                Err(E::custom(format!(
                    "is out of bounds: {text:?}\nwrite a percentage above 0 % and up to 150 %"
                )))
            }
        }

        deserializer.deserialize_any(LoadVisitor)
    }
}

impl JsonSchema for Load {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Load".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "exclusiveMinimum": 0, "maximum": Load::MAX },
            { "type": "string", "pattern": PERCENT_PATTERN, "examples": ["70 %"] },
        ] })
    }
}

impl DrawTable {
    /// The number of tasks in each domain, unless the file says otherwise.
    pub const TASKS: usize = 5;

    /// The number of tasks in each domain.
    pub fn tasks_each(&self) -> usize {
        self.tasks.or(DrawTable::TASKS as i64) as usize
    }
}

/// What is drawn for a share of 1 of the host, and the place of the load. `None` if the load is missing or wrong.
pub(crate) fn resolve(
    table: &DrawTable,
    span: Span,
    problems: &Problems,
) -> Option<(Drawing, Span)> {
    if table.load.is_missing("load", span, problems) {
        problems.report(
            span,
            "`[draw]` has no `load`",
            "write load = 0.7, say: 70 % of each domain's share",
        );
    }
    let (cost_ms_min, cost_ms_max) = cost_ms(table, problems);
    let (load, load_span) = table.load.given()?;
    let drawing = Drawing {
        utilization: load.0,
        tasks: table.tasks_each(),
        cost_ms_min,
        cost_ms_max,
    };
    Some((drawing, load_span))
}

/// The default costs as they are written.
fn costs_default() -> [String; 2] {
    <[i64; 2]>::from(COST_MS).map(|ms| format_duration(ms * MILLISECOND_NS))
}

/// The least and the greatest cost, in milliseconds; by default those of RT-Xen.
fn cost_ms(table: &DrawTable, problems: &Problems) -> (i64, i64) {
    let Some((list, span)) = table.cost.given() else {
        return COST_MS;
    };
    let [least, greatest] = &list.0[..] else {
        let help = "write the least and the greatest: [\"5 ms\", \"10 ms\"]";
        let message = format!("`cost` must be two times, not {}", list.0.len());
        problems.report(span, message, help);
        return COST_MS;
    };
    for (cost, span) in [least, greatest].into_iter().filter_map(Field::given) {
        if cost.ns % MILLISECOND_NS != 0 {
            let cost = format_duration(cost.ns);
            problems.report(
                span,
                format!("`cost` is not a whole number of milliseconds: {cost}"),
                "costs are drawn in whole milliseconds; write \"5 ms\", say",
            );
        }
    }
    let (Some((least, span)), Some((greatest, greatest_span))) = (least.given(), greatest.given())
    else {
        return COST_MS;
    };
    if least.ns > greatest.ns {
        problems.push(Problem {
            help: Some("write the least first".into()),
            related: Some((greatest_span, "the greatest")),
            ..Problem::new(span, "the least `cost` is above the greatest")
        });
    }
    (least.ns / MILLISECOND_NS, greatest.ns / MILLISECOND_NS)
}

/// What to draw for one domain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawing {
    /// The sum of the utilizations; above 0.
    pub utilization: f64,
    /// How many tasks; at least 1.
    pub tasks: usize,
    /// The least cost, in whole milliseconds; at least 1.
    pub cost_ms_min: i64,
    /// The greatest, not below the least.
    pub cost_ms_max: i64,
}

/// Tasks "task-1", "task-2", … on VCPU 0, without offset and jitter. The utilization of each is at
/// most 1. `stream` is the domain's number: each domain draws from its own stream of the host's
/// `seed`. `None`: so high a load for so few tasks that no split was found.
///
/// Costs do not depend on the load, and with one more or less load the split stays the same, so
/// that the points of a sweep over loads are comparable.
pub(crate) fn draw_tasks(drawing: Drawing, seed: u64, stream: u64) -> Option<Vec<Task>> {
    let mut random = random(seed, stream);
    let costs: Vec<i64> = (0..drawing.tasks)
        .map(|_| {
            let choices = (drawing.cost_ms_max - drawing.cost_ms_min) as u64 + 1;
            drawing.cost_ms_min + below(&mut random, choices) as i64
        })
        .collect();
    let utilizations = split(drawing.utilization, drawing.tasks, &mut random)?;
    let task = |(index, (cost_ms, utilization)): (usize, (i64, f64))| {
        let period_ns = period_ms(cost_ms, utilization) * MILLISECOND_NS;
        Task {
            name: format!("task-{}", index + 1),
            vcpu: 0,
            cost_ns: cost_ms * MILLISECOND_NS,
            period_ns,
            deadline_ns: period_ns,
            offset_ns: 0,
            jitter_ns: 0,
        }
    };
    Some(
        costs
            .into_iter()
            .zip(utilizations)
            .enumerate()
            .map(task)
            .collect(),
    )
}

/// A task of next to no utilization would not come again within an hour, the longest period that
/// there is; it gets that period.
fn period_ms(cost_ms: i64, utilization: f64) -> i64 {
    let exact = cost_ms as f64 / utilization;
    (libm::round(exact.min((HOUR_NS / MILLISECOND_NS) as f64)) as i64).max(cost_ms)
}

/// `parts` numbers in 0..=1 that sum up to `sum`, uniformly among all such. UUniFast; splits with a
/// part above 1, which only a sum above 1 can have, are discarded and drawn again.
fn split(sum: f64, parts: usize, random: &mut Pcg64) -> Option<Vec<f64>> {
    const ATTEMPTS_MAX: usize = 10_000;
    // Half of what could be carried at all is still found quickly; more than all, never.
    if sum > parts as f64 {
        return None;
    }
    let mut shares = Vec::with_capacity(parts);
    'attempt: for _ in 0..ATTEMPTS_MAX {
        shares.clear();
        let mut left = sum;
        for others in (1..parts).rev() {
            let rest = left * libm::pow(unit(random), 1.0 / others as f64);
            let share = left - rest;
            if share > 1.0 {
                continue 'attempt;
            }
            shares.push(share);
            left = rest;
        }
        if left <= 1.0 {
            shares.push(left);
            return Some(shares);
        }
    }
    None
}

fn random(seed: u64, stream: u64) -> Pcg64 {
    // Streams of PCG that begin at the same state resemble each other at first; these do not.
    let low = scramble(seed ^ scramble(stream));
    Pcg64::new(
        u128::from(scramble(seed)) << 64 | u128::from(low),
        u128::from(stream),
    )
}

/// The mixing function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Uniform in 0..`end`, which is small: the bias is below `end` / 2^64.
fn below(random: &mut Pcg64, end: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(end)) >> 64) as u64
}

/// Uniform in the open interval from 0 to 1.
fn unit(random: &mut Pcg64) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 52) as f64;
    ((random.next_u64() >> 12) as f64 + 0.5) * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Drawing = Drawing {
        utilization: 0.2 * 0.7,
        tasks: 5,
        cost_ms_min: 5,
        cost_ms_max: 10,
    };

    fn utilization(tasks: &[Task]) -> f64 {
        tasks
            .iter()
            .map(|task| task.cost_ns as f64 / task.period_ns as f64)
            .sum()
    }

    #[test]
    fn utilizations_sum_up_to_the_load() {
        for seed in 0..1000 {
            let tasks = draw_tasks(PAPER, seed, 0).unwrap();
            let sum = utilization(&tasks);
            // Only rounding to whole milliseconds lies between: half a millisecond in a period
            // that is not shorter than 5 ms / 0.14.
            let rounding = 0.14 * 0.5 / (5.0 / 0.14);
            assert!((sum - 0.14).abs() < rounding, "seed {seed}: {sum}");
        }
    }

    #[test]
    fn costs_are_uniform_with_both_ends() {
        let mut count = [0_i32; 6];
        for seed in 0..4000 {
            for task in draw_tasks(PAPER, seed, 3).unwrap() {
                count[(task.cost_ns / MILLISECOND_NS - 5) as usize] += 1;
            }
        }
        // 20,000 draws: 3,333 each, with a standard deviation of 53.
        assert!(
            count.iter().all(|count| (count - 3333).abs() < 5 * 53),
            "{count:?}"
        );
    }

    #[test]
    fn splits_are_uniform() {
        // Each of n parts of a uniform split is below t with probability 1 - (1 - t)^(n - 1).
        let mut below_a_tenth = [0_i32; 5];
        let mut random = random(1, 1);
        for _ in 0..10_000 {
            for (part, share) in split(1.0, 5, &mut random).unwrap().into_iter().enumerate() {
                below_a_tenth[part] += i32::from(share < 0.1);
            }
        }
        let expected = (10_000.0 * (1.0 - 0.9_f64.powi(4))) as i32;
        assert!(
            below_a_tenth
                .iter()
                .all(|count| (count - expected).abs() < 5 * 48),
            "{below_a_tenth:?}, expected {expected}"
        );
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_domain_other_tasks() {
        let first = draw_tasks(PAPER, 7, 0).unwrap();
        assert_eq!(first, draw_tasks(PAPER, 7, 0).unwrap());
        assert_ne!(first, draw_tasks(PAPER, 7, 1).unwrap());
        assert_ne!(first, draw_tasks(PAPER, 8, 0).unwrap());
    }

    #[test]
    fn every_machine_draws_this() {
        let drawn: Vec<(i64, i64)> = draw_tasks(PAPER, 1, 0)
            .unwrap()
            .into_iter()
            .map(|task| {
                (
                    task.cost_ns / MILLISECOND_NS,
                    task.period_ns / MILLISECOND_NS,
                )
            })
            .collect();
        assert_eq!(drawn, [(6, 389), (8, 190), (5, 937), (7, 107), (9, 756)]);
    }

    #[test]
    fn no_task_needs_more_than_a_cpu() {
        for seed in 0..200 {
            let drawing = Drawing {
                utilization: 2.9,
                ..PAPER
            };
            let tasks = draw_tasks(drawing, seed, 0).unwrap();
            assert!(
                tasks.iter().all(|task| task.cost_ns <= task.period_ns),
                "seed {seed}"
            );
            assert!((utilization(&tasks) - 2.9).abs() < 0.3, "seed {seed}");
        }
        assert_eq!(
            draw_tasks(
                Drawing {
                    utilization: 5.1,
                    ..PAPER
                },
                1,
                0
            ),
            None
        );
        assert_eq!(
            draw_tasks(
                Drawing {
                    utilization: 4.9999,
                    ..PAPER
                },
                1,
                0
            ),
            None
        );
    }
}
