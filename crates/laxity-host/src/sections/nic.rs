//! `[[nic]]`: network interface cards.

use laxity_config::{
    Duration, Field, List, MICROSECOND_NS, Measured, Name, Problems, Quantity, SECOND_NS, Span,
    Whole,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::domain::Domains;
use super::workload::WorkloadKind;
use crate::checks::unique;
use crate::quantities::BitRate;

const RING: i64 = 256;
const RING_MAX: i64 = 65_536;
const RATE_BIT_S: i64 = 1_000_000_000;

/// A network interface card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Nic {
    /// Unique in the host.
    pub name: String,
    /// The rate, each way; at least 1000.
    pub rate_bit_s: i64,
    /// The domain whose kernel drives the card. Any but the driver domain has it by VMM bypass.
    pub domain: usize,
    /// The number of packets that wait in the card, in each direction, before it drops some; at least 1.
    pub ring: u32,
    /// The card interrupts this long after the first packet of which its driver does not know; 0 is at once.
    pub coalesce_ns: i64,
    /// The card also interrupts after this many packets, if that comes first; at least 1.
    pub coalesce_packets: u32,
}

/// A network interface card.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct NicTable {
    /// Unique in the host.
    pub name: Field<Name>,
    /// The rate of the card, each way.
    #[schemars(extend("default" = BitRate::text(RATE_BIT_S)))]
    pub rate: Field<Measured<BitRate>>,
    /// The domain that drives the card: by default the driver domain. A server that drives its own card receives and
    /// sends without the driver domain (VMM bypass).
    pub domain: Field<Name>,
    /// The number of packets that wait in the card, in each direction, before it drops some.
    #[schemars(extend("default" = RING))]
    pub ring: Field<Whole<1, RING_MAX>>,
    /// Interrupt coalescing. By default every packet interrupts.
    pub coalesce: Field<CoalesceTable>,
}

/// When a network card interrupts: some time after the first packet, or after some number of packets, whichever comes
/// first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { time = \"40 us\", packets = 3 }"
)]
#[schemars(extend("required" = ["time", "packets"]))]
pub(crate) struct CoalesceTable {
    /// The time after the first packet.
    pub time: Field<Duration<1, SECOND_NS, MICROSECOND_NS>>,
    /// The number of packets.
    pub packets: Field<Whole<1, RING_MAX>>,
}

/// The cards. `driver` is the driver domain, which has one card unless the file says otherwise.
pub(crate) fn resolve(
    nics: &Field<List<NicTable>>,
    domains: &Domains<'_>,
    driver: Option<usize>,
    problems: &Problems,
) -> Vec<Nic> {
    let list = nics.value.as_ref().map_or(&[][..], |list| &list.0[..]);
    let given = || list.iter().filter_map(Field::given);
    unique(
        "nic",
        given().map(|(table, span)| (&table.name, span)),
        problems,
    );
    if given().next().is_none()
        && let Some(domain) = driver
    {
        return vec![Nic {
            name: "eth0".into(),
            rate_bit_s: RATE_BIT_S,
            domain,
            ring: RING as u32,
            coalesce_ns: 0,
            coalesce_packets: 1,
        }];
    }
    given()
        .filter_map(|(table, span)| nic(table, span, domains, driver, problems))
        .collect()
}

fn nic(
    table: &NicTable,
    span: Span,
    domains: &Domains<'_>,
    driver: Option<usize>,
    problems: &Problems,
) -> Option<Nic> {
    let domain = domain(table, span, domains, driver, problems)?;
    let (coalesce_ns, coalesce_packets) = coalesce(table, problems);
    Some(Nic {
        name: table
            .name
            .value
            .as_ref()
            .map_or(String::new(), |name| name.0.clone()),
        rate_bit_s: table.rate.value.map_or(RATE_BIT_S, |rate| rate.0.bit_s),
        domain,
        ring: table.ring.or(RING) as u32,
        coalesce_ns,
        coalesce_packets,
    })
}

/// The domain that drives the card.
fn domain(
    table: &NicTable,
    span: Span,
    domains: &Domains<'_>,
    driver: Option<usize>,
    problems: &Problems,
) -> Option<usize> {
    if table.domain.is_absent() {
        if driver.is_none() {
            problems.report(
                span,
                "this card names no domain, and the host has no driver domain",
                "add a domain with workload = { kind = \"driver\" }, or write domain = \"media\", say",
            );
        }
        return driver;
    }
    let (domain, span) = domains.find(&table.domain, problems)?;
    let kind = domains.kind(domain);
    if !matches!(kind, Some(WorkloadKind::Driver | WorkloadKind::MediaServer)) {
        problems.report(
            span,
            format!("{} does not drive network cards", domains.title(domain)),
            "a card belongs to the driver domain, or to a media server (VMM bypass)",
        );
    }
    Some(domain)
}

/// The time and the number of packets after which the card interrupts.
fn coalesce(table: &NicTable, problems: &Problems) -> (i64, u32) {
    let Some((coalesce, span)) = table.coalesce.given() else {
        return (0, 1);
    };
    if coalesce.time.is_missing("time", span, problems)
        | coalesce.packets.is_missing("packets", span, problems)
    {
        let message = "`coalesce` needs a `time` and a number of `packets`";
        problems.report(
            span,
            message,
            "write { time = \"40 us\", packets = 3 }, say",
        );
    }
    (coalesce.time.ns_or(1), coalesce.packets.or(1) as u32)
}
