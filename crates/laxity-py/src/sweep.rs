//! The results of a sweep as columns. Python makes objects of a run in more time than a short run takes, and on one CPU
//! only.

use laxity_run::RunResult;
use std::collections::{BTreeMap, HashMap};

/// The texts that occur in columns; the columns, 8 little-endian bytes a row; and the telephony of each run as JSON.
///
/// `run` is the number of the row's run, `policy` and `domain` are places among the texts, ratios and `reserved` (NaN
/// where there are no budgets) are `f64`, and all else is `i64`: `denied` is 1 where the domain got less than its
/// agreement's minimum, and -1 on hosts without agreements.
pub type Columns = (
    Vec<String>,
    BTreeMap<&'static str, Vec<u8>>,
    Vec<Option<String>>,
);

/// What the table has of one run.
pub struct Rows {
    policy: String,
    domains: Vec<String>,
    /// For each domain, in the order of [`NUMBERS`].
    numbers: Vec<[[u8; 8]; NUMBERS.len()]>,
    telephony: Option<String>,
}

const NUMBERS: [&str; 10] = [
    "seed",
    "jobs",
    "missed",
    "miss_ratio",
    "cpu_ns",
    "reserved",
    "schedule_calls",
    "context_switches",
    "loss_ratio",
    "denied",
];

/// Takes the rows of a run from its result.
pub fn rows(result: &RunResult) -> serde_json::Result<Rows> {
    let telephony = result.telephony.as_ref().map(serde_json::to_string);
    let overhead = &result.overhead;
    let network = result.network.as_ref();
    let agreements = network.map_or(&[][..], |network| &network.agreements);
    let denied = |domain: &str| match agreements {
        [] => -1_i64,
        all => (all
            .iter()
            .any(|each| each.domain == domain && !each.is_held))
        .into(),
    };
    let numbers = result.domains.iter().map(|domain| {
        [
            result.seed.to_le_bytes(),
            domain.jobs.to_le_bytes(),
            domain.missed.to_le_bytes(),
            domain.miss_ratio.to_le_bytes(),
            domain.cpu_ns.to_le_bytes(),
            domain.reserved.unwrap_or(f64::NAN).to_le_bytes(),
            // All of the overhead of simulated runs is known.
            overhead.schedule_calls.unwrap_or(0).to_le_bytes(),
            overhead.context_switches.unwrap_or(0).to_le_bytes(),
            overhead.loss_ratio.unwrap_or(0.0).to_le_bytes(),
            denied(&domain.name).to_le_bytes(),
        ]
    });
    Ok(Rows {
        policy: result.policy.clone(),
        domains: result
            .domains
            .iter()
            .map(|domain| domain.name.clone())
            .collect(),
        numbers: numbers.collect(),
        telephony: telephony.transpose()?,
    })
}

/// Puts the rows of all runs below each other.
pub fn columns(runs: Vec<Rows>) -> Columns {
    let mut columns: BTreeMap<&'static str, Vec<u8>> = BTreeMap::new();
    let mut add = |name: &'static str, cell: [u8; 8]| {
        columns.entry(name).or_default().extend(cell);
    };
    let mut places: HashMap<String, i64> = HashMap::new();
    let mut texts = Vec::new();
    let mut place = |text: String| {
        *places.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len() as i64 - 1
        })
    };
    let mut telephony = Vec::with_capacity(runs.len());
    for (run, rows) in (0_i64..).zip(runs) {
        let policy = place(rows.policy);
        for (domain, numbers) in rows.domains.into_iter().zip(rows.numbers) {
            add("run", run.to_le_bytes());
            add("policy", policy.to_le_bytes());
            add("domain", place(domain).to_le_bytes());
            for (name, number) in NUMBERS.into_iter().zip(numbers) {
                add(name, number);
            }
        }
        telephony.push(rows.telephony);
    }
    (texts, columns, telephony)
}
