//! The schema's descriptions of the policies' parameters, made from their table.

use laxity_config::{format_duration, suggest};
use laxity_policies::{Facts, ParameterKind};

/// What editors show of a policy's parameter: its meaning, its bounds, and the families that use it.
pub(crate) fn described(facts: Facts) -> String {
    let bounds = match facts.kind {
        ParameterKind::Duration => format!(" At most {}.", format_duration(facts.most)),
        ParameterKind::Number => format!(" {} to {}.", facts.least, facts.most),
        ParameterKind::Percent | ParameterKind::Flag => String::new(),
    };
    let families = suggest::list(facts.families().map(|family| family.title().into()), "and");
    format!("{}{bounds} Used by {families}.", facts.meaning)
}

/// The standard value of a policy's parameter, as it is written in a file.
pub(crate) fn default(facts: Facts) -> serde_json::Value {
    match facts.kind {
        ParameterKind::Duration => format_duration(facts.standard).into(),
        ParameterKind::Number | ParameterKind::Percent => facts.standard.into(),
        ParameterKind::Flag => (facts.standard != 0).into(),
    }
}
