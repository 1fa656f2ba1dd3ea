//! The sections of a host file: [`File`] lists them as they are written, [`Host`] as every other room sees them.

use laxity_config::{Field, List};
use laxity_policies::{Policy, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::profiles::Profile;
use crate::sections::caches::Cache;
use crate::sections::calls::{Calls, CallsTable};
use crate::sections::costs::Costs;
use crate::sections::domain::{Domain, DomainTable};
use crate::sections::draw::DrawTable;
use crate::sections::host::HostTable;
use crate::sections::link::{Link, LinkTable};
use crate::sections::network::NetworkCosts;
use crate::sections::nic::{Nic, NicTable};
use crate::sections::protect::{Protect, ProtectTable};
use crate::sections::run::{RunDuration, Seed};

/// A host for Laxity: CPUs, a scheduling policy, and domains (virtual machines) with their tasks.
/// Times are written with their unit: "2 ms", "10 us", "1.5 s".
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(title = "Laxity host file", extend("required" = ["duration", "host", "domain"]))]
pub(crate) struct File {
    /// How long a run lasts: 1 ns to 10,000 h.
    pub duration: Field<RunDuration>,
    /// The seed of all randomness. The same file and seed give the same run, everywhere.
    #[schemars(extend("default" = 1))]
    pub seed: Field<Seed>,
    /// The physical host.
    pub host: Field<HostTable>,
    /// Task sets drawn at random, for the domains with `tasks = "drawn"`.
    pub draw: Field<DrawTable>,
    /// The virtual machines, each a `[[domain]]`.
    #[schemars(extend("minItems" = 1))]
    pub domain: Field<List<DomainTable>>,
    /// The network interface cards, each a `[[nic]]`. By default the driver domain has one.
    pub nic: Field<List<NicTable>>,
    /// The telephone calls.
    pub calls: Field<CallsTable>,
    /// Agreements about what domains send through the driver domain's cards.
    pub link: Field<LinkTable>,
    /// Protection by checkpoint, and a failure of the host.
    pub protect: Field<ProtectTable>,
}

/// A described host: CPUs, a policy, domains with their guests.
///
/// [`load`](crate::load) makes hosts, and checks what the comments of the fields state. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Host {
    /// The duration of a run; at least 1.
    pub duration_ns: i64,
    /// The seed of all randomness.
    pub seed: u64,
    /// The number of physical CPUs; at least 1.
    pub cpus: u32,
    /// The policy that schedules the VCPUs.
    pub policy: Policy,
    /// The policy's instance-wide settings.
    pub settings: Settings,
    /// The costs of scheduling itself.
    pub costs: Costs,
    /// The time from when a timer of the policy is due to when the policy serves it.
    pub timer_latency_ns: i64,
    /// The virtual machines, in the order of the file; at least one.
    pub domains: Vec<Domain>,
    /// The caches. May be empty: a VCPU then loses nothing when it migrates.
    pub caches: Vec<Cache>,
    /// The network; there if there are calls.
    pub network: Option<Network>,
    /// The telephone calls.
    pub calls: Option<Calls>,
    /// The profiles whose costs the host uses. Costs that the file gives itself have none.
    pub profiles: Vec<Profile>,
}

/// Network cards, the CPU time for packets, and the agreements and the protection that apply to sent packets.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Network {
    /// The cards; at least one.
    pub nics: Vec<Nic>,
    /// The driver domain, if there is one. There is one, unless every server has a card of its own.
    pub driver: Option<usize>,
    /// The CPU time for packets.
    pub costs: NetworkCosts,
    /// Whether servers are processes of the host's own kernel.
    pub native: bool,
    /// Agreements about the driver domain's cards, if there are any.
    pub link: Option<Link>,
    /// Protection by checkpoint, if a domain is protected.
    pub protect: Option<Protect>,
}
