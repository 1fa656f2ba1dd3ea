//! Tasks that arrive at the same instants.

use crate::task::Task;

/// Gives tasks whose arrivals fall together the same instants: those of the task that wakes the earliest. Timers that
/// end together are served one after another, in an order that may change. Arrivals that are further apart than the
/// wakes of both tasks are off stay apart: one VCPU always wakes before the other then. `tasks` are those of all VCPUs.
pub fn align(mut tasks: Vec<&mut Task>) {
    tasks.sort_by_key(|task| (task.offset_ns, task.period_ns));
    for place in 1..tasks.len() {
        let (before, after) = tasks.split_at_mut(place);
        let task = &mut after[0];
        let late_ns = (before.iter())
            .filter_map(|other| late_ns(task, other))
            .min_by_key(|late_ns| late_ns.abs());
        let offset_ns = task.offset_ns - late_ns.unwrap_or(0);
        task.offset_ns = offset_ns.rem_euclid(task.period_ns);
    }
}

/// How much later the arrivals of a task are than those of another that fall together with them, if no wake tells them
/// apart.
fn late_ns(task: &Task, other: &Task) -> Option<i64> {
    let step_ns = divisor(task.period_ns, other.period_ns);
    let near_ns = task.jitter_ns + other.jitter_ns;
    let late_ns = (task.offset_ns - other.offset_ns + near_ns).rem_euclid(step_ns);
    // Where arrivals of both are everywhere, none tells anything.
    let is_rare = near_ns < step_ns / RARE;
    (is_rare && late_ns <= 2 * near_ns).then_some(late_ns - near_ns)
}

/// One part in so many of the time in which arrivals of two tasks come is near to both, at most.
const RARE: i64 = 8;

/// The greatest common divisor of two periods.
fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task whose wakes are off by up to 2 us.
    fn task(offset_ns: i64, period_ns: i64) -> Task {
        Task {
            offset_ns,
            period_ns,
            cost_ns: 1,
            alone_ns: None,
            arrivals: 1,
            wakes: 1,
            told_ns: 0,
            jitter_ns: 2_000,
        }
    }

    fn offsets_ns<const N: usize>(of: [(i64, i64); N]) -> [i64; N] {
        let mut tasks = of.map(|(offset_ns, period_ns)| task(offset_ns, period_ns));
        align(tasks.iter_mut().collect());
        tasks.map(|task| task.offset_ns)
    }

    #[test]
    fn arrivals_that_no_wake_tells_apart_are_at_one_instant() {
        let found = offsets_ns([
            (3_000, 20_000_000),
            // At each second arrival of the first, and between two of them.
            (20_004_500, 40_000_000),
            (10_006_500, 20_000_000),
            // One always wakes before the other.
            (9_000, 20_000_000),
        ]);
        assert_eq!(found, [3_000, 20_003_000, 10_006_500, 9_000]);
    }

    #[test]
    fn arrivals_that_are_near_everywhere_are_left() {
        let periods = [(0, 1_000_003), (2_000, 1_000_000)];
        assert_eq!(offsets_ns(periods), [0, 2_000]);
    }
}
