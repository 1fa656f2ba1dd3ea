//! `[host] network`: what packets cost.

use std::sync::LazyLock;

use laxity_config::{Field, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::{Cost, CostChoice, cost};
use crate::profiles::{Choice, Profile, ProfileOf, Profiled, read};

/// Declares the table and the model, which have the same keys.
macro_rules! network_costs {
    ($($(#[doc = $doc:literal])* $field:ident = $key:literal,)*
     ; if_given: $($(#[doc = $more_doc:literal])* $more:ident = $more_key:literal,)*) => {
        /// CPU time of each step of packet processing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Default)]
        pub struct NetworkCosts {
            $($(#[doc = $doc])* pub $field: Cost,)*
            $(
                $(#[doc = $more_doc])*
                #[serde(skip_serializing_if = "Cost::is_free")]
                pub $more: Cost,
            )*
        }

        /// CPU time of each step of packet processing. A step without a cost is free.
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields, expecting = "a table")]
        pub(crate) struct NetworkTable {
            $($(#[doc = $doc])* #[serde(rename = $key)] pub $field: Field<CostChoice>,)*
            $($(#[doc = $more_doc])* #[serde(rename = $more_key)] pub $more: Field<CostChoice>,)*
        }

        impl Profiled for NetworkTable {
            const PROFILES: &'static [&'static str] = &["iptcomm-2009", "vee-2010"];
            const KEYS: &'static [&'static str] = &[$($key,)* $($more_key),*];
            const EXAMPLE: &'static str = "{ receive = \"4 us\" }";
        }

        /// Missing costs are 0.
        fn costs(table: &NetworkTable, problems: &Problems) -> NetworkCosts {
            NetworkCosts {
                $($field: cost(&table.$field, problems),)*
                $($more: cost(&table.$more, problems),)*
            }
        }
    };
}

network_costs! {
    /// Handling an interrupt or an event, up to the first packet.
    interrupt = "interrupt",
    /// Receiving a packet from a card, up to the bridge or the IP layer.
    receive = "receive",
    /// Sending a packet to a card.
    transmit = "transmit",
    /// Netback: passing a packet to a guest.
    netback_receive = "netback-receive",
    /// Netback: taking a packet from a guest, and the bridge.
    netback_transmit = "netback-transmit",
    /// Netfront: receiving a packet from netback, up to the IP layer.
    netfront_receive = "netfront-receive",
    /// Netfront: passing a packet to netback.
    netfront_transmit = "netfront-transmit",
    /// IP, UDP and the socket on reception, and waking a thread.
    socket_receive = "socket-receive",
    /// How long an idle thread takes to wake up when a packet has come to its socket. This takes no CPU time.
    wake_up_latency = "wake-up-latency",
    /// IP, UDP and the socket on sending, including the system call.
    socket_send = "socket-send",
    /// A thread's work once its packet has left: the rest of the system call, and a look for the next packet.
    after_send = "after-send",
    /// A media server's work on a packet, unless the domain says otherwise.
    relay = "relay",
    /// Transcoding a packet, on top of the media server's other work.
    transcode = "transcode",
    /// Signalling's and call control's work on a message, unless the domain says otherwise.
    signalling = "signalling",
    /// The driver domain's part of a disk operation.
    disk = "disk",
    /// The latency of the disk itself.
    disk_latency = "disk-latency",
    /// Reading the counters of a domain's network backend and setting its rate, by the allocator.
    look = "look",
    ;
    if_given:
    /// Decoding a packet of G.711, for a media server with `transcode-to` or `conference`.
    decode_g711 = "decode-g711",
    /// Encoding a packet of G.711, for a media server with `transcode-to` or `conference`.
    encode_g711 = "encode-g711",
    /// Decoding a packet of G.722, for a media server with `transcode-to`.
    decode_g722 = "decode-g722",
    /// Encoding a packet of G.722, for a media server with `transcode-to`.
    encode_g722 = "encode-g722",
    /// Decoding a packet of Opus, for a media server with `transcode-to`.
    decode_opus = "decode-opus",
    /// Encoding a packet of Opus, for a media server with `transcode-to`.
    encode_opus = "encode-opus",
    /// Decoding a packet of G.729, for a media server with `transcode-to`.
    decode_g729 = "decode-g729",
    /// Encoding a packet of G.729, for a media server with `transcode-to`.
    encode_g729 = "encode-g729",
    /// Unprotecting a packet of SRTP and protecting it again, for a media server with `srtp`.
    srtp = "srtp",
    /// A packet's part in mixing, for a media server with `conference`.
    mix = "mix",
    /// Recording a packet, for a media server with `record`.
    record = "record",
}

/// The profile of a file that names none and gives no costs.
pub(crate) const DEFAULT_PROFILE: &str = NetworkTable::PROFILES[0];

static IPTCOMM_2009: LazyLock<(NetworkCosts, String)> =
    LazyLock::new(|| read(include_str!("../../profiles/iptcomm-2009.toml"), costs));

static VEE_2010: LazyLock<(NetworkCosts, String)> =
    LazyLock::new(|| read(include_str!("../../profiles/vee-2010.toml"), costs));

/// What packets cost, and the profile that the costs come from, if the file does not give them itself.
pub(crate) fn resolve(
    choice: Option<&Choice<NetworkTable>>,
    problems: &Problems,
) -> (NetworkCosts, Option<Profile>) {
    let name = match choice {
        None => DEFAULT_PROFILE,
        Some(Choice::Profile(name)) => name,
        Some(Choice::Given(table)) => return (costs(table, problems), None),
    };
    let (costs, profile) = profile(name);
    (costs, Some(profile))
}

/// What packets cost in a profile, and what the profile's numbers come from.
fn profile(name: &str) -> (NetworkCosts, Profile) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In these profiles a thread wakes up at once, which is a part of `socket-receive`, and a packet leaves last.
    #[test]
    fn every_profile_has_every_cost() {
        for name in NetworkTable::PROFILES {
            let (costs, profile) = profile(name);
            assert!(profile.source.len() > 20, "{name}: {:?}", profile.source);
            let costs = serde_json::to_value(costs).expect("a tree");
            for (key, cost) in costs.as_object().expect("a table") {
                let ns = cost.get("ns").or(cost.get("median_ns"));
                let ns = ns.and_then(serde_json::Value::as_i64);
                let is_native = key == "wake_up_latency" || key == "after_send";
                let is_right = ns.is_some_and(|ns| (ns > 0) != is_native);
                assert!(is_right, "{name}: {key}: {cost}");
            }
        }
    }
}
