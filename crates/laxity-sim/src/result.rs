//! The result of a run: one JSON object, the same from every substrate.

use schemars::JsonSchema;
use serde::Serialize;

/// What a run of a host found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunResult {
    /// The policy that scheduled the VCPUs.
    pub policy: String,
    /// Where all randomness came from: the same host file and seed give the same run.
    pub seed: u64,
    /// What ran it: `sim`, `xen` or `linux`.
    pub substrate: String,
    /// How long the run lasted, ns of the host's time.
    pub duration_ns: i64,
    /// In the order of the host file.
    pub domains: Vec<DomainResult>,
    /// What the scheduler itself cost.
    pub overhead: Overhead,
    /// What the run cost whoever ran it.
    pub engine: Engine,
}

/// A domain's jobs and CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DomainResult {
    /// As in the host file.
    pub name: String,
    /// Jobs whose deadline fell within the run.
    pub jobs: u64,
    /// Those of them that were not complete at their deadline.
    pub missed: u64,
    /// `missed` / `jobs`; 0 where there are none.
    pub miss_ratio: f64,
    /// CPU time of its VCPUs, the scheduler's own costs not counted.
    pub cpu_ns: i64,
    /// In the order of the host file.
    pub tasks: Vec<TaskResult>,
}

/// A task's jobs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskResult {
    /// As in the host file.
    pub name: String,
    /// Jobs whose deadline fell within the run.
    pub jobs: u64,
    /// Those of them that were not complete at their deadline.
    pub missed: u64,
    /// `missed` / `jobs`; 0 where there are none.
    pub miss_ratio: f64,
    /// Those of `missed` that were not even complete when the run ended. They stand in the two
    /// distributions with the time they had by then, which is less than it would have become.
    pub unfinished: u64,
    /// From arrival to completion, of all jobs.
    pub response_ns: Distribution,
    /// From deadline to completion, of the missed jobs.
    pub lateness_ns: Distribution,
}

/// Quantiles, by nearest rank: each is a value that occurred. Null where there are no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Distribution {
    /// Median.
    pub p50: Option<i64>,
    /// 99 % are at most this.
    pub p99: Option<i64>,
    /// The greatest.
    pub max: Option<i64>,
}

/// What the scheduler itself cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Overhead {
    /// Decisions.
    pub schedule_calls: u64,
    /// Decisions that changed what runs on the CPU, idle included.
    pub context_switches: u64,
    /// Time that decisions took.
    pub schedule_ns: i64,
    /// Time that context switches took.
    pub context_switch_ns: i64,
    /// Both, of the time of all CPUs.
    pub loss_ratio: f64,
}

/// What the run cost whoever ran it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Engine {
    /// Things that happened: arrivals, completions, timers, decisions.
    pub events: u64,
    /// Time on the wall. The only part of a result that two runs do not share.
    pub wall_ns: u64,
}

/// The JSON Schema of [`RunResult`].
pub fn schema() -> String {
    let schema = schemars::schema_for!(RunResult);
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

impl Distribution {
    /// Of values in any order, which are reordered.
    pub fn of(values: &mut [i64]) -> Distribution {
        // Nearest rank: the least value with at least this share of all values at or below it.
        let mut at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100);
            (rank > 0).then(|| *values.select_nth_unstable(rank - 1).1)
        };
        Distribution {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// `part` / `whole`; 0 of nothing.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let mut values: Vec<i64> = (1..=200).rev().collect();
        let of = Distribution::of(&mut values);
        assert_eq!((of.p50, of.p99, of.max), (Some(100), Some(198), Some(200)));
        let of = Distribution::of(&mut [7]);
        assert_eq!((of.p50, of.p99, of.max), (Some(7), Some(7), Some(7)));
        let of = Distribution::of(&mut []);
        assert_eq!((of.p50, of.p99, of.max), (None, None, None));
    }
}
