//! `[link]`: agreements about what domains send through the driver domain's cards.

use std::collections::HashMap;

use laxity_bandwidth::bounds::{
    CLASS_MAX, PERIOD_NS, PERIOD_NS_MAX, PERIOD_NS_MIN, WEIGHT, WEIGHT_MAX,
};
use laxity_config::{Duration, Field, List, Measured, Name, Problem, Problems, Span, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::domain::Domains;
use super::workload::WorkloadKind;
use crate::quantities::BitRate;

/// The agreements that hold for what the driver domain's cards send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// The rate that is divided; at least 1000.
    pub rate_bit_s: i64,
    /// The period of the allocator; 1 ms to 10 s.
    pub period_ns: i64,
    /// The sharing of the rate left after the minima.
    pub sharing: LinkSharing,
    /// The agreements; at least one. Their minima fit the link.
    pub agreements: Vec<LinkAgreement>,
}

/// The sharing of a link's rate left after the minima.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkSharing {
    /// All get parts by weight.
    #[default]
    Weighted,
    /// One class is served after the other, by weight inside a class.
    ByClass,
}

/// The rates agreed with a domain for its sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LinkAgreement {
    /// A domain whose packets go through the driver domain. It has no other agreement.
    pub domain: usize,
    /// The class; 1 is the highest.
    pub class: u32,
    /// The rate that the domain gets whenever it asks for it; may be 0.
    pub minimum_bit_s: i64,
    /// The rate that the domain never exceeds; at least the minimum, at least 1000.
    pub maximum_bit_s: i64,
    /// The domain's weight in the sharing, relative to the other domains'; at least 1.
    pub weight: u32,
}

/// Agreements about the link: the rates at which domains may send through the driver domain's cards. The allocator, in
/// the driver domain, sets the rate of each domain's network backend; excess packets are dropped in the guest. Rates
/// count frames from their Ethernet header on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["rate", "agreements"]))]
pub(crate) struct LinkTable {
    /// The rate that is divided: a little less than the cards carry, so that packets wait in guests and not in cards.
    pub rate: Field<Measured<BitRate>>,
    /// The period of the allocator.
    #[schemars(extend("default" = laxity_config::format_duration(PERIOD_NS)))]
    pub period: Field<Duration<PERIOD_NS_MIN, PERIOD_NS_MAX>>,
    /// The sharing of the rate left after the minima: by weight, or one class after the other.
    #[schemars(extend("default" = LinkSharing::default()))]
    pub sharing: Field<LinkSharing>,
    /// An agreement for each domain whose rate is limited; other domains have no limit.
    #[schemars(extend("minItems" = 1))]
    pub agreements: Field<List<LinkAgreementTable>>,
}

/// The rates agreed with a domain.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { domain = \"media\", class = 1, maximum = \"600 Mbit/s\" }"
)]
#[schemars(extend("required" = ["domain", "class", "maximum"]))]
pub(crate) struct LinkAgreementTable {
    /// The domain.
    pub domain: Field<Name>,
    /// The class; 1 is the highest.
    pub class: Field<Whole<1, CLASS_MAX>>,
    /// The rate that the domain gets whenever it asks for it. By default 0.
    pub minimum: Field<Measured<BitRate>>,
    /// The rate that the domain never exceeds.
    pub maximum: Field<Measured<BitRate>>,
    /// The domain's weight in the sharing, relative to the other domains'.
    #[schemars(extend("default" = WEIGHT))]
    pub weight: Field<Whole<1, WEIGHT_MAX>>,
}

/// The link, if the file has one. `reached` tells of a domain whether its packets go through the driver domain.
pub(crate) fn resolve(
    link: &Field<LinkTable>,
    domains: &Domains<'_>,
    reached: impl Fn(usize) -> bool,
    problems: &Problems,
) -> Option<Link> {
    let (table, span) = link.given()?;
    if table.rate.is_missing("rate", span, problems) {
        let help = "write rate = \"980 Mbit/s\", say: a little less than the card's";
        problems.report(span, "`[link]` has no `rate`", help);
    }
    let list = match table.agreements.given() {
        Some((list, _)) => &list.0[..],
        None => &[],
    };
    if table.agreements.is_missing("agreements", span, problems)
        || (table.agreements.value.is_some() && list.is_empty())
    {
        let help =
            "write agreements = [{ domain = \"media\", class = 1, maximum = \"600 Mbit/s\" }], say";
        problems.report(span, "`[link]` has no agreements", help);
    }
    let mut first_of = HashMap::new();
    let mut agreements = Vec::new();
    for (table, span) in list.iter().filter_map(Field::given) {
        let Some(agreement) = agreement(table, span, domains, problems) else {
            continue;
        };
        let domain = agreement.domain;
        let (title, place) = (domains.title(domain), table.domain.span.unwrap_or(span));
        if let Some(first) = first_of.insert(domain, place) {
            problems.push(Problem {
                help: Some("a domain has one agreement".into()),
                related: Some((first, "the first one")),
                ..Problem::new(place, format!("{title} has two agreements"))
            });
        } else if !reached(domain) {
            let help = match domains.kind(domain) {
                Some(WorkloadKind::MediaServer) => {
                    "it has its own card: leave out the card or the agreement"
                }
                _ => "agreements are for servers and senders",
            };
            let message = format!("{title} sends nothing through the driver domain");
            problems.report(place, message, help);
        }
        agreements.push(agreement);
    }
    let link = Link {
        rate_bit_s: table.rate.value?.0.bit_s,
        period_ns: table.period.ns_or(PERIOD_NS),
        sharing: table.sharing.value.unwrap_or_default(),
        agreements,
    };
    let minima: i128 = (link.agreements.iter())
        .map(|each| i128::from(each.minimum_bit_s))
        .sum();
    if minima > link.rate_bit_s.into() {
        let message = format!(
            "the minima add up to {minima} bit/s, but the link has {}",
            link.rate_bit_s
        );
        let help = "write lower minima";
        problems.report(table.agreements.span.unwrap_or(span), message, help);
    }
    Some(link)
}

fn agreement(
    table: &LinkAgreementTable,
    span: Span,
    domains: &Domains<'_>,
    problems: &Problems,
) -> Option<LinkAgreement> {
    for (key, absent) in [
        ("domain", table.domain.is_missing("domain", span, problems)),
        ("class", table.class.is_missing("class", span, problems)),
        (
            "maximum",
            table.maximum.is_missing("maximum", span, problems),
        ),
    ] {
        if absent {
            let help = "write { domain = \"media\", class = 1, maximum = \"600 Mbit/s\" }, say";
            problems.report(span, format!("this agreement has no `{key}`"), help);
        }
    }
    let minimum_bit_s = table.minimum.value.map_or(0, |rate| rate.0.bit_s);
    if let (Some((minimum, span)), Some((maximum, above))) =
        (table.minimum.given(), table.maximum.given())
        && minimum.0.bit_s > maximum.0.bit_s
    {
        problems.push(Problem {
            help: Some("write a minimum that does not exceed the maximum".into()),
            related: Some((above, "the maximum")),
            ..Problem::new(span, "`minimum` is above `maximum`")
        });
    }
    let (domain, _) = domains.find(&table.domain, problems)?;
    Some(LinkAgreement {
        domain,
        class: table.class.value?.0 as u32,
        minimum_bit_s,
        maximum_bit_s: table.maximum.value?.0.bit_s,
        weight: table.weight.or(WEIGHT.into()) as u32,
    })
}
