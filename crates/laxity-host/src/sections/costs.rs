//! `[host] costs`: what scheduling itself costs.

use std::collections::HashMap;
use std::sync::LazyLock;

use laxity_config::{Field, Problems};
use laxity_policies::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::{Cost, CostChoice, cost};
use crate::profiles::{Choice, Profile, ProfileOf, Profiled, read};

/// The costs of scheduling, charged to the CPU that schedules.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema, Default)]
pub struct Costs {
    /// The cost of every decision: one call of `schedule`.
    pub schedule: Cost,
    /// The additional cost of every decision that changes the running VCPU.
    pub context_switch: Cost,
}

impl Costs {
    /// Whether scheduling is free.
    pub fn is_zero(&self) -> bool {
        self.schedule.max_ns() == 0 && self.context_switch.max_ns() == 0
    }
}

/// The costs of scheduling, charged to the CPU that schedules.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub(crate) struct CostsTable {
    /// The cost of every decision.
    pub schedule: Field<CostChoice>,
    /// The additional cost of every decision that changes the running VCPU.
    pub context_switch: Field<CostChoice>,
}

impl Profiled for CostsTable {
    const PROFILES: &'static [&'static str] = &["emsoft-2011", "xen-lab"];
    const KEYS: &'static [&'static str] = &["schedule", "context-switch"];
    const EXAMPLE: &'static str = "{ schedule = \"120 ns\" }";
}

/// What a profile's file has: costs of policies, and their source.
type OfPolicies = (HashMap<Policy, Costs>, String);

static EMSOFT_2011: LazyLock<OfPolicies> =
    LazyLock::new(|| read_profile(include_str!("../../profiles/emsoft-2011.toml")));

static XEN_LAB: LazyLock<OfPolicies> =
    LazyLock::new(|| read_profile(include_str!("../../profiles/xen-lab.toml")));

/// The costs under a policy, and the profile that they come from, if one is named. By default scheduling is free.
pub(crate) fn resolve(
    choice: &Field<Choice<CostsTable>>,
    policy: Policy,
    problems: &Problems,
) -> (Costs, Option<Profile>) {
    match &choice.value {
        None => (Costs::default(), None),
        Some(Choice::Profile(name)) => {
            let (costs, profile) = profile(name, policy);
            (costs, Some(profile))
        }
        Some(Choice::Given(table)) => (costs(table, problems), None),
    }
}

/// What a policy costs in a profile, and what the profile's numbers come from; no costs in a profile that does not
/// know the policy. Scheduler S is credit's code with little more, and costs what credit does. Models of other
/// people's schedulers were not measured, and are taken to cost what credit does; lending servers, what sporadic
/// servers do; servers of all CPUs, what those of each CPU do.
fn profile(name: &str, policy: Policy) -> (Costs, Profile) {
    let policy = if policy.is_scheduler_s() || policy.is_model() {
        Policy::Credit
    } else if policy == Policy::Lending {
        Policy::Sporadic
    } else {
        policy.on_each_cpu().unwrap_or(policy)
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

fn read_profile(text: &str) -> OfPolicies {
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

/// Missing costs are 0.
fn costs(table: &CostsTable, problems: &Problems) -> Costs {
    Costs {
        schedule: cost(&table.schedule, problems),
        context_switch: cost(&table.context_switch, problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_knows_every_policy() {
        for name in CostsTable::PROFILES {
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
                p90_ns: None,
                p99_ns: 250,
                p999_ns: None,
                max_ns: 5642
            }
        );
        let (sedf, _) = profile("emsoft-2011", Policy::Sedf);
        assert_eq!(
            sedf.context_switch,
            Cost::Quantiles {
                median_ns: 2370,
                p90_ns: None,
                p99_ns: 3089,
                p999_ns: None,
                max_ns: 8177
            }
        );
    }
}
