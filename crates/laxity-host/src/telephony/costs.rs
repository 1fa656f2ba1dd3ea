//! Named profiles of what packets cost.

use std::sync::LazyLock;

use laxity_config::Problems;

use super::NetworkCosts;
use super::file::NetworkTable;
use crate::costs::{cost, read};
use crate::model::{Profile, ProfileOf};

/// The names that `network` may have; the first is the default.
pub(crate) const PROFILES: [&str; 2] = ["iptcomm-2009", "vee-2010"];

static IPTCOMM_2009: LazyLock<(NetworkCosts, String)> =
    LazyLock::new(|| read_profile(include_str!("../../profiles/iptcomm-2009.toml")));

static VEE_2010: LazyLock<(NetworkCosts, String)> =
    LazyLock::new(|| read_profile(include_str!("../../profiles/vee-2010.toml")));

/// What packets cost in a profile, and what the profile's numbers come from.
pub(crate) fn profile(name: &str) -> (NetworkCosts, Profile) {
    let (costs, source) = match name {
        "vee-2010" => &*VEE_2010,
        _ => &*IPTCOMM_2009,
    };
    let profile = Profile {
        of: ProfileOf::Packets,
        name: name.into(),
        source: source.clone(),
    };
    (*costs, profile)
}

fn read_profile(text: &str) -> (NetworkCosts, String) {
    read(text, costs)
}

/// What is not given is 0.
pub(crate) fn costs(table: &NetworkTable, problems: &Problems) -> NetworkCosts {
    let of = |field| cost(field, problems);
    NetworkCosts {
        interrupt: of(&table.interrupt),
        receive: of(&table.receive),
        transmit: of(&table.transmit),
        netback_receive: of(&table.netback_receive),
        netback_transmit: of(&table.netback_transmit),
        netfront_receive: of(&table.netfront_receive),
        netfront_transmit: of(&table.netfront_transmit),
        socket_receive: of(&table.socket_receive),
        socket_send: of(&table.socket_send),
        relay: of(&table.relay),
        transcode: of(&table.transcode),
        signalling: of(&table.signalling),
        disk: of(&table.disk),
        disk_latency: of(&table.disk_latency),
        look: of(&table.look),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_every_cost() {
        for name in PROFILES {
            let (costs, profile) = profile(name);
            assert!(profile.source.len() > 20, "{name}: {:?}", profile.source);
            let costs = serde_json::to_value(costs).expect("a tree");
            for (key, cost) in costs.as_object().expect("a table") {
                let ns = cost.get("ns").or(cost.get("median_ns"));
                let ns = ns.and_then(serde_json::Value::as_i64);
                assert!(ns.is_some_and(|ns| ns > 0), "{name}: {key}: {cost}");
            }
        }
    }
}
