//! Parameters and settings that must be refused, each for one reason.

use laxity_host::{HOUR_NS, Parameters, Policy, Settings};
use laxity_policy::Refused;

type Spoil<T> = fn(&mut T);

/// What spoils parameters under the policies with budgets.
const OF_BUDGETS: [(Spoil<Parameters>, Refused); 9] = [
    (|of| of.budget_ns = 0, Refused::Budget),
    (|of| of.budget_ns = -1, Refused::Budget),
    (|of| of.budget_ns = of.period_ns + 1, Refused::Budget),
    (|of| of.budget_ns = i64::MAX, Refused::Budget),
    (|of| of.period_ns = 0, Refused::Period),
    (|of| of.period_ns = i64::MIN, Refused::Period),
    (|of| of.period_ns = HOUR_NS + 1, Refused::Period),
    (|of| of.priority = 0, Refused::Priority),
    (|of| of.priority = 1_000_001, Refused::Priority),
];

/// What spoils a domain's under credit.
const OF_CREDIT: [(Spoil<Parameters>, Refused); 3] = [
    (|of| of.weight = 0, Refused::Weight),
    (|of| of.weight = 65_536, Refused::Weight),
    (|of| of.cap_percent = 100 * 65_535 + 1, Refused::Cap),
];

/// What spoils a domain's under scheduler S.
const OF_SCHEDULER_S: [(Spoil<Parameters>, Refused); 5] = [
    OF_CREDIT[0],
    OF_CREDIT[1],
    OF_CREDIT[2],
    (|of| of.laxity_ns = -1, Refused::Laxity),
    (|of| of.laxity_ns = HOUR_NS + 1, Refused::Laxity),
];

const SETTINGS_OF_BUDGETS: [(Spoil<Settings>, Refused); 2] = [
    (|of| of.quantum_ns = -1, Refused::Quantum),
    (|of| of.quantum_ns = HOUR_NS + 1, Refused::Quantum),
];

const SETTINGS_OF_CREDIT: [(Spoil<Settings>, Refused); 7] = [
    (|of| of.time_slice_ns = 0, Refused::TimeSlice),
    (|of| of.time_slice_ns = HOUR_NS + 1, Refused::TimeSlice),
    (|of| of.tick_ns = 0, Refused::Tick),
    (|of| of.tick_ns = of.accounting_ns + 1, Refused::Tick),
    (
        |of| of.accounting_ns = of.tick_ns * 2 + of.tick_ns / 2,
        Refused::Accounting,
    ),
    (|of| of.accounting_ns = 0, Refused::Accounting),
    (|of| of.accounting_ns = i64::MAX, Refused::Accounting),
];

pub fn parameters(policy: Policy) -> &'static [(Spoil<Parameters>, Refused)] {
    if policy.is_scheduler_s() {
        &OF_SCHEDULER_S
    } else if policy.shares_by_weight() {
        &OF_CREDIT
    } else {
        &OF_BUDGETS
    }
}

pub fn settings(policy: Policy) -> &'static [(Spoil<Settings>, Refused)] {
    if policy.shares_by_weight() {
        &SETTINGS_OF_CREDIT
    } else {
        &SETTINGS_OF_BUDGETS
    }
}
