//! Parameters and settings that must be refused, each for one reason.

use laxity_policies::{
    CAP_MAX, DURATION_MAX, PRIORITY_MAX, Parameter, Parameters, Policy, Settings, WEIGHT_MAX,
};
use laxity_policy::Refused;

type Spoil<T> = fn(&mut T);

const fn refused(parameter: Parameter) -> Refused {
    Refused::Value(parameter)
}

/// What spoils parameters under the policies with budgets.
const OF_BUDGETS: [(Spoil<Parameters>, Refused); 9] = [
    (|of| of.budget_ns = 0, refused(Parameter::Budget)),
    (|of| of.budget_ns = -1, refused(Parameter::Budget)),
    (
        |of| of.budget_ns = of.period_ns + 1,
        refused(Parameter::Budget),
    ),
    (|of| of.budget_ns = i64::MAX, refused(Parameter::Budget)),
    (|of| of.period_ns = 0, refused(Parameter::Period)),
    (|of| of.period_ns = i64::MIN, refused(Parameter::Period)),
    (
        |of| of.period_ns = DURATION_MAX + 1,
        refused(Parameter::Period),
    ),
    (|of| of.priority = 0, refused(Parameter::Priority)),
    (
        |of| of.priority = PRIORITY_MAX as u32 + 1,
        refused(Parameter::Priority),
    ),
];

/// What spoils a domain's under credit.
const OF_CREDIT: [(Spoil<Parameters>, Refused); 3] = [
    (|of| of.weight = 0, refused(Parameter::Weight)),
    (
        |of| of.weight = WEIGHT_MAX as u32 + 1,
        refused(Parameter::Weight),
    ),
    (
        |of| of.cap_percent = CAP_MAX as u32 + 1,
        refused(Parameter::Cap),
    ),
];

/// What spoils a domain's under scheduler S.
const OF_SCHEDULER_S: [(Spoil<Parameters>, Refused); 5] = [
    OF_CREDIT[0],
    OF_CREDIT[1],
    OF_CREDIT[2],
    (|of| of.laxity_ns = -1, refused(Parameter::Laxity)),
    (
        |of| of.laxity_ns = DURATION_MAX + 1,
        refused(Parameter::Laxity),
    ),
];

const SETTINGS_OF_BUDGETS: [(Spoil<Settings>, Refused); 2] = [
    (|of| of.quantum_ns = -1, refused(Parameter::Quantum)),
    (
        |of| of.quantum_ns = DURATION_MAX + 1,
        refused(Parameter::Quantum),
    ),
];

const SETTINGS_OF_CREDIT: [(Spoil<Settings>, Refused); 9] = [
    (|of| of.time_slice_ns = 0, refused(Parameter::TimeSlice)),
    (
        |of| of.time_slice_ns = DURATION_MAX + 1,
        refused(Parameter::TimeSlice),
    ),
    (|of| of.tick_ns = 0, refused(Parameter::Tick)),
    (
        |of| of.tick_ns = of.accounting_ns + 1,
        refused(Parameter::Tick),
    ),
    (
        |of| of.accounting_ns = of.tick_ns * 2 + of.tick_ns / 2,
        refused(Parameter::Accounting),
    ),
    (|of| of.accounting_ns = 0, refused(Parameter::Accounting)),
    (
        |of| of.accounting_ns = i64::MAX,
        refused(Parameter::Accounting),
    ),
    (
        |of| of.accounting_phase_ns = -1,
        refused(Parameter::AccountingPhase),
    ),
    (
        |of| of.accounting_phase_ns = of.accounting_ns,
        refused(Parameter::AccountingPhase),
    ),
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
