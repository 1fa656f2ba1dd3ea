//! Periods that are worth trying for a domain, and the least budget at one.

use laxity_analysis::Budgets;
use laxity_host::{Domain, Host};

/// A task's period and deadline are divided by 1 to this: a task whose period is a multiple of its server's may arrive
/// in step with it.
const DIVISORS_MAX: i64 = 16;

/// The shortest period that is tried is the shortest deadline divided by this.
const SHORTER_MAX: f64 = 128.0;

/// Periods between those that follow from the tasks: each is longer than the one before by this factor.
const STEP: f64 = 1.2;

/// The same beyond the shortest deadline: how many jobs a budget has to pay for changes there with small steps.
const FINE_STEP: f64 = 1.05;

/// Budgets and periods are multiples of this, unless a task's period asks for others: as people write them, with a
/// loss of less than a thousandth of the period.
pub(crate) fn grain_ns(period_ns: i64) -> i64 {
    let mut grain_ns = 1_000;
    while grain_ns > 1 && period_ns / grain_ns < 1_000 {
        grain_ns /= 10;
    }
    grain_ns
}

fn greatest_common_divisor(one: i64, other: i64) -> i64 {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}

/// Periods to try for a domain, ascending.
pub(crate) fn candidates(domain: &Domain) -> Vec<i64> {
    let tasks = &domain.tasks;
    let (Some(shortest_ns), Some(longest_ns)) = (
        tasks.iter().map(|task| task.deadline_ns).min(),
        tasks.iter().map(|task| task.period_ns).max(),
    ) else {
        return Vec::new();
    };
    let common_ns = tasks.iter().fold(0, |common, task| {
        greatest_common_divisor(task.period_ns, common)
    });
    let mut periods: Vec<i64> = Vec::new();
    for whole_ns in tasks
        .iter()
        .flat_map(|task| [task.period_ns, task.deadline_ns])
        .chain([common_ns])
    {
        let parts = (1..=DIVISORS_MAX).map(|divisor| match whole_ns % divisor {
            0 => whole_ns / divisor,
            _ => rounded(whole_ns / divisor),
        });
        periods.extend(parts);
    }
    let mut between = (shortest_ns as f64 / SHORTER_MAX).max(1.0);
    while between < longest_ns as f64 {
        periods.push(rounded(between as i64));
        between *= match between < shortest_ns as f64 {
            true => STEP,
            false => FINE_STEP,
        };
    }
    periods.retain(|&period_ns| (1..=longest_ns).contains(&period_ns));
    periods.sort_unstable();
    periods.dedup();
    periods
}

pub(crate) fn rounded(period_ns: i64) -> i64 {
    let grain_ns = grain_ns(period_ns);
    (period_ns / grain_ns * grain_ns).max(1)
}

/// The least budget with which the last domain of `host` is guaranteed, at its period; `None` if not even the whole
/// period is enough. `at_least_ns` is known to be no more than what is needed. `tried` counts the analyses.
pub(crate) fn least_budget(host: &mut Host, at_least_ns: i64, tried: &mut u64) -> Option<i64> {
    let last = host.domains.len() - 1;
    least_budget_of(host, last, at_least_ns, tried)
}

/// The same for any domain.
pub(crate) fn least_budget_of(
    host: &mut Host,
    number: usize,
    at_least_ns: i64,
    tried: &mut u64,
) -> Option<i64> {
    let period_ns = host.domains[number].parameters.period_ns;
    let grain_ns = grain_ns(period_ns);
    let mut budgets = Budgets::new(host, number);
    let mut is_enough = |budget_ns: i64| {
        *tried += 1;
        budgets.are_enough(budget_ns.min(period_ns))
    };
    let grains_max = period_ns.div_euclid(grain_ns) + i64::from(period_ns % grain_ns != 0);
    let mut too_few = (at_least_ns - 1).div_euclid(grain_ns);
    let (mut grains, mut step) = (too_few + 1, 1);
    // The least budget is most often only a little above the known lower bound.
    loop {
        if grains >= grains_max {
            if !is_enough(period_ns) {
                return None;
            }
            grains = grains_max;
            break;
        }
        if is_enough(grains * grain_ns) {
            break;
        }
        too_few = grains;
        grains += step;
        step *= 4;
    }
    while grains - too_few > 1 {
        let middle = too_few + (grains - too_few) / 2;
        if is_enough(middle * grain_ns) {
            grains = middle;
        } else {
            too_few = middle;
        }
    }
    let budget_ns = (grains * grain_ns).min(period_ns);
    host.domains[number].parameters.budget_ns = budget_ns;
    Some(budget_ns)
}
