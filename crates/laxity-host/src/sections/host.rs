//! `[host]`: the physical host.

use laxity_config::{
    Duration, Field, List, MICROSECOND_NS, MILLISECOND_NS, Problems, Span, Whole, format_duration,
};
use laxity_policies::{Policy, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

use super::caches::{self, Cache, CacheTable};
use super::costs::{self, Costs, CostsTable};
use super::network::{self, DEFAULT_PROFILE, NetworkCosts, NetworkTable};
use super::settings::{self, SettingsTable};
use crate::profiles::{Choice, Profile};
use crate::quantities::CPUS_MAX;

const TIMER_LATENCY_MAX_NS: i64 = 10 * MILLISECOND_NS;

/// The physical host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["cpus", "policy"]))]
pub(crate) struct HostTable {
    /// The number of physical CPUs, 1 to 1024.
    pub cpus: Field<Whole<1, CPUS_MAX>>,
    /// The scheduling policy.
    pub policy: Field<Policy>,
    #[serde(rename = "$settings")]
    #[schemars(flatten)]
    pub settings: SettingsTable,
    /// The costs of scheduling itself: the name of a profile, or a table. By default it is free.
    pub costs: Field<Choice<CostsTable>>,
    /// How late a timer of the policy is served: a replenishment, a tick or an accounting. At most 10 ms.
    #[schemars(extend("default" = format_duration(0)))]
    pub timer_latency: Field<Duration<0, TIMER_LATENCY_MAX_NS, MICROSECOND_NS>>,
    /// The caches, each with the CPUs that share it. By default none: a VCPU loses nothing when it migrates, or when
    /// other VCPUs ran in between.
    pub caches: Field<List<CacheTable>>,
    /// The CPU time for packets: the name of a profile, or a table.
    #[schemars(extend("default" = DEFAULT_PROFILE))]
    pub network: Field<Choice<NetworkTable>>,
    /// Whether servers are processes of the host's own kernel, without virtual machines, as `--on linux` runs them. A
    /// domain is then a control group. The kernel puts a packet into its socket after `receive`, which takes no
    /// domain's CPU time, and a thread pays for `socket-receive`.
    #[schemars(extend("default" = false))]
    pub native: Field<bool>,
}

/// What comes of `[host]`.
pub(crate) struct Machine {
    pub cpus: u32,
    pub policy: Policy,
    pub settings: Settings,
    pub costs: Costs,
    /// The profile of `costs`.
    pub costs_profile: Option<Profile>,
    pub timer_latency_ns: i64,
    pub caches: Vec<Cache>,
    pub network: NetworkCosts,
    /// The profile of `network`.
    pub network_profile: Option<Profile>,
    pub native: bool,
}

/// `root` is the place of the file.
pub(crate) fn resolve(host: &Field<HostTable>, root: Span, problems: &Problems) -> Machine {
    if host.is_missing("host", root, problems) {
        problems.report(
            root,
            "the table `[host]` is missing",
            "add [host] with cpus = 1 and policy = \"deferrable\"",
        );
    }
    let default = HostTable::default();
    let table = host.value.as_ref().unwrap_or(&default);
    if let Some((table, span)) = host.given() {
        if table.cpus.is_missing("cpus", span, problems) {
            problems.report(span, "`[host]` has no `cpus`", "write cpus = 1, say");
        }
        if table.policy.is_missing("policy", span, problems) {
            let names = Policy::ALL.map(Policy::name).join(", ");
            let help = format!("write policy = \"deferrable\", say; the policies are {names}");
            problems.report(span, "`[host]` has no `policy`", help);
        }
    }
    let cpus = table.cpus.or(1) as u32;
    let policy = table.policy.value.unwrap_or(Policy::Deferrable);
    let (costs, costs_profile) = costs::resolve(&table.costs, policy, problems);
    let (network, network_profile) = network::resolve(table.network.value.as_ref(), problems);
    Machine {
        cpus,
        policy,
        settings: settings::resolve(&table.settings, policy, problems),
        costs,
        costs_profile,
        timer_latency_ns: table.timer_latency.ns_or(0),
        caches: caches::resolve(&table.caches, cpus, problems),
        network,
        network_profile,
        native: table.native.value.unwrap_or(false),
    }
}
