//! The tables of policies and parameters.

use laxity_policies::{Parameter, Policy};
use pyo3::prelude::*;
use serde_json::{Value, json};

/// A JSON list of objects, one a policy, in the order of tables.
#[pyfunction]
pub fn policies() -> String {
    let policy = |policy: Policy| {
        json!({
            "name": policy.name(),
            "family": policy.family().name(),
            "switch_group": policy.switch_group(),
            "substrates": policy.substrates().iter().map(|each| each.name()).collect::<Vec<_>>(),
            "own_of": policy.own_of().map(|substrate| substrate.name()),
            "listens": laxity_policy::listens(policy),
            "parameters": policy.parameters().iter().map(|each| each.facts().name).collect::<Vec<_>>(),
            "about": policy.about(),
        })
    };
    Value::from_iter(Policy::ALL.map(policy)).to_string()
}

/// A JSON list of objects, one a parameter: those of domains, then the settings of a host.
#[pyfunction]
pub fn parameters() -> String {
    let parameter = |parameter: Parameter| {
        let facts = parameter.facts();
        let (kind, unit) = facts.kind.name_and_unit();
        json!({
            "name": facts.name,
            "field": facts.field,
            "is_setting": facts.is_setting,
            "kind": kind,
            "unit": unit,
            "least": facts.least,
            "most": facts.most,
            "default": (facts.standard >= facts.least).then_some(facts.standard),
            "meaning": facts.meaning,
        })
    };
    Value::from_iter(Parameter::ALL.map(parameter)).to_string()
}
