//! `[host] caches`: which CPUs share a cache.

use std::collections::HashMap;

use laxity_config::{
    Field, List, MICROSECOND_NS, Measured, Problem, Problems, Span, format_duration,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantities::{CpuNumber, NotNegative, Size};

const REFILL_KIB_NS: i64 = 1_600;

/// A cache that some CPUs share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cache {
    /// The CPUs, ascending; a CPU has at most one cache.
    pub cpus: Vec<u32>,
    /// The size; at least 64.
    pub bytes: u64,
    /// The time to load 1 KiB into the cache from memory.
    pub refill_kib_ns: i64,
}

/// A cache that some CPUs share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { cpus = [0, 1], size = \"4 MiB\" }"
)]
#[schemars(extend("required" = ["cpus", "size"]))]
pub(crate) struct CacheTable {
    /// The numbers of the CPUs.
    #[schemars(extend("minItems" = 1, "uniqueItems" = true))]
    pub cpus: Field<List<CpuNumber>>,
    /// The size of the cache.
    pub size: Field<Measured<Size>>,
    /// The time to load 1 KiB into the cache from memory: 16 lines of 64 bytes, by default 100 ns each.
    #[schemars(extend("default" = format_duration(REFILL_KIB_NS)))]
    pub refill: Field<NotNegative<MICROSECOND_NS>>,
}

/// The caches of a host with `cpus` CPUs.
pub(crate) fn resolve(
    caches: &Field<List<CacheTable>>,
    cpus: u32,
    problems: &Problems,
) -> Vec<Cache> {
    let Some((list, _)) = caches.given() else {
        return Vec::new();
    };
    let mut taken = HashMap::new();
    let tables = list.0.iter().filter_map(Field::given);
    tables
        .map(|(table, span)| cache(table, span, cpus, &mut taken, problems))
        .collect()
}

/// `taken` maps each CPU that has a cache already to the place where the file says so.
fn cache(
    table: &CacheTable,
    span: Span,
    cpus: u32,
    taken: &mut HashMap<i64, Span>,
    problems: &Problems,
) -> Cache {
    for (key, missing) in [
        ("cpus", table.cpus.is_missing("cpus", span, problems)),
        ("size", table.size.is_missing("size", span, problems)),
    ] {
        if missing {
            let help = "write { cpus = [0, 1], size = \"4 MiB\" }, say";
            problems.report(span, format!("this cache has no `{key}`"), help);
        }
    }
    let list = table
        .cpus
        .value
        .as_ref()
        .map_or(&[][..], |list| &list.0[..]);
    for (cpu, span) in list.iter().filter_map(Field::given) {
        if cpu.0 >= i64::from(cpus) {
            let help = format!("this host has CPUs 0 to {}", cpus - 1);
            problems.report(span, format!("there is no CPU {}", cpu.0), help);
        }
        if let Some(first) = taken.insert(cpu.0, span) {
            problems.push(Problem {
                help: Some("a CPU has one cache".into()),
                related: Some((first, "the first time")),
                ..Problem::new(span, format!("CPU {} has two caches", cpu.0))
            });
        }
    }
    let mut cpus: Vec<u32> = list
        .iter()
        .filter_map(|cpu| cpu.value.map(|cpu| cpu.0 as u32))
        .collect();
    cpus.sort_unstable();
    Cache {
        cpus,
        bytes: table.size.value.map_or(64, |size| size.0.bytes as u64),
        refill_kib_ns: table.refill.ns_or(REFILL_KIB_NS),
    }
}
