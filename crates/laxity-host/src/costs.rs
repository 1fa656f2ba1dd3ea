//! Named profiles of what scheduling costs.

use std::collections::HashMap;
use std::sync::LazyLock;

use laxity_config::{Document, Field, FileKind, Problem, Problems, format_duration};
use laxity_policies::Policy;
use serde::Deserialize;

use crate::file::{CostChoice, CostsTable, NotNegative};
use crate::model::{Cost, Costs, Profile, ProfileOf};

/// The names that `costs` may have.
pub(crate) const PROFILES: [&str; 2] = ["emsoft-2011", "xen-lab"];

static EMSOFT_2011: LazyLock<(HashMap<Policy, Costs>, String)> =
    LazyLock::new(|| read_profile(include_str!("../profiles/emsoft-2011.toml")));

static XEN_LAB: LazyLock<(HashMap<Policy, Costs>, String)> =
    LazyLock::new(|| read_profile(include_str!("../profiles/xen-lab.toml")));

/// What a policy costs in a profile, and what the profile's numbers come from; no costs in a profile that does not
/// know the policy. Scheduler S is credit's code with little more, and costs what credit does.
pub(crate) fn profile(name: &str, policy: Policy) -> (Costs, Profile) {
    let policy = if policy.is_scheduler_s() {
        Policy::Credit
    } else {
        policy
    };
    let (costs, source) = match name {
        "xen-lab" => &*XEN_LAB,
        _ => &*EMSOFT_2011,
    };
    let profile = Profile {
        of: ProfileOf::Scheduling,
        name: name.into(),
        source: source.clone(),
    };
    (costs.get(&policy).cloned().unwrap_or_default(), profile)
}

const PROFILE: FileKind = FileKind {
    noun: "profile",
    with_article: "a profile",
    least: "a profile has a source and costs",
};

/// What `resolve` makes of a profile's file, and the file's `source`. Profiles are part of this crate; tests see to it
/// that nothing is wrong with them.
pub(crate) fn read<T: Default + for<'de> Deserialize<'de>, R: Default>(
    text: &str,
    resolve: impl FnOnce(&T, &Problems) -> R,
) -> (R, String) {
    let Ok(mut profile) = Document::parse(text.as_bytes(), "profile", &PROFILE) else {
        return Default::default();
    };
    let source = profile.take_text("source").unwrap_or_default();
    let costs = profile.read(&[""; 0], |table, _, problems| resolve(table, problems));
    (costs.unwrap_or_default(), source.to_string())
}

fn read_profile(text: &str) -> (HashMap<Policy, Costs>, String) {
    read(
        text,
        |tables: &HashMap<Policy, Field<CostsTable>>, problems| {
            let given = tables
                .iter()
                .filter_map(|(policy, table)| Some((*policy, table.value.as_ref()?)));
            given
                .map(|(policy, table)| (policy, costs(table, problems)))
                .collect()
        },
    )
}

/// What is not given is 0.
pub(crate) fn costs(table: &CostsTable, problems: &Problems) -> Costs {
    Costs {
        schedule: cost(&table.schedule, problems),
        context_switch: cost(&table.context_switch, problems),
    }
}

/// 0 if it is not given.
pub(crate) fn cost(choice: &Field<CostChoice>, problems: &Problems) -> Cost {
    let Some((choice, span)) = choice.given() else {
        return Cost::default();
    };
    let quantiles = match choice {
        CostChoice::Constant(time) => return Cost::Constant { ns: time.ns },
        CostChoice::Quantiles(quantiles) => quantiles,
    };
    let named = [
        ("median", &quantiles.median),
        ("p99", &quantiles.p99),
        ("max", &quantiles.max),
    ];
    for (name, field) in named {
        if field.is_absent() {
            let help = "write { median = \"120 ns\", p99 = \"250 ns\", max = \"5 us\" }, say";
            problems.report(
                span,
                format!("a cost given by quantiles has no `{name}`"),
                help,
            );
        }
    }
    for [(low_name, low), (high_name, high)] in [[named[0], named[1]], [named[1], named[2]]] {
        if let (Some((low, low_span)), Some((high, high_span))) = (low.given(), high.given())
            && low.ns > high.ns
        {
            let (low, high) = (format_duration(low.ns), format_duration(high.ns));
            problems.push(Problem {
                help: Some("quantiles ascend: median, p99, max".into()),
                related: Some((high_span, "this one")),
                ..Problem::new(
                    low_span,
                    format!("`{low_name}` ({low}) is above `{high_name}` ({high})"),
                )
            });
        }
    }
    let ns = |field: &Field<NotNegative>| field.value.map_or(0, |time| time.ns);
    Cost::Quantiles {
        median_ns: ns(&quantiles.median),
        p99_ns: ns(&quantiles.p99),
        max_ns: ns(&quantiles.max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_knows_every_policy() {
        for name in PROFILES {
            for policy in Policy::ALL {
                let (costs, profile) = profile(name, policy);
                assert!(profile.source.len() > 20, "{name}: {:?}", profile.source);
                assert!(
                    costs.schedule.at(1 << 31) > 100,
                    "{name}: {policy:?} is missing"
                );
                assert!(costs.context_switch.max_ns() > 1_000, "{name}: {policy:?}");
            }
        }
    }

    #[test]
    fn the_profile_is_table_1_of_the_paper() {
        for policy in Policy::ALL {
            let (costs, _) = profile("emsoft-2011", policy);
            assert!(costs.schedule.at(1 << 31) > 100, "{policy:?} is missing");
            assert!(costs.context_switch.max_ns() > 8_000, "{policy:?}");
        }
        let (deferrable, _) = profile("emsoft-2011", Policy::Deferrable);
        assert_eq!(
            deferrable.schedule,
            Cost::Quantiles {
                median_ns: 121,
                p99_ns: 250,
                max_ns: 5642
            }
        );
        let (sedf, _) = profile("emsoft-2011", Policy::Sedf);
        assert_eq!(
            sedf.context_switch,
            Cost::Quantiles {
                median_ns: 2370,
                p99_ns: 3089,
                max_ns: 8177
            }
        );
    }
}
